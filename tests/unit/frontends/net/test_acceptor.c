/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The choice of the worker for a new connection. The loops do not run: the test sets the load that
 * they publish.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "frontends/net/acceptor.h"
#include "frontends/net/worker.h"

#define NOW_NS (1000 * NS_PER_S)

static struct worker workers[3];
static struct worker_service services[3];
static struct listener listener;
static struct acceptor acceptor; /* of the first worker */

static int start(void **state)
{
    (void)state;
    memset(workers, 0, sizeof(workers));
    for (int i = 0; i < 3; i++)
        workers[i].loop.phase = NOW_NS * 2 + 1; /* the loop waits */
    workers[0].loop.phase = NOW_NS * 2;
    workers[0].loop.now_ns = NOW_NS;
    for (int i = 0; i < 3; i++)
        services[i] = (struct worker_service){.worker = &workers[i], .listener = &listener};
    listener = (struct listener){.services = services, .n_services = 3};
    acceptor = (struct acceptor){.service = &services[0]};
    return 0;
}

static void set_conns(unsigned int a, unsigned int b, unsigned int c)
{
    workers[0].n_conns = a;
    workers[1].n_conns = b;
    workers[2].n_conns = c;
}

static void set_busy(unsigned int a, unsigned int b, unsigned int c)
{
    workers[0].loop.busy_permille = a;
    workers[1].loop.busy_permille = b;
    workers[2].loop.busy_permille = c;
}

static ptrdiff_t chosen(void)
{
    return acceptor_choose(&acceptor) - services;
}

static void of_equally_busy_loops_the_one_with_fewest_connections_is_chosen(void **state)
{
    (void)state;
    set_conns(2, 1, 3);
    assert_int_equal(chosen(), 1);
    set_conns(1, 1, 1);
    assert_int_equal(chosen(), 0);
    set_busy(300, 100, 50); /* nearly the same */
    set_conns(0, 1, 2);
    assert_int_equal(chosen(), 0);
}

static void the_least_busy_loop_gets_the_connection(void **state)
{
    (void)state;
    set_conns(0, 1, 500);
    set_busy(900, 1000, 10);
    assert_int_equal(chosen(), 2);
    set_busy(900, 20, 10); /* of the two that have time */
    assert_int_equal(chosen(), 1);
}

/* A loop that executes a model has few connections, and was not busy before. */
static void a_loop_that_stands_still_gets_no_connection(void **state)
{
    (void)state;
    set_conns(7, 0, 5);
    workers[1].loop.phase = (NOW_NS - 10 * NS_PER_MS) * 2;
    assert_int_equal(chosen(), 2);
    workers[2].loop.phase = (NOW_NS - 2 * NS_PER_S) * 2;
    assert_int_equal(chosen(), 0); /* the accepting loop, however busy it is */
    set_busy(1000, 0, 0);
    assert_int_equal(chosen(), 0);
    workers[1].loop.phase = (NOW_NS - NS_PER_MS / 10) * 2; /* an iteration like others */
    assert_int_equal(chosen(), 1);
}

/* The load that was measured before it fell asleep is out of date. */
static void a_loop_that_has_waited_long_counts_as_idle(void **state)
{
    (void)state;
    set_conns(0, 5, 5);
    set_busy(900, 1000, 1000);
    workers[2].loop.phase = (NOW_NS - NS_PER_S) * 2 + 1;
    assert_int_equal(chosen(), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(of_equally_busy_loops_the_one_with_fewest_connections_is_chosen,
                               start),
        cmocka_unit_test_setup(the_least_busy_loop_gets_the_connection, start),
        cmocka_unit_test_setup(a_loop_that_stands_still_gets_no_connection, start),
        cmocka_unit_test_setup(a_loop_that_has_waited_long_counts_as_idle, start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
