/* SPDX-License-Identifier: Apache-2.0 */
/*
 * library - PyTorch's library, and the shim through which it is called: find them, load them.
 */
#ifndef BACKENDS_PYTORCH_LIBRARY_H
#define BACKENDS_PYTORCH_LIBRARY_H

#include "common/backend.h"
#include "pytorch/shim/shim.h"

/* Constant once open; used by all threads. */
struct library {
    const struct shim *shim; /* NULL: not open */
    char *path;              /* of PyTorch's library; NULL: unknown */
};

/*
 * library_open - find and load them. A shim fits one release of PyTorch, so that of a user's own
 * PyTorch lies beside its library; the one beside this backend is for the PyTorch that Conch was
 * built with.
 * @backend_dir  the folder of this backend, which has the shim's sources, too
 * @file         path of libtorch_cpu.so if the user names one, else NULL
 * @shim_file    the same of the shim
 * Errors: NOT_FOUND    there is no library; the text says where it was looked for, how to get it
 *         UNSUPPORTED  there is no shim for it; the text says how to compile one
 */
TRITONSERVER_Error *library_open(const char *backend_dir, const char *file, const char *shim_file,
                                 struct library *ret_library);
void library_done(struct library *lib); /* the memory only: loaded once, they stay loaded */

/*
 * library_error - an error with a text of the shim.
 * @what  the step that failed
 * @text  taken; NULL: there was no memory for one
 */
TRITONSERVER_Error *library_error(TRITONSERVER_Error_Code code, const char *what, char *text);

#endif
