/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Questions whether a model is ready: never two at a time, one more after a change, none of a model
 * that is about to be taken down.
 */
#include "core/backend/readiness.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/mem.h"
#include "core/backend/instance_group.h"
#include "lib/fake_model.h"

static const char config[] = "input { name: \"A\" data_type: TYPE_FP32 dims: [ 1 ] }\n"
                             "output { name: \"X\" data_type: TYPE_FP32 dims: [ 1 ] }\n";

enum { THREADS = 4, ROUNDS = 200 };

/* The backend: what it answers, and whether it does. */
static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static bool is_shut, fails;
static int n_inside, most_inside, n_asked, n_looks;

static struct status *answer(struct instance *in)
{
    (void)in;
    pthread_mutex_lock(&mu);
    n_asked++;
    if (++n_inside > most_inside)
        most_inside = n_inside;
    pthread_cond_broadcast(&changed);
    while (is_shut)
        pthread_cond_wait(&changed, &mu);
    bool failed = fails;
    n_inside--;
    pthread_mutex_unlock(&mu);
    return failed ? status_new(STATUS_INTERNAL, "no device") : NULL;
}

static void set_backend(bool shut, bool failing)
{
    pthread_mutex_lock(&mu);
    is_shut = shut;
    fails = failing;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mu);
}

static void await_count(const int *count, int n)
{
    pthread_mutex_lock(&mu);
    while (*count < n)
        pthread_cond_wait(&changed, &mu);
    pthread_mutex_unlock(&mu);
}

static void await_asked(int n)
{
    await_count(&n_asked, n);
}

static int count_asked(void)
{
    pthread_mutex_lock(&mu);
    int n = n_asked;
    pthread_mutex_unlock(&mu);
    return n;
}

static bool ask_none(struct readiness_watch *w)
{
    (void)w;
    pthread_mutex_lock(&mu);
    n_looks++;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mu);
    return false;
}

static struct status *execute(struct instance *in, struct request **requests, uint32_t n)
{
    (void)in;
    for (uint32_t i = 0; i < n; i++)
        fake_answer(requests[i]);
    return NULL;
}

/* Makes a model whose backend has been asked once. @clock  NULL: the real one */
static void make_timed(struct fake_model *f, struct clock_fake *clock)
{
    set_backend(false, false);
    n_asked = most_inside = n_looks = 0;
    if (clock)
        fake_model_make_timed(f, clock, config, 1, execute);
    else
        fake_model_make(f, config, 1, execute);
    f->backend.fns.instance_ready = answer;
    helpers_init(&f->backend.askers);
    readiness_watch_init(&f->server.readiness_watch, &f->server.deadline_timers, &f->server.helpers,
                         ask_none);
    readiness_changed(f->model); /* has no effect before the model is loaded */
    assert_int_equal(count_asked(), 0);
    readiness_begin(f->model);
    assert_int_equal(count_asked(), 1);
}

static void make(struct fake_model *f)
{
    make_timed(f, NULL);
}

static void end(struct fake_model *f)
{
    model_note_stopping(f->model);
    readiness_end(f->model);
    readiness_watch_end(&f->server.readiness_watch);
    helpers_done(&f->backend.askers);
    readiness_watch_done(&f->server.readiness_watch);
    fake_model_end(f);
    assert_int_equal(most_inside, 1);
}

static void a_change_during_a_question_is_asked_for_once_more(void **state)
{
    (void)state;
    struct fake_model f;
    make(&f);
    set_backend(true, false);
    readiness_changed(f.model);
    await_asked(2);
    for (int i = 0; i < 3; i++)
        readiness_changed(f.model);
    set_backend(false, true);
    await_asked(3);
    assert_false(readiness_ask(f.model)); /* the fourth; it comes after the third */
    assert_int_equal(count_asked(), 4);
    assert_false(readiness_known(f.model));
    end(&f);
}

static void *ask_often(void *arg)
{
    struct fake_model *f = arg;
    for (int i = 0; i < ROUNDS; i++) {
        assert_true(readiness_ask(f->model));
        readiness_changed(f->model);
    }
    return NULL;
}

static void one_thread_at_a_time_asks(void **state)
{
    (void)state;
    struct fake_model f;
    pthread_t threads[THREADS];
    make(&f);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, ask_often, &f), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    end(&f); /* which looks at most_inside */
}

static void a_question_sees_what_was_before_it(void **state)
{
    (void)state;
    struct fake_model f;
    make(&f);
    for (int i = 0; i < ROUNDS; i++) {
        readiness_changed(f.model); /* a question that may be in progress with the old answer */
        set_backend(false, i % 2 == 0);
        assert_int_equal(readiness_ask(f.model), i % 2 != 0);
    }
    end(&f);
}

/* ---- Questions that are not answered -------------------------------------------------------- */

static pthread_cond_t freed = PTHREAD_COND_INITIALIZER;
static bool may_end;
static int n_held;

/* What another model's question does that is not answered. */
static void hold_asker(struct control_job *job)
{
    (void)job;
    pthread_mutex_lock(&mu);
    n_held++;
    pthread_cond_broadcast(&changed);
    while (!may_end)
        pthread_cond_wait(&freed, &mu);
    pthread_mutex_unlock(&mu);
}

static void models_that_do_not_answer_delay_no_other_for_long(void **state)
{
    (void)state;
    struct control_job held[CONTROL_MAX_OTHERS];
    struct fake_model f;
    make(&f);
    may_end = false;
    n_held = 0;
    for (size_t i = 0; i < CONTROL_MAX_OTHERS; i++) {
        held[i] = (struct control_job){.run = hold_asker};
        helpers_post(&f.backend.askers, &held[i]);
    }
    await_count(&n_held, CONTROL_MAX_OTHERS);

    set_backend(false, true);
    readiness_changed(f.model);
    uint64_t now_ns = 1000 * NS_PER_S; /* no client has wanted to know until then */
    assert_true(readiness_ask_if_wanted(f.model, now_ns));
    assert_true(readiness_ask_if_wanted(f.model, now_ns + 5 * NS_PER_S - 1));
    assert_int_equal(count_asked(), 1); /* the one of the load */
    assert_true(readiness_ask_if_wanted(f.model, now_ns + 5 * NS_PER_S));
    await_asked(2);
    assert_false(readiness_ask(f.model));

    pthread_mutex_lock(&mu);
    may_end = true;
    pthread_cond_broadcast(&freed);
    pthread_mutex_unlock(&mu);
    end(&f);
}

/* The answer is there a little before the watch hears of it. */
static void await_watch_quiet(struct readiness_watch *w)
{
    for (bool quiet = false; !quiet; sched_yield()) {
        mutex_lock(&w->mu);
        quiet = w->n_asking == 0;
        mutex_unlock(&w->mu);
    }
}

/* Makes a model by a fake clock; the question of its load has ended, and the timer is set for a
 * second after it. */
static void make_timed_and_quiet(struct fake_model *f, struct clock_fake *clock)
{
    clock_fake_init(clock, NS_PER_S);
    make_timed(f, clock);
    await_watch_quiet(&f->server.readiness_watch);
    clock_fake_await(clock, NS_PER_S);
}

/* While models are loaded one after another, a question is often in progress when the timer fires.
 */
static void the_watch_looks_at_questions_that_last_a_second(void **state)
{
    (void)state;
    struct clock_fake clock;
    struct fake_model f;
    make_timed_and_quiet(&f, &clock);
    clock_fake_advance(&clock, 600 * NS_PER_MS);
    set_backend(true, false);
    readiness_changed(f.model);
    await_asked(2);
    clock_fake_advance(&clock, 400 * NS_PER_MS);
    clock_fake_await(&clock, 600 * NS_PER_MS);
    assert_false(f.server.helpers.has_threads);
    clock_fake_advance(&clock, 600 * NS_PER_MS);
    await_count(&n_looks, 1);
    clock_fake_await(&clock, NS_PER_S); /* it looks again */
    clock_fake_advance(&clock, NS_PER_S);
    await_count(&n_looks, 2);
    set_backend(false, false);
    end(&f);
}

/* A client asks so soon after the load that no question begins for it. */
static void the_watch_asks_again_what_a_client_wants_to_know(void **state)
{
    (void)state;
    struct clock_fake clock;
    struct fake_model f;
    make_timed_and_quiet(&f, &clock);
    assert_true(readiness_known(f.model));
    clock_fake_advance(&clock, NS_PER_S);
    await_count(&n_looks, 1);
    assert_int_equal(count_asked(), 1);
    end(&f);
}

static void a_model_that_stops_is_not_asked(void **state)
{
    (void)state;
    struct fake_model f;
    make(&f);
    model_note_stopping(f.model);
    readiness_changed(f.model);
    assert_false(readiness_ask(f.model));
    readiness_end(f.model);
    assert_int_equal(count_asked(), 1);
    end(&f);
}

/* The room is used when it is large enough, so that a question each second allocates nothing. */
static void instances_are_listed_in_the_callers_room(void **state)
{
    (void)state;
    enum { N = 3 };
    for (uint32_t n_room = N - 1; n_room <= N; n_room++) {
        struct fake_model f;
        struct instance *room[N];
        uint32_t n = 0;
        fake_model_make(&f, config, N, execute);
        struct instance **list = instances_in_service(f.model, room, n_room, &n);
        assert_int_equal(n, N);
        assert_int_equal(list == room, n_room == N);
        for (uint32_t i = 0; i < n; i++) {
            assert_ptr_equal(list[i], f.model->instances[i]);
            instance_unref(list[i]);
        }
        if (list != room)
            mem_free(list);
        fake_model_end(&f);
    }
}

static atomic_int n_alone;

static void on_alone(struct model *m)
{
    (void)m;
    atomic_fetch_add(&n_alone, 1);
}

static void *change_often(void *arg)
{
    struct fake_model *f = arg;
    for (int i = 0; i < ROUNDS; i++)
        readiness_changed(f->model);
    return NULL;
}

/* A second call of on_alone() would unload the model twice. */
static void a_model_is_alone_once_whatever_its_backend_says(void **state)
{
    (void)state;
    for (int round = 0; round < 20; round++) {
        struct fake_model f;
        pthread_t threads[THREADS];
        make(&f);
        model_open(f.model);
        f.model->on_alone = on_alone;
        atomic_store(&n_alone, 0);
        for (int i = 0; i < THREADS; i++)
            assert_int_equal(pthread_create(&threads[i], NULL, change_often, &f), 0);
        bool at_once = model_retire(f.model);
        for (int i = 0; i < THREADS; i++)
            pthread_join(threads[i], NULL);
        helpers_done(&f.backend.askers); /* the last question has dropped its reference */
        assert_int_equal(at_once + atomic_load(&n_alone), 1);
        int n = count_asked();
        helpers_init(&f.backend.askers);
        readiness_changed(f.model);
        assert_int_equal(count_asked(), n);
        end(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_change_during_a_question_is_asked_for_once_more),
        cmocka_unit_test(one_thread_at_a_time_asks),
        cmocka_unit_test(a_question_sees_what_was_before_it),
        cmocka_unit_test(models_that_do_not_answer_delay_no_other_for_long),
        cmocka_unit_test(the_watch_looks_at_questions_that_last_a_second),
        cmocka_unit_test(the_watch_asks_again_what_a_client_wants_to_know),
        cmocka_unit_test(instances_are_listed_in_the_callers_room),
        cmocka_unit_test(a_model_that_stops_is_not_asked),
        cmocka_unit_test(a_model_is_alone_once_whatever_its_backend_says),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
