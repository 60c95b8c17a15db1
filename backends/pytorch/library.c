/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PyTorch's library is loaded first. The shim names it as a library that it needs, by its name
 * without a folder, so the loader takes the one that is there already.
 */
#include "pytorch/library.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/framework.h"

/* CMake knows them if there is a shim (shim/CMakeLists.txt). */
#ifndef TORCH_COMPILED
#define TORCH_COMPILED ""
#define TORCH_SONAME   "libtorch_cpu.so"
#define TORCH_FILE     "libtorch_cpu.so"
#endif

static const struct framework torch = {
    .title = "PyTorch's library libtorch_cpu.so",
    .variable = "CONCH_TORCH",
    .beside = (const char *const[]){"/libtorch_cpu.so*", "/torch/lib/libtorch_cpu.so*", NULL},
    .system = (const char *const[]){TORCH_SONAME, TORCH_FILE, NULL},
    .package = "torch/lib/libtorch_cpu.so",
    .how_to_get = "get PyTorch " TORCH_COMPILED ", which this backend was compiled for (Debian 12: "
                  "`apt-get install libtorch1.13`), or name it: "
                  "--backend-config=pytorch,library-path=FILE or CONCH_TORCH=FILE",
    .sleeps = true,
};

static TRITONSERVER_Error *load_shim(const char *file, const struct shim **ret_shim)
{
    void *handle = dlopen(file, RTLD_NOW | RTLD_LOCAL), *symbol;
    shim_fn *function;

    if (!handle)
        return backend_error(TRITONSERVER_ERROR_UNSUPPORTED,
                             "the backend pytorch is compiled for PyTorch " TORCH_COMPILED
                             ", and its part %s cannot be loaded: %s",
                             file, dlerror());
    *ret_shim = NULL;
    symbol = dlsym(handle, SHIM_FUNCTION);
    if (symbol) {
        /* Data and function pointers have one representation on every system that has dlsym. */
        memcpy(&function, &symbol, sizeof(symbol));
        *ret_shim = function(SHIM_VERSION);
    }
    return *ret_shim ? NULL
                     : backend_error(TRITONSERVER_ERROR_UNSUPPORTED,
                                     "%s is of another build than the backend pytorch", file);
}

static TRITONSERVER_Error *find_shim(const char *backend_dir, char **ret_file)
{
    if (asprintf(ret_file, "%s/libconch_torch.so", backend_dir) < 0)
        return backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "out of memory");
    if (access(*ret_file, F_OK) == 0)
        return NULL;
    free(*ret_file);
    return backend_error(
        TRITONSERVER_ERROR_UNSUPPORTED,
        "the backend pytorch was built without PyTorch's headers, so it has no libconch_torch.so "
        "in '%s'; install them (Debian 12: `apt-get install libtorch-dev g++`), and build again",
        backend_dir);
}

TRITONSERVER_Error *library_open(const char *backend_dir, const char *file,
                                 struct library *ret_library)
{
    TRITONSERVER_Error *err;
    void *handle;
    char *shim;

    TRY(find_shim(backend_dir, &shim));
    err = framework_find(&torch, backend_dir, file, &handle);
    if (!err)
        err = load_shim(shim, &ret_library->shim);
    if (!err)
        ret_library->path = framework_path(ret_library->shim->inside);
    free(shim);
    return err;
}

void library_done(struct library *lib)
{
    free(lib->path);
    *lib = (struct library){0};
}

TRITONSERVER_Error *library_error(TRITONSERVER_Error_Code code, const char *what, char *text)
{
    TRITONSERVER_Error *err = backend_error(code, "%s: %s", what, text ? text : "out of memory");

    free(text);
    return err;
}
