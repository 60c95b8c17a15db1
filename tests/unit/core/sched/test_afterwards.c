/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chains of requests: the response of each one starts the next. No step begins inside the step
 * before, and the thread that ends a short step executes the next short one itself.
 */
#include "core/sched/afterwards.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <string.h>

#include <cmocka.h>

#include "base/status.h"
#include "base/thread.h"
#include "core/sched/pull.h"
#include "core/server/server.h"
#include "lib/fake_model.h"

#define A_AND_X                                                                                    \
    "input { name: 'A' data_type: TYPE_FP32 dims: 1 } "                                            \
    "output { name: 'X' data_type: TYPE_FP32 dims: 1 } "
#define ANY_A_AND_X                                                                                \
    "input { name: 'A' data_type: TYPE_FP32 dims: -1 } "                                           \
    "output { name: 'X' data_type: TYPE_FP32 dims: 1 } "
#define INLINE "parameters { key: 'CONCH_EXECUTION' value { string_value: 'inline' } } "

enum { MAX_STEPS = 50, LARGE_VALUES = 1 << 20 };

/* ---- What the backends note ------------------------------------------------------------------ */

/* Of executions; written by one thread at a time, and read after the last answer. */
static struct {
    int n;
    pthread_t threads[MAX_STEPS];
    const void *frames[MAX_STEPS];
    uint32_t batches[MAX_STEPS];
    const struct instance *instances[MAX_STEPS];
} record;

/* Goes on by 1 µs in each execution; NULL: none does. */
static struct clock_fake *ticking;

static struct status *execute(struct instance *in, struct request **requests, uint32_t n)
{
    if (ticking)
        clock_fake_advance(ticking, NS_PER_US);
    if (record.n < MAX_STEPS) {
        record.instances[record.n] = in;
        record.threads[record.n] = pthread_self();
        record.frames[record.n] = __builtin_frame_address(0);
        record.batches[record.n++] = n;
    }
    for (uint32_t i = 0; i < n; i++)
        fake_answer(requests[i]);
    return NULL;
}

/* ---- A chain --------------------------------------------------------------------------------- */

struct link {
    struct request request;
    struct chain *chain;
    char memory[1024];
};

struct chain {
    struct fake_model *models[2]; /* which execute the steps in turn */
    int n_steps, n_begun;
    int64_t n_values; /* of each step's input */
    struct afterwards next;
    struct clock_fake *clock; /* goes on by 2 ms when a step begins; NULL: none */
    struct pool *pool;
    struct link links[MAX_STEPS];
    /* Of the last call of begin_next(). */
    const struct instance *inside;
    struct inline_budget *budget;

    pthread_mutex_t mu;
    pthread_cond_t changed;
    int n_destroyed;
    bool failed, over;
};

static void begin_next(struct afterwards *a, struct inline_budget *budget);

static void respond(struct request *r, struct response *resp, uint32_t flags)
{
    struct chain *c = CONTAINER_OF(r, struct link, request)->chain;
    assert_int_equal(flags, RESPONSE_FINAL);
    c->failed |= resp && resp->error;
    response_free(resp);
}

static void release(struct request *r, uint32_t flags)
{
    struct chain *c = CONTAINER_OF(r, struct link, request)->chain;
    (void)flags;
    request_unref(r); /* the maker's; the core has another one still */
    afterwards_post(&c->next);
}

static void destroy(struct request *r)
{
    struct chain *c = CONTAINER_OF(r, struct link, request)->chain;
    pthread_mutex_lock(&c->mu);
    c->n_destroyed++;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->mu);
}

static const struct request_ops ops = {
    .alloc_output = response_alloc_pooled,
    .free_output = response_free_pooled,
    .respond = respond,
    .release = release,
    .destroy = destroy,
};

static void begin_step(struct chain *c, struct inline_budget *budget)
{
    static const float values[LARGE_VALUES];
    const int64_t shape[] = {1, c->n_values}; /* with the batch dimension, if there is one */
    struct tensor_buffer data = {.base = values, .size_bytes = (size_t)c->n_values * sizeof(float)};
    struct fake_model *f = c->models[c->n_begun % 2];
    struct link *l = &c->links[c->n_begun++];
    struct input *in;
    l->chain = c;
    model_ref(f->model);
    request_init(&l->request, &ops, f->model, l->memory, sizeof(l->memory), c->pool);
    l->request.maker.inline_budget = budget;
    bool batching = f->model->batching;
    assert_null(request_add_input(&l->request, "A", 1, DTYPE_FP32, shape + !batching,
                                  batching ? 2 : 1, &in));
    assert_null(request_add_data(&l->request, in, &data));
    assert_null(server_infer(&f->server, &l->request));
}

static void begin_next(struct afterwards *a, struct inline_budget *budget)
{
    struct chain *c = CONTAINER_OF(a, struct chain, next);
    c->inside = instance_executing();
    c->budget = budget;
    if (c->clock)
        clock_fake_advance(c->clock, 2 * NS_PER_MS);
    if (c->n_begun < c->n_steps) {
        begin_step(c, budget);
        return;
    }
    pthread_mutex_lock(&c->mu);
    c->over = true;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->mu);
}

static void make_chain(struct chain *c, struct fake_model *one, struct fake_model *two, int n_steps)
{
    memset(c, 0, sizeof(*c));
    c->models[0] = one;
    c->models[1] = two;
    c->n_steps = n_steps;
    c->n_values = 1;
    c->next.run = begin_next;
    c->pool = pool_new("test", 1 << 20, 0);
    pthread_mutex_init(&c->mu, NULL);
    pthread_cond_init(&c->changed, NULL);
    record.n = 0;
}

static bool is_over(struct chain *c)
{
    pthread_mutex_lock(&c->mu);
    bool over = c->over;
    pthread_mutex_unlock(&c->mu);
    return over;
}

static void end_chain(struct chain *c)
{
    pthread_mutex_lock(&c->mu);
    while (!c->over || c->n_destroyed < c->n_steps)
        pthread_cond_wait(&c->changed, &c->mu);
    pthread_mutex_unlock(&c->mu);
    assert_false(c->failed);
    assert_int_equal(c->n_begun, c->n_steps);
    pool_free(c->pool);
    pthread_cond_destroy(&c->changed);
    pthread_mutex_destroy(&c->mu);
}

/* ---- Tests ----------------------------------------------------------------------------------- */

static void all_steps_execute_in_one_call_and_one_frame(void **state)
{
    (void)state;
    static struct chain c;
    struct fake_model f;
    struct inline_budget budget = {.left_ns = UINT64_MAX};
    fake_model_make(&f, A_AND_X INLINE, 1, execute);
    make_chain(&c, &f, &f, MAX_STEPS); /* the same model again and again */
    begin_step(&c, &budget);
    assert_true(is_over(&c));
    assert_int_equal(record.n, MAX_STEPS);
    for (int i = 0; i < MAX_STEPS; i++)
        assert_true(pthread_equal(record.threads[i], pthread_self()));
    /* The first ones find the instance by the lock, the others have it on loan. */
    for (int i = MAX_STEPS / 2; i < MAX_STEPS; i++)
        assert_ptr_equal(record.frames[i], record.frames[MAX_STEPS - 1]);
    assert_null(c.inside);
    assert_ptr_equal(c.budget, &budget);
    assert_null(f.model->instances[0]->thread);
    end_chain(&c);
    fake_model_end(&f);
}

static void a_step_does_not_count_for_the_model_before(void **state)
{
    (void)state;
    static struct chain c;
    struct fake_model f;
    struct clock_fake clock;
    struct inline_budget budget = {.left_ns = EXECUTION_BUDGET_NS};
    clock_fake_init(&clock, 1000 * NS_PER_S);
    fake_model_make_timed(&f, &clock, A_AND_X, 1, execute);
    struct execution *e = &pull_scheduler_of(f.model)->execution;
    e->bounded = true;
    atomic_store(&e->usual.to_prove, 0);
    make_chain(&c, &f, &f, 16);
    c.clock = &clock;
    begin_step(&c, &budget);
    assert_true(is_over(&c));
    assert_int_equal(atomic_load(&e->usual.to_prove), 0); /* it is short still */
    assert_int_equal(budget.left_ns, EXECUTION_BUDGET_NS);
    end_chain(&c);
    fake_model_end(&f);
}

static void a_worker_goes_on_with_short_steps(void **state)
{
    (void)state;
    static struct chain c;
    struct fake_model one, two;
    fake_model_make(&one, A_AND_X INLINE, 1, execute);
    fake_model_make(&two, A_AND_X INLINE, 1, execute);
    make_chain(&c, &one, &two, 20);
    begin_step(&c, NULL); /* as a thread that must not execute */
    end_chain(&c);
    assert_int_equal(record.n, 20);
    assert_false(pthread_equal(record.threads[0], pthread_self()));
    for (int i = 1; i < 20; i++)
        assert_true(pthread_equal(record.threads[i], record.threads[0]));
    assert_null(c.inside);
    assert_non_null(c.budget);
    assert_null(two.model->instances[0]->thread); /* it never needed one */
    fake_model_end(&one);
    fake_model_end(&two);
}

/* A model that has proven to be short, with requests that are not large or with those that are. */
static void make_proven(struct fake_model *f, struct clock_fake *clock, bool large)
{
    fake_model_make_timed(f, clock, ANY_A_AND_X, 1, execute);
    struct execution *e = &pull_scheduler_of(f->model)->execution;
    e->bounded = true;
    atomic_store(large ? &e->large.to_prove : &e->usual.to_prove, 0);
    if (large)
        atomic_store(&e->large_bytes, LARGE_VALUES * sizeof(float));
}

/* Runs a chain of 8 large requests through both models. */
static void run_large_chain(struct fake_model *one, struct fake_model *two,
                            struct inline_budget *budget)
{
    static struct chain c;
    make_chain(&c, one, two, 8);
    c.n_values = LARGE_VALUES;
    begin_step(&c, budget);
    end_chain(&c);
    assert_int_equal(record.n, 8);
}

static void a_worker_goes_on_with_large_steps_that_have_proven_short(void **state)
{
    (void)state;
    struct fake_model one, two;
    struct clock_fake clock;
    struct inline_budget budget = {.left_ns = EXECUTION_BUDGET_NS};
    clock_fake_init(&clock, 1000 * NS_PER_S); /* the executions take no time */
    make_proven(&one, &clock, true);
    make_proven(&two, &clock, true);
    run_large_chain(&one, &two, &budget);
    assert_false(pthread_equal(record.threads[0], pthread_self())); /* a loop never does that */
    for (int i = 1; i < 8; i++)
        assert_true(pthread_equal(record.threads[i], record.threads[0]));
    assert_null(two.model->instances[0]->thread);
    fake_model_end(&one);
    fake_model_end(&two);
}

static bool ran_on_one_thread(int n)
{
    for (int i = 1; i < n; i++) {
        if (!pthread_equal(record.threads[i], record.threads[0]))
            return false;
    }
    return true;
}

static void a_large_step_has_to_prove_itself_by_large_ones(void **state)
{
    (void)state;
    struct fake_model one, two;
    struct clock_fake clock;
    clock_fake_init(&clock, 1000 * NS_PER_S);
    ticking = &clock;
    make_proven(&one, &clock, false);
    make_proven(&two, &clock, false);
    run_large_chain(&one, &two, NULL);
    assert_false(pthread_equal(record.threads[1], record.threads[0]));
    assert_non_null(two.model->instances[0]->thread);
    /* They are proven now, after four executions of each. The worker of an earlier chain may still
     * hold its instance when a step comes, which then goes there: only some chain must stay. */
    int left = 1000;
    do
        run_large_chain(&one, &two, NULL);
    while (!ran_on_one_thread(8) && --left);
    assert_int_not_equal(left, 0);
    ticking = NULL;
    fake_model_end(&one);
    fake_model_end(&two);
}

static void a_long_execution_holds_up_no_step(void **state)
{
    (void)state;
    static struct chain c;
    struct fake_model one, two;
    fake_model_make(&one, A_AND_X, 1, execute); /* may last for any time */
    fake_model_make(&two, A_AND_X INLINE, 1, execute);
    make_chain(&c, &one, &two, 1);
    begin_step(&c, NULL);
    end_chain(&c);
    assert_ptr_equal(c.inside, one.model->instances[0]);
    assert_null(c.budget);
    make_chain(&c, &one, &two, 8);
    begin_step(&c, NULL);
    end_chain(&c);
    assert_int_equal(record.n, 8);
    assert_false(pthread_equal(record.threads[0], record.threads[1]));
    fake_model_end(&one);
    fake_model_end(&two);
}

/* The requests of a batch lead to a batch of the next model. */
static void a_batch_goes_on_as_a_batch(void **state)
{
    enum { N = 4 };
    (void)state;
    static struct chain chains[N];
    struct fake_model one, two;
    fake_model_make(&one,
                    A_AND_X INLINE "max_batch_size: 8 dynamic_batching { preferred_batch_size: 4 "
                                   "max_queue_delay_microseconds: 600000000 }",
                    1, execute);
    fake_model_make(&two, A_AND_X INLINE "max_batch_size: 8 dynamic_batching { }", 1, execute);
    for (int i = 0; i < N; i++)
        make_chain(&chains[i], &one, &two, 2);
    for (int i = 0; i < N; i++)
        begin_step(&chains[i], NULL);
    for (int i = 0; i < N; i++)
        end_chain(&chains[i]);
    assert_int_equal(record.n, 2);
    assert_int_equal(record.batches[0], N);
    assert_int_equal(record.batches[1], N);
    fake_model_end(&one);
    fake_model_end(&two);
}

static atomic_bool have_all_come;

static struct status *execute_when_all_have_come(struct instance *in, struct request **requests,
                                                 uint32_t n)
{
    while (!atomic_load(&have_all_come))
        sched_yield();
    return execute(in, requests, n);
}

/* A worker has a queue of short requests: it executes these first, then all that follows. */
static void requests_that_came_together_go_on_together(void **state)
{
    enum { N = 4 };
    (void)state;
    static struct chain chains[N];
    struct fake_model one, two;
    struct clock_fake clock;
    clock_fake_init(&clock, 1000 * NS_PER_S); /* the executions take no time */
    fake_model_make_timed(&one, &clock, A_AND_X INLINE, 1, execute_when_all_have_come);
    fake_model_make(&two, A_AND_X INLINE, 1, execute);
    atomic_store(&have_all_come, false);
    for (int i = 0; i < N; i++)
        make_chain(&chains[i], &one, &two, 2);
    for (int i = 0; i < N; i++)
        begin_step(&chains[i], NULL);
    atomic_store(&have_all_come, true);
    for (int i = 0; i < N; i++)
        end_chain(&chains[i]);
    assert_int_equal(record.n, 2 * N);
    for (int i = 0; i < N; i++) {
        assert_ptr_equal(record.instances[i], one.model->instances[0]);
        assert_ptr_equal(record.instances[N + i], two.model->instances[0]);
    }
    fake_model_end(&one);
    fake_model_end(&two);
}

/* ---- Calls from inside an execution ---------------------------------------------------------- */

static struct chain *inner;
static struct inline_budget inner_budget;

/* As a backend that asks another model, and needs its answer. */
static struct status *execute_with_question(struct instance *in, struct request **requests,
                                            uint32_t n)
{
    begin_step(inner, &inner_budget);
    assert_true(is_over(inner));
    return execute(in, requests, n);
}

static void a_chain_ends_inside_an_execution(void **state)
{
    (void)state;
    static struct chain outer, asked;
    struct fake_model f, asker;
    struct inline_budget budget = {.left_ns = UINT64_MAX};
    fake_model_make(&f, A_AND_X INLINE, 1, execute);
    fake_model_make(&asker, A_AND_X INLINE, 1, execute_with_question);
    inner = &asked;
    inner_budget = budget;
    make_chain(&asked, &f, &f, 5);
    make_chain(&outer, &f, &asker, 2); /* so the asker is begun by another one's response */
    begin_step(&outer, &budget);
    assert_true(is_over(&outer));
    assert_int_equal(record.n, 7);
    end_chain(&asked);
    end_chain(&outer);
    fake_model_end(&f);
    fake_model_end(&asker);
}

/* ---- Without an execution -------------------------------------------------------------------- */

static char order[16];

struct letter {
    struct afterwards a;
    char name;
    struct letter *posts; /* when it runs; NULL: none */
};

static void write_letter(struct afterwards *a, struct inline_budget *budget)
{
    struct letter *l = CONTAINER_OF(a, struct letter, a);
    assert_null(budget);
    if (l->posts)
        afterwards_post(&l->posts->a);
    order[strlen(order)] = l->name; /* first of all what it does itself */
}

static void a_thread_without_an_execution_does_it_at_once(void **state)
{
    (void)state;
    struct letter last = {.a.run = write_letter, .name = 'c'};
    struct letter second = {.a.run = write_letter, .name = 'b', .posts = &last};
    struct letter first = {.a.run = write_letter, .name = 'a', .posts = &second};
    afterwards_post(&first.a);
    assert_string_equal(order, "abc");
    assert_null(afterwards_last);
    afterwards_run(NULL); /* nothing is left */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_steps_execute_in_one_call_and_one_frame),
        cmocka_unit_test(a_step_does_not_count_for_the_model_before),
        cmocka_unit_test(a_worker_goes_on_with_short_steps),
        cmocka_unit_test(a_worker_goes_on_with_large_steps_that_have_proven_short),
        cmocka_unit_test(a_large_step_has_to_prove_itself_by_large_ones),
        cmocka_unit_test(a_long_execution_holds_up_no_step),
        cmocka_unit_test(a_batch_goes_on_as_a_batch),
        cmocka_unit_test(requests_that_came_together_go_on_together),
        cmocka_unit_test(a_chain_ends_inside_an_execution),
        cmocka_unit_test(a_thread_without_an_execution_does_it_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
