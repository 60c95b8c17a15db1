/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tritonbackend.h - what a backend is given, and what it has to define.
 *
 * A backend is a shared library, libtriton_NAME.so, that runs the models whose configuration says
 * `backend: "NAME"`. This is Conch's own text of Triton's interface, backend API version 1.19; the
 * same library loads into either server. It leaves the functions declared here undefined; the
 * server that loads it has them.
 *
 * The objects form a chain, and each carries one pointer for the backend's own use (…State):
 *
 *     Backend  one per library       Initialize        … Finalize
 *     Model    one per loaded version ModelInitialize   … ModelFinalize
 *     ModelInstance                  ModelInstanceInitialize … ModelInstanceFinalize
 *       Request, Input               in ModelInstanceExecute, until RequestRelease
 *       Response, Output             from ResponseNew to ResponseSend
 *
 * The rules of ownership
 *   - ModelInstanceExecute that returns NULL has taken all its requests: the backend releases each
 *     of them exactly once. One that returns an error has taken none, and must neither have sent a
 *     response nor released anything; the server answers them all with that error.
 *   - Each request gets exactly one response with TRITONSERVER_RESPONSE_COMPLETE_FINAL, the last.
 *     After RequestRelease only a ResponseFactory can still answer.
 *   - ResponseSend takes the response in every case.
 *   - An error that a function here returns is the caller's to delete; an error given to
 *     ResponseSend remains the caller's.
 */
#ifndef TRITON_CORE_TRITONBACKEND_H
#define TRITON_CORE_TRITONBACKEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "triton/core/tritonserver.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What the server exports, and what the backend exports. */
#define TRITONBACKEND_DECLSPEC __attribute__((__visibility__("default")))
#define TRITONBACKEND_ISPEC    __attribute__((__visibility__("default")))

struct TRITONBACKEND_Backend;
struct TRITONBACKEND_BackendAttribute;
struct TRITONBACKEND_Batcher;
struct TRITONBACKEND_Input;
struct TRITONBACKEND_MemoryManager;
struct TRITONBACKEND_Model;
struct TRITONBACKEND_ModelInstance;
struct TRITONBACKEND_ModelInstanceResponseStatistics;
struct TRITONBACKEND_Output;
struct TRITONBACKEND_Request;
struct TRITONBACKEND_Response;
struct TRITONBACKEND_ResponseFactory;
struct TRITONBACKEND_State;

typedef struct TRITONBACKEND_Backend TRITONBACKEND_Backend;
typedef struct TRITONBACKEND_BackendAttribute TRITONBACKEND_BackendAttribute;
typedef struct TRITONBACKEND_Batcher TRITONBACKEND_Batcher;
typedef struct TRITONBACKEND_Input TRITONBACKEND_Input;
typedef struct TRITONBACKEND_MemoryManager TRITONBACKEND_MemoryManager;
typedef struct TRITONBACKEND_Model TRITONBACKEND_Model;
typedef struct TRITONBACKEND_ModelInstance TRITONBACKEND_ModelInstance;
typedef struct TRITONBACKEND_ModelInstanceResponseStatistics
    TRITONBACKEND_ModelInstanceResponseStatistics;
typedef struct TRITONBACKEND_Output TRITONBACKEND_Output;
typedef struct TRITONBACKEND_Request TRITONBACKEND_Request;
typedef struct TRITONBACKEND_Response TRITONBACKEND_Response;
typedef struct TRITONBACKEND_ResponseFactory TRITONBACKEND_ResponseFactory;
typedef struct TRITONBACKEND_State TRITONBACKEND_State;

/* ---- Version -------------------------------------------------------------------------------- */

/* A server runs a backend when the major numbers are equal and the server's minor number is not
 * smaller than the one the backend was compiled with; the backend checks it in Initialize. */
#define TRITONBACKEND_API_VERSION_MAJOR 1
#define TRITONBACKEND_API_VERSION_MINOR 19

/* TRITONBACKEND_ApiVersion - the version that the server implements. */
TRITONBACKEND_DECLSPEC TRITONSERVER_Error *TRITONBACKEND_ApiVersion(uint32_t *major,
                                                                    uint32_t *minor);

/* How the files of a backend or model are given. */
typedef enum TRITONBACKEND_artifacttype_enum {
    TRITONBACKEND_ARTIFACT_FILESYSTEM /* a folder */
} TRITONBACKEND_ArtifactType;

/* ---- Memory manager ------------------------------------------------------------------------- */

/*
 * TRITONBACKEND_MemoryManagerAllocate - memory that the server accounts for.
 * @buffer  the caller's until MemoryManagerFree with the same type and id
 * Errors: UNAVAILABLE  there is not enough
 *         UNSUPPORTED  memory of a GPU, which this server has not
 */
TRITONBACKEND_DECLSPEC TRITONSERVER_Error *
TRITONBACKEND_MemoryManagerAllocate(TRITONBACKEND_MemoryManager *manager, void **buffer,
                                    const TRITONSERVER_MemoryType memory_type,
                                    const int64_t memory_type_id, const uint64_t byte_size);

/* TRITONBACKEND_MemoryManagerFree - give it back. */
TRITONBACKEND_DECLSPEC TRITONSERVER_Error *
TRITONBACKEND_MemoryManagerFree(TRITONBACKEND_MemoryManager *manager, void *buffer,
                                const TRITONSERVER_MemoryType memory_type,
                                const int64_t memory_type_id);

/* ---- Input: one input tensor of a request, valid until the request is released -------------- */

/*
 * TRITONBACKEND_InputProperties - name, type, shape, size. Any result pointer may be NULL.
 * @shape         includes the batch dimension if the model batches; borrowed
 * @byte_size     of all its buffers together
 * @buffer_count  its data is in this many pieces; 0 is possible when there are no bytes
 */
TRITONBACKEND_DECLSPEC TRITONSERVER_Error *
TRITONBACKEND_InputProperties(TRITONBACKEND_Input *input, const char **name,
                              TRITONSERVER_DataType *datatype, const int64_t **shape,
                              uint32_t *dims_count, uint64_t *byte_size, uint32_t *buffer_count);

/* TRITONBACKEND_InputPropertiesForHostPolicy - the same for the data meant for that policy;
 * NULL or a policy without data of its own: as InputProperties. */
TRITONBACKEND_DECLSPEC TRITONSERVER_Error *
TRITONBACKEND_InputPropertiesForHostPolicy(TRITONBACKEND_Input *input, const char *host_policy_name,
                                           const char **name, TRITONSERVER_DataType *datatype,
                                           const int64_t **shape, uint32_t *dims_count,
                                           uint64_t *byte_size, uint32_t *buffer_count);

/*
 * TRITONBACKEND_InputBuffer - one piece of its data, read only.
 * @memory_type, @memory_type_id  in: where it would suit; out: where it is
 */
TRITONBACKEND_DECLSPEC TRITONSERVER_Error *
TRITONBACKEND_InputBuffer(TRITONBACKEND_Input *input, const uint32_t index, const void **buffer,
                          uint64_t *buffer_byte_size, TRITONSERVER_MemoryType *memory_type,
                          int64_t *memory_type_id);

/* TRITONBACKEND_InputBufferForHostPolicy - the same for the data meant for that policy. */
TRITONBACKEND_DECLSPEC TRITONSERVER_Error *TRITONBACKEND_InputBufferForHostPolicy(
    TRITONBACKEND_Input *input, const char *host_policy_name, const uint32_t index,
    const void **buffer, uint64_t *buffer_byte_size, TRITONSERVER_MemoryType *memory_type,
    int64_t *memory_type_id);

/* TRITONBACKEND_InputBufferAttributes - one piece and its attributes, borrowed from the input. */
TRITONBACKEND_DECLSPEC TRITONSERVER_Error *
TRITONBACKEND_InputBufferAttributes(TRITONBACKEND_Input *input, const uint32_t index,
                                    const void **buffer,
                                    TRITONSERVER_BufferAttributes **buffer_attributes);

/* ---- Output: one output tensor of a response ------------------------------------------------ */

/*
 * TRITONBACKEND_OutputBuffer - allocate its memory; once per output.
 * @buffer  written by the backend before ResponseSend; NULL when buffer_byte_size is 0, or when a
 *          program that embeds the server wants none of its bytes
 * @memory_type, @memory_type_id  in: where the backend would like it; out: where it is
 * Errors: ALREADY_EXISTS  it has its buffer
 */
TRITONBACKEND_DECLSPEC TRITONSERVER_Error *
TRITONBACKEND_OutputBuffer(TRITONBACKEND_Output *output, void **buffer,
                           const uint64_t buffer_byte_size, TRITONSERVER_MemoryType *memory_type,
                           int64_t *memory_type_id);

/* TRITONBACKEND_OutputBufferAttributes - what is known of that memory, borrowed from the output. */
TRITONBACKEND_DECLSPEC TRITONSERVER_Error *
TRITONBACKEND_OutputBufferAttributes(TRITONBACKEND_Output *output,
                                     TRITONSERVER_BufferAttributes **buffer_attributes);

/* ---- Request -------------------------------------------------------------------------------- */

/* TRITONBACKEND_RequestId - its id; "" if the client gave none. */
TRITONBACKEND_DECLSPEC TRITONSERVER_Error *TRITONBACKEND_RequestId(TRITONBACKEND_Request *request,
                                                                   const char **id);

/* TRITONBACKEND_RequestIsCancelled - does anyone still want it? It must be answered either way. */
TRITONBACKEND_DECLSPEC TRITONSERVER_Error *
TRITONBACKEND_RequestIsCancelled(TRITONBACKEND_Request *request, bool *is_cancelled);

/*
 * TRITONBACKEND_RequestCorrelationId - the sequence it belongs to; 0 = none.
 * Errors: INVALID_ARG  the id is a string
 */
TRITONBACKEND_DECLSPEC TRITONSERVER_Error *
TRITONBACKEND_RequestCorrelationId(TRITONBACKEND_Request *request, uint64_t *id);

/* TRITONBACKEND_InferenceRequestTimeoutMicroseconds - what the client set; 0 = nothing. */
TRITONBACKEND_DECLSPEC TRITONSERVER_Error *
TRITONBACKEND_InferenceRequestTimeoutMicroseconds(TRITONBACKEND_Request *request,
                                                  uint64_t *timeout);

/*
 * TRITONBACKEND_RequestCorrelationIdString - the same when the id is a string.
 * Errors: INVALID_ARG  the id is a number
 */
TRITONBACKEND_DECLSPEC TRITONSERVER_Error *
TRITONBACKEND_RequestCorrelationIdString(TRITONBACKEND_Request *request, const char **id);

/* TRITONBACKEND_RequestFlags - its TRITONSERVER_RequestFlag bits. */
TRITONBACKEND_DECLSPEC TRITONSERVER_Error *
TRITONBACKEND_RequestFlags(TRITONBACKEND_Request *request, uint32_t *flags);

/* TRITONBACKEND_RequestParameterCount - number of its parameters. */
TRITONBACKEND_DECLSPEC TRITONSERVER_Error *
TRITONBACKEND_RequestParameterCount(TRITONBACKEND_Request *request, uint32_t *count);

/*
 * TRITONBACKEND_RequestParameter - one of them.
 * @vvalue  STRING: the const char * itself; INT, BOOL, DOUBLE: pointer to int64_t, bool, double
 * Errors: INVALID_ARG  no such index
 */
TRITONBACKEND_DECLSPEC TRITONSERVER_Error *
TRITONBACKEND_RequestParameter(TRITONBACKEND_Request *request, const uint32_t index,
                               const char **key, TRITONSERVER_ParameterType *type,
                               const void **vvalue);

/* TRITONBACKEND_RequestInputCount - number of its inputs. */
TRITONBACKEND_DECLSPEC TRITONSERVER_Error *
TRITONBACKEND_RequestInputCount(TRITONBACKEND_Request *request, uint32_t *input_count);

/*
 * TRITONBACKEND_RequestInputName - name of one input. The order differs from request to request.
 * Errors: INVALID_ARG  no such index
 */
TRITONBACKEND_DECLSPEC TRITONSERVER_Error *
TRITONBACKEND_RequestInputName(TRITONBACKEND_Request *request, const uint32_t index,
                               const char **input_name);

/*
 * TRITONBACKEND_RequestInput - an input by name.
 * @input  borrowed, valid until the request is released
 * Errors: INVALID_ARG  no such input
 */
TRITONBACKEND_DECLSPEC TRITONSERVER_Error *
TRITONBACKEND_RequestInput(TRITONBACKEND_Request *request, const char *name,
                           TRITONBACKEND_Input **input);

/* TRITONBACKEND_RequestInputByIndex - an input by its index in this request. */
TRITONBACKEND_DECLSPEC TRITONSERVER_Error *
TRITONBACKEND_RequestInputByIndex(TRITONBACKEND_Request *request, const uint32_t index,
                                  TRITONBACKEND_Input **input);

/* TRITONBACKEND_RequestOutputCount - number of outputs wanted; never 0: the server has put in all
 * of them where the client named none. */
TRITONBACKEND_DECLSPEC TRITONSERVER_Error *
TRITONBACKEND_RequestOutputCount(TRITONBACKEND_Request *request, uint32_t *output_count);

/* TRITONBACKEND_RequestOutputName - name of one wanted output. */
TRITONBACKEND_DECLSPEC TRITONSERVER_Error *
TRITONBACKEND_RequestOutputName(TRITONBACKEND_Request *request, const uint32_t index,
                                const char **output_name);

/*
 * TRITONBACKEND_RequestOutputBufferProperties - where would an output be allocated?
 * @name, @byte_size  may be NULL when not known yet
 * @memory_type, @memory_type_id  in: what the backend would like; out: what it would get
 * Errors: UNAVAILABLE  whoever asked for the inference cannot tell beforehand
 */
TRITONBACKEND_DECLSPEC TRITONSERVER_Error *
TRITONBACKEND_RequestOutputBufferProperties(TRITONBACKEND_Request *request, const char *name,
                                            size_t *byte_size, TRITONSERVER_MemoryType *memory_type,
                                            int64_t *memory_type_id);

/*
 * TRITONBACKEND_RequestRelease - give the request back; it and its inputs are gone.
 * @release_flags  TRITONSERVER_REQUEST_RELEASE_ALL
 * Errors: INVALID_ARG  a flag that the model is not configured for; the backend still owns it
 */
TRITONBACKEND_DECLSPEC TRITONSERVER_Error *
TRITONBACKEND_RequestRelease(TRITONBACKEND_Request *request, uint32_t release_flags);

/* TRITONBACKEND_RequestTrace - its trace, borrowed; NULL when it is not traced. */
TRITONBACKEND_DECLSPEC TRITONSERVER_Error *
TRITONBACKEND_RequestTrace(TRITONBACKEND_Request *request, TRITONSERVER_InferenceTrace **trace);

/* ---- Response factory: answers that outlive the request ------------------------------------- */

/* TRITONBACKEND_ResponseFactoryIsCancelled - as RequestIsCancelled. */
TRITONBACKEND_DECLSPEC TRITONSERVER_Error *
TRITONBACKEND_ResponseFactoryIsCancelled(TRITONBACKEND_ResponseFactory *factory,
                                         bool *is_cancelled);

/* TRITONBACKEND_ResponseFactoryNew - a factory for one request; made before its release, used from
 * any one thread at a time. The caller owns it. */
TRITONBACKEND_DECLSPEC TRITONSERVER_Error *
TRITONBACKEND_ResponseFactoryNew(TRITONBACKEND_ResponseFactory **factory,
                                 TRITONBACKEND_Request *request);

/* TRITONBACKEND_ResponseFactoryDelete - end it, after the final response. */
TRITONBACKEND_DECLSPEC TRITONSERVER_Error *
TRITONBACKEND_ResponseFactoryDelete(TRITONBACKEND_ResponseFactory *factory);

/* TRITONBACKEND_ResponseFactorySendFlags - say FINAL without a further response. */
TRITONBACKEND_DECLSPEC TRITONSERVER_Error *
TRITONBACKEND_ResponseFactorySendFlags(TRITONBACKEND_ResponseFactory *factory,
                                       const uint32_t send_flags);

/* ---- Response ------------------------------------------------------------------------------- */

/* TRITONBACKEND_ResponseNew - an empty response to a request. The caller owns it. */
TRITONBACKEND_DECLSPEC TRITONSERVER_Error *
TRITONBACKEND_ResponseNew(TRITONBACKEND_Response **response, TRITONBACKEND_Request *request);

/* TRITONBACKEND_ResponseNewFromFactory - the same from a factory. */
TRITONBACKEND_DECLSPEC TRITONSERVER_Error *
TRITONBACKEND_ResponseNewFromFactory(TRITONBACKEND_Response **response,
                                     TRITONBACKEND_ResponseFactory *factory);

/* TRITONBACKEND_ResponseDelete - end a response that is not sent. */
TRITONBACKEND_DECLSPEC TRITONSERVER_Error *
TRITONBACKEND_ResponseDelete(TRITONBACKEND_Response *response);

/* TRITONBACKEND_ResponseSet…Parameter - add a parameter that the client sees. */
TRITONBACKEND_DECLSPEC TRITONSERVER_Error *
TRITONBACKEND_ResponseSetStringParameter(TRITONBACKEND_Response *response, const char *name,
                                         const char *value);
TRITONBACKEND_DECLSPEC TRITONSERVER_Error *
TRITONBACKEND_ResponseSetIntParameter(TRITONBACKEND_Response *response, const char *name,
                                      const int64_t value);
TRITONBACKEND_DECLSPEC TRITONSERVER_Error *
TRITONBACKEND_ResponseSetBoolParameter(TRITONBACKEND_Response *response, const char *name,
                                       const bool value);
TRITONBACKEND_DECLSPEC TRITONSERVER_Error *
TRITONBACKEND_ResponseSetDoubleParameter(TRITONBACKEND_Response *response, const char *name,
                                         const double value);

/*
 * TRITONBACKEND_ResponseOutput - add an output.
 * @name, @shape  copied; the shape includes the batch dimension if the model batches
 * @output        borrowed from the response
 */
TRITONBACKEND_DECLSPEC TRITONSERVER_Error *
TRITONBACKEND_ResponseOutput(TRITONBACKEND_Response *response, TRITONBACKEND_Output **output,
                             const char *name, const TRITONSERVER_DataType datatype,
                             const int64_t *shape, const uint32_t dims_count);

/*
 * TRITONBACKEND_ResponseSend - send it.
 * @response    taken, also on error
 * @send_flags  TRITONSERVER_ResponseCompleteFlag bits
 * @error       not NULL: an error response with this text; still the caller's
 */
TRITONBACKEND_DECLSPEC TRITONSERVER_Error *
TRITONBACKEND_ResponseSend(TRITONBACKEND_Response *response, const uint32_t send_flags,
                           TRITONSERVER_Error *error);

/* TRITONBACKEND_InferenceResponseOutputByName - what ResponseOutput was told of an output. */
TRITONBACKEND_DECLSPEC TRITONSERVER_Error *
TRITONBACKEND_InferenceResponseOutputByName(TRITONBACKEND_Response *response, const char *name,
                                            TRITONSERVER_DataType *datatype, const int64_t **shape,
                                            uint64_t *dim_count);

/* TRITONBACKEND_InferenceResponseOutput - the same by index, in the order of ResponseOutput. */
TRITONBACKEND_DECLSPEC TRITONSERVER_Error *
TRITONBACKEND_InferenceResponseOutput(TRITONBACKEND_Response *response, const uint32_t index,
                                      const char **name, TRITONSERVER_DataType *datatype,
                                      const int64_t **shape, uint64_t *dim_count);

/* ---- Implicit state: tensors that a sequence keeps between its requests --------------------- */

/*
 * TRITONBACKEND_StateNew - a state that this request's sequence shall have next.
 * @name    an output_name of the configuration's states
 * @shape   copied
 * @state   borrowed from the request
 * Errors: INVALID_ARG  the model has no states, or none of that name. No model has any in Conch
 *                      yet: states come with sequences
 */
TRITONBACKEND_DECLSPEC TRITONSERVER_Error *
TRITONBACKEND_StateNew(TRITONBACKEND_State **state, TRITONBACKEND_Request *request,
                       const char *name, const TRITONSERVER_DataType datatype, const int64_t *shape,
                       const uint32_t dims_count);

/* TRITONBACKEND_StateUpdate - from now on it is the sequence's state. */
TRITONBACKEND_DECLSPEC TRITONSERVER_Error *TRITONBACKEND_StateUpdate(TRITONBACKEND_State *state);

/* TRITONBACKEND_StateBuffer - memory for it, as OutputBuffer. */
TRITONBACKEND_DECLSPEC TRITONSERVER_Error *
TRITONBACKEND_StateBuffer(TRITONBACKEND_State *state, void **buffer,
                          const uint64_t buffer_byte_size, TRITONSERVER_MemoryType *memory_type,
                          int64_t *memory_type_id);

/* TRITONBACKEND_StateBufferAttributes - what is known of that memory, borrowed from the state. */
TRITONBACKEND_DECLSPEC TRITONSERVER_Error *
TRITONBACKEND_StateBufferAttributes(TRITONBACKEND_State *state,
                                    TRITONSERVER_BufferAttributes **buffer_attributes);

/* ---- Backend -------------------------------------------------------------------------------- */

/* When the server may call ModelInstanceExecute of one instance again. */
typedef enum TRITONBACKEND_execpolicy_enum {
    TRITONBACKEND_EXECUTION_BLOCKING,       /* one call at a time per instance */
    TRITONBACKEND_EXECUTION_DEVICE_BLOCKING /* one call at a time for all instances of a device */
} TRITONBACKEND_ExecutionPolicy;

/* TRITONBACKEND_BackendName - the name that model configurations use. */
TRITONBACKEND_DECLSPEC TRITONSERVER_Error *TRITONBACKEND_BackendName(TRITONBACKEND_Backend *backend,
                                                                     const char **name);

/* TRITONBACKEND_BackendConfig - settings from the command line, {"cmdline":{"name":"value",…}}.
 * The message is borrowed from the backend. */
TRITONBACKEND_DECLSPEC TRITONSERVER_Error *
TRITONBACKEND_BackendConfig(TRITONBACKEND_Backend *backend, TRITONSERVER_Message **backend_config);

/* TRITONBACKEND_BackendExecutionPolicy - the policy in force. */
TRITONBACKEND_DECLSPEC TRITONSERVER_Error *
TRITONBACKEND_BackendExecutionPolicy(TRITONBACKEND_Backend *backend,
                                     TRITONBACKEND_ExecutionPolicy *policy);

/* TRITONBACKEND_BackendSetExecutionPolicy - choose it, in Initialize only. */
TRITONBACKEND_DECLSPEC TRITONSERVER_Error *
TRITONBACKEND_BackendSetExecutionPolicy(TRITONBACKEND_Backend *backend,
                                        TRITONBACKEND_ExecutionPolicy policy);

/* TRITONBACKEND_BackendArtifacts - the folder that the library came from. */
TRITONBACKEND_DECLSPEC TRITONSERVER_Error *
TRITONBACKEND_BackendArtifacts(TRITONBACKEND_Backend *backend,
                               TRITONBACKEND_ArtifactType *artifact_type, const char **location);

/* TRITONBACKEND_BackendMemoryManager - the server's memory manager, borrowed. */
TRITONBACKEND_DECLSPEC TRITONSERVER_Error *
TRITONBACKEND_BackendMemoryManager(TRITONBACKEND_Backend *backend,
                                   TRITONBACKEND_MemoryManager **manager);

/* TRITONBACKEND_BackendState - the backend's own pointer; NULL at first. */
TRITONBACKEND_DECLSPEC TRITONSERVER_Error *
TRITONBACKEND_BackendState(TRITONBACKEND_Backend *backend, void **state);

/* TRITONBACKEND_BackendSetState - set it. */
TRITONBACKEND_DECLSPEC TRITONSERVER_Error *
TRITONBACKEND_BackendSetState(TRITONBACKEND_Backend *backend, void *state);

/* ---- Model ---------------------------------------------------------------------------------- */

/* TRITONBACKEND_ModelName - its name. */
TRITONBACKEND_DECLSPEC TRITONSERVER_Error *TRITONBACKEND_ModelName(TRITONBACKEND_Model *model,
                                                                   const char **name);

/* TRITONBACKEND_ModelVersion - the number of the version folder. */
TRITONBACKEND_DECLSPEC TRITONSERVER_Error *TRITONBACKEND_ModelVersion(TRITONBACKEND_Model *model,
                                                                      uint64_t *version);

/* TRITONBACKEND_ModelRepository - the model's folder; its files are below <location>/<version>. */
TRITONBACKEND_DECLSPEC TRITONSERVER_Error *
TRITONBACKEND_ModelRepository(TRITONBACKEND_Model *model, TRITONBACKEND_ArtifactType *artifact_type,
                              const char **location);

/*
 * TRITONBACKEND_ModelConfig - its configuration as JSON, all fields present.
 * @config_version  1
 * @model_config    the caller owns it
 */
TRITONBACKEND_DECLSPEC TRITONSERVER_Error *
TRITONBACKEND_ModelConfig(TRITONBACKEND_Model *model, const uint32_t config_version,
                          TRITONSERVER_Message **model_config);

/* TRITONBACKEND_ModelAutoCompleteConfig - may the backend complete the configuration? */
TRITONBACKEND_DECLSPEC TRITONSERVER_Error *
TRITONBACKEND_ModelAutoCompleteConfig(TRITONBACKEND_Model *model, bool *auto_complete_config);

/*
 * TRITONBACKEND_ModelSetConfig - complete it, in ModelInitialize only.
 * Taken from it: max_batch_size, input, output, the choice of scheduler where none was made, and
 * whether the model is decoupled.
 * @model_config  a whole configuration; still the caller's
 */
TRITONBACKEND_DECLSPEC TRITONSERVER_Error *
TRITONBACKEND_ModelSetConfig(TRITONBACKEND_Model *model, const uint32_t config_version,
                             TRITONSERVER_Message *model_config);

/* TRITONBACKEND_ModelServer - the server, borrowed. */
TRITONBACKEND_DECLSPEC TRITONSERVER_Error *TRITONBACKEND_ModelServer(TRITONBACKEND_Model *model,
                                                                     TRITONSERVER_Server **server);

/* TRITONBACKEND_ModelBackend - its backend, borrowed. */
TRITONBACKEND_DECLSPEC TRITONSERVER_Error *
TRITONBACKEND_ModelBackend(TRITONBACKEND_Model *model, TRITONBACKEND_Backend **backend);

/* TRITONBACKEND_ModelState - the backend's own pointer; NULL at first. */
TRITONBACKEND_DECLSPEC TRITONSERVER_Error *TRITONBACKEND_ModelState(TRITONBACKEND_Model *model,
                                                                    void **state);

/* TRITONBACKEND_ModelSetState - set it. */
TRITONBACKEND_DECLSPEC TRITONSERVER_Error *TRITONBACKEND_ModelSetState(TRITONBACKEND_Model *model,
                                                                       void *state);

/*
 * TRITONBACKEND_ModelReportMemoryUsage - memory that the model itself holds, for the statistics.
 * @usage  one object per kind of memory; read, still the caller's. Replaces the last report
 */
TRITONBACKEND_DECLSPEC TRITONSERVER_Error *
TRITONBACKEND_ModelReportMemoryUsage(TRITONBACKEND_Model *model,
                                     TRITONSERVER_BufferAttributes **usage, uint32_t usage_size);

/* ---- Model instance ------------------------------------------------------------------------- */

/* TRITONBACKEND_ModelInstanceName - its name, e.g. "resnet_0_1". */
TRITONBACKEND_DECLSPEC TRITONSERVER_Error *
TRITONBACKEND_ModelInstanceName(TRITONBACKEND_ModelInstance *instance, const char **name);

/* TRITONBACKEND_ModelInstanceKind - what it runs on; never AUTO. */
TRITONBACKEND_DECLSPEC TRITONSERVER_Error *
TRITONBACKEND_ModelInstanceKind(TRITONBACKEND_ModelInstance *instance,
                                TRITONSERVER_InstanceGroupKind *kind);

/* TRITONBACKEND_ModelInstanceDeviceId - the number of its GPU; 0 on CPUs. */
TRITONBACKEND_DECLSPEC TRITONSERVER_Error *
TRITONBACKEND_ModelInstanceDeviceId(TRITONBACKEND_ModelInstance *instance, int32_t *device_id);

/* TRITONBACKEND_ModelInstanceHostPolicy - its host policy as JSON, borrowed. */
TRITONBACKEND_DECLSPEC TRITONSERVER_Error *
TRITONBACKEND_ModelInstanceHostPolicy(TRITONBACKEND_ModelInstance *instance,
                                      TRITONSERVER_Message **host_policy);

/* TRITONBACKEND_ModelInstanceIsPassive - true: it is never asked to execute. */
TRITONBACKEND_DECLSPEC TRITONSERVER_Error *
TRITONBACKEND_ModelInstanceIsPassive(TRITONBACKEND_ModelInstance *instance, bool *is_passive);

/* TRITONBACKEND_ModelInstanceProfileCount - number of optimisation profiles configured for it. */
TRITONBACKEND_DECLSPEC TRITONSERVER_Error *
TRITONBACKEND_ModelInstanceProfileCount(TRITONBACKEND_ModelInstance *instance, uint32_t *count);

/* TRITONBACKEND_ModelInstanceProfileName - one of them. */
TRITONBACKEND_DECLSPEC TRITONSERVER_Error *
TRITONBACKEND_ModelInstanceProfileName(TRITONBACKEND_ModelInstance *instance, const uint32_t index,
                                       const char **profile_name);

/* TRITONBACKEND_ModelInstanceSecondaryDeviceCount - number of further devices configured for it. */
TRITONBACKEND_DECLSPEC TRITONSERVER_Error *
TRITONBACKEND_ModelInstanceSecondaryDeviceCount(TRITONBACKEND_ModelInstance *instance,
                                                uint32_t *count);

/* TRITONBACKEND_ModelInstanceSecondaryDeviceProperties - one of them: its kind and number. */
TRITONBACKEND_DECLSPEC TRITONSERVER_Error *TRITONBACKEND_ModelInstanceSecondaryDeviceProperties(
    TRITONBACKEND_ModelInstance *instance, uint32_t index, const char **kind, int64_t *id);

/* TRITONBACKEND_ModelInstanceModel - its model, borrowed. */
TRITONBACKEND_DECLSPEC TRITONSERVER_Error *
TRITONBACKEND_ModelInstanceModel(TRITONBACKEND_ModelInstance *instance,
                                 TRITONBACKEND_Model **model);

/* TRITONBACKEND_ModelInstanceState - the backend's own pointer; NULL at first. */
TRITONBACKEND_DECLSPEC TRITONSERVER_Error *
TRITONBACKEND_ModelInstanceState(TRITONBACKEND_ModelInstance *instance, void **state);

/* TRITONBACKEND_ModelInstanceSetState - set it. */
TRITONBACKEND_DECLSPEC TRITONSERVER_Error *
TRITONBACKEND_ModelInstanceSetState(TRITONBACKEND_ModelInstance *instance, void *state);

/* ---- Statistics ----------------------------------------------------------------------------- */

/*
 * TRITONBACKEND_ModelInstanceReportMemoryUsage - memory that one instance holds.
 * As ModelReportMemoryUsage.
 */
TRITONBACKEND_DECLSPEC TRITONSERVER_Error *
TRITONBACKEND_ModelInstanceReportMemoryUsage(TRITONBACKEND_ModelInstance *instance,
                                             TRITONSERVER_BufferAttributes **usage,
                                             uint32_t usage_size);

/*
 * TRITONBACKEND_ModelInstanceReportStatistics - one request has been executed.
 * To be called before the request is released.
 * @exec_start_ns … @exec_end_ns  CLOCK_MONOTONIC: execution begins, the computation proper begins,
 *                                it ends, execution ends
 */
TRITONBACKEND_DECLSPEC TRITONSERVER_Error *TRITONBACKEND_ModelInstanceReportStatistics(
    TRITONBACKEND_ModelInstance *instance, TRITONBACKEND_Request *request, const bool success,
    const uint64_t exec_start_ns, const uint64_t compute_start_ns, const uint64_t compute_end_ns,
    const uint64_t exec_end_ns);

/*
 * TRITONBACKEND_ModelInstanceReportBatchStatistics - one execution, of any number of requests.
 * @batch_size  sum of the batch sizes of its requests
 */
TRITONBACKEND_DECLSPEC TRITONSERVER_Error *TRITONBACKEND_ModelInstanceReportBatchStatistics(
    TRITONBACKEND_ModelInstance *instance, const uint64_t batch_size, const uint64_t exec_start_ns,
    const uint64_t compute_start_ns, const uint64_t compute_end_ns, const uint64_t exec_end_ns);

/*
 * Statistics of one response of many: fill an object, report it, delete it. Times are
 * CLOCK_MONOTONIC. A response without output has no compute-output time.
 */

/* TRITONBACKEND_ModelInstanceResponseStatisticsNew - an empty one. The caller owns it. */
TRITONBACKEND_DECLSPEC TRITONSERVER_Error *TRITONBACKEND_ModelInstanceResponseStatisticsNew(
    TRITONBACKEND_ModelInstanceResponseStatistics **response_statistics);

/* TRITONBACKEND_ModelInstanceResponseStatisticsDelete - end it. */
TRITONBACKEND_DECLSPEC TRITONSERVER_Error *TRITONBACKEND_ModelInstanceResponseStatisticsDelete(
    TRITONBACKEND_ModelInstanceResponseStatistics *response_statistics);

/* TRITONBACKEND_ModelInstanceResponseStatisticsSetModelInstance - whose response it is. */
TRITONBACKEND_DECLSPEC TRITONSERVER_Error *
TRITONBACKEND_ModelInstanceResponseStatisticsSetModelInstance(
    TRITONBACKEND_ModelInstanceResponseStatistics *response_statistics,
    TRITONBACKEND_ModelInstance *model_instance);

/* TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseFactory - the factory that sends it,
 * which knows how many it has sent. */
TRITONBACKEND_DECLSPEC TRITONSERVER_Error *
TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseFactory(
    TRITONBACKEND_ModelInstanceResponseStatistics *response_statistics,
    TRITONBACKEND_ResponseFactory *response_factory);

/* TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseStart - work on it began. */
TRITONBACKEND_DECLSPEC TRITONSERVER_Error *
TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseStart(
    TRITONBACKEND_ModelInstanceResponseStatistics *response_statistics, uint64_t response_start);

/* TRITONBACKEND_ModelInstanceResponseStatisticsSetComputeOutputStart - its outputs were there. */
TRITONBACKEND_DECLSPEC TRITONSERVER_Error *
TRITONBACKEND_ModelInstanceResponseStatisticsSetComputeOutputStart(
    TRITONBACKEND_ModelInstanceResponseStatistics *response_statistics,
    uint64_t compute_output_start);

/* TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseEnd - it was sent. */
TRITONBACKEND_DECLSPEC TRITONSERVER_Error *
TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseEnd(
    TRITONBACKEND_ModelInstanceResponseStatistics *response_statistics, uint64_t response_end);

/* TRITONBACKEND_ModelInstanceResponseStatisticsSetError - it was an error; still the caller's. */
TRITONBACKEND_DECLSPEC TRITONSERVER_Error *TRITONBACKEND_ModelInstanceResponseStatisticsSetError(
    TRITONBACKEND_ModelInstanceResponseStatistics *response_statistics, TRITONSERVER_Error *error);

/*
 * TRITONBACKEND_ModelInstanceReportResponseStatistics - count it. The object can be used again.
 * Errors: INVALID_ARG  instance, factory or a time is missing, or the times go backwards
 */
TRITONBACKEND_DECLSPEC TRITONSERVER_Error *TRITONBACKEND_ModelInstanceReportResponseStatistics(
    TRITONBACKEND_ModelInstanceResponseStatistics *response_statistics);

/* ---- Attributes of a backend ---------------------------------------------------------------- */

/*
 * TRITONBACKEND_BackendAttributeAddPreferredInstanceGroup - what to make of a model that configures
 * no instances, in order of preference.
 * @count       instances per device; 0 = the server's choice
 * @device_ids  may be NULL when id_count is 0
 */
TRITONBACKEND_DECLSPEC TRITONSERVER_Error *TRITONBACKEND_BackendAttributeAddPreferredInstanceGroup(
    TRITONBACKEND_BackendAttribute *backend_attributes, const TRITONSERVER_InstanceGroupKind kind,
    const uint64_t count, const uint64_t *device_ids, const uint64_t id_count);

/* TRITONBACKEND_BackendAttributeSetParallelModelInstanceLoading - instances of one model may be
 * initialised at the same time. */
TRITONBACKEND_DECLSPEC TRITONSERVER_Error *
TRITONBACKEND_BackendAttributeSetParallelModelInstanceLoading(
    TRITONBACKEND_BackendAttribute *backend_attributes, bool enabled);

/* ---- What a backend defines: all but ModelInstanceExecute are optional ---------------------- */

/* TRITONBACKEND_Initialize - the library has been loaded. */
TRITONBACKEND_ISPEC TRITONSERVER_Error *TRITONBACKEND_Initialize(TRITONBACKEND_Backend *backend);

/* TRITONBACKEND_Finalize - it will be unloaded; all its models are gone. Also when Initialize has
 * returned an error. */
TRITONBACKEND_ISPEC TRITONSERVER_Error *TRITONBACKEND_Finalize(TRITONBACKEND_Backend *backend);

/* TRITONBACKEND_ModelInitialize - a version of a model is being loaded. */
TRITONBACKEND_ISPEC TRITONSERVER_Error *TRITONBACKEND_ModelInitialize(TRITONBACKEND_Model *model);

/* TRITONBACKEND_ModelFinalize - it is going; its instances are gone. */
TRITONBACKEND_ISPEC TRITONSERVER_Error *TRITONBACKEND_ModelFinalize(TRITONBACKEND_Model *model);

/* TRITONBACKEND_ModelInstanceInitialize - an instance is being made. */
TRITONBACKEND_ISPEC TRITONSERVER_Error *
TRITONBACKEND_ModelInstanceInitialize(TRITONBACKEND_ModelInstance *instance);

/* TRITONBACKEND_ModelInstanceFinalize - it is going; it has no requests. */
TRITONBACKEND_ISPEC TRITONSERVER_Error *
TRITONBACKEND_ModelInstanceFinalize(TRITONBACKEND_ModelInstance *instance);

/*
 * TRITONBACKEND_ModelInstanceExecute - run these requests.
 * Thread: any, but never two at once for one instance.
 * @requests  the array may be written to, and may be gone on return; the requests: see the rules of
 *            ownership above
 */
TRITONBACKEND_ISPEC TRITONSERVER_Error *
TRITONBACKEND_ModelInstanceExecute(TRITONBACKEND_ModelInstance *instance,
                                   TRITONBACKEND_Request **requests, const uint32_t request_count);

/* TRITONBACKEND_ModelInstanceReady - is this instance able to work? NULL = yes. */
TRITONBACKEND_ISPEC TRITONSERVER_Error *
TRITONBACKEND_ModelInstanceReady(TRITONBACKEND_ModelInstance *instance);

/* TRITONBACKEND_GetBackendAttribute - called once after Initialize, to set attributes. An error is
 * logged, and the backend runs without them. */
TRITONBACKEND_ISPEC TRITONSERVER_Error *
TRITONBACKEND_GetBackendAttribute(TRITONBACKEND_Backend *backend,
                                  TRITONBACKEND_BackendAttribute *backend_attributes);

/* ---- What a batching library defines: all five or none -------------------------------------- */

/*
 * A batching library decides for models with a dynamic batcher which of the waiting requests are
 * executed together, within what the model's configuration permits. For one model one of its
 * functions is called at a time, on any thread. An error of a batch's functions is logged.
 */

/*
 * TRITONBACKEND_ModelBatcherInitialize - a model with this library is being loaded; its
 * configuration is complete, its instances are still to come. An error fails the load, and
 * ModelBatcherFinalize is called even so.
 * @batcher  anything, NULL until it is set; handed to the functions below
 */
TRITONBACKEND_ISPEC TRITONSERVER_Error *
TRITONBACKEND_ModelBatcherInitialize(TRITONBACKEND_Batcher **batcher, TRITONBACKEND_Model *model);

/* TRITONBACKEND_ModelBatcherFinalize - the model is going. */
TRITONBACKEND_ISPEC TRITONSERVER_Error *
TRITONBACKEND_ModelBatcherFinalize(TRITONBACKEND_Batcher *batcher);

/*
 * TRITONBACKEND_ModelBatchIncludeRequest - does this request belong into the batch?
 *
 * Asked in the order of the queue about each request that fits into the batch, the first one
 * included. A yes is no promise: with preferred sizes, or when a more urgent request comes, it may
 * be offered again, to a later batch.
 * @request         only to be looked at
 * @userp           of the batch, from ModelBatchInitialize
 * @should_include  false until it is set, and what counts even with an error. false: the batch is
 *                  complete, and this request begins another one. A first request that is refused
 *                  is executed alone.
 */
TRITONBACKEND_ISPEC TRITONSERVER_Error *
TRITONBACKEND_ModelBatchIncludeRequest(TRITONBACKEND_Request *request, void *userp,
                                       bool *should_include);

/*
 * TRITONBACKEND_ModelBatchInitialize - a batch begins. After an error the library is not asked
 * about its requests.
 * @userp  anything, NULL until it is set
 */
TRITONBACKEND_ISPEC TRITONSERVER_Error *
TRITONBACKEND_ModelBatchInitialize(const TRITONBACKEND_Batcher *batcher, void **userp);

/* TRITONBACKEND_ModelBatchFinalize - it is complete, or void. Not called if userp is NULL. */
TRITONBACKEND_ISPEC TRITONSERVER_Error *TRITONBACKEND_ModelBatchFinalize(void *userp);

#ifdef __cplusplus
}
#endif

#endif
