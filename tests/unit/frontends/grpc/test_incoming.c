/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory of a message that comes by HTTP/2: how much it gets when, and that it is copied once.
 */
#include "frontends/grpc/incoming.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "lib/http2_pair.h"

static const nghttp2_nv none[1];

enum { IMAGE_BYTES = 602 << 10, MAX_BYTES = 4 << 20, FIRST = INCOMING_FIRST_BYTES };

/* The one message, as it comes. */
static struct incoming incoming;
static struct incoming_message whole;
static const char *first_block; /* that it had */
static size_t first_room;       /* … and its bytes */
static unsigned int n_blocks;   /* that it had */
static bool is_complete;

static void on_begin(struct http2_stream *s, const struct http2_head *head)
{
    (void)head;
    struct http2_env *env = http2_stream_env(s);
    incoming_init(&incoming, s, env->net.pool, MAX_BYTES, false);
    is_complete = false;
    first_block = NULL;
    n_blocks = 0;
}

static void note_block(const char *before)
{
    n_blocks += incoming.block && incoming.block != before;
    if (incoming.block && !first_block) {
        first_block = incoming.block;
        first_room = incoming.room;
    }
}

static void on_data(struct http2_stream *s, const char *bytes, size_t n_bytes)
{
    (void)s;
    while (n_bytes > 0) {
        const char *before = incoming.block;
        size_t used;
        assert_null(incoming_add(&incoming, bytes, n_bytes, &used, &is_complete, &whole));
        note_block(before);
        bytes += used;
        n_bytes -= used;
    }
}

static bool on_turn(struct http2_stream *s, bool is_last)
{
    const char *before = incoming.block;
    (void)s;
    (void)is_last;
    bool has_memory = incoming_on_turn(&incoming);
    note_block(before);
    return has_memory;
}

static void on_half_close(struct http2_stream *s)
{
    (void)s;
}

static void on_cancel(struct http2_stream *s, enum http2_error why)
{
    (void)s;
    (void)why;
}

static void on_end(struct http2_stream *s)
{
    (void)s;
    incoming_done(&incoming);
}

static const struct http2_handler handler = {
    .part_bytes = 64,
    .on_begin = on_begin,
    .on_data = on_data,
    .on_half_close = on_half_close,
    .on_cancel = on_cancel,
    .on_turn = on_turn,
    .on_end = on_end,
};

static struct pair *begin_incoming(void)
{
    struct pair *p = begin_pair();
    p->d.env->handler = &handler;
    return p;
}

/* The prefix and a message of n bytes. */
static char *make_message(size_t n)
{
    char *bytes = make_letters(n + INCOMING_PREFIX_BYTES);
    bytes[0] = 0;
    for (int i = 0; i < 4; i++)
        bytes[1 + i] = (char)(n >> (24 - 8 * i));
    return bytes;
}

static void end_incoming(struct pair *p, struct h2c_stream *s, char *bytes)
{
    if (!s->closed)
        h2c_reset(&p->c, s, NGHTTP2_CANCEL);
    h2c_pump(&p->c);
    p->d.n_ended = p->d.n_begun; /* the driver's handler has seen nothing */
    end_pair(p);
    free(bytes);
}

/* A read of 64 KiB, as connections make it, has a head and most of the first step. */
static void a_message_that_comes_at_once_is_copied_once(void **state)
{
    static const size_t sizes[] = {FIRST + 1, IMAGE_BYTES, 1 << 20};
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
        struct pair *p = begin_incoming();
        char *bytes = make_message(sizes[i]);
        p->c.portion = 64 << 10;
        struct h2c_stream *s = h2c_post(&p->c, "/", bytes, sizes[i] + INCOMING_PREFIX_BYTES);
        h2c_pump(&p->c);
        assert_true(is_complete);
        assert_int_equal(n_blocks, 1);
        assert_ptr_equal(whole.block, first_block);
        assert_int_equal(first_room, sizes[i]);
        assert_memory_equal(whole.bytes, bytes + INCOMING_PREFIX_BYTES, sizes[i]);
        pool_release(whole.block);
        end_incoming(p, s, bytes);
    }
}

/* What comes slowly gets the second block with half of the first. */
static void a_message_that_comes_slowly_begins_with_little(void **state)
{
    (void)state;
    struct pair *p = begin_incoming();
    char *bytes = make_message(IMAGE_BYTES);
    struct h2c_stream *s = h2c_request(&p->c, "/", bytes, IMAGE_BYTES + INCOMING_PREFIX_BYTES,
                                       INCOMING_PREFIX_BYTES + 1, none, 0);
    h2c_pump(&p->c);
    assert_int_equal(incoming.room, FIRST);
    h2c_allow(&p->c, s, INCOMING_PREFIX_BYTES + FIRST / 2 - 1);
    h2c_pump(&p->c);
    assert_int_equal(incoming.room, FIRST);
    h2c_allow(&p->c, s, INCOMING_PREFIX_BYTES + FIRST / 2);
    h2c_pump(&p->c);
    assert_int_equal(incoming.room, IMAGE_BYTES);
    h2c_allow(&p->c, s, SIZE_MAX);
    h2c_pump(&p->c);
    assert_true(is_complete);
    assert_int_equal(n_blocks, 2);
    assert_memory_equal(whole.bytes, bytes + INCOMING_PREFIX_BYTES, IMAGE_BYTES);
    pool_release(whole.block);
    end_incoming(p, s, bytes);
}

/* A length that is announced costs nothing, and a long message 1 MiB until its turn. */
static void a_long_message_grows_with_its_turn(void **state)
{
    enum { LONG = 3 << 20 };
    (void)state;
    struct pair *p = begin_incoming();
    char *bytes = make_message(LONG);
    struct h2c_stream *s = h2c_request(&p->c, "/", bytes, LONG + INCOMING_PREFIX_BYTES,
                                       INCOMING_PREFIX_BYTES, none, 0);
    h2c_pump(&p->c);
    assert_null(incoming.block);
    h2c_allow(&p->c, s, INCOMING_PREFIX_BYTES + FIRST - 1);
    h2c_pump(&p->c);
    assert_int_equal(incoming.room, INCOMING_UNASKED_BYTES);
    h2c_allow(&p->c, s, SIZE_MAX);
    h2c_pump(&p->c);
    http2_env_give_turns(p->d.env);
    h2c_pump(&p->c);
    assert_true(is_complete);
    assert_memory_equal(whole.bytes, bytes + INCOMING_PREFIX_BYTES, LONG);
    pool_release(whole.block);
    end_incoming(p, s, bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_message_that_comes_at_once_is_copied_once),
        cmocka_unit_test(a_message_that_comes_slowly_begins_with_little),
        cmocka_unit_test(a_long_message_grows_with_its_turn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
