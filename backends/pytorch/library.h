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
    const struct shim *shim, *aoti;  /* for TorchScript, for packages; NULL: not there */
    char *why_no_shim, *why_no_aoti; /* then; NULL: it is there */
    char *path;                      /* of PyTorch's library; NULL: it is not open */
};

/* What --backend-config says; borrowed. */
struct library_settings {
    const char *file;      /* path of libtorch_cpu.so if the user names one, else NULL */
    const char *shim_file; /* the same of the shim */
    bool allows_code;      /* packages may be loaded, which are native code */
};

/*
 * library_open - find and load them. A shim fits one release of PyTorch, so that of a user's own
 * PyTorch lies beside its library; the one beside this backend is for the PyTorch that Conch was
 * built with. Without one the library is open, and why_no_shim says how to compile one.
 * @backend_dir  the folder of this backend, which has the shim's sources, too
 * Errors: NOT_FOUND    there is no library; the text says where it was looked for, how to get it
 *         UNAVAILABLE  no memory
 */
TRITONSERVER_Error *library_open(const char *backend_dir, const struct library_settings *settings,
                                 struct library *ret_library);
void library_done(struct library *lib); /* the memory only: loaded once, they stay loaded */

/*
 * library_error - an error with a text of the shim.
 * @what  the step that failed
 * @text  taken; NULL: there was no memory for one, and the error is UNAVAILABLE, whatever the code
 */
TRITONSERVER_Error *library_error(TRITONSERVER_Error_Code code, const char *what, char *text);

#endif
