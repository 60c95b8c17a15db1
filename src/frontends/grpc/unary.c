/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of methods. protobuf-c reads and writes their messages, in an arena. A method is one
 * row here and one function (unary_priv.h). Threads: constant data.
 */
#include "frontends/grpc/unary_priv.h"

#include <string.h>

#include "base/buf.h"
#include "base/pbmsg.h"
#include "base/status.h"
#include "proto/health.pb-c.h"
#include "proto/inference.pb-c.h"

/* ---- The threads of methods ------------------------------------------------------------------ */

static enum unary_thread run_on_control(const ProtobufCMessage *request)
{
    (void)request;
    return UNARY_CONTROL;
}

static enum unary_thread run_as_load(const ProtobufCMessage *request)
{
    (void)request;
    return UNARY_LOAD;
}

/* The statistics of all models may take long, since there may be many. */
static enum unary_thread find_statistics_thread(const ProtobufCMessage *request)
{
    const Inference__ModelStatisticsRequest *r = (const Inference__ModelStatisticsRequest *)request;
    return r->name[0] ? UNARY_LOOP : UNARY_HELPER;
}

static const char *find_load_model(const ProtobufCMessage *request)
{
    return ((const Inference__RepositoryModelLoadRequest *)request)->model_name;
}

static const char *find_unload_model(const ProtobufCMessage *request)
{
    return ((const Inference__RepositoryModelUnloadRequest *)request)->model_name;
}

#define FIND_SUBJECT(function, type, field)                                                        \
    static const char *function(const ProtobufCMessage *request)                                   \
    {                                                                                              \
        return ((const Inference__##type##Request *)request)->field;                               \
    }
FIND_SUBJECT(find_ready_model, ModelReady, name)
FIND_SUBJECT(find_metadata_model, ModelMetadata, name)
FIND_SUBJECT(find_config_model, ModelConfig, name)
FIND_SUBJECT(find_statistics_model, ModelStatistics, name)
FIND_SUBJECT(find_traced_model, TraceSetting, model_name)

/* ---- The table ------------------------------------------------------------------------------ */

#define INFERENCE(name, api_, type, ...)                                                           \
    {                                                                                              \
        .path = "/inference.GRPCInferenceService/" name, .api = OPS_API_##api_,                    \
        .request = &inference__##type##_request__descriptor,                                       \
        .answer = &inference__##type##_response__descriptor, __VA_ARGS__                           \
    }

/* clang-format off */
static const struct unary_method methods[] = {
    INFERENCE("ServerLive", HEALTH, server_live, .run = unary_server_live),
    INFERENCE("ServerReady", HEALTH, server_ready, .run = unary_server_ready),
    INFERENCE("ModelReady", HEALTH, model_ready, .run = unary_model_ready, .subject = find_ready_model),
    INFERENCE("ServerMetadata", METADATA, server_metadata, .run = unary_server_metadata),
    INFERENCE("ModelMetadata", METADATA, model_metadata, .run = unary_model_metadata, .subject = find_metadata_model),
    INFERENCE("ModelConfig", MODEL_CONFIG, model_config, .run = unary_model_config, .subject = find_config_model),
    INFERENCE("ModelStatistics", STATISTICS, model_statistics, .run = unary_statistics, .thread = find_statistics_thread,
              .subject = find_statistics_model),
    INFERENCE("RepositoryIndex", MODEL_REPOSITORY, repository_index, .run = unary_repository_index, .thread = run_on_control),
    INFERENCE("RepositoryModelLoad", MODEL_REPOSITORY, repository_model_load, .run = unary_model_load, .thread = run_as_load,
              .model = find_load_model, .subject = find_load_model, .carries_files = true),
    INFERENCE("RepositoryModelUnload", MODEL_REPOSITORY, repository_model_unload, .run = unary_model_unload, .thread = run_on_control,
              .model = find_unload_model, .subject = find_unload_model),
    INFERENCE("SystemSharedMemoryStatus", SHARED_MEMORY, system_shared_memory_status, .run = unary_system_memory_status),
    INFERENCE("SystemSharedMemoryRegister", SHARED_MEMORY, system_shared_memory_register, .run = unary_system_memory_register, .thread = run_on_control),
    INFERENCE("SystemSharedMemoryUnregister", SHARED_MEMORY, system_shared_memory_unregister, .run = unary_system_memory_unregister, .thread = run_on_control),
    INFERENCE("CudaSharedMemoryStatus", SHARED_MEMORY, cuda_shared_memory_status, .run = unary_cuda_memory_status),
    INFERENCE("CudaSharedMemoryRegister", SHARED_MEMORY, cuda_shared_memory_register, .run = unary_cuda_memory_register, .thread = run_on_control),
    INFERENCE("CudaSharedMemoryUnregister", SHARED_MEMORY, cuda_shared_memory_unregister, .run = unary_cuda_memory_unregister, .thread = run_on_control),
    INFERENCE("TraceSetting", TRACE, trace_setting, .run = unary_trace_setting, .subject = find_traced_model),
    INFERENCE("LogSettings", LOGGING, log_settings, .run = unary_log_settings),
    {
        .path = "/grpc.health.v1.Health/Check",
        .api = OPS_API_HEALTH,
        .request = &grpc__health__v1__health_check_request__descriptor,
        .answer = &grpc__health__v1__health_check_response__descriptor,
        .run = unary_health_check,
    },
};
/* clang-format on */

const struct unary_method *unary_find(const char *path, size_t length)
{
    for (size_t i = 0; i < ARRAY_SIZE(methods); i++) {
        if (strlen(methods[i].path) == length && memcmp(methods[i].path, path, length) == 0)
            return &methods[i];
    }
    return NULL;
}

enum unary_thread unary_thread(const struct unary_method *m, const ProtobufCMessage *request)
{
    return m->thread ? m->thread(request) : UNARY_LOOP;
}

/* ---- Reading and writing -------------------------------------------------------------------- */

static void *alloc_in_arena(void *arena, size_t n_bytes)
{
    return arena_alloc(arena, n_bytes);
}

static void free_in_arena(void *arena, void *p)
{
    (void)arena;
    (void)p;
}

struct status *unary_read(const struct unary_method *m, const void *bytes, size_t n_bytes,
                          struct arena *arena, const ProtobufCMessage **ret_request)
{
    ProtobufCAllocator allocator = {alloc_in_arena, free_in_arena, arena};
    const ProtobufCMessage *request =
        protobuf_c_message_unpack(m->request, &allocator, n_bytes, bytes);
    if (!request)
        return arena->starved ? status_no_memory()
                              : status_new(STATUS_INTERNAL, "Unable to parse request");
    *ret_request = request;
    return NULL;
}

/* Adapts one of our buffers to protobuf-c's interface. */
struct packed {
    ProtobufCBuffer base;
    struct buf *out;
};

static void append_packed(ProtobufCBuffer *buffer, size_t n_bytes, const uint8_t *bytes)
{
    buf_add(((struct packed *)buffer)->out, bytes, n_bytes);
}

struct status *unary_run(const struct unary_method *m, struct server *server,
                         struct regions *regions, const ProtobufCMessage *request,
                         struct arena *arena, struct buf *out)
{
    struct unary_call c = {.server = server,
                           .regions = regions,
                           .arena = arena,
                           .request = request,
                           .answer = pb_new(arena, m->answer),
                           .out = out};
    struct packed packed = {.base.append = append_packed, .out = out};
    if (!c.answer)
        return status_no_memory();
    struct status *st = m->run(&c);
    if (st)
        return st;
    protobuf_c_message_pack_to_buffer(c.answer, &packed.base);
    return buf_status(out);
}
