/* SPDX-License-Identifier: Apache-2.0 */
/*
 * runtime - ONNX Runtime's library: find it, load it, speak with it.
 *
 * It is never linked: users have it in different places and versions, and a server without ONNX
 * models should not need it. One runtime serves all models of the backend.
 */
#ifndef BACKENDS_ONNXRUNTIME_RUNTIME_H
#define BACKENDS_ONNXRUNTIME_RUNTIME_H

#include "common/backend.h"
#include "onnxruntime/ort_api.h"

/* Constant once open; used by all threads. */
struct runtime {
    struct ort_api api;
    struct ort_env *env;
    struct ort_memory *cpu;     /* says of a buffer: host memory, not theirs */
    struct ort_allocator *heap; /* their default allocator */
    char *path;
    const char *version;
};

/*
 * runtime_open - find and load the library.
 * @backend_dir  the folder of this backend
 * @library      path of the library if the user names one, else NULL
 * Errors: NOT_FOUND    it is nowhere; the text says where it was looked for and how to get it
 *         UNSUPPORTED  it is too old, or cannot be loaded
 */
TRITONSERVER_Error *runtime_open(const char *backend_dir, const char *library,
                                 struct runtime **ret_runtime);
void runtime_close(struct runtime *rt);

/* runtime_error - a status as an error; the status is taken. NULL for NULL. */
TRITONSERVER_Error *runtime_error(const struct runtime *rt, struct ort_status *status);

/* TRY_ORT - as TRY, for a call that returns a status. */
#define TRY_ORT(rt, call)                                                                          \
    do {                                                                                           \
        struct ort_status *try_status = (rt)->api.call;                                            \
        if (try_status)                                                                            \
            return runtime_error(rt, try_status);                                                  \
    } while (0)

#endif
