/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The stop of a server that a program embeds: requests in flight end. A second thread that calls
 * ServerStop() meanwhile gets a result, too. The model uses the backend tests/plugins/gate, which
 * executes when the test opens its gate.
 */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/options/server_options.h"
#include "lib/fake_clock.h"
#include "lib/repository.h"
#include "triton/core/tritonserver.h"

#define TENSORS                                                                                    \
    "backend: \"gate\"\n"                                                                          \
    "input { name: \"IN\" data_type: TYPE_INT32 dims: [ -1 ] }\n"                                  \
    "output { name: \"OUT\" data_type: TYPE_INT32 dims: [ -1 ] }\n"                                \
    "instance_group { count: 1 kind: KIND_CPU }\n"

static struct test_repository repo;
static struct clock_fake fake; /* of servers whose exit timeout ends */
static TRITONSERVER_Server *server;
static TRITONSERVER_ResponseAllocator *allocator;

static void ok(TRITONSERVER_Error *error)
{
    if (error)
        fail_msg("%s", TRITONSERVER_ErrorMessage(error));
}

static void refused(TRITONSERVER_Error *error, const char *text)
{
    assert_non_null(error);
    assert_string_equal(TRITONSERVER_ErrorMessage(error), text);
    assert_int_equal(TRITONSERVER_ErrorCode(error), TRITONSERVER_ERROR_UNAVAILABLE);
    TRITONSERVER_ErrorDelete(error);
}

static void pause_ms(long ms)
{
    nanosleep(&(struct timespec){.tv_nsec = ms * 1000000}, NULL);
}

/* ---- Requests -------------------------------------------------------------------------------- */

static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int n_answered, n_released, n_failed; /* under mu */

static TRITONSERVER_Error *allocate(TRITONSERVER_ResponseAllocator *a, const char *name,
                                    size_t byte_size, TRITONSERVER_MemoryType type, int64_t type_id,
                                    void *userp, void **buffer, void **buffer_userp,
                                    TRITONSERVER_MemoryType *actual_type, int64_t *actual_id)
{
    (void)a, (void)name, (void)type, (void)type_id, (void)userp;
    *buffer = malloc(byte_size);
    *buffer_userp = NULL;
    *actual_type = TRITONSERVER_MEMORY_CPU;
    *actual_id = 0;
    return NULL;
}

static TRITONSERVER_Error *give_back(TRITONSERVER_ResponseAllocator *a, void *buffer,
                                     void *buffer_userp, size_t byte_size,
                                     TRITONSERVER_MemoryType type, int64_t type_id)
{
    (void)a, (void)buffer_userp, (void)byte_size, (void)type, (void)type_id;
    free(buffer);
    return NULL;
}

static void count(int *counter)
{
    pthread_mutex_lock(&mu);
    ++*counter;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mu);
}

static void on_response(TRITONSERVER_InferenceResponse *response, const uint32_t flags, void *userp)
{
    (void)flags;
    if (userp && TRITONSERVER_InferenceResponseError(response))
        count(&n_failed);
    else
        ok(TRITONSERVER_InferenceResponseError(response));
    ok(TRITONSERVER_InferenceResponseDelete(response));
    count(&n_answered);
}

static void on_release(TRITONSERVER_InferenceRequest *r, const uint32_t flags, void *userp)
{
    (void)flags, (void)userp;
    ok(TRITONSERVER_InferenceRequestDelete(r));
    count(&n_released);
}

/* @may_fail  NULL: its answer must not be an error */
static TRITONSERVER_Error *send_with(const char *model, uint64_t id, uint32_t flags, void *may_fail)
{
    static const int64_t one = 1;
    static const int32_t value = 7;
    TRITONSERVER_InferenceRequest *r;
    ok(TRITONSERVER_InferenceRequestNew(&r, server, model, -1));
    ok(TRITONSERVER_InferenceRequestSetResponseCallback(r, allocator, NULL, on_response, may_fail));
    ok(TRITONSERVER_InferenceRequestSetReleaseCallback(r, on_release, NULL));
    ok(TRITONSERVER_InferenceRequestSetCorrelationId(r, id));
    ok(TRITONSERVER_InferenceRequestSetFlags(r, flags));
    ok(TRITONSERVER_InferenceRequestAddInput(r, "IN", TRITONSERVER_TYPE_INT32, &one, 1));
    ok(TRITONSERVER_InferenceRequestAppendInputData(r, "IN", &value, sizeof(value),
                                                    TRITONSERVER_MEMORY_CPU, 0));
    TRITONSERVER_Error *error = TRITONSERVER_ServerInferAsync(server, r, NULL);
    if (error)
        ok(TRITONSERVER_InferenceRequestDelete(r));
    return error;
}

static TRITONSERVER_Error *send_to(const char *model, uint64_t id, uint32_t flags)
{
    return send_with(model, id, flags, NULL);
}

static TRITONSERVER_Error *send(uint64_t id, uint32_t flags)
{
    return send_to("m", id, flags);
}

static void await(const int *counter, int n)
{
    pthread_mutex_lock(&mu);
    while (*counter < n)
        pthread_cond_wait(&changed, &mu);
    pthread_mutex_unlock(&mu);
}

/* ---- A server, and threads that stop it ------------------------------------------------------ */

/* Starts a server for the models in `repo`. @clock  the server's; NULL: the machine's */
static void start_server(unsigned int exit_timeout_s, struct clock *clock)
{
    TRITONSERVER_ServerOptions *options;
    n_answered = n_released = n_failed = 0;
    ok(TRITONSERVER_ServerOptionsNew(&options));
    ok(TRITONSERVER_ServerOptionsSetModelRepositoryPath(options, repo.path));
    ok(TRITONSERVER_ServerOptionsSetBackendDirectory(options, CONCH_BUILD_DIR "/tests/backends"));
    ok(TRITONSERVER_ServerOptionsSetLogInfo(options, false));
    ok(TRITONSERVER_ServerOptionsSetExitTimeout(options, exit_timeout_s));
    ((struct server_options *)options)->clock = clock;
    ok(TRITONSERVER_ServerNew(&server, options));
    ok(TRITONSERVER_ServerOptionsDelete(options));
    ok(TRITONSERVER_ResponseAllocatorNew(&allocator, allocate, give_back, NULL));
}

static void make_server(const char *config, unsigned int exit_timeout_s, struct clock *clock)
{
    repository_make(&repo);
    repository_add(&repo, "m", config, 1);
    start_server(exit_timeout_s, clock);
}

static void end_server(void)
{
    ok(TRITONSERVER_ServerDelete(server));
    ok(TRITONSERVER_ResponseAllocatorDelete(allocator));
    repository_remove(&repo);
}

struct stopper {
    pthread_t thread;
    atomic_bool begins, is_over;
    int n_released; /* at the end of the stop */
    TRITONSERVER_Error *error;
};

static void *run_stop(void *arg)
{
    struct stopper *s = arg;
    atomic_store(&s->begins, true);
    s->error = TRITONSERVER_ServerStop(server);
    pthread_mutex_lock(&mu);
    s->n_released = n_released;
    pthread_mutex_unlock(&mu);
    atomic_store(&s->is_over, true);
    return NULL;
}

static void start_stop(struct stopper *s)
{
    *s = (struct stopper){0};
    assert_int_equal(pthread_create(&s->thread, NULL, run_stop, s), 0);
    while (!atomic_load(&s->begins))
        pause_ms(1);
}

/* Waits until a thread is inside ServerStop(). */
static void await_stopping(void)
{
    for (bool live = true; live; pause_ms(1)) {
        TRITONSERVER_Error *error = TRITONSERVER_ServerIsLive(server, &live);
        live &= error == NULL;
        TRITONSERVER_ErrorDelete(error);
    }
}

/* ---- Sequences ------------------------------------------------------------------------------- */

enum {
    START = TRITONSERVER_REQUEST_FLAG_SEQUENCE_START,
    END = TRITONSERVER_REQUEST_FLAG_SEQUENCE_END
};

#define STOPPING                                                                                   \
    "Server is stopping, scheduler for model has stopped accepting new inference requests"

static void sequences_in_progress_may_end_during_a_stop(void **state)
{
    (void)state;
    static const char *const strategies[] = {"direct { }", "oldest { max_candidate_sequences: 4 }"};
    for (int i = 0; i < 2; i++) {
        char config[1024];
        struct stopper stop;
        snprintf(config, sizeof(config),
                 TENSORS "max_batch_size: 0 sequence_batching { max_sequence_idle_microseconds: "
                         "3600000000 %s }\n",
                 strategies[i]);
        make_server(config, 3600, NULL);
        ok(send(1, START));
        await(&n_answered, 1);
        start_stop(&stop);
        await_stopping();
        /* Until the stop reaches the model, another sequence may still begin and end. */
        TRITONSERVER_Error *error;
        for (uint64_t id = 2; !(error = send(id, START | END)); id++)
            pause_ms(1);
        refused(error, STOPPING);
        refused(send(1, START), STOPPING); /* that id, too, would begin a new sequence */
        int n = n_answered;
        for (int k = 0; k < 10; k++) {
            ok(send(1, 0));
            assert_false(atomic_load(&stop.is_over));
        }
        ok(send(1, END));
        pthread_join(stop.thread, NULL);
        ok(stop.error);
        await(&n_answered, n + 11);
        end_server();
    }
}

/* The client sends no more: the exit timeout ends the sequence, and the stop succeeds. */
static void a_stop_cuts_off_a_sequence_at_its_timeout(void **state)
{
    (void)state;
    struct stopper stop;
    clock_fake_init(&fake, 1000 * NS_PER_S);
    make_server(TENSORS "sequence_batching { max_sequence_idle_microseconds: 3600000000 }\n", 1,
                &fake.clock);
    ok(send(1, START));
    await(&n_answered, 1);
    start_stop(&stop);
    clock_fake_await(&fake, NS_PER_S); /* the stop waits: no other timer is so near */
    clock_fake_advance(&fake, NS_PER_S - 1);
    clock_fake_await(&fake, 1); /* it still does */
    assert_false(atomic_load(&stop.is_over));
    clock_fake_advance(&fake, 1);
    pthread_join(stop.thread, NULL);
    ok(stop.error);
    end_server();
}

/* ---- Ensembles ------------------------------------------------------------------------------- */

#define STEP(model, in, out)                                                                       \
    "step { model_name: '" model "' model_version: -1 input_map { key: 'IN' value: '" in "' } "    \
    "output_map { key: 'OUT' value: '" out "' } } "
#define ENSEMBLE(steps)                                                                            \
    "platform: 'ensemble' "                                                                        \
    "input { name: 'IN' data_type: TYPE_INT32 dims: [ -1 ] } "                                     \
    "output { name: 'OUT' data_type: TYPE_INT32 dims: [ -1 ] } "                                   \
    "ensemble_scheduling { " steps "}"

/* Adds models m and n, and the ensemble inner: m → n. */
static void add_ensemble(const char *config_n)
{
    repository_make(&repo);
    repository_add(&repo, "m", TENSORS, 1);
    repository_add(&repo, "n", config_n, 1);
    repository_add(&repo, "inner", ENSEMBLE(STEP("m", "IN", "A") STEP("n", "A", "OUT")), 1);
}

static void gate(bool shut)
{
    char path[128];
    snprintf(path, sizeof(path), "%s/m/hold.execute", repo.path);
    if (shut)
        repository_add_file(&repo, "m/hold.execute", "", 0);
    else
        assert_int_equal(unlink(path), 0);
}

/* The stop has reached the ensembles, and not yet the models that they need. */
static void an_accepted_ensemble_gets_all_steps_during_a_stop(void **state)
{
    (void)state;
    struct stopper stop;
    TRITONSERVER_Error *error;
    add_ensemble(TENSORS);
    repository_add(&repo, "outer", ENSEMBLE(STEP("inner", "IN", "B") STEP("n", "B", "OUT")), 1);
    start_server(3600, NULL);
    gate(true);
    ok(send_to("outer", 0, 0));
    int n_sent = 1;
    start_stop(&stop);
    await_stopping();
    for (; !(error = send_to("outer", 0, 0)); n_sent++)
        pause_ms(1);
    refused(error, "[request id: <id_unknown>] " STOPPING);
    assert_false(atomic_load(&stop.is_over));
    gate(false);
    pthread_join(stop.thread, NULL);
    ok(stop.error);
    assert_int_equal(n_answered, n_sent); /* none with an error */
    assert_int_equal(n_released, n_sent);
    end_server();
}

static void a_sequence_inside_an_ensemble_may_end_during_a_stop(void **state)
{
    (void)state;
    struct stopper stop;
    TRITONSERVER_Error *error;
    add_ensemble(TENSORS "max_batch_size: 0 sequence_batching { max_sequence_idle_microseconds: "
                         "3600000000 oldest { max_candidate_sequences: 4 } }\n");
    start_server(3600, NULL);
    ok(send_to("inner", 1, START));
    await(&n_answered, 1);
    start_stop(&stop);
    await_stopping();
    for (uint64_t id = 2; !(error = send_to("inner", id, START | END)); id++)
        pause_ms(1);
    refused(error, "[request id: <id_unknown>] " STOPPING);
    int n = n_answered;
    for (int k = 0; k < 10; k++) {
        ok(send_to("inner", 1, 0));
        assert_false(atomic_load(&stop.is_over));
    }
    ok(send_to("inner", 1, END));
    pthread_join(stop.thread, NULL);
    ok(stop.error);
    await(&n_answered, n + 11);
    end_server();
}

/* ---- Models that call other models ------------------------------------------------------------
 */

#define DELEGATE(to, more)                                                                         \
    "backend: 'delegate' "                                                                         \
    "input { name: 'IN' data_type: TYPE_INT32 dims: [ -1 ] } "                                     \
    "output { name: 'OUT' data_type: TYPE_INT32 dims: [ -1 ] } "                                   \
    "instance_group { count: 1 kind: KIND_CPU } "                                                  \
    "parameters { key: 'to' value { string_value: '" to "' } } " more

/* The stop has reached the model that is to be called; then the backend calls it. Returns how many
 * requests have been answered with an error. */
static int call_during_a_stop(const char *config)
{
    struct stopper stop;
    char path[128];
    TRITONSERVER_Error *error;
    add_ensemble(TENSORS);
    repository_add(&repo, "d", config, 1);
    repository_add_file(&repo, "d/hold.call", "", 0);
    start_server(3600, NULL);
    ok(send_with("d", 0, 0, &server));
    snprintf(path, sizeof(path), "%s/d/hold.call.reached", repo.path);
    while (access(path, F_OK) != 0)
        pause_ms(1);
    start_stop(&stop);
    await_stopping();
    int n_sent = 1;
    for (; !(error = send_to("m", 0, 0)); n_sent++)
        pause_ms(1);
    refused(error, "[request id: <id_unknown>] " STOPPING);
    assert_false(atomic_load(&stop.is_over));
    snprintf(path, sizeof(path), "%s/d/hold.call", repo.path);
    assert_int_equal(unlink(path), 0);
    pthread_join(stop.thread, NULL);
    ok(stop.error);
    assert_int_equal(n_answered, n_sent);
    end_server();
    return n_failed;
}

static void a_call_with_a_parent_is_executed_during_a_stop(void **state)
{
    (void)state;
    assert_int_equal(call_during_a_stop(DELEGATE("m", "")), 0);
    assert_int_equal(call_during_a_stop(DELEGATE("inner", "")), 0);
}

static void a_call_without_a_parent_is_refused_during_a_stop(void **state)
{
    (void)state;
    assert_int_equal(call_during_a_stop(DELEGATE("m", "parameters { key: 'alone' value { "
                                                      "string_value: 'yes' } }")),
                     1);
}

/* ---- Two threads that stop ------------------------------------------------------------------- */

static void the_second_stop_waits_for_the_first(void **state)
{
    (void)state;
    struct stopper stops[3];
    make_server(TENSORS, 3600, NULL);
    gate(true);
    ok(send(0, 0));
    for (int i = 0; i < 3; i++)
        start_stop(&stops[i]);
    await_stopping();
    pause_ms(20); /* enough to see a call that does not wait */
    gate(false);
    for (int i = 0; i < 3; i++) {
        pthread_join(stops[i].thread, NULL);
        ok(stops[i].error);
        assert_int_equal(stops[i].n_released, 1);
    }
    end_server();
}

/* … and gets the first one's result, whatever it is. Later a thread may call it again. */
static void the_second_stop_fails_with_the_first(void **state)
{
    (void)state;
    struct stopper stops[2];
    clock_fake_init(&fake, 1000 * NS_PER_S);
    make_server(TENSORS, 1, &fake.clock);
    gate(true);
    ok(send(0, 0));
    for (int i = 0; i < 2; i++)
        start_stop(&stops[i]);
    clock_fake_await(&fake, NS_PER_S);
    while (!atomic_load(&stops[0].is_over) || !atomic_load(&stops[1].is_over)) {
        clock_fake_advance(&fake, NS_PER_S); /* again: one of them may begin late */
        sched_yield();
    }
    for (int i = 0; i < 2; i++) {
        pthread_join(stops[i].thread, NULL);
        assert_non_null(stops[i].error);
        assert_string_equal(TRITONSERVER_ErrorMessage(stops[i].error),
                            "Exit timeout expired. Exiting immediately.");
        TRITONSERVER_ErrorDelete(stops[i].error);
    }
    gate(false);
    await(&n_released, 1);
    ok(TRITONSERVER_ServerStop(server));
    end_server();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sequences_in_progress_may_end_during_a_stop),
        cmocka_unit_test(a_stop_cuts_off_a_sequence_at_its_timeout),
        cmocka_unit_test(an_accepted_ensemble_gets_all_steps_during_a_stop),
        cmocka_unit_test(a_sequence_inside_an_ensemble_may_end_during_a_stop),
        cmocka_unit_test(a_call_with_a_parent_is_executed_during_a_stop),
        cmocka_unit_test(a_call_without_a_parent_is_refused_during_a_stop),
        cmocka_unit_test(the_second_stop_waits_for_the_first),
        cmocka_unit_test(the_second_stop_fails_with_the_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
