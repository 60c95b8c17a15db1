/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a worker does for many connections at once is shared out over iterations, so that a small
 * request waits for none of it for long. Closing a connection takes half a millisecond here.
 */
#include "lib/worker_driver.h"

#include <sys/resource.h>
#include <sys/syscall.h>

enum {
    CROWD = 200,
    CLOSE_NS = NS_PER_MS / 2,
    SLICE_CLOSES = 16, /* at most in one iteration: 2 ms, and what a look at the clock misses */
};

static unsigned int n_closed; /* by the worker */

int close(int fd)
{
    if (fd > 0 && (fd == worker.loop.epoll_fd || listener.n_open == 0))
        return (int)syscall(SYS_close, fd);
    n_closed++;
    clock_fake_advance(&now, CLOSE_NS);
    return (int)syscall(SYS_close, fd);
}

static struct client crowd[CROWD];

static void leave_unseen(struct client *c)
{
    syscall(SYS_close, c->fd);
    c->fd = 0;
}

/* Clients that do not read their large answers. */
static int start_crowd(void **state)
{
    struct rlimit files;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &files), 0);
    files.rlim_cur = files.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &files), 0);
    start_slow(state);
    for (int i = 0; i < CROWD; i++) {
        come(&crowd[i]);
        say(&crowd[i], "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\n123");
    }
    for (int i = 0; i < MAX_ITERATIONS && n_requests < CROWD; i++)
        iteration();
    iteration();
    assert_int_equal(n_requests, CROWD);
    assert_int_equal(listener.n_open, CROWD + 1);
    n_closed = 0;
    return 0;
}

static int stop_crowd(void **state)
{
    for (int i = 0; i < CROWD; i++) {
        if (crowd[i].fd > 0)
            leave_unseen(&crowd[i]);
    }
    return stop_slow(state);
}

/* Runs iterations until the crowd is gone. Returns their number. */
static unsigned int until_gone(void (*each)(unsigned int i))
{
    unsigned int n = 0;
    while (listener.n_open > 1 && n < CROWD) {
        unsigned int before = n_closed;
        if (each)
            each(n);
        iteration();
        assert_in_range(n_closed - before, 0, SLICE_CLOSES);
        n++;
    }
    assert_int_equal(listener.n_open, 1);
    return n;
}

static void exceed_budget(void)
{
    budget_set_limit(memory, 1);
    assert_true(budget_take(memory, 1000)); /* a small block is never refused */
}

static unsigned long long n_evicted(void)
{
    struct budget_stats stats;
    budget_stats(memory, &stats);
    return stats.n_evicted;
}

static void evictions_are_shared_out(void **state)
{
    (void)state;
    exceed_budget();
    assert_in_range(until_gone(NULL), CROWD / SLICE_CLOSES, CROWD);
    assert_int_equal(n_evicted(), CROWD);
    budget_give(memory, 1000);
}

/* No more go than have to. */
static void evictions_end_with_the_shortage(void **state)
{
    (void)state;
    exceed_budget();
    for (int i = 0; i < MAX_ITERATIONS && n_evicted() == 0; i++)
        iteration();
    budget_set_limit(memory, 1 << 30);
    budget_give(memory, 1000);
    unsigned long long n = n_evicted();
    assert_in_range(n, 1, SLICE_CLOSES);
    for (int i = 0; i < 20; i++)
        iteration();
    assert_int_equal(n_evicted(), n);
    assert_int_equal(listener.n_open, CROWD + 1 - n);
}

static void time_outs_are_shared_out(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++)
        pass_a_second();
    clock_fake_advance(&now, 50 * NS_PER_S);
    assert_in_range(until_gone(NULL), CROWD / SLICE_CLOSES, CROWD);
    assert_int_equal(n_evicted(), 0);
}

/* Two go in each iteration, some of which the walk would have come to next. */
static void leave_two(unsigned int i)
{
    const unsigned int two[] = {CROWD - 1 - i, (i + 1) * SLICE_CLOSES / 2};
    for (size_t j = 0; j < ARRAY_SIZE(two); j++) {
        if (two[j] < CROWD && crowd[two[j]].fd > 0)
            leave_unseen(&crowd[two[j]]);
    }
}

static void clients_may_leave_while_others_are_evicted(void **state)
{
    (void)state;
    exceed_budget();
    until_gone(leave_two);
    assert_in_range(n_evicted(), CROWD / 2, CROWD - 10);
    budget_give(memory, 1000);
}

static void clients_may_leave_while_others_time_out(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++)
        pass_a_second();
    clock_fake_advance(&now, 50 * NS_PER_S);
    until_gone(leave_two);
}

/* A body that has begun may have others evicted, but not all of them in one iteration. */
static void a_body_that_lacks_memory_evicts_some(void **state)
{
    (void)state;
    say(&asker, "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1e8480\r\n");
    for (int i = 0; i < 3; i++) {
        say_bytes(&asker, 64 << 10);
        while (unread(&asker) > 0)
            iteration();
    }
    assert_int_equal(n_closed, 0);
    budget_set_limit(memory, 100 << 10);
    for (int i = 0; i < 40 && n_closed == 0; i++) {
        say_bytes(&asker, 64 << 10);
        for (int j = 0; j < 20 && n_closed == 0; j++)
            iteration();
    }
    assert_in_range(n_closed, 1, SLICE_CLOSES);
    budget_set_limit(memory, 1 << 30);
    iteration();
    assert_int_equal(heard(&asker, "HTTP/1.1 503 "), 1);
}

int main(void)
{
#define CROWDED(test) cmocka_unit_test_setup_teardown(test, start_crowd, stop_crowd)
    const struct CMUnitTest tests[] = {
        CROWDED(evictions_are_shared_out),
        CROWDED(evictions_end_with_the_shortage),
        CROWDED(time_outs_are_shared_out),
        CROWDED(clients_may_leave_while_others_are_evicted),
        CROWDED(clients_may_leave_while_others_time_out),
        CROWDED(a_body_that_lacks_memory_evicts_some),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
