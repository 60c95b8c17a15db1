/* SPDX-License-Identifier: Apache-2.0 */
/* The queue of a connection's output: order, counts, and calls of the owners. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "frontends/net/out_queue.h"
#include "lib/death.h"

static struct out_queue queue;
static char released[64]; /* the names of the owners, in the order of the releases */

static int start(void **state)
{
    (void)state;
    queue = (struct out_queue){0};
    released[0] = '\0';
    return 0;
}

static void note_release(void *owner)
{
    size_t n = strlen(released);
    assert_true(n + 1 < sizeof(released));
    memcpy(released + n, owner, 2);
}

static struct out_piece piece_of(const char *text, const char *owner)
{
    return (struct out_piece){.bytes = text,
                              .n_bytes = strlen(text),
                              .release = owner ? note_release : NULL,
                              .owner = (void *)(uintptr_t)owner};
}

/* Returns the bytes of one send of this many pieces. */
static const char *gathered(int max_pieces)
{
    static char text[256];
    struct iovec pieces[8];
    size_t n_bytes, at = 0;
    int n = out_queue_gather(&queue, pieces, max_pieces, &n_bytes);
    for (int i = 0; i < n; i++) {
        memcpy(text + at, pieces[i].iov_base, pieces[i].iov_len);
        at += pieces[i].iov_len;
    }
    assert_int_equal(at, n_bytes);
    text[at] = '\0';
    return text;
}

static void pieces_are_sent_in_order(void **state)
{
    (void)state;
    struct out_piece a = piece_of("one", "a"), b = piece_of("two", NULL), c = piece_of("3", "c");
    assert_string_equal(gathered(8), "");
    out_queue_add(&queue, &a);
    out_queue_add(&queue, &b);
    out_queue_add(&queue, &c);
    assert_int_equal(queue.n_bytes, 7);
    assert_string_equal(gathered(8), "onetwo3");
    assert_string_equal(gathered(2), "onetwo");

    out_queue_sent(&queue, 2);
    assert_string_equal(released, "");
    assert_string_equal(gathered(8), "etwo3");
    assert_int_equal(queue.n_bytes, 5);
    out_queue_sent(&queue, 1); /* exactly to the end of a piece */
    assert_string_equal(released, "a");
    assert_string_equal(gathered(8), "two3");
    out_queue_sent(&queue, 0);
    assert_string_equal(gathered(8), "two3");
    out_queue_sent(&queue, 4);
    assert_string_equal(released, "ac");
    assert_int_equal(queue.n_bytes, 0);
    assert_string_equal(gathered(8), "");

    b = piece_of("two", "b"); /* the owner got the piece back */
    out_queue_add(&queue, &b);
    out_queue_drop(&queue);
    assert_string_equal(released, "acb");
}

static void dropped_pieces_are_released(void **state)
{
    (void)state;
    struct out_piece a = piece_of("one", "a"), b = piece_of("two", "b");
    out_queue_add(&queue, &a);
    out_queue_add(&queue, &b);
    out_queue_sent(&queue, 1);
    out_queue_drop(&queue);
    assert_string_equal(released, "ab");
    assert_int_equal(queue.n_bytes, 0);
    assert_null(queue.first);
    out_queue_drop(&queue); /* drops nothing */
    assert_string_equal(released, "ab");
}

static void a_chain_is_added_at_once(void **state)
{
    (void)state;
    struct out_piece a = piece_of("one", "a"), b = piece_of("two", "b"), c = piece_of("3", "c");
    a.next = &b;
    b.next = &c; /* not part of the chain */
    out_queue_add_chain(&queue, &a, &b, 6);
    assert_string_equal(gathered(8), "onetwo");
    out_queue_add(&queue, &c);
    assert_string_equal(gathered(8), "onetwo3");
    assert_int_equal(queue.n_bytes, 7);
    out_queue_drop(&queue);
    assert_string_equal(released, "abc");
}

static void free_piece(void *owner)
{
    free(owner);
}

/* A release may free the piece: the queue does not read it afterwards. */
static void a_release_may_free_the_piece(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct out_piece *p = malloc(sizeof(*p));
        assert_non_null(p);
        *p = (struct out_piece){.bytes = "xy", .n_bytes = 2, .release = free_piece, .owner = p};
        out_queue_add(&queue, p);
    }
    out_queue_sent(&queue, 4);
    assert_int_equal(queue.n_bytes, 2);
    out_queue_drop(&queue);
    assert_int_equal(queue.n_bytes, 0);
}

static void the_first_piece_can_be_removed(void **state)
{
    (void)state;
    struct out_piece a = piece_of("one", "a"), b = piece_of("two", "b");
    out_queue_add(&queue, &a);
    out_queue_take_back(&queue, &a);
    assert_int_equal(queue.n_bytes, 0);
    out_queue_add(&queue, &a);
    out_queue_add(&queue, &b);
    out_queue_take_back(&queue, &a);
    assert_string_equal(gathered(8), "two");
    out_queue_add(&queue, &a);
    assert_string_equal(gathered(8), "twoone");
    assert_string_equal(released, "");
    out_queue_drop(&queue);
}

static void send_too_much(void *arg)
{
    struct out_piece a = piece_of("one", NULL);
    (void)arg;
    out_queue_add(&queue, &a);
    out_queue_sent(&queue, 4);
}

static void sending_more_than_queued_aborts(void **state)
{
    (void)state;
    assert_aborts(send_too_much, NULL, "!p");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(pieces_are_sent_in_order, start),
        cmocka_unit_test_setup(a_chain_is_added_at_once, start),
        cmocka_unit_test_setup(dropped_pieces_are_released, start),
        cmocka_unit_test_setup(a_release_may_free_the_piece, start),
        cmocka_unit_test_setup(the_first_piece_can_be_removed, start),
        cmocka_unit_test_setup(sending_more_than_queued_aborts, start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
