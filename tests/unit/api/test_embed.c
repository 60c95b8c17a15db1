/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program that embeds the server by its public ABI alone: start, metadata, requests with
 * callbacks from the server's threads, cancellation, stop. Uses the real identity backend.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "api/handles.h"
#include "base/mem.h"
#include "conch/conch.h"
#include "core/trace/trace.h"
#include "lib/ok.h"
#include "lib/repository.h"
#include "triton/core/tritonserver.h"

static const char config[] = "backend: \"identity\"\n"
                             "max_batch_size: 8\n"
                             "input { name: \"INPUT0\" data_type: TYPE_FP32 dims: [ -1 ] }\n"
                             "output { name: \"OUTPUT0\" data_type: TYPE_FP32 dims: [ -1 ] }\n";

/* What the callbacks got for one request. The test waits until both were called. */
struct seen {
    pthread_mutex_t mu;
    pthread_cond_t cv;
    int n_responses, n_final, n_released;
    TRITONSERVER_InferenceResponse *response;
    int n_allocated, n_freed;
};

static struct seen seen = {.mu = PTHREAD_MUTEX_INITIALIZER, .cv = PTHREAD_COND_INITIALIZER};

static void on_response(TRITONSERVER_InferenceResponse *response, const uint32_t flags, void *userp)
{
    struct seen *s = userp;
    pthread_mutex_lock(&s->mu);
    if (response) {
        s->n_responses++;
        s->response = response;
    }
    s->n_final += (flags & TRITONSERVER_RESPONSE_COMPLETE_FINAL) != 0;
    pthread_cond_broadcast(&s->cv);
    pthread_mutex_unlock(&s->mu);
}

static void on_release(TRITONSERVER_InferenceRequest *request, const uint32_t flags, void *userp)
{
    struct seen *s = userp;
    (void)request;
    assert_int_equal(flags, TRITONSERVER_REQUEST_RELEASE_ALL);
    pthread_mutex_lock(&s->mu);
    s->n_released++;
    pthread_cond_broadcast(&s->cv);
    pthread_mutex_unlock(&s->mu);
}

static TRITONSERVER_Error *allocate(TRITONSERVER_ResponseAllocator *allocator, const char *name,
                                    size_t byte_size, TRITONSERVER_MemoryType type, int64_t type_id,
                                    void *userp, void **buffer, void **buffer_userp,
                                    TRITONSERVER_MemoryType *actual_type, int64_t *actual_id)
{
    struct seen *s = userp;
    (void)allocator;
    (void)type;
    (void)type_id;
    assert_string_equal(name, "OUTPUT0");
    *buffer = malloc(byte_size ? byte_size : 1);
    *buffer_userp = s;
    *actual_type = TRITONSERVER_MEMORY_CPU;
    *actual_id = 0;
    __atomic_fetch_add(&s->n_allocated, 1, __ATOMIC_SEQ_CST);
    return NULL;
}

static TRITONSERVER_Error *give_back(TRITONSERVER_ResponseAllocator *allocator, void *buffer,
                                     void *buffer_userp, size_t byte_size,
                                     TRITONSERVER_MemoryType type, int64_t type_id)
{
    struct seen *s = buffer_userp;
    (void)allocator;
    (void)byte_size;
    (void)type;
    (void)type_id;
    __atomic_fetch_add(&s->n_freed, 1, __ATOMIC_SEQ_CST);
    free(buffer);
    return NULL;
}

static void wait_for_end(struct seen *s)
{
    pthread_mutex_lock(&s->mu);
    while (s->n_final == 0 || s->n_released == 0)
        pthread_cond_wait(&s->cv, &s->mu);
    pthread_mutex_unlock(&s->mu);
}

static TRITONSERVER_Server *start(const char *repository)
{
    TRITONSERVER_ServerOptions *options;
    TRITONSERVER_Server *server = NULL;
    OK(TRITONSERVER_ServerOptionsNew(&options));
    OK(TRITONSERVER_ServerOptionsSetModelRepositoryPath(options, repository));
    OK(TRITONSERVER_ServerOptionsSetBackendDirectory(options, CONCH_BUILD_DIR "/backends"));
    OK(TRITONSERVER_ServerOptionsSetLogInfo(options, false));
    OK(TRITONSERVER_ServerNew(&server, options));
    OK(TRITONSERVER_ServerOptionsDelete(options));
    return server;
}

static void assert_message(TRITONSERVER_Message *message, const char *expected)
{
    const char *base;
    size_t size;
    OK(TRITONSERVER_MessageSerializeToJson(message, &base, &size));
    char *text = strndup(base, size);
    assert_string_equal(text, expected);
    free(text);
    OK(TRITONSERVER_MessageDelete(message));
}

static void a_server_answers_requests(void **state)
{
    (void)state;
    struct test_repository repo;
    repository_make(&repo);
    repository_add(&repo, "echo", config, 1);
    TRITONSERVER_Server *server = start(repo.path);

    bool yes = false;
    OK(TRITONSERVER_ServerIsLive(server, &yes));
    assert_true(yes);
    yes = false;
    OK(TRITONSERVER_ServerIsReady(server, &yes));
    assert_true(yes);
    yes = false;
    OK(TRITONSERVER_ServerModelIsReady(server, "echo", -1, &yes));
    assert_true(yes);

    TRITONSERVER_Message *message;
    OK(TRITONSERVER_ServerModelMetadata(server, "echo", 1, &message));
    assert_message(message,
                   "{\"name\":\"echo\",\"versions\":[\"1\"],\"platform\":\"identity\","
                   "\"inputs\":[{\"name\":\"INPUT0\",\"datatype\":\"FP32\",\"shape\":[-1,-1]}],"
                   "\"outputs\":[{\"name\":\"OUTPUT0\",\"datatype\":\"FP32\",\"shape\":[-1,-1]}]}");
    OK(TRITONSERVER_ServerModelIndex(server, 0, &message));
    assert_message(message, "[{\"name\":\"echo\",\"version\":\"1\",\"state\":\"READY\"}]");

    TRITONSERVER_ResponseAllocator *allocator;
    OK(TRITONSERVER_ResponseAllocatorNew(&allocator, allocate, give_back, NULL));
    TRITONSERVER_InferenceRequest *request;
    OK(TRITONSERVER_InferenceRequestNew(&request, server, "echo", -1));
    OK(TRITONSERVER_InferenceRequestSetId(request, "r1"));
    float values[4] = {1, 2, 3, 4};
    int64_t shape[2] = {2, 2};
    OK(TRITONSERVER_InferenceRequestAddInput(request, "INPUT0", TRITONSERVER_TYPE_FP32, shape, 2));
    /* In two pieces, which the backend has to join. */
    OK(TRITONSERVER_InferenceRequestAppendInputData(request, "INPUT0", values, 8,
                                                    TRITONSERVER_MEMORY_CPU, 0));
    OK(TRITONSERVER_InferenceRequestAppendInputData(request, "INPUT0", values + 2, 8,
                                                    TRITONSERVER_MEMORY_CPU, 0));
    OK(TRITONSERVER_InferenceRequestSetResponseCallback(request, allocator, &seen, on_response,
                                                        &seen));
    OK(TRITONSERVER_InferenceRequestSetReleaseCallback(request, on_release, &seen));

    for (int round = 0; round < 3; round++) { /* the same request object again */
        seen.n_responses = seen.n_final = seen.n_released = 0;
        OK(TRITONSERVER_ServerInferAsync(server, request, NULL));
        wait_for_end(&seen);
        assert_int_equal(seen.n_responses, 1);
        assert_int_equal(seen.n_final, 1);
        assert_int_equal(seen.n_released, 1);

        const char *name, *id;
        TRITONSERVER_DataType type;
        TRITONSERVER_MemoryType memory_type;
        const int64_t *out_shape;
        uint64_t n_dims;
        const void *base;
        size_t size;
        int64_t memory_id;
        void *userp;
        uint32_t n;
        assert_null(TRITONSERVER_InferenceResponseError(seen.response));
        OK(TRITONSERVER_InferenceResponseId(seen.response, &id));
        assert_string_equal(id, "r1");
        OK(TRITONSERVER_InferenceResponseOutputCount(seen.response, &n));
        assert_int_equal(n, 1);
        OK(TRITONSERVER_InferenceResponseOutput(seen.response, 0, &name, &type, &out_shape, &n_dims,
                                                &base, &size, &memory_type, &memory_id, &userp));
        assert_string_equal(name, "OUTPUT0");
        assert_int_equal(type, TRITONSERVER_TYPE_FP32);
        assert_int_equal(n_dims, 2);
        assert_int_equal(size, sizeof(values));
        assert_memory_equal(base, values, sizeof(values));
        assert_ptr_equal(userp, &seen);
        OK(TRITONSERVER_InferenceResponseDelete(seen.response));
    }
    assert_int_equal(seen.n_allocated, 3);
    assert_int_equal(seen.n_freed, 3);

    /* A request that does not fit is refused, and the caller still owns it. */
    OK(TRITONSERVER_InferenceRequestRemoveAllInputData(request, "INPUT0"));
    TRITONSERVER_Error *error = TRITONSERVER_ServerInferAsync(server, request, NULL);
    assert_non_null(error);
    assert_int_equal(TRITONSERVER_ErrorCode(error), TRITONSERVER_ERROR_INVALID_ARG);
    assert_string_equal(TRITONSERVER_ErrorMessage(error),
                        "[request id: r1] input byte size mismatch for input 'INPUT0' for model "
                        "'echo'. Expected 16, got 0; its shape has 4 elements FP32 of 4 bytes");
    TRITONSERVER_ErrorDelete(error);

    /* A cancelled request is answered with an error. */
    OK(TRITONSERVER_InferenceRequestAppendInputData(request, "INPUT0", values, 16,
                                                    TRITONSERVER_MEMORY_CPU, 0));
    OK(TRITONSERVER_InferenceRequestCancel(request));
    seen.n_responses = seen.n_final = seen.n_released = 0;
    OK(TRITONSERVER_ServerInferAsync(server, request, NULL));
    wait_for_end(&seen);
    error = TRITONSERVER_InferenceResponseError(seen.response);
    assert_non_null(error);
    assert_int_equal(TRITONSERVER_ErrorCode(error), TRITONSERVER_ERROR_CANCELLED);
    OK(TRITONSERVER_InferenceResponseDelete(seen.response));

    /* … until its callbacks are set again. */
    OK(TRITONSERVER_InferenceRequestSetResponseCallback(request, allocator, &seen, on_response,
                                                        &seen));
    seen.n_responses = seen.n_final = seen.n_released = 0;
    OK(TRITONSERVER_ServerInferAsync(server, request, NULL));
    wait_for_end(&seen);
    assert_null(TRITONSERVER_InferenceResponseError(seen.response));
    OK(TRITONSERVER_InferenceResponseDelete(seen.response));

    OK(TRITONSERVER_InferenceRequestDelete(request));
    OK(TRITONSERVER_ResponseAllocatorDelete(allocator));

    error = TRITONSERVER_InferenceRequestNew(&request, server, "nobody", -1);
    assert_non_null(error);
    assert_int_equal(TRITONSERVER_ErrorCode(error), TRITONSERVER_ERROR_NOT_FOUND);
    assert_string_equal(TRITONSERVER_ErrorMessage(error),
                        "Request for unknown model: 'nobody' is not found");
    TRITONSERVER_ErrorDelete(error);

    OK(TRITONSERVER_ServerStop(server));
    error = TRITONSERVER_ServerIsLive(server, &yes);
    assert_non_null(error);
    assert_string_equal(TRITONSERVER_ErrorMessage(error), "Server exiting");
    TRITONSERVER_ErrorDelete(error);
    OK(TRITONSERVER_ServerDelete(server));
    repository_remove(&repo);
}

/* A program may use one object for all of its requests. Its memory does not grow. */
static void a_request_used_for_ever_stays_small(void **state)
{
    (void)state;
    enum { ROUNDS = 2000 };
    struct test_repository repo;
    repository_make(&repo);
    repository_add(&repo, "echo", config, 1);
    TRITONSERVER_Server *server = start(repo.path);
    TRITONSERVER_ResponseAllocator *allocator;
    OK(TRITONSERVER_ResponseAllocatorNew(&allocator, allocate, give_back, NULL));
    TRITONSERVER_InferenceRequest *request;
    OK(TRITONSERVER_InferenceRequestNew(&request, server, "echo", -1));
    OK(TRITONSERVER_InferenceRequestSetResponseCallback(request, allocator, &seen, on_response,
                                                        &seen));
    OK(TRITONSERVER_InferenceRequestSetReleaseCallback(request, on_release, &seen));
    OK(TRITONSERVER_InferenceRequestSetStringParameter(request, "key", "value"));
    OK(TRITONSERVER_InferenceRequestSetCorrelationIdString(request, "sequence"));

    TRITONSERVER_InferenceResponse *before = NULL;
    char id[80] = "", id_before[80] = "";
    for (int i = 0; i < ROUNDS; i++) {
        float values[3] = {(float)i, 2, 3};
        int64_t shape[2] = {1, 3};
        const char *text;
        const void *base;
        const int64_t *out_shape;
        uint64_t n_dims;
        size_t size;
        TRITONSERVER_DataType type;
        TRITONSERVER_MemoryType memory_type;
        int64_t memory_id;
        void *userp;

        snprintf(id, sizeof(id), "%064d", i);
        OK(TRITONSERVER_InferenceRequestSetId(request, id));
        OK(TRITONSERVER_InferenceRequestRemoveAllInputs(request));
        OK(TRITONSERVER_InferenceRequestAddInput(request, "INPUT0", TRITONSERVER_TYPE_FP32, shape,
                                                 2));
        for (int k = 0; k < 3; k++)
            OK(TRITONSERVER_InferenceRequestAppendInputData(request, "INPUT0", &values[k], 4,
                                                            TRITONSERVER_MEMORY_CPU, 0));
        OK(TRITONSERVER_InferenceRequestRemoveAllRequestedOutputs(request));
        OK(TRITONSERVER_InferenceRequestAddRequestedOutput(request, "OUTPUT0"));
        seen.n_responses = seen.n_final = seen.n_released = 0;
        OK(TRITONSERVER_ServerInferAsync(server, request, NULL));
        wait_for_end(&seen);

        OK(TRITONSERVER_InferenceResponseOutput(seen.response, 0, &text, &type, &out_shape, &n_dims,
                                                &base, &size, &memory_type, &memory_id, &userp));
        assert_memory_equal(base, values, sizeof(values));
        /* The earlier response still gives its request's data. */
        if (before) {
            OK(TRITONSERVER_InferenceResponseId(before, &text));
            assert_string_equal(text, id_before);
            OK(TRITONSERVER_InferenceResponseDelete(before));
        }
        before = seen.response;
        memcpy(id_before, id, sizeof(id));
    }
    OK(TRITONSERVER_InferenceResponseDelete(before));
    const struct request *r = &to_api_request(request)->request;
    assert_in_range(r->arena.chunk_bytes_total, 0, 256 << 10);
    assert_string_equal(r->maker.correlation_id.string, "sequence");
    assert_int_equal(r->maker.n_parameters, 1);
    assert_string_equal(r->maker.parameters[0].string, "value");
    OK(TRITONSERVER_InferenceRequestDelete(request));
    OK(TRITONSERVER_ResponseAllocatorDelete(allocator));
    OK(TRITONSERVER_ServerDelete(server));
    repository_remove(&repo);
}

/* The trace's activities, as lines. Within each kind the times must not go backwards. */
static struct {
    char text[2048];
    uint64_t last_ns;
    int n_released;
} traced;

static void on_activity(TRITONSERVER_InferenceTrace *trace,
                        TRITONSERVER_InferenceTraceActivity activity, uint64_t ns, void *userp)
{
    const char *context;
    assert_ptr_equal(userp, &traced);
    assert_true(ns >= traced.last_ns);
    traced.last_ns = ns;
    OK(TRITONSERVER_InferenceTraceContext(trace, &context));
    size_t length = strlen(traced.text);
    snprintf(traced.text + length, sizeof(traced.text) - length, "%s%s\n",
             TRITONSERVER_InferenceTraceActivityString(activity), context);
}

static void on_tensor(TRITONSERVER_InferenceTrace *trace,
                      TRITONSERVER_InferenceTraceActivity activity, const char *name,
                      TRITONSERVER_DataType datatype, const void *base, size_t byte_size,
                      const int64_t *shape, uint64_t dim_count, TRITONSERVER_MemoryType memory_type,
                      int64_t memory_type_id, void *userp)
{
    (void)trace;
    assert_ptr_equal(userp, &traced);
    assert_int_equal(memory_type, TRITONSERVER_MEMORY_CPU);
    assert_int_equal(memory_type_id, 0);
    size_t length = strlen(traced.text);
    snprintf(traced.text + length, sizeof(traced.text) - length, "%s %s %s [%d,%d] %g %zu\n",
             TRITONSERVER_InferenceTraceActivityString(activity), name,
             TRITONSERVER_DataTypeString(datatype), (int)shape[0],
             dim_count == 2 ? (int)shape[1] : -1, (double)*(const float *)base, byte_size);
}

static void on_trace_release(TRITONSERVER_InferenceTrace *trace, void *userp)
{
    assert_ptr_equal(userp, &traced);
    pthread_mutex_lock(&seen.mu);
    traced.n_released++;
    pthread_mutex_unlock(&seen.mu);
    OK(TRITONSERVER_InferenceTraceDelete(trace));
}

static TRITONSERVER_InferenceTrace *trace_of(int level)
{
    TRITONSERVER_InferenceTrace *trace;
    memset(&traced, 0, sizeof(traced));
    OK(TRITONSERVER_InferenceTraceTensorNew(&trace, (TRITONSERVER_InferenceTraceLevel)level, 0,
                                            on_activity, on_tensor, on_trace_release, &traced));
    return trace;
}

static void a_trace_reports_the_activities_of_a_request(void **state)
{
    (void)state;
    struct test_repository repo;
    repository_make(&repo);
    repository_add(&repo, "echo", config, 1);
    TRITONSERVER_Server *server = start(repo.path);
    TRITONSERVER_ResponseAllocator *allocator;
    OK(TRITONSERVER_ResponseAllocatorNew(&allocator, allocate, give_back, NULL));
    TRITONSERVER_InferenceRequest *request;
    OK(TRITONSERVER_InferenceRequestNew(&request, server, "echo", -1));
    OK(TRITONSERVER_InferenceRequestSetId(request, "r1"));
    float values[2] = {1.5, 2};
    int64_t shape[2] = {1, 2};
    OK(TRITONSERVER_InferenceRequestAddInput(request, "INPUT0", TRITONSERVER_TYPE_FP32, shape, 2));
    OK(TRITONSERVER_InferenceRequestSetResponseCallback(request, allocator, &seen, on_response,
                                                        &seen));
    OK(TRITONSERVER_InferenceRequestSetReleaseCallback(request, on_release, &seen));

    /* An invalid request: the caller still owns the trace, which has not reported anything of
     * the request. */
    TRITONSERVER_InferenceTrace *trace = trace_of(TRITONSERVER_TRACE_LEVEL_TIMESTAMPS);
    const char *text;
    TRITONSERVER_Error *error = TRITONSERVER_ServerInferAsync(server, request, trace);
    assert_non_null(error);
    TRITONSERVER_ErrorDelete(error);
    assert_string_equal(traced.text, "");
    assert_int_equal(traced.n_released, 0);
    OK(TRITONSERVER_InferenceTraceModelName(trace, &text));
    assert_string_equal(text, "");
    OK(TRITONSERVER_InferenceTraceDelete(trace));

    static const struct {
        int level;
        const char *expected;
    } cases[] = {
        {TRITONSERVER_TRACE_LEVEL_DISABLED, ""},
        {TRITONSERVER_TRACE_LEVEL_TIMESTAMPS,
         "REQUEST_START\nQUEUE_START\nCOMPUTE_START\nCOMPUTE_INPUT_END\nCOMPUTE_OUTPUT_START\n"
         "COMPUTE_END\nREQUEST_END\n"},
        {TRITONSERVER_TRACE_LEVEL_TENSORS, "TENSOR_QUEUE_INPUT INPUT0 FP32 [1,2] 1.5 8\n"
                                           "TENSOR_BACKEND_INPUT INPUT0 FP32 [1,2] 1.5 8\n"
                                           "TENSOR_BACKEND_OUTPUT OUTPUT0 FP32 [1,2] 1.5 8\n"},
    };
    OK(TRITONSERVER_InferenceRequestAppendInputData(request, "INPUT0", values, sizeof(values),
                                                    TRITONSERVER_MEMORY_CPU, 0));
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        seen.n_responses = seen.n_final = seen.n_released = 0;
        OK(TRITONSERVER_ServerInferAsync(server, request, trace_of(cases[i].level)));
        wait_for_end(&seen);
        assert_string_equal(traced.text, cases[i].expected);
        assert_int_equal(traced.n_released, 1);
        OK(TRITONSERVER_InferenceResponseDelete(seen.response));
    }

    /* A server that stops refuses the request; the trace reports that and is released. */
    OK(TRITONSERVER_ServerStop(server));
    error = TRITONSERVER_ServerInferAsync(server, request,
                                          trace_of(TRITONSERVER_TRACE_LEVEL_TIMESTAMPS));
    assert_non_null(error);
    assert_int_equal(TRITONSERVER_ErrorCode(error), TRITONSERVER_ERROR_UNAVAILABLE);
    TRITONSERVER_ErrorDelete(error);
    assert_string_equal(traced.text, "REQUEST_START\nQUEUE_START\nREQUEST_END\n");
    assert_int_equal(traced.n_released, 1);

    OK(TRITONSERVER_InferenceRequestDelete(request));
    OK(TRITONSERVER_ResponseAllocatorDelete(allocator));
    OK(TRITONSERVER_ServerDelete(server));
    repository_remove(&repo);
}

static void traces_have_identity_and_context(void **state)
{
    (void)state;
    TRITONSERVER_InferenceTrace *trace = trace_of(TRITONSERVER_TRACE_LEVEL_TIMESTAMPS), *child;
    uint64_t id, parent, child_id;
    int64_t version;
    const char *text;
    OK(TRITONSERVER_InferenceTraceId(trace, &id));
    OK(TRITONSERVER_InferenceTraceParentId(trace, &parent));
    assert_true(id > 0);
    assert_int_equal(parent, 0);
    OK(TRITONSERVER_InferenceTraceModelVersion(trace, &version));
    assert_int_equal(version, -1);
    OK(TRITONSERVER_InferenceTraceRequestId(trace, &text));
    assert_string_equal(text, "");

    OK(TRITONSERVER_InferenceTraceSpawnChildTrace(trace, &child));
    OK(TRITONSERVER_InferenceTraceId(child, &child_id));
    OK(TRITONSERVER_InferenceTraceParentId(child, &parent));
    assert_int_equal(parent, id);
    assert_true(child_id > id);
    OK(TRITONSERVER_InferenceTraceReportActivity(child, 1, "of the child"));
    OK(TRITONSERVER_InferenceTraceDelete(child));

    /* While a custom activity is reported, the context has its name. */
    static const char *const contexts[] = {"{}", "{\"traceparent\":\"x\"}", "no object"};
    for (size_t i = 0; i < 3; i++) {
        OK(TRITONSERVER_InferenceTraceSetContext(trace, contexts[i]));
        OK(TRITONSERVER_InferenceTraceReportActivity(trace, 2 + i, "a \"name\""));
        OK(TRITONSERVER_InferenceTraceContext(trace, &text));
        assert_string_equal(text, contexts[i]);
    }
    assert_string_equal(traced.text,
                        "CUSTOM_ACTIVITY{\"1\":\"of the child\"}\n"
                        "CUSTOM_ACTIVITY{\"2\":\"a \\\"name\\\"\"}\n"
                        "CUSTOM_ACTIVITY{\"traceparent\":\"x\",\"3\":\"a \\\"name\\\"\"}\n"
                        "CUSTOM_ACTIVITY{\"4\":\"a \\\"name\\\"\"}\n");
    OK(TRITONSERVER_InferenceTraceDelete(trace));

    static const char *const levels[] = {"DISABLED",  "MIN",        "MAX",
                                         "<unknown>", "TIMESTAMPS", "<unknown>",
                                         "<unknown>", "<unknown>",  "TENSORS"};
    for (int i = 0; i < 9; i++)
        assert_string_equal(
            TRITONSERVER_InferenceTraceLevelString((TRITONSERVER_InferenceTraceLevel)i), levels[i]);
    assert_string_equal(
        TRITONSERVER_InferenceTraceActivityString((TRITONSERVER_InferenceTraceActivity)11),
        "<unknown>");
}

/* A trace that no program has made: a backend that asks for it gets the functions of its maker. */
static int n_own_spawned, n_own_freed;

static void ignore_activity(struct trace *t, enum trace_activity activity, uint64_t ns)
{
    (void)t, (void)activity, (void)ns;
}

static void release_own_trace(struct trace *t)
{
    (void)t;
    fail();
}

static struct trace *spawn_own_trace(struct trace *t);

static void free_own_trace(struct trace *t)
{
    n_own_freed++;
    trace_done(t);
    mem_free(t);
}

static const struct trace_ops own_trace_ops = {
    .activity = ignore_activity,
    .release = release_own_trace,
    .spawn = spawn_own_trace,
    .free = free_own_trace,
};

static struct trace *spawn_own_trace(struct trace *t)
{
    struct trace *child = mem_alloc(sizeof(*child));
    n_own_spawned++;
    trace_init(child, &own_trace_ops, t->level, t->id);
    return child;
}

static void traces_of_other_makers_are_spawned_and_deleted_by_them(void **state)
{
    struct trace *own = mem_alloc(sizeof(*own));
    TRITONSERVER_InferenceTrace *child;
    uint64_t parent;
    (void)state;
    trace_init(own, &own_trace_ops, TRACE_TIMESTAMPS, 0);
    uint64_t id = own->id;
    OK(TRITONSERVER_InferenceTraceSpawnChildTrace(as_trace(own), &child));
    assert_int_equal(n_own_spawned, 1);
    OK(TRITONSERVER_InferenceTraceParentId(child, &parent));
    assert_int_equal(parent, id);
    OK(TRITONSERVER_InferenceTraceDelete(child));
    OK(TRITONSERVER_InferenceTraceDelete(as_trace(own)));
    assert_int_equal(n_own_freed, 2);
}

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

static void start_fails(const char *repository, const char *expected)
{
    TRITONSERVER_ServerOptions *options;
    TRITONSERVER_Server *server = NULL;
    OK(TRITONSERVER_ServerOptionsNew(&options));
    if (repository)
        OK(TRITONSERVER_ServerOptionsSetModelRepositoryPath(options, repository));
    OK(TRITONSERVER_ServerOptionsSetBackendDirectory(options, CONCH_BUILD_DIR "/backends"));
    OK(TRITONSERVER_ServerOptionsSetLogError(options, false));
    TRITONSERVER_Error *error = TRITONSERVER_ServerNew(&server, options);
    assert_non_null(error);
    assert_null(server);
    assert_true(begins(TRITONSERVER_ErrorMessage(error), expected));
    TRITONSERVER_ErrorDelete(error);
    OK(TRITONSERVER_ServerOptionsSetLogError(options, true));
    OK(TRITONSERVER_ServerOptionsDelete(options));
}

static void a_failed_start_gives_its_reason(void **state)
{
    (void)state;
    struct test_repository repo;
    repository_make(&repo);
    repository_add(&repo, "good", config, 1);
    repository_add(
        &repo, "bad",
        "backend: \"nowhere\"\ninput { name: \"I\" data_type: TYPE_FP32 dims: 1 }\noutput { name: \"O\" data_type: TYPE_FP32 dims: 1 }\n",
        1);
    start_fails(NULL, "--model-repository must be specified");
    start_fails("/no/such/folder", "failed to stat file /no/such/folder");
    start_fails(repo.path, "1 of 2 models failed:\n  bad version 1: ");
    repository_remove(&repo);
}

/* ---- In two steps ---------------------------------------------------------------------------- */

static struct {
    pthread_mutex_t mu;
    pthread_cond_t cv;
    bool come;
    TRITONSERVER_Error *error;
} loaded = {.mu = PTHREAD_MUTEX_INITIALIZER, .cv = PTHREAD_COND_INITIALIZER};

static void on_loaded(TRITONSERVER_Error *error, void *userp)
{
    assert_ptr_equal(userp, &loaded);
    pthread_mutex_lock(&loaded.mu);
    loaded.come = true;
    loaded.error = error;
    pthread_cond_broadcast(&loaded.cv);
    pthread_mutex_unlock(&loaded.mu);
}

static TRITONSERVER_Error *wait_for_models(TRITONSERVER_Server *server)
{
    loaded.come = false;
    OK(conch_server_load(server, on_loaded, &loaded));
    pthread_mutex_lock(&loaded.mu);
    while (!loaded.come)
        pthread_cond_wait(&loaded.cv, &loaded.mu);
    pthread_mutex_unlock(&loaded.mu);
    return loaded.error;
}

static void refused(TRITONSERVER_Error *error, TRITONSERVER_Error_Code code, const char *text)
{
    assert_non_null(error);
    assert_true(begins(TRITONSERVER_ErrorMessage(error), text));
    assert_int_equal(TRITONSERVER_ErrorCode(error), code);
    TRITONSERVER_ErrorDelete(error);
}

static void a_server_starts_in_two_steps(void **state)
{
    (void)state;
    struct test_repository repo;
    TRITONSERVER_ServerOptions *options;
    TRITONSERVER_Server *server = NULL;
    TRITONSERVER_Message *message;
    bool yes = false;
    repository_make(&repo);
    repository_add(&repo, "echo", config, 1);
    OK(TRITONSERVER_ServerOptionsNew(&options));
    OK(TRITONSERVER_ServerOptionsSetModelRepositoryPath(options, repo.path));
    OK(TRITONSERVER_ServerOptionsSetBackendDirectory(options, CONCH_BUILD_DIR "/backends"));
    refused(conch_server_new(NULL, options), TRITONSERVER_ERROR_INVALID_ARG,
            "conch_server_new: 'server' was nullptr");
    refused(conch_server_new(&server, NULL), TRITONSERVER_ERROR_INVALID_ARG,
            "conch_server_new: 'options' was nullptr");
    OK(conch_server_new(&server, options));

    OK(TRITONSERVER_ServerIsLive(server, &yes));
    assert_true(yes);
    OK(TRITONSERVER_ServerIsReady(server, &yes));
    assert_false(yes);
    refused(TRITONSERVER_ServerModelIndex(server, 0, &message), TRITONSERVER_ERROR_UNAVAILABLE,
            "Server not ready");
    refused(TRITONSERVER_ServerModelIsReady(server, "echo", 1, &yes),
            TRITONSERVER_ERROR_UNAVAILABLE, "Server not ready");
    refused(conch_server_load(server, NULL, NULL), TRITONSERVER_ERROR_INVALID_ARG,
            "conch_server_load: 'loaded' was nullptr");
    OK(wait_for_models(server));
    OK(TRITONSERVER_ServerIsReady(server, &yes));
    assert_true(yes);
    refused(conch_server_load(server, on_loaded, &loaded), TRITONSERVER_ERROR_ALREADY_EXISTS,
            "the server loads its models, or has done so");
    OK(TRITONSERVER_ServerDelete(server));

    OK(TRITONSERVER_ServerNew(&server, options));
    refused(conch_server_load(server, on_loaded, &loaded), TRITONSERVER_ERROR_ALREADY_EXISTS,
            "the server loads its models, or has done so");
    OK(conch_server_stop_loading(server)); /* too late to stop anything */
    OK(TRITONSERVER_ServerIsReady(server, &yes));
    assert_true(yes);
    OK(TRITONSERVER_ServerDelete(server));

    repository_add(&repo, "bad", "backend: \"nowhere\"", 1);
    OK(TRITONSERVER_ServerOptionsSetLogError(options, false));
    OK(conch_server_new(&server, options));
    refused(wait_for_models(server), TRITONSERVER_ERROR_INTERNAL, "1 of 2 models failed:\n  bad");
    OK(TRITONSERVER_ServerIsLive(server, &yes));
    assert_false(yes);
    OK(TRITONSERVER_ServerDelete(server));
    OK(TRITONSERVER_ServerOptionsSetLogError(options, true));
    OK(TRITONSERVER_ServerOptionsDelete(options));
    repository_remove(&repo);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_server_answers_requests),
        cmocka_unit_test(a_request_used_for_ever_stays_small),
        cmocka_unit_test(a_trace_reports_the_activities_of_a_request),
        cmocka_unit_test(traces_have_identity_and_context),
        cmocka_unit_test(traces_of_other_makers_are_spawned_and_deleted_by_them),
        cmocka_unit_test(a_failed_start_gives_its_reason),
        cmocka_unit_test(a_server_starts_in_two_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
