/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tritonserver.h - the server as a library: create it, ask it, run inferences in it.
 *
 * This is Conch's own text of Triton's in-process C interface, version 1.34: names, types, values
 * and signatures are the same, so programs and plugins compile with either and link with either.
 * What Conch does not export yet is listed in docs/compatibility.md; linking with it fails.
 *
 * Conventions
 *   - A function that can fail returns a TRITONSERVER_Error, which the caller owns and deletes, or
 *     NULL for success. Results are written on success only.
 *   - Objects are opaque. Who calls X…New() calls X…Delete(), unless the text says "taken".
 *   - A const char * that comes back belongs to the object that was asked.
 *   - Functions may be called from any thread. One object must not be changed by two threads at
 *     once, but different objects never mind each other.
 *   - model_version -1 means the version that the model's version policy prefers.
 */
#ifndef TRITON_CORE_TRITONSERVER_H
#define TRITON_CORE_TRITONSERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TRITONSERVER_DECLSPEC __attribute__((__visibility__("default")))

struct TRITONSERVER_BufferAttributes;
struct TRITONSERVER_Error;
struct TRITONSERVER_InferenceRequest;
struct TRITONSERVER_InferenceResponse;
struct TRITONSERVER_InferenceTrace;
struct TRITONSERVER_Message;
struct TRITONSERVER_Metric;
struct TRITONSERVER_MetricArgs;
struct TRITONSERVER_MetricFamily;
struct TRITONSERVER_Metrics;
struct TRITONSERVER_Parameter;
struct TRITONSERVER_ResponseAllocator;
struct TRITONSERVER_Server;
struct TRITONSERVER_ServerOptions;

typedef struct TRITONSERVER_BufferAttributes TRITONSERVER_BufferAttributes;
typedef struct TRITONSERVER_Error TRITONSERVER_Error;
typedef struct TRITONSERVER_InferenceRequest TRITONSERVER_InferenceRequest;
typedef struct TRITONSERVER_InferenceResponse TRITONSERVER_InferenceResponse;
typedef struct TRITONSERVER_InferenceTrace TRITONSERVER_InferenceTrace;
typedef struct TRITONSERVER_Message TRITONSERVER_Message;
typedef struct TRITONSERVER_Metric TRITONSERVER_Metric;
typedef struct TRITONSERVER_MetricArgs TRITONSERVER_MetricArgs;
typedef struct TRITONSERVER_MetricFamily TRITONSERVER_MetricFamily;
typedef struct TRITONSERVER_Metrics TRITONSERVER_Metrics;
typedef struct TRITONSERVER_Parameter TRITONSERVER_Parameter;
typedef struct TRITONSERVER_ResponseAllocator TRITONSERVER_ResponseAllocator;
typedef struct TRITONSERVER_Server TRITONSERVER_Server;
typedef struct TRITONSERVER_ServerOptions TRITONSERVER_ServerOptions;

/* ---- Version -------------------------------------------------------------------------------- */

/* The version this header describes. A library serves a program when the major numbers are equal
 * and the library's minor number is not smaller. */
#define TRITONSERVER_API_VERSION_MAJOR 1
#define TRITONSERVER_API_VERSION_MINOR 34

/* TRITONSERVER_ApiVersion - the version that the library implements. */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *TRITONSERVER_ApiVersion(uint32_t *major, uint32_t *minor);

/* ---- Data types, memory types, kinds -------------------------------------------------------- */

/* Type of a tensor's elements. Elements of BYTES are a 32-bit little-endian length and that many
 * bytes; all others have a fixed size. */
typedef enum TRITONSERVER_datatype_enum {
    TRITONSERVER_TYPE_INVALID,
    TRITONSERVER_TYPE_BOOL,
    TRITONSERVER_TYPE_UINT8,
    TRITONSERVER_TYPE_UINT16,
    TRITONSERVER_TYPE_UINT32,
    TRITONSERVER_TYPE_UINT64,
    TRITONSERVER_TYPE_INT8,
    TRITONSERVER_TYPE_INT16,
    TRITONSERVER_TYPE_INT32,
    TRITONSERVER_TYPE_INT64,
    TRITONSERVER_TYPE_FP16,
    TRITONSERVER_TYPE_FP32,
    TRITONSERVER_TYPE_FP64,
    TRITONSERVER_TYPE_BYTES,
    TRITONSERVER_TYPE_BF16
} TRITONSERVER_DataType;

/* TRITONSERVER_DataTypeString - name on the wire ("FP32"); "<invalid>" for a value that is none. */
TRITONSERVER_DECLSPEC const char *TRITONSERVER_DataTypeString(TRITONSERVER_DataType datatype);

/* TRITONSERVER_StringToDataType - the inverse; TRITONSERVER_TYPE_INVALID for an unknown name. */
TRITONSERVER_DECLSPEC TRITONSERVER_DataType TRITONSERVER_StringToDataType(const char *dtype);

/* TRITONSERVER_DataTypeByteSize - bytes of one element; 0 for BYTES, whose elements vary. */
TRITONSERVER_DECLSPEC uint32_t TRITONSERVER_DataTypeByteSize(TRITONSERVER_DataType datatype);

/* Where a buffer lives. */
typedef enum TRITONSERVER_memorytype_enum {
    TRITONSERVER_MEMORY_CPU,
    TRITONSERVER_MEMORY_CPU_PINNED,
    TRITONSERVER_MEMORY_GPU
} TRITONSERVER_MemoryType;

/* TRITONSERVER_MemoryTypeString - "CPU", "CPU_PINNED", "GPU" or "<invalid>". */
TRITONSERVER_DECLSPEC const char *TRITONSERVER_MemoryTypeString(TRITONSERVER_MemoryType memtype);

/* Type of a parameter's value. */
typedef enum TRITONSERVER_parametertype_enum {
    TRITONSERVER_PARAMETER_STRING,
    TRITONSERVER_PARAMETER_INT,
    TRITONSERVER_PARAMETER_BOOL,
    TRITONSERVER_PARAMETER_DOUBLE,
    TRITONSERVER_PARAMETER_BYTES
} TRITONSERVER_ParameterType;

/* TRITONSERVER_ParameterTypeString - "STRING", "INT", "BOOL", "DOUBLE", "BYTES" or "<invalid>". */
TRITONSERVER_DECLSPEC const char *
TRITONSERVER_ParameterTypeString(TRITONSERVER_ParameterType paramtype);

/* The sort of device that a model instance runs on. The numbers differ from ModelInstanceGroup.Kind
 * of the model configuration. */
typedef enum TRITONSERVER_instancegroupkind_enum {
    TRITONSERVER_INSTANCEGROUPKIND_AUTO,
    TRITONSERVER_INSTANCEGROUPKIND_CPU,
    TRITONSERVER_INSTANCEGROUPKIND_GPU,
    TRITONSERVER_INSTANCEGROUPKIND_MODEL
} TRITONSERVER_InstanceGroupKind;

/* TRITONSERVER_InstanceGroupKindString - "AUTO", "CPU", "GPU", "MODEL" or "<invalid>". */
TRITONSERVER_DECLSPEC const char *
TRITONSERVER_InstanceGroupKindString(TRITONSERVER_InstanceGroupKind kind);

/* ---- Errors --------------------------------------------------------------------------------- */

typedef enum TRITONSERVER_errorcode_enum {
    TRITONSERVER_ERROR_UNKNOWN,
    TRITONSERVER_ERROR_INTERNAL,
    TRITONSERVER_ERROR_NOT_FOUND,
    TRITONSERVER_ERROR_INVALID_ARG,
    TRITONSERVER_ERROR_UNAVAILABLE,
    TRITONSERVER_ERROR_UNSUPPORTED,
    TRITONSERVER_ERROR_ALREADY_EXISTS,
    TRITONSERVER_ERROR_CANCELLED
} TRITONSERVER_Error_Code;

/*
 * TRITONSERVER_ErrorNew - an error with a code and a text.
 * @msg  copied
 * The caller owns the result.
 */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *TRITONSERVER_ErrorNew(TRITONSERVER_Error_Code code,
                                                                const char *msg);

/* TRITONSERVER_ErrorDelete - end an error. */
TRITONSERVER_DECLSPEC void TRITONSERVER_ErrorDelete(TRITONSERVER_Error *error);

/* TRITONSERVER_ErrorCode - its code. */
TRITONSERVER_DECLSPEC TRITONSERVER_Error_Code TRITONSERVER_ErrorCode(TRITONSERVER_Error *error);

/* TRITONSERVER_ErrorCodeString - its code as text, e.g. "Invalid argument". */
TRITONSERVER_DECLSPEC const char *TRITONSERVER_ErrorCodeString(TRITONSERVER_Error *error);

/* TRITONSERVER_ErrorMessage - its text. Lives as long as the error. */
TRITONSERVER_DECLSPEC const char *TRITONSERVER_ErrorMessage(TRITONSERVER_Error *error);

/* ---- Log ------------------------------------------------------------------------------------ */

typedef enum TRITONSERVER_loglevel_enum {
    TRITONSERVER_LOG_INFO,
    TRITONSERVER_LOG_WARN,
    TRITONSERVER_LOG_ERROR,
    TRITONSERVER_LOG_VERBOSE
} TRITONSERVER_LogLevel;

typedef enum TRITONSERVER_logformat_enum {
    TRITONSERVER_LOG_DEFAULT,
    TRITONSERVER_LOG_ISO8601
} TRITONSERVER_LogFormat;

/* TRITONSERVER_LogIsEnabled - would a message of this level be written? Cheap. */
TRITONSERVER_DECLSPEC bool TRITONSERVER_LogIsEnabled(TRITONSERVER_LogLevel level);

/*
 * TRITONSERVER_LogMessage - write one message to the server's log.
 * @filename, @line  where in the source it arose
 */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *TRITONSERVER_LogMessage(TRITONSERVER_LogLevel level,
                                                                  const char *filename,
                                                                  const int line, const char *msg);

/* ---- Parameters ----------------------------------------------------------------------------- */

/*
 * TRITONSERVER_ParameterNew - a named value.
 * @value  STRING: a const char *, copied; INT: int64_t *; BOOL: bool *; DOUBLE: double *
 * Returns NULL for type BYTES.
 */
TRITONSERVER_DECLSPEC TRITONSERVER_Parameter *
TRITONSERVER_ParameterNew(const char *name, const TRITONSERVER_ParameterType type,
                          const void *value);

/*
 * TRITONSERVER_ParameterBytesNew - a named run of bytes.
 * @byte_ptr  not copied: it must outlive the parameter
 */
TRITONSERVER_DECLSPEC TRITONSERVER_Parameter *
TRITONSERVER_ParameterBytesNew(const char *name, const void *byte_ptr, const uint64_t size);

/* TRITONSERVER_ParameterDelete - end a parameter. */
TRITONSERVER_DECLSPEC void TRITONSERVER_ParameterDelete(TRITONSERVER_Parameter *parameter);

/* ---- Messages: documents in JSON ------------------------------------------------------------ */

/*
 * TRITONSERVER_MessageNewFromSerializedJson - a document.
 * @base, @byte_size  the text, copied; it is not looked at before it is used
 */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_MessageNewFromSerializedJson(TRITONSERVER_Message **message, const char *base,
                                          size_t byte_size);

/* TRITONSERVER_MessageDelete - end a message and the text it gave out. */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *TRITONSERVER_MessageDelete(TRITONSERVER_Message *message);

/*
 * TRITONSERVER_MessageSerializeToJson - the document as text.
 * @base, @byte_size  borrowed from the message; not terminated by a zero byte
 */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_MessageSerializeToJson(TRITONSERVER_Message *message, const char **base,
                                    size_t *byte_size);

/* ---- Buffer attributes: where a buffer lives and how large it is ---------------------------- */

/* TRITONSERVER_BufferAttributesNew - all zero: CPU memory, device 0, no bytes, no handle. */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_BufferAttributesNew(TRITONSERVER_BufferAttributes **buffer_attributes);

/* TRITONSERVER_BufferAttributesDelete - end it. */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_BufferAttributesDelete(TRITONSERVER_BufferAttributes *buffer_attributes);

/* TRITONSERVER_BufferAttributesSet… - set one field. The handle is kept as the pointer it is. */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_BufferAttributesSetMemoryTypeId(TRITONSERVER_BufferAttributes *buffer_attributes,
                                             int64_t memory_type_id);
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_BufferAttributesSetMemoryType(TRITONSERVER_BufferAttributes *buffer_attributes,
                                           TRITONSERVER_MemoryType memory_type);
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_BufferAttributesSetCudaIpcHandle(TRITONSERVER_BufferAttributes *buffer_attributes,
                                              void *cuda_ipc_handle);
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_BufferAttributesSetByteSize(TRITONSERVER_BufferAttributes *buffer_attributes,
                                         size_t byte_size);

/* TRITONSERVER_BufferAttributes… - read one field. */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_BufferAttributesMemoryTypeId(TRITONSERVER_BufferAttributes *buffer_attributes,
                                          int64_t *memory_type_id);
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_BufferAttributesMemoryType(TRITONSERVER_BufferAttributes *buffer_attributes,
                                        TRITONSERVER_MemoryType *memory_type);
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_BufferAttributesCudaIpcHandle(TRITONSERVER_BufferAttributes *buffer_attributes,
                                           void **cuda_ipc_handle);
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_BufferAttributesByteSize(TRITONSERVER_BufferAttributes *buffer_attributes,
                                      size_t *byte_size);

/* ---- Response allocator: the embedder's memory for outputs ---------------------------------- */

/*
 * TRITONSERVER_ResponseAllocatorAllocFn_t - give memory for one output.
 * Thread: any, also several at once for different responses.
 * @memory_type, @memory_type_id  where the backend would like it
 * @userp                 response_allocator_userp of the request
 * @buffer                NULL without an error is handed on: the backend has nowhere to write to
 * @buffer_userp          anything; handed to the release function and to who reads the output
 * @actual_memory_type…   where it really is; the backend follows
 * An error makes the response an error response.
 */
typedef TRITONSERVER_Error *(*TRITONSERVER_ResponseAllocatorAllocFn_t)(
    TRITONSERVER_ResponseAllocator *allocator, const char *tensor_name, size_t byte_size,
    TRITONSERVER_MemoryType memory_type, int64_t memory_type_id, void *userp, void **buffer,
    void **buffer_userp, TRITONSERVER_MemoryType *actual_memory_type,
    int64_t *actual_memory_type_id);

/* TRITONSERVER_ResponseAllocatorBufferAttributesFn_t - fill in what is known of a given buffer. */
typedef TRITONSERVER_Error *(*TRITONSERVER_ResponseAllocatorBufferAttributesFn_t)(
    TRITONSERVER_ResponseAllocator *allocator, const char *tensor_name,
    TRITONSERVER_BufferAttributes *buffer_attributes, void *userp, void *buffer_userp);

/*
 * TRITONSERVER_ResponseAllocatorQueryFn_t - where would an output be allocated?
 * @tensor_name  NULL: any output
 * @byte_size    NULL: unknown
 * @memory_type, @memory_type_id  in: what the backend would like; out: what it will get
 */
typedef TRITONSERVER_Error *(*TRITONSERVER_ResponseAllocatorQueryFn_t)(
    TRITONSERVER_ResponseAllocator *allocator, void *userp, const char *tensor_name,
    size_t *byte_size, TRITONSERVER_MemoryType *memory_type, int64_t *memory_type_id);

/* TRITONSERVER_ResponseAllocatorReleaseFn_t - take back the memory of one output. Always succeeds:
 * an error is logged and deleted. */
typedef TRITONSERVER_Error *(*TRITONSERVER_ResponseAllocatorReleaseFn_t)(
    TRITONSERVER_ResponseAllocator *allocator, void *buffer, void *buffer_userp, size_t byte_size,
    TRITONSERVER_MemoryType memory_type, int64_t memory_type_id);

/* TRITONSERVER_ResponseAllocatorStartFn_t - a response begins; its allocations follow. */
typedef TRITONSERVER_Error *(*TRITONSERVER_ResponseAllocatorStartFn_t)(
    TRITONSERVER_ResponseAllocator *allocator, void *userp);

/*
 * TRITONSERVER_ResponseAllocatorNew - an allocator from functions.
 * @start_fn  may be NULL
 * It must outlive all requests that name it. One allocator serves any number of requests.
 */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_ResponseAllocatorNew(TRITONSERVER_ResponseAllocator **allocator,
                                  TRITONSERVER_ResponseAllocatorAllocFn_t alloc_fn,
                                  TRITONSERVER_ResponseAllocatorReleaseFn_t release_fn,
                                  TRITONSERVER_ResponseAllocatorStartFn_t start_fn);

/* TRITONSERVER_ResponseAllocatorSetBufferAttributesFunction - optional, before the first use. */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *TRITONSERVER_ResponseAllocatorSetBufferAttributesFunction(
    TRITONSERVER_ResponseAllocator *allocator,
    TRITONSERVER_ResponseAllocatorBufferAttributesFn_t buffer_attributes_fn);

/* TRITONSERVER_ResponseAllocatorSetQueryFunction - optional, before the first use. */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_ResponseAllocatorSetQueryFunction(TRITONSERVER_ResponseAllocator *allocator,
                                               TRITONSERVER_ResponseAllocatorQueryFn_t query_fn);

/* TRITONSERVER_ResponseAllocatorDelete - end it. */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_ResponseAllocatorDelete(TRITONSERVER_ResponseAllocator *allocator);

/* ---- Metrics: all of them, as a scrape sees them -------------------------------------------- */

typedef enum tritonserver_metricformat_enum {
    TRITONSERVER_METRIC_PROMETHEUS /* its text format */
} TRITONSERVER_MetricFormat;

/* TRITONSERVER_MetricsDelete - end what ServerMetrics gave, and its text. */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *TRITONSERVER_MetricsDelete(TRITONSERVER_Metrics *metrics);

/*
 * TRITONSERVER_MetricsFormatted - the metrics as text.
 * @base, @byte_size  borrowed from the object
 * Errors: INVALID_ARG  no such format
 */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_MetricsFormatted(TRITONSERVER_Metrics *metrics, TRITONSERVER_MetricFormat format,
                              const char **base, size_t *byte_size);

/* ---- Traces: when did what happen to one request -------------------------------------------- */

/* What is reported (bits). MIN and MAX are older names that TIMESTAMPS has taken the place of. */
typedef enum tritonserver_tracelevel_enum {
    TRITONSERVER_TRACE_LEVEL_DISABLED = 0,
    TRITONSERVER_TRACE_LEVEL_MIN = 1,
    TRITONSERVER_TRACE_LEVEL_MAX = 2,
    TRITONSERVER_TRACE_LEVEL_TIMESTAMPS = 4,
    TRITONSERVER_TRACE_LEVEL_TENSORS = 8
} TRITONSERVER_InferenceTraceLevel;

/* TRITONSERVER_InferenceTraceLevelString - "DISABLED", "MIN", …; "<unknown>" for anything else. */
TRITONSERVER_DECLSPEC const char *
TRITONSERVER_InferenceTraceLevelString(TRITONSERVER_InferenceTraceLevel level);

typedef enum tritonserver_traceactivity_enum {
    TRITONSERVER_TRACE_REQUEST_START,
    TRITONSERVER_TRACE_QUEUE_START,
    TRITONSERVER_TRACE_COMPUTE_START,
    TRITONSERVER_TRACE_COMPUTE_INPUT_END,
    TRITONSERVER_TRACE_COMPUTE_OUTPUT_START,
    TRITONSERVER_TRACE_COMPUTE_END,
    TRITONSERVER_TRACE_REQUEST_END,
    TRITONSERVER_TRACE_TENSOR_QUEUE_INPUT,
    TRITONSERVER_TRACE_TENSOR_BACKEND_INPUT,
    TRITONSERVER_TRACE_TENSOR_BACKEND_OUTPUT,
    TRITONSERVER_TRACE_CUSTOM_ACTIVITY
} TRITONSERVER_InferenceTraceActivity;

/* TRITONSERVER_InferenceTraceActivityString - "REQUEST_START", …; "<unknown>". */
TRITONSERVER_DECLSPEC const char *
TRITONSERVER_InferenceTraceActivityString(TRITONSERVER_InferenceTraceActivity activity);

/*
 * TRITONSERVER_InferenceTraceActivityFn_t - something has happened.
 * Thread: any; must not block.
 * @trace         borrowed, for this call
 * @timestamp_ns  CLOCK_MONOTONIC
 */
typedef void (*TRITONSERVER_InferenceTraceActivityFn_t)(
    TRITONSERVER_InferenceTrace *trace, TRITONSERVER_InferenceTraceActivity activity,
    uint64_t timestamp_ns, void *userp);

/*
 * TRITONSERVER_InferenceTraceTensorActivityFn_t - a tensor has passed a point.
 * Thread: any; must not block.
 * @base, @shape  borrowed, for this call
 */
typedef void (*TRITONSERVER_InferenceTraceTensorActivityFn_t)(
    TRITONSERVER_InferenceTrace *trace, TRITONSERVER_InferenceTraceActivity activity,
    const char *name, TRITONSERVER_DataType datatype, const void *base, size_t byte_size,
    const int64_t *shape, uint64_t dim_count, TRITONSERVER_MemoryType memory_type,
    int64_t memory_type_id, void *userp);

/* TRITONSERVER_InferenceTraceReleaseFn_t - nothing more will be reported; the callee deletes the
 * trace. Once for each trace, children included. */
typedef void (*TRITONSERVER_InferenceTraceReleaseFn_t)(TRITONSERVER_InferenceTrace *trace,
                                                       void *userp);

/*
 * TRITONSERVER_InferenceTraceNew - a trace for one request.
 * @level      TRITONSERVER_InferenceTraceLevel bits
 * @parent_id  0 = none
 * The caller owns it until ServerInferAsync takes it; its children inherit functions and userp.
 */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *TRITONSERVER_InferenceTraceNew(
    TRITONSERVER_InferenceTrace **trace, TRITONSERVER_InferenceTraceLevel level, uint64_t parent_id,
    TRITONSERVER_InferenceTraceActivityFn_t activity_fn,
    TRITONSERVER_InferenceTraceReleaseFn_t release_fn, void *trace_userp);

/* TRITONSERVER_InferenceTraceTensorNew - the same with a function for tensors. */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *TRITONSERVER_InferenceTraceTensorNew(
    TRITONSERVER_InferenceTrace **trace, TRITONSERVER_InferenceTraceLevel level, uint64_t parent_id,
    TRITONSERVER_InferenceTraceActivityFn_t activity_fn,
    TRITONSERVER_InferenceTraceTensorActivityFn_t tensor_activity_fn,
    TRITONSERVER_InferenceTraceReleaseFn_t release_fn, void *trace_userp);

/*
 * TRITONSERVER_InferenceTraceReportActivity - report a CUSTOM_ACTIVITY of that name.
 * While it is reported, the trace's context has one more member, "<timestamp>":"<name>".
 */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_InferenceTraceReportActivity(TRITONSERVER_InferenceTrace *trace, uint64_t timestamp,
                                          const char *activity_name);

/* TRITONSERVER_InferenceTraceDelete - end a trace. */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_InferenceTraceDelete(TRITONSERVER_InferenceTrace *trace);

/* TRITONSERVER_InferenceTraceId - its number: unique in the process, from 1. */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_InferenceTraceId(TRITONSERVER_InferenceTrace *trace, uint64_t *id);

/* TRITONSERVER_InferenceTraceParentId - its parent's number; 0 = it has none. */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_InferenceTraceParentId(TRITONSERVER_InferenceTrace *trace, uint64_t *parent_id);

/* TRITONSERVER_InferenceTraceModelName - the model of its request; "" before that is known. */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_InferenceTraceModelName(TRITONSERVER_InferenceTrace *trace, const char **model_name);

/* TRITONSERVER_InferenceTraceModelVersion - and its version; -1 before that is known. */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_InferenceTraceModelVersion(TRITONSERVER_InferenceTrace *trace, int64_t *model_version);

/* TRITONSERVER_InferenceTraceRequestId - the id of its request; "" if that has none. */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_InferenceTraceRequestId(TRITONSERVER_InferenceTrace *trace, const char **request_id);

/* TRITONSERVER_InferenceTraceSpawnChildTrace - a trace of a request that this one leads to. The
 * caller owns it. */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_InferenceTraceSpawnChildTrace(TRITONSERVER_InferenceTrace *trace,
                                           TRITONSERVER_InferenceTrace **child_trace);

/* TRITONSERVER_InferenceTraceSetContext - text of a tracing system, copied. */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_InferenceTraceSetContext(TRITONSERVER_InferenceTrace *trace,
                                      const char *trace_context);

/* TRITONSERVER_InferenceTraceContext - that text; "" unless set. */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_InferenceTraceContext(TRITONSERVER_InferenceTrace *trace, const char **trace_context);

/* ---- Inference request ---------------------------------------------------------------------- */

/* Flags of a request (bits). */
typedef enum tritonserver_requestflag_enum {
    TRITONSERVER_REQUEST_FLAG_SEQUENCE_START = 1,
    TRITONSERVER_REQUEST_FLAG_SEQUENCE_END = 2
} TRITONSERVER_RequestFlag;

/* Flags with which a request is released (bits). */
typedef enum tritonserver_requestreleaseflag_enum {
    TRITONSERVER_REQUEST_RELEASE_ALL = 1,
    TRITONSERVER_REQUEST_RELEASE_RESCHEDULE = 2
} TRITONSERVER_RequestReleaseFlag;

/* Flags with which a response arrives (bits). */
typedef enum tritonserver_responsecompleteflag_enum {
    TRITONSERVER_RESPONSE_COMPLETE_FINAL = 1
} TRITONSERVER_ResponseCompleteFlag;

/*
 * TRITONSERVER_InferenceRequestReleaseFn_t - the server is done with a request object.
 * Thread: any. The embedder may delete the request, change it and run it again, or free its input
 * memory. It may come before or after the responses.
 * @flags  TRITONSERVER_RequestReleaseFlag bits
 */
typedef void (*TRITONSERVER_InferenceRequestReleaseFn_t)(TRITONSERVER_InferenceRequest *request,
                                                         const uint32_t flags, void *userp);

/*
 * TRITONSERVER_InferenceResponseCompleteFn_t - a response has arrived.
 * Thread: any; must not block.
 * @response  the callee's from now on, to be deleted; NULL: only the flags are news
 * @flags     TRITONSERVER_ResponseCompleteFlag bits; FINAL comes exactly once per request
 */
typedef void (*TRITONSERVER_InferenceResponseCompleteFn_t)(TRITONSERVER_InferenceResponse *response,
                                                           const uint32_t flags, void *userp);

/*
 * TRITONSERVER_InferenceRequestNew - an empty request to one model.
 * It does not keep the model loaded: after an unload, running it is refused (UNAVAILABLE).
 * Errors: NOT_FOUND, UNAVAILABLE  the model or version is unknown or not ready
 */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_InferenceRequestNew(TRITONSERVER_InferenceRequest **inference_request,
                                 TRITONSERVER_Server *server, const char *model_name,
                                 const int64_t model_version);

/* TRITONSERVER_InferenceRequestDelete - end a request that the server does not hold. */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_InferenceRequestDelete(TRITONSERVER_InferenceRequest *inference_request);

/* TRITONSERVER_InferenceRequestId - its id; "" unless set. */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_InferenceRequestId(TRITONSERVER_InferenceRequest *inference_request, const char **id);

/* TRITONSERVER_InferenceRequestSetId - any text, copied; it comes back in the response. */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_InferenceRequestSetId(TRITONSERVER_InferenceRequest *inference_request,
                                   const char *id);

/* TRITONSERVER_InferenceRequestFlags - its TRITONSERVER_RequestFlag bits. */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_InferenceRequestFlags(TRITONSERVER_InferenceRequest *inference_request,
                                   uint32_t *flags);

/* TRITONSERVER_InferenceRequestSetFlags - replace its TRITONSERVER_RequestFlag bits. */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_InferenceRequestSetFlags(TRITONSERVER_InferenceRequest *inference_request,
                                      uint32_t flags);

/*
 * TRITONSERVER_InferenceRequestCorrelationId - the sequence it belongs to; 0 = none.
 * Errors: INVALID_ARG  the id is a string
 */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_InferenceRequestCorrelationId(TRITONSERVER_InferenceRequest *inference_request,
                                           uint64_t *correlation_id);

/*
 * TRITONSERVER_InferenceRequestCorrelationIdString - the same when the id is a string.
 * Errors: INVALID_ARG  the id is a number
 */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_InferenceRequestCorrelationIdString(TRITONSERVER_InferenceRequest *inference_request,
                                                 const char **correlation_id);

/* TRITONSERVER_InferenceRequestSetCorrelationId - a number; replaces whatever was set. */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_InferenceRequestSetCorrelationId(TRITONSERVER_InferenceRequest *inference_request,
                                              uint64_t correlation_id);

/*
 * TRITONSERVER_InferenceRequestSetCorrelationIdString - a string; replaces whatever was set.
 * Errors: UNSUPPORTED  longer than 128 bytes
 */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *TRITONSERVER_InferenceRequestSetCorrelationIdString(
    TRITONSERVER_InferenceRequest *inference_request, const char *correlation_id);

/*
 * TRITONSERVER_InferenceRequestCancel - ask for it to end early.
 * Thread: any, while the request runs. What has not begun to execute is answered with CANCELLED;
 * a backend that looks may stop. The final response comes in every case.
 */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_InferenceRequestCancel(TRITONSERVER_InferenceRequest *inference_request);

/* TRITONSERVER_InferenceRequestIsCancelled - has that been asked? */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_InferenceRequestIsCancelled(TRITONSERVER_InferenceRequest *inference_request,
                                         bool *is_cancelled);

/*
 * TRITONSERVER_InferenceRequestPriority - its priority; 0 = the model's default, 1 = most urgent.
 * Errors: INVALID_ARG  the value needs more than 32 bits
 */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_InferenceRequestPriority(TRITONSERVER_InferenceRequest *inference_request,
                                      uint32_t *priority);

/* TRITONSERVER_InferenceRequestPriorityUInt64 - the same in 64 bits. */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_InferenceRequestPriorityUInt64(TRITONSERVER_InferenceRequest *inference_request,
                                            uint64_t *priority);

/* TRITONSERVER_InferenceRequestSetPriority - set it; what the model does not know is its default.
 */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_InferenceRequestSetPriority(TRITONSERVER_InferenceRequest *inference_request,
                                         uint32_t priority);

/* TRITONSERVER_InferenceRequestSetPriorityUInt64 - the same in 64 bits. */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_InferenceRequestSetPriorityUInt64(TRITONSERVER_InferenceRequest *inference_request,
                                               uint64_t priority);

/* TRITONSERVER_InferenceRequestTimeoutMicroseconds - longest wait in the queue; 0 = default. */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_InferenceRequestTimeoutMicroseconds(TRITONSERVER_InferenceRequest *inference_request,
                                                 uint64_t *timeout_us);

/* TRITONSERVER_InferenceRequestSetTimeoutMicroseconds - set it. */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *TRITONSERVER_InferenceRequestSetTimeoutMicroseconds(
    TRITONSERVER_InferenceRequest *inference_request, uint64_t timeout_us);

/*
 * TRITONSERVER_InferenceRequestAddInput - an input, without data as yet.
 * @name, @shape  copied; the shape includes the batch dimension if the model batches
 * Errors: INVALID_ARG  the request has this input, or the shape is impossible
 */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_InferenceRequestAddInput(TRITONSERVER_InferenceRequest *inference_request,
                                      const char *name, const TRITONSERVER_DataType datatype,
                                      const int64_t *shape, uint64_t dim_count);

/*
 * TRITONSERVER_InferenceRequestAddRawInput - the only input, with type and shape left to the model.
 * Errors: INVALID_ARG  the request has inputs, or the model's type and shape do not settle it
 */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_InferenceRequestAddRawInput(TRITONSERVER_InferenceRequest *inference_request,
                                         const char *name);

/* TRITONSERVER_InferenceRequestRemoveInput - forget one input and its data. */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_InferenceRequestRemoveInput(TRITONSERVER_InferenceRequest *inference_request,
                                         const char *name);

/* TRITONSERVER_InferenceRequestRemoveAllInputs - forget all of them. */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_InferenceRequestRemoveAllInputs(TRITONSERVER_InferenceRequest *inference_request);

/*
 * TRITONSERVER_InferenceRequestAppendInputData - one more piece of an input's data.
 * @base  not copied: it stays as it is until the release callback. Pieces count in the order given
 * Errors: INVALID_ARG  no such input
 */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *TRITONSERVER_InferenceRequestAppendInputData(
    TRITONSERVER_InferenceRequest *inference_request, const char *name, const void *base,
    size_t byte_size, TRITONSERVER_MemoryType memory_type, int64_t memory_type_id);

/*
 * TRITONSERVER_InferenceRequestAppendInputDataWithHostPolicy - data for instances of one policy.
 * Instances under other policies see the pieces appended without one.
 */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_InferenceRequestAppendInputDataWithHostPolicy(
    TRITONSERVER_InferenceRequest *inference_request, const char *name, const void *base,
    size_t byte_size, TRITONSERVER_MemoryType memory_type, int64_t memory_type_id,
    const char *host_policy_name);

/* TRITONSERVER_InferenceRequestAppendInputDataWithBufferAttributes - size and place in one object,
 * which is copied. */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_InferenceRequestAppendInputDataWithBufferAttributes(
    TRITONSERVER_InferenceRequest *inference_request, const char *name, const void *base,
    TRITONSERVER_BufferAttributes *buffer_attributes);

/* TRITONSERVER_InferenceRequestRemoveAllInputData - keep the input, forget its data. */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_InferenceRequestRemoveAllInputData(TRITONSERVER_InferenceRequest *inference_request,
                                                const char *name);

/* TRITONSERVER_InferenceRequestAddRequestedOutput - ask for one output. None asked = all. */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_InferenceRequestAddRequestedOutput(TRITONSERVER_InferenceRequest *inference_request,
                                                const char *name);

/* TRITONSERVER_InferenceRequestRemoveRequestedOutput - no longer ask for it. */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_InferenceRequestRemoveRequestedOutput(TRITONSERVER_InferenceRequest *inference_request,
                                                   const char *name);

/* TRITONSERVER_InferenceRequestRemoveAllRequestedOutputs - ask for all again. */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *TRITONSERVER_InferenceRequestRemoveAllRequestedOutputs(
    TRITONSERVER_InferenceRequest *inference_request);

/* TRITONSERVER_InferenceRequestSetReleaseCallback - needed before the request can run. */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *TRITONSERVER_InferenceRequestSetReleaseCallback(
    TRITONSERVER_InferenceRequest *inference_request,
    TRITONSERVER_InferenceRequestReleaseFn_t request_release_fn, void *request_release_userp);

/* TRITONSERVER_InferenceRequestSetResponseCallback - memory for outputs, and who hears of
 * responses; needed before the request can run. */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *TRITONSERVER_InferenceRequestSetResponseCallback(
    TRITONSERVER_InferenceRequest *inference_request,
    TRITONSERVER_ResponseAllocator *response_allocator, void *response_allocator_userp,
    TRITONSERVER_InferenceResponseCompleteFn_t response_fn, void *response_userp);

/* TRITONSERVER_InferenceRequestSet…Parameter - add a parameter that the backend can read. */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_InferenceRequestSetStringParameter(TRITONSERVER_InferenceRequest *request,
                                                const char *key, const char *value);
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_InferenceRequestSetIntParameter(TRITONSERVER_InferenceRequest *request,
                                             const char *key, const int64_t value);
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_InferenceRequestSetBoolParameter(TRITONSERVER_InferenceRequest *request,
                                              const char *key, const bool value);
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_InferenceRequestSetDoubleParameter(TRITONSERVER_InferenceRequest *request,
                                                const char *key, const double value);

/* ---- Inference response --------------------------------------------------------------------- */

/* TRITONSERVER_InferenceResponseDelete - end it; its output memory goes back to the allocator. */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_InferenceResponseDelete(TRITONSERVER_InferenceResponse *inference_response);

/* TRITONSERVER_InferenceResponseError - NULL if it succeeded; else an error that the response owns
 * (do not delete it). */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_InferenceResponseError(TRITONSERVER_InferenceResponse *inference_response);

/* TRITONSERVER_InferenceResponseModel - which model and version answered. */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_InferenceResponseModel(TRITONSERVER_InferenceResponse *inference_response,
                                    const char **model_name, int64_t *model_version);

/* TRITONSERVER_InferenceResponseId - the id of its request. */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_InferenceResponseId(TRITONSERVER_InferenceResponse *inference_response,
                                 const char **request_id);

/* TRITONSERVER_InferenceResponseParameterCount - number of parameters that the backend set. */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_InferenceResponseParameterCount(TRITONSERVER_InferenceResponse *inference_response,
                                             uint32_t *count);

/*
 * TRITONSERVER_InferenceResponseParameter - one of them.
 * @vvalue  STRING: the const char * itself; INT, BOOL, DOUBLE: pointer to int64_t, bool, double
 */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_InferenceResponseParameter(TRITONSERVER_InferenceResponse *inference_response,
                                        const uint32_t index, const char **name,
                                        TRITONSERVER_ParameterType *type, const void **vvalue);

/* TRITONSERVER_InferenceResponseOutputCount - number of outputs. */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_InferenceResponseOutputCount(TRITONSERVER_InferenceResponse *inference_response,
                                          uint32_t *count);

/*
 * TRITONSERVER_InferenceResponseOutput - one of them. Everything is borrowed from the response.
 * @userp  buffer_userp of the allocation
 */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *TRITONSERVER_InferenceResponseOutput(
    TRITONSERVER_InferenceResponse *inference_response, const uint32_t index, const char **name,
    TRITONSERVER_DataType *datatype, const int64_t **shape, uint64_t *dim_count, const void **base,
    size_t *byte_size, TRITONSERVER_MemoryType *memory_type, int64_t *memory_type_id, void **userp);

/* TRITONSERVER_InferenceResponseOutputClassificationLabel - line class_index of the output's label
 * file; NULL if there is none. */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *TRITONSERVER_InferenceResponseOutputClassificationLabel(
    TRITONSERVER_InferenceResponse *inference_response, const uint32_t index,
    const size_t class_index, const char **label);

/* ---- Server options ------------------------------------------------------------------------- */

/* When models are loaded and unloaded. */
typedef enum tritonserver_modelcontrolmode_enum {
    TRITONSERVER_MODEL_CONTROL_NONE,
    TRITONSERVER_MODEL_CONTROL_POLL,
    TRITONSERVER_MODEL_CONTROL_EXPLICIT
} TRITONSERVER_ModelControlMode;

/* How executions are limited across models. */
typedef enum tritonserver_ratelimitmode_enum {
    TRITONSERVER_RATE_LIMIT_OFF,
    TRITONSERVER_RATE_LIMIT_EXEC_COUNT
} TRITONSERVER_RateLimitMode;

/* TRITONSERVER_ServerOptionsNew - all defaults. Setters copy their arguments. */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_ServerOptionsNew(TRITONSERVER_ServerOptions **options);

/* TRITONSERVER_ServerOptionsDelete - end it; servers made from it go on. */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_ServerOptionsDelete(TRITONSERVER_ServerOptions *options);

/* TRITONSERVER_ServerOptionsSetServerId - name in the server's metadata. */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_ServerOptionsSetServerId(TRITONSERVER_ServerOptions *options, const char *server_id);

/* TRITONSERVER_ServerOptionsSetModelRepositoryPath - one more repository. */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_ServerOptionsSetModelRepositoryPath(TRITONSERVER_ServerOptions *options,
                                                 const char *model_repository_path);

/* TRITONSERVER_ServerOptionsSetModelControlMode - when models load and unload. */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_ServerOptionsSetModelControlMode(TRITONSERVER_ServerOptions *options,
                                              TRITONSERVER_ModelControlMode mode);

/* TRITONSERVER_ServerOptionsSetStartupModel - one more model to load at start (mode EXPLICIT). */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_ServerOptionsSetStartupModel(TRITONSERVER_ServerOptions *options,
                                          const char *model_name);

/* TRITONSERVER_ServerOptionsSetStrictModelConfig - true: configurations are never completed. */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_ServerOptionsSetStrictModelConfig(TRITONSERVER_ServerOptions *options, bool strict);

/* TRITONSERVER_ServerOptionsSetModelConfigName - prefer configs/NAME.pbtxt to config.pbtxt. */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_ServerOptionsSetModelConfigName(TRITONSERVER_ServerOptions *options,
                                             const char *model_config_name);

/* TRITONSERVER_ServerOptionsSetRateLimiterMode - how executions are limited. */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_ServerOptionsSetRateLimiterMode(TRITONSERVER_ServerOptions *options,
                                             TRITONSERVER_RateLimitMode mode);

/* TRITONSERVER_ServerOptionsAddRateLimiterResource - how much of a resource there is.
 * @device  -1: on each device */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_ServerOptionsAddRateLimiterResource(TRITONSERVER_ServerOptions *options,
                                                 const char *resource_name,
                                                 const size_t resource_count, const int device);

/* TRITONSERVER_ServerOptionsSetPinnedMemoryPoolByteSize - pool of pinned host memory, bytes. */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_ServerOptionsSetPinnedMemoryPoolByteSize(TRITONSERVER_ServerOptions *options,
                                                      uint64_t size);

/* TRITONSERVER_ServerOptionsSetCudaMemoryPoolByteSize - pool of one GPU, bytes. */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_ServerOptionsSetCudaMemoryPoolByteSize(TRITONSERVER_ServerOptions *options,
                                                    int gpu_device, uint64_t size);

/* TRITONSERVER_ServerOptionsSetCudaVirtualAddressSize - address space set aside on one GPU, bytes.
 */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *TRITONSERVER_ServerOptionsSetCudaVirtualAddressSize(
    TRITONSERVER_ServerOptions *options, int gpu_device, size_t cuda_virtual_address_size);

/* TRITONSERVER_ServerOptionsSetResponseCacheByteSize - a local response cache of this size. */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_ServerOptionsSetResponseCacheByteSize(TRITONSERVER_ServerOptions *options,
                                                   uint64_t size);

/* TRITONSERVER_ServerOptionsSetCacheConfig - the configuration of one response cache. */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_ServerOptionsSetCacheConfig(TRITONSERVER_ServerOptions *options,
                                         const char *cache_name, const char *config_json);

/* TRITONSERVER_ServerOptionsSetCacheDirectory - where cache libraries are looked for. */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_ServerOptionsSetCacheDirectory(TRITONSERVER_ServerOptions *options,
                                            const char *cache_dir);

/* TRITONSERVER_ServerOptionsSetMinSupportedComputeCapability - GPUs below it are not used. */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_ServerOptionsSetMinSupportedComputeCapability(TRITONSERVER_ServerOptions *options,
                                                           double cc);

/* TRITONSERVER_ServerOptionsSetExitOnError - true: a model that fails to load fails ServerNew. */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_ServerOptionsSetExitOnError(TRITONSERVER_ServerOptions *options, bool exit);

/* TRITONSERVER_ServerOptionsSetStrictReadiness - true: ready only when all models are. */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_ServerOptionsSetStrictReadiness(TRITONSERVER_ServerOptions *options, bool strict);

/* TRITONSERVER_ServerOptionsSetExitTimeout - how long ServerStop waits for work, seconds. */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_ServerOptionsSetExitTimeout(TRITONSERVER_ServerOptions *options, unsigned int timeout);

/* TRITONSERVER_ServerOptionsSetBufferManagerThreadCount - threads that gather inputs. */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_ServerOptionsSetBufferManagerThreadCount(TRITONSERVER_ServerOptions *options,
                                                      unsigned int thread_count);

/* TRITONSERVER_ServerOptionsSetModelLoadThreadCount - models loaded at the same time, at most. */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_ServerOptionsSetModelLoadThreadCount(TRITONSERVER_ServerOptions *options,
                                                  unsigned int thread_count);

/* TRITONSERVER_ServerOptionsSetModelLoadRetryCount - further attempts after a failed load. */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_ServerOptionsSetModelLoadRetryCount(TRITONSERVER_ServerOptions *options,
                                                 unsigned int retry_count);

/* TRITONSERVER_ServerOptionsSetModelNamespacing - models of equal name in several repositories. */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_ServerOptionsSetModelNamespacing(TRITONSERVER_ServerOptions *options,
                                              bool enable_namespace);

/* TRITONSERVER_ServerOptionsSetEnablePeerAccess - GPUs may read each other's memory. */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_ServerOptionsSetEnablePeerAccess(TRITONSERVER_ServerOptions *options,
                                              bool enable_peer_access);

/* TRITONSERVER_ServerOptionsSetLogFile - write the log there; for the whole process, like all log
 * settings. NULL or "": standard error. */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_ServerOptionsSetLogFile(TRITONSERVER_ServerOptions *options, const char *file);

/* TRITONSERVER_ServerOptionsSetLogInfo, …Warn, …Error - write messages of that level or not. */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_ServerOptionsSetLogInfo(TRITONSERVER_ServerOptions *options, bool log);
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_ServerOptionsSetLogWarn(TRITONSERVER_ServerOptions *options, bool log);
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_ServerOptionsSetLogError(TRITONSERVER_ServerOptions *options, bool log);

/* TRITONSERVER_ServerOptionsSetLogFormat - the form of a line's beginning. */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_ServerOptionsSetLogFormat(TRITONSERVER_ServerOptions *options,
                                       const TRITONSERVER_LogFormat format);

/* TRITONSERVER_ServerOptionsSetLogVerbose - 0 = off; higher tells more. */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_ServerOptionsSetLogVerbose(TRITONSERVER_ServerOptions *options, int level);

/* TRITONSERVER_ServerOptionsSetMetrics, …GpuMetrics, …CpuMetrics - collect them or not. */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_ServerOptionsSetMetrics(TRITONSERVER_ServerOptions *options, bool metrics);
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_ServerOptionsSetGpuMetrics(TRITONSERVER_ServerOptions *options, bool gpu_metrics);
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_ServerOptionsSetCpuMetrics(TRITONSERVER_ServerOptions *options, bool cpu_metrics);

/* TRITONSERVER_ServerOptionsSetMetricsInterval - time between samples, milliseconds. */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_ServerOptionsSetMetricsInterval(TRITONSERVER_ServerOptions *options,
                                             uint64_t metrics_interval_ms);

/* TRITONSERVER_ServerOptionsSetBackendDirectory - where backend libraries are looked for. */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_ServerOptionsSetBackendDirectory(TRITONSERVER_ServerOptions *options,
                                              const char *backend_dir);

/* TRITONSERVER_ServerOptionsSetRepoAgentDirectory - where repository agents are looked for. */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_ServerOptionsSetRepoAgentDirectory(TRITONSERVER_ServerOptions *options,
                                                const char *repoagent_dir);

/* TRITONSERVER_ServerOptionsSetModelLoadDeviceLimit - share of a device's memory for models. */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_ServerOptionsSetModelLoadDeviceLimit(TRITONSERVER_ServerOptions *options,
                                                  const TRITONSERVER_InstanceGroupKind kind,
                                                  const int device_id, const double fraction);

/* TRITONSERVER_ServerOptionsSetBackendConfig - one setting of a backend.
 * @backend_name  "": of all backends */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_ServerOptionsSetBackendConfig(TRITONSERVER_ServerOptions *options,
                                           const char *backend_name, const char *setting,
                                           const char *value);

/* TRITONSERVER_ServerOptionsSetHostPolicy - one setting of a host policy. */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_ServerOptionsSetHostPolicy(TRITONSERVER_ServerOptions *options,
                                        const char *policy_name, const char *setting,
                                        const char *value);

/* TRITONSERVER_ServerOptionsSetMetricsConfig - one setting of the metrics.
 * @name  "": of all */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_ServerOptionsSetMetricsConfig(TRITONSERVER_ServerOptions *options, const char *name,
                                           const char *setting, const char *value);

/* ---- Server --------------------------------------------------------------------------------- */

/* How a model sees a batch (bits). */
typedef enum tritonserver_batchflag_enum {
    TRITONSERVER_BATCH_UNKNOWN = 1,
    TRITONSERVER_BATCH_FIRST_DIM = 2
} TRITONSERVER_ModelBatchFlag;

/* What a repository index lists (bits). */
typedef enum tritonserver_modelindexflag_enum {
    TRITONSERVER_INDEX_FLAG_READY = 1
} TRITONSERVER_ModelIndexFlag;

/* How many responses a request may have (bits). */
typedef enum tritonserver_txn_property_flag_enum {
    TRITONSERVER_TXN_ONE_TO_ONE = 1,
    TRITONSERVER_TXN_DECOUPLED = 2
} TRITONSERVER_ModelTxnPropertyFlag;

/*
 * TRITONSERVER_ServerNew - a server with its repositories scanned and its models loaded.
 * @options  still the caller's
 * Errors: any  a repository cannot be read, or a model failed and exit-on-error is set; then there
 *              is no server
 */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_ServerNew(TRITONSERVER_Server **server, TRITONSERVER_ServerOptions *options);

/* TRITONSERVER_ServerDelete - stop it if it runs, then end it. */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *TRITONSERVER_ServerDelete(TRITONSERVER_Server *server);

/*
 * TRITONSERVER_ServerStop - accept no more, finish what runs, unload all models.
 * Blocks, at most for the exit timeout.
 * Errors: INTERNAL  the timeout has passed and work remains
 */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *TRITONSERVER_ServerStop(TRITONSERVER_Server *server);

/* TRITONSERVER_ServerSetExitTimeout - change that timeout, seconds. */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_ServerSetExitTimeout(TRITONSERVER_Server *server, unsigned int timeout);

/*
 * TRITONSERVER_ServerRegisterModelRepository - one more repository; nothing is loaded.
 * @name_mapping  STRING parameters, folder name → model name; for all others they are the same
 * Errors: ALREADY_EXISTS  it is registered, or another one gives such a name
 *         INVALID_ARG     there is no such folder; a mapping that is none, or a name given twice
 *         UNSUPPORTED     the model control mode is not explicit
 */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_ServerRegisterModelRepository(TRITONSERVER_Server *server, const char *repository_path,
                                           const TRITONSERVER_Parameter **name_mapping,
                                           const uint32_t mapping_count);

/*
 * TRITONSERVER_ServerUnregisterModelRepository - forget it; loaded models stay.
 * Errors: INVALID_ARG  it is not registered; UNSUPPORTED  as above
 */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_ServerUnregisterModelRepository(TRITONSERVER_Server *server,
                                             const char *repository_path);

/* TRITONSERVER_ServerPollModelRepository - load and unload what has changed; poll mode only. */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_ServerPollModelRepository(TRITONSERVER_Server *server);

/* TRITONSERVER_ServerIsLive - is it there at all? */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *TRITONSERVER_ServerIsLive(TRITONSERVER_Server *server,
                                                                    bool *live);

/* TRITONSERVER_ServerIsReady - may requests be sent? See strict readiness. */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *TRITONSERVER_ServerIsReady(TRITONSERVER_Server *server,
                                                                     bool *ready);

/* TRITONSERVER_ServerModelIsReady - may they be sent to this model? */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_ServerModelIsReady(TRITONSERVER_Server *server, const char *model_name,
                                const int64_t model_version, bool *ready);

/*
 * TRITONSERVER_ServerModelBatchProperties - how the model batches.
 * @flags  TRITONSERVER_ModelBatchFlag bits
 * @voidp  always NULL; may itself be NULL
 */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_ServerModelBatchProperties(TRITONSERVER_Server *server, const char *model_name,
                                        const int64_t model_version, uint32_t *flags, void **voidp);

/*
 * TRITONSERVER_ServerModelTransactionProperties - one response per request, or any number?
 * @txn_flags  TRITONSERVER_ModelTxnPropertyFlag bits
 * @voidp      always NULL; may itself be NULL
 */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_ServerModelTransactionProperties(TRITONSERVER_Server *server, const char *model_name,
                                              const int64_t model_version, uint32_t *txn_flags,
                                              void **voidp);

/* TRITONSERVER_ServerMetadata - name, version, extensions. The caller owns the message. */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_ServerMetadata(TRITONSERVER_Server *server, TRITONSERVER_Message **server_metadata);

/* TRITONSERVER_ServerModelMetadata - versions, inputs, outputs. The caller owns the message. */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_ServerModelMetadata(TRITONSERVER_Server *server, const char *model_name,
                                 const int64_t model_version,
                                 TRITONSERVER_Message **model_metadata);

/*
 * TRITONSERVER_ServerModelStatistics - what was executed, how often and how long. The caller owns
 * the message.
 * @model_name  "": all models
 */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_ServerModelStatistics(TRITONSERVER_Server *server, const char *model_name,
                                   const int64_t model_version, TRITONSERVER_Message **model_stats);

/*
 * TRITONSERVER_ServerModelConfig - the model configuration. The caller owns the message.
 * @config_version  1
 */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_ServerModelConfig(TRITONSERVER_Server *server, const char *model_name,
                               const int64_t model_version, const uint32_t config_version,
                               TRITONSERVER_Message **model_config);

/*
 * TRITONSERVER_ServerModelIndex - all models, their states and reasons. The caller owns the
 * message.
 * @flags  TRITONSERVER_ModelIndexFlag bits
 */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_ServerModelIndex(TRITONSERVER_Server *server, uint32_t flags,
                              TRITONSERVER_Message **model_index);

/* TRITONSERVER_ServerMetrics - the metrics as they are now. The caller owns the object. */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_ServerMetrics(TRITONSERVER_Server *server, TRITONSERVER_Metrics **metrics);

/*
 * TRITONSERVER_ServerLoadModel - load a model, or load it anew if it has changed.
 * Blocks until that is done. Explicit mode only.
 * Errors: UNAVAILABLE  another mode; INTERNAL, INVALID_ARG  it cannot be loaded; what served
 *                      before still does
 */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *TRITONSERVER_ServerLoadModel(TRITONSERVER_Server *server,
                                                                       const char *model_name);

/*
 * TRITONSERVER_ServerLoadModelWithParameters - the same with a configuration and files of one's
 * own.
 * @parameters  "config": STRING, the configuration as JSON; "file:<version>/<name>": BYTES
 */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_ServerLoadModelWithParameters(TRITONSERVER_Server *server, const char *model_name,
                                           const TRITONSERVER_Parameter **parameters,
                                           const uint64_t parameter_count);

/* TRITONSERVER_ServerUnloadModel - unload it when what runs has ended; does not wait for that. */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_ServerUnloadModel(TRITONSERVER_Server *server, const char *model_name);

/* TRITONSERVER_ServerUnloadModelAndDependents - and the models that were loaded only for it. */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_ServerUnloadModelAndDependents(TRITONSERVER_Server *server, const char *model_name);

/*
 * TRITONSERVER_ServerInferAsync - run a request.
 * @inference_request  the server's until its release callback on success, still the caller's on
 *                     error
 * @trace              may be NULL; the server's until its release function, except when the request
 *                     is invalid
 * Errors: INVALID_ARG  the request does not fit the model; UNAVAILABLE  the model or the server
 *                      is stopping, or its queue is full
 */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_ServerInferAsync(TRITONSERVER_Server *server,
                              TRITONSERVER_InferenceRequest *inference_request,
                              TRITONSERVER_InferenceTrace *trace);

/* ---- Metrics of one's own ------------------------------------------------------------------- */

/*
 * A family is one name in the metrics; its metrics differ in their labels. Families and metrics of
 * equal names and labels are the same, whoever made them: they go when the last one is deleted.
 * All metrics of a family have to be deleted before it.
 */
typedef enum TRITONSERVER_metrickind_enum {
    TRITONSERVER_METRIC_KIND_COUNTER,
    TRITONSERVER_METRIC_KIND_GAUGE,
    TRITONSERVER_METRIC_KIND_HISTOGRAM
} TRITONSERVER_MetricKind;

/*
 * TRITONSERVER_MetricFamilyNew - a family. The caller owns it.
 * Errors: INVALID_ARG  no such kind, no valid name, or the name belongs to a family of another kind
 */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_MetricFamilyNew(TRITONSERVER_MetricFamily **family, const TRITONSERVER_MetricKind kind,
                             const char *name, const char *description);

/*
 * TRITONSERVER_MetricFamilyDelete - end it.
 * Errors: INTERNAL  it still has metrics
 */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_MetricFamilyDelete(TRITONSERVER_MetricFamily *family);

/* TRITONSERVER_GetMetricFamilyKind - its kind. */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_GetMetricFamilyKind(TRITONSERVER_MetricFamily *family, TRITONSERVER_MetricKind *kind);

/* TRITONSERVER_MetricArgsNew - what a histogram needs besides labels. The caller owns it. */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_MetricArgsNew(TRITONSERVER_MetricArgs **args);

/*
 * TRITONSERVER_MetricArgsSetHistogram - its buckets.
 * @buckets  upper bounds, ascending, copied; the one above them all is not named
 */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_MetricArgsSetHistogram(TRITONSERVER_MetricArgs *args, const double *buckets,
                                    const uint64_t buckets_count);

/* TRITONSERVER_MetricArgsDelete - end it. */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_MetricArgsDelete(TRITONSERVER_MetricArgs *args);

/*
 * TRITONSERVER_MetricNew - a counter or gauge of a family. The caller owns it.
 * @labels  STRING parameters, copied
 * Errors: INVALID_ARG  a label that is no string or has no valid name; a histogram, which needs
 * args
 */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_MetricNew(TRITONSERVER_Metric **metric, TRITONSERVER_MetricFamily *family,
                       const TRITONSERVER_Parameter **labels, const uint64_t label_count);

/* TRITONSERVER_MetricNewWithArgs - any metric. */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *
TRITONSERVER_MetricNewWithArgs(TRITONSERVER_Metric **metric, TRITONSERVER_MetricFamily *family,
                               const TRITONSERVER_Parameter **labels, const uint64_t label_count,
                               const TRITONSERVER_MetricArgs *args);

/* TRITONSERVER_MetricDelete - end it. */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *TRITONSERVER_MetricDelete(TRITONSERVER_Metric *metric);

/* TRITONSERVER_MetricValue - what a counter or gauge stands at. Errors: UNSUPPORTED  a histogram */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *TRITONSERVER_MetricValue(TRITONSERVER_Metric *metric,
                                                                   double *value);

/*
 * TRITONSERVER_MetricIncrement - add to a counter or gauge.
 * Errors: INVALID_ARG  less than 0 to a counter; UNSUPPORTED  a histogram
 */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *TRITONSERVER_MetricIncrement(TRITONSERVER_Metric *metric,
                                                                       double value);

/* TRITONSERVER_MetricSet - set a gauge. Errors: UNSUPPORTED  any other kind */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *TRITONSERVER_MetricSet(TRITONSERVER_Metric *metric,
                                                                 double value);

/* TRITONSERVER_MetricObserve - one more value in a histogram. Errors: UNSUPPORTED  other kinds */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *TRITONSERVER_MetricObserve(TRITONSERVER_Metric *metric,
                                                                     double value);

/* TRITONSERVER_GetMetricKind - the kind of its family. */
TRITONSERVER_DECLSPEC TRITONSERVER_Error *TRITONSERVER_GetMetricKind(TRITONSERVER_Metric *metric,
                                                                     TRITONSERVER_MetricKind *kind);

#ifdef __cplusplus
}
#endif

#endif
