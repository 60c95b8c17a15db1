/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The watchdog watches threads that execute inline. It takes a model off the loop while a long
 * execution lasts, also when the request is one that another thread brought. It sleeps when no
 * execution runs. Meant to run under tsan, too.
 */
#include "core/threads/watchdog.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/status.h"
#include "core/server/server.h"
#include "lib/fake_clock.h"
#include "lib/fake_model.h"

static const char config[] = "input { name: \"A\" data_type: TYPE_FP32 dims: [ 1 ] }\n"
                             "output { name: \"X\" data_type: TYPE_FP32 dims: [ 1 ] }\n";

static atomic_bool sleeps;

/* Not NULL: the clock of the model. An execution that is held advances it by the CPU time of its
 * thread, which the watchdog reads. */
static struct clock_fake *clock_of_model;

/* Of the thread that asks: an execution is held if it runs inline, and not if it runs on a
 * worker. */
static _Thread_local bool holds, was_held;

static void compute_for_a_while(void)
{
    struct timespec ts;
    uint64_t end_ns = 0, now_ns;
    do {
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
        now_ns = (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
        end_ns = end_ns ? end_ns : now_ns + NS_PER_MS;
    } while (now_ns < end_ns);
    clock_fake_advance(clock_of_model, NS_PER_MS);
}

/* Executes until the model is taken off; then the execution ends at once. */
static struct status *last(struct instance *in, struct request **requests, uint32_t n)
{
    (void)n;
    struct inline_budget budget = {.left_ns = UINT64_MAX};
    struct execution *e = &pull_scheduler_of(in->model)->execution;
    while (holds && execution_may_inline(e, &budget)) {
        was_held = true;
        if (clock_of_model)
            compute_for_a_while();
        else if (atomic_load(&sleeps))
            sched_yield();
    }
    fake_answer(requests[0]);
    return NULL;
}

static void ask(struct fake_model *f, struct inline_budget *budget)
{
    static const float value = 1;
    struct tensor_buffer data = {.base = &value, .size_bytes = sizeof(value)};
    struct fake_request fr;
    struct input *in;
    int64_t one = 1;
    fake_request_make(&fr, f);
    fr.request.maker.inline_budget = budget;
    if (budget)
        budget->left_ns = EXECUTION_BUDGET_NS;
    assert_null(request_add_input(&fr.request, "A", 1, DTYPE_FP32, &one, 1, &in));
    assert_null(request_add_data(&fr.request, in, &data));
    assert_null(server_infer(&f->server, &fr.request));
    fake_request_wait(&fr);
    assert_false(fr.failed);
    fake_request_end(&fr);
}

/* A model whose backend has declared that it is bounded. */
static void make(struct fake_model *f, struct inline_budget *budget)
{
    if (clock_of_model)
        fake_model_make_timed(f, clock_of_model, config, 1, last);
    else
        fake_model_make(f, config, 1, last);
    pull_scheduler_of(f->model)->execution.bounded = true;
    assert_null(watchdog_start(&f->server.watchdog));
    server_watch(&f->server, budget);
}

/* Sets the measured times directly, so that the speed of this machine does not matter. */
static void prove(struct fake_model *f, struct inline_budget *budget)
{
    struct execution *e = &pull_scheduler_of(f->model)->execution;
    budget->left_ns = UINT64_MAX;
    while (!execution_may_inline(e, budget))
        execution_measured(e, 1, 0, false);
}

/* Asks with one request, which lasts for ever unless the watchdog takes the model off. Returns
 * false if a worker has answered it: the worker was still busy, or its last execution was long
 * because the machine was busy. */
static bool ask_and_hold(struct fake_model *f, struct inline_budget *budget)
{
    holds = true;
    was_held = false;
    ask(f, budget);
    holds = false;
    return was_held;
}

static void a_long_execution_is_taken_off_before_it_ends(void **state)
{
    (void)state;
    for (int round = 0; round < 2; round++) {
        struct fake_model f;
        struct inline_budget budget = {0};
        make(&f, &budget);
        atomic_store(&sleeps, round);
        do {
            prove(&f, &budget);
        } while (!ask_and_hold(&f, &budget));
        budget.left_ns = UINT64_MAX;
        assert_false(execution_may_inline(&pull_scheduler_of(f.model)->execution, &budget));
        assert_true(atomic_load(&pull_scheduler_of(f.model)->execution.usual.to_prove) > 64);
        inline_watch_close(&budget.watch);
        fake_model_end(&f);
    }
}

static void await_parked(struct watchdog *d)
{
    while (!atomic_load(&d->parked)) {
        clock_fake_advance(clock_of_model, WATCHDOG_LIMIT_NS);
        sched_yield();
    }
}

static void the_watchdog_sleeps_when_idle_and_wakes_in_time(void **state)
{
    (void)state;
    struct fake_model f;
    struct clock_fake fake;
    struct inline_budget budget = {0};
    clock_fake_init(&fake, 1000 * NS_PER_S);
    clock_of_model = &fake;
    make(&f, &budget);
    for (int i = 0; i < 3; i++) {
        do {
            prove(&f, &budget);
            await_parked(&f.server.watchdog);
            if (i == 2) /* longer than the watchdog needs to be sure */
                clock_fake_advance(&fake, NS_PER_S);
            atomic_store(&pull_scheduler_of(f.model)->execution.lapses, 0);
        } while (!ask_and_hold(&f, &budget));
    }
    inline_watch_close(&budget.watch);
    fake_model_end(&f);
    clock_of_model = NULL;
}

/* Models are made and freed while the watchdog looks at their executions. */
static void *churn(void *arg)
{
    (void)arg;
    for (int i = 0; i < 20; i++) {
        struct fake_model f;
        struct inline_budget budget = {0};
        make(&f, &budget);
        prove(&f, &budget);
        for (int k = 0; k < 50; k++)
            ask(&f, &budget);
        inline_watch_close(&budget.watch);
        fake_model_end(&f);
    }
    return NULL;
}

static void models_may_be_freed_while_the_watchdog_looks(void **state)
{
    (void)state;
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, churn, NULL);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_long_execution_is_taken_off_before_it_ends),
        cmocka_unit_test(the_watchdog_sleeps_when_idle_and_wakes_in_time),
        cmocka_unit_test(models_may_be_freed_while_the_watchdog_looks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
