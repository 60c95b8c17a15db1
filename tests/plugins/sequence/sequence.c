/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sequence - a backend that adds up the values of a sequence's requests, and reports every input of
 * every request of the batch, control tensors, states and paddings included.
 *
 * The model has an input IN (INT32, one element), and outputs OUT (the sum so far, INT32, one
 * element) and SEEN (one string): the requests of the execution in their order, separated by " | ",
 * of each its inputs by name as NAME=value, and the flags of the request.
 *
 * Parameters of the model:
 *     keep     where the sums are: "place" (by the position in the batch, reset by START), "id" (by
 *              the correlation id, the same), "state" (implicit state: input SI, output SO, INT32,
 *              one element, or with `grow` one more in each request)
 *     grow     "1": the state is a list of all values
 *     again    how often each request is rescheduled before it is answered; the sum counts its
 *              executions
 *     misuse   "1": uses the functions of states wrongly first, and reports the errors in SEEN
 *
 * While the file hold.execute exists in the model's folder, an execution waits, and has made a file
 * hold.execute.reached.
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "triton/core/tritonbackend.h"

enum { TEXT_BYTES = 256 << 10, MAX_INPUTS = 16, PLACES = 4096, IDS = 1024 };

struct model {
    char keep[16];
    bool grow, misuse;
    int again; /* -1: requests are not rescheduled */
};

struct instance {
    struct model *model;
    int32_t places[PLACES];
    struct {
        uint64_t id;
        int32_t sum;
    } ids[IDS];
};

struct text {
    size_t size;
    char bytes[TEXT_BYTES];
};

static void must(TRITONSERVER_Error *err)
{
    if (!err)
        return;
    fprintf(stderr, "sequence: %s\n", TRITONSERVER_ErrorMessage(err));
    abort();
}

static void add(struct text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void add(struct text *t, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(t->bytes + t->size, sizeof(t->bytes) - t->size, fmt, ap);
    va_end(ap);
    if (n < 0 || (size_t)n >= sizeof(t->bytes) - t->size)
        abort();
    t->size += (size_t)n;
}

/* ---- Configuration --------------------------------------------------------------------------- */

static bool parameter(const char *json, const char *name, char *value, size_t size)
{
    char key[64];
    snprintf(key, sizeof(key), "\"%s\":{\"string_value\":\"", name);
    const char *at = strstr(json, key);
    if (!at)
        return false;
    at += strlen(key);
    snprintf(value, size, "%.*s", (int)strcspn(at, "\""), at);
    return true;
}

TRITONSERVER_Error *TRITONBACKEND_ModelInitialize(TRITONBACKEND_Model *model)
{
    struct model *m = calloc(1, sizeof(*m));
    TRITONSERVER_Message *message;
    const char *json;
    char value[16];
    size_t size;

    must(TRITONBACKEND_ModelConfig(model, 1, &message));
    must(TRITONSERVER_MessageSerializeToJson(message, &json, &size));
    char *copy = strndup(json, size);
    if (!parameter(copy, "keep", m->keep, sizeof(m->keep)))
        snprintf(m->keep, sizeof(m->keep), "place");
    m->grow = parameter(copy, "grow", value, sizeof(value));
    m->misuse = parameter(copy, "misuse", value, sizeof(value));
    m->again = parameter(copy, "again", value, sizeof(value)) ? (int)strtol(value, NULL, 10) : -1;
    free(copy);
    must(TRITONSERVER_MessageDelete(message));
    must(TRITONBACKEND_ModelSetState(model, m));
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelFinalize(TRITONBACKEND_Model *model)
{
    void *m;
    must(TRITONBACKEND_ModelState(model, &m));
    free(m);
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceInitialize(TRITONBACKEND_ModelInstance *instance)
{
    struct instance *in = calloc(1, sizeof(*in));
    TRITONBACKEND_Model *model;
    must(TRITONBACKEND_ModelInstanceModel(instance, &model));
    must(TRITONBACKEND_ModelState(model, (void **)&in->model));
    must(TRITONBACKEND_ModelInstanceSetState(instance, in));
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceFinalize(TRITONBACKEND_ModelInstance *instance)
{
    void *in;
    must(TRITONBACKEND_ModelInstanceState(instance, &in));
    free(in);
    return NULL;
}

static void wait_at_gate(TRITONBACKEND_ModelInstance *instance)
{
    static const struct timespec pause = {.tv_nsec = 1000000};
    TRITONBACKEND_ArtifactType type;
    TRITONBACKEND_Model *model;
    const char *folder;
    char path[4096], reached[4096 + 8];
    must(TRITONBACKEND_ModelInstanceModel(instance, &model));
    must(TRITONBACKEND_ModelRepository(model, &type, &folder));
    snprintf(path, sizeof(path), "%s/hold.execute", folder);
    if (access(path, F_OK) != 0)
        return;
    snprintf(reached, sizeof(reached), "%s.reached", path);
    FILE *f = fopen(reached, "we");
    if (f)
        fclose(f);
    while (access(path, F_OK) == 0)
        nanosleep(&pause, NULL);
}

/* ---- Inputs ---------------------------------------------------------------------------------- */

struct tensor {
    const char *name;
    TRITONSERVER_DataType type;
    const int64_t *shape;
    uint32_t n_dims;
    uint64_t size;
    const char *base;
};

/* Reads an input whose buffers all lie in host memory; one buffer is enough for tests. */
static void look(TRITONBACKEND_Request *request, uint32_t index, struct tensor *t)
{
    TRITONBACKEND_Input *input, *same;
    TRITONSERVER_MemoryType memory;
    int64_t memory_id;
    uint32_t n_buffers;
    const void *base = NULL;
    uint64_t size = 0;
    must(TRITONBACKEND_RequestInputByIndex(request, index, &input));
    must(TRITONBACKEND_InputProperties(input, &t->name, &t->type, &t->shape, &t->n_dims, &t->size,
                                       &n_buffers));
    must(TRITONBACKEND_RequestInput(request, t->name, &same));
    if (same != input || n_buffers > 1)
        abort();
    if (n_buffers)
        must(TRITONBACKEND_InputBuffer(input, 0, &base, &size, &memory, &memory_id));
    if (size != t->size)
        abort();
    t->base = base;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct tensor *)a)->name, ((const struct tensor *)b)->name);
}

static uint32_t look_at_all(TRITONBACKEND_Request *request, struct tensor *tensors)
{
    uint32_t n;
    must(TRITONBACKEND_RequestInputCount(request, &n));
    if (n > MAX_INPUTS)
        abort();
    for (uint32_t i = 0; i < n; i++)
        look(request, i, &tensors[i]);
    qsort(tensors, n, sizeof(*tensors), by_name);
    return n;
}

static const struct tensor *find(const struct tensor *tensors, uint32_t n, const char *name)
{
    for (uint32_t i = 0; i < n; i++) {
        if (strcmp(tensors[i].name, name) == 0)
            return &tensors[i];
    }
    return NULL;
}

static int64_t number_at(const struct tensor *t, uint64_t at)
{
    const char *p = t->base + at;
    int64_t i64;
    int32_t i32;
    float f32;
    switch (t->type) {
    case TRITONSERVER_TYPE_FP32:
        memcpy(&f32, p, sizeof(f32));
        return (int64_t)f32;
    case TRITONSERVER_TYPE_INT64:
    case TRITONSERVER_TYPE_UINT64:
        memcpy(&i64, p, sizeof(i64));
        return i64;
    case TRITONSERVER_TYPE_BOOL:
        return *p;
    default:
        memcpy(&i32, p, sizeof(i32));
        return i32;
    }
}

static void tell_tensor(struct text *out, const struct tensor *t, bool values)
{
    uint32_t length, step = TRITONSERVER_DataTypeByteSize(t->type);
    add(out, "%s:%s[", t->name, TRITONSERVER_DataTypeString(t->type));
    for (uint32_t i = 0; i < t->n_dims; i++)
        add(out, i ? ",%" PRId64 : "%" PRId64, t->shape[i]);
    add(out, "]=");
    if (!values) {
        add(out, "? ");
        return;
    }
    if (t->type == TRITONSERVER_TYPE_BYTES) {
        memcpy(&length, t->base, sizeof(length));
        if (length > t->size - sizeof(length)) /* older servers leave room behind the string */
            abort();
        add(out, "'%.*s' ", (int)length, t->base + sizeof(length));
        return;
    }
    for (uint64_t at = 0; at < t->size; at += step)
        add(out, at ? ",%" PRId64 : "%" PRId64, number_at(t, at));
    add(out, " ");
}

/* ---- States --------------------------------------------------------------------------------- */

static void tell_error(struct text *out, const char *what, TRITONSERVER_Error *err)
{
    add(out, "%s: %s; ", what, err ? TRITONSERVER_ErrorMessage(err) : "fine");
    TRITONSERVER_ErrorDelete(err);
}

static void misuse(struct text *out, TRITONBACKEND_Request *request)
{
    TRITONBACKEND_State *state = NULL;
    const int64_t one[3] = {1, 1, 1};
    tell_error(out, "undefined",
               TRITONBACKEND_StateNew(&state, request, "undefined_state", TRITONSERVER_TYPE_INT32,
                                      one, 1));
    tell_error(out, "input's name",
               TRITONBACKEND_StateNew(&state, request, "SI", TRITONSERVER_TYPE_INT32, one, 1));
}

static int64_t add_to_state(struct instance *in, TRITONBACKEND_Request *request,
                            const struct tensor *si, int32_t value)
{
    TRITONSERVER_MemoryType memory = TRITONSERVER_MEMORY_CPU;
    TRITONBACKEND_State *state;
    int64_t shape[8], memory_id = 0, sum = value;
    uint64_t n = si->size / sizeof(int32_t);
    TRITONSERVER_BufferAttributes *attributes;
    size_t byte_size;
    int32_t *to;

    for (uint64_t i = 0; i < n; i++)
        sum += number_at(si, i * sizeof(int32_t));
    memcpy(shape, si->shape, si->n_dims * sizeof(*shape));
    if (in->model->grow)
        shape[si->n_dims - 1]++;
    must(TRITONBACKEND_StateNew(&state, request, "SO", TRITONSERVER_TYPE_INT32, shape, si->n_dims));
    must(TRITONBACKEND_StateBuffer(state, (void **)&to, (n + in->model->grow) * sizeof(*to),
                                   &memory, &memory_id));
    must(TRITONBACKEND_StateBufferAttributes(state, &attributes));
    must(TRITONSERVER_BufferAttributesByteSize(attributes, &byte_size));
    if (memory != TRITONSERVER_MEMORY_CPU || byte_size != (n + in->model->grow) * sizeof(*to))
        abort();
    if (in->model->grow) {
        memcpy(to, si->base, si->size);
        to[n] = value;
    } else {
        to[0] = (int32_t)sum;
    }
    must(TRITONBACKEND_StateUpdate(state));
    return sum;
}

/* ---- Execution ------------------------------------------------------------------------------ */

static int32_t *sum_of(struct instance *in, uint32_t place, TRITONBACKEND_Request *request)
{
    uint64_t id;
    if (strcmp(in->model->keep, "id") != 0)
        return &in->places[place];
    must(TRITONBACKEND_RequestCorrelationId(request, &id));
    for (unsigned int i = 0; i < IDS; i++) {
        if (in->ids[i].id == id || in->ids[i].id == 0) {
            in->ids[i].id = id;
            return &in->ids[i].sum;
        }
    }
    abort();
}

static int32_t execute_one(struct instance *in, uint32_t place, TRITONBACKEND_Request *request,
                           struct text *out)
{
    struct tensor tensors[MAX_INPUTS];
    uint32_t flags, n = look_at_all(request, tensors);
    const struct tensor *ready = find(tensors, n, "READY"), *si = find(tensors, n, "SI");
    int32_t value = (int32_t)number_at(find(tensors, n, "IN"), 0);
    bool is_ready = !ready || number_at(ready, 0);

    must(TRITONBACKEND_RequestFlags(request, &flags));
    /* The values of a padding, in clients' inputs and in states, have no meaning. */
    for (uint32_t i = 0; i < n; i++)
        tell_tensor(out, &tensors[i],
                    is_ready || (&tensors[i] != si && strcmp(tensors[i].name, "IN") != 0));
    add(out, "flags=%" PRIu32, flags);
    if (in->model->misuse)
        misuse(out, request);
    if (strcmp(in->model->keep, "state") == 0)
        return (int32_t)add_to_state(in, request, si, value);
    if (!is_ready)
        return INT32_MAX;
    int32_t *sum = sum_of(in, place, request);
    if (flags & TRITONSERVER_REQUEST_FLAG_SEQUENCE_START)
        *sum = 0;
    return *sum += in->model->again >= 0 ? 1 : value;
}

static void put(TRITONBACKEND_Response *response, const char *name, TRITONSERVER_DataType type,
                const int64_t *shape, uint32_t n_dims, const void *from, size_t size)
{
    TRITONSERVER_MemoryType memory = TRITONSERVER_MEMORY_CPU;
    TRITONBACKEND_Output *output;
    int64_t memory_id = 0;
    void *to;
    must(TRITONBACKEND_ResponseOutput(response, &output, name, type, shape, n_dims));
    must(TRITONBACKEND_OutputBuffer(output, &to, size, &memory, &memory_id));
    memcpy(to, from, size);
}

static void answer(TRITONBACKEND_Request *request, int32_t sum, const struct text *seen)
{
    TRITONBACKEND_Response *response;
    struct tensor t[MAX_INPUTS];
    uint32_t n = look_at_all(request, t), n_dims = find(t, n, "IN")->n_dims;
    const int64_t ones[2] = {1, 1};
    uint32_t length = (uint32_t)seen->size;
    char *element = malloc(sizeof(length) + length);
    uint32_t n_wanted; /* of a padding none is requested */

    must(TRITONBACKEND_RequestOutputCount(request, &n_wanted));
    memcpy(element, &length, sizeof(length));
    memcpy(element + sizeof(length), seen->bytes, length);
    must(TRITONBACKEND_ResponseNew(&response, request));
    if (n_wanted)
        put(response, "OUT", TRITONSERVER_TYPE_INT32, ones, n_dims, &sum, sizeof(sum));
    if (n_wanted)
        put(response, "SEEN", TRITONSERVER_TYPE_BYTES, ones, n_dims, element,
            sizeof(length) + length);
    must(TRITONBACKEND_ResponseSend(response, TRITONSERVER_RESPONSE_COMPLETE_FINAL, NULL));
    free(element);
}

static void report(TRITONBACKEND_ModelInstance *instance, TRITONBACKEND_Request *request,
                   uint64_t from_ns)
{
    must(TRITONBACKEND_ModelInstanceReportStatistics(instance, request, true, from_ns, from_ns,
                                                     from_ns, from_ns));
}

static uint64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceExecute(TRITONBACKEND_ModelInstance *instance,
                                                       TRITONBACKEND_Request **requests,
                                                       const uint32_t request_count)
{
    struct text *seen = calloc(1, sizeof(*seen));
    int32_t *sums = calloc(request_count, sizeof(*sums));
    uint64_t from_ns = now();
    struct instance *in;

    wait_at_gate(instance);
    must(TRITONBACKEND_ModelInstanceState(instance, (void **)&in));
    for (uint32_t i = 0; i < request_count; i++) {
        add(seen, i ? " | " : "");
        sums[i] = execute_one(in, i, requests[i], seen);
    }
    /* Reports before it answers: a client with an answer finds it in the statistics. */
    must(TRITONBACKEND_ModelInstanceReportBatchStatistics(instance, request_count, from_ns, from_ns,
                                                          from_ns, from_ns));
    for (uint32_t i = 0; i < request_count; i++) {
        if (in->model->again >= 0 && in->model->again >= sums[i]) {
            must(
                TRITONBACKEND_RequestRelease(requests[i], TRITONSERVER_REQUEST_RELEASE_RESCHEDULE));
            continue;
        }
        report(instance, requests[i], from_ns);
        answer(requests[i], sums[i], seen);
        must(TRITONBACKEND_RequestRelease(requests[i], TRITONSERVER_REQUEST_RELEASE_ALL));
    }
    free(sums);
    free(seen);
    return NULL;
}
