/* SPDX-License-Identifier: Apache-2.0 */
#include "base/dl.h"

#include <dlfcn.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/status.h"

/* struct dl is never defined: it stands for what dlopen() returns. */

static const char *last_error(void)
{
    const char *text = dlerror(); /* the calling thread's own */
    return text ? text : "unknown error";
}

/* ------------------------------------------------------------- what lies beside a library */

enum { MAX_BESIDE = 64 }; /* libraries that one may need from its own folder, and theirs */

/* Opened by hand, until the one that needs them holds them by itself. */
struct beside {
    void *handles[MAX_BESIDE];
    size_t n;
};

/*
 * The file beside the library that the linker has just missed; NULL if that is not what was wrong.
 * The linker's words begin with the name, and so they tell what to try without reading ELF files.
 */
static char *missed_beside(const char *path, const char *error, const struct beside *beside)
{
    const char *name_end = strstr(error, ": cannot open shared object file");
    const char *folder_end = strrchr(path, '/');
    if (!name_end || memchr(error, '/', (size_t)(name_end - error)) || beside->n == MAX_BESIDE)
        return NULL;
    char *missed =
        mem_printf("%.*s%.*s", (int)(folder_end + 1 - path), path, (int)(name_end - error), error);
    if (access(missed, F_OK) == 0)
        return missed;
    mem_free(missed);
    return NULL;
}

/* What has been opened is found again by its name (DT_SONAME): so what is missed is opened first,
 * and the library then tried once more. */
static struct status *open_with_beside(const char *path, struct beside *beside, void **ret_handle)
{
    while (!(*ret_handle = dlopen(path, RTLD_NOW | RTLD_LOCAL))) {
        const char *error = last_error();
        char *missed = missed_beside(path, error, beside);
        if (!missed)
            return status_new(STATUS_NOT_FOUND, "unable to load shared library: %s", error);
        struct status *st = open_with_beside(missed, beside, &beside->handles[beside->n++]);
        mem_free(missed);
        if (st)
            return st;
    }
    return NULL;
}

struct status *dl_open(const char *path, struct dl **ret_dl)
{
    /* Without a slash the dynamic linker would look through its own folders. */
    char *by_path = strchr(path, '/') ? mem_strdup(path) : mem_printf("./%s", path);
    struct beside beside = {.n = 0};
    void *handle;

    struct status *st = open_with_beside(by_path, &beside, &handle);
    for (size_t i = 0; i < beside.n; i++) {
        if (beside.handles[i])
            dlclose(beside.handles[i]);
    }
    mem_free(by_path);
    if (!st)
        *ret_dl = handle;
    return st;
}

void dl_offer_self(void)
{
    Dl_info self;
    if (!dladdr((void *)(uintptr_t)dl_offer_self, &self))
        return;
    /* A library that is there already stays offered when this handle is gone. In a program of its
     * own nothing is opened, and nothing needs to be. */
    void *handle = dlopen(self.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_GLOBAL);
    if (handle)
        dlclose(handle);
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
