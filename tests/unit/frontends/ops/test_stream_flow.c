/* SPDX-License-Identifier: Apache-2.0 */
/* The limit of a stream's unsent responses: who waits, until when, and what a client that does not
 * read costs. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/loop.h"
#include "base/thread.h"
#include "frontends/ops/stream_flow.h"
#include "lib/fake_clock.h"

#define STALL_NS (60 * NS_PER_S)

static const struct stream_flow_limits limits = {
    .max_responses = 4, .max_bytes = 1000, .stall_ns = STALL_NS};

static struct clock_fake fake;
static struct loop loop; /* owned by no thread: all may wait */
static struct stream_flow flow;

static void begin_flow(const struct stream_flow_limits *of)
{
    clock_fake_init(&fake, 1000 * NS_PER_S);
    assert_null(loop_init(&loop, &fake.clock));
    stream_flow_init(&flow, of, &fake.clock);
}

static void end_flow(void)
{
    stream_flow_done(&flow);
    loop_done(&loop);
}

static bool take(size_t n_bytes)
{
    return stream_flow_take(&flow, &loop, n_bytes, false);
}

/* ---- A thread that takes, and may wait ------------------------------------------------------- */

static pthread_t taker;
static bool was_wanted;

static void *take_one(void *arg)
{
    was_wanted = take(*(const size_t *)arg);
    return NULL;
}

static void begin_take(const size_t *n_bytes)
{
    assert_int_equal(pthread_create(&taker, NULL, take_one, (void *)(uintptr_t)n_bytes), 0);
    clock_fake_await(&fake, STALL_NS); /* it waits */
}

static bool end_take(void)
{
    assert_int_equal(pthread_join(taker, NULL), 0);
    return was_wanted;
}

/* ---- The tests ------------------------------------------------------------------------------- */

static void a_full_flow_has_room_when_half_has_left(void **state)
{
    (void)state;
    static const size_t ten = 10;
    begin_flow(&limits);
    for (int i = 0; i < 4; i++)
        assert_true(take(ten));
    begin_take(&ten);
    stream_flow_drop(&flow, 1, ten);
    stream_flow_drop(&flow, 1, ten);
    clock_fake_await(&fake, STALL_NS); /* two of four are not below the half */
    stream_flow_drop(&flow, 1, ten);
    assert_true(end_take());
    assert_int_equal(flow.n_responses, 2);
    assert_int_equal(flow.n_bytes, 2 * ten);
    assert_false(atomic_load(&flow.has_stalled));
    end_flow();
}

static void bytes_limit_it_too(void **state)
{
    (void)state;
    static const size_t many = 999, one = 1;
    begin_flow(&limits);
    assert_true(take(many));
    assert_true(take(one)); /* full, with two responses */
    begin_take(&one);
    stream_flow_exchange(&flow, many, 600); /* text is shorter: still more than half */
    clock_fake_await(&fake, STALL_NS);
    stream_flow_drop(&flow, 1, 600);
    assert_true(end_take());
    assert_int_equal(flow.n_bytes, 2);
    end_flow();
}

static void text_that_is_longer_fills_it(void **state)
{
    (void)state;
    static const size_t one = 1;
    begin_flow(&limits);
    assert_true(take(one));
    stream_flow_exchange(&flow, one, 1000);
    begin_take(&one);
    stream_flow_drop(&flow, 1, 1000);
    assert_true(end_take());
    assert_int_equal(flow.n_responses, 1);
    assert_int_equal(flow.n_bytes, 1);
    end_flow();
}

static void a_client_that_reads_nothing_has_stalled(void **state)
{
    (void)state;
    static const size_t all = 1000;
    begin_flow(&limits);
    assert_true(take(all));
    begin_take(&all);
    clock_fake_advance(&fake, STALL_NS - 1);
    clock_fake_await(&fake, 1);
    assert_false(atomic_load(&flow.has_stalled));
    clock_fake_advance(&fake, 1);
    assert_true(end_take()); /* it counts nevertheless: the loop is to end the request */
    assert_true(atomic_load(&flow.has_stalled));
    assert_int_equal(flow.n_responses, 2);
    end_flow();
}

static void each_response_that_leaves_gives_the_client_more_time(void **state)
{
    (void)state;
    static const size_t ten = 10;
    begin_flow(&limits);
    for (int i = 0; i < 4; i++)
        assert_true(take(ten));
    begin_take(&ten);
    clock_fake_advance(&fake, STALL_NS - 1);
    stream_flow_drop(&flow, 1, ten); /* not enough to go on */
    clock_fake_advance(&fake, 1);
    clock_fake_await(&fake, STALL_NS - 1);
    assert_false(atomic_load(&flow.has_stalled));
    stream_flow_drop(&flow, 3, 3 * ten);
    assert_true(end_take());
    assert_false(atomic_load(&flow.has_stalled));
    end_flow();
}

static void nobody_wants_a_response_of_a_request_that_has_ended(void **state)
{
    (void)state;
    static const size_t all = 1000;
    begin_flow(&limits);
    assert_true(take(all));
    begin_take(&all);
    stream_flow_end(&flow);
    assert_false(end_take());
    assert_false(take(1));
    assert_int_equal(flow.n_responses, 1);
    assert_false(atomic_load(&flow.has_stalled));
    end_flow();
}

static void errors_and_the_loop_never_wait(void **state)
{
    (void)state;
    begin_flow(&limits);
    assert_true(take(1000));
    assert_true(stream_flow_take(&flow, &loop, 10, true));
    assert_false(atomic_load(&flow.has_stalled));
    loop.owner = pthread_self();
    assert_true(take(10));
    assert_true(atomic_load(&flow.has_stalled)); /* it cannot wait for itself */
    assert_int_equal(flow.n_responses, 3);
    end_flow();
}

static void a_limit_of_one_response_is_one_at_a_time(void **state)
{
    (void)state;
    static const struct stream_flow_limits one_response = {
        .max_responses = 1, .max_bytes = 1000, .stall_ns = STALL_NS};
    static const size_t ten = 10;
    begin_flow(&one_response);
    for (int i = 0; i < 3; i++) {
        assert_true(take(ten));
        begin_take(&ten);
        stream_flow_drop(&flow, 1, ten);
        assert_true(end_take());
        stream_flow_drop(&flow, 1, ten);
    }
    assert_int_equal(flow.n_responses, 0);
    end_flow();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_full_flow_has_room_when_half_has_left),
        cmocka_unit_test(bytes_limit_it_too),
        cmocka_unit_test(text_that_is_longer_fills_it),
        cmocka_unit_test(a_client_that_reads_nothing_has_stalled),
        cmocka_unit_test(each_response_that_leaves_gives_the_client_more_time),
        cmocka_unit_test(nobody_wants_a_response_of_a_request_that_has_ended),
        cmocka_unit_test(errors_and_the_loop_never_wait),
        cmocka_unit_test(a_limit_of_one_response_is_one_at_a_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
