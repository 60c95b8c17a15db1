/* SPDX-License-Identifier: Apache-2.0 */
#include "version.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "triton/core/tritonserver.h"

typedef char *backend_version_fn(const char *folder);

/* Those that find a library; nobody else's code is loaded to tell a version. */
static const char *const finders[] = {"onnxruntime"};

/* A backend that is not installed has no line. */
static void print_backend(const char *backends, const char *name)
{
    char folder[4096], library[4224];
    backend_version_fn *version = NULL;
    void *handle, *symbol;
    char *text;

    snprintf(folder, sizeof(folder), "%s/%s", backends, name);
    snprintf(library, sizeof(library), "%s/libtriton_%s.so", folder, name);
    handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    symbol = handle ? dlsym(handle, "conch_backend_version") : NULL;
    if (!symbol)
        return;
    memcpy(&version, &symbol, sizeof(version));
    text = version(folder);
    printf("%s: %s\n", name, text ? text : "out of memory");
    free(text);
}

void version_print(const char *backends)
{
    uint32_t major = 0, minor = 0;

    TRITONSERVER_ErrorDelete(TRITONSERVER_ApiVersion(&major, &minor));
    printf("conch %s (TRITONSERVER API %u.%u)\n", CONCH_VERSION, major, minor);
    for (size_t i = 0; i < ARRAY_SIZE(finders); i++)
        print_backend(backends, finders[i]);
}
