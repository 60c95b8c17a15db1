/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tf_api - the part of TensorFlow's C interface that we call, by name.
 *
 * No header of theirs is needed to build this backend. Objects of theirs are opaque here; those
 * that a call returns are freed by the caller. A call that can fail has a status as its last
 * argument.
 */
#ifndef BACKENDS_TENSORFLOW_TF_API_H
#define BACKENDS_TENSORFLOW_TF_API_H

#include <stddef.h>
#include <stdint.h>

#define TF_STRING_TYPE 7   /* their number of the element type */
#define TF_REFERENCE   100 /* the type of a variable is that of its elements, and 100 */

struct tf_status;
struct tf_buffer_object;
struct tf_graph;
struct tf_operation;
struct tf_session_options;
struct tf_session_object;
struct tf_import_options;
struct tf_tensor;

/* A string in a tensor; made and read by calls alone. */
struct tf_string {
    uint64_t words[3];
};

/* An output of an operation: a tensor of a graph. */
struct tf_port {
    struct tf_operation *operation;
    int index;
};

typedef void tf_deallocator(void *data, size_t len, void *arg);

/* X(result, name without TF_, parameters) */
#define TF_FUNCTIONS(X)                                                                            \
    X(const char *, Version, (void))                                                               \
    X(struct tf_status *, NewStatus, (void))                                                       \
    X(void, DeleteStatus, (struct tf_status * status))                                             \
    X(int, GetCode, (const struct tf_status *status))                                              \
    X(const char *, Message, (const struct tf_status *status))                                     \
    X(struct tf_buffer_object *, NewBufferFromString, (const void *data, size_t len))              \
    X(void, DeleteBuffer, (struct tf_buffer_object * buffer))                                      \
    X(struct tf_graph *, NewGraph, (void))                                                         \
    X(void, DeleteGraph, (struct tf_graph * graph))                                                \
    X(struct tf_operation *, GraphOperationByName, (struct tf_graph * graph, const char *name))    \
    X(struct tf_operation *, GraphNextOperation, (struct tf_graph * graph, size_t * position))     \
    X(const char *, OperationName, (struct tf_operation * operation))                              \
    X(const char *, OperationOpType, (struct tf_operation * operation))                            \
    X(void *, LoadLibrary, (const char *file, struct tf_status *status))                           \
    X(void, DeleteLibraryHandle, (void *library))                                                  \
    X(int, OperationNumOutputs, (struct tf_operation * operation))                                 \
    X(int, OperationOutputType, (struct tf_port port))                                             \
    X(struct tf_import_options *, NewImportGraphDefOptions, (void))                                \
    X(void, DeleteImportGraphDefOptions, (struct tf_import_options * options))                     \
    X(void, GraphImportGraphDef,                                                                   \
      (struct tf_graph * graph, const struct tf_buffer_object *message,                            \
       const struct tf_import_options *options, struct tf_status *status))                         \
    X(struct tf_session_options *, NewSessionOptions, (void))                                      \
    X(void, DeleteSessionOptions, (struct tf_session_options * options))                           \
    X(void, SetConfig,                                                                             \
      (struct tf_session_options * options, const void *message, size_t len,                       \
       struct tf_status *status))                                                                  \
    X(struct tf_session_object *, NewSession,                                                      \
      (struct tf_graph * graph, const struct tf_session_options *options,                          \
       struct tf_status *status))                                                                  \
    X(struct tf_session_object *, LoadSessionFromSavedModel,                                       \
      (const struct tf_session_options *options, const struct tf_buffer_object *run_options,       \
       const char *folder, const char *const *tags, int n_tags, struct tf_graph *graph,            \
       struct tf_buffer_object *meta_graph, struct tf_status *status))                             \
    X(void, CloseSession, (struct tf_session_object * session, struct tf_status * status))         \
    X(void, DeleteSession, (struct tf_session_object * session, struct tf_status * status))        \
    X(void, SessionRun,                                                                            \
      (struct tf_session_object * session, const struct tf_buffer_object *run_options,             \
       const struct tf_port *inputs, struct tf_tensor *const *given, int n_inputs,                 \
       const struct tf_port *outputs, struct tf_tensor **made, int n_outputs,                      \
       const struct tf_operation *const *targets, int n_targets,                                   \
       struct tf_buffer_object *run_metadata, struct tf_status *status))                           \
    X(struct tf_tensor *, NewTensor,                                                               \
      (int type, const int64_t *dims, int rank, void *data, size_t len,                            \
       tf_deallocator *deallocator, void *arg))                                                    \
    X(struct tf_tensor *, AllocateTensor, (int type, const int64_t *dims, int rank, size_t len))   \
    X(void, DeleteTensor, (struct tf_tensor * tensor))                                             \
    X(int, TensorType, (const struct tf_tensor *tensor))                                           \
    X(int, NumDims, (const struct tf_tensor *tensor))                                              \
    X(int64_t, Dim, (const struct tf_tensor *tensor, int index))                                   \
    X(size_t, TensorByteSize, (const struct tf_tensor *tensor))                                    \
    X(void *, TensorData, (const struct tf_tensor *tensor))                                        \
    X(void, StringInit, (struct tf_string * string))                                               \
    X(void, StringCopy, (struct tf_string * to, const char *data, size_t len))                     \
    X(const char *, StringGetDataPointer, (const struct tf_string *string))                        \
    X(size_t, StringGetSize, (const struct tf_string *string))                                     \
    X(void, StringDealloc, (struct tf_string * string))

/* Constant once filled. */
struct tf_api {
#define TF_MEMBER(result, name, parameters) result(*name) parameters;
    TF_FUNCTIONS(TF_MEMBER)
#undef TF_MEMBER
};

#endif
