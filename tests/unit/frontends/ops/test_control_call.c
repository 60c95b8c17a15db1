/* SPDX-License-Identifier: Apache-2.0 */
/* Calls that a control thread makes for a loop: the thread of each callback, and their order. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/status.h"
#include "frontends/ops/control_call.h"

enum { N_CALLS = 20 };

struct counted {
    struct control_call call;
    int number; /* written by the loop, read by work() */
    int result; /* written by work(), read by on_done() */
    pthread_t made_by;
};

static struct loop loop;
static struct control control;
static int order[N_CALLS], n_made; /* calls of one key run one after another */
static int n_done;

static void make_call(struct control_call *c)
{
    struct counted *call = CONTAINER_OF(c, struct counted, call);
    call->made_by = pthread_self();
    call->result = call->number * 2;
    order[n_made++] = call->number;
}

static void end_call(struct control_call *c)
{
    struct counted *call = CONTAINER_OF(c, struct counted, call);
    assert_true(pthread_equal(loop.owner, pthread_self()));
    assert_int_equal(call->result, call->number * 2);
    n_done++;
    free(call); /* the call is the owner's again */
}

static struct counted *new_call(int number)
{
    struct counted *call = calloc(1, sizeof(*call));
    assert_non_null(call);
    call->call.work = make_call;
    call->call.on_done = end_call;
    call->number = number;
    return call;
}

static int start(void **state)
{
    (void)state;
    n_made = n_done = 0;
    assert_null(loop_init(&loop, clock_real()));
    loop.owner = pthread_self();
    return 0;
}

static int stop(void **state)
{
    (void)state;
    loop_done(&loop);
    return 0;
}

static void calls_run_on_a_control_thread_and_end_on_the_loop(void **state)
{
    (void)state;
    assert_null(control_start(&control, 2, 2));
    for (int i = 0; i < N_CALLS; i++)
        control_call_begin(&new_call(i)->call, &control, &loop, "key", false);
    assert_int_equal(n_done, 0); /* on_done() waits for the loop */
    while (n_done < N_CALLS)
        loop_iterate(&loop, 60 * NS_PER_S);
    for (int i = 0; i < N_CALLS; i++)
        assert_int_equal(order[i], i);
    control_stop(&control);
}

static void do_nothing(struct control_call *c)
{
    (void)c;
}

static void without_a_thread_the_call_runs_at_once(void **state)
{
    (void)state;
    struct counted *call = new_call(7);
    call->call.on_done = do_nothing;
    control_call_begin(&call->call, NULL, &loop, NULL, true);
    assert_int_equal(call->result, 14);
    assert_true(pthread_equal(call->made_by, pthread_self()));
    free(call);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(calls_run_on_a_control_thread_and_end_on_the_loop, start,
                                        stop),
        cmocka_unit_test_setup_teardown(without_a_thread_the_call_runs_at_once, start, stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
