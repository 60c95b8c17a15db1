/* SPDX-License-Identifier: Apache-2.0 */
/*
 * allocfault - an LD_PRELOAD library that makes one allocation of one library fail, the n-th from
 * when the test says so: for plugins, which allocate by malloc() in a whole server, so that
 * fault_each_allocation() (lib/fault.h) does not reach them. What a function of the C library
 * allocates for the plugin counts where the function is among those below.
 *
 * ALLOC_LIBRARY  the end of the library's path, /libtriton_python.so
 * ALLOC_COUNTS   a file of three 64-bit numbers: how many allocations there were; the one that
 *                fails, from 1, or 0; whether those behind it fail, too. The test writes all of
 * them
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct counts {
    _Atomic uint64_t n, fails_at, goes_on;
};

static struct counts *counts;
static const char *library;

static struct {
    void *(*malloc)(size_t);
    void *(*calloc)(size_t, size_t);
    void *(*realloc)(void *, size_t);
    char *(*strdup)(const char *);
    char *(*strndup)(const char *, size_t);
    int (*vasprintf)(char **, const char *, va_list);
    int (*posix_memalign)(void **, size_t, size_t);
    FILE *(*open_memstream)(char **, size_t *);
} next;

static _Thread_local bool looking; /* in dladdr(), which may allocate */

static void find_next(void)
{
    *(void **)&next.calloc = dlsym(RTLD_NEXT, "calloc");
    *(void **)&next.realloc = dlsym(RTLD_NEXT, "realloc");
    *(void **)&next.strdup = dlsym(RTLD_NEXT, "strdup");
    *(void **)&next.strndup = dlsym(RTLD_NEXT, "strndup");
    *(void **)&next.vasprintf = dlsym(RTLD_NEXT, "vasprintf");
    *(void **)&next.posix_memalign = dlsym(RTLD_NEXT, "posix_memalign");
    *(void **)&next.open_memstream = dlsym(RTLD_NEXT, "open_memstream");
    *(void **)&next.malloc = dlsym(RTLD_NEXT, "malloc");
}

__attribute__((constructor)) static void start(void)
{
    const char *path = getenv("ALLOC_COUNTS");
    int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (file < 0)
        return;
    void *at = mmap(NULL, sizeof(*counts), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    library = getenv("ALLOC_LIBRARY");
    if (at != MAP_FAILED && library)
        counts = at;
}

static bool is_library(const char *path)
{
    size_t n = strlen(path), m = strlen(library);
    return n >= m && strcmp(path + n - m, library) == 0;
}

/* Is it the library that calls? Its place is looked up for each call: it may be loaded again. */
static bool calls(const void *caller)
{
    Dl_info info;
    if (!counts || looking)
        return false;
    looking = true;
    bool does = dladdr(caller, &info) && info.dli_fname && is_library(info.dli_fname);
    looking = false;
    return does;
}

static bool fails(const void *caller)
{
    if (!calls(caller))
        return false;
    uint64_t n = atomic_fetch_add(&counts->n, 1) + 1, at = atomic_load(&counts->fails_at);
    if (at == 0 || n < at || (n > at && !atomic_load(&counts->goes_on)))
        return false;
    errno = ENOMEM;
    return true;
}

void *malloc(size_t size)
{
    if (!next.malloc)
        find_next();
    return fails(__builtin_return_address(0)) ? NULL : next.malloc(size);
}

void *calloc(size_t n, size_t size)
{
    if (!next.malloc)
        find_next();
    return fails(__builtin_return_address(0)) ? NULL : next.calloc(n, size);
}

void *realloc(void *from, size_t size)
{
    if (!next.malloc)
        find_next();
    return fails(__builtin_return_address(0)) ? NULL : next.realloc(from, size);
}

int posix_memalign(void **ret, size_t alignment, size_t size)
{
    if (!next.malloc)
        find_next();
    return fails(__builtin_return_address(0)) ? ENOMEM : next.posix_memalign(ret, alignment, size);
}

FILE *open_memstream(char **ret, size_t *ret_size)
{
    if (!next.malloc)
        find_next();
    return fails(__builtin_return_address(0)) ? NULL : next.open_memstream(ret, ret_size);
}

char *strdup(const char *s)
{
    if (!next.malloc)
        find_next();
    return fails(__builtin_return_address(0)) ? NULL : next.strdup(s);
}

char *strndup(const char *s, size_t n)
{
    if (!next.malloc)
        find_next();
    return fails(__builtin_return_address(0)) ? NULL : next.strndup(s, n);
}

int vasprintf(char **ret, const char *format, va_list args)
{
    if (!next.malloc)
        find_next();
    return fails(__builtin_return_address(0)) ? -1 : next.vasprintf(ret, format, args);
}

int asprintf(char **ret, const char *format, ...)
{
    va_list args;
    if (!next.malloc)
        find_next();
    if (fails(__builtin_return_address(0)))
        return -1;
    va_start(args, format);
    int n = next.vasprintf(ret, format, args);
    va_end(args);
    return n;
}
