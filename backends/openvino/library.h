/* SPDX-License-Identifier: Apache-2.0 */
/*
 * library - OpenVINO's library: find it, load it, turn its errors into the server's.
 */
#ifndef BACKENDS_OPENVINO_LIBRARY_H
#define BACKENDS_OPENVINO_LIBRARY_H

#include <signal.h>

#include "common/backend.h"
#include "openvino/ov_api.h"

/* Constant once open; used by all threads. */
struct library {
    struct ov_api api;
    char *version; /* theirs */
    char *path;    /* NULL: unknown */
};

/*
 * library_open - find and load it.
 * @backend_dir  the folder of this backend
 * @file         path of the library if the user names one, else NULL
 * Errors: NOT_FOUND    there is no library; the text says where it was looked for, how to get it
 *         UNSUPPORTED  the library is too old, or lacks a function
 */
TRITONSERVER_Error *library_open(const char *backend_dir, const char *file,
                                 struct library *ret_library);
/*
 * library_start - let OpenVINO look at the processors, once, before the first model.
 * Errors: INTERNAL  it has no device CPU
 */
TRITONSERVER_Error *library_start(const struct library *l);

void library_done(struct library *l); /* the memory only: loaded once, it stays loaded */

/*
 * library_give_stack_back - set this thread's alternate stack for signals again: the device CPU
 * puts its own in its place when it is made, and frees that when it is freed, on whatever thread.
 * @before  of sigaltstack(), from before the device was made
 */
void library_give_stack_back(const stack_t *before);

/*
 * library_error - the process's last error of OpenVINO, in one line.
 * @what  the step that failed, as "reading model"
 */
TRITONSERVER_Error *library_error(const struct library *l, const char *what);

/* TRY_OV - leave the function with an error if this call of OpenVINO failed. */
#define TRY_OV(l, what, name, ...)                                                                 \
    do {                                                                                           \
        if ((l)->api.name(__VA_ARGS__) != 0)                                                       \
            return library_error(l, what);                                                         \
    } while (0)

#endif
