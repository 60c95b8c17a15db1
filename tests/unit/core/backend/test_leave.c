/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Executions that leave: a thread of the test is the other side, to which batches go, and a loop
 * gets its answers. Each request is answered exactly once, whoever is first: the answer or the
 * return of Execute. Meant to run under tsan.
 */
#include "core/backend/leave.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/loop.h"
#include "lib/fake_model.h"

static const char config[] = "input { name: \"A\" data_type: TYPE_FP32 dims: [ 1 ] }\n"
                             "output { name: \"X\" data_type: TYPE_FP32 dims: [ 1 ] }\n";

/* The other side, and what it has. One batch at a time is away. */
static struct {
    int event;
    atomic_bool is_there;        /* the answer */
    struct request *batch;       /* of one */
    atomic_int n_left, n_waited; /* executions that have left; that have waited on their thread */
    atomic_int n_early;          /* calls of the finish function before the answer was there */
    bool answers_at_once;        /* before Execute has returned */
    bool wants_thread;           /* the finish function does not answer on a loop */
    pthread_t finished_by;
} side;

static void answer_comes(void)
{
    uint64_t one = 1;
    atomic_store(&side.is_there, true);
    assert_int_equal(write(side.event, &one, sizeof(one)), sizeof(one));
}

static int finish(struct instance *in, bool may_wait)
{
    assert_true(instance_executes_here(in));
    while (may_wait && !atomic_load(&side.is_there))
        sched_yield();
    if (!atomic_load(&side.is_there)) {
        atomic_fetch_add(&side.n_early, 1);
        return FINISH_LATER;
    }
    if (side.wants_thread && !may_wait)
        return FINISH_ON_THREAD;
    side.finished_by = pthread_self();
    fake_answer(TAKE(side.batch));
    return FINISH_OVER;
}

static struct status *execute(struct instance *in, struct request **requests, uint32_t n)
{
    assert_int_equal(n, 1);
    if (!leave_now(in)) {
        atomic_fetch_add(&side.n_waited, 1);
        fake_answer(requests[0]);
        return NULL;
    }
    assert_null(side.batch); /* one at a time */
    side.batch = requests[0];
    atomic_store(&side.is_there, false);
    atomic_fetch_add(&side.n_left, 1);
    if (side.answers_at_once)
        answer_comes();
    return NULL;
}

/* A loop, and what a frontend has of it. */
struct test_loop {
    struct loop loop;
    struct inline_budget budget;
};

static void open_loop(struct test_loop *t, struct fake_model *f)
{
    assert_null(loop_init(&t->loop, clock_real()));
    t->budget = (struct inline_budget){.left_ns = EXECUTION_BUDGET_NS, .loop = &t->loop};
    list_init(&t->budget.left);
    inline_watch_open(&t->budget.watch, &f->server.watchdog);
}

static void close_loop(struct test_loop *t)
{
    leave_loop_ends(&t->budget);
    loop_done(&t->loop);
    inline_watch_close(&t->budget.watch);
}

static struct status *initialize(struct instance *in)
{
    in->leave.finish = finish;
    leave_set_descriptor(in, side.event);
    return NULL;
}

/* A model whose executions leave, in a server without a frontend. */
static void make_model(struct fake_model *f)
{
    memset(&side, 0, sizeof(side));
    side.event = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    fake_model_make_initialized(f, config, 1, execute, initialize);
    assert_true(pull_scheduler_of(f->model)->leaves);
}

static void end_model(struct fake_model *f)
{
    fake_model_end(f);
    close(side.event);
}

static void ask(struct fake_request *fr, struct fake_model *f, struct inline_budget *budget)
{
    static const float value = 1;
    struct tensor_buffer data = {.base = &value, .size_bytes = sizeof(value)};
    struct input *in;
    int64_t one = 1;
    fake_request_make(fr, f);
    fr->request.maker.inline_budget = budget;
    assert_null(request_add_input(&fr->request, "A", 1, DTYPE_FP32, &one, 1, &in));
    assert_null(request_add_data(&fr->request, in, &data));
    assert_null(server_infer(&f->server, &fr->request));
}

static void expect_answer(struct fake_request *fr)
{
    fake_request_wait(fr);
    assert_int_equal(fr->n_responses, 1);
    assert_int_equal(fr->n_final, 1);
    assert_false(fr->failed);
    fake_request_end(fr);
}

static void the_loop_finishes_what_has_left(void **state)
{
    (void)state;
    struct fake_model f;
    struct test_loop t;
    struct fake_request fr;
    make_model(&f);
    open_loop(&t, &f);
    for (int i = 1; i <= 3; i++) {
        ask(&fr, &f, &t.budget);
        assert_int_equal(atomic_load(&side.n_left), i);
        assert_int_equal(fr.n_final, 0);
        answer_comes();
        loop_iterate(&t.loop, UINT64_MAX);
        assert_int_equal(fr.n_final, 1);
        assert_true(pthread_equal(side.finished_by, pthread_self()));
        expect_answer(&fr);
    }
    assert_int_equal(atomic_load(&side.n_early), 0);
    close_loop(&t);
    end_model(&f);
}

/* While a batch is away, requests wait; the worker goes on with them. */
static void requests_wait_while_a_batch_is_away(void **state)
{
    (void)state;
    enum { N = 4 };
    struct fake_model f;
    struct test_loop t;
    struct fake_request fr[N];
    make_model(&f);
    open_loop(&t, &f);
    for (int i = 0; i < N; i++)
        ask(&fr[i], &f, i == 1 ? NULL : &t.budget);
    assert_int_equal(atomic_load(&side.n_left), 1);
    assert_int_equal(atomic_load(&side.n_waited), 0);
    answer_comes();
    loop_iterate(&t.loop, UINT64_MAX);
    for (int i = 0; i < N; i++)
        expect_answer(&fr[i]);
    assert_int_equal(atomic_load(&side.n_left), 1);
    assert_int_equal(atomic_load(&side.n_waited), N - 1);
    close_loop(&t);
    end_model(&f);
}

/* The event of an earlier answer, or of another cause. */
static void an_event_without_an_answer_changes_nothing(void **state)
{
    (void)state;
    struct fake_model f;
    struct test_loop t;
    struct fake_request fr;
    uint64_t one = 1;
    make_model(&f);
    open_loop(&t, &f);
    ask(&fr, &f, &t.budget);
    assert_int_equal(write(side.event, &one, sizeof(one)), sizeof(one));
    loop_iterate(&t.loop, UINT64_MAX);
    assert_int_equal(atomic_load(&side.n_early), 1);
    assert_int_equal(fr.n_final, 0);
    answer_comes();
    loop_iterate(&t.loop, UINT64_MAX);
    expect_answer(&fr);
    close_loop(&t);
    end_model(&f);
}

static void a_thread_finishes_what_is_not_for_a_loop(void **state)
{
    (void)state;
    struct fake_model f;
    struct test_loop t;
    struct fake_request fr, next;
    make_model(&f);
    open_loop(&t, &f);
    side.wants_thread = true;
    ask(&fr, &f, &t.budget);
    ask(&next, &f, NULL);
    answer_comes();
    loop_iterate(&t.loop, UINT64_MAX);
    expect_answer(&fr);
    assert_false(pthread_equal(side.finished_by, pthread_self()));
    expect_answer(&next); /* the worker goes on with it */
    assert_int_equal(atomic_load(&side.n_waited), 1);
    close_loop(&t);
    end_model(&f);
}

/* A loop that ends leaves what is away to a thread, and the next loop takes its place. */
static void a_batch_that_is_away_outlives_its_loop(void **state)
{
    (void)state;
    struct fake_model f;
    struct test_loop t, other;
    struct fake_request fr;
    make_model(&f);
    open_loop(&t, &f);
    open_loop(&other, &f);
    ask(&fr, &f, &t.budget);
    close_loop(&t);
    answer_comes();
    expect_answer(&fr);
    assert_false(pthread_equal(side.finished_by, pthread_self()));
    while (atomic_load(&side.n_left) == 1) { /* the worker may not be idle so far */
        ask(&fr, &f, &other.budget);
        if (atomic_load(&side.n_left) == 2)
            answer_comes();
        loop_iterate(&other.loop, 0);
        expect_answer(&fr);
    }
    assert_true(pthread_equal(side.finished_by, pthread_self()));
    close_loop(&other);
    end_model(&f);
}

/* The instance goes first: its loop stops watching the descriptor, and frees the watch. */
static void a_model_ends_before_its_loop(void **state)
{
    (void)state;
    struct fake_model first, second;
    struct test_loop t;
    struct fake_request fr;
    make_model(&second);
    close(side.event);
    make_model(&first);
    open_loop(&t, &second);
    ask(&fr, &first, &t.budget);
    answer_comes();
    loop_iterate(&t.loop, UINT64_MAX);
    expect_answer(&fr);
    assert_false(list_empty(&t.budget.left));
    end_model(&first);
    loop_iterate(&t.loop, UINT64_MAX);
    assert_true(list_empty(&t.budget.left));
    close_loop(&t);
    fake_model_end(&second);
}

/* Without room for the watch, a thread waits for the answer. */
static void a_descriptor_that_cannot_be_watched_costs_a_thread(void **state)
{
    (void)state;
    struct fake_model f;
    struct test_loop t;
    struct fake_request fr;
    make_model(&f);
    open_loop(&t, &f);
    leave_set_descriptor(f.model->instances[0], 1 << 20); /* none */
    ask(&fr, &f, &t.budget);
    answer_comes();
    expect_answer(&fr);
    assert_false(pthread_equal(side.finished_by, pthread_self()));
    close_loop(&t);
    end_model(&f);
}

/* ------------------------------------------------------------------------------------------ */

enum { N_LOOPS = 3, N_EACH = 400 };

static atomic_bool stops;
static atomic_int n_served;

/* The other side answers each batch, some of them before Execute returns, with a second event now
 * and then. */
static void *answer_all(void *arg)
{
    (void)arg;
    int n_seen = 0;
    uint64_t one = 1;
    while (!atomic_load(&stops)) {
        int n = atomic_load(&side.n_left);
        if (n == n_seen) {
            sched_yield();
            continue;
        }
        n_seen = n;
        answer_comes();
        if (n % 7 == 0)
            assert_int_equal(write(side.event, &one, sizeof(one)), sizeof(one));
    }
    return NULL;
}

static void *serve(void *arg)
{
    struct fake_model *f = arg;
    struct test_loop t;
    struct fake_request fr;
    open_loop(&t, f);
    for (int i = 0; i < N_EACH; i++) {
        bool is_over = false;
        t.budget.left_ns = EXECUTION_BUDGET_NS;
        ask(&fr, f, &t.budget);
        while (!is_over) {
            loop_iterate(&t.loop, 100000);
            pthread_mutex_lock(&fr.mu);
            is_over = fr.n_final > 0;
            pthread_mutex_unlock(&fr.mu);
        }
        expect_answer(&fr);
    }
    atomic_fetch_add(&n_served, 1);
    while (atomic_load(&n_served) < N_LOOPS) /* the others' batches */
        loop_iterate(&t.loop, 100000);
    close_loop(&t);
    return NULL;
}

static void several_loops_and_an_eager_answer(void **state)
{
    (void)state;
    struct fake_model f;
    pthread_t loops[N_LOOPS], other;
    make_model(&f);
    atomic_store(&stops, false);
    atomic_store(&n_served, 0);
    pthread_create(&other, NULL, answer_all, NULL);
    for (int i = 0; i < N_LOOPS; i++)
        pthread_create(&loops[i], NULL, serve, &f);
    for (int i = 0; i < N_LOOPS; i++)
        pthread_join(loops[i], NULL);
    atomic_store(&stops, true);
    pthread_join(other, NULL);
    assert_int_equal(atomic_load(&side.n_left) + atomic_load(&side.n_waited), N_LOOPS * N_EACH);
    end_model(&f);
}

static void an_answer_may_come_before_the_return(void **state)
{
    (void)state;
    struct fake_model f;
    struct test_loop t;
    struct fake_request fr;
    make_model(&f);
    open_loop(&t, &f);
    side.answers_at_once = true;
    for (int i = 0; i < 3; i++) {
        ask(&fr, &f, &t.budget);
        loop_iterate(&t.loop, UINT64_MAX);
        expect_answer(&fr);
    }
    close_loop(&t);
    end_model(&f);
}

/* ------------------------------------------------------------------------------------------ */

/* A kind of model for which executions do not leave. */
static void expect_stays(const char *more)
{
    struct fake_model f;
    struct test_loop t;
    struct fake_request fr;
    char text[1024];
    snprintf(text, sizeof(text), "%s%s", config, more);
    memset(&side, 0, sizeof(side));
    side.event = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    fake_model_make_initialized(&f, text, 1, execute, initialize);
    assert_false(pull_scheduler_of(f.model)->leaves);
    open_loop(&t, &f);
    ask(&fr, &f, &t.budget);
    expect_answer(&fr);
    assert_int_equal(atomic_load(&side.n_left), 0);
    assert_int_equal(atomic_load(&side.n_waited), 1);
    close_loop(&t);
    end_model(&f);
}

static void where_a_thread_is_wanted_no_execution_leaves(void **state)
{
    (void)state;
    expect_stays("parameters { key: \"CONCH_EXECUTION\" value { string_value: \"thread\" } }\n");
    expect_stays(
        "parameters { key: \"CONCH_EXECUTION_LIMIT_MS\" value { string_value: \"60000\" } }\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_loop_finishes_what_has_left),
        cmocka_unit_test(requests_wait_while_a_batch_is_away),
        cmocka_unit_test(an_event_without_an_answer_changes_nothing),
        cmocka_unit_test(an_answer_may_come_before_the_return),
        cmocka_unit_test(a_thread_finishes_what_is_not_for_a_loop),
        cmocka_unit_test(a_batch_that_is_away_outlives_its_loop),
        cmocka_unit_test(a_model_ends_before_its_loop),
        cmocka_unit_test(a_descriptor_that_cannot_be_watched_costs_a_thread),
        cmocka_unit_test(several_loops_and_an_eager_answer),
        cmocka_unit_test(where_a_thread_is_wanted_no_execution_leaves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
