/* SPDX-License-Identifier: Apache-2.0 */
/*
 * library - TensorRT's library: find it, load it, call its objects, receive its messages.
 */
#ifndef BACKENDS_TENSORRT_LIBRARY_H
#define BACKENDS_TENSORRT_LIBRARY_H

#include "common/backend.h"
#include "tensorrt/trt_api.h"

/* Constant once open; used by all threads. */
struct library {
    char version[32]; /* theirs */
    char *path;       /* NULL: unknown */
    int32_t number;   /* the version as they count it */
    const uint8_t *slots;
    struct trt_inner *logger; /* what they write to, for as long as the process lives */
    trt_create_runtime_fn *create_runtime;
};

/*
 * library_open - find and load it.
 * @backend_dir  the folder of this backend
 * @file         path of libnvinfer.so if the user names one, else NULL
 * Errors: NOT_FOUND    there is no library; the text says where it was looked for, how to get it
 *         UNSUPPORTED  the library is of a release that this backend does not know
 */
TRITONSERVER_Error *library_open(const char *backend_dir, const char *file,
                                 struct library *ret_library);
void library_done(struct library *lib); /* the memory only: loaded once, it stays loaded */

/* library_load_plugins - load what models may call besides: TensorRT's own plugins, if their
 * library lies beside it, and the files of a list with semicolons. A missing one is logged. */
void library_load_plugins(const struct library *lib, const char *files);

/* TRT - call a function of an object. */
#define TRT(lib, name, object, ...)                                                                \
    (((trt_##name##_fn *)(object)->inner->table[(lib)->slots[TRT_SLOT_##name]])(                   \
        (object)->inner __VA_OPT__(, ) __VA_ARGS__))

/* library_delete - ends an object; NULL is fine. */
void library_delete(struct trt_object *object);

/* messages_keep - from now on TensorRT's errors on this thread are kept, and not logged, until
 * messages_error() or messages_forget(). */
void messages_keep(void);

/*
 * messages_error - an error with the first of those kept.
 * @what  the step that failed
 */
TRITONSERVER_Error *messages_error(const char *what);
void messages_forget(void); /* the step has not failed */

#endif
