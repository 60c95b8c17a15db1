/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ort_api - the part of ONNX Runtime's C interface that we call, by index in its table.
 *
 * ONNX Runtime gives out one table of functions. New releases only append to it, so a function is
 * its number, and no header of theirs is needed to build this backend; a test compares the numbers
 * with such a header when it can get one.
 *
 * A call that can fail returns a status, NULL for success. Objects of theirs are opaque here.
 */
#ifndef BACKENDS_ONNXRUNTIME_ORT_API_H
#define BACKENDS_ONNXRUNTIME_ORT_API_H

#include <stddef.h>
#include <stdint.h>

/* The version of the table that has all of ORT_FUNCTIONS: that of release 1.16. */
#define ORT_TABLE_VERSION 16

struct ort_allocator;
struct ort_cuda; /* options of that provider */
struct ort_env;
struct ort_memory;
struct ort_optional; /* type of a value that may be absent */
struct ort_options;
struct ort_run_options;
struct ort_session;
struct ort_shape; /* type and shape of a tensor */
struct ort_status;
struct ort_tensorrt; /* options of that provider */
struct ort_thread;
struct ort_threading;
struct ort_type;
struct ort_value;

enum ort_severity { ORT_VERBOSE, ORT_INFO, ORT_WARNING, ORT_ERROR, ORT_FATAL };
enum ort_kind { ORT_KIND_TENSOR = 1, ORT_KIND_SEQUENCE = 2, ORT_KIND_OPTIONAL = 6 };
enum ort_allocator_kind { ORT_DEVICE_ALLOCATOR, ORT_ARENA_ALLOCATOR };
enum ort_memory_kind { ORT_MEMORY_DEFAULT };
enum ort_execution_mode { ORT_MODE_SEQUENTIAL, ORT_MODE_PARALLEL };
enum ort_graph_level {
    ORT_GRAPH_NONE = 0,
    ORT_GRAPH_BASIC,
    ORT_GRAPH_EXTENDED,
    ORT_GRAPH_ALL = 99
};

/* Types of tensor elements; those that have no counterpart in a server are left out. */
enum ort_element {
    ORT_FLOAT = 1,
    ORT_UINT8,
    ORT_INT8,
    ORT_UINT16,
    ORT_INT16,
    ORT_INT32,
    ORT_INT64,
    ORT_STRING,
    ORT_BOOL,
    ORT_FLOAT16,
    ORT_DOUBLE,
    ORT_UINT32,
    ORT_UINT64,
    ORT_BFLOAT16 = 16,
};

typedef void ort_log_fn(void *param, enum ort_severity severity, const char *category,
                        const char *logid, const char *code_location, const char *message);

/* Callbacks that start a thread of ours, which calls run(arg), and join it. NULL: no thread. */
typedef struct ort_thread *ort_start_thread_fn(void *param, void (*run)(void *arg), void *arg);
typedef void ort_join_thread_fn(struct ort_thread *thread);

/* X(place, result, name, parameters) */
/* clang-format off */
#define ORT_FUNCTIONS(X)                                                                           \
    X(1, int, GetErrorCode, (const struct ort_status *))                                           \
    X(2, const char *, GetErrorMessage, (const struct ort_status *))                               \
    X(4, struct ort_status *, CreateEnvWithCustomLogger,                                           \
      (ort_log_fn *, void *, enum ort_severity, const char *, struct ort_env **))                  \
    X(7, struct ort_status *, CreateSession,                                                       \
      (const struct ort_env *, const char *, const struct ort_options *,                           \
       struct ort_session **))                                                                     \
    X(9, struct ort_status *, Run,                                                                 \
      (struct ort_session *, const struct ort_run_options *, const char *const *,                  \
       const struct ort_value *const *, size_t, const char *const *, size_t,                       \
       struct ort_value **))                                                                       \
    X(10, struct ort_status *, CreateSessionOptions, (struct ort_options **))                      \
    X(13, struct ort_status *, SetSessionExecutionMode,                                            \
      (struct ort_options *, enum ort_execution_mode))                                             \
    X(17, struct ort_status *, DisableMemPattern, (struct ort_options *))                          \
    X(19, struct ort_status *, DisableCpuMemArena, (struct ort_options *))                         \
    X(20, struct ort_status *, SetSessionLogId, (struct ort_options *, const char *))              \
    X(22, struct ort_status *, SetSessionLogSeverityLevel, (struct ort_options *, int))            \
    X(23, struct ort_status *, SetSessionGraphOptimizationLevel,                                   \
      (struct ort_options *, enum ort_graph_level))                                                \
    X(24, struct ort_status *, SetIntraOpNumThreads, (struct ort_options *, int))                  \
    X(25, struct ort_status *, SetInterOpNumThreads, (struct ort_options *, int))                  \
    X(30, struct ort_status *, SessionGetInputCount, (const struct ort_session *, size_t *))       \
    X(31, struct ort_status *, SessionGetOutputCount, (const struct ort_session *, size_t *))      \
    X(32, struct ort_status *, SessionGetOverridableInitializerCount,                              \
      (const struct ort_session *, size_t *))                                                      \
    X(33, struct ort_status *, SessionGetInputTypeInfo,                                            \
      (const struct ort_session *, size_t, struct ort_type **))                                    \
    X(34, struct ort_status *, SessionGetOutputTypeInfo,                                           \
      (const struct ort_session *, size_t, struct ort_type **))                                    \
    X(35, struct ort_status *, SessionGetOverridableInitializerTypeInfo,                           \
      (const struct ort_session *, size_t, struct ort_type **))                                    \
    X(36, struct ort_status *, SessionGetInputName,                                                \
      (const struct ort_session *, size_t, struct ort_allocator *, char **))                       \
    X(37, struct ort_status *, SessionGetOutputName,                                               \
      (const struct ort_session *, size_t, struct ort_allocator *, char **))                       \
    X(38, struct ort_status *, SessionGetOverridableInitializerName,                               \
      (const struct ort_session *, size_t, struct ort_allocator *, char **))                       \
    X(39, struct ort_status *, CreateRunOptions, (struct ort_run_options **))                      \
    X(46, struct ort_status *, RunOptionsSetTerminate, (struct ort_run_options *))                 \
    X(47, struct ort_status *, RunOptionsUnsetTerminate, (struct ort_run_options *))               \
    X(48, struct ort_status *, CreateTensorAsOrtValue,                                             \
      (struct ort_allocator *, const int64_t *, size_t, enum ort_element, struct ort_value **))    \
    X(49, struct ort_status *, CreateTensorWithDataAsOrtValue,                                     \
      (const struct ort_memory *, void *, size_t, const int64_t *, size_t, enum ort_element,       \
       struct ort_value **))                                                                       \
    X(51, struct ort_status *, GetTensorMutableData, (struct ort_value *, void **))                \
    X(55, struct ort_status *, CastTypeInfoToTensorInfo,                                           \
      (const struct ort_type *, const struct ort_shape **))                                        \
    X(56, struct ort_status *, GetOnnxTypeFromTypeInfo,                                            \
      (const struct ort_type *, enum ort_kind *))                                                  \
    X(60, struct ort_status *, GetTensorElementType,                                               \
      (const struct ort_shape *, enum ort_element *))                                              \
    X(61, struct ort_status *, GetDimensionsCount, (const struct ort_shape *, size_t *))           \
    X(62, struct ort_status *, GetDimensions, (const struct ort_shape *, int64_t *, size_t))       \
    X(63, struct ort_status *, GetSymbolicDimensions,                                              \
      (const struct ort_shape *, const char **, size_t))                                           \
    X(65, struct ort_status *, GetTensorTypeAndShape,                                              \
      (const struct ort_value *, struct ort_shape **))                                             \
    X(69, struct ort_status *, CreateCpuMemoryInfo,                                                \
      (enum ort_allocator_kind, enum ort_memory_kind, struct ort_memory **))                       \
    X(76, struct ort_status *, AllocatorFree, (struct ort_allocator *, void *))                    \
    X(78, struct ort_status *, GetAllocatorWithDefaultOptions, (struct ort_allocator **))          \
    X(92, void, ReleaseEnv, (struct ort_env *))                                                    \
    X(93, void, ReleaseStatus, (struct ort_status *))                                              \
    X(94, void, ReleaseMemoryInfo, (struct ort_memory *))                                          \
    X(95, void, ReleaseSession, (struct ort_session *))                                            \
    X(96, void, ReleaseValue, (struct ort_value *))                                                \
    X(97, void, ReleaseRunOptions, (struct ort_run_options *))                                     \
    X(98, void, ReleaseTypeInfo, (struct ort_type *))                                              \
    X(99, void, ReleaseTensorTypeAndShapeInfo, (struct ort_shape *))                               \
    X(100, void, ReleaseSessionOptions, (struct ort_options *))                                    \
    X(120, struct ort_status *, DisablePerSessionThreads, (struct ort_options *))                  \
    X(121, struct ort_status *, CreateThreadingOptions, (struct ort_threading **))                 \
    X(122, void, ReleaseThreadingOptions, (struct ort_threading *))                                \
    X(125, struct ort_status *, GetAvailableProviders, (char ***, int *))                          \
    X(126, struct ort_status *, ReleaseAvailableProviders, (char **, int))                         \
    X(127, struct ort_status *, GetStringTensorElementLength,                                      \
      (const struct ort_value *, size_t, size_t *))                                                \
    X(128, struct ort_status *, GetStringTensorElement,                                            \
      (const struct ort_value *, size_t, size_t, void *))                                          \
    X(130, struct ort_status *, AddSessionConfigEntry,                                             \
      (struct ort_options *, const char *, const char *))                                          \
    X(147, struct ort_status *, SetGlobalIntraOpNumThreads, (struct ort_threading *, int))         \
    X(148, struct ort_status *, SetGlobalInterOpNumThreads, (struct ort_threading *, int))         \
    X(149, struct ort_status *, SetGlobalSpinControl, (struct ort_threading *, int))               \
    X(151, struct ort_status *, CreateEnvWithCustomLoggerAndGlobalThreadPools,                     \
      (ort_log_fn *, void *, enum ort_severity, const char *, const struct ort_threading *,        \
       struct ort_env **))                                                                         \
    X(165, struct ort_status *, AddRunConfigEntry,                                                 \
      (struct ort_run_options *, const char *, const char *))                                      \
    X(170, struct ort_status *, SessionOptionsAppendExecutionProvider_TensorRT_V2,                 \
      (struct ort_options *, const struct ort_tensorrt *))                                         \
    X(171, struct ort_status *, CreateTensorRTProviderOptions, (struct ort_tensorrt **))           \
    X(172, struct ort_status *, UpdateTensorRTProviderOptions,                                     \
      (struct ort_tensorrt *, const char *const *, const char *const *, size_t))                   \
    X(174, void, ReleaseTensorRTProviderOptions, (struct ort_tensorrt *))                          \
    X(196, struct ort_status *, SessionOptionsSetCustomCreateThreadFn,                             \
      (struct ort_options *, ort_start_thread_fn *))                                               \
    X(197, struct ort_status *, SessionOptionsSetCustomThreadCreationOptions,                      \
      (struct ort_options *, void *))                                                              \
    X(198, struct ort_status *, SessionOptionsSetCustomJoinThreadFn,                               \
      (struct ort_options *, ort_join_thread_fn *))                                                \
    X(199, struct ort_status *, SetGlobalCustomCreateThreadFn,                                     \
      (struct ort_threading *, ort_start_thread_fn *))                                             \
    X(200, struct ort_status *, SetGlobalCustomThreadCreationOptions,                              \
      (struct ort_threading *, void *))                                                            \
    X(201, struct ort_status *, SetGlobalCustomJoinThreadFn,                                       \
      (struct ort_threading *, ort_join_thread_fn *))                                              \
    X(204, struct ort_status *, SessionOptionsAppendExecutionProvider_CUDA_V2,                     \
      (struct ort_options *, const struct ort_cuda *))                                             \
    X(205, struct ort_status *, CreateCUDAProviderOptions, (struct ort_cuda **))                   \
    X(206, struct ort_status *, UpdateCUDAProviderOptions,                                         \
      (struct ort_cuda *, const char *const *, const char *const *, size_t))                       \
    X(208, void, ReleaseCUDAProviderOptions, (struct ort_cuda *))                                  \
    X(216, struct ort_status *, SessionOptionsAppendExecutionProvider,                             \
      (struct ort_options *, const char *, const char *const *, const char *const *, size_t))      \
    X(226, struct ort_status *, UpdateEnvWithCustomLogLevel,                                       \
      (struct ort_env *, enum ort_severity))                                                       \
    X(228, struct ort_status *, RegisterCustomOpsLibrary_V2,                                       \
      (struct ort_options *, const char *))                                                        \
    X(250, struct ort_status *, CastTypeInfoToOptionalTypeInfo,                                    \
      (const struct ort_type *, const struct ort_optional **))                                     \
    X(251, struct ort_status *, GetOptionalContainedTypeInfo,                                      \
      (const struct ort_optional *, struct ort_type **))                                           \
    X(252, struct ort_status *, GetResizedStringTensorElementBuffer,                               \
      (struct ort_value *, size_t, size_t, char **))

/* The same of later releases, from 1.ORT_LATER_VERSION on. NULL in an older library. */
#define ORT_LATER_VERSION 18
#define ORT_LATER_FUNCTIONS(X)                                                                     \
    X(279, struct ort_status *, AddExternalInitializersFromFilesInMemory,                          \
      (struct ort_options *, const char *const *, char *const *, const size_t *, size_t))
/* clang-format on */

struct ort_api {
#define ORT_MEMBER(place, result, name, parameters) result(*name) parameters;
    ORT_FUNCTIONS(ORT_MEMBER)
    ORT_LATER_FUNCTIONS(ORT_MEMBER)
#undef ORT_MEMBER
};

/* What the library exports, by the name OrtGetApiBase. */
struct ort_api_base {
    const void *const *(*GetApi)(uint32_t version); /* the table; NULL: not in this library */
    const char *(*GetVersionString)(void);
};
typedef const struct ort_api_base *ort_get_api_base_fn(void);

#endif
