/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One table for the process, filled once; what failed the first time fails ever after, since the
 * loader would find no other file.
 */
#include "common/libarchive.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>

#define LIBARCHIVE_FILE "libarchive.so.13"

static pthread_once_t libarchive_once = PTHREAD_ONCE_INIT;
static struct libarchive libarchive_functions;
static char libarchive_missing[256]; /* why it is not there; empty: it is */

static void resolve_libarchive(const char *file, struct libarchive *lib, char *why, size_t room)
{
    void *handle = dlopen(file, RTLD_NOW | RTLD_LOCAL); /* never unloaded */

    if (!handle) {
        const char *error = dlerror();

        snprintf(why, room, "%s", error ? error : "it is missing");
        return;
    }
#define RESOLVE(name)                                                                              \
    lib->name = (__typeof__(&(archive_##name)))dlsym(handle, "archive_" #name);                    \
    if (!lib->name)                                                                                \
        snprintf(why, room, "'%s' has no archive_%s()", file, #name);
    LIBARCHIVE_FUNCTIONS(RESOLVE)
}

static void load_once(void)
{
    resolve_libarchive(LIBARCHIVE_FILE, &libarchive_functions, libarchive_missing,
                       sizeof(libarchive_missing));
}

const struct libarchive *libarchive_load(const char **ret_missing)
{
    pthread_once(&libarchive_once, load_once);
    if (!libarchive_missing[0])
        return &libarchive_functions;
    *ret_missing = libarchive_missing;
    return NULL;
}
