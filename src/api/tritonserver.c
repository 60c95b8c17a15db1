/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tritonserver.h: names, errors, the log, parameters, messages, buffer attributes, and the server
 * itself. Requests and options have files of their own.
 */
#include <string.h>

#include "api/handles.h"
#include "base/buf.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/status.h"
#include "core/model/model.h"
#include "core/repo/load_parameter.h"
#include "core/server/server.h"
#include "documents/documents.h"

enum { MAX_DOCUMENT_BYTES = 1 << 30 };

/* The enums of core and ABI are the same numbers. */
_Static_assert((int)DTYPE_BF16 == (int)TRITONSERVER_TYPE_BF16, "data types");
_Static_assert((int)MEMORY_GPU == (int)TRITONSERVER_MEMORY_GPU, "memory types");
_Static_assert((int)PARAMETER_BYTES == (int)TRITONSERVER_PARAMETER_BYTES, "parameter types");
_Static_assert((int)LOG_VERBOSE == (int)TRITONSERVER_LOG_VERBOSE, "log levels");
_Static_assert((int)LOG_FORMAT_ISO8601 == (int)TRITONSERVER_LOG_ISO8601, "log formats");

TRITONSERVER_Error *TRITONSERVER_ApiVersion(uint32_t *major, uint32_t *minor)
{
    NEED(major);
    NEED(minor);
    *major = TRITONSERVER_API_VERSION_MAJOR;
    *minor = TRITONSERVER_API_VERSION_MINOR;
    return NULL;
}

/* ---- Names ----------------------------------------------------------------------------------- */

const char *TRITONSERVER_DataTypeString(TRITONSERVER_DataType datatype)
{
    return dtype_name((enum dtype)datatype);
}

TRITONSERVER_DataType TRITONSERVER_StringToDataType(const char *dtype)
{
    return (TRITONSERVER_DataType)dtype_from_name(dtype, strlen(dtype));
}

uint32_t TRITONSERVER_DataTypeByteSize(TRITONSERVER_DataType datatype)
{
    return (uint32_t)dtype_size((enum dtype)datatype);
}

static const char *name_in(const char *const *names, size_t n, unsigned int i)
{
    return i < n ? names[i] : "<invalid>";
}

const char *TRITONSERVER_MemoryTypeString(TRITONSERVER_MemoryType memtype)
{
    static const char *const names[] = {"CPU", "CPU_PINNED", "GPU"};
    return name_in(names, ARRAY_SIZE(names), memtype);
}

const char *TRITONSERVER_ParameterTypeString(TRITONSERVER_ParameterType paramtype)
{
    static const char *const names[] = {"STRING", "INT", "BOOL", "DOUBLE", "BYTES"};
    return name_in(names, ARRAY_SIZE(names), paramtype);
}

const char *TRITONSERVER_InstanceGroupKindString(TRITONSERVER_InstanceGroupKind kind)
{
    static const char *const names[] = {"AUTO", "CPU", "GPU", "MODEL"};
    return name_in(names, ARRAY_SIZE(names), kind);
}

/* ---- Errors, the log ------------------------------------------------------------------------- */

TRITONSERVER_Error *TRITONSERVER_ErrorNew(TRITONSERVER_Error_Code code, const char *msg)
{
    return as_status(status_new((enum status_code)code, "%s", msg ? msg : ""));
}

void TRITONSERVER_ErrorDelete(TRITONSERVER_Error *error)
{
    status_free(to_status(error));
}

/* Each code has the same number here and in the ABI. */
#define STATUS_CODE(code, name, public, http, grpc, grpc_name)                                     \
    _Static_assert((int)STATUS_##public == (int)TRITONSERVER_ERROR_##public, "error codes");
#include "base/status.def"

/* The nearest code that the interface has. */
static enum status_code public_code(TRITONSERVER_Error *error)
{
    static const enum status_code codes[] = {
#define STATUS_CODE(code, name, public, http, grpc, grpc_name) STATUS_##public,
#include "base/status.def"
    };
    enum status_code code = status_code(to_status(error));
    return (size_t)code < ARRAY_SIZE(codes) ? codes[code] : code;
}

TRITONSERVER_Error_Code TRITONSERVER_ErrorCode(TRITONSERVER_Error *error)
{
    return (TRITONSERVER_Error_Code)public_code(error);
}

const char *TRITONSERVER_ErrorCodeString(TRITONSERVER_Error *error)
{
    return status_code_name(public_code(error));
}

const char *TRITONSERVER_ErrorMessage(TRITONSERVER_Error *error)
{
    return status_message(to_status(error));
}

bool TRITONSERVER_LogIsEnabled(TRITONSERVER_LogLevel level)
{
    return log_is_on((enum log_level)level, 1);
}

TRITONSERVER_Error *TRITONSERVER_LogMessage(TRITONSERVER_LogLevel level, const char *filename,
                                            const int line, const char *msg)
{
    if (level > TRITONSERVER_LOG_VERBOSE)
        return as_status(status_new(STATUS_INVALID_ARG, "unknown logging level '%d'", level));
    NEED(filename);
    NEED(msg);
    if (log_is_on((enum log_level)level, 1))
        log_text((enum log_level)level, filename, line, msg);
    return NULL;
}

/* ---- Parameters ------------------------------------------------------------------------------ */

TRITONSERVER_Parameter *TRITONSERVER_ParameterNew(const char *name,
                                                  const TRITONSERVER_ParameterType type,
                                                  const void *value)
{
    struct TRITONSERVER_Parameter p = {.parameter = {.type = (enum parameter_type)type}};
    if (!name || !value)
        return NULL;
    switch (type) {
    case TRITONSERVER_PARAMETER_STRING:
        p.parameter.string = mem_strdup(value);
        break;
    case TRITONSERVER_PARAMETER_INT:
        p.parameter.int64 = *(const int64_t *)value;
        break;
    case TRITONSERVER_PARAMETER_BOOL:
        p.parameter.boolean = *(const bool *)value;
        break;
    case TRITONSERVER_PARAMETER_DOUBLE:
        p.parameter.float64 = *(const double *)value;
        break;
    default:
        return NULL;
    }
    p.parameter.name = mem_strdup(name);
    struct TRITONSERVER_Parameter *object = mem_alloc(sizeof(*object));
    *object = p;
    return object;
}

TRITONSERVER_Parameter *TRITONSERVER_ParameterBytesNew(const char *name, const void *byte_ptr,
                                                       const uint64_t size)
{
    if (!name)
        return NULL;
    struct TRITONSERVER_Parameter *object = mem_zalloc(sizeof(*object));
    object->parameter.name = mem_strdup(name);
    object->parameter.type = PARAMETER_BYTES;
    object->bytes = byte_ptr;
    object->size_bytes = size;
    return object;
}

void TRITONSERVER_ParameterDelete(TRITONSERVER_Parameter *parameter)
{
    if (!parameter)
        return;
    if (parameter->parameter.type == PARAMETER_STRING)
        mem_free((void *)(uintptr_t)parameter->parameter.string);
    mem_free((void *)(uintptr_t)parameter->parameter.name);
    mem_free(parameter);
}

/* ---- Messages -------------------------------------------------------------------------------- */

struct json_message *json_message_new(char *json, size_t size_bytes)
{
    struct json_message *m = mem_alloc(sizeof(*m));
    *m = (struct json_message){.json = json, .size_bytes = size_bytes};
    return m;
}

TRITONSERVER_Error *TRITONSERVER_MessageNewFromSerializedJson(TRITONSERVER_Message **message,
                                                              const char *base, size_t byte_size)
{
    NEED(message);
    NEED(base);
    *message = as_message(json_message_new(mem_strndup(base, byte_size), byte_size));
    return NULL;
}

TRITONSERVER_Error *TRITONSERVER_MessageDelete(TRITONSERVER_Message *message)
{
    if (message)
        mem_free(to_message(message)->json);
    mem_free(message);
    return NULL;
}

TRITONSERVER_Error *TRITONSERVER_MessageSerializeToJson(TRITONSERVER_Message *message,
                                                        const char **base, size_t *byte_size)
{
    NEED(message);
    *base = to_message(message)->json;
    *byte_size = to_message(message)->size_bytes;
    return NULL;
}

/* ---- Buffer attributes ----------------------------------------------------------------------- */

TRITONSERVER_Error *
TRITONSERVER_BufferAttributesNew(TRITONSERVER_BufferAttributes **buffer_attributes)
{
    NEED(buffer_attributes);
    *buffer_attributes = as_attributes(mem_zalloc(sizeof(struct buffer_attributes)));
    return NULL;
}

TRITONSERVER_Error *
TRITONSERVER_BufferAttributesDelete(TRITONSERVER_BufferAttributes *buffer_attributes)
{
    mem_free(buffer_attributes);
    return NULL;
}

TRITONSERVER_Error *
TRITONSERVER_BufferAttributesSetMemoryTypeId(TRITONSERVER_BufferAttributes *buffer_attributes,
                                             int64_t memory_type_id)
{
    NEED(buffer_attributes);
    to_attributes(buffer_attributes)->type_id = memory_type_id;
    return NULL;
}

TRITONSERVER_Error *
TRITONSERVER_BufferAttributesSetMemoryType(TRITONSERVER_BufferAttributes *buffer_attributes,
                                           TRITONSERVER_MemoryType memory_type)
{
    NEED(buffer_attributes);
    to_attributes(buffer_attributes)->type = (enum memory_type)memory_type;
    return NULL;
}

TRITONSERVER_Error *
TRITONSERVER_BufferAttributesSetCudaIpcHandle(TRITONSERVER_BufferAttributes *buffer_attributes,
                                              void *cuda_ipc_handle)
{
    NEED(buffer_attributes);
    to_attributes(buffer_attributes)->cuda_ipc_handle = cuda_ipc_handle;
    return NULL;
}

TRITONSERVER_Error *
TRITONSERVER_BufferAttributesSetByteSize(TRITONSERVER_BufferAttributes *buffer_attributes,
                                         size_t byte_size)
{
    NEED(buffer_attributes);
    to_attributes(buffer_attributes)->size_bytes = byte_size;
    return NULL;
}

TRITONSERVER_Error *
TRITONSERVER_BufferAttributesMemoryTypeId(TRITONSERVER_BufferAttributes *buffer_attributes,
                                          int64_t *memory_type_id)
{
    NEED(buffer_attributes);
    *memory_type_id = to_attributes(buffer_attributes)->type_id;
    return NULL;
}

TRITONSERVER_Error *
TRITONSERVER_BufferAttributesMemoryType(TRITONSERVER_BufferAttributes *buffer_attributes,
                                        TRITONSERVER_MemoryType *memory_type)
{
    NEED(buffer_attributes);
    *memory_type = (TRITONSERVER_MemoryType)to_attributes(buffer_attributes)->type;
    return NULL;
}

TRITONSERVER_Error *
TRITONSERVER_BufferAttributesCudaIpcHandle(TRITONSERVER_BufferAttributes *buffer_attributes,
                                           void **cuda_ipc_handle)
{
    NEED(buffer_attributes);
    *cuda_ipc_handle = to_attributes(buffer_attributes)->cuda_ipc_handle;
    return NULL;
}

TRITONSERVER_Error *
TRITONSERVER_BufferAttributesByteSize(TRITONSERVER_BufferAttributes *buffer_attributes,
                                      size_t *byte_size)
{
    NEED(buffer_attributes);
    *byte_size = to_attributes(buffer_attributes)->size_bytes;
    return NULL;
}

TRITONSERVER_Error *attributes_in(struct arena *a, enum memory_type type, int64_t type_id,
                                  size_t size_bytes, TRITONSERVER_BufferAttributes **ret)
{
    struct buffer_attributes *attributes = arena_alloc(a, sizeof(*attributes));
    if (!attributes)
        return as_status(status_no_memory());
    *attributes =
        (struct buffer_attributes){.type = type, .type_id = type_id, .size_bytes = size_bytes};
    *ret = as_attributes(attributes);
    return NULL;
}

/* ---- The server ------------------------------------------------------------------------------ */

TRITONSERVER_Error *TRITONSERVER_ServerNew(TRITONSERVER_Server **server,
                                           TRITONSERVER_ServerOptions *options)
{
    struct server *s;
    NEED(server);
    NEED(options);
    struct status *st = server_new(to_options(options), &s);
    if (!st)
        *server = as_server(s);
    return as_status(st);
}

TRITONSERVER_Error *TRITONSERVER_ServerStop(TRITONSERVER_Server *server)
{
    NEED(server);
    return as_status(server_stop(to_server(server)));
}

TRITONSERVER_Error *TRITONSERVER_ServerDelete(TRITONSERVER_Server *server)
{
    if (!server)
        return NULL;
    struct status *st = server_stop(to_server(server));
    /* Executions in progress need the server: then it stays, and the caller gets the error. */
    if (!st)
        server_free(to_server(server));
    return as_status(st);
}

TRITONSERVER_Error *TRITONSERVER_ServerSetExitTimeout(TRITONSERVER_Server *server,
                                                      unsigned int timeout)
{
    NEED(server);
    server_set_exit_timeout(to_server(server), timeout);
    return NULL;
}

TRITONSERVER_Error *TRITONSERVER_ServerIsLive(TRITONSERVER_Server *server, bool *live)
{
    NEED(server);
    return as_status(server_is_live(to_server(server), live));
}

TRITONSERVER_Error *TRITONSERVER_ServerIsReady(TRITONSERVER_Server *server, bool *ready)
{
    NEED(server);
    return as_status(server_ask_ready(to_server(server), ready));
}

TRITONSERVER_Error *TRITONSERVER_ServerModelIsReady(TRITONSERVER_Server *server,
                                                    const char *model_name,
                                                    const int64_t model_version, bool *ready)
{
    NEED(server);
    NEED(model_name);
    return as_status(server_ask_model_ready(to_server(server), model_name, strlen(model_name),
                                            model_version, ready));
}

static struct status *find_named_model(TRITONSERVER_Server *server, const char *name,
                                       int64_t version, struct model **ret_model)
{
    if (!name)
        return status_new(STATUS_INVALID_ARG, "model name was nullptr");
    return server_find_model(to_server(server), name, strlen(name), version, ret_model);
}

TRITONSERVER_Error *TRITONSERVER_ServerModelBatchProperties(TRITONSERVER_Server *server,
                                                            const char *model_name,
                                                            const int64_t model_version,
                                                            uint32_t *flags, void **voidp)
{
    struct model *m;
    NEED(server);
    struct status *st = find_named_model(server, model_name, model_version, &m);
    if (st)
        return as_status(st);
    *flags = m->batching ? TRITONSERVER_BATCH_FIRST_DIM : TRITONSERVER_BATCH_UNKNOWN;
    if (voidp)
        *voidp = NULL;
    model_unref(m);
    return NULL;
}

TRITONSERVER_Error *TRITONSERVER_ServerModelTransactionProperties(TRITONSERVER_Server *server,
                                                                  const char *model_name,
                                                                  const int64_t model_version,
                                                                  uint32_t *txn_flags, void **voidp)
{
    struct model *m;
    NEED(server);
    struct status *st = find_named_model(server, model_name, model_version, &m);
    if (st)
        return as_status(st);
    *txn_flags = m->decoupled ? TRITONSERVER_TXN_DECOUPLED : TRITONSERVER_TXN_ONE_TO_ONE;
    if (voidp)
        *voidp = NULL;
    model_unref(m);
    return NULL;
}

/* Makes a message of a finished document, or an error of a failed one. */
static TRITONSERVER_Error *give_message(struct buf *text, TRITONSERVER_Message **ret_message)
{
    struct status *st = buf_status(text);
    if (st)
        return as_status(st);
    size_t size = text->size;
    *ret_message = as_message(json_message_new(buf_take(text), size));
    return NULL;
}

TRITONSERVER_Error *TRITONSERVER_ServerMetadata(TRITONSERVER_Server *server,
                                                TRITONSERVER_Message **server_metadata)
{
    AUTO(buf) text = BUF_INIT(MAX_DOCUMENT_BYTES);
    NEED(server);
    document_server_metadata(to_server(server), &text);
    return give_message(&text, server_metadata);
}

TRITONSERVER_Error *TRITONSERVER_ServerModelMetadata(TRITONSERVER_Server *server,
                                                     const char *model_name,
                                                     const int64_t model_version,
                                                     TRITONSERVER_Message **model_metadata)
{
    AUTO(buf) text = BUF_INIT(MAX_DOCUMENT_BYTES);
    struct model *m;
    NEED(server);
    int64_t *versions = NULL;
    size_t n_versions = 0;
    struct status *st = find_named_model(server, model_name, model_version, &m);
    if (st)
        return as_status(st);
    if (model_version == CONCH_VERSION_LATEST)
        st = server_model_versions(to_server(server), m->name, strlen(m->name), &versions,
                                   &n_versions);
    if (!st)
        document_model_metadata(m, versions ? versions : &m->version, versions ? n_versions : 1,
                                &text);
    mem_free(versions);
    model_unref(m);
    if (st)
        return as_status(st);
    return give_message(&text, model_metadata);
}

TRITONSERVER_Error *TRITONSERVER_ServerModelStatistics(TRITONSERVER_Server *server,
                                                       const char *model_name,
                                                       const int64_t model_version,
                                                       TRITONSERVER_Message **model_stats)
{
    AUTO(buf) text = BUF_INIT(MAX_DOCUMENT_BYTES);
    struct server_statistics statistics;
    NEED(server);
    NEED(model_name);
    NEED(model_stats);
    struct status *st = server_statistics(to_server(server), model_name, strlen(model_name),
                                          model_version, &statistics);
    if (st)
        return as_status(st);
    document_statistics(&statistics, &text);
    server_statistics_done(&statistics);
    return give_message(&text, model_stats);
}

TRITONSERVER_Error *TRITONSERVER_ServerModelConfig(TRITONSERVER_Server *server,
                                                   const char *model_name,
                                                   const int64_t model_version,
                                                   const uint32_t config_version,
                                                   TRITONSERVER_Message **model_config)
{
    AUTO(buf) text = BUF_INIT(MAX_DOCUMENT_BYTES);
    struct model *m;
    NEED(server);
    struct status *st = document_check_config_version(config_version);
    if (!st)
        st = find_named_model(server, model_name, model_version, &m);
    if (st)
        return as_status(st);
    model_print_config(m, &text);
    model_unref(m);
    return give_message(&text, model_config);
}

TRITONSERVER_Error *TRITONSERVER_ServerLoadModel(TRITONSERVER_Server *server,
                                                 const char *model_name)
{
    return TRITONSERVER_ServerLoadModelWithParameters(server, model_name, NULL, 0);
}

TRITONSERVER_Error *
TRITONSERVER_ServerLoadModelWithParameters(TRITONSERVER_Server *server, const char *model_name,
                                           const TRITONSERVER_Parameter **parameters,
                                           const uint64_t parameter_count)
{
    NEED(server);
    NEED(model_name);
    struct load_parameter *list = mem_try_zalloc(parameter_count + 1, sizeof(*list));
    if (!list)
        return as_status(status_no_memory());
    for (uint64_t i = 0; i < parameter_count; i++) {
        const struct TRITONSERVER_Parameter *p = parameters[i];
        list[i] = (struct load_parameter){.name = p->parameter.name, .type = p->parameter.type};
        if (p->parameter.type == PARAMETER_STRING)
            list[i].bytes = p->parameter.string;
        else if (p->parameter.type == PARAMETER_BYTES)
            list[i].bytes = p->bytes, list[i].size_bytes = p->size_bytes;
    }
    struct status *st = server_load_model(to_server(server), model_name, list, parameter_count);
    mem_free(list);
    return as_status(st);
}

TRITONSERVER_Error *TRITONSERVER_ServerUnloadModel(TRITONSERVER_Server *server,
                                                   const char *model_name)
{
    NEED(server);
    NEED(model_name);
    return as_status(server_unload_model(to_server(server), model_name, false));
}

TRITONSERVER_Error *TRITONSERVER_ServerUnloadModelAndDependents(TRITONSERVER_Server *server,
                                                                const char *model_name)
{
    NEED(server);
    NEED(model_name);
    return as_status(server_unload_model(to_server(server), model_name, true));
}

TRITONSERVER_Error *
TRITONSERVER_ServerRegisterModelRepository(TRITONSERVER_Server *server, const char *repository_path,
                                           const TRITONSERVER_Parameter **name_mapping,
                                           const uint32_t mapping_count)
{
    NEED(server);
    NEED(repository_path);
    struct model_mapping *mappings = mem_try_zalloc((size_t)mapping_count + 1, sizeof(*mappings));
    struct status *st = mappings ? NULL : status_no_memory();
    for (uint32_t i = 0; i < mapping_count && !st; i++) {
        const struct parameter *p = parameter_of(name_mapping[i]);
        mappings[i] = (struct model_mapping){.folder = p->name, .name = p->string};
        if (p->type != PARAMETER_STRING)
            st = status_new(STATUS_INVALID_ARG,
                            "Mapped model name must be a string, found another type for %s",
                            p->name);
    }
    if (!st)
        st =
            server_register_repository(to_server(server), repository_path, mappings, mapping_count);
    mem_free(mappings);
    return as_status(st);
}

TRITONSERVER_Error *TRITONSERVER_ServerUnregisterModelRepository(TRITONSERVER_Server *server,
                                                                 const char *repository_path)
{
    NEED(server);
    NEED(repository_path);
    return as_status(server_unregister_repository(to_server(server), repository_path));
}

TRITONSERVER_Error *TRITONSERVER_ServerPollModelRepository(TRITONSERVER_Server *server)
{
    NEED(server);
    return as_status(server_poll(to_server(server)));
}

TRITONSERVER_Error *TRITONSERVER_ServerModelIndex(TRITONSERVER_Server *server, uint32_t flags,
                                                  TRITONSERVER_Message **model_index)
{
    AUTO(buf) text = BUF_INIT(MAX_DOCUMENT_BYTES);
    NEED(server);
    struct model_index_row *rows;
    size_t n_rows;
    struct status *st =
        server_index(to_server(server), flags & TRITONSERVER_INDEX_FLAG_READY, &rows, &n_rows);
    if (st)
        return as_status(st);
    document_index(rows, n_rows, &text);
    mem_free(rows);
    return give_message(&text, model_index);
}
