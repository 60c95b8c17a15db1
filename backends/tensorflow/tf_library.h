/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tf_library - TensorFlow's library: find it, load it, turn its errors into the server's.
 */
#ifndef BACKENDS_TENSORFLOW_TF_LIBRARY_H
#define BACKENDS_TENSORFLOW_TF_LIBRARY_H

#include "common/backend.h"
#include "tensorflow/tf_api.h"

/* Constant once open; used by all threads. */
struct tf_library {
    struct tf_api api;
    const char *version; /* theirs */
    char *path;          /* NULL: unknown */
};

/*
 * tf_library_open - find and load it.
 * @folder  of this backend
 * @file    path of the library if the user names one, else NULL
 * Errors: NOT_FOUND    there is no library; the text says where it was looked for, how to get it
 *         UNSUPPORTED  it lacks a function, or is too old
 */
TRITONSERVER_Error *tf_library_open(const char *folder, const char *file,
                                    struct tf_library *ret_library);
void tf_library_done(struct tf_library *l); /* the memory only: loaded once, it stays loaded */

/*
 * tf_library_error - a status of TensorFlow as an error, in one line; NULL: the call succeeded.
 * @what  the step, as "loading the model"
 */
TRITONSERVER_Error *tf_library_error(const struct tf_library *l, const struct tf_status *status,
                                     const char *what);

#endif
