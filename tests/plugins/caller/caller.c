/* SPDX-License-Identifier: Apache-2.0 */
/*
 * caller - a backend that calls the functions that no other plugin calls, and answers with their
 * results.
 *
 * The model has an input IN (INT32) and an output OUT (one string): one line for each call. The
 * response has a parameter of every kind. While the model and its instance initialise, they report
 * memory: 1000 and 24 bytes.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "triton/core/tritonbackend.h"

struct text {
    size_t size;
    char bytes[16 << 10];
};

static void must(TRITONSERVER_Error *err)
{
    if (!err)
        return;
    fprintf(stderr, "caller: %s\n", TRITONSERVER_ErrorMessage(err));
    abort();
}

static void say(struct text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void say(struct text *t, const char *fmt, ...)
{
    va_list args;
    int n;

    if (t->size > 0)
        t->bytes[t->size++] = '\n';
    va_start(args, fmt);
    n = vsnprintf(t->bytes + t->size, sizeof(t->bytes) - t->size - 1, fmt, args);
    va_end(args);
    if (n < 0 || (size_t)n >= sizeof(t->bytes) - t->size - 1)
        abort();
    t->size += (size_t)n;
}

/* Notes the error of a call that should fail, and frees it. */
static void say_error(struct text *t, const char *what, TRITONSERVER_Error *err)
{
    say(t, "%s: %s", what, err ? TRITONSERVER_ErrorMessage(err) : "no error");
    TRITONSERVER_ErrorDelete(err);
}

/* ---- Backend, model ------------------------------------------------------------------------- */

static void say_objects(struct text *t, TRITONBACKEND_ModelInstance *instance)
{
    TRITONSERVER_Server *server = NULL;
    TRITONBACKEND_Backend *backend;
    TRITONBACKEND_ExecutionPolicy policy;
    TRITONBACKEND_Model *model;
    const char *name;
    bool ready = false;

    must(TRITONBACKEND_ModelInstanceModel(instance, &model));
    must(TRITONBACKEND_ModelBackend(model, &backend));
    must(TRITONBACKEND_BackendName(backend, &name));
    must(TRITONBACKEND_BackendExecutionPolicy(backend, &policy));
    must(TRITONBACKEND_ModelServer(model, &server));
    must(TRITONBACKEND_ModelName(model, &name));
    must(TRITONSERVER_ServerModelIsReady(server, name, -1, &ready));
    must(TRITONBACKEND_BackendName(backend, &name));
    say(t, "backend: %s, policy %d", name, (int)policy);
    say(t, "its server says that it is: %s", ready ? "ready" : "not ready");
}

static void report(TRITONBACKEND_Model *model, TRITONBACKEND_ModelInstance *instance, size_t bytes)
{
    TRITONSERVER_BufferAttributes *usage[2];

    for (int i = 0; i < 2; i++) {
        must(TRITONSERVER_BufferAttributesNew(&usage[i]));
        must(TRITONSERVER_BufferAttributesSetMemoryType(usage[i], TRITONSERVER_MEMORY_CPU));
        must(TRITONSERVER_BufferAttributesSetMemoryTypeId(usage[i], i));
        must(TRITONSERVER_BufferAttributesSetByteSize(usage[i], bytes / 2));
    }
    must(model ? TRITONBACKEND_ModelReportMemoryUsage(model, usage, 2)
               : TRITONBACKEND_ModelInstanceReportMemoryUsage(instance, usage, 2));
    for (int i = 0; i < 2; i++)
        must(TRITONSERVER_BufferAttributesDelete(usage[i]));
}

TRITONSERVER_Error *TRITONBACKEND_ModelInitialize(TRITONBACKEND_Model *model)
{
    report(model, NULL, 1000);
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceInitialize(TRITONBACKEND_ModelInstance *instance)
{
    report(NULL, instance, 24);
    return NULL;
}

/* ---- Request -------------------------------------------------------------------------------- */

static void say_parameter(struct text *t, const char *key, TRITONSERVER_ParameterType type,
                          const void *value)
{
    if (type == TRITONSERVER_PARAMETER_STRING)
        say(t, "parameter %s: string %s", key, (const char *)value);
    else if (type == TRITONSERVER_PARAMETER_INT)
        say(t, "parameter %s: int %" PRId64, key, *(const int64_t *)value);
    else if (type == TRITONSERVER_PARAMETER_BOOL)
        say(t, "parameter %s: bool %d", key, *(const bool *)value);
    else if (type == TRITONSERVER_PARAMETER_DOUBLE)
        say(t, "parameter %s: double %g", key, *(const double *)value);
    else
        say(t, "parameter %s: of type %d", key, (int)type);
}

static void say_request(struct text *t, TRITONBACKEND_Request *request)
{
    TRITONSERVER_InferenceTrace *trace = NULL;
    uint64_t timeout_us, correlation;
    uint32_t flags, n;
    const char *id;

    must(TRITONBACKEND_RequestId(request, &id));
    must(TRITONBACKEND_RequestFlags(request, &flags));
    must(TRITONBACKEND_InferenceRequestTimeoutMicroseconds(request, &timeout_us));
    must(TRITONBACKEND_RequestCorrelationId(request, &correlation));
    must(TRITONBACKEND_RequestTrace(request, &trace));
    say(t, "request: %s, flags %u, timeout %" PRIu64 ", of %" PRIu64 ", %s", id, flags, timeout_us,
        correlation, trace ? "traced" : "not traced");
    must(TRITONBACKEND_RequestParameterCount(request, &n));
    for (uint32_t i = 0; i < n; i++) {
        TRITONSERVER_ParameterType type;
        const void *value;
        const char *key;

        must(TRITONBACKEND_RequestParameter(request, i, &key, &type, &value));
        say_parameter(t, key, type, value);
    }
}

static void say_attributes(struct text *t, const char *what, TRITONSERVER_BufferAttributes *a)
{
    TRITONSERVER_MemoryType type;
    int64_t id;
    size_t size;
    void *handle = NULL;

    must(TRITONSERVER_BufferAttributesMemoryType(a, &type));
    must(TRITONSERVER_BufferAttributesMemoryTypeId(a, &id));
    must(TRITONSERVER_BufferAttributesByteSize(a, &size));
    must(TRITONSERVER_BufferAttributesCudaIpcHandle(a, &handle));
    say(t, "%s: %s %" PRId64 ", %zu bytes, %s", what, TRITONSERVER_MemoryTypeString(type), id, size,
        handle ? "a handle" : "no handle");
}

static int32_t first_number(const void *data, uint64_t size)
{
    int32_t number = -1;

    if (size >= sizeof(number))
        memcpy(&number, data, sizeof(number));
    return number;
}

static void say_policy(struct text *t, TRITONBACKEND_Input *input, const char *policy)
{
    TRITONSERVER_MemoryType memory = TRITONSERVER_MEMORY_GPU;
    TRITONSERVER_DataType type;
    uint32_t n_dims, n_buffers;
    int64_t memory_id = 9;
    const int64_t *shape;
    const void *data;
    const char *name;
    uint64_t size;

    must(TRITONBACKEND_InputPropertiesForHostPolicy(input, policy, &name, &type, &shape, &n_dims,
                                                    &size, &n_buffers));
    say(t, "%s for %s: %s, %u dimensions, first %" PRId64 ", %" PRIu64 " bytes in %u", name,
        policy ? policy : "all", TRITONSERVER_DataTypeString(type), n_dims, shape[0], size,
        n_buffers);
    for (uint32_t i = 0; i < n_buffers; i++) {
        must(TRITONBACKEND_InputBufferForHostPolicy(input, policy, i, &data, &size, &memory,
                                                    &memory_id));
        say(t, "buffer %u for %s: %" PRIu64 " bytes, %s %" PRId64 ", begins with %d", i,
            policy ? policy : "all", size, TRITONSERVER_MemoryTypeString(memory), memory_id,
            first_number(data, size));
    }
}

static void say_input(struct text *t, TRITONBACKEND_Request *request)
{
    TRITONSERVER_BufferAttributes *attributes;
    TRITONBACKEND_Input *input;
    const void *data;

    must(TRITONBACKEND_RequestInput(request, "IN", &input));
    say_policy(t, input, NULL);
    say_policy(t, input, "mine");
    say_policy(t, input, "nobody's");
    must(TRITONBACKEND_InputBufferAttributes(input, 0, &data, &attributes));
    say_attributes(t, "input", attributes);
}

/* ---- Response ------------------------------------------------------------------------------- */

static void say_query(struct text *t, TRITONBACKEND_Request *request)
{
    TRITONSERVER_MemoryType type = TRITONSERVER_MEMORY_CPU;
    TRITONSERVER_Error *err;
    size_t size = 100;
    int64_t id = 0;

    err = TRITONBACKEND_RequestOutputBufferProperties(request, "OUT", &size, &type, &id);
    if (err)
        say_error(t, "query", err);
    else
        say(t, "query: %s %" PRId64, TRITONSERVER_MemoryTypeString(type), id);
}

static void say_response(struct text *t, TRITONBACKEND_Response *response)
{
    TRITONSERVER_DataType type;
    const int64_t *shape;
    const char *name;
    uint64_t n_dims;

    must(TRITONBACKEND_InferenceResponseOutput(response, 0, &name, &type, &shape, &n_dims));
    say(t, "output 0: %s, %s, %" PRIu64 " dimensions, first %" PRId64, name,
        TRITONSERVER_DataTypeString(type), n_dims, shape[0]);
    must(TRITONBACKEND_InferenceResponseOutputByName(response, "OUT", &type, &shape, &n_dims));
    say(t, "output OUT: %s, %" PRIu64 " dimensions, first %" PRId64,
        TRITONSERVER_DataTypeString(type), n_dims, shape[0]);
    say_error(
        t, "output NOPE",
        TRITONBACKEND_InferenceResponseOutputByName(response, "NOPE", &type, &shape, &n_dims));
}

/* Writes the text after its length. The attributes of its memory are known only then, too late
 * for the text, so they go into a parameter. */
static void write_text(TRITONBACKEND_Response *response, TRITONBACKEND_Output *output,
                       const struct text *t)
{
    TRITONSERVER_MemoryType type = TRITONSERVER_MEMORY_CPU;
    TRITONSERVER_BufferAttributes *attributes;
    uint32_t size = (uint32_t)t->size;
    struct text late = {0};
    int64_t id = 0;
    void *to;

    must(TRITONBACKEND_OutputBuffer(output, &to, sizeof(size) + size, &type, &id));
    if (to) { /* otherwise the embedding program does not want it */
        memcpy(to, &size, sizeof(size));
        memcpy((char *)to + sizeof(size), t->bytes, size);
    }
    must(TRITONBACKEND_OutputBufferAttributes(output, &attributes));
    say_attributes(&late, "memory", attributes);
    must(TRITONBACKEND_ResponseSetStringParameter(response, "output", late.bytes));
}

static void answer(TRITONBACKEND_ModelInstance *instance, TRITONBACKEND_Request *request)
{
    static const int64_t one[] = {1};
    TRITONBACKEND_Response *response;
    TRITONBACKEND_Output *output;
    struct text *t = calloc(1, sizeof(*t));

    if (!t)
        abort();
    say_objects(t, instance);
    say_request(t, request);
    say_input(t, request);
    say_query(t, request);
    must(TRITONBACKEND_ResponseNew(&response, request));
    must(TRITONBACKEND_ResponseSetStringParameter(response, "string", "a \"text\""));
    must(TRITONBACKEND_ResponseSetIntParameter(response, "int", INT64_MIN));
    must(TRITONBACKEND_ResponseSetBoolParameter(response, "bool", true));
    must(TRITONBACKEND_ResponseSetDoubleParameter(response, "double", 0.5));
    must(TRITONBACKEND_ResponseOutput(response, &output, "OUT", TRITONSERVER_TYPE_BYTES, one, 1));
    say_response(t, response);
    write_text(response, output, t);
    must(TRITONBACKEND_ResponseSend(response, TRITONSERVER_RESPONSE_COMPLETE_FINAL, NULL));
    must(TRITONBACKEND_RequestRelease(request, TRITONSERVER_REQUEST_RELEASE_ALL));
    free(t);
}

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceExecute(TRITONBACKEND_ModelInstance *instance,
                                                       TRITONBACKEND_Request **requests,
                                                       const uint32_t request_count)
{
    for (uint32_t i = 0; i < request_count; i++)
        answer(instance, requests[i]);
    return NULL;
}
