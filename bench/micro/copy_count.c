/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copy_count - an LD_PRELOAD library that counts the bytes which the onnxruntime backend copies
 * with memcpy(), in pieces of 64 kB and more, while `copy_count_on` is true.
 *
 * It is a library of its own so that programs are timed without it: a memcpy() through it costs
 * some nanoseconds more.
 */
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

enum { LARGE = 64 << 10 };

atomic_bool copy_count_on;
atomic_size_t copy_count_bytes;

static bool is_backend(const void *caller)
{
    Dl_info where;
    return dladdr(caller, &where) && strstr(where.dli_fname, "libtriton_onnxruntime.so");
}

/* Through a pointer: otherwise the compiler may turn it back into memcpy(). */
static void *(*volatile const move)(void *, const void *, size_t) = memmove;

void *memcpy(void *to, const void *from, size_t n)
{
    if (n >= LARGE && atomic_load(&copy_count_on) && is_backend(__builtin_return_address(0)))
        atomic_fetch_add(&copy_count_bytes, n);
    return move(to, from, n);
}
