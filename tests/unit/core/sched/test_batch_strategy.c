/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A batching library while other things happen to requests. The library is asked one question at a
 * time, without a lock. Each request is answered once. A request that the library refuses enters no
 * batch, except as the first of one. (system/test_batch_strategy tests the questions and the
 * batches that result.) Meant to run under tsan.
 */
#include "core/sched/batch_strategy.h"
#include "core/storage/storage.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mutex.h"
#include "base/status.h"
#include "core/server/server.h"
#include "lib/fake_model.h"

static const char config_format[] = "max_batch_size: 8\n"
                                    "input { name: \"A\" data_type: TYPE_FP32 dims: [ 1 ] }\n"
                                    "output { name: \"X\" data_type: TYPE_FP32 dims: [ 1 ] }\n"
                                    "dynamic_batching { %s }\n";

/* A request, and the library's last answer about it. */
struct judged {
    struct fake_request fr;
    int number;
    bool refuse; /* unless the request is the first of its batch */
    bool included;
};

static struct judged *of(struct request *r)
{
    return CONTAINER_OF(CONTAINER_OF(r, struct fake_request, request), struct judged, fr);
}

enum { AT_END = -1 };

/* ---- The library ----------------------------------------------------------------------------- */

static struct {
    pthread_mutex_t mu;
    pthread_cond_t changed;
    /* Under mu. */
    int n_inside, n_begun, n_ended, n_asked;
    int hold;       /* the request at which the library waits until this changes, or AT_END; 0: it
                     * does not wait */
    int held;       /* where it waits now; 0: nowhere */
    char told[512]; /* the calls that it got: "(" begins a batch, ")" ends it, a number is a request
                     */
} library = {.mu = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

struct user {
    int n; /* requests in the batch */
};

static int batcher;

static void enter(const char *word)
{
    mutex_assert_none_held();
    pthread_mutex_lock(&library.mu);
    assert_int_equal(library.n_inside++, 0);
    size_t n = strlen(library.told);
    snprintf(library.told + n, sizeof(library.told) - n, "%s ", word);
}

static void leave(void)
{
    library.n_inside--;
    pthread_mutex_unlock(&library.mu);
}

static void stay_at(int place)
{
    while (library.hold == place) {
        library.held = place;
        pthread_cond_broadcast(&library.changed);
        pthread_cond_wait(&library.changed, &library.mu);
    }
    library.held = 0;
}

static struct status *begin(const void *its_batcher, void **ret_user)
{
    enter("(");
    assert_ptr_equal(its_batcher, &batcher);
    library.n_begun++;
    *ret_user = calloc(1, sizeof(struct user));
    leave();
    return NULL;
}

static struct status *include(struct request *r, void *its_user, bool *ret_include)
{
    struct user *user = its_user;
    struct judged *j = of(r);
    char number[16];
    snprintf(number, sizeof(number), "%d", j->number);
    enter(number);
    library.n_asked++;
    stay_at(j->number);
    assert_int_equal(r->maker.n_inputs, 1);
    assert_string_equal(r->maker.inputs[0]->name, "A");
    *ret_include = j->included = user->n == 0 || !j->refuse;
    user->n += j->included;
    leave();
    return NULL;
}

static struct status *end(void *user)
{
    enter(")");
    library.n_ended++;
    stay_at(AT_END);
    free(user);
    leave();
    return NULL;
}

static void hold_at(int number)
{
    pthread_mutex_lock(&library.mu);
    library.hold = number;
    pthread_cond_broadcast(&library.changed);
    pthread_mutex_unlock(&library.mu);
}

static void wait_until_held(void)
{
    pthread_mutex_lock(&library.mu);
    while (library.held != library.hold)
        pthread_cond_wait(&library.changed, &library.mu);
    pthread_mutex_unlock(&library.mu);
}

/* ---- The model ------------------------------------------------------------------------------- */

static struct batch_strategy strategy = {
    .batcher = &batcher, .begin = begin, .include = include, .end = end};

static atomic_int n_executed, n_unasked, n_executing;
static atomic_bool executions_meet; /* each execution waits for another one */

static struct status *execute(struct instance *in, struct request **requests, uint32_t n)
{
    (void)in;
    pthread_mutex_lock(&library.mu);
    atomic_fetch_add(&n_executing, 1);
    pthread_cond_broadcast(&library.changed);
    while (atomic_load(&executions_meet) && atomic_load(&n_executing) < 2)
        pthread_cond_wait(&library.changed, &library.mu);
    pthread_mutex_unlock(&library.mu);
    atomic_fetch_add(&n_executed, (int)n);
    for (uint32_t i = 0; i < n; i++) {
        if (!of(requests[i])->included)
            atomic_fetch_add(&n_unasked, 1);
        fake_answer(requests[i]);
    }
    return NULL;
}

static struct clock_fake fake; /* of the tests in which time matters */

/* @clock  NULL: the machine's */
static void make_by(struct fake_model *f, struct clock_fake *clock, const char *batching,
                    uint32_t n_instances)
{
    char config[1024];
    snprintf(config, sizeof(config), config_format, batching);
    if (clock)
        fake_model_make_timed(f, clock, config, n_instances, execute);
    else
        fake_model_make(f, config, n_instances, execute);
    /* Makes the scheduler again, now that there is a library. */
    scheduler_free(f->model->scheduler);
    f->model->strategy = &strategy;
    assert_null(scheduler_new(f->model, &f->model->scheduler));
    scheduler_use_instances(f->model->scheduler);

    library.n_begun = library.n_ended = library.n_asked = 0;
    library.told[0] = '\0';
    atomic_store(&n_executed, 0);
    atomic_store(&n_unasked, 0);
    atomic_store(&n_executing, 0);
}

static void make(struct fake_model *f, const char *batching, uint32_t n_instances)
{
    make_by(f, NULL, batching, n_instances);
}

static void end_model(struct fake_model *f)
{
    fake_model_end(f);
    assert_int_equal(library.n_begun, library.n_ended);
    assert_int_equal(atomic_load(&n_unasked), 0);
}

static void start(struct judged *j, struct fake_model *f, int number, uint64_t priority)
{
    static const float value = 1;
    struct tensor_buffer data = {.base = &value, .size_bytes = sizeof(value)};
    int64_t shape[] = {1, 1};
    struct input *in;
    fake_request_make(&j->fr, f);
    j->number = number;
    j->included = false;
    j->fr.request.maker.priority = priority;
    assert_null(request_add_input(&j->fr.request, "A", 1, DTYPE_FP32, shape, 2, &in));
    assert_null(request_add_data(&j->fr.request, in, &data));
    assert_null(server_infer(&f->server, &j->fr.request));
}

static void finish(struct judged *j)
{
    fake_request_wait(&j->fr);
    assert_int_equal(j->fr.n_final, 1);
    assert_int_equal(j->fr.n_released, 1);
    fake_request_end(&j->fr);
}

/* ---- One thing after another ----------------------------------------------------------------- */

static void a_refused_request_begins_the_next_batch(void **state)
{
    struct fake_model f;
    struct judged j[4] = {{.refuse = false}, {.refuse = true}};
    (void)state;
    make(&f, "", 1);
    hold_at(1); /* the other requests arrive meanwhile */
    start(&j[0], &f, 1, 0);
    wait_until_held();
    for (int i = 1; i < 4; i++)
        start(&j[i], &f, i + 1, 0);
    hold_at(0);
    for (int i = 0; i < 4; i++)
        finish(&j[i]);
    end_model(&f);
    assert_string_equal(library.told, "( 1 2 ) ( 2 3 4 ) ");
    assert_int_equal(atomic_load(&n_executing), 2);
}

/* One instance executes its batch. A request that the library refused for it is executed by the
 * other instance at once. */
static void another_instance_executes_a_refused_request(void **state)
{
    struct fake_model f;
    struct judged j[2] = {{.refuse = false}, {.refuse = true}};
    (void)state;
    make(&f, "", 2);
    atomic_store(&executions_meet, true);
    hold_at(1);
    start(&j[0], &f, 1, 0);
    wait_until_held();
    start(&j[1], &f, 2, 0);
    hold_at(0);
    finish(&j[0]);
    finish(&j[1]);
    atomic_store(&executions_meet, false);
    end_model(&f);
    assert_string_equal(library.told, "( 1 2 ) ( 2 ) ");
}

static bool is_answered(struct fake_request *fr)
{
    pthread_mutex_lock(&fr->mu);
    bool is = fr->n_final > 0;
    pthread_mutex_unlock(&fr->mu);
    return is;
}

/* While the library examines a request, its time limit ends. The client gets its answer, and the
 * request stays readable for the library. */
static void a_request_times_out_while_the_library_examines_it(void **state)
{
    struct fake_model f;
    struct judged j[2] = {{.refuse = false}, {.refuse = false}};
    (void)state;
    make_by(&f, &fake,
            "priority_levels: 2 default_priority_level: 1 priority_queue_policy { key: 2 "
            "value { default_timeout_microseconds: 20000 } }",
            1);
    hold_at(1);
    start(&j[0], &f, 1, 2);
    wait_until_held();
    clock_fake_await(&fake, 20 * NS_PER_MS);
    clock_fake_advance(&fake, 20 * NS_PER_MS);
    while (!is_answered(&j[0].fr))
        sched_yield();
    assert_string_equal(j[0].fr.last_error, "Request timeout expired");
    assert_int_equal(j[0].fr.n_released, 0);
    start(&j[1], &f, 2, 1);
    hold_at(0);
    finish(&j[0]);
    finish(&j[1]);
    assert_false(j[1].fr.failed);
    end_model(&f);
    assert_string_equal(library.told, "( 1 ) ( 2 ) ");
    assert_int_equal(atomic_load(&n_executed), 1);
}

/* A request with a higher priority begins a new batch. The library's earlier answers do not
 * count. */
static void a_more_urgent_request_begins_a_new_batch(void **state)
{
    struct fake_model f;
    struct judged j[3] = {{.refuse = false}, {.refuse = true}, {.refuse = false}};
    (void)state;
    make(&f, "priority_levels: 2 default_priority_level: 2", 1);
    hold_at(1);
    start(&j[0], &f, 1, 2);
    wait_until_held();
    start(&j[1], &f, 2, 2);
    start(&j[2], &f, 3, 1);
    hold_at(0);
    for (int i = 0; i < 3; i++)
        finish(&j[i]);
    end_model(&f);
    assert_string_equal(library.told, "( 1 ) ( 3 1 2 ) ( 2 ) ");
}

static void a_cancelled_request_is_not_executed(void **state)
{
    struct fake_model f;
    struct judged j[3] = {{.refuse = false}, {.refuse = false}, {.refuse = false}};
    (void)state;
    make(&f, "", 1);
    hold_at(1);
    start(&j[0], &f, 1, 0);
    wait_until_held();
    start(&j[1], &f, 2, 0);
    start(&j[2], &f, 3, 0);
    request_cancel(&j[0].fr.request); /* the library examines this request … */
    request_cancel(&j[1].fr.request); /* … and will never see this one */
    hold_at(0);
    for (int i = 0; i < 3; i++)
        finish(&j[i]);
    assert_int_equal(j[0].fr.last_code, STATUS_CANCELLED);
    assert_int_equal(j[1].fr.last_code, STATUS_CANCELLED);
    assert_false(j[2].fr.failed);
    end_model(&f);
    assert_string_equal(library.told, "( 1 ) ( 3 ) ");
    assert_int_equal(atomic_load(&n_executed), 1);
}

/* The request is in the batch that is about to be executed, and no longer in the queue. */
static void a_request_is_cancelled_while_its_batch_ends(void **state)
{
    struct fake_model f;
    struct judged j[2] = {{.refuse = false}, {.refuse = false}};
    (void)state;
    make(&f, "", 1);
    hold_at(AT_END);
    start(&j[0], &f, 1, 0);
    wait_until_held();
    request_cancel(&j[0].fr.request);
    start(&j[1], &f, 2, 0);
    hold_at(0);
    finish(&j[0]);
    finish(&j[1]);
    assert_int_equal(j[0].fr.last_code, STATUS_CANCELLED);
    assert_false(j[1].fr.failed);
    end_model(&f);
    assert_string_equal(library.told, "( 1 ) ( 2 ) ");
}

/* The worker that asks the library finds no request to execute. Until this worker ends the
 * batch, a new request wakes no other worker. */
static void a_request_arrives_while_an_empty_batch_ends(void **state)
{
    struct fake_model f;
    struct judged j[2] = {{.refuse = false}, {.refuse = false}};
    (void)state;
    make(&f, "", 1);
    hold_at(1);
    start(&j[0], &f, 1, 0);
    wait_until_held();
    request_cancel(&j[0].fr.request);
    while (!is_answered(&j[0].fr))
        sched_yield();
    hold_at(AT_END);
    wait_until_held();
    start(&j[1], &f, 2, 0);
    hold_at(0);
    finish(&j[0]);
    finish(&j[1]);
    assert_false(j[1].fr.failed);
    end_model(&f);
    assert_string_equal(library.told, "( 1 ) ( 2 ) ");
}

static void *stop_model(void *f)
{
    end_model(f);
    return NULL;
}

/* A stop waits for the library. Requests that arrived before the stop are executed. */
static void a_model_stops_while_the_library_examines_a_request(void **state)
{
    struct fake_model f;
    struct judged j;
    pthread_t thread;
    (void)state;
    memset(&j, 0, sizeof(j));
    make(&f, "max_queue_delay_microseconds: 60000000", 1);
    hold_at(1);
    start(&j, &f, 1, 0);
    wait_until_held();
    pthread_create(&thread, NULL, stop_model, &f);
    while (!atomic_load(&f.model->stopping))
        sched_yield();
    hold_at(0);
    finish(&j);
    assert_false(j.fr.failed);
    pthread_join(thread, NULL);
}

static unsigned int dice(unsigned int *state, unsigned int sides)
{
    *state = *state * 1664525 + 1013904223;
    return (*state >> 16) % sides;
}

/* ---- All at once ----------------------------------------------------------------------------- */

enum { N_THREADS = 4, N_ROUNDS = 40, N_AT_ONCE = 8 };

struct submitter {
    pthread_t thread;
    struct fake_model *model;
    int index, n_succeeded;
};

static void *submit_many(void *arg)
{
    struct submitter *s = arg;
    unsigned int chance = (unsigned int)s->index + 1;
    struct judged j[N_AT_ONCE];
    for (int round = 0; round < N_ROUNDS; round++) {
        memset(j, 0, sizeof(j));
        for (int i = 0; i < N_AT_ONCE; i++) {
            j[i].refuse = dice(&chance, 3) == 0;
            start(&j[i], s->model, 1 + i, 1 + dice(&chance, 3));
            if (dice(&chance, 5) == 0)
                request_cancel(&j[dice(&chance, (unsigned int)i + 1)].fr.request);
        }
        for (int i = 0; i < N_AT_ONCE; i++) {
            finish(&j[i]);
            if (!j[i].fr.failed)
                s->n_succeeded++;
            else
                assert_true(j[i].fr.last_code == STATUS_CANCELLED ||
                            strcmp(j[i].fr.last_error, "Request timeout expired") == 0);
        }
    }
    return NULL;
}

static void storm(const char *batching, uint32_t n_instances)
{
    struct submitter submitters[N_THREADS];
    struct fake_model f;
    int n_succeeded = 0;
    make(&f, batching, n_instances);
    for (int i = 0; i < N_THREADS; i++) {
        submitters[i] = (struct submitter){.model = &f, .index = i};
        pthread_create(&submitters[i].thread, NULL, submit_many, &submitters[i]);
    }
    for (int i = 0; i < N_THREADS; i++) {
        pthread_join(submitters[i].thread, NULL);
        n_succeeded += submitters[i].n_succeeded;
    }
    end_model(&f);
    assert_true(n_succeeded > 0);
    assert_int_equal(n_succeeded, atomic_load(&n_executed));
    assert_true(library.n_asked > 0);
}

static void many_threads_get_one_answer_per_request(void **state)
{
    (void)state;
    storm("", 2);
    storm("max_queue_delay_microseconds: 200 preferred_batch_size: [3, 6]", 2);
}

static void many_threads_with_levels_and_time_limits(void **state)
{
    (void)state;
    storm("priority_levels: 3 default_priority_level: 2 default_queue_policy { "
          "default_timeout_microseconds: 2000 } priority_queue_policy { key: 3 value { "
          "default_timeout_microseconds: 300 timeout_action: DELAY } }",
          2);
    storm("priority_levels: 3 default_priority_level: 2 max_queue_delay_microseconds: 300 "
          "default_queue_policy { default_timeout_microseconds: 1000 }",
          1);
}

static void a_model_with_a_library_never_runs_inline(void **state)
{
    struct fake_model f;
    struct inline_budget budget = {.left_ns = EXECUTION_BUDGET_NS};
    (void)state;
    make(&f, "", 1);
    assert_false(execution_may_inline(&pull_scheduler_of(f.model)->execution, &budget));
    end_model(&f);
}

/* The library is not even looked for. */
static void a_sequence_batcher_uses_no_library(void **state)
{
    struct fake_model f;
    struct backend_registry reg = {.directory = "/nowhere"};
    char root[] = "/nowhere";
    struct storage repository = {.root = root};
    struct status *st;
    (void)state;
    fake_model_make(&f,
                    "input { name: \"A\" data_type: TYPE_FP32 dims: [ 1 ] }\n"
                    "output { name: \"X\" data_type: TYPE_FP32 dims: [ 1 ] }\n"
                    "parameters { key: \"TRITON_BATCH_STRATEGY_PATH\" value { string_value: "
                    "\"/nowhere/lib.so\" } }",
                    1, execute);
    f.model->storage = &repository;
    st = batch_strategy_open(f.model, &reg);
    assert_string_equal(status_message(st), "Batching library path not found: /nowhere/lib.so");
    status_free(st);
    Inference__ModelConfig *pb = (Inference__ModelConfig *)(uintptr_t)f.model->config->pb;
    pb->scheduling_choice_case = INFERENCE__MODEL_CONFIG__SCHEDULING_CHOICE_SEQUENCE_BATCHING;
    assert_null(batch_strategy_open(f.model, &reg));
    assert_null(f.model->strategy);
    pb->scheduling_choice_case = INFERENCE__MODEL_CONFIG__SCHEDULING_CHOICE__NOT_SET;
    f.model->storage = NULL;
    fake_model_end(&f);
}

int main(void)
{
    clock_fake_init(&fake, 1000 * NS_PER_S);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_refused_request_begins_the_next_batch),
        cmocka_unit_test(another_instance_executes_a_refused_request),
        cmocka_unit_test(a_request_times_out_while_the_library_examines_it),
        cmocka_unit_test(a_more_urgent_request_begins_a_new_batch),
        cmocka_unit_test(a_cancelled_request_is_not_executed),
        cmocka_unit_test(a_request_is_cancelled_while_its_batch_ends),
        cmocka_unit_test(a_request_arrives_while_an_empty_batch_ends),
        cmocka_unit_test(a_model_stops_while_the_library_examines_a_request),
        cmocka_unit_test(many_threads_get_one_answer_per_request),
        cmocka_unit_test(many_threads_with_levels_and_time_limits),
        cmocka_unit_test(a_model_with_a_library_never_runs_inline),
        cmocka_unit_test(a_sequence_batcher_uses_no_library),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
