/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Only the backends in `finders` are loaded, into this process, and they stay loaded until it
 * ends. Thread: the main one.
 */
#include "version.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/compiler.h"
#include "triton/core/tritonserver.h"

typedef char *backend_version_fn(const char *folder, const char *library_path);

/* The backends that search for a library; no other backend is loaded to print a version. */
static const char *const finders[] = {"onnxruntime", "fil",        "openvino",
                                      "pytorch",     "tensorflow", "tensorrt"};

/* Returns the value of a text like "[backend,]library-path=value"; NULL: it is another setting. */
static const char *library_path_in(const char *text, const char *backend)
{
    static const char key[] = "library-path=";
    size_t length = strlen(backend);

    if (length > 0) {
        if (strncmp(text, backend, length) != 0 || text[length] != ',')
            return NULL;
        text += length + 1;
    }
    return strncmp(text, key, sizeof(key) - 1) == 0 ? text + sizeof(key) - 1 : NULL;
}

/* Finds the path that the backend would get: its own setting wins over one for all, the last of
 * several counts. */
static const char *find_library_path(const char *backend, const char *const *settings, size_t n)
{
    const char *own = NULL, *all = NULL;

    for (size_t i = 0; i < n; i++) {
        const char *this_own = library_path_in(settings[i], backend);
        const char *this_all = library_path_in(settings[i], "");

        own = this_own ? this_own : own;
        all = this_all ? this_all : all;
    }
    return own ? own : all;
}

/* A backend that is not installed has no line. */
static void print_backend(const char *backends, const char *name, const char *library_path)
{
    char folder[4096], library[4224];
    backend_version_fn *version = NULL;
    void *handle, *symbol;
    char *text;

    snprintf(folder, sizeof(folder), "%s/%s", backends, name);
    snprintf(library, sizeof(library), "%s/libtriton_%s.so", folder, name);
    if (access(library, F_OK) != 0)
        return;
    handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
        printf("%s: cannot be loaded: %s\n", name, dlerror());
        return;
    }
    symbol = dlsym(handle, "conch_backend_version");
    if (!symbol) { /* another author's backend of that name */
        printf("%s: %s, which does not tell what it finds\n", name, library);
        return;
    }
    memcpy(&version, &symbol, sizeof(version));
    text = version(folder, library_path);
    printf("%s: %s\n", name, text ? text : "out of memory");
    free(text);
}

void version_print(const char *backends, const char *const *settings, size_t n_settings)
{
    uint32_t major = 0, minor = 0;

    TRITONSERVER_ErrorDelete(TRITONSERVER_ApiVersion(&major, &minor));
    printf("conch %s (TRITONSERVER API %u.%u)\n", CONCH_VERSION, major, minor);
    for (size_t i = 0; i < ARRAY_SIZE(finders); i++)
        print_backend(backends, finders[i], find_library_path(finders[i], settings, n_settings));
}
