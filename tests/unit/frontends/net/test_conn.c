/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One connection: how long a client may take for what, what it is a burden by, when it counts as
 * idle, and how it is given up. The worker that it belongs to has no thread (lib/worker_driver.h).
 */
#include "lib/worker_driver.h"

static void a_body_below_the_least_rate_is_refused(void **state)
{
    (void)state;
    static const char *const heads[] = {
        "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n186a0\r\n",
        "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5;a=", /* extension */
    };
    for (size_t i = 0; i < ARRAY_SIZE(heads); i++) {
        say(&asker, heads[i]);
        assert_in_range(endured("b", " 408 "), 30, 35);
        assert_int_equal(heard(&asker, "the request body took too long"), 1);
        leave(&asker);
        come(&asker);
    }
    /* After much has come at once, too. */
    say(&asker, heads[0]);
    say_bytes(&asker, 50000);
    assert_in_range(endured("b", " 408 "), 31, 65);
    leave(&asker);
    come(&asker);
    /* A trailer. */
    say(&asker, "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nA: ");
    assert_in_range(endured("b", " 408 "), 30, 35);
}

static void a_body_that_comes_fast_enough_may_take_long(void **state)
{
    (void)state;
    say(&asker, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 196608\r\n\r\n");
    for (int i = 0; i < 192; i++) {
        say_bytes(&asker, 1024);
        pass_a_second();
    }
    assert_int_equal(heard(&asker, "196608."), 1);
    pass_a_second();
    assert_int_equal(heard(&asker, "HTTP/1.1 "), 1);
}

/* It is ours to go on, however long it takes. */
static void who_waits_for_an_answer_is_not_slow(void **state)
{
    (void)state;
    limits->max_pipeline = 1;
    say(&asker, "HEAD / HTTP/1.1\r\nHost: x\r\n\r\n");
    say(&asker, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n");
    for (int i = 0; i < 1000; i++)
        pass_a_second();
    exchange_reply_text(held, 200, NULL, "", 0);
    pass_a_second();
    say(&asker, "12345");
    pass_a_second();
    assert_int_equal(heard(&asker, "HTTP/1.1 200 "), 2);
    assert_int_equal(heard(&asker, "5."), 1);
    for (int i = 0; i < 1000; i++) /* nor is who has asked for nothing */
        pass_a_second();
    say(&asker, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    pass_a_second();
    assert_int_equal(heard(&asker, "HTTP/1.1 200 "), 3);
}

/* How much of a large answer a client gets that takes so much of it in each second. */
static size_t taken_of_big(size_t n_bytes)
{
    static char some[64 << 10];
    size_t n = 0;
    say(&asker, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\n123");
    iteration();
    for (int i = 0; i < 1000 && listener.n_open > 0; i++) {
        ssize_t got = recv(asker.fd, some, n_bytes, 0);
        n += got > 0 ? (size_t)got : 0;
        if (n > sizeof(big))
            break;
        pass_a_second();
    }
    return n;
}

static void a_reply_must_be_taken(void **state)
{
    (void)state;
    assert_true(taken_of_big(8 << 10) > sizeof(big));
    assert_int_equal(listener.n_open, 1);
    leave(&asker);
    iteration();
    assert_int_equal(listener.n_open, 0);
    come(&asker);
    assert_in_range(taken_of_big(100), 100 * 30, 100 * 70);
    assert_int_equal(listener.n_open, 0);
    come(&asker); /* the fixture's */
}

/* A loop that stood still reads what came meanwhile before it says that it came too late. */
static void who_was_held_up_by_us_is_not_slow(void **state)
{
    (void)state;
    say(&asker, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10000\r\n\r\n");
    pass_a_second();
    say_bytes(&asker, 100);
    clock_fake_advance(&now, 50 * NS_PER_S);
    pass_a_second();
    pass_a_second();
    say_bytes(&asker, 9900);
    pass_a_second();
    assert_int_equal(heard(&asker, "10000."), 1);
}

static void a_head_ends_after_its_time(void **state)
{
    (void)state;
    assert_in_range(endured("\r\n", " 408 "), 30, 35); /* empty lines in front of none */
    assert_int_equal(heard(&asker, "the request head took too long"), 1);
    leave(&asker);
    come(&asker);

    /* Behind a request that takes its time. */
    say(&asker, "HEAD / HTTP/1.1\r\nHost: x\r\n\r\nGET / HTTP/1.1\r\nA: ");
    for (int i = 0; i < 35; i++) {
        pass_a_second();
        if (i < 25)
            say(&asker, "b");
    }
    exchange_reply_text(held, 200, NULL, "", 0);
    pass_a_second();
    assert_int_equal(heard(&asker, "HTTP/1.1 200 "), 1);
    assert_int_equal(heard(&asker, "HTTP/1.1 408 "), 1);
    leave(&asker);
    iteration();
    come(&asker);

    /* Behind as many as are under way at the same time: it has not begun before. */
    limits->max_pipeline = 1;
    say(&asker, "HEAD / HTTP/1.1\r\nHost: x\r\n\r\nGET / HTTP/1.1\r\nA: ");
    for (int i = 0; i < 100; i++)
        pass_a_second();
    exchange_reply_text(held, 200, NULL, "", 0);
    for (int i = 0; i < 35 && heard(&asker, " 408 ") == 0; i++)
        pass_a_second();
    assert_int_equal(heard(&asker, "HTTP/1.1 200 "), 1);
    assert_int_equal(heard(&asker, "HTTP/1.1 408 "), 1);
}

/* Each head has its own time: an end of one may come with the beginning of the next for ever. */
static void heads_in_pieces_are_not_one_head(void **state)
{
    (void)state;
    say(&asker, "GET / HTTP/1.1\r\nHo");
    assert_int_equal(endured("st: x\r\n\r\nGET / HTTP/1.1\r\nHo", " 408 "), 200);
    assert_int_equal(heard(&asker, "HTTP/1.1 200 "), 200);
}

/* ---- Idle, a burden, given up ---------------------------------------------------------------- */

/* What the worker has of the only client. */
static struct conn *of_asker(void)
{
    assert_false(list_empty(&worker.conns));
    return LIST_ENTRY(worker.conns.next, struct conn, link);
}

static void idle_is_who_has_asked_for_nothing(void **state)
{
    (void)state;
    struct conn *c = of_asker();
    assert_true(conn_is_idle(c));
    say(&asker, "HEAD / HTTP/1.1\r\n");
    assert_false(conn_is_idle(c)); /* there are bytes that nobody has read */
    iteration();
    assert_false(conn_is_idle(c));
    for (int i = 0; i < 3; i++)
        pass_a_second();
    assert_true(conn_is_idle(c)); /* a head that does not end keeps nobody else's descriptor */
    say(&asker, "Host: x\r\n\r\n");
    iteration();
    assert_false(conn_is_idle(c));
    exchange_reply_text(held, 200, NULL, "", 0);
    iteration();
    iteration();
    assert_int_equal(heard(&asker, "HTTP/1.1 200 "), 1);
    assert_true(conn_is_idle(c));
    say(&asker, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n");
    for (int i = 0; i < 3; i++)
        pass_a_second();
    assert_false(conn_is_idle(c)); /* a body is no head */
}

static void an_idle_client_is_closed_after_its_time(void **state)
{
    (void)state;
    clock_fake_advance(&now, 3590 * NS_PER_S);
    pass_a_second();
    assert_int_equal(listener.n_open, 1);
    say(&asker, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); /* which begins it anew */
    pass_a_second();
    assert_int_equal(heard(&asker, "HTTP/1.1 200 "), 1); /* a reply must be taken sooner */
    pass_a_second();
    clock_fake_advance(&now, 3590 * NS_PER_S);
    pass_a_second();
    assert_int_equal(listener.n_open, 1);
    for (int i = 0; i < 15; i++)
        pass_a_second();
    assert_int_equal(listener.n_open, 0);
    assert_int_equal(heard(&asker, "HTTP/1.1 "), 1);
}

/* More for what is kept longer, less for what moves. */
static void a_burden_is_who_does_not_go_on(void **state)
{
    (void)state;
    struct conn *c = of_asker();
    bool stalled;
    assert_int_equal(conn_burden(c, now.time_ns, &stalled), 0);
    say(&asker, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 196608\r\n\r\n");
    say_bytes(&asker, 100000);
    for (int i = 0; i < MAX_ITERATIONS && unread(&asker) > 0; i++)
        iteration();
    uint64_t at_first = conn_burden(c, now.time_ns, &stalled);
    assert_true(at_first > 0 && !stalled);
    uint64_t before = 0;
    for (int i = 0; i < 8; i++) {
        pass_a_second();
        uint64_t burden = conn_burden(c, now.time_ns, &stalled);
        assert_true(burden > before);
        assert_int_equal(stalled, i >= 6); /* five seconds from the first look that saw nothing */
        before = burden;
    }
    assert_true(before > at_first);
    say_bytes(&asker, 50000);
    pass_a_second();
    uint64_t burden = conn_burden(c, now.time_ns, &stalled);
    assert_true(burden < before && !stalled);
}

static void no_burden_is_who_waits_for_us_or_has_little(void **state)
{
    (void)state;
    struct conn *c = of_asker();
    bool stalled;
    say(&asker, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n12345");
    for (int i = 0; i < 20; i++)
        pass_a_second();
    assert_int_equal(conn_burden(c, now.time_ns, &stalled), 0);
    assert_false(stalled);
    say_bytes(&asker, 95);
    say(&asker, "HEAD / HTTP/1.1\r\nHost: x\r\n\r\n");
    for (int i = 0; i < 20; i++)
        pass_a_second();
    assert_non_null(held);
    assert_int_equal(conn_burden(c, now.time_ns, &stalled), 0);
    assert_false(stalled);
    exchange_reply_text(held, 200, NULL, "", 0);
}

static unsigned long long n_evicted(void)
{
    struct budget_stats stats;
    budget_stats(memory, &stats);
    return stats.n_evicted;
}

static void who_is_evicted_is_told_if_that_is_possible(void **state)
{
    (void)state;
    say(&asker, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10000\r\n\r\nabc");
    iteration();
    iteration();
    conn_evict(of_asker());
    iteration();
    assert_int_equal(n_evicted(), 1);
    assert_int_equal(heard(&asker, "HTTP/1.1 503 "), 1);
    assert_int_equal(heard(&asker, "Retry-After: "), 1);
    for (int i = 0; i < 5; i++)
        pass_a_second();
    assert_int_equal(listener.n_open, 0);
    leave(&asker);

    come(&asker); /* who has asked for nothing is told nothing */
    conn_evict(of_asker());
    assert_int_equal(listener.n_open, 0);
    assert_int_equal(heard(&asker, "HTTP/1.1 "), 0);
    leave(&asker);

    come(&asker); /* nor who has half a reply */
    say(&asker, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\n123");
    iteration();
    iteration();
    assert_true(of_asker()->waiting);
    conn_evict(of_asker());
    assert_int_equal(listener.n_open, 0);
    assert_int_equal(n_evicted(), 3);
}

static void a_server_that_stops_waits_for_what_goes_on(void **state)
{
    (void)state;
    service.env->draining = true;
    conn_drain(of_asker());
    assert_int_equal(listener.n_open, 0); /* nothing was under way */
    leave(&asker);
    service.env->draining = false;

    come(&asker);
    say(&asker, "HEAD / HTTP/1.1\r\nHost: x\r\n\r\n");
    iteration();
    service.env->draining = true;
    conn_drain(of_asker());
    for (int i = 0; i < 100; i++)
        pass_a_second();
    assert_int_equal(listener.n_open, 1);
    exchange_reply_text(held, 200, NULL, "", 0);
    pass_a_second();
    assert_int_equal(heard(&asker, "HTTP/1.1 200 "), 1);
    for (int i = 0; i < 5; i++)
        pass_a_second();
    assert_int_equal(listener.n_open, 0);
    leave(&asker);

    /* … but not for who stands still. */
    service.env->draining = false;
    come(&asker);
    say(&asker, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10000\r\n\r\nabc");
    iteration();
    service.env->draining = true;
    for (int i = 0; i < 3; i++)
        pass_a_second();
    assert_int_equal(heard(&asker, "HTTP/1.1 503 "), 1);
    assert_int_equal(heard(&asker, "the server is stopping"), 1);
}

/* A close with unread bytes would be a reset, which takes the reply out of the client's hands. */
static void the_end_waits_for_who_goes_on_sending(void **state)
{
    (void)state;
    say(&asker, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\nthis is too much");
    iteration();
    iteration();
    assert_int_equal(heard(&asker, "HTTP/1.1 200 "), 1);
    assert_int_equal(listener.n_open, 1);
    assert_true(of_asker()->lingering);
    say(&asker, "and so is this");
    iteration();
    assert_int_equal(unread(&asker), 0); /* it is thrown away */
    for (int i = 0; i < 4; i++)
        pass_a_second();
    assert_int_equal(listener.n_open, 0);
    assert_int_equal(heard(&asker, "HTTP/1.1 "), 1);
}

static void who_has_gone_is_closed_at_once(void **state)
{
    (void)state;
    say(&asker, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10000\r\n\r\nabc");
    iteration();
    iteration();
    shutdown(asker.fd, SHUT_RDWR);
    iteration();
    iteration();
    assert_int_equal(listener.n_open, 0);
}

int main(void)
{
#define SLOW(test) cmocka_unit_test_setup_teardown(test, start_slow, stop_slow)
    const struct CMUnitTest tests[] = {
        SLOW(a_body_below_the_least_rate_is_refused),
        SLOW(a_body_that_comes_fast_enough_may_take_long),
        SLOW(who_waits_for_an_answer_is_not_slow),
        SLOW(a_reply_must_be_taken),
        SLOW(who_was_held_up_by_us_is_not_slow),
        SLOW(a_head_ends_after_its_time),
        SLOW(heads_in_pieces_are_not_one_head),
        SLOW(idle_is_who_has_asked_for_nothing),
        SLOW(an_idle_client_is_closed_after_its_time),
        SLOW(a_burden_is_who_does_not_go_on),
        SLOW(no_burden_is_who_waits_for_us_or_has_little),
        SLOW(who_is_evicted_is_told_if_that_is_possible),
        SLOW(a_server_that_stops_waits_for_what_goes_on),
        SLOW(the_end_waits_for_who_goes_on_sending),
        SLOW(who_has_gone_is_closed_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
