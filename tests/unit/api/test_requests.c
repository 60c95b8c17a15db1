/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a program can set in a request besides its inputs, what it can read back, and what a backend
 * (tests/plugins/caller) sees of it: host policies, raw inputs, attributes, traces.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "lib/repository.h"
#include "triton/core/tritonbackend.h"
#include "triton/core/tritonserver.h"

static const char config[] =
    "backend: \"caller\"\n"
    "input { name: \"IN\" data_type: TYPE_INT32 dims: [ -1 ] }\n"
    "output { name: \"OUT\" data_type: TYPE_STRING dims: [ 1 ] label_filename: \"labels\" }\n"
    "instance_group { kind: KIND_CPU }\n";
static const char texts_config[] = "backend: \"caller\"\n"
                                   "input { name: \"IN\" data_type: TYPE_STRING dims: [ -1 ] }\n"
                                   "output { name: \"OUT\" data_type: TYPE_STRING dims: [ 1 ] }\n"
                                   "instance_group { kind: KIND_CPU }\n";
static const char gate_config[] = "backend: \"gate\"\n"
                                  "input { name: \"IN\" data_type: TYPE_INT32 dims: [ -1 ] }\n"
                                  "output { name: \"OUT\" data_type: TYPE_INT32 dims: [ -1 ] }\n"
                                  "instance_group { count: 1 kind: KIND_CPU }\n";
static const char labels[] = "first\nsecond\n";

static void ok(TRITONSERVER_Error *error)
{
    if (error)
        fail_msg("%s", TRITONSERVER_ErrorMessage(error));
}

static void refused(TRITONSERVER_Error *error, TRITONSERVER_Error_Code code, const char *text)
{
    assert_non_null(error);
    assert_string_equal(TRITONSERVER_ErrorMessage(error), text);
    assert_int_equal(TRITONSERVER_ErrorCode(error), code);
    TRITONSERVER_ErrorDelete(error);
}

/* ---- One request at a time ------------------------------------------------------------------ */

static struct test_repository repo;
static TRITONSERVER_Server *server;
static TRITONSERVER_ResponseAllocator *allocator;
static TRITONSERVER_InferenceRequest *request;
static const int32_t values[] = {7, 8, 9}, other_values[] = {21, 22, 23};

static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ended = PTHREAD_COND_INITIALIZER;
/* Under mu. */
static bool is_final, is_released;
static TRITONSERVER_InferenceResponse *response;

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

static void on_response(TRITONSERVER_InferenceResponse *given, const uint32_t flags, void *userp)
{
    (void)userp;
    pthread_mutex_lock(&mu);
    if (given)
        response = given;
    is_final |= flags & TRITONSERVER_RESPONSE_COMPLETE_FINAL;
    pthread_cond_broadcast(&ended);
    pthread_mutex_unlock(&mu);
}

static void on_release(TRITONSERVER_InferenceRequest *r, const uint32_t flags, void *userp)
{
    (void)r, (void)flags, (void)userp;
    pthread_mutex_lock(&mu);
    is_released = true;
    pthread_cond_broadcast(&ended);
    pthread_mutex_unlock(&mu);
}

static int begin(void **state)
{
    TRITONSERVER_ServerOptions *options;

    (void)state;
    repository_make(&repo);
    repository_add(&repo, "m", config, 1);
    repository_add_file(&repo, "m/labels", labels, sizeof(labels) - 1);
    repository_add(&repo, "texts", texts_config, 1);
    repository_add(&repo, "held", gate_config, 1);
    ok(TRITONSERVER_ServerOptionsNew(&options));
    ok(TRITONSERVER_ServerOptionsSetModelRepositoryPath(options, repo.path));
    ok(TRITONSERVER_ServerOptionsSetBackendDirectory(options, CONCH_BUILD_DIR "/tests/backends"));
    ok(TRITONSERVER_ServerOptionsSetLogInfo(options, false));
    ok(TRITONSERVER_ServerNew(&server, options));
    ok(TRITONSERVER_ServerOptionsDelete(options));
    return 0;
}

static int end(void **state)
{
    (void)state;
    ok(TRITONSERVER_ServerDelete(server));
    repository_remove(&repo);
    return 0;
}

static void make_for(const char *model)
{
    ok(TRITONSERVER_InferenceRequestNew(&request, server, model, -1));
    ok(TRITONSERVER_InferenceRequestSetResponseCallback(request, allocator, NULL, on_response,
                                                        NULL));
    ok(TRITONSERVER_InferenceRequestSetReleaseCallback(request, on_release, NULL));
}

/* Makes a request without inputs. */
static int make(void **state)
{
    (void)state;
    ok(TRITONSERVER_ResponseAllocatorNew(&allocator, allocate, give_back, NULL));
    make_for("m");
    return 0;
}

static int unmake(void **state)
{
    (void)state;
    if (response)
        ok(TRITONSERVER_InferenceResponseDelete(response));
    response = NULL;
    ok(TRITONSERVER_InferenceRequestDelete(request));
    ok(TRITONSERVER_ResponseAllocatorDelete(allocator));
    return 0;
}

static void add_input(void)
{
    static const int64_t three = 3;

    ok(TRITONSERVER_InferenceRequestAddInput(request, "IN", TRITONSERVER_TYPE_INT32, &three, 1));
}

static void add_data(void)
{
    ok(TRITONSERVER_InferenceRequestAppendInputData(request, "IN", values, sizeof(values),
                                                    TRITONSERVER_MEMORY_CPU, 0));
}

static void start(TRITONSERVER_InferenceTrace *trace)
{
    is_final = is_released = false;
    ok(TRITONSERVER_ServerInferAsync(server, request, trace));
}

static void await_end(void)
{
    pthread_mutex_lock(&mu);
    while (!is_final || !is_released)
        pthread_cond_wait(&ended, &mu);
    pthread_mutex_unlock(&mu);
}

/* Waits for the response, and puts the text of OUT into `text`. */
static void infer(TRITONSERVER_InferenceTrace *trace, char *text, size_t room)
{
    TRITONSERVER_MemoryType memory;
    TRITONSERVER_DataType type;
    const int64_t *shape;
    uint64_t n_dims;
    const void *base;
    const char *name;
    int64_t id;
    size_t size;
    void *userp;

    start(trace);
    await_end();
    ok(TRITONSERVER_InferenceResponseError(response));
    ok(TRITONSERVER_InferenceResponseOutput(response, 0, &name, &type, &shape, &n_dims, &base,
                                            &size, &memory, &id, &userp));
    assert_in_range(size, 4, room);
    memcpy(text, (const char *)base + 4, size - 4);
    text[size - 4] = '\0';
}

static void has_line(const char *text, const char *line)
{
    const char *at = strstr(text, line);

    if (!at || (at > text && at[-1] != '\n') || (at[strlen(line)] != '\n' && at[strlen(line)]))
        fail_msg("no line '%s' in:\n%s", line, text);
}

/* ---- What is set can be read back ------------------------------------------------------------ */

static void a_request_keeps_its_identity_and_flags(void **state)
{
    const char *id;
    uint32_t flags;
    bool cancelled = true;

    (void)state;
    ok(TRITONSERVER_InferenceRequestId(request, &id));
    assert_string_equal(id, "");
    ok(TRITONSERVER_InferenceRequestSetId(request, "r1"));
    ok(TRITONSERVER_InferenceRequestId(request, &id));
    assert_string_equal(id, "r1");
    ok(TRITONSERVER_InferenceRequestFlags(request, &flags));
    assert_int_equal(flags, 0);
    ok(TRITONSERVER_InferenceRequestSetFlags(request, TRITONSERVER_REQUEST_FLAG_SEQUENCE_END));
    ok(TRITONSERVER_InferenceRequestFlags(request, &flags));
    assert_int_equal(flags, TRITONSERVER_REQUEST_FLAG_SEQUENCE_END);
    ok(TRITONSERVER_InferenceRequestIsCancelled(request, &cancelled));
    assert_false(cancelled);
}

static void a_request_keeps_either_kind_of_correlation_id(void **state)
{
    char longest[129], longer[130];
    const char *text;
    uint64_t number;

    (void)state;
    ok(TRITONSERVER_InferenceRequestCorrelationId(request, &number));
    assert_int_equal(number, 0);
    ok(TRITONSERVER_InferenceRequestSetCorrelationId(request, UINT64_MAX));
    ok(TRITONSERVER_InferenceRequestCorrelationId(request, &number));
    assert_true(number == UINT64_MAX);
    refused(TRITONSERVER_InferenceRequestCorrelationIdString(request, &text),
            TRITONSERVER_ERROR_INVALID_ARG,
            "[request id: <id_unknown>] correlation ID in request is not a string");
    memset(longest, 'x', sizeof(longest));
    memset(longer, 'x', sizeof(longer));
    longest[sizeof(longest) - 1] = longer[sizeof(longer) - 1] = '\0';
    ok(TRITONSERVER_InferenceRequestSetCorrelationIdString(request, longest));
    ok(TRITONSERVER_InferenceRequestCorrelationIdString(request, &text));
    assert_string_equal(text, longest);
    refused(TRITONSERVER_InferenceRequestCorrelationId(request, &number),
            TRITONSERVER_ERROR_INVALID_ARG,
            "[request id: <id_unknown>] correlation ID in request is not an unsigned int");
    refused(TRITONSERVER_InferenceRequestSetCorrelationIdString(request, longer),
            TRITONSERVER_ERROR_UNSUPPORTED,
            "string correlation ID cannot be longer than 128 characters");
}

static void a_request_keeps_its_priority_and_timeout(void **state)
{
    uint64_t wide, timeout_us;
    uint32_t narrow;

    (void)state;
    ok(TRITONSERVER_InferenceRequestSetPriority(request, 3));
    ok(TRITONSERVER_InferenceRequestPriority(request, &narrow));
    ok(TRITONSERVER_InferenceRequestPriorityUInt64(request, &wide));
    assert_int_equal(narrow, 3);
    assert_int_equal(wide, 3);
    ok(TRITONSERVER_InferenceRequestSetPriorityUInt64(request, (uint64_t)UINT32_MAX + 1));
    ok(TRITONSERVER_InferenceRequestPriorityUInt64(request, &wide));
    assert_true(wide == (uint64_t)UINT32_MAX + 1);
    refused(TRITONSERVER_InferenceRequestPriority(request, &narrow), TRITONSERVER_ERROR_INVALID_ARG,
            "request priority 4294967296 does not fit into 32 bits");
    ok(TRITONSERVER_InferenceRequestSetTimeoutMicroseconds(request, 5));
    ok(TRITONSERVER_InferenceRequestTimeoutMicroseconds(request, &timeout_us));
    assert_int_equal(timeout_us, 5);
}

static void a_model_reports_its_properties(void **state)
{
    void *more = &repo;
    uint32_t flags;

    (void)state;
    ok(TRITONSERVER_ServerModelBatchProperties(server, "m", -1, &flags, &more));
    assert_int_equal(flags, TRITONSERVER_BATCH_UNKNOWN);
    assert_null(more);
    more = &repo;
    ok(TRITONSERVER_ServerModelTransactionProperties(server, "m", 1, &flags, &more));
    assert_int_equal(flags, TRITONSERVER_TXN_ONE_TO_ONE);
    assert_null(more);
    refused(TRITONSERVER_ServerModelBatchProperties(server, "nobody", -1, &flags, &more),
            TRITONSERVER_ERROR_NOT_FOUND, "Request for unknown model: 'nobody' is not found");
}

/* ---- What the backend sees ------------------------------------------------------------------ */

static void parameters_reach_the_backend_and_come_back(void **state)
{
    static const TRITONSERVER_ParameterType types[] = {
        TRITONSERVER_PARAMETER_STRING, TRITONSERVER_PARAMETER_INT, TRITONSERVER_PARAMETER_BOOL,
        TRITONSERVER_PARAMETER_DOUBLE};
    static const char *const names[] = {"string", "int", "bool", "double"};
    TRITONSERVER_ParameterType type;
    const void *value[4];
    char text[4096];
    const char *name;
    int64_t version;
    uint32_t n;

    (void)state;
    add_input();
    add_data();
    ok(TRITONSERVER_InferenceRequestSetStringParameter(request, "s", "text"));
    ok(TRITONSERVER_InferenceRequestSetIntParameter(request, "i", INT64_MAX));
    ok(TRITONSERVER_InferenceRequestSetBoolParameter(request, "b", true));
    ok(TRITONSERVER_InferenceRequestSetDoubleParameter(request, "d", -0.5));
    infer(NULL, text, sizeof(text));
    has_line(text, "parameter s: string text");
    has_line(text, "parameter i: int 9223372036854775807");
    has_line(text, "parameter b: bool 1");
    has_line(text, "parameter d: double -0.5");

    ok(TRITONSERVER_InferenceResponseModel(response, &name, &version));
    assert_string_equal(name, "m");
    assert_int_equal(version, 1);
    ok(TRITONSERVER_InferenceResponseParameterCount(response, &n));
    assert_int_equal(n, 5);
    for (uint32_t i = 0; i < 4; i++) {
        ok(TRITONSERVER_InferenceResponseParameter(response, i, &name, &type, &value[i]));
        assert_string_equal(name, names[i]);
        assert_int_equal(type, types[i]);
    }
    assert_string_equal(value[0], "a \"text\"");
    assert_true(*(const int64_t *)value[1] == INT64_MIN);
    assert_true(*(const bool *)value[2]);
    assert_true(*(const double *)value[3] == 0.5);
    refused(TRITONSERVER_InferenceResponseParameter(response, 5, &name, &type, &value[0]),
            TRITONSERVER_ERROR_INVALID_ARG, "out of bounds index 5: response has 5 parameters");
    ok(TRITONSERVER_InferenceResponseOutputClassificationLabel(response, 0, 1, &name));
    assert_string_equal(name, "second");
    ok(TRITONSERVER_InferenceResponseOutputClassificationLabel(response, 0, 2, &name));
    assert_null(name);
    refused(TRITONSERVER_InferenceResponseOutputClassificationLabel(response, 1, 0, &name),
            TRITONSERVER_ERROR_INVALID_ARG, "out of bounds index 1: response has 1 outputs");
}

/* An instance with that host policy reads its own data, all other instances the common data. */
static void an_instance_reads_the_data_of_its_host_policy(void **state)
{
    char text[4096];

    (void)state;
    add_input();
    add_data();
    for (int i = 0; i < 3; i++)
        ok(TRITONSERVER_InferenceRequestAppendInputDataWithHostPolicy(
            request, "IN", &other_values[i], sizeof(other_values[i]), TRITONSERVER_MEMORY_CPU, 0,
            "mine"));
    infer(NULL, text, sizeof(text));
    has_line(text, "IN for all: INT32, 1 dimensions, first 3, 12 bytes in 1");
    has_line(text, "buffer 0 for all: 12 bytes, CPU 0, begins with 7");
    has_line(text, "IN for mine: INT32, 1 dimensions, first 3, 12 bytes in 3");
    has_line(text, "buffer 2 for mine: 4 bytes, CPU 0, begins with 23");
    has_line(text, "IN for nobody's: INT32, 1 dimensions, first 3, 12 bytes in 1");
}

static void data_may_have_attributes(void **state)
{
    TRITONSERVER_BufferAttributes *attributes;
    char text[4096];

    (void)state;
    add_input();
    ok(TRITONSERVER_BufferAttributesNew(&attributes));
    ok(TRITONSERVER_BufferAttributesSetMemoryType(attributes, TRITONSERVER_MEMORY_CPU_PINNED));
    ok(TRITONSERVER_BufferAttributesSetMemoryTypeId(attributes, 2));
    ok(TRITONSERVER_BufferAttributesSetByteSize(attributes, sizeof(values)));
    ok(TRITONSERVER_InferenceRequestAppendInputDataWithBufferAttributes(request, "IN", values,
                                                                        attributes));
    ok(TRITONSERVER_BufferAttributesDelete(attributes)); /* its values were copied */
    infer(NULL, text, sizeof(text));
    has_line(text, "input: CPU_PINNED 2, 12 bytes, no handle");
    has_line(text, "buffer 0 for all: 12 bytes, CPU_PINNED 2, begins with 7");
}

/* Type and shape are the model's. */
static void a_raw_input_gets_its_type_and_shape(void **state)
{
    char text[4096];

    (void)state;
    ok(TRITONSERVER_InferenceRequestAddRawInput(request, "IN"));
    add_data();
    infer(NULL, text, sizeof(text));
    has_line(text, "IN for all: INT32, 1 dimensions, first 3, 12 bytes in 1");
}

static void removed_inputs_and_outputs_are_not_used(void **state)
{
    char text[4096];

    (void)state;
    add_input();
    ok(TRITONSERVER_InferenceRequestRemoveInput(request, "IN"));
    refused(TRITONSERVER_InferenceRequestRemoveInput(request, "IN"), TRITONSERVER_ERROR_INVALID_ARG,
            "[request id: <id_unknown>] input 'IN' does not exist in request");
    add_input();
    add_data();
    ok(TRITONSERVER_InferenceRequestAddRequestedOutput(request, "NOPE"));
    ok(TRITONSERVER_InferenceRequestRemoveRequestedOutput(request, "NOPE"));
    infer(NULL, text, sizeof(text)); /* no output is requested, so all are sent */
    has_line(text, "output 0: OUT, BYTES, 1 dimensions, first 1");
}

/* ---- The allocator, traces ------------------------------------------------------------------ */

static TRITONSERVER_Error *query(TRITONSERVER_ResponseAllocator *a, void *userp, const char *name,
                                 size_t *byte_size, TRITONSERVER_MemoryType *type, int64_t *id)
{
    (void)a, (void)userp;
    assert_string_equal(name, "OUT");
    assert_int_equal(*byte_size, 100);
    *type = TRITONSERVER_MEMORY_CPU_PINNED;
    *id = 4;
    return NULL;
}

static TRITONSERVER_Error *refuse_query(TRITONSERVER_ResponseAllocator *a, void *userp,
                                        const char *name, size_t *byte_size,
                                        TRITONSERVER_MemoryType *type, int64_t *id)
{
    (void)a, (void)userp, (void)name, (void)byte_size, (void)type, (void)id;
    return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_UNAVAILABLE, "not today");
}

static TRITONSERVER_Error *describe(TRITONSERVER_ResponseAllocator *a, const char *name,
                                    TRITONSERVER_BufferAttributes *attributes, void *userp,
                                    void *buffer_userp)
{
    (void)a, (void)userp, (void)buffer_userp;
    assert_string_equal(name, "OUT");
    return TRITONSERVER_BufferAttributesSetMemoryTypeId(attributes, 6);
}

static void a_backend_gets_the_memory_type_that_the_allocator_names(void **state)
{
    TRITONSERVER_ParameterType type;
    char text[4096], told[64];
    const void *value;
    const char *name;

    (void)state;
    add_input();
    add_data();
    ok(TRITONSERVER_ResponseAllocatorSetQueryFunction(allocator, query));
    ok(TRITONSERVER_ResponseAllocatorSetBufferAttributesFunction(allocator, describe));
    infer(NULL, text, sizeof(text));
    has_line(text, "query: CPU_PINNED 4");
    ok(TRITONSERVER_InferenceResponseParameter(response, 4, &name, &type, &value));
    snprintf(told, sizeof(told), "memory: CPU 6, %zu bytes, no handle", strlen(text) + 4);
    assert_string_equal(value, told);

    ok(TRITONSERVER_InferenceResponseDelete(response));
    ok(TRITONSERVER_ResponseAllocatorSetQueryFunction(allocator, refuse_query));
    infer(NULL, text, sizeof(text));
    has_line(text, "query: not today");
}

static void an_allocator_without_a_query_gives_no_properties(void **state)
{
    char text[4096];

    (void)state;
    add_input();
    add_data();
    ok(TRITONSERVER_InferenceRequestSetId(request, "r2"));
    infer(NULL, text, sizeof(text));
    has_line(text, "query: [request id: r2] Output properties are not available");
}

static TRITONSERVER_Error *
allocate_nothing(TRITONSERVER_ResponseAllocator *a, const char *name, size_t byte_size,
                 TRITONSERVER_MemoryType type, int64_t type_id, void *userp, void **buffer,
                 void **buffer_userp, TRITONSERVER_MemoryType *actual_type, int64_t *actual_id)
{
    (void)a, (void)name, (void)type, (void)type_id, (void)userp, (void)buffer;
    *buffer_userp = &repo;
    *actual_type = TRITONSERVER_MEMORY_GPU;
    *actual_id = 2;
    assert_true(byte_size > 0);
    return NULL;
}

/* The program gives no memory: the response is like any other, except for its bytes. */
static void an_allocator_may_give_no_memory(void **state)
{
    TRITONSERVER_ResponseAllocator *nothing;
    TRITONSERVER_MemoryType memory;
    TRITONSERVER_DataType type;
    const int64_t *shape;
    const void *base = &repo;
    const char *name;
    uint64_t n_dims;
    size_t size;
    int64_t id;
    void *userp;

    (void)state;
    ok(TRITONSERVER_ResponseAllocatorNew(&nothing, allocate_nothing, give_back, NULL));
    ok(TRITONSERVER_InferenceRequestSetResponseCallback(request, nothing, NULL, on_response, NULL));
    add_input();
    add_data();
    start(NULL);
    await_end();
    ok(TRITONSERVER_InferenceResponseError(response));
    ok(TRITONSERVER_InferenceResponseOutput(response, 0, &name, &type, &shape, &n_dims, &base,
                                            &size, &memory, &id, &userp));
    assert_null(base);
    assert_true(size > 4);
    assert_int_equal(memory, TRITONSERVER_MEMORY_GPU);
    assert_int_equal(id, 2);
    assert_ptr_equal(userp, &repo);
    ok(TRITONSERVER_InferenceResponseDelete(response));
    response = NULL;
    ok(TRITONSERVER_ResponseAllocatorDelete(nothing));
}

/* ---- Mistakes ------------------------------------------------------------------------------- */

/* The inputs are validated before the missing callback is noticed. */
static void misfit_inputs_are_reported_before_a_missing_callback(void **state)
{
    static const int64_t three = 3;
    static const char two[] = "\1\0\0\0a\1\0\0\0b";

    (void)state;
    ok(TRITONSERVER_InferenceRequestDelete(request));
    ok(TRITONSERVER_InferenceRequestNew(&request, server, "texts", -1));
    ok(TRITONSERVER_InferenceRequestSetReleaseCallback(request, on_release, NULL));
    ok(TRITONSERVER_InferenceRequestAddInput(request, "IN", TRITONSERVER_TYPE_BYTES, &three, 1));
    ok(TRITONSERVER_InferenceRequestAppendInputData(request, "IN", two, 10, TRITONSERVER_MEMORY_CPU,
                                                    0));
    refused(TRITONSERVER_ServerInferAsync(server, request, NULL), TRITONSERVER_ERROR_INVALID_ARG,
            "[request id: <id_unknown>] expected 3 string elements for inference input 'IN' for "
            "model 'texts', got 2");
    ok(TRITONSERVER_InferenceRequestAppendInputData(request, "IN", two, 5, TRITONSERVER_MEMORY_CPU,
                                                    0));
    refused(TRITONSERVER_ServerInferAsync(server, request, NULL), TRITONSERVER_ERROR_INVALID_ARG,
            "the request has no response callback");
}

static void await_file(const char *path)
{
    static const struct timespec pause = {.tv_nsec = 1000000};

    for (int i = 0; i < 60000 && access(path, F_OK) != 0; i++)
        nanosleep(&pause, NULL);
    assert_int_equal(access(path, F_OK), 0);
}

static bool is_cancelled(TRITONBACKEND_ResponseFactory *factory)
{
    bool request_is = false, factory_is = false;

    ok(TRITONSERVER_InferenceRequestIsCancelled(request, &request_is));
    ok(TRITONBACKEND_ResponseFactoryIsCancelled(factory, &factory_is));
    assert_int_equal(request_is, factory_is);
    return request_is;
}

/* The program, not the backend, releases a request that waits behind an earlier one. The request
 * is answered once all the same, and released once. */
static void a_request_released_by_the_program_is_answered_once(void **state)
{
    TRITONSERVER_InferenceRequest *first;
    TRITONBACKEND_ResponseFactory *factory;
    char held[128], reached[128];

    (void)state;
    repository_add_file(&repo, "held/hold.execute", "", 0);
    snprintf(held, sizeof(held), "%s/held/hold.execute", repo.path);
    snprintf(reached, sizeof(reached), "%s.reached", held);
    ok(TRITONSERVER_InferenceRequestDelete(request));
    make_for("held");
    add_input();
    add_data();
    start(NULL);
    await_file(reached);
    first = request;
    make_for("held");
    add_input();
    add_data();
    ok(TRITONSERVER_ServerInferAsync(server, request, NULL));

    ok(TRITONBACKEND_ResponseFactoryNew(&factory, (TRITONBACKEND_Request *)request));
    ok(TRITONBACKEND_RequestRelease((TRITONBACKEND_Request *)request,
                                    TRITONSERVER_REQUEST_RELEASE_ALL));
    assert_false(is_cancelled(factory));
    ok(TRITONSERVER_InferenceRequestCancel(request));
    assert_true(is_cancelled(factory));
    pthread_mutex_lock(&mu);
    while (!is_final) /* of the second request: the backend has the first one */
        pthread_cond_wait(&ended, &mu);
    assert_false(is_released);
    pthread_mutex_unlock(&mu);
    assert_int_equal(TRITONSERVER_ErrorCode(TRITONSERVER_InferenceResponseError(response)),
                     TRITONSERVER_ERROR_CANCELLED);
    ok(TRITONBACKEND_ResponseFactoryDelete(factory));
    await_end();
    ok(TRITONSERVER_InferenceResponseDelete(response));
    response = NULL;
    ok(TRITONSERVER_InferenceRequestDelete(request));

    request = first;
    is_final = is_released = false;
    assert_int_equal(remove(held), 0);
    await_end();
    ok(TRITONSERVER_InferenceResponseError(response));
}

static int n_activities, n_traces_released;

static void on_activity(TRITONSERVER_InferenceTrace *trace,
                        TRITONSERVER_InferenceTraceActivity activity, uint64_t at_ns, void *userp)
{
    (void)activity, (void)userp;
    assert_non_null(trace);
    assert_true(at_ns > 0);
    __atomic_fetch_add(&n_activities, 1, __ATOMIC_SEQ_CST);
}

static void on_trace_release(TRITONSERVER_InferenceTrace *trace, void *userp)
{
    assert_ptr_equal(userp, &n_activities);
    ok(TRITONSERVER_InferenceTraceDelete(trace));
    pthread_mutex_lock(&mu);
    n_traces_released++;
    pthread_cond_broadcast(&ended);
    pthread_mutex_unlock(&mu);
}

static void a_trace_reaches_the_backend(void **state)
{
    TRITONSERVER_InferenceTrace *trace;
    char text[4096];

    (void)state;
    add_input();
    add_data();
    ok(TRITONSERVER_InferenceTraceNew(&trace, TRITONSERVER_TRACE_LEVEL_TIMESTAMPS, 0, on_activity,
                                      on_trace_release, &n_activities));
    infer(trace, text, sizeof(text));
    has_line(text, "request: , flags 0, timeout 0, of 0, traced");
    ok(TRITONSERVER_InferenceResponseDelete(response));
    response = NULL;
    pthread_mutex_lock(&mu);
    while (n_traces_released == 0)
        pthread_cond_wait(&ended, &mu);
    assert_int_equal(n_traces_released, 1);
    pthread_mutex_unlock(&mu);
    assert_in_range(__atomic_load_n(&n_activities, __ATOMIC_SEQ_CST), 3, 20);
}

int main(void)
{
#define EACH(test) cmocka_unit_test_setup_teardown(test, make, unmake)
    const struct CMUnitTest tests[] = {
        EACH(a_request_keeps_its_identity_and_flags),
        EACH(a_request_keeps_either_kind_of_correlation_id),
        EACH(a_request_keeps_its_priority_and_timeout),
        EACH(a_model_reports_its_properties),
        EACH(parameters_reach_the_backend_and_come_back),
        EACH(an_instance_reads_the_data_of_its_host_policy),
        EACH(data_may_have_attributes),
        EACH(a_raw_input_gets_its_type_and_shape),
        EACH(removed_inputs_and_outputs_are_not_used),
        EACH(a_backend_gets_the_memory_type_that_the_allocator_names),
        EACH(an_allocator_without_a_query_gives_no_properties),
        EACH(an_allocator_may_give_no_memory),
        EACH(misfit_inputs_are_reported_before_a_missing_callback),
        EACH(a_request_released_by_the_program_is_answered_once),
        EACH(a_trace_reaches_the_backend),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
