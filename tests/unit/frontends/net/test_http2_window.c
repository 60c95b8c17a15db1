/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes that a client may send: windows, expected messages, turns for memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/budget.h"
#include "lib/http2_pair.h"

static const nghttp2_nv none[1];

static size_t get_received(struct pair *p, struct h2c_stream *s)
{
    (void)p;
    return s->n_sent;
}

static void a_stream_that_is_not_taken_gets_one_window(void **state)
{
    (void)state;
    struct pair *p = begin_pair();
    char *body = make_letters(3 << 20);
    struct h2c_stream *held = h2c_post(&p->c, "/hold", body, 3 << 20);
    struct h2c_stream *taken = h2c_post(&p->c, "/echo", body, 3 << 20);
    h2c_pump(&p->c);
    assert_int_equal(get_received(p, held), 1 << 20);
    assert_true(taken->closed); /* others go on */
    assert_int_equal(taken->n_data, 3 << 20);
    free(body);
    end_pair(p);
}

static void the_connection_has_a_window_of_its_own(void **state)
{
    (void)state;
    struct pair *p = begin_pair();
    char *body = make_letters(1 << 20);
    for (int i = 0; i < 20; i++)
        (void)h2c_post(&p->c, "/hold", body, 1 << 20);
    struct h2c_stream *last = h2c_request(&p->c, "/hold", body, 1 << 20, SIZE_MAX, none, 0);
    h2c_pump(&p->c);
    size_t all = 0;
    for (int i = 0; i < 21; i++)
        all += p->c.streams[i].n_sent;
    assert_int_equal(all, 16 << 20);
    assert_false(last->ended);
    free(body);
    end_pair(p);
}

/* Small requests cause no frames about windows but one of the connection each 8 MiB. */
static void small_requests_need_no_updates(void **state)
{
    (void)state;
    struct pair *p = begin_pair();
    char *body = make_letters(1000);
    h2c_pump(&p->c);
    size_t n_updates = 0;
    for (int i = 0; i < 2000; i++) {
        (void)h2c_post(&p->c, "/sized", "\0\0\0\4", 4);
        h2c_collect(&p->c);
        (void)h2_feed(&p->d, p->c.wire + p->c.n_wire - p->c.n_unfed, p->c.n_unfed);
        p->c.n_unfed = 0;
        h2_flush(&p->d);
        n_updates += h2_scan(&p->d, NGHTTP2_WINDOW_UPDATE, NULL);
        h2c_read(&p->c);
    }
    assert_int_equal(n_updates, 0);
    assert_int_equal(p->d.n_ended, 2000);
    free(body);
    end_pair(p);
}

static char *make_sized(size_t n)
{
    char *body = make_letters(n);
    for (int i = 0; i < 4; i++)
        body[i] = (char)(n >> (24 - 8 * i));
    return body;
}

static void check_hash(const struct h2c_stream *s, const char *body, size_t n)
{
    char text[16];
    snprintf(text, sizeof(text), "%08x", h2_hash(body, n));
    assert_true(s->closed);
    assert_int_equal(s->n_data, 8);
    assert_memory_equal(s->data, text, 8);
}

static void a_long_message_is_granted_whole(void **state)
{
    (void)state;
    static const size_t sizes[] = {5, 65537, 602112, 1 << 20, (1 << 20) + 1, 20 << 20, 40 << 20};
    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
        struct pair *p = begin_pair();
        char *body = make_sized(sizes[i]);
        struct h2c_stream *s = h2c_post(&p->c, "/sized", body, sizes[i]);
        h2c_pump(&p->c);
        check_hash(s, body, sizes[i]);
        /* The connection's window was refilled in time. */
        assert_in_range(nghttp2_session_get_remote_window_size(p->c.ng), 8 << 20, 17 << 20);
        free(body);
        end_pair(p);
    }
}

/* Nothing is granted beyond the message: the client has sent what it announced. */
static void no_more_is_granted_than_announced(void **state)
{
    (void)state;
    struct pair *p = begin_pair();
    char *body = make_letters(4 << 20);
    memcpy(body, "\0\x20\0\0", 4); /* 2 MiB, and the client sends 4 */
    struct h2c_stream *s = h2c_post(&p->c, "/sized", body, 4 << 20);
    h2c_pump(&p->c);
    assert_false(s->closed);
    assert_int_equal(get_received(p, s), 2 << 20);
    free(body);
    end_pair(p);
}

static void use_small_windows(struct h2_driver *d)
{
    d->settings.limits.stream_window_bytes = 65535;
    d->settings.limits.connection_window_bytes = 3 * 65535;
}

/*
 * Many incomplete messages have more bytes than the connection's window. Each still gets its rest,
 * since the rest was expected.
 */
static void incomplete_messages_do_not_wait_for_each_other(void **state)
{
    (void)state;
    enum { N = 12, SIZE = 60000 };
    struct pair *p = begin_pair_with(use_small_windows, 0);
    char *body = make_sized(SIZE);
    h2c_pump(&p->c);
    for (int i = 0; i < N; i++)
        (void)h2c_request(&p->c, "/sized", body, SIZE, SIZE / 2, none, 0);
    h2c_pump(&p->c);
    assert_int_equal(p->d.n_begun, N);
    for (int i = 0; i < N; i++)
        assert_int_equal(get_received(p, &p->c.streams[i]), SIZE / 2);
    for (int i = N; i-- > 0;) {
        h2c_allow(&p->c, &p->c.streams[i], SIZE_MAX);
        h2c_pump(&p->c);
        check_hash(&p->c.streams[i], body, SIZE);
    }
    free(body);
    end_pair(p);
}

static void use_turns(struct h2_driver *d)
{
    d->memory_left = 5 << 20;
    d->settings.times.turn_ns = 10 * NS_PER_S;
}

static void long_messages_get_memory_in_turn(void **state)
{
    (void)state;
    enum { SIZE = 3 << 20 };
    struct pair *p = begin_pair_with(use_turns, 0);
    char *body = make_sized(SIZE);
    struct h2c_stream *s[3];
    for (int i = 0; i < 3; i++)
        s[i] = h2c_request(&p->c, "/sized", body, SIZE, SIZE - 1, none, 0);
    h2c_pump(&p->c);
    assert_int_equal(get_received(p, s[0]), SIZE - 1);
    assert_int_equal(get_received(p, s[1]), 1 << 20); /* a window; its turn comes later */
    assert_int_equal(get_received(p, s[2]), 1 << 20);
    http2_env_give_turns(p->d.env);
    h2c_pump(&p->c);
    assert_int_equal(get_received(p, s[1]), 1 << 20);
    h2c_allow(&p->c, s[0], SIZE_MAX);
    h2c_pump(&p->c);
    check_hash(s[0], body, SIZE);
    http2_env_give_turns(p->d.env);
    h2c_pump(&p->c);
    assert_int_equal(get_received(p, s[1]), SIZE - 1);
    /* The third one waits longer than turn_ns, and fails. */
    p->d.now_ns += 11 * NS_PER_S;
    http2_env_give_turns(p->d.env);
    h2c_pump(&p->c);
    assert_string_equal(s[2]->status, "503");
    assert_true(s[2]->closed);
    /* A stream that ends leaves the line. */
    struct h2c_stream *gone = h2c_request(&p->c, "/sized", body, SIZE, SIZE - 1, none, 0);
    h2c_pump(&p->c);
    h2c_reset(&p->c, gone, HTTP2_CANCEL);
    h2c_pump(&p->c);
    http2_env_give_turns(p->d.env);
    h2c_allow(&p->c, s[1], SIZE_MAX);
    h2c_pump(&p->c);
    check_hash(s[1], body, SIZE);
    assert_int_equal(p->d.memory_left, 5 << 20);
    free(body);
    end_pair(p);
}

/* Makes a request whose first bytes have come, and whose handler has not asked for its turn. */
static struct h2c_stream *begin_unasked(struct pair *p, const char *body, size_t n_body)
{
    enum { FIRST = 100 };
    struct h2c_stream *s = h2c_request(&p->c, "/hold", body, n_body, FIRST, none, 0);
    h2c_pump(&p->c);
    struct h2_part *part = http2_stream_part(p->d.kept[p->d.n_kept - 1]);
    assert_int_equal(part->n_body, FIRST);
    part->n_sized = (uint32_t)n_body;
    part->n_held = FIRST;
    return s;
}

/* As for a message that comes while its call is held, when that ends by an event of the loop. */
static void a_turn_asked_outside_a_call_is_given(void **state)
{
    (void)state;
    enum { SIZE = 3 << 20 };
    struct pair *p = begin_pair_with(use_turns, 0);
    char *body = make_sized(SIZE);
    p->d.keeps = true;

    /* It is given before the next write, which is asked for. */
    struct h2c_stream *s = begin_unasked(p, body, SIZE);
    const struct h2_part *part = http2_stream_part(p->d.kept[0]);
    unsigned int n_outputs = p->d.n_outputs;
    http2_stream_await_turn(p->d.kept[0]);
    assert_false(part->granted);
    assert_int_equal(p->d.n_outputs, n_outputs + 1);
    h2_flush(&p->d);
    assert_true(part->granted);
    h2c_read(&p->c);
    h2c_allow(&p->c, s, SIZE - 1);
    h2c_pump(&p->c);
    assert_int_equal(get_received(p, s), SIZE - 1);

    /* Behind another one that waits for memory, which the first has. */
    struct h2c_stream *waits = h2c_request(&p->c, "/sized", body, SIZE, 70000, none, 0);
    h2c_pump(&p->c);
    struct h2c_stream *last = begin_unasked(p, body, SIZE);
    const struct h2_part *waits_part = http2_stream_part(p->d.kept[1]);
    const struct h2_part *last_part = http2_stream_part(p->d.kept[2]);
    http2_stream_await_turn(p->d.kept[2]);
    h2c_pump(&p->c);
    assert_false(waits_part->granted || last_part->granted);
    h2c_allow(&p->c, s, SIZE_MAX);
    h2c_pump(&p->c);
    assert_true(s->ended);
    h2_let_go(&p->d);
    http2_env_give_turns(p->d.env);
    assert_true(waits_part->granted);
    assert_false(last_part->granted);
    h2c_allow(&p->c, waits, SIZE_MAX);
    h2c_pump(&p->c);
    check_hash(waits, body, SIZE);
    http2_env_give_turns(p->d.env);
    assert_true(last_part->granted);
    h2c_allow(&p->c, last, SIZE_MAX);
    h2c_pump(&p->c);
    assert_int_equal(last->n_data, SIZE);

    /* One that ends before its turn is given does not hold up the next. */
    struct h2c_stream *gone = begin_unasked(p, body, SIZE);
    http2_stream_await_turn(p->d.kept[0]);
    h2c_reset(&p->c, gone, HTTP2_CANCEL);
    h2c_pump(&p->c);
    h2_let_go(&p->d);
    s = h2c_request(&p->c, "/sized", body, SIZE, SIZE_MAX, none, 0);
    h2c_pump(&p->c);
    check_hash(s, body, SIZE);
    h2_let_go(&p->d);
    assert_int_equal(p->d.memory_left, 5 << 20);
    free(body);
    end_pair(p);
}

/* The window of a connection is refilled for DATA of streams that are gone, and for padding. */
static void windows_are_refilled_for_lost_bytes(void **state)
{
    (void)state;
    struct pair *p = begin_pair_with(use_small_windows, 0);
    char *body = make_letters(60000);
    h2c_pump(&p->c);
    for (int i = 0; i < 40; i++) {
        struct h2c_stream *s = h2c_request(&p->c, "/reset", body, 60000, 60000, none, 0);
        h2c_collect(&p->c); /* the body is under way when the reset comes */
        h2c_pump(&p->c);
        assert_true(s->closed);
    }
    struct h2c_stream *s = h2c_post(&p->c, "/echo", body, 60000);
    h2c_pump(&p->c);
    assert_int_equal(s->n_data, 60000);
    free(body);
    end_pair(p);
}

static ssize_t pad_much(nghttp2_session *ng, const nghttp2_frame *frame, size_t max, void *arg)
{
    (void)ng, (void)arg;
    return (ssize_t)(frame->hd.length + 200 < max ? frame->hd.length + 200 : max);
}

static void windows_are_refilled_for_padding(void **state)
{
    (void)state;
    enum { N = 20000 };
    struct pair *p = begin_pair_with(use_small_windows, 0);
    nghttp2_session_del(p->c.ng);
    nghttp2_session_callbacks *callbacks;
    nghttp2_session_callbacks_new(&callbacks);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, h2c_on_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, h2c_on_data);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, h2c_on_frame);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, h2c_on_close);
    nghttp2_session_callbacks_set_select_padding_callback(callbacks, pad_much);
    nghttp2_session_client_new(&p->c.ng, callbacks, &p->c);
    nghttp2_session_callbacks_del(callbacks);
    nghttp2_submit_settings(p->c.ng, 0, NULL, 0);
    char *body = make_letters(N);
    struct h2c_stream *s = h2c_request(&p->c, "/echo", body, N, 0, none, 0);
    for (size_t i = 20; i <= N; i += 20) { /* ten bytes of padding for each of the body's */
        h2c_allow(&p->c, s, i);
        h2c_pump(&p->c);
        assert_int_equal(get_received(p, s), i);
    }
    h2c_allow(&p->c, s, SIZE_MAX);
    h2c_pump(&p->c);
    assert_int_equal(s->n_data, N);
    free(body);
    end_pair(p);
}

static void a_client_beyond_its_window_is_at_fault(void **state)
{
    (void)state;
    struct pair *p = begin_pair_with(use_small_windows, 0);
    (void)h2c_request(&p->c, "/hold", "x", 1, 1, none, 0);
    h2c_pump(&p->c);
    char *frame = calloc(1, 9 + 16384);
    memcpy(frame, "\0\x40\0\0\0\0\0\0\1", 9);
    for (int i = 0; i < 4; i++) /* 65536 + 1 of 65535 */
        (void)h2_feed(&p->d, frame, 9 + 16384);
    h2c_pump(&p->c);
    assert_true(p->c.streams[0].closed);
    assert_int_equal(p->c.streams[0].close_code, HTTP2_FLOW_CONTROL_ERROR);
    free(frame);
    end_pair(p);
}

/* While memory is short, new connections have small windows. */
static void a_short_budget_makes_small_windows(void **state)
{
    (void)state;
    struct budget *b = budget_new(1 << 20);
    struct h2_driver *d = malloc(sizeof(*d));
    struct h2_client *c = malloc(sizeof(*c));
    h2_init(d);
    d->now_ns = monotonic_ns();
    h2_begin(d);
    h2_end_session(d);
    d->env->net.budget = b;
    assert_false(budget_take(b, 2 << 20));
    assert_true(budget_take(b, 850 << 10));
    h2_begin_session(d);
    h2c_init(c, d, 0);
    /* Expected bytes may come all the same. */
    char *sized = make_sized(50000);
    struct h2c_stream *expected = h2c_post(c, "/sized", sized, 50000);
    h2c_pump(c);
    check_hash(expected, sized, 50000);
    free(sized);
    char *body = make_letters(1 << 20);
    struct h2c_stream *s = h2c_post(c, "/hold", body, 1 << 20);
    h2c_pump(c);
    assert_int_equal(s->n_sent, 65535);
    budget_give(b, 850 << 10);
    h2c_done(c);
    assert_true(h2_done(d));
    budget_unref(b);
    free(body);
    free(c);
    free(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stream_that_is_not_taken_gets_one_window),
        cmocka_unit_test(the_connection_has_a_window_of_its_own),
        cmocka_unit_test(small_requests_need_no_updates),
        cmocka_unit_test(a_long_message_is_granted_whole),
        cmocka_unit_test(no_more_is_granted_than_announced),
        cmocka_unit_test(incomplete_messages_do_not_wait_for_each_other),
        cmocka_unit_test(long_messages_get_memory_in_turn),
        cmocka_unit_test(a_turn_asked_outside_a_call_is_given),
        cmocka_unit_test(windows_are_refilled_for_lost_bytes),
        cmocka_unit_test(windows_are_refilled_for_padding),
        cmocka_unit_test(a_client_beyond_its_window_is_at_fault),
        cmocka_unit_test(a_short_budget_makes_small_windows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
