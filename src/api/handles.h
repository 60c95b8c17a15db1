/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The handles of the public ABI are our own structs. This header lists which public type is which
 * struct, and declares the few objects that exist only for the ABI.
 */
#ifndef CONCH_API_HANDLES_H
#define CONCH_API_HANDLES_H

#include "core/agents/agent_model.h"
#include "core/backend/json_message.h"
#include "core/request/request.h"
#include "core/request/response.h"
#include "triton/core/tritonbackend.h"
#include "triton/core/tritoncache.h"
#include "triton/core/tritonrepoagent.h"
#include "triton/core/tritonserver.h"

struct api_response_stats;
struct cache_copier;
struct cache_entry;
struct on_behalf;
struct state;
struct status;

/* HANDLE(public type, our type, name): to_<name>() converts to our type, as_<name>() to the public
 * one. */
#define HANDLE(public_type, our_type, name)                                                        \
    static inline our_type *to_##name(public_type *handle)                                         \
    {                                                                                              \
        return (our_type *)handle;                                                                 \
    }                                                                                              \
    static inline public_type *as_##name(our_type *object)                                         \
    {                                                                                              \
        return (public_type *)object;                                                              \
    }

HANDLE(TRITONCACHE_Allocator, struct cache_copier, copier)
HANDLE(TRITONCACHE_CacheEntry, struct cache_entry, entry)
HANDLE(TRITONSERVER_Error, struct status, status)
HANDLE(TRITONSERVER_Server, struct server, server)
HANDLE(TRITONSERVER_ServerOptions, struct server_options, options)
HANDLE(TRITONSERVER_InferenceRequest, struct api_request, api_request)
HANDLE(TRITONSERVER_InferenceResponse, struct response, server_response)
HANDLE(TRITONSERVER_InferenceTrace, struct trace, trace)
HANDLE(TRITONSERVER_Message, struct json_message, message)
HANDLE(TRITONSERVER_BufferAttributes, struct buffer_attributes, attributes)
HANDLE(TRITONSERVER_ResponseAllocator, struct response_allocator, allocator)
HANDLE(TRITONBACKEND_Backend, struct backend, backend)
HANDLE(TRITONBACKEND_BackendAttribute, struct backend_attribute, backend_attribute)
HANDLE(TRITONBACKEND_Model, struct model, model)
HANDLE(TRITONBACKEND_ModelInstance, struct instance, instance)
HANDLE(TRITONBACKEND_ModelInstanceResponseStatistics, struct api_response_stats, response_stats)
HANDLE(TRITONBACKEND_MemoryManager, struct server, memory_manager)
HANDLE(TRITONBACKEND_Request, struct request, request)
HANDLE(TRITONBACKEND_Input, struct input, input)
HANDLE(TRITONBACKEND_Output, struct output, output)
HANDLE(TRITONBACKEND_Response, struct response, response)
HANDLE(TRITONBACKEND_ResponseFactory, struct response_factory, factory)
HANDLE(TRITONBACKEND_State, struct state, state)
HANDLE(TRITONREPOAGENT_Agent, struct repo_agent, repo_agent)
HANDLE(TRITONREPOAGENT_AgentModel, struct agent_model, agent_model)

/* A named value that an embedder made. */
struct TRITONSERVER_Parameter {
    struct parameter parameter;
    const void *bytes; /* BYTES: borrowed */
    uint64_t size_bytes;
};

static inline const struct parameter *parameter_of(const TRITONSERVER_Parameter *handle)
{
    return &handle->parameter;
}

/* json_message_new - makes a message; takes the text, which mem_free() frees. */
struct json_message *json_message_new(char *json, size_t size_bytes);

struct buffer_attributes {
    enum memory_type type;
    int64_t type_id;
    size_t size_bytes;
    void *cuda_ipc_handle;
};

/* The embedder's memory for outputs. */
struct response_allocator {
    TRITONSERVER_ResponseAllocatorAllocFn_t alloc_fn;
    TRITONSERVER_ResponseAllocatorReleaseFn_t release_fn;
    TRITONSERVER_ResponseAllocatorStartFn_t start_fn;
    TRITONSERVER_ResponseAllocatorBufferAttributesFn_t attributes_fn;
    TRITONSERVER_ResponseAllocatorQueryFn_t query_fn;
};

/* A request that an embedder made: our request, and the embedder's callbacks with their data. */
struct api_request {
    struct request request;
    struct server *server;
    struct response_allocator *allocator;
    void *allocator_data;
    TRITONSERVER_InferenceResponseCompleteFn_t response_fn;
    void *response_data;
    TRITONSERVER_InferenceRequestReleaseFn_t release_fn;
    void *release_data;
    struct on_behalf *on_behalf; /* of its next run, or the present one; NULL: of no parent */
    char first[1528];            /* the first memory of the request's arena */
};

/* api_request_of - NULL for a request that a frontend made. */
struct api_request *api_request_of(struct request *r);

/* A way to answer a request after its release. */
struct response_factory {
    struct request *request; /* a reference; counts in request.life.senders */
};

/* attributes_in - makes buffer attributes in the arena, which owns them. Each output and input
 * needs them at most once. */
TRITONSERVER_Error *attributes_in(struct arena *a, enum memory_type type, int64_t type_id,
                                  size_t size_bytes, TRITONSERVER_BufferAttributes **ret);

/* out_of_bounds - makes the error for an index when there are only `count` of `what`. */
TRITONSERVER_Error *out_of_bounds(const char *what, uint32_t index, uint32_t count);

/* NEED - returns STATUS_INVALID_ARG from the function if the caller passed NULL for an object. */
#define NEED(pointer)                                                                              \
    do {                                                                                           \
        if (UNLIKELY(!(pointer)))                                                                  \
            return as_status(                                                                      \
                status_new(STATUS_INVALID_ARG, "%s: '%s' was nullptr", __func__, #pointer));       \
    } while (0)

#endif
