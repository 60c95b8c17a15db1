/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The dynamic batcher, with a backend that notes its batches and executes when the test opens its
 * gate. Meant to run under tsan.
 */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/status.h"
#include "core/model/model.h"
#include "core/request/request.h"
#include "core/sched/pull.h"
#include "core/server/server.h"
#include "core/model/model_statistics.h"
#include "lib/fake_model.h"

#define A_AND_X                                                                                    \
    "input { name: \"A\" data_type: TYPE_FP32 dims: [ -1 ] }\n"                                    \
    "output { name: \"X\" data_type: TYPE_FP32 dims: [ 1 ] }\n"
#define ON_ITS_THREAD "parameters { key: \"CONCH_EXECUTION\" value { string_value: \"thread\" } }\n"
#define ON_THE_CALLER "parameters { key: \"CONCH_EXECUTION\" value { string_value: \"inline\" } }\n"

/* The batches executed: "2 1" is a batch of two requests, then a batch of one. */
static struct {
    pthread_mutex_t mu;
    pthread_cond_t changed;
    bool shut;    /* executions wait at the gate … */
    int n_inside; /* … and this many wait there now */
    char batches[1024];
    int n_batches, n_requests;
    pthread_t last_thread;
} record = {.mu = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static struct status *execute(struct instance *in, struct request **requests, uint32_t n)
{
    (void)in;
    pthread_mutex_lock(&record.mu);
    size_t at = strlen(record.batches);
    snprintf(record.batches + at, sizeof(record.batches) - at, "%s%u", at ? " " : "", n);
    record.n_batches++;
    record.n_requests += (int)n;
    record.last_thread = pthread_self();
    record.n_inside++;
    pthread_cond_broadcast(&record.changed);
    while (record.shut)
        pthread_cond_wait(&record.changed, &record.mu);
    record.n_inside--;
    pthread_mutex_unlock(&record.mu);
    for (uint32_t i = 0; i < n; i++)
        fake_answer(requests[i]);
    return NULL;
}

static void set_gate(bool shut)
{
    pthread_mutex_lock(&record.mu);
    record.shut = shut;
    pthread_cond_broadcast(&record.changed);
    pthread_mutex_unlock(&record.mu);
}

static void wait_until_inside(int n)
{
    pthread_mutex_lock(&record.mu);
    while (record.n_inside < n)
        pthread_cond_wait(&record.changed, &record.mu);
    pthread_mutex_unlock(&record.mu);
}

static struct clock_fake fake;

enum { CONFIG_BYTES = 2048 };

/* Empties the record and prints the configuration of the model that is to fill it. */
static void begin_record(char config[CONFIG_BYTES], const char *tensors, const char *batching,
                         const char *more)
{
    snprintf(config, CONFIG_BYTES, "max_batch_size: 8\n%sdynamic_batching { %s }\n%s", tensors,
             batching, more);
    pthread_mutex_lock(&record.mu);
    record.shut = false;
    record.batches[0] = '\0';
    record.n_batches = record.n_requests = 0;
    pthread_mutex_unlock(&record.mu);
}

/* The time of these models stands still, unless the test advances it. */
static void make_with(struct fake_model *f, const char *tensors, const char *batching,
                      const char *more, uint32_t n_instances)
{
    char config[CONFIG_BYTES];
    begin_record(config, tensors, batching, more);
    fake_model_make_timed(f, &fake, config, n_instances, execute);
}

static void make(struct fake_model *f, const char *batching)
{
    make_with(f, A_AND_X, batching, ON_ITS_THREAD, 1);
}

static void add_input(struct fake_request *fr, const char *name, int64_t batch_size, int64_t width)
{
    static const float values[64];
    int64_t shape[] = {batch_size, width};
    struct tensor_buffer data = {.base = values,
                                 .size_bytes = (size_t)(batch_size * width) * sizeof(float)};
    struct input *in;
    assert_null(request_add_input(&fr->request, name, 1, DTYPE_FP32, shape, 2, &in));
    assert_null(request_add_data(&fr->request, in, &data));
}

static void prepare(struct fake_request *fr, struct fake_model *f, int64_t batch_size,
                    int64_t width)
{
    fake_request_make(fr, f);
    add_input(fr, "A", batch_size, width);
}

static void ask(struct fake_request *fr, struct fake_model *f)
{
    assert_null(server_infer(&f->server, &fr->request));
}

static void end_answered(struct fake_request *fr)
{
    fake_request_wait(fr);
    assert_int_equal(fr->n_responses, 1);
    assert_int_equal(fr->n_final, 1);
    assert_false(fr->failed);
    fake_request_end(fr);
}

static void end_failed(struct fake_request *fr, enum status_code code, const char *text)
{
    fake_request_wait(fr);
    assert_int_equal(fr->n_responses, 1);
    assert_int_equal(fr->n_final, 1);
    assert_true(fr->failed);
    assert_int_equal(fr->last_code, code);
    assert_string_equal(fr->last_error, text);
    fake_request_end(fr);
}

/* The first request keeps the only instance busy. The other requests are sent meanwhile. */
static void ask_behind(struct fake_model *f, struct fake_request *first,
                       struct fake_request *others, int n, const int64_t *widths)
{
    set_gate(true);
    prepare(first, f, 1, 1);
    ask(first, f);
    wait_until_inside(1);
    for (int i = 0; i < n; i++) {
        prepare(&others[i], f, 1, widths ? widths[i] : 1);
        ask(&others[i], f);
    }
}

static void requests_that_wait_for_a_busy_instance_form_a_batch(void **state)
{
    (void)state;
    struct fake_model f;
    struct fake_request first, others[11];
    make(&f, "");
    ask_behind(&f, &first, others, 11, NULL);
    set_gate(false);
    end_answered(&first);
    for (int i = 0; i < 11; i++)
        end_answered(&others[i]);
    fake_model_end(&f);
    assert_string_equal(record.batches, "1 8 3");
}

static void requests_of_different_shapes_form_different_batches(void **state)
{
    (void)state;
    static const int64_t widths[] = {1, 1, 2, 2, 2, 1};
    static const char *const tensors[][2] = {
        {A_AND_X, "1 2 3 1"},
        {"input { name: \"A\" data_type: TYPE_FP32 dims: [ -1 ] allow_ragged_batch: true }\n"
         "output { name: \"X\" data_type: TYPE_FP32 dims: [ 1 ] }\n",
         "1 6"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(tensors); i++) {
        struct fake_model f;
        struct fake_request first, others[6];
        make_with(&f, tensors[i][0], "", ON_ITS_THREAD, 1);
        ask_behind(&f, &first, others, 6, widths);
        set_gate(false);
        end_answered(&first);
        for (int j = 0; j < 6; j++)
            end_answered(&others[j]);
        fake_model_end(&f);
        assert_string_equal(record.batches, tensors[i][1]);
    }
}

static void requests_with_different_inputs_form_different_batches(void **state)
{
    (void)state;
    struct fake_model f;
    struct fake_request first, others[5];
    make_with(&f,
              "input { name: \"A\" data_type: TYPE_FP32 dims: [ 1 ] }\n"
              "input { name: \"B\" data_type: TYPE_FP32 dims: [ 1 ] optional: true }\n"
              "input { name: \"C\" data_type: TYPE_FP32 dims: [ 1 ] optional: true }\n"
              "output { name: \"X\" data_type: TYPE_FP32 dims: [ 1 ] }\n",
              "", ON_ITS_THREAD, 1);
    ask_behind(&f, &first, others, 0, NULL);
    for (int i = 0; i < 5; i++) {
        fake_request_make(&others[i], &f);
        if (i == 1) { /* the same inputs, in another order */
            add_input(&others[i], "B", 1, 1);
            add_input(&others[i], "A", 1, 1);
        } else {
            add_input(&others[i], "A", 1, 1);
            if (i < 4)
                add_input(&others[i], i < 2 ? "B" : "C", 1, 1);
        }
        ask(&others[i], &f);
    }
    set_gate(false);
    end_answered(&first);
    for (int i = 0; i < 5; i++)
        end_answered(&others[i]);
    fake_model_end(&f);
    assert_string_equal(record.batches, "1 2 2 1");
}

static void a_batch_waits_for_a_preferred_size(void **state)
{
    (void)state;
    struct fake_model f;
    struct fake_request requests[5];
    make(&f, "preferred_batch_size: [ 4 ] max_queue_delay_microseconds: 3600000000");
    for (int i = 0; i < 5; i++) {
        prepare(&requests[i], &f, 1, 1);
        ask(&requests[i], &f);
    }
    for (int i = 0; i < 4; i++)
        end_answered(&requests[i]);
    assert_string_equal(record.batches, "4");
    /* A request of another shape closes the batch: no request can join it. */
    struct fake_request other;
    prepare(&other, &f, 1, 2);
    ask(&other, &f);
    end_answered(&requests[4]);
    assert_string_equal(record.batches, "4 1");
    /* A flush sends the batch before its delay ends. */
    fake_model_end(&f);
    end_answered(&other);
    assert_string_equal(record.batches, "4 1 1");
}

static void a_batch_waits_no_longer_than_the_delay(void **state)
{
    (void)state;
    struct fake_model f;
    struct fake_request requests[3];
    make(&f, "max_queue_delay_microseconds: 2000");
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 3; i++) {
            prepare(&requests[i], &f, 1, 1);
            ask(&requests[i], &f);
        }
        clock_fake_await(&fake, 2 * NS_PER_MS);
        clock_fake_advance(&fake, 2 * NS_PER_MS - 1);
        clock_fake_await(&fake, 1); /* the timer waits for the end of the delay */
        assert_int_equal(record.n_batches, round);
        clock_fake_advance(&fake, 1);
        for (int i = 0; i < 3; i++)
            end_answered(&requests[i]);
    }
    fake_model_end(&f);
    assert_string_equal(record.batches, "3 3 3");
}

static void a_request_counts_with_its_batch_size(void **state)
{
    (void)state;
    struct fake_model f;
    struct fake_request first, others[4];
    make(&f, "");
    ask_behind(&f, &first, others, 0, NULL);
    static const int64_t sizes[] = {5, 3, 4, 5};
    for (int i = 0; i < 4; i++) {
        prepare(&others[i], &f, sizes[i], 1);
        ask(&others[i], &f);
    }
    set_gate(false);
    end_answered(&first);
    for (int i = 0; i < 4; i++)
        end_answered(&others[i]);
    fake_model_end(&f);
    assert_string_equal(record.batches, "1 2 1 1");
}

/* ---- Loops ----------------------------------------------------------------------------------- */

static int n_told;

static void told(struct inline_budget *budget)
{
    (void)budget;
    n_told++;
}

static void the_end_of_an_iteration_executes_its_requests(void **state)
{
    (void)state;
    struct fake_model f;
    struct fake_request requests[11];
    struct inline_budget budget = {.left_ns = EXECUTION_BUDGET_NS, .on_wait = told};
    n_told = 0;
    make_with(&f, A_AND_X, "", ON_THE_CALLER, 1);
    for (int i = 0; i < 11; i++) {
        prepare(&requests[i], &f, 1, 1);
        requests[i].request.maker.inline_budget = &budget;
        ask(&requests[i], &f);
    }
    assert_int_equal(n_told, 1);
    assert_string_equal(record.batches, "");
    pull_run_deferred(&budget);
    assert_int_equal(budget.n_waiting, 0);
    for (int i = 0; i < 11; i++)
        end_answered(&requests[i]);
    assert_true(pthread_equal(record.last_thread, pthread_self()) || record.n_batches > 1);
    assert_int_equal(record.n_requests, 11);
    assert_int_equal(strncmp(record.batches, "8 3", 3), 0);
    pull_run_deferred(&budget);
    fake_model_end(&f);
}

/* A loop that has no callback for the end of its iteration executes the batch at once. */
static void a_loop_without_an_end_of_iteration_executes_at_once(void **state)
{
    (void)state;
    struct fake_model f;
    struct fake_request fr;
    struct inline_budget budget = {.left_ns = EXECUTION_BUDGET_NS};
    make_with(&f, A_AND_X, "", ON_THE_CALLER, 1);
    prepare(&fr, &f, 1, 1);
    fr.request.maker.inline_budget = &budget;
    ask(&fr, &f);
    assert_string_equal(record.batches, "1");
    end_answered(&fr);
    fake_model_end(&f);
}

/* More models than a budget has room for. Another thread has executed the requests of one of
 * them. */
static void one_iteration_executes_requests_of_many_models(void **state)
{
    (void)state;
    enum { N = 10 };
    struct fake_model models[N];
    struct fake_request requests[N];
    struct inline_budget budget = {.left_ns = EXECUTION_BUDGET_NS, .on_wait = told};
    n_told = 0;
    for (int i = 0; i < N; i++) {
        make_with(&models[i], A_AND_X, "", ON_THE_CALLER, 1);
        prepare(&requests[i], &models[i], 1, 1);
        requests[i].request.maker.inline_budget = &budget;
        ask(&requests[i], &models[i]);
    }
    assert_int_equal(n_told, 1);
    struct fake_request without_budget;
    prepare(&without_budget, &models[0], 1, 1);
    ask(&without_budget, &models[0]);
    end_answered(&without_budget);
    pull_run_deferred(&budget);
    for (int i = 0; i < N; i++) {
        end_answered(&requests[i]);
        fake_model_end(&models[i]);
    }
}

/* ---- Requests that are not executed ---------------------------------------------------------- */

static void a_request_times_out_while_the_instance_is_busy(void **state)
{
    (void)state;
    struct fake_model f;
    struct fake_request first, others[3];
    make(&f, "default_queue_policy { default_timeout_microseconds: 3600000000 "
             "allow_timeout_override: true }");
    ask_behind(&f, &first, others, 0, NULL);
    for (int i = 0; i < 3; i++) {
        prepare(&others[i], &f, 1, 1);
        others[i].request.maker.timeout_us = 1000;
        ask(&others[i], &f);
    }
    clock_fake_await(&fake, NS_PER_MS);
    clock_fake_advance(&fake, NS_PER_MS - 1);
    clock_fake_await(&fake, 1);
    for (int i = 0; i < 3; i++)
        assert_int_equal(others[i].n_final, 0);
    clock_fake_advance(&fake, 1);
    for (int i = 0; i < 3; i++)
        end_failed(&others[i], STATUS_UNAVAILABLE, "Request timeout expired");
    struct statistics sums;
    assert_null(model_statistics(f.model, &sums));
    assert_int_equal(sums.failures[FAILURE_REJECTED], 3);
    statistics_done(&sums);
    set_gate(false);
    end_answered(&first);
    fake_model_end(&f);
    assert_string_equal(record.batches, "1");
}

static void a_full_queue_refuses_a_request_at_once(void **state)
{
    (void)state;
    struct fake_model f;
    struct fake_request first, others[3];
    make(&f, "default_queue_policy { max_queue_size: 2 }");
    ask_behind(&f, &first, others, 2, NULL);
    prepare(&others[2], &f, 1, 1);
    struct status *st = server_infer(&f.server, &others[2].request);
    assert_int_equal(status_code(st), STATUS_UNAVAILABLE);
    assert_string_equal(status_message(st),
                        "[request id: <id_unknown>] Exceeds maximum queue size");
    status_free(st);
    assert_int_equal(others[2].n_final, 0);
    fake_request_end(&others[2]);
    struct statistics sums;
    assert_null(model_statistics(f.model, &sums));
    assert_int_equal(sums.fail.count, 0); /* reference/behaviours §10.7 */
    statistics_done(&sums);
    set_gate(false);
    end_answered(&first);
    end_answered(&others[0]);
    end_answered(&others[1]);
    fake_model_end(&f);
}

static void cancelled_requests_are_not_executed(void **state)
{
    (void)state;
    struct fake_model f;
    struct fake_request first, others[4];
    make(&f, "");
    ask_behind(&f, &first, others, 3, NULL);
    request_cancel(&others[1].request);
    set_gate(false);
    end_answered(&first);
    end_answered(&others[0]);
    end_failed(&others[1], STATUS_CANCELLED, "");
    end_answered(&others[2]);
    /* When all waiting requests are cancelled, their delay does not hold up the next request. */
    prepare(&others[3], &f, 1, 1);
    request_cancel(&others[3].request);
    ask(&others[3], &f);
    end_failed(&others[3], STATUS_CANCELLED, "");
    fake_model_end(&f);
    assert_string_equal(record.batches, "1 2");
}

/* The push itself finds the request cancelled, and refuses it. */
static void a_request_cancelled_before_its_push_waits_for_no_batch(void **state)
{
    (void)state;
    struct fake_model f;
    struct fake_request fr;
    make(&f, "max_queue_delay_microseconds: 3600000000");
    prepare(&fr, &f, 1, 1);
    request_cancel(&fr.request);
    ask(&fr, &f);
    request_cancel(&fr.request); /* the request is in no queue any more */
    end_failed(&fr, STATUS_CANCELLED, "");
    fake_model_end(&f);
    assert_string_equal(record.batches, "");
}

static void priorities_decide_which_request_is_next(void **state)
{
    (void)state;
    struct fake_model f;
    struct fake_request first, others[4];
    char order[64] = "";
    make(&f, "priority_levels: 3 default_priority_level: 2 preferred_batch_size: [ 1 ]");
    set_gate(true);
    prepare(&first, &f, 1, 1);
    ask(&first, &f);
    wait_until_inside(1);
    static const uint64_t priorities[] = {3, 0, 1, 2};
    for (int i = 0; i < 4; i++) {
        prepare(&others[i], &f, 1, 1);
        others[i].request.maker.priority = priorities[i];
        ask(&others[i], &f);
    }
    struct pull_scheduler *s = pull_scheduler_of(f.model);
    struct request *batch[8];
    mutex_lock(&s->mu);
    while (s->ops->take_locked(s, f.model->instances[0], batch, 8) == 1)
        order[strlen(order)] =
            (char)('0' + (CONTAINER_OF(batch[0], struct fake_request, request) - others));
    mutex_unlock(&s->mu);
    assert_string_equal(order, "2130");
    for (int i = 0; i < 4; i++) {
        request_fail_queued(&others[i].request, FAILURE_OTHER,
                            status_new(STATUS_INTERNAL, "taken"));
        end_failed(&others[i], STATUS_INTERNAL, "taken");
    }
    set_gate(false);
    end_answered(&first);
    fake_model_end(&f);
}

static void *advance(void *arg)
{
    (void)arg;
    clock_fake_advance(&fake, NS_PER_MS);
    return NULL;
}

/* The timer of a batch that filled up earlier fires while the scheduler is freed. */
static void a_scheduler_ends_while_its_timer_fires(void **state)
{
    (void)state;
    for (int round = 0; round < 400; round++) {
        struct fake_model f;
        struct fake_request requests[2];
        pthread_t thread;
        make(&f, "preferred_batch_size: [ 2 ] max_queue_delay_microseconds: 1000");
        for (int i = 0; i < 2; i++) {
            prepare(&requests[i], &f, 1, 1);
            ask(&requests[i], &f);
        }
        for (int i = 0; i < 2; i++)
            end_answered(&requests[i]);
        clock_fake_await(&fake, NS_PER_MS);
        pthread_create(&thread, NULL, advance, NULL);
        for (int i = 0; i < round % 20; i++)
            sched_yield(); /* or the end is always first */
        fake_model_end(&f);
        pthread_join(thread, NULL);
    }
}

/* ---- Many threads ---------------------------------------------------------------------------- */

struct submitter {
    pthread_t thread;
    struct fake_model *f;
    unsigned int seed;
    int n_ok, n_failed, n_refused;
};

static void ask_at_random(struct submitter *s)
{
    enum { MOST = 6 };
    struct fake_request requests[MOST];
    struct inline_budget budget = {.left_ns = EXECUTION_BUDGET_NS, .on_wait = told};
    bool taken[MOST];
    int n = 1 + rand_r(&s->seed) % MOST;
    for (int i = 0; i < n; i++) {
        prepare(&requests[i], s->f, 1 + rand_r(&s->seed) % 3, 1 + rand_r(&s->seed) % 2);
        requests[i].request.maker.priority = (uint64_t)(rand_r(&s->seed) % 4);
        requests[i].request.maker.timeout_us = (uint64_t)(rand_r(&s->seed) % 2000);
        if (s->seed % 2)
            requests[i].request.maker.inline_budget = &budget;
        struct status *st = server_infer(&s->f->server, &requests[i].request);
        taken[i] = !st;
        status_free(st);
        if (rand_r(&s->seed) % 8 == 0)
            request_cancel(&requests[i].request);
    }
    pull_run_deferred(&budget);
    for (int i = 0; i < n; i++) {
        if (taken[i]) {
            fake_request_wait(&requests[i]);
            assert_int_equal(requests[i].n_responses, 1);
            assert_int_equal(requests[i].n_final, 1);
            assert_int_equal(requests[i].n_released, 1);
        }
        s->n_refused += !taken[i];
        s->n_failed += taken[i] && requests[i].failed;
        s->n_ok += taken[i] && !requests[i].failed;
        fake_request_end(&requests[i]);
    }
}

static void *submit_many(void *arg)
{
    struct submitter *s = arg;
    for (int i = 0; i < 150; i++)
        ask_at_random(s);
    return NULL;
}

static void many_threads_get_one_answer_per_batched_request(void **state)
{
    (void)state;
    static const char *const batchings[] = {
        "",
        "max_queue_delay_microseconds: 200 preferred_batch_size: [ 2, 4 ]",
        "max_queue_delay_microseconds: 100 priority_levels: 3 default_priority_level: 2"
        " default_queue_policy { default_timeout_microseconds: 1500 allow_timeout_override: true"
        " max_queue_size: 6 }"
        " priority_queue_policy { key: 1 value { timeout_action: DELAY"
        " default_timeout_microseconds: 50 } }",
    };
    static const char *const where[] = {ON_ITS_THREAD, ON_THE_CALLER, ""};
    enum { N = 4 };
    for (size_t b = 0; b < ARRAY_SIZE(batchings); b++) {
        for (size_t w = 0; w < ARRAY_SIZE(where); w++) {
            struct fake_model f;
            struct submitter submitters[N];
            char config[CONFIG_BYTES];
            int n_ok = 0;
            begin_record(config, A_AND_X, batchings[b], where[w]);
            fake_model_make(&f, config, 2, execute); /* in real time: delays end at any moment */
            pull_scheduler_of(f.model)->thread_idle_ns = 50 * NS_PER_US;
            for (unsigned int i = 0; i < N; i++) {
                submitters[i] = (struct submitter){.f = &f, .seed = i + 1};
                pthread_create(&submitters[i].thread, NULL, submit_many, &submitters[i]);
            }
            for (int i = 0; i < N; i++) {
                pthread_join(submitters[i].thread, NULL);
                n_ok += submitters[i].n_ok;
            }
            fake_model_end(&f);
            assert_int_equal(record.n_requests, n_ok);
            assert_true(n_ok > 0);
        }
    }
}

/* The reference's hook for tests: batches are formed only once this many requests wait. */
static void the_test_hook_delays_batches(void **state)
{
    (void)state;
    struct fake_model f;
    struct fake_request requests[6];
    setenv("TRITONSERVER_DELAY_SCHEDULER", "6", 1);
    make(&f, "preferred_batch_size: [ 3 ]");
    unsetenv("TRITONSERVER_DELAY_SCHEDULER");
    for (int i = 0; i < 6; i++) {
        assert_int_equal(record.n_batches, 0);
        prepare(&requests[i], &f, 1, 1);
        ask(&requests[i], &f);
    }
    for (int i = 0; i < 6; i++)
        end_answered(&requests[i]);
    fake_model_end(&f);
    assert_string_equal(record.batches, "3 3");
}

int main(void)
{
    clock_fake_init(&fake, 1000 * NS_PER_S);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_that_wait_for_a_busy_instance_form_a_batch),
        cmocka_unit_test(requests_of_different_shapes_form_different_batches),
        cmocka_unit_test(requests_with_different_inputs_form_different_batches),
        cmocka_unit_test(a_batch_waits_for_a_preferred_size),
        cmocka_unit_test(a_batch_waits_no_longer_than_the_delay),
        cmocka_unit_test(a_request_counts_with_its_batch_size),
        cmocka_unit_test(the_end_of_an_iteration_executes_its_requests),
        cmocka_unit_test(a_loop_without_an_end_of_iteration_executes_at_once),
        cmocka_unit_test(one_iteration_executes_requests_of_many_models),
        cmocka_unit_test(a_request_times_out_while_the_instance_is_busy),
        cmocka_unit_test(a_full_queue_refuses_a_request_at_once),
        cmocka_unit_test(cancelled_requests_are_not_executed),
        cmocka_unit_test(a_request_cancelled_before_its_push_waits_for_no_batch),
        cmocka_unit_test(priorities_decide_which_request_is_next),
        cmocka_unit_test(a_scheduler_ends_while_its_timer_fires),
        cmocka_unit_test(many_threads_get_one_answer_per_batched_request),
        cmocka_unit_test(the_test_hook_delays_batches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
