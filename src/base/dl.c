/* SPDX-License-Identifier: Apache-2.0 */
#include "base/dl.h"

#include <dlfcn.h>
#include <string.h>

#include "base/mem.h"
#include "base/status.h"

/* struct dl is never defined: it stands for what dlopen() returns. */

static const char *last_error(void)
{
    const char *text = dlerror(); /* the calling thread's own */
    return text ? text : "unknown error";
}

struct status *dl_open(const char *path, struct dl **ret_dl)
{
    /* Without a slash the dynamic linker would look through its own folders. */
    char *by_path = strchr(path, '/') ? NULL : mem_printf("./%s", path);
    void *handle = dlopen(by_path ? by_path : path, RTLD_NOW | RTLD_LOCAL);
    mem_free(by_path);
    if (!handle)
        return status_new(STATUS_NOT_FOUND, "unable to load shared library: %s", last_error());
    *ret_dl = handle;
    return NULL;
}

void dl_close(struct dl *dl)
{
    if (dl)
        dlclose(dl);
}

struct status *dl_symbol(struct dl *dl, const char *name, void **ret_address)
{
    (void)dlerror(); /* a symbol may be NULL: only the error tells */
    void *address = dlsym(dl, name);
    const char *error = dlerror();
    if (error || !address)
        return status_new(STATUS_NOT_FOUND,
                          "unable to find required entrypoint '%s' in shared library: %s", name,
                          error ? error : "its address is NULL");
    *ret_address = address;
    return NULL;
}

void *dl_optional_symbol(struct dl *dl, const char *name)
{
    return dlsym(dl, name);
}
