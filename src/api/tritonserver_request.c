/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tritonserver.h: requests and responses of an embedder. A request object may be changed and run
 * again once it has been released. If its memory has become large, it is freed then
 * (request_compact()).
 */
#include <string.h>

#include "api/handles.h"
#include "base/mem.h"
#include "base/pool.h"
#include "base/status.h"
#include "base/thread_pool.h"
#include "conch/backend.h"
#include "core/model/labels.h"
#include "core/model/model.h"
#include "core/request/life.h"
#include "core/request/on_behalf.h"
#include "core/sched/embedder.h"
#include "core/server/server.h"
#include "core/server/server_priv.h"

/* ---- The response allocator ------------------------------------------------------------------ */

TRITONSERVER_Error *
TRITONSERVER_ResponseAllocatorNew(TRITONSERVER_ResponseAllocator **allocator,
                                  TRITONSERVER_ResponseAllocatorAllocFn_t alloc_fn,
                                  TRITONSERVER_ResponseAllocatorReleaseFn_t release_fn,
                                  TRITONSERVER_ResponseAllocatorStartFn_t start_fn)
{
    NEED(allocator);
    NEED(alloc_fn);
    NEED(release_fn);
    struct response_allocator *a = mem_zalloc(sizeof(*a));
    a->alloc_fn = alloc_fn;
    a->release_fn = release_fn;
    a->start_fn = start_fn;
    *allocator = as_allocator(a);
    return NULL;
}

TRITONSERVER_Error *TRITONSERVER_ResponseAllocatorSetBufferAttributesFunction(
    TRITONSERVER_ResponseAllocator *allocator,
    TRITONSERVER_ResponseAllocatorBufferAttributesFn_t buffer_attributes_fn)
{
    NEED(allocator);
    to_allocator(allocator)->attributes_fn = buffer_attributes_fn;
    return NULL;
}

TRITONSERVER_Error *
TRITONSERVER_ResponseAllocatorSetQueryFunction(TRITONSERVER_ResponseAllocator *allocator,
                                               TRITONSERVER_ResponseAllocatorQueryFn_t query_fn)
{
    NEED(allocator);
    to_allocator(allocator)->query_fn = query_fn;
    return NULL;
}

TRITONSERVER_Error *TRITONSERVER_ResponseAllocatorDelete(TRITONSERVER_ResponseAllocator *allocator)
{
    mem_free(allocator);
    return NULL;
}

/* ---- The request's ops, which the core calls ------------------------------------------------- */

static struct api_request *to_outer_request(struct request *r)
{
    return CONTAINER_OF(r, struct api_request, request);
}

static struct status *alloc_output(struct request *r, struct output *out, size_t size_bytes)
{
    struct api_request *a = to_outer_request(r);
    TRITONSERVER_MemoryType type = (TRITONSERVER_MemoryType)out->memory_type;
    struct status *st = to_status(a->allocator->alloc_fn(
        as_allocator(a->allocator), out->name, size_bytes, type, out->memory_type_id,
        a->allocator_data, &out->base, &out->maker_data, &type, &out->memory_type_id));
    out->memory_type = (enum memory_type)type;
    return st; /* the embedder may choose NULL without an error; the backend sees it */
}

static void free_output(struct request *r, struct output *out)
{
    struct api_request *a = to_outer_request(r);
    status_free(to_status(a->allocator->release_fn(
        as_allocator(a->allocator), out->base, out->maker_data, out->size_bytes,
        (TRITONSERVER_MemoryType)out->memory_type, out->memory_type_id)));
}

static void call_response_fn(struct request *r, struct response *resp, uint32_t flags)
{
    struct api_request *a = to_outer_request(r);
    if (resp && resp->id[0]) {
        /* A response may outlive this run of its request. */
        const char *copy = arena_strndup(&resp->arena, resp->id, strlen(resp->id));
        resp->id = copy ? copy : "";
    }
    a->response_fn(as_server_response(resp), flags, a->response_data);
}

static void call_release_fn(struct request *r, uint32_t flags)
{
    struct api_request *a = to_outer_request(r);
    struct on_behalf *b = TAKE(a->on_behalf); /* the next run may have another one */
    if (UNLIKELY(b != NULL))
        on_behalf_end(b, r);
    a->release_fn(as_api_request(a), flags, a->release_data);
    if (UNLIKELY(b != NULL))
        on_behalf_free(b);
}

static void free_api_request(struct request *r)
{
    struct on_behalf *b = to_outer_request(r)->on_behalf;
    pool_release(to_outer_request(r));
    if (UNLIKELY(b != NULL)) /* it was never run */
        on_behalf_free(b);
}

static const struct request_ops ops = {
    .alloc_output = alloc_output,
    .free_output = free_output,
    .respond = call_response_fn,
    .release = call_release_fn,
    .destroy = free_api_request,
};

struct api_request *api_request_of(struct request *r)
{
    return r->ops == &ops ? to_outer_request(r) : NULL;
}

/* ---- Life, identity -------------------------------------------------------------------------- */

TRITONSERVER_Error *
TRITONSERVER_InferenceRequestNew(TRITONSERVER_InferenceRequest **inference_request,
                                 TRITONSERVER_Server *server, const char *model_name,
                                 const int64_t model_version)
{
    struct server *s = to_server(server);
    struct model *m;
    NEED(inference_request);
    NEED(server);
    NEED(model_name);
    struct status *st = server_find_model(s, model_name, strlen(model_name), model_version, &m);
    if (st)
        return as_status(st);
    struct pool *pool = thread_pool(); /* its responses are allocated from it, too */
    struct api_request *a = pool_alloc(pool, sizeof(*a), NULL);
    if (!a) {
        model_unref(m);
        return as_status(status_no_memory());
    }
    request_init(&a->request, &ops, m, a->first, sizeof(a->first), pool);
    memset((char *)a + sizeof(a->request), 0,
           offsetof(struct api_request, first) - sizeof(a->request));
    a->server = s;
    *inference_request = as_api_request(a);
    return NULL;
}

TRITONSERVER_Error *
TRITONSERVER_InferenceRequestDelete(TRITONSERVER_InferenceRequest *inference_request)
{
    if (inference_request)
        request_unref(&to_api_request(inference_request)->request);
    return NULL;
}

static struct request *to_inner_request(TRITONSERVER_InferenceRequest *handle)
{
    return &to_api_request(handle)->request;
}

TRITONSERVER_Error *
TRITONSERVER_InferenceRequestId(TRITONSERVER_InferenceRequest *inference_request, const char **id)
{
    NEED(inference_request);
    *id = to_inner_request(inference_request)->maker.id;
    return NULL;
}

TRITONSERVER_Error *
TRITONSERVER_InferenceRequestSetId(TRITONSERVER_InferenceRequest *inference_request, const char *id)
{
    NEED(inference_request);
    NEED(id);
    return as_status(request_set_id(to_inner_request(inference_request), id, strlen(id)));
}

TRITONSERVER_Error *
TRITONSERVER_InferenceRequestFlags(TRITONSERVER_InferenceRequest *inference_request,
                                   uint32_t *flags)
{
    NEED(inference_request);
    *flags = to_inner_request(inference_request)->maker.flags;
    return NULL;
}

TRITONSERVER_Error *
TRITONSERVER_InferenceRequestSetFlags(TRITONSERVER_InferenceRequest *inference_request,
                                      uint32_t flags)
{
    NEED(inference_request);
    to_inner_request(inference_request)->maker.flags = flags;
    return NULL;
}

TRITONSERVER_Error *
TRITONSERVER_InferenceRequestCorrelationId(TRITONSERVER_InferenceRequest *inference_request,
                                           uint64_t *correlation_id)
{
    NEED(inference_request);
    return TRITONBACKEND_RequestCorrelationId(as_request(to_inner_request(inference_request)),
                                              correlation_id);
}

TRITONSERVER_Error *
TRITONSERVER_InferenceRequestCorrelationIdString(TRITONSERVER_InferenceRequest *inference_request,
                                                 const char **correlation_id)
{
    NEED(inference_request);
    return TRITONBACKEND_RequestCorrelationIdString(as_request(to_inner_request(inference_request)),
                                                    correlation_id);
}

TRITONSERVER_Error *
TRITONSERVER_InferenceRequestSetCorrelationId(TRITONSERVER_InferenceRequest *inference_request,
                                              uint64_t correlation_id)
{
    NEED(inference_request);
    to_inner_request(inference_request)->maker.correlation_id =
        (struct correlation_id){.number = correlation_id};
    return NULL;
}

TRITONSERVER_Error *TRITONSERVER_InferenceRequestSetCorrelationIdString(
    TRITONSERVER_InferenceRequest *inference_request, const char *correlation_id)
{
    NEED(inference_request);
    NEED(correlation_id);
    return as_status(request_set_correlation_string(to_inner_request(inference_request),
                                                    correlation_id, strlen(correlation_id)));
}

TRITONSERVER_Error *
TRITONSERVER_InferenceRequestCancel(TRITONSERVER_InferenceRequest *inference_request)
{
    NEED(inference_request);
    request_cancel(to_inner_request(inference_request));
    return NULL;
}

TRITONSERVER_Error *
TRITONSERVER_InferenceRequestIsCancelled(TRITONSERVER_InferenceRequest *inference_request,
                                         bool *is_cancelled)
{
    NEED(inference_request);
    *is_cancelled = request_is_cancelled(to_inner_request(inference_request));
    return NULL;
}

TRITONSERVER_Error *
TRITONSERVER_InferenceRequestPriority(TRITONSERVER_InferenceRequest *inference_request,
                                      uint32_t *priority)
{
    NEED(inference_request);
    uint64_t value = to_inner_request(inference_request)->maker.priority;
    if (value > UINT32_MAX)
        return as_status(status_new(STATUS_INVALID_ARG,
                                    "request priority %llu does not fit into 32 bits",
                                    (unsigned long long)value));
    *priority = (uint32_t)value;
    return NULL;
}

TRITONSERVER_Error *
TRITONSERVER_InferenceRequestPriorityUInt64(TRITONSERVER_InferenceRequest *inference_request,
                                            uint64_t *priority)
{
    NEED(inference_request);
    *priority = to_inner_request(inference_request)->maker.priority;
    return NULL;
}

TRITONSERVER_Error *
TRITONSERVER_InferenceRequestSetPriority(TRITONSERVER_InferenceRequest *inference_request,
                                         uint32_t priority)
{
    return TRITONSERVER_InferenceRequestSetPriorityUInt64(inference_request, priority);
}

TRITONSERVER_Error *
TRITONSERVER_InferenceRequestSetPriorityUInt64(TRITONSERVER_InferenceRequest *inference_request,
                                               uint64_t priority)
{
    NEED(inference_request);
    to_inner_request(inference_request)->maker.priority = priority;
    return NULL;
}

TRITONSERVER_Error *
TRITONSERVER_InferenceRequestTimeoutMicroseconds(TRITONSERVER_InferenceRequest *inference_request,
                                                 uint64_t *timeout_us)
{
    NEED(inference_request);
    *timeout_us = to_inner_request(inference_request)->maker.timeout_us;
    return NULL;
}

TRITONSERVER_Error *TRITONSERVER_InferenceRequestSetTimeoutMicroseconds(
    TRITONSERVER_InferenceRequest *inference_request, uint64_t timeout_us)
{
    NEED(inference_request);
    to_inner_request(inference_request)->maker.timeout_us = timeout_us;
    return NULL;
}

/* ---- Inputs ---------------------------------------------------------------------------------- */

TRITONSERVER_Error *
TRITONSERVER_InferenceRequestAddInput(TRITONSERVER_InferenceRequest *inference_request,
                                      const char *name, const TRITONSERVER_DataType datatype,
                                      const int64_t *shape, uint64_t dim_count)
{
    struct input *in;
    NEED(inference_request);
    NEED(name);
    if (dim_count)
        NEED(shape);
    return as_status(request_add_input(to_inner_request(inference_request), name, strlen(name),
                                       (enum dtype)datatype, shape, dim_count, &in));
}

TRITONSERVER_Error *
TRITONSERVER_InferenceRequestAddRawInput(TRITONSERVER_InferenceRequest *inference_request,
                                         const char *name)
{
    struct input *in;
    NEED(inference_request);
    NEED(name);
    return as_status(
        request_add_raw_input(to_inner_request(inference_request), name, strlen(name), &in));
}

static struct status *no_such_input(struct request *r, const char *name)
{
    return status_new(STATUS_INVALID_ARG, "[request id: %s] input '%s' does not exist in request",
                      request_log_name(r), name);
}

TRITONSERVER_Error *
TRITONSERVER_InferenceRequestRemoveInput(TRITONSERVER_InferenceRequest *inference_request,
                                         const char *name)
{
    NEED(inference_request);
    NEED(name);
    struct request *r = to_inner_request(inference_request);
    struct input *in = request_find_input(r, name);
    if (!in)
        return as_status(no_such_input(r, name));
    uint32_t i = 0;
    while (r->maker.inputs[i] != in)
        i++;
    r->maker.n_inputs--;
    memmove(&r->maker.inputs[i], &r->maker.inputs[i + 1],
            (r->maker.n_inputs - i) * sizeof(struct input *));
    return NULL;
}

TRITONSERVER_Error *
TRITONSERVER_InferenceRequestRemoveAllInputs(TRITONSERVER_InferenceRequest *inference_request)
{
    NEED(inference_request);
    to_inner_request(inference_request)->maker.n_inputs = 0;
    return NULL;
}

static TRITONSERVER_Error *append_data(TRITONSERVER_InferenceRequest *handle, const char *name,
                                       const struct tensor_buffer *buffer)
{
    NEED(handle);
    NEED(name);
    struct request *r = to_inner_request(handle);
    struct input *in = request_find_input(r, name);
    if (!in)
        return as_status(no_such_input(r, name));
    if (buffer->size_bytes && !buffer->base)
        return as_status(status_new(STATUS_INVALID_ARG, "data of input '%s' was nullptr", name));
    return as_status(request_add_data(r, in, buffer));
}

TRITONSERVER_Error *TRITONSERVER_InferenceRequestAppendInputData(
    TRITONSERVER_InferenceRequest *inference_request, const char *name, const void *base,
    size_t byte_size, TRITONSERVER_MemoryType memory_type, int64_t memory_type_id)
{
    struct tensor_buffer buffer = {.base = base,
                                   .size_bytes = byte_size,
                                   .type = (enum memory_type)memory_type,
                                   .type_id = memory_type_id};
    return append_data(inference_request, name, &buffer);
}

TRITONSERVER_Error *TRITONSERVER_InferenceRequestAppendInputDataWithHostPolicy(
    TRITONSERVER_InferenceRequest *inference_request, const char *name, const void *base,
    size_t byte_size, TRITONSERVER_MemoryType memory_type, int64_t memory_type_id,
    const char *host_policy_name)
{
    struct tensor_buffer buffer = {.base = base,
                                   .size_bytes = byte_size,
                                   .type = (enum memory_type)memory_type,
                                   .type_id = memory_type_id,
                                   .host_policy = host_policy_name};
    return append_data(inference_request, name, &buffer);
}

TRITONSERVER_Error *TRITONSERVER_InferenceRequestAppendInputDataWithBufferAttributes(
    TRITONSERVER_InferenceRequest *inference_request, const char *name, const void *base,
    TRITONSERVER_BufferAttributes *buffer_attributes)
{
    NEED(buffer_attributes);
    const struct buffer_attributes *attributes = to_attributes(buffer_attributes);
    struct tensor_buffer buffer = {.base = base,
                                   .size_bytes = attributes->size_bytes,
                                   .type = attributes->type,
                                   .type_id = attributes->type_id};
    return append_data(inference_request, name, &buffer);
}

TRITONSERVER_Error *
TRITONSERVER_InferenceRequestRemoveAllInputData(TRITONSERVER_InferenceRequest *inference_request,
                                                const char *name)
{
    NEED(inference_request);
    NEED(name);
    struct request *r = to_inner_request(inference_request);
    struct input *in = request_find_input(r, name);
    if (!in)
        return as_status(no_such_input(r, name));
    in->n_buffers = 0;
    in->size_bytes = 0;
    return NULL;
}

/* ---- Outputs, callbacks, parameters ---------------------------------------------------------- */

TRITONSERVER_Error *
TRITONSERVER_InferenceRequestAddRequestedOutput(TRITONSERVER_InferenceRequest *inference_request,
                                                const char *name)
{
    NEED(inference_request);
    NEED(name);
    return as_status(request_add_output(to_inner_request(inference_request), name, strlen(name)));
}

TRITONSERVER_Error *
TRITONSERVER_InferenceRequestRemoveRequestedOutput(TRITONSERVER_InferenceRequest *inference_request,
                                                   const char *name)
{
    NEED(inference_request);
    NEED(name);
    struct request *r = to_inner_request(inference_request);
    for (uint32_t i = 0; i < r->maker.n_outputs; i++) {
        if (strcmp(r->maker.outputs[i], name) == 0) {
            r->maker.n_outputs--;
            memmove(&r->maker.outputs[i], &r->maker.outputs[i + 1],
                    (r->maker.n_outputs - i) * sizeof(r->maker.outputs[0]));
            break;
        }
    }
    return NULL;
}

TRITONSERVER_Error *TRITONSERVER_InferenceRequestRemoveAllRequestedOutputs(
    TRITONSERVER_InferenceRequest *inference_request)
{
    NEED(inference_request);
    to_inner_request(inference_request)->maker.n_outputs = 0;
    return NULL;
}

TRITONSERVER_Error *TRITONSERVER_InferenceRequestSetReleaseCallback(
    TRITONSERVER_InferenceRequest *inference_request,
    TRITONSERVER_InferenceRequestReleaseFn_t request_release_fn, void *request_release_userp)
{
    NEED(inference_request);
    struct api_request *a = to_api_request(inference_request);
    a->release_fn = request_release_fn;
    a->release_data = request_release_userp;
    return NULL;
}

TRITONSERVER_Error *TRITONSERVER_InferenceRequestSetResponseCallback(
    TRITONSERVER_InferenceRequest *inference_request,
    TRITONSERVER_ResponseAllocator *response_allocator, void *response_allocator_userp,
    TRITONSERVER_InferenceResponseCompleteFn_t response_fn, void *response_userp)
{
    NEED(inference_request);
    NEED(response_allocator);
    NEED(response_fn);
    struct api_request *a = to_api_request(inference_request);
    a->allocator = to_allocator(response_allocator);
    a->allocator_data = response_allocator_userp;
    a->response_fn = response_fn;
    a->response_data = response_userp;
    /* As in the reference, a cancelled object may be used again from here on. */
    atomic_store_explicit(&a->request.life.cancelled, false, memory_order_relaxed);
    return NULL;
}

static TRITONSERVER_Error *set_parameter(TRITONSERVER_InferenceRequest *handle,
                                         const struct parameter *p)
{
    NEED(handle);
    NEED(p->name);
    return as_status(request_add_parameter(to_inner_request(handle), p));
}

TRITONSERVER_Error *
TRITONSERVER_InferenceRequestSetStringParameter(TRITONSERVER_InferenceRequest *request,
                                                const char *key, const char *value)
{
    NEED(value);
    struct parameter p = {.name = key, .type = PARAMETER_STRING, .string = value};
    return set_parameter(request, &p);
}

TRITONSERVER_Error *
TRITONSERVER_InferenceRequestSetIntParameter(TRITONSERVER_InferenceRequest *request,
                                             const char *key, const int64_t value)
{
    struct parameter p = {.name = key, .type = PARAMETER_INT, .int64 = value};
    return set_parameter(request, &p);
}

TRITONSERVER_Error *
TRITONSERVER_InferenceRequestSetBoolParameter(TRITONSERVER_InferenceRequest *request,
                                              const char *key, const bool value)
{
    struct parameter p = {.name = key, .type = PARAMETER_BOOL, .boolean = value};
    return set_parameter(request, &p);
}

TRITONSERVER_Error *
TRITONSERVER_InferenceRequestSetDoubleParameter(TRITONSERVER_InferenceRequest *request,
                                                const char *key, const double value)
{
    struct parameter p = {.name = key, .type = PARAMETER_DOUBLE, .float64 = value};
    return set_parameter(request, &p);
}

/* Other faults of the request are reported first, as in the reference. */
NODISCARD static struct status *refuse_without_callback(struct api_request *a)
{
    struct status *st = server_check(&a->request);
    return st ? st
              : status_new(STATUS_INVALID_ARG, "the request has no %s callback",
                           a->response_fn ? "release" : "response");
}

/* A request that was not accepted leaves the trace to the caller, and its parent is forgotten. */
static void take_parent_back(struct api_request *a)
{
    struct on_behalf *b = TAKE(a->on_behalf);
    if (UNLIKELY(b != NULL))
        on_behalf_end(b, &a->request);
    a->request.maker.trace = NULL;
    on_behalf_free(b);
}

TRITONSERVER_Error *TRITONSERVER_ServerInferAsync(TRITONSERVER_Server *server,
                                                  TRITONSERVER_InferenceRequest *inference_request,
                                                  TRITONSERVER_InferenceTrace *trace)
{
    NEED(server);
    NEED(inference_request);
    struct api_request *a = to_api_request(inference_request);
    if (!a->response_fn || !a->release_fn)
        return as_status(refuse_without_callback(a));
    bool idle = atomic_load_explicit(&a->request.life.stage, memory_order_acquire) == REQUEST_IDLE;
    if (idle) {
        request_compact(&a->request);
        a->request.maker.may_wait = true;
        a->request.maker.trace = to_trace(trace);
    }
    struct status *st =
        idle && UNLIKELY(a->on_behalf != NULL) ? on_behalf_begin(a->on_behalf, &a->request) : NULL;
    if (UNLIKELY(st != NULL)) {
        take_parent_back(a);
        return as_status(st);
    }
    struct inline_budget *budget = embedder_budget_begin(to_server(server)->embedder_budgets);
    if (idle)
        a->request.maker.inline_budget = budget;
    st = server_infer(to_server(server), &a->request);
    embedder_budget_end(budget);
    if (st && idle)
        take_parent_back(a);
    return as_status(st);
}

TRITONSERVER_Error *conch_request_set_parent(TRITONSERVER_InferenceRequest *inference_request,
                                             TRITONBACKEND_Request *parent)
{
    NEED(inference_request);
    struct api_request *a = to_api_request(inference_request);
    struct on_behalf *b = NULL;
    if (atomic_load_explicit(&a->request.life.stage, memory_order_acquire) != REQUEST_IDLE)
        return as_status(status_new(STATUS_INVALID_ARG,
                                    "[request id: %s] request is in flight already",
                                    request_log_name(&a->request)));
    struct status *st = parent ? on_behalf_new(to_request(parent), &b) : NULL;
    if (st)
        return as_status(st);
    on_behalf_free(a->on_behalf);
    a->on_behalf = b;
    return NULL;
}

/* ---- Responses ------------------------------------------------------------------------------- */

TRITONSERVER_Error *
TRITONSERVER_InferenceResponseDelete(TRITONSERVER_InferenceResponse *inference_response)
{
    response_free(to_server_response(inference_response));
    return NULL;
}

TRITONSERVER_Error *
TRITONSERVER_InferenceResponseError(TRITONSERVER_InferenceResponse *inference_response)
{
    NEED(inference_response);
    return as_status(to_server_response(inference_response)->error);
}

TRITONSERVER_Error *
TRITONSERVER_InferenceResponseModel(TRITONSERVER_InferenceResponse *inference_response,
                                    const char **model_name, int64_t *model_version)
{
    NEED(inference_response);
    const struct model *m = to_server_response(inference_response)->request->model;
    *model_name = m->name;
    *model_version = m->version;
    return NULL;
}

TRITONSERVER_Error *
TRITONSERVER_InferenceResponseId(TRITONSERVER_InferenceResponse *inference_response,
                                 const char **request_id)
{
    NEED(inference_response);
    *request_id = to_server_response(inference_response)->id;
    return NULL;
}

TRITONSERVER_Error *
TRITONSERVER_InferenceResponseParameterCount(TRITONSERVER_InferenceResponse *inference_response,
                                             uint32_t *count)
{
    NEED(inference_response);
    *count = to_server_response(inference_response)->n_parameters;
    return NULL;
}

TRITONSERVER_Error *
TRITONSERVER_InferenceResponseParameter(TRITONSERVER_InferenceResponse *inference_response,
                                        const uint32_t index, const char **name,
                                        TRITONSERVER_ParameterType *type, const void **vvalue)
{
    NEED(inference_response);
    const struct response *resp = to_server_response(inference_response);
    if (index >= resp->n_parameters)
        return as_status(status_new(STATUS_INVALID_ARG,
                                    "out of bounds index %u: response has %u parameters", index,
                                    resp->n_parameters));
    const struct parameter *p = &resp->parameters[index];
    *name = p->name;
    *type = (TRITONSERVER_ParameterType)p->type;
    *vvalue = p->type == PARAMETER_STRING ? (const void *)p->string : (const void *)&p->int64;
    return NULL;
}

TRITONSERVER_Error *
TRITONSERVER_InferenceResponseOutputCount(TRITONSERVER_InferenceResponse *inference_response,
                                          uint32_t *count)
{
    NEED(inference_response);
    *count = to_server_response(inference_response)->n_outputs;
    return NULL;
}

static struct status *output_at(const struct response *resp, uint32_t index,
                                struct output **ret_output)
{
    if (index >= resp->n_outputs)
        return status_new(STATUS_INVALID_ARG, "out of bounds index %u: response has %u outputs",
                          index, resp->n_outputs);
    *ret_output = resp->outputs[index];
    return NULL;
}

TRITONSERVER_Error *TRITONSERVER_InferenceResponseOutput(
    TRITONSERVER_InferenceResponse *inference_response, const uint32_t index, const char **name,
    TRITONSERVER_DataType *datatype, const int64_t **shape, uint64_t *dim_count, const void **base,
    size_t *byte_size, TRITONSERVER_MemoryType *memory_type, int64_t *memory_type_id, void **userp)
{
    struct output *out = NULL;
    NEED(inference_response);
    struct status *st = output_at(to_server_response(inference_response), index, &out);
    if (st)
        return as_status(st);
    *name = out->name;
    *datatype = (TRITONSERVER_DataType)out->dtype;
    *shape = out->shape;
    *dim_count = out->n_dims;
    *base = out->base;
    *byte_size = out->size_bytes;
    *memory_type = (TRITONSERVER_MemoryType)out->memory_type;
    *memory_type_id = out->memory_type_id;
    *userp = out->maker_data;
    return NULL;
}

TRITONSERVER_Error *TRITONSERVER_InferenceResponseOutputClassificationLabel(
    TRITONSERVER_InferenceResponse *inference_response, const uint32_t index,
    const size_t class_index, const char **label)
{
    struct output *out = NULL;
    NEED(inference_response);
    const struct response *resp = to_server_response(inference_response);
    struct status *st = output_at(resp, index, &out);
    if (st)
        return as_status(st);
    const struct tensor_spec *spec = model_find_output(resp->request->model, out->name);
    *label = spec ? labels_find(spec->labels, class_index) : NULL;
    return NULL;
}
