/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copy_count - an LD_PRELOAD library that counts the bytes which are copied with memcpy() or
 * memmove(), in pieces of 64 kB and more, while `copy_count_on` is true: by backends, or with
 * COPY_COUNT_ALL in the environment by anybody.
 *
 * It is a library of its own so that programs are timed without it: a memcpy() through it costs
 * some nanoseconds more.
 */
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { LARGE = 64 << 10 };

atomic_bool copy_count_on;
atomic_size_t copy_count_bytes;

static bool counts_all;

__attribute__((constructor)) static void read_environment(void)
{
    counts_all = getenv("COPY_COUNT_ALL") != NULL;
}

static bool is_backend(const void *caller)
{
    Dl_info where;
    return dladdr(caller, &where) &&
           (strstr(where.dli_fname, "/libtriton_") || strstr(where.dli_fname, "/libconch_torch"));
}

static void count(size_t n, const void *caller)
{
    if (n >= LARGE && atomic_load(&copy_count_on) && (counts_all || is_backend(caller)))
        atomic_fetch_add(&copy_count_bytes, n);
}

/* The C library's, found before anything is copied through them. */
static void *(*move)(void *, const void *, size_t);

static void *move_on(void *to, const void *from, size_t n)
{
    if (!move)
        move = (void *(*)(void *, const void *, size_t))(uintptr_t)dlsym(RTLD_NEXT, "memmove");
    return move(to, from, n);
}

void *memcpy(void *to, const void *from, size_t n)
{
    count(n, __builtin_return_address(0));
    return move_on(to, from, n);
}

void *memmove(void *to, const void *from, size_t n)
{
    count(n, __builtin_return_address(0));
    return move_on(to, from, n);
}
