/* SPDX-License-Identifier: Apache-2.0 */
/*
 * delegate - a backend that has another model answer, by a request that it makes on behalf of the
 * one that it executes (conch_request_set_parent()).
 *
 * The model's configuration has the parameter `to`, the name of the other model, and perhaps
 * `alone`: its requests then have no parent. Both models have an input IN and an output OUT, INT32
 * [-1]. An execution waits while the file hold.call exists in the model's folder, and has made
 * hold.call.reached; then it makes the call and the file hold.call.made, and answers with the other
 * model's answer or error.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "conch/backend.h"

extern __typeof__(conch_request_set_parent) conch_request_set_parent __attribute__((weak));

struct delegate {
    TRITONSERVER_Server *server;
    TRITONSERVER_ResponseAllocator *allocator;
    char to[256];
    bool alone;
    char hold[4096], reached[4096 + 8], made[4096 + 8];
};

/* One call; the thread that makes it waits until both callbacks were called. */
struct call {
    pthread_mutex_t mu;
    pthread_cond_t changed;
    bool answered, released;
    TRITONSERVER_InferenceResponse *response;
};

static void must(TRITONSERVER_Error *err)
{
    if (!err)
        return;
    fprintf(stderr, "delegate: %s\n", TRITONSERVER_ErrorMessage(err));
    abort();
}

/* ---- The model ------------------------------------------------------------------------------- */

static TRITONSERVER_Error *allocate(TRITONSERVER_ResponseAllocator *allocator, const char *name,
                                    size_t size, TRITONSERVER_MemoryType type, int64_t type_id,
                                    void *userp, void **buffer, void **buffer_userp,
                                    TRITONSERVER_MemoryType *actual_type, int64_t *actual_id)
{
    (void)allocator, (void)name, (void)type, (void)type_id, (void)userp;
    *buffer = malloc(size ? size : 1);
    *buffer_userp = NULL;
    *actual_type = TRITONSERVER_MEMORY_CPU;
    *actual_id = 0;
    return *buffer ? NULL : TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_UNAVAILABLE, "no memory");
}

static TRITONSERVER_Error *give_back(TRITONSERVER_ResponseAllocator *allocator, void *buffer,
                                     void *buffer_userp, size_t size, TRITONSERVER_MemoryType type,
                                     int64_t type_id)
{
    (void)allocator, (void)buffer_userp, (void)size, (void)type, (void)type_id;
    free(buffer);
    return NULL;
}

/* Copies the value of a parameter of the configuration; "" without it. */
static void read_parameter(const char *config, const char *name, char value[256])
{
    char pattern[64];
    const char *at;
    snprintf(pattern, sizeof(pattern), "\"%s\":{\"string_value\":\"", name);
    at = strstr(config, pattern);
    value[0] = '\0';
    if (at)
        sscanf(at + strlen(pattern), "%255[^\"]", value);
}

TRITONSERVER_Error *TRITONBACKEND_ModelInitialize(TRITONBACKEND_Model *model)
{
    struct delegate *d = calloc(1, sizeof(*d));
    TRITONBACKEND_ArtifactType type;
    TRITONSERVER_Message *message;
    const char *folder, *text;
    char alone[256];
    size_t size;

    if (!d)
        abort();
    must(TRITONBACKEND_ModelServer(model, &d->server));
    must(TRITONSERVER_ResponseAllocatorNew(&d->allocator, allocate, give_back, NULL));
    must(TRITONBACKEND_ModelConfig(model, 1, &message));
    must(TRITONSERVER_MessageSerializeToJson(message, &text, &size));
    char *config = strndup(text, size);
    read_parameter(config, "to", d->to);
    read_parameter(config, "alone", alone);
    d->alone = alone[0] != '\0';
    free(config);
    must(TRITONSERVER_MessageDelete(message));
    must(TRITONBACKEND_ModelRepository(model, &type, &folder));
    snprintf(d->hold, sizeof(d->hold), "%s/hold.call", folder);
    snprintf(d->reached, sizeof(d->reached), "%s.reached", d->hold);
    snprintf(d->made, sizeof(d->made), "%s.made", d->hold);
    must(TRITONBACKEND_ModelSetState(model, d));
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelFinalize(TRITONBACKEND_Model *model)
{
    void *state;
    must(TRITONBACKEND_ModelState(model, &state));
    struct delegate *d = state;
    must(TRITONSERVER_ResponseAllocatorDelete(d->allocator));
    free(d);
    return NULL;
}

static void make_file(const char *path)
{
    FILE *f = fopen(path, "we");
    if (f)
        fclose(f);
}

/* ---- A call ---------------------------------------------------------------------------------- */

static void on_response(TRITONSERVER_InferenceResponse *response, const uint32_t flags, void *userp)
{
    struct call *c = userp;
    pthread_mutex_lock(&c->mu);
    if (response)
        c->response = response;
    c->answered |= (flags & TRITONSERVER_RESPONSE_COMPLETE_FINAL) != 0;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->mu);
}

static void on_release(TRITONSERVER_InferenceRequest *request, const uint32_t flags, void *userp)
{
    struct call *c = userp;
    (void)flags;
    must(TRITONSERVER_InferenceRequestDelete(request));
    pthread_mutex_lock(&c->mu);
    c->released = true;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->mu);
}

struct tensor {
    const int64_t *shape;
    uint32_t n_dims;
    const void *data;
    uint64_t size;
};

static TRITONSERVER_Error *start_call(struct delegate *d, struct call *c,
                                      TRITONBACKEND_Request *parent, const struct tensor *in)
{
    TRITONSERVER_InferenceRequest *request;
    TRITONSERVER_Error *err = TRITONSERVER_InferenceRequestNew(&request, d->server, d->to, -1);
    if (err)
        return err;
    must(TRITONSERVER_InferenceRequestAddInput(request, "IN", TRITONSERVER_TYPE_INT32, in->shape,
                                               in->n_dims));
    must(TRITONSERVER_InferenceRequestAppendInputData(request, "IN", in->data, in->size,
                                                      TRITONSERVER_MEMORY_CPU, 0));
    must(TRITONSERVER_InferenceRequestSetReleaseCallback(request, on_release, c));
    must(TRITONSERVER_InferenceRequestSetResponseCallback(request, d->allocator, NULL, on_response,
                                                          c));
    if (!d->alone && conch_request_set_parent)
        must(conch_request_set_parent(request, parent));
    err = TRITONSERVER_ServerInferAsync(d->server, request, NULL);
    if (err)
        must(TRITONSERVER_InferenceRequestDelete(request));
    return err;
}

/* Returns the error of the answer, which the caller frees, or copies the answer. */
static TRITONSERVER_Error *take_answer(const struct call *c, TRITONBACKEND_Response *response)
{
    TRITONSERVER_Error *err = TRITONSERVER_InferenceResponseError(c->response);
    TRITONSERVER_MemoryType type;
    TRITONSERVER_DataType datatype;
    TRITONBACKEND_Output *output;
    const int64_t *shape;
    const void *base;
    const char *name;
    uint64_t n_dims;
    int64_t type_id;
    size_t size;
    void *userp, *to;

    if (err)
        return TRITONSERVER_ErrorNew(TRITONSERVER_ErrorCode(err), TRITONSERVER_ErrorMessage(err));
    must(TRITONSERVER_InferenceResponseOutput(c->response, 0, &name, &datatype, &shape, &n_dims,
                                              &base, &size, &type, &type_id, &userp));
    must(TRITONBACKEND_ResponseOutput(response, &output, "OUT", datatype, shape, (uint32_t)n_dims));
    must(TRITONBACKEND_OutputBuffer(output, &to, size, &type, &type_id));
    if (size > 0)
        memcpy(to, base, size);
    return NULL;
}

static TRITONSERVER_Error *call_and_wait(struct delegate *d, TRITONBACKEND_Request *request,
                                         TRITONBACKEND_Response *response)
{
    TRITONSERVER_MemoryType memory = TRITONSERVER_MEMORY_CPU;
    struct call c = {.mu = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    TRITONBACKEND_Input *input;
    struct tensor in = {0};
    int64_t memory_id = 0;

    must(TRITONBACKEND_RequestInput(request, "IN", &input));
    must(TRITONBACKEND_InputProperties(input, NULL, NULL, &in.shape, &in.n_dims, &in.size, NULL));
    if (in.size > 0)
        must(TRITONBACKEND_InputBuffer(input, 0, &in.data, &in.size, &memory, &memory_id));
    TRITONSERVER_Error *err = start_call(d, &c, request, &in);
    if (err)
        return err;
    make_file(d->made);
    pthread_mutex_lock(&c.mu);
    while (!c.answered || !c.released)
        pthread_cond_wait(&c.changed, &c.mu);
    pthread_mutex_unlock(&c.mu);
    err = take_answer(&c, response);
    must(TRITONSERVER_InferenceResponseDelete(c.response));
    return err;
}

static void wait_at_hold(const struct delegate *d)
{
    static const struct timespec pause = {.tv_nsec = 1000000};
    if (access(d->hold, F_OK) != 0)
        return;
    make_file(d->reached);
    while (access(d->hold, F_OK) == 0)
        nanosleep(&pause, NULL);
}

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceExecute(TRITONBACKEND_ModelInstance *instance,
                                                       TRITONBACKEND_Request **requests,
                                                       const uint32_t request_count)
{
    TRITONBACKEND_Response *response;
    TRITONBACKEND_Model *model;
    void *state;

    must(TRITONBACKEND_ModelInstanceModel(instance, &model));
    must(TRITONBACKEND_ModelState(model, &state));
    for (uint32_t i = 0; i < request_count; i++) {
        wait_at_hold(state);
        must(TRITONBACKEND_ResponseNew(&response, requests[i]));
        TRITONSERVER_Error *err = call_and_wait(state, requests[i], response);
        must(TRITONBACKEND_ResponseSend(response, TRITONSERVER_RESPONSE_COMPLETE_FINAL, err));
        TRITONSERVER_ErrorDelete(err);
        must(TRITONBACKEND_RequestRelease(requests[i], TRITONSERVER_REQUEST_RELEASE_ALL));
    }
    return NULL;
}
