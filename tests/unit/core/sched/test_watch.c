/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests that a backend does not answer: the core logs them, answers them in the backend's place,
 * and drops the backend's late answers. The backend keeps what it gets, in its call or beyond it,
 * until the test releases it. The test owns the time, and the deadline timer of the model fires too
 * late to matter.
 */
#include "core/sched/watch.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/status.h"
#include "core/request/response.h"
#include "core/server/server.h"
#include "core/model/model_statistics.h"
#include "lib/fake_model.h"

#define CONFIG                                                                                     \
    "input { name: 'A' data_type: TYPE_FP32 dims: [ 1 ] }\n"                                       \
    "output { name: 'X' data_type: TYPE_FP32 dims: [ 1 ] }\n"
#define LIMIT(ms)                                                                                  \
    "parameters { key: 'CONCH_EXECUTION_LIMIT_MS' value { string_value: '" ms "' } }\n"
/* Too long for the real timer to fire. */
#define LONG_LIMIT LIMIT("60000")
#define LIMIT_NS   (60 * NS_PER_S)

enum { MAX_KEPT = 8 };

static struct {
    pthread_mutex_t mu;
    pthread_cond_t cv;
    bool hold; /* calls do not return */
    bool keep; /* they return without an answer */
    unsigned int n_inside;
    unsigned int n_kept;
    struct request *kept[MAX_KEPT];
} be = {.mu = PTHREAD_MUTEX_INITIALIZER, .cv = PTHREAD_COND_INITIALIZER};

/* Answers as the ABI demands, perhaps too late. */
static void answer(struct request *r)
{
    struct response *resp;
    assert_null(response_new(r, &resp));
    status_free(response_send(resp, RESPONSE_FINAL, NULL));
    assert_null(request_release(r));
}

static struct status *execute(struct instance *in, struct request **requests, uint32_t n)
{
    static const struct execution_times times = {1, 2, 3, 4};
    pthread_mutex_lock(&be.mu);
    be.n_inside++;
    pthread_cond_broadcast(&be.cv);
    while (be.hold)
        pthread_cond_wait(&be.cv, &be.mu);
    be.n_inside--;
    bool keep = be.keep;
    for (uint32_t i = 0; keep && i < n; i++)
        be.kept[be.n_kept++] = requests[i];
    pthread_cond_broadcast(&be.cv);
    pthread_mutex_unlock(&be.mu);
    for (uint32_t i = 0; !keep && i < n; i++) {
        instance_report_statistics(in, requests[i], true, &times);
        answer(requests[i]);
    }
    return NULL;
}

static void set(bool hold, bool keep)
{
    pthread_mutex_lock(&be.mu);
    be.hold = hold;
    be.keep = keep;
    pthread_cond_broadcast(&be.cv);
    pthread_mutex_unlock(&be.mu);
}

static void wait_inside(unsigned int n)
{
    pthread_mutex_lock(&be.mu);
    while (be.n_inside != n)
        pthread_cond_wait(&be.cv, &be.mu);
    pthread_mutex_unlock(&be.mu);
}

/* This thread answers the requests that the backend has kept. */
static void answer_kept(void)
{
    for (unsigned int i = 0; i < be.n_kept; i++)
        answer(be.kept[i]);
    be.n_kept = 0;
}

/* ------------------------------------------------------------------------------------------ */

static char log_path[] = "/tmp/conch-test-watch-XXXXXX";

static struct fake_model f;
static struct watch *w;
static struct fake_request asked[MAX_KEPT];
static char ids[MAX_KEPT][8];

static void make(const char *config, uint32_t n_instances)
{
    fake_model_make(&f, config, n_instances, execute);
    w = &pull_scheduler_of(f.model)->watch;
}

static void ask(unsigned int i)
{
    static const float value = 1;
    struct tensor_buffer data = {.base = &value, .size_bytes = sizeof(value)};
    struct input *in;
    int64_t shape[] = {1, 1};
    struct request *r = &asked[i].request;
    fake_request_make(&asked[i], &f);
    snprintf(ids[i], sizeof(ids[i]), "r%u", i);
    r->maker.id = ids[i];
    assert_null(request_add_input(r, "A", 1, DTYPE_FP32, shape, f.model->batching ? 2 : 1, &in));
    assert_null(request_add_data(r, in, &data));
    assert_null(server_infer(&f.server, r));
}

static void done(unsigned int i)
{
    fake_request_wait(&asked[i]);
    assert_int_equal(asked[i].n_final, 1);
    fake_request_end(&asked[i]);
}

static bool is_answered(unsigned int i)
{
    pthread_mutex_lock(&asked[i].mu);
    bool answered = asked[i].n_final > 0;
    pthread_mutex_unlock(&asked[i].mu);
    return answered;
}

/* Returns when the backend's oldest call or request began, after waiting until the core knows of
 * n requests. */
static uint64_t began(unsigned int n)
{
    struct watch_use use;
    uint64_t now_ns = monotonic_ns();
    do {
        sched_yield();
        watch_read(w, now_ns, &use);
    } while (use.n_requests != n);
    return now_ns - use.oldest_ns;
}

/* Waits until the core has noted that n requests were kept by calls that returned. */
static void wait_late(unsigned int n)
{
    for (size_t seen = ~n; seen != n; sched_yield()) {
        mutex_lock(&w->mu);
        seen = w->n_late;
        mutex_unlock(&w->mu);
    }
}

/* Waits until the helper has logged and answered all that was found. */
static void wait_told(void)
{
    mutex_lock(&w->mu);
    while (w->is_answering)
        cond_wait(&w->reported, &w->mu);
    mutex_unlock(&w->mu);
}

/* Looks once, and again as often as the watch wants to at (nearly) the same moment. */
static void look(uint64_t now_ns)
{
    uint64_t next_ns = watch_look(w, now_ns);
    while (next_ns <= now_ns + 2 * WATCH_SETTLE_NS) {
        now_ns = next_ns;
        next_ns = watch_look(w, now_ns);
    }
    wait_told();
}

/* Waits until the log has the text n times. More often is a failure. */
static void expect_logged(const char *text, size_t n)
{
    for (size_t found = 0;; sched_yield()) {
        AUTO(buf) all = BUF_INIT(1 << 20);
        assert_null(file_read(log_path, &all));
        found = 0;
        for (const char *at = buf_text(&all); (at = strstr(at, text)); at += strlen(text))
            found++;
        assert_true(found <= n);
        if (found == n)
            return;
    }
}

static int begin_log(void **state)
{
    (void)state;
    int fd = mkstemp(log_path);
    if (fd < 0)
        return -1;
    close(fd);
    struct status *st = log_open_file(log_path);
    status_free(st);
    return st ? -1 : 0;
}

static int end_log(void **state)
{
    (void)state;
    status_free(log_open_file(NULL));
    return unlink(log_path);
}

/* ------------------------------------------------------------------------------------------ */

static void a_call_that_does_not_return_is_logged_ever_more_rarely(void **state)
{
    (void)state;
    make(CONFIG, 2);
    set(true, false);
    ask(0);
    wait_inside(1);
    uint64_t start_ns = began(1);
    look(start_ns + 9 * NS_PER_S);
    look(start_ns + 10 * NS_PER_S);
    look(start_ns + 11 * NS_PER_S);
    expect_logged(
        "model 'm' version 1, instance 'm_0': request 'r0' has been with the backend for 10 s "
        "without an answer",
        1);
    look(start_ns + 19 * NS_PER_S);
    look(start_ns + 20 * NS_PER_S);
    expect_logged("request 'r0' has been with the backend for 20 s", 1);
    unsigned int told = 0;
    for (uint64_t s = 21; s < 4 * 3600; s++) {
        struct watched_call before = f.model->instances[0]->call;
        look(start_ns + s * NS_PER_S);
        told += f.model->instances[0]->call.warn_after_ns != before.warn_after_ns;
    }
    /* 40, 80, …, 5120 s, and from then on each hour. */
    assert_int_equal(told, 8 + 2);
    assert_false(is_answered(0)); /* no limit: the request is only logged */
    set(false, false);
    done(0);
    assert_false(asked[0].failed);
    fake_model_end(&f);
}

static void a_kept_request_is_logged(void **state)
{
    (void)state;
    make(CONFIG, 1);
    set(false, true);
    ask(1);
    ask(2);
    wait_late(2);
    uint64_t start_ns = began(2);
    look(start_ns + 9 * NS_PER_S);
    look(start_ns + 15 * NS_PER_S);
    expect_logged("instance 'm_0': request 'r1' (and 1 more) has been with the backend for 15 s",
                  1);
    answer_kept();
    done(1);
    done(2);
    wait_late(0);
    assert_false(asked[1].failed || asked[2].failed);
    /* No request is left. One more look is made, for requests that may just have begun, and no
     * further one. */
    assert_int_not_equal(watch_look(w, start_ns + 30 * NS_PER_S), UINT64_MAX);
    assert_int_equal(watch_look(w, start_ns + 40 * NS_PER_S), UINT64_MAX);
    fake_model_end(&f);
}

static void a_stream_that_goes_on_is_not_logged(void **state)
{
    (void)state;
    make(CONFIG "model_transaction_policy { decoupled: true }\n", 1);
    set(false, true);
    ask(3);
    wait_late(1);
    uint64_t start_ns = began(1);
    for (uint64_t s = 5; s < 60; s += 5) {
        struct response *resp;
        assert_null(response_new(be.kept[0], &resp));
        assert_null(response_send(resp, 0, NULL));
        look(start_ns + s * NS_PER_S);
    }
    look(start_ns + 64 * NS_PER_S);
    expect_logged("request 'r3'", 0);
    look(start_ns + 65 * NS_PER_S);
    expect_logged("request 'r3' has been with the backend for 65 s", 1);
    answer_kept();
    done(3);
    fake_model_end(&f);
}

static void beyond_the_limit_the_core_answers_for_a_call(void **state)
{
    (void)state;
    make(CONFIG LONG_LIMIT "max_batch_size: 4 dynamic_batching { preferred_batch_size: [ 3 ] "
                           "max_queue_delay_microseconds: 600000000 }\n",
         2);
    struct statistics totals;
    set(true, false);
    for (unsigned int i = 0; i < 3; i++)
        ask(i);
    wait_inside(1);
    uint64_t start_ns = began(3);
    look(start_ns + LIMIT_NS - NS_PER_S);
    assert_false(is_answered(0));
    assert_null(model_stuck_instance(f.model));
    uint32_t before = changes_generation(&f.server.changes);
    look(start_ns + LIMIT_NS);
    assert_int_not_equal(changes_generation(&f.server.changes), before); /* it is announced */
    for (unsigned int i = 0; i < 3; i++) {
        assert_true(is_answered(i));
        assert_int_equal(asked[i].last_code, STATUS_TIMED_OUT);
        assert_int_equal(asked[i].n_released, 0); /* the backend has its inputs */
        assert_true(request_is_cancelled(&asked[i].request));
    }
    char *stuck = model_stuck_instance(f.model);
    assert_string_equal(stuck, "m_0");
    mem_free(stuck);
    expect_logged("request 'r0' (and 2 more) is beyond the execution limit of 60000 ms", 1);
    look(start_ns + 2 * LIMIT_NS);
    expect_logged("is beyond the execution limit of", 1);

    /* The other instance goes on at once, this one as soon as the backend's call returns. */
    for (unsigned int i = 3; i < 6; i++)
        ask(i);
    wait_inside(2);
    before = changes_generation(&f.server.changes);
    set(false, false);
    for (unsigned int i = 0; i < 6; i++) {
        done(i);
        assert_int_equal(asked[i].failed, i < 3);
        assert_int_equal(asked[i].n_responses, 1); /* the late responses are dropped */
    }
    began(0);
    wait_inside(0);
    while ((stuck = model_stuck_instance(f.model)))
        mem_free(stuck);
    while (changes_generation(&f.server.changes) == before)
        sched_yield();
    expect_logged("instance 'm_0': the backend has let go of what was beyond the execution limit",
                  1);
    model_totals(f.model, &totals);
    assert_int_equal(totals.success.count, 3);
    assert_int_equal(totals.failures[FAILURE_OTHER], 3);
    fake_model_end(&f);
}

static void beyond_the_limit_the_core_answers_a_kept_request(void **state)
{
    (void)state;
    make(CONFIG LONG_LIMIT, 1);
    set(false, true);
    ask(0);
    ask(1);
    wait_late(2);
    uint64_t start_ns = began(2);
    look(start_ns + LIMIT_NS + NS_PER_S);
    assert_int_equal(asked[0].last_code, STATUS_TIMED_OUT);
    assert_int_equal(asked[1].last_code, STATUS_TIMED_OUT);
    assert_int_equal(atomic_load(&f.model->instances[0]->n_overdue), 2);
    /* Meanwhile the instance works for other requests. */
    set(false, false);
    ask(2);
    done(2);
    assert_false(asked[2].failed);
    answer_kept();
    done(0);
    done(1);
    assert_null(model_stuck_instance(f.model));
    fake_model_end(&f);
}

/* The call lasts beyond the limit, then returns and keeps its request. */
static void a_backend_may_keep_an_overdue_request(void **state)
{
    (void)state;
    make(CONFIG LONG_LIMIT, 1);
    set(true, false);
    ask(0);
    wait_inside(1);
    look(began(1) + LIMIT_NS);
    assert_int_equal(asked[0].last_code, STATUS_TIMED_OUT);
    set(false, true);
    wait_late(1);
    char *stuck = model_stuck_instance(f.model);
    assert_string_equal(stuck, "m_0");
    mem_free(stuck);
    answer_kept();
    done(0);
    assert_int_equal(asked[0].n_responses, 1);
    assert_null(model_stuck_instance(f.model));
    fake_model_end(&f);
}

static pthread_mutex_t callback = PTHREAD_MUTEX_INITIALIZER;
static const struct request_ops *usual;

static void respond_at_leisure(struct request *r, struct response *resp, uint32_t flags)
{
    pthread_mutex_lock(&callback);
    pthread_mutex_unlock(&callback);
    usual->respond(r, resp, flags);
}

/* A client whose callback takes long holds up neither the looks, which are made on the thread of
 * all models' timers, nor requests that they find later. */
static void a_slow_callback_does_not_hold_up_the_look(void **state)
{
    (void)state;
    make(CONFIG LONG_LIMIT, 2);
    set(true, false);
    fake_request_make(&asked[0], &f);
    usual = asked[0].request.ops;
    fake_request_end(&asked[0]);
    struct request_ops at_leisure = *usual;
    at_leisure.respond = respond_at_leisure;
    pthread_mutex_lock(&callback);
    ask(0);
    asked[0].request.ops = &at_leisure;
    wait_inside(1);
    uint64_t now_ns = began(1) + LIMIT_NS;
    for (uint64_t next_ns = now_ns; next_ns <= now_ns + 2 * WATCH_SETTLE_NS;)
        next_ns = watch_look(w, next_ns);
    assert_false(is_answered(0));
    char *stuck = model_stuck_instance(f.model);
    assert_string_equal(stuck, "m_0"); /* known at once, even before the callbacks are called */
    mem_free(stuck);
    watch_look(w, now_ns + NS_PER_S);
    pthread_mutex_unlock(&callback);
    wait_told();
    assert_true(is_answered(0));
    assert_int_equal(asked[0].last_code, STATUS_TIMED_OUT);
    set(false, false);
    done(0);
    assert_int_equal(asked[0].n_responses, 1);
    fake_model_end(&f);
}

static void an_invalid_limit_is_an_error(void **state)
{
    (void)state;
    static const char *const wrong[] = {"", "0", "-1", "1.5", "10s", "86400001", "nan"};
    uint64_t limit_ns = 0;
    for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
        struct status *st = watch_limit(wrong[i], &limit_ns);
        assert_int_equal(status_code(st), STATUS_INVALID_ARG);
        assert_non_null(strstr(status_message(st), WATCH_LIMIT_PARAMETER));
        status_free(st);
    }
    assert_null(watch_limit("1500", &limit_ns));
    assert_int_equal(limit_ns, 1500 * NS_PER_MS);
    assert_null(watch_limit(NULL, &limit_ns));
    assert_int_equal(limit_ns, UINT64_MAX);
}

/* ---- Who is first? --------------------------------------------------------------------------- */

enum { N_CLIENTS = 4, N_EACH = 400 };

static atomic_bool over;
static atomic_uint n_answers, n_timed_out;

/* Keeps some of the requests; another thread answers them at any moment. */
static void *answer_late(void *arg)
{
    struct request *r = arg;
    sched_yield();
    answer(r);
    return NULL;
}

static struct status *execute_any_way(struct instance *in, struct request **requests, uint32_t n)
{
    static atomic_uint count;
    for (uint32_t i = 0; i < n; i++) {
        pthread_t thread;
        unsigned int way = atomic_fetch_add(&count, 1) % 3;
        if (way == 0) {
            assert_int_equal(pthread_create(&thread, NULL, answer_late, requests[i]), 0);
            pthread_detach(thread);
            continue;
        }
        for (unsigned int k = 0; way == 1 && k < 100; k++)
            sched_yield();
        answer(requests[i]);
    }
    (void)in;
    return NULL;
}

/* Asks with the same object again and again, as a client of the C API does. */
static void *ask_again(void *arg)
{
    struct fake_request fr;
    static const float value = 1;
    struct tensor_buffer data = {.base = &value, .size_bytes = sizeof(value)};
    struct input *in;
    int64_t one = 1;
    (void)arg;
    fake_request_make(&fr, &f);
    assert_null(request_add_input(&fr.request, "A", 1, DTYPE_FP32, &one, 1, &in));
    assert_null(request_add_data(&fr.request, in, &data));
    for (int i = 0; i < N_EACH; i++) {
        pthread_mutex_lock(&fr.mu);
        fr.n_responses = fr.n_final = fr.n_released = 0;
        fr.failed = false;
        pthread_mutex_unlock(&fr.mu);
        atomic_store(&fr.request.life.cancelled, false);
        assert_null(server_infer(&f.server, &fr.request));
        fake_request_wait(&fr);
        assert_int_equal(fr.n_final, 1);
        assert_int_equal(fr.n_responses, 1);
        atomic_fetch_add(&n_answers, 1);
        atomic_fetch_add(&n_timed_out, fr.failed);
    }
    fake_request_end(&fr);
    return NULL;
}

/* Looks from a time in the future, at which every execution is beyond the limit. */
static void *look_all_the_time(void *arg)
{
    (void)arg;
    uint64_t now_ns = monotonic_ns() + LIMIT_NS;
    while (!atomic_load(&over)) {
        now_ns += WATCH_SETTLE_NS;
        watch_look(w, now_ns);
        struct timespec settle = {.tv_nsec = (long)(WATCH_SETTLE_NS / 50)};
        nanosleep(&settle, NULL);
    }
    return NULL;
}

static void backend_and_watch_give_each_request_one_answer(void **state)
{
    (void)state;
    pthread_t clients[N_CLIENTS], looker;
    fake_model_make(&f, CONFIG LONG_LIMIT, 2, execute_any_way);
    w = &pull_scheduler_of(f.model)->watch;
    pthread_create(&looker, NULL, look_all_the_time, NULL);
    for (int i = 0; i < N_CLIENTS; i++)
        pthread_create(&clients[i], NULL, ask_again, NULL);
    for (int i = 0; i < N_CLIENTS; i++)
        pthread_join(clients[i], NULL);
    atomic_store(&over, true);
    pthread_join(looker, NULL);
    assert_int_equal(atomic_load(&n_answers), N_CLIENTS * N_EACH);
    fake_model_end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_call_that_does_not_return_is_logged_ever_more_rarely),
        cmocka_unit_test(a_kept_request_is_logged),
        cmocka_unit_test(a_stream_that_goes_on_is_not_logged),
        cmocka_unit_test(beyond_the_limit_the_core_answers_for_a_call),
        cmocka_unit_test(beyond_the_limit_the_core_answers_a_kept_request),
        cmocka_unit_test(a_slow_callback_does_not_hold_up_the_look),
        cmocka_unit_test(a_backend_may_keep_an_overdue_request),
        cmocka_unit_test(an_invalid_limit_is_an_error),
        cmocka_unit_test(backend_and_watch_give_each_request_one_answer),
    };
    return cmocka_run_group_tests(tests, begin_log, end_log);
}
