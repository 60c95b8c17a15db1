/* SPDX-License-Identifier: Apache-2.0 */
/*
 * library - ONNX Runtime's library: find it, load it, call it.
 *
 * The backend does not link to it: users have it in different places and versions, and a server
 * without ONNX models does not need it.
 */
#ifndef BACKENDS_ONNXRUNTIME_LIBRARY_H
#define BACKENDS_ONNXRUNTIME_LIBRARY_H

#include "common/backend.h"
#include "onnxruntime/ort_api.h"

/* Constant once open; used by all threads. */
struct library {
    struct ort_api api;
    char *path;          /* NULL: unknown */
    const char *version; /* theirs */
    char *providers;     /* names of the execution providers that it has: "A, B" */
};

/*
 * library_open - find and load it.
 * @backend_dir  the folder of this backend
 * @file         path of the library if the user names one, else NULL
 * Errors: NOT_FOUND    there is no library; the text says where it was looked for, how to get it
 *         UNSUPPORTED  the library is too old, or cannot be loaded
 */
TRITONSERVER_Error *library_open(const char *backend_dir, const char *file,
                                 struct library *ret_library);
void library_done(struct library *l); /* the memory only: loaded once, it stays loaded */

/*
 * library_keep_backend - keep the library of this backend itself in the process, even when the
 * server unloads it, since a thread still runs its code. Any thread.
 */
void library_keep_backend(void);

/* library_offers - has it an execution provider of that name? */
bool library_offers(const struct library *l, const char *provider);

/* library_error - a status as an error; the status is taken. NULL for NULL. */
TRITONSERVER_Error *library_error(const struct library *l, struct ort_status *status);

/* TRY_ORT - as TRY, for a call that returns a status. */
#define TRY_ORT(library, call)                                                                     \
    do {                                                                                           \
        struct ort_status *try_status = (library)->api.call;                                       \
        if (try_status)                                                                            \
            return library_error(library, try_status);                                             \
    } while (0)

#endif
