/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A cancel of a request reaches those that are executed for it, wherever they are, and touches no
 * request that has ended. Meant to run under asan and tsan, too.
 */
#include "core/request/steps.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/status.h"
#include "base/thread.h"
#include "core/server/server.h"
#include "lib/fake_model.h"

static const char config[] = "input { name: \"A\" data_type: TYPE_FP32 dims: [ 1 ] }\n"
                             "output { name: \"X\" data_type: TYPE_FP32 dims: [ 1 ] }\n";

/* ---- The model: its backend waits at a gate -------------------------------------------------- */

static struct {
    pthread_mutex_t mu;
    pthread_cond_t changed;
    bool is_shut;
    int n_executed, n_seen_cancelled;
} gate = {.mu = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void set_gate(bool shut)
{
    pthread_mutex_lock(&gate.mu);
    gate.is_shut = shut;
    pthread_cond_broadcast(&gate.changed);
    pthread_mutex_unlock(&gate.mu);
}

static void await_executed(int n)
{
    pthread_mutex_lock(&gate.mu);
    while (gate.n_executed < n)
        pthread_cond_wait(&gate.changed, &gate.mu);
    pthread_mutex_unlock(&gate.mu);
}

static struct status *execute(struct instance *in, struct request **requests, uint32_t n)
{
    (void)in;
    for (uint32_t i = 0; i < n; i++) {
        pthread_mutex_lock(&gate.mu);
        gate.n_executed++;
        pthread_cond_broadcast(&gate.changed);
        while (gate.is_shut)
            pthread_cond_wait(&gate.changed, &gate.mu);
        gate.n_seen_cancelled += request_is_cancelled(requests[i]);
        pthread_mutex_unlock(&gate.mu);
        fake_answer(requests[i]);
    }
    return NULL;
}

/* ---- A parent and its steps ------------------------------------------------------------------ */

/* What the maker of the steps keeps; freed when its steps are. */
struct run {
    struct steps steps;
    atomic_int *n_freed;
};

static void free_run(struct steps *s)
{
    struct run *run = CONTAINER_OF(s, struct run, steps);
    atomic_fetch_add(run->n_freed, 1);
    free(run);
}

static struct run *begin_run(struct request *parent, atomic_int *n_freed)
{
    struct run *run = calloc(1, sizeof(*run));
    assert_non_null(run);
    run->n_freed = n_freed;
    steps_begin(&run->steps, parent, free_run);
    return run;
}

struct one_step {
    struct request request;
    struct step step;
    struct steps *steps;
    pthread_mutex_t mu;
    pthread_cond_t changed;
    int n_answers;
    enum status_code code;
    bool released, destroyed;
    char memory[1024];
};

static void respond(struct request *r, struct response *resp, uint32_t flags)
{
    struct one_step *one = CONTAINER_OF(r, struct one_step, request);
    pthread_mutex_lock(&one->mu);
    one->n_answers += (flags & RESPONSE_FINAL) != 0;
    one->code = resp && resp->error ? status_code(resp->error) : STATUS_UNKNOWN;
    pthread_mutex_unlock(&one->mu);
    response_free(resp);
}

static void release(struct request *r, uint32_t flags)
{
    struct one_step *one = CONTAINER_OF(r, struct one_step, request);
    (void)flags;
    mutex_lock(&one->steps->mu);
    steps_remove_locked(one->steps, &one->step);
    mutex_unlock(&one->steps->mu);
    pthread_mutex_lock(&one->mu);
    one->released = true;
    pthread_cond_broadcast(&one->changed);
    pthread_mutex_unlock(&one->mu);
}

static void destroy(struct request *r)
{
    struct one_step *one = CONTAINER_OF(r, struct one_step, request);
    pthread_mutex_lock(&one->mu);
    one->destroyed = true;
    pthread_cond_broadcast(&one->changed);
    pthread_mutex_unlock(&one->mu);
}

static const struct request_ops ops = {
    .alloc_output = response_alloc_pooled,
    .free_output = response_free_pooled,
    .respond = respond,
    .release = release,
    .destroy = destroy,
};

static void make_step(struct one_step *one, struct steps *steps, struct fake_model *f,
                      struct pool *pool)
{
    static const float value = 1;
    static const int64_t shape = 1;
    struct tensor_buffer data = {.base = &value, .size_bytes = sizeof(value)};
    struct input *in;
    memset(one, 0, sizeof(*one));
    pthread_mutex_init(&one->mu, NULL);
    pthread_cond_init(&one->changed, NULL);
    one->steps = steps;
    one->step.request = &one->request;
    model_ref(f->model);
    request_init(&one->request, &ops, f->model, one->memory, sizeof(one->memory), pool);
    assert_null(request_add_input(&one->request, "A", 1, DTYPE_FP32, &shape, 1, &in));
    assert_null(request_add_data(&one->request, in, &data));
}

static bool add_step(struct one_step *one)
{
    mutex_lock(&one->steps->mu);
    bool added = steps_add_locked(one->steps, &one->step);
    mutex_unlock(&one->steps->mu);
    return added;
}

static void await(struct one_step *one, const bool *what)
{
    pthread_mutex_lock(&one->mu);
    while (!*what)
        pthread_cond_wait(&one->changed, &one->mu);
    pthread_mutex_unlock(&one->mu);
}

/* Drops the maker's reference, and waits until it was the last. */
static void end_step(struct one_step *one)
{
    request_unref(&one->request);
    await(one, &one->destroyed);
    pthread_cond_destroy(&one->changed);
    pthread_mutex_destroy(&one->mu);
}

static void start_step(struct one_step *one, struct steps *steps, struct fake_model *f,
                       struct pool *pool)
{
    make_step(one, steps, f, pool);
    assert_true(add_step(one));
    assert_null(server_infer(&f->server, &one->request));
}

/* ---- Tests ----------------------------------------------------------------------------------- */

struct fixture {
    struct fake_model f;
    struct fake_request parent; /* never submitted */
    struct run *run;
    atomic_int n_freed;
};

static void set_up(struct fixture *x)
{
    gate.is_shut = false;
    gate.n_executed = gate.n_seen_cancelled = 0;
    x->n_freed = 0;
    fake_model_make(&x->f, config, 1, execute);
    fake_request_make(&x->parent, &x->f);
    x->run = begin_run(&x->parent.request, &x->n_freed);
}

static void tear_down(struct fixture *x)
{
    steps_end(&x->run->steps, &x->parent.request);
    assert_int_equal(x->n_freed, 1);
    fake_request_end(&x->parent);
    fake_model_end(&x->f);
}

static void a_cancel_reaches_the_steps(void **state)
{
    (void)state;
    struct fixture x;
    struct one_step at_backend, waiting[2];
    set_up(&x);
    set_gate(true);
    start_step(&at_backend, &x.run->steps, &x.f, x.parent.pool);
    await_executed(1);
    for (int i = 0; i < 2; i++)
        start_step(&waiting[i], &x.run->steps, &x.f, x.parent.pool);

    request_cancel(&x.parent.request);
    for (int i = 0; i < 2; i++) { /* while the instance is busy */
        await(&waiting[i], &waiting[i].released);
        assert_int_equal(waiting[i].n_answers, 1);
        assert_int_equal(waiting[i].code, STATUS_CANCELLED);
        end_step(&waiting[i]);
    }
    set_gate(false);
    await(&at_backend, &at_backend.released);
    assert_int_equal(gate.n_seen_cancelled, 1);
    assert_int_equal(gate.n_executed, 1);
    end_step(&at_backend);
    tear_down(&x);
}

static void no_step_begins_after_a_cancel(void **state)
{
    (void)state;
    struct fixture x;
    struct one_step late;
    set_up(&x);
    request_cancel(&x.parent.request);
    make_step(&late, &x.run->steps, &x.f, x.parent.pool);
    assert_false(add_step(&late));
    end_step(&late);
    tear_down(&x);

    /* The parent was cancelled before its steps were known. */
    fake_model_make(&x.f, config, 1, execute);
    fake_request_make(&x.parent, &x.f);
    request_cancel(&x.parent.request);
    x.n_freed = 0;
    x.run = begin_run(&x.parent.request, &x.n_freed);
    make_step(&late, &x.run->steps, &x.f, x.parent.pool);
    assert_false(add_step(&late));
    end_step(&late);
    tear_down(&x);
}

/* The step of a step: as with an ensemble whose step is an ensemble. */
static void a_cancel_goes_down_to_steps_of_steps(void **state)
{
    (void)state;
    struct fixture x;
    struct one_step middle, at_backend, waiting;
    set_up(&x);
    make_step(&middle, &x.run->steps, &x.f, x.parent.pool);
    assert_true(add_step(&middle));
    atomic_int n_freed = 0;
    struct run *below = begin_run(&middle.request, &n_freed);
    set_gate(true);
    start_step(&at_backend, &below->steps, &x.f, x.parent.pool);
    await_executed(1);
    start_step(&waiting, &below->steps, &x.f, x.parent.pool);

    request_cancel(&x.parent.request);
    await(&waiting, &waiting.released);
    assert_int_equal(waiting.code, STATUS_CANCELLED);
    set_gate(false);
    await(&at_backend, &at_backend.released);
    assert_int_equal(gate.n_seen_cancelled, 1);
    end_step(&waiting);
    end_step(&at_backend);
    steps_end(&below->steps, &middle.request);
    assert_int_equal(n_freed, 1);
    mutex_lock(&x.run->steps.mu);
    steps_remove_locked(&x.run->steps, &middle.step);
    mutex_unlock(&x.run->steps.mu);
    end_step(&middle);
    tear_down(&x);
}

/* The parent that another thread cancels again and again, whatever it does meanwhile. */
static struct {
    struct mutex mu; /* level 1 */
    struct request *request;
    bool over;
} target;

static void cancel_again_and_again(void *arg)
{
    (void)arg;
    for (bool over = false; !over;) {
        mutex_lock(&target.mu);
        struct request *r = target.request;
        if (r)
            request_ref(r);
        over = target.over;
        mutex_unlock(&target.mu);
        if (r) {
            request_cancel(r);
            request_unref(r);
        }
        sched_yield();
    }
}

static void set_target(struct request *r, bool over)
{
    mutex_lock(&target.mu);
    target.request = r;
    target.over = over;
    mutex_unlock(&target.mu);
}

static void a_cancel_races_with_the_end(void **state)
{
    enum { ROUNDS = 200, N = 3 };
    (void)state;
    struct fake_model f;
    struct thread thread;
    atomic_int n_freed = 0;
    fake_model_make(&f, config, 1, execute);
    mutex_init(&target.mu, 1, "target.mu");
    set_target(NULL, false);
    assert_null(thread_start(&thread, "canceller", cancel_again_and_again, NULL));
    for (int round = 0; round < ROUNDS; round++) {
        struct fake_request parent;
        struct one_step steps[N];
        bool added[N];
        fake_request_make(&parent, &f);
        set_target(&parent.request, false);
        struct run *run = begin_run(&parent.request, &n_freed);
        for (int i = 0; i < N; i++) {
            make_step(&steps[i], &run->steps, &f, parent.pool);
            added[i] = add_step(&steps[i]);
            if (added[i])
                assert_null(server_infer(&f.server, &steps[i].request));
        }
        for (int i = 0; i < N; i++) {
            if (added[i])
                await(&steps[i], &steps[i].released);
            assert_int_equal(steps[i].n_answers, added[i]);
            end_step(&steps[i]);
        }
        steps_end(&run->steps, &parent.request);
        set_target(NULL, false);
        fake_request_end(&parent);
        assert_int_equal(n_freed, round + 1);
    }
    set_target(NULL, true);
    thread_join(&thread);
    mutex_done(&target.mu);
    fake_model_end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_cancel_reaches_the_steps),
        cmocka_unit_test(no_step_begins_after_a_cancel),
        cmocka_unit_test(a_cancel_goes_down_to_steps_of_steps),
        cmocka_unit_test(a_cancel_races_with_the_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
