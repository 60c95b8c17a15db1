/* SPDX-License-Identifier: Apache-2.0 */
/*
 * aoti - models that PyTorch's AOTInductor has compiled (package.h), by C functions alone: those
 * that the model's code has, and those of PyTorch's library that it calls.
 *
 * Threads: any number may run a model; so many run at once as it was loaded for, the others wait.
 */
#ifndef BACKENDS_PYTORCH_AOTI_H
#define BACKENDS_PYTORCH_AOTI_H

#include "common/backend.h"
#include "pytorch/shim/shim.h"

/*
 * aoti_open - find PyTorch's functions, once in a process. What it gives is used as a shim, of
 * which it has only what a model needs: load, copy, free, run, release. Code that was loaded once
 * stays, and is used again for the same package, since code in C++ cannot always be unloaded. So
 * this backend stays, too, when the server would unload it with its last model.
 * @library  of PyTorch, for dlsym()
 * @path     the same library's; what it has becomes visible to all code that is loaded later, since
 *           not every package names it among the libraries that it needs
 * Errors: UNSUPPORTED  it has none of them: PyTorch is too old
 */
TRITONSERVER_Error *aoti_open(void *library, const char *path, const struct shim **ret_shim);

/* aoti_sets_threads - does shim_options.threads have an effect with the library of aoti_open(),
 * which has succeeded? Any thread. */
bool aoti_sets_threads(void);

#endif
