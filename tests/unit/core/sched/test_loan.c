/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Instances that are lent to threads. A thread takes its loan and gives it back without a lock.
 * Another thread with work for the instance calls the loan back, and no request waits for ever.
 * Meant to run under tsan and with pauses.
 */
#include "core/sched/loan.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "lib/fake_model.h"

static const char config[] =
    "input { name: \"A\" data_type: TYPE_FP32 dims: [ 1 ] }\n"
    "output { name: \"X\" data_type: TYPE_FP32 dims: [ 1 ] }\n"
    "parameters { key: \"CONCH_EXECUTION\" value { string_value: \"inline\" } }\n";

/* ---- The word itself ------------------------------------------------------------------------ */

static void lend(struct loans *l, struct instance *in)
{
    for (int i = 0; i < LOAN_AFTER; i++) {
        assert_false(loan_lend_locked(l, in));
        loan_note_locked(in, true);
    }
    loan_note_locked(in, true); /* the first loan may have been another thread's */
    assert_true(loan_lend_locked(l, in));
}

static void a_loan_is_lent_taken_and_called_back(void **state)
{
    (void)state;
    struct loans l = {.n = 0};
    struct instance a = {.number = 0}, b = {.number = 1};
    assert_null(loan_take(&l));
    assert_null(loan_call_back_locked(&l));
    lend(&l, &a);
    assert_int_equal(l.n, 1);
    assert_ptr_equal(loan_take(&l), &a);
    assert_null(loan_take(&l)); /* in use */
    assert_true(loan_give_back(&a));
    assert_ptr_equal(loan_take(&l), &a);

    assert_null(loan_call_back_locked(&l)); /* in use: its user is told to give it back */
    assert_null(loan_call_back_locked(&l));
    assert_false(loan_give_back(&a));
    assert_null(loan_take(&l));
    loan_end_locked(&l, &a);
    assert_int_equal(l.n, 0);
    assert_null(loan_take(&l));

    lend(&l, &b);
    for (int i = 0; i <= LOAN_AFTER; i++)
        loan_note_locked(&a, true);
    assert_false(loan_lend_locked(&l, &a)); /* this thread has a loan already */
    assert_ptr_equal(loan_call_back_locked(&l), &b);
    assert_int_equal(l.n, 0);
    assert_null(loan_take(&l));
    assert_true(loan_lend_locked(&l, &a));
    assert_ptr_equal(loan_take(&l), &a);
}

static void *note_elsewhere(void *arg)
{
    for (int i = 0; i <= LOAN_AFTER; i++)
        loan_note_locked(arg, true);
    return NULL;
}

static void an_instance_used_by_several_threads_is_not_lent(void **state)
{
    (void)state;
    struct loans l = {.n = 0};
    struct instance in = {.number = 0};
    pthread_t other;
    loan_note_locked(&in, true);
    pthread_create(&other, NULL, note_elsewhere, &in);
    pthread_join(other, NULL);
    loan_note_locked(&in, true); /* another thread than the last one */
    assert_false(loan_lend_locked(&l, &in));
    for (int i = 0; i < LOAN_AFTER - 1; i++)
        loan_note_locked(&in, true);
    assert_false(loan_lend_locked(&l, &in));
    loan_note_locked(&in, false); /* a request arrived for it */
    loan_note_locked(&in, true);
    assert_false(loan_lend_locked(&l, &in));
}

/* ---- In a scheduler ------------------------------------------------------------------------- */

static atomic_int n_executed, n_at_once, n_clashes, n_inside;
static atomic_bool is_open; /* executions do not wait */

static struct status *execute(struct instance *in, struct request **requests, uint32_t n)
{
    (void)in;
    atomic_fetch_add(&n_inside, 1);
    while (!atomic_load(&is_open))
        sched_yield();
    atomic_fetch_add(&n_executed, (int)n);
    for (uint32_t i = 0; i < n; i++)
        fake_answer(requests[i]);
    return NULL;
}

static void prepare(struct fake_request *fr, struct fake_model *f, struct inline_budget *budget)
{
    static const float value = 1;
    struct tensor_buffer data = {.base = &value, .size_bytes = sizeof(value)};
    struct input *in;
    int64_t one = 1;
    fake_request_make(fr, f);
    fr->request.maker.inline_budget = budget;
    assert_null(request_add_input(&fr->request, "A", 1, DTYPE_FP32, &one, 1, &in));
    assert_null(request_add_data(&fr->request, in, &data));
}

static void ask(struct fake_model *f, bool inlined)
{
    struct inline_budget budget = {.left_ns = EXECUTION_BUDGET_NS};
    struct fake_request fr;
    prepare(&fr, f, inlined ? &budget : NULL);
    assert_null(server_infer(&f->server, &fr.request));
    fake_request_wait(&fr);
    assert_int_equal(fr.n_responses, 1);
    assert_false(fr.failed);
    fake_request_end(&fr);
}

static unsigned int n_lent(struct fake_model *f)
{
    struct pull_scheduler *s = pull_scheduler_of(f->model);
    mutex_lock(&s->mu);
    unsigned int n = s->loans.n;
    mutex_unlock(&s->mu);
    return n;
}

static void make(struct fake_model *f, uint32_t n_instances, fake_execute_fn fn)
{
    atomic_store(&n_executed, 0);
    atomic_store(&n_inside, 0);
    atomic_store(&is_open, true);
    fake_model_make(f, config, n_instances, fn);
}

/* Asks until the instance is lent. An execution of a millisecond or more in between postpones
 * the loan. */
static void ask_until_lent(struct fake_model *f)
{
    while (n_lent(f) == 0)
        ask(f, true);
}

static void an_instance_is_lent_to_the_thread_that_keeps_using_it(void **state)
{
    (void)state;
    struct fake_model f;
    make(&f, 1, execute);
    ask(&f, true);
    assert_int_equal(n_lent(&f), 0);
    ask_until_lent(&f);
    ask(&f, true);
    assert_int_equal(n_lent(&f), 1);
    ask(&f, false); /* for the worker, so the loan is called back */
    assert_int_equal(n_lent(&f), 0);
    ask_until_lent(&f);
    assert_true(atomic_load(&n_executed) > 2 * LOAN_AFTER);
    fake_model_end(&f); /* with an instance that is on loan */
}

struct asker {
    pthread_t thread;
    struct fake_model *f;
};

static void *ask_inline(void *arg)
{
    struct asker *a = arg;
    ask_until_lent(a->f);
    atomic_store(&n_inside, 0);
    atomic_store(&is_open, false);
    ask(a->f, true);
    return NULL;
}

static void a_request_that_arrives_during_a_loan_is_served(void **state)
{
    (void)state;
    struct fake_model f;
    make(&f, 1, execute);
    struct asker a = {.f = &f};
    struct fake_request waits, cancelled;
    pthread_create(&a.thread, NULL, ask_inline, &a);
    while (!(!atomic_load(&is_open) && atomic_load(&n_inside)))
        sched_yield();
    assert_int_equal(n_lent(&f), 1);
    prepare(&waits, &f, NULL);
    prepare(&cancelled, &f, NULL);
    assert_null(server_infer(&f.server, &waits.request));
    assert_null(server_infer(&f.server, &cancelled.request));
    assert_int_equal(atomic_load(&f.model->instances[0]->loan.state), LOAN_WANTED);
    request_cancel(&cancelled.request);
    fake_request_wait(&cancelled);
    assert_int_equal(cancelled.last_code, STATUS_CANCELLED);
    assert_int_equal(atomic_load(&f.model->pending), 1);
    atomic_store(&is_open, true);
    fake_request_wait(&waits);
    assert_false(waits.failed);
    pthread_join(a.thread, NULL);
    fake_request_end(&waits);
    fake_request_end(&cancelled);
    fake_model_end(&f);
}

/* ---- The end -------------------------------------------------------------------------------- */

static atomic_bool lingers, answered, ended, ended_too_early;

/* Answers, so that the model has no request, and returns later. */
static struct status *answer_and_linger(struct instance *in, struct request **requests, uint32_t n)
{
    (void)n;
    struct model *m = in->model;
    fake_answer(requests[0]);
    if (!atomic_load(&lingers))
        return NULL;
    atomic_store(&answered, true);
    while (!atomic_load(&m->stopping))
        sched_yield();
    for (int i = 0; i < 2000 && !atomic_load(&ended); i++)
        sched_yield();
    atomic_store(&ended_too_early, atomic_load(&ended));
    return NULL;
}

static void *end_when_answered(void *arg)
{
    while (!atomic_load(&answered))
        sched_yield();
    fake_model_end(arg);
    atomic_store(&ended, true);
    return NULL;
}

static void a_model_ends_after_the_user_of_a_loan(void **state)
{
    (void)state;
    struct fake_model f;
    pthread_t thread;
    make(&f, 1, answer_and_linger);
    model_ref(f.model); /* keeps the struct, which the execution above reads */
    struct model *m = f.model;
    ask_until_lent(&f);
    atomic_store(&lingers, true);
    pthread_create(&thread, NULL, end_when_answered, &f);
    ask(&f, true);
    pthread_join(thread, NULL);
    assert_false(atomic_load(&ended_too_early));
    model_unref(m);
}

/* ---- Many threads --------------------------------------------------------------------------- */

enum { N_EACH = 2000, N_SELDOM = 100 };

static struct status *execute_alone(struct instance *in, struct request **requests, uint32_t n)
{
    (void)in;
    if (atomic_fetch_add(&n_at_once, 1) != 0)
        atomic_fetch_add(&n_clashes, 1);
    atomic_fetch_add(&n_executed, (int)n);
    for (uint32_t i = 0; i < n; i++)
        fake_answer(requests[i]);
    atomic_fetch_sub(&n_at_once, 1);
    return NULL;
}

static atomic_int n_busy;

static void *ask_often(void *arg)
{
    for (int i = 0; i < N_EACH; i++)
        ask(arg, true);
    atomic_fetch_sub(&n_busy, 1);
    return NULL;
}

/* Asks so seldom that the other thread gets the loan in between; alternates between worker and
 * inline. */
static void *ask_seldom(void *arg)
{
    struct fake_model *f = arg;
    for (int i = 0; i < N_SELDOM; i++) {
        int seen = atomic_load(&n_executed);
        while (atomic_load(&n_busy) && atomic_load(&n_executed) < seen + 2 * LOAN_AFTER)
            sched_yield();
        ask(f, i % 2 == 0);
    }
    return NULL;
}

static void no_request_waits_for_ever_behind_a_loan(void **state)
{
    (void)state;
    for (uint32_t n_instances = 1; n_instances <= 2; n_instances++) {
        struct fake_model f;
        pthread_t often[2], seldom[2];
        make(&f, n_instances, n_instances == 1 ? execute_alone : execute);
        atomic_store(&n_busy, (int)n_instances);
        for (uint32_t i = 0; i < n_instances; i++)
            pthread_create(&often[i], NULL, ask_often, &f);
        for (int i = 0; i < 2; i++)
            pthread_create(&seldom[i], NULL, ask_seldom, &f);
        for (uint32_t i = 0; i < n_instances; i++)
            pthread_join(often[i], NULL);
        for (int i = 0; i < 2; i++)
            pthread_join(seldom[i], NULL);
        assert_int_equal(atomic_load(&n_executed), (int)n_instances * N_EACH + 2 * N_SELDOM);
        assert_int_equal(atomic_load(&n_clashes), 0);
        fake_model_end(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_loan_is_lent_taken_and_called_back),
        cmocka_unit_test(an_instance_used_by_several_threads_is_not_lent),
        cmocka_unit_test(an_instance_is_lent_to_the_thread_that_keeps_using_it),
        cmocka_unit_test(a_request_that_arrives_during_a_loan_is_served),
        cmocka_unit_test(a_model_ends_after_the_user_of_a_loan),
        cmocka_unit_test(no_request_waits_for_ever_behind_a_loan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
