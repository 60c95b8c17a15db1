/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tritonbackend.h: the server's functions for backends. Thin: each function checks its arguments,
 * and reads or calls the core. Here: memory, inputs, outputs, requests, responses; backends, models
 * and instances are in tritonbackend_objects.c.
 */
#include <string.h>

#include "api/handles.h"
#include "base/mem.h"
#include "base/pool.h"
#include "base/status.h"
#include "core/model/model.h"
#include "core/request/life.h"

TRITONSERVER_Error *TRITONBACKEND_ApiVersion(uint32_t *major, uint32_t *minor)
{
    NEED(major);
    NEED(minor);
    *major = TRITONBACKEND_API_VERSION_MAJOR;
    *minor = TRITONBACKEND_API_VERSION_MINOR;
    return NULL;
}

TRITONSERVER_Error *out_of_bounds(const char *what, uint32_t index, uint32_t count)
{
    return as_status(status_new(STATUS_INVALID_ARG, "out of bounds index %u: there are %u %s",
                                index, count, what));
}

/* ---- The memory manager ---------------------------------------------------------------------- */

/*
 * Allocates aligned memory, charged to the current owner: while a backend initialises, that is its
 * model. The address of the block lies in front of the memory that the backend gets.
 */
static void *alloc_for_backend(uint64_t size_bytes)
{
    if (size_bytes > SIZE_MAX - MEM_ALIGNMENT)
        return NULL;
    char *block = mem_try_alloc(size_bytes + MEM_ALIGNMENT);
    if (!block)
        return NULL;
    /* Blocks are aligned to 16, so that there is room for a pointer in front. */
    char *aligned = block + MEM_ALIGNMENT - (uintptr_t)block % MEM_ALIGNMENT;
    ((void **)(void *)aligned)[-1] = block;
    return aligned;
}

static void free_for_backend(void *aligned)
{
    if (aligned)
        mem_free(((void **)aligned)[-1]);
}

TRITONSERVER_Error *TRITONBACKEND_MemoryManagerAllocate(TRITONBACKEND_MemoryManager *manager,
                                                        void **buffer,
                                                        const TRITONSERVER_MemoryType memory_type,
                                                        const int64_t memory_type_id,
                                                        const uint64_t byte_size)
{
    NEED(manager);
    NEED(buffer);
    (void)memory_type_id;
    if (memory_type == TRITONSERVER_MEMORY_GPU)
        return as_status(
            status_new(STATUS_UNSUPPORTED, "GPU memory allocation not supported: no GPU support"));
    void *block = alloc_for_backend(byte_size);
    if (!block)
        return as_status(status_new(STATUS_UNAVAILABLE, "out of memory: %llu bytes for a backend",
                                    (unsigned long long)byte_size));
    *buffer = block;
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_MemoryManagerFree(TRITONBACKEND_MemoryManager *manager,
                                                    void *buffer,
                                                    const TRITONSERVER_MemoryType memory_type,
                                                    const int64_t memory_type_id)
{
    NEED(manager);
    (void)memory_type;
    (void)memory_type_id;
    free_for_backend(buffer);
    return NULL;
}

/* ---- Inputs ---------------------------------------------------------------------------------- */

/* Is this buffer one of those that an instance with that host policy reads? */
static bool is_buffer_for_policy(const struct tensor_buffer *b, const char *policy)
{
    return policy ? b->host_policy && strcmp(b->host_policy, policy) == 0 : !b->host_policy;
}

/* Returns the policy whose buffers are read: this one if it has buffers of its own, otherwise
 * NULL, the policy of the common buffers. */
static const char *effective_policy(const struct input *in, const char *policy)
{
    for (uint32_t i = 0; policy && i < in->n_buffers; i++) {
        if (is_buffer_for_policy(&in->buffers[i], policy))
            return policy;
    }
    return NULL;
}

/* The usual case. */
static bool has_one_for_all(const struct input *in)
{
    return in->n_buffers == 1 && !in->buffers[0].host_policy;
}

static struct status *buffer_at(struct input *in, const char *policy, uint32_t index,
                                struct tensor_buffer **ret_buffer)
{
    uint32_t seen = 0;
    if (LIKELY(has_one_for_all(in)) && index == 0) {
        *ret_buffer = &in->buffers[0];
        return NULL;
    }
    policy = effective_policy(in, policy);
    for (uint32_t i = 0; i < in->n_buffers; i++) {
        if (is_buffer_for_policy(&in->buffers[i], policy) && seen++ == index) {
            *ret_buffer = &in->buffers[i];
            return NULL;
        }
    }
    return status_new(STATUS_INVALID_ARG, "out of bounds index %u: input '%s' has %u buffers",
                      index, in->name, seen);
}

static void count_buffers(const struct input *in, const char *policy, uint64_t *byte_size,
                          uint32_t *buffer_count)
{
    uint64_t bytes = 0;
    uint32_t n = 0;
    if (LIKELY(has_one_for_all(in))) {
        bytes = in->buffers[0].size_bytes;
        n = 1;
    } else {
        policy = effective_policy(in, policy);
        for (uint32_t i = 0; i < in->n_buffers; i++) {
            if (is_buffer_for_policy(&in->buffers[i], policy)) {
                bytes += in->buffers[i].size_bytes;
                n++;
            }
        }
    }
    if (byte_size)
        *byte_size = bytes;
    if (buffer_count)
        *buffer_count = n;
}

TRITONSERVER_Error *
TRITONBACKEND_InputPropertiesForHostPolicy(TRITONBACKEND_Input *input, const char *host_policy_name,
                                           const char **name, TRITONSERVER_DataType *datatype,
                                           const int64_t **shape, uint32_t *dims_count,
                                           uint64_t *byte_size, uint32_t *buffer_count)
{
    NEED(input);
    const struct input *in = to_input(input);
    if (name)
        *name = in->name;
    if (datatype)
        *datatype = (TRITONSERVER_DataType)in->dtype;
    if (shape)
        *shape = in->backend_shape;
    if (dims_count)
        *dims_count = in->n_backend_dims;
    count_buffers(in, host_policy_name, byte_size, buffer_count);
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_InputProperties(TRITONBACKEND_Input *input, const char **name,
                                                  TRITONSERVER_DataType *datatype,
                                                  const int64_t **shape, uint32_t *dims_count,
                                                  uint64_t *byte_size, uint32_t *buffer_count)
{
    return TRITONBACKEND_InputPropertiesForHostPolicy(input, NULL, name, datatype, shape,
                                                      dims_count, byte_size, buffer_count);
}

TRITONSERVER_Error *TRITONBACKEND_InputBufferForHostPolicy(
    TRITONBACKEND_Input *input, const char *host_policy_name, const uint32_t index,
    const void **buffer, uint64_t *buffer_byte_size, TRITONSERVER_MemoryType *memory_type,
    int64_t *memory_type_id)
{
    struct tensor_buffer *b;
    NEED(input);
    struct status *st = buffer_at(to_input(input), host_policy_name, index, &b);
    if (st)
        return as_status(st);
    *buffer = b->base;
    *buffer_byte_size = b->size_bytes;
    *memory_type = (TRITONSERVER_MemoryType)b->type;
    *memory_type_id = b->type_id;
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_InputBuffer(TRITONBACKEND_Input *input, const uint32_t index,
                                              const void **buffer, uint64_t *buffer_byte_size,
                                              TRITONSERVER_MemoryType *memory_type,
                                              int64_t *memory_type_id)
{
    return TRITONBACKEND_InputBufferForHostPolicy(input, NULL, index, buffer, buffer_byte_size,
                                                  memory_type, memory_type_id);
}

TRITONSERVER_Error *
TRITONBACKEND_InputBufferAttributes(TRITONBACKEND_Input *input, const uint32_t index,
                                    const void **buffer,
                                    TRITONSERVER_BufferAttributes **buffer_attributes)
{
    struct tensor_buffer *b;
    NEED(input);
    struct input *in = to_input(input);
    struct status *st = buffer_at(in, NULL, index, &b);
    if (st)
        return as_status(st);
    *buffer = b->base;
    return attributes_in(&in->request->arena, b->type, b->type_id, b->size_bytes,
                         buffer_attributes);
}

/* ---- Outputs --------------------------------------------------------------------------------- */

TRITONSERVER_Error *TRITONBACKEND_OutputBuffer(TRITONBACKEND_Output *output, void **buffer,
                                               const uint64_t buffer_byte_size,
                                               TRITONSERVER_MemoryType *memory_type,
                                               int64_t *memory_type_id)
{
    NEED(output);
    NEED(buffer);
    struct output *out = to_output(output);
    if (out->response->sent)
        return as_status(
            status_new(STATUS_INVALID_ARG, "response of output '%s' is sent already", out->name));
    if (!out->allocated) {
        out->memory_type = (enum memory_type) * memory_type;
        out->memory_type_id = *memory_type_id;
    }
    struct status *st = output_alloc(out, buffer_byte_size);
    if (st)
        return as_status(st);
    *buffer = out->base;
    *memory_type = (TRITONSERVER_MemoryType)out->memory_type;
    *memory_type_id = out->memory_type_id;
    return NULL;
}

TRITONSERVER_Error *
TRITONBACKEND_OutputBufferAttributes(TRITONBACKEND_Output *output,
                                     TRITONSERVER_BufferAttributes **buffer_attributes)
{
    NEED(output);
    struct output *out = to_output(output);
    if (!out->allocated)
        return as_status(status_new(STATUS_INVALID_ARG,
                                    "output '%s' has no buffer yet, so it has no attributes",
                                    out->name));
    TRITONSERVER_Error *error =
        attributes_in(&out->response->arena, out->memory_type, out->memory_type_id, out->size_bytes,
                      buffer_attributes);
    if (error)
        return error;
    struct api_request *a = api_request_of(out->response->request);
    if (!a || !a->allocator->attributes_fn)
        return NULL;
    return a->allocator->attributes_fn(as_allocator(a->allocator), out->name, *buffer_attributes,
                                       a->allocator_data, out->maker_data);
}

/* ---- Requests -------------------------------------------------------------------------------- */

TRITONSERVER_Error *TRITONBACKEND_RequestId(TRITONBACKEND_Request *request, const char **id)
{
    NEED(request);
    *id = to_request(request)->maker.id;
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_RequestIsCancelled(TRITONBACKEND_Request *request,
                                                     bool *is_cancelled)
{
    NEED(request);
    *is_cancelled = request_is_cancelled(to_request(request));
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_RequestCorrelationId(TRITONBACKEND_Request *request, uint64_t *id)
{
    NEED(request);
    const struct request *r = to_request(request);
    if (r->maker.correlation_id.string)
        return as_status(status_new(STATUS_INVALID_ARG,
                                    "[request id: %s] correlation ID in request is not an unsigned "
                                    "int",
                                    request_log_name(r)));
    *id = r->maker.correlation_id.number;
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_RequestCorrelationIdString(TRITONBACKEND_Request *request,
                                                             const char **id)
{
    NEED(request);
    const struct request *r = to_request(request);
    if (!r->maker.correlation_id.string)
        return as_status(status_new(STATUS_INVALID_ARG,
                                    "[request id: %s] correlation ID in request is not a string",
                                    request_log_name(r)));
    *id = r->maker.correlation_id.string;
    return NULL;
}

TRITONSERVER_Error *
TRITONBACKEND_InferenceRequestTimeoutMicroseconds(TRITONBACKEND_Request *request, uint64_t *timeout)
{
    NEED(request);
    *timeout = to_request(request)->maker.timeout_us;
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_RequestFlags(TRITONBACKEND_Request *request, uint32_t *flags)
{
    NEED(request);
    *flags = to_request(request)->maker.flags;
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_RequestParameterCount(TRITONBACKEND_Request *request,
                                                        uint32_t *count)
{
    NEED(request);
    *count = to_request(request)->maker.n_parameters;
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_RequestParameter(TRITONBACKEND_Request *request,
                                                   const uint32_t index, const char **key,
                                                   TRITONSERVER_ParameterType *type,
                                                   const void **vvalue)
{
    NEED(request);
    const struct request *r = to_request(request);
    if (index >= r->maker.n_parameters)
        return out_of_bounds("parameters", index, r->maker.n_parameters);
    const struct parameter *p = &r->maker.parameters[index];
    *key = p->name;
    *type = (TRITONSERVER_ParameterType)p->type;
    *vvalue = p->type == PARAMETER_STRING ? (const void *)p->string : (const void *)&p->int64;
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_RequestInputCount(TRITONBACKEND_Request *request,
                                                    uint32_t *input_count)
{
    NEED(request);
    *input_count = to_request(request)->maker.n_inputs + to_request(request)->seq.n_injected;
    return NULL;
}

/* An input by its index, with the reference's text. */
static struct status *input_at(const struct request *r, uint32_t index, struct input **ret_input)
{
    if (index >= r->maker.n_inputs + r->seq.n_injected)
        return status_new(STATUS_INVALID_ARG,
                          "[request id: %s] out of bounds index %u: request has %u inputs",
                          request_log_name(r), index, r->maker.n_inputs + r->seq.n_injected);
    *ret_input = index < r->maker.n_inputs ? r->maker.inputs[index]
                                           : r->seq.injected[index - r->maker.n_inputs];
    return NULL;
}

/* Injected inputs win over a client's inputs of the same name. */
static struct input *input_named(const struct request *r, const char *name)
{
    for (uint32_t i = 0; i < r->seq.n_injected; i++) {
        if (strcmp(r->seq.injected[i]->name, name) == 0)
            return r->seq.injected[i];
    }
    return request_find_input(r, name);
}

TRITONSERVER_Error *TRITONBACKEND_RequestInputName(TRITONBACKEND_Request *request,
                                                   const uint32_t index, const char **input_name)
{
    struct input *in = NULL;
    NEED(request);
    *input_name = NULL;
    struct status *st = input_at(to_request(request), index, &in);
    if (!st)
        *input_name = in->name;
    return as_status(st);
}

TRITONSERVER_Error *TRITONBACKEND_RequestInput(TRITONBACKEND_Request *request, const char *name,
                                               TRITONBACKEND_Input **input)
{
    NEED(request);
    NEED(name);
    const struct request *r = to_request(request);
    struct input *in = input_named(r, name);
    *input = as_input(in);
    if (!in)
        return as_status(status_new(STATUS_INVALID_ARG,
                                    "[request id: %s] unknown request input name %s",
                                    request_log_name(r), name));
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_RequestInputByIndex(TRITONBACKEND_Request *request,
                                                      const uint32_t index,
                                                      TRITONBACKEND_Input **input)
{
    struct input *in = NULL;
    NEED(request);
    *input = NULL;
    struct status *st = input_at(to_request(request), index, &in);
    if (!st)
        *input = as_input(in);
    return as_status(st);
}

/* Without requested outputs all outputs of the model count; of a padding none does. */
static uint32_t count_outputs(const struct request *r)
{
    if (UNLIKELY(r->seq.padding))
        return 0;
    return r->maker.n_outputs ? r->maker.n_outputs : r->model->n_outputs;
}

TRITONSERVER_Error *TRITONBACKEND_RequestOutputCount(TRITONBACKEND_Request *request,
                                                     uint32_t *output_count)
{
    NEED(request);
    *output_count = count_outputs(to_request(request));
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_RequestOutputName(TRITONBACKEND_Request *request,
                                                    const uint32_t index, const char **output_name)
{
    NEED(request);
    const struct request *r = to_request(request);
    uint32_t n = count_outputs(r);
    *output_name = NULL;
    if (index >= n)
        return as_status(status_new(STATUS_INVALID_ARG,
                                    "[request id: %s] out of bounds index %u: request has %u "
                                    "requested outputs",
                                    request_log_name(r), index, n));
    *output_name = r->maker.n_outputs ? r->maker.outputs[index] : r->model->outputs[index].name;
    return NULL;
}

TRITONSERVER_Error *
TRITONBACKEND_RequestOutputBufferProperties(TRITONBACKEND_Request *request, const char *name,
                                            size_t *byte_size, TRITONSERVER_MemoryType *memory_type,
                                            int64_t *memory_type_id)
{
    NEED(request);
    struct api_request *a = api_request_of(to_request(request));
    if (a && !a->allocator->query_fn)
        return as_status(status_new(STATUS_UNAVAILABLE,
                                    "[request id: %s] Output properties are not available",
                                    request_log_name(&a->request)));
    if (a)
        return a->allocator->query_fn(as_allocator(a->allocator), a->allocator_data, name,
                                      byte_size, memory_type, memory_type_id);
    *memory_type = TRITONSERVER_MEMORY_CPU;
    *memory_type_id = 0;
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_RequestTrace(TRITONBACKEND_Request *request,
                                               TRITONSERVER_InferenceTrace **trace)
{
    NEED(request);
    *trace = as_trace(to_request(request)->maker.trace);
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_RequestRelease(TRITONBACKEND_Request *request,
                                                 uint32_t release_flags)
{
    NEED(request);
    if (release_flags & TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)
        return as_status(request_reschedule(to_request(request)));
    return as_status(request_release(to_request(request)));
}

/* ---- Response factories ---------------------------------------------------------------------- */

TRITONSERVER_Error *TRITONBACKEND_ResponseFactoryNew(TRITONBACKEND_ResponseFactory **factory,
                                                     TRITONBACKEND_Request *request)
{
    NEED(factory);
    NEED(request);
    struct request *r = to_request(request);
    struct response_factory *f = pool_alloc(r->pool, sizeof(*f), NULL);
    if (!f)
        return as_status(status_no_memory());
    f->request = r;
    request_ref(r);
    request_sender_add(r);
    *factory = as_factory(f);
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ResponseFactoryDelete(TRITONBACKEND_ResponseFactory *factory)
{
    NEED(factory);
    struct request *r = to_factory(factory)->request;
    pool_release(factory);
    request_sender_done(r);
    request_unref(r);
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ResponseFactoryIsCancelled(TRITONBACKEND_ResponseFactory *factory,
                                                             bool *is_cancelled)
{
    NEED(factory);
    *is_cancelled = request_is_cancelled(to_factory(factory)->request);
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ResponseFactorySendFlags(TRITONBACKEND_ResponseFactory *factory,
                                                           const uint32_t send_flags)
{
    NEED(factory);
    return as_status(request_send_flags(to_factory(factory)->request, send_flags));
}

/* ---- Responses ------------------------------------------------------------------------------- */

static TRITONSERVER_Error *new_response(struct request *r, TRITONBACKEND_Response **ret_response)
{
    struct response *resp;
    struct status *st = response_new(r, &resp);
    if (st)
        return as_status(st);
    struct api_request *a = api_request_of(r);
    if (a && a->allocator->start_fn) {
        st = to_status(a->allocator->start_fn(as_allocator(a->allocator), a->allocator_data));
        if (st) {
            response_free(resp);
            return as_status(st);
        }
    }
    *ret_response = as_response(resp);
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ResponseNew(TRITONBACKEND_Response **response,
                                              TRITONBACKEND_Request *request)
{
    NEED(response);
    NEED(request);
    return new_response(to_request(request), response);
}

TRITONSERVER_Error *TRITONBACKEND_ResponseNewFromFactory(TRITONBACKEND_Response **response,
                                                         TRITONBACKEND_ResponseFactory *factory)
{
    NEED(response);
    NEED(factory);
    return new_response(to_factory(factory)->request, response);
}

TRITONSERVER_Error *TRITONBACKEND_ResponseDelete(TRITONBACKEND_Response *response)
{
    NEED(response);
    response_free(to_response(response));
    return NULL;
}

static TRITONSERVER_Error *add_parameter(TRITONBACKEND_Response *response,
                                         const struct parameter *p)
{
    NEED(response);
    NEED(p->name);
    return as_status(response_add_parameter(to_response(response), p));
}

TRITONSERVER_Error *TRITONBACKEND_ResponseSetStringParameter(TRITONBACKEND_Response *response,
                                                             const char *name, const char *value)
{
    NEED(value);
    struct parameter p = {.name = name, .type = PARAMETER_STRING, .string = value};
    return add_parameter(response, &p);
}

TRITONSERVER_Error *TRITONBACKEND_ResponseSetIntParameter(TRITONBACKEND_Response *response,
                                                          const char *name, const int64_t value)
{
    struct parameter p = {.name = name, .type = PARAMETER_INT, .int64 = value};
    return add_parameter(response, &p);
}

TRITONSERVER_Error *TRITONBACKEND_ResponseSetBoolParameter(TRITONBACKEND_Response *response,
                                                           const char *name, const bool value)
{
    struct parameter p = {.name = name, .type = PARAMETER_BOOL, .boolean = value};
    return add_parameter(response, &p);
}

TRITONSERVER_Error *TRITONBACKEND_ResponseSetDoubleParameter(TRITONBACKEND_Response *response,
                                                             const char *name, const double value)
{
    struct parameter p = {.name = name, .type = PARAMETER_DOUBLE, .float64 = value};
    return add_parameter(response, &p);
}

TRITONSERVER_Error *TRITONBACKEND_ResponseOutput(TRITONBACKEND_Response *response,
                                                 TRITONBACKEND_Output **output, const char *name,
                                                 const TRITONSERVER_DataType datatype,
                                                 const int64_t *shape, const uint32_t dims_count)
{
    struct output *out;
    NEED(response);
    NEED(output);
    NEED(name);
    if (dims_count)
        NEED(shape);
    struct status *st = response_add_output(to_response(response), name, (enum dtype)datatype,
                                            shape, dims_count, &out);
    if (!st)
        *output = as_output(out);
    return as_status(st);
}

TRITONSERVER_Error *TRITONBACKEND_ResponseSend(TRITONBACKEND_Response *response,
                                               const uint32_t send_flags, TRITONSERVER_Error *error)
{
    if (!response)
        return as_status(status_new(STATUS_INVALID_ARG, "response was nullptr"));
    /* The backend still owns the error, as the ABI demands; ours is shared, not copied. */
    return as_status(
        response_send(to_response(response), send_flags, status_ref(to_status(error))));
}

static void describe_response_output(const struct output *out, TRITONSERVER_DataType *datatype,
                                     const int64_t **shape, uint64_t *dim_count)
{
    *datatype = (TRITONSERVER_DataType)out->dtype;
    *shape = out->shape;
    *dim_count = out->n_dims;
}

TRITONSERVER_Error *TRITONBACKEND_InferenceResponseOutputByName(TRITONBACKEND_Response *response,
                                                                const char *name,
                                                                TRITONSERVER_DataType *datatype,
                                                                const int64_t **shape,
                                                                uint64_t *dim_count)
{
    NEED(response);
    NEED(name);
    const struct response *resp = to_response(response);
    for (uint32_t i = 0; i < resp->n_outputs; i++) {
        if (strcmp(resp->outputs[i]->name, name) == 0) {
            describe_response_output(resp->outputs[i], datatype, shape, dim_count);
            return NULL;
        }
    }
    return as_status(
        status_new(STATUS_INVALID_ARG, "output name %s does not exist in the response", name));
}

TRITONSERVER_Error *TRITONBACKEND_InferenceResponseOutput(TRITONBACKEND_Response *response,
                                                          const uint32_t index, const char **name,
                                                          TRITONSERVER_DataType *datatype,
                                                          const int64_t **shape,
                                                          uint64_t *dim_count)
{
    NEED(response);
    const struct response *resp = to_response(response);
    if (index >= resp->n_outputs)
        return out_of_bounds("outputs", index, resp->n_outputs);
    *name = resp->outputs[index]->name;
    describe_response_output(resp->outputs[index], datatype, shape, dim_count);
    return NULL;
}
