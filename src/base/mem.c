/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static mem_test_hook_fn test_hook;

void mem_set_test_hook(mem_test_hook_fn hook)
{
    __atomic_store_n(&test_hook, hook, __ATOMIC_RELAXED);
}

static bool allowed(size_t size_bytes)
{
    mem_test_hook_fn hook = __atomic_load_n(&test_hook, __ATOMIC_RELAXED);
    return LIKELY(!hook) || hook(size_bytes);
}

NORETURN static void out_of_memory(size_t size_bytes)
{
    fprintf(stderr, "conch: out of memory (%zu bytes)\n", size_bytes);
    abort();
}

/* malloc(0) may give NULL, which would look like a failure. */
static size_t at_least_one(size_t size_bytes)
{
    return size_bytes ? size_bytes : 1;
}

void *mem_alloc(size_t size_bytes)
{
    (void)allowed(size_bytes);
    void *p = malloc(at_least_one(size_bytes));
    if (!p)
        out_of_memory(size_bytes);
    return p;
}

void *mem_zalloc(size_t size_bytes)
{
    (void)allowed(size_bytes);
    void *p = calloc(1, at_least_one(size_bytes));
    if (!p)
        out_of_memory(size_bytes);
    return p;
}

void *mem_realloc(void *p, size_t size_bytes)
{
    (void)allowed(size_bytes);
    void *grown = realloc(p, at_least_one(size_bytes));
    if (!grown)
        out_of_memory(size_bytes);
    return grown;
}

char *mem_strndup(const char *s, size_t length)
{
    char *copy = mem_alloc(length + 1);
    memcpy(copy, s, length);
    copy[length] = '\0';
    return copy;
}

char *mem_strdup(const char *s)
{
    return mem_strndup(s, strlen(s));
}

char *mem_printf(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int length = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    BUG_ON(length < 0);

    char *text = mem_alloc((size_t)length + 1);
    va_start(ap, fmt);
    vsnprintf(text, (size_t)length + 1, fmt, ap);
    va_end(ap);
    return text;
}

void *mem_try_alloc(size_t size_bytes)
{
    return allowed(size_bytes) ? malloc(at_least_one(size_bytes)) : NULL;
}

void *mem_try_zalloc(size_t n_items, size_t item_bytes)
{
    size_t size_bytes;
    if (__builtin_mul_overflow(n_items, item_bytes, &size_bytes) || !allowed(size_bytes))
        return NULL;
    return calloc(1, at_least_one(size_bytes));
}

void *mem_try_realloc(void *p, size_t size_bytes)
{
    return allowed(size_bytes) ? realloc(p, at_least_one(size_bytes)) : NULL;
}

void *mem_try_alloc_aligned(size_t size_bytes)
{
    size_t rounded;
    if (__builtin_add_overflow(at_least_one(size_bytes), MEM_ALIGNMENT - 1, &rounded) ||
        !allowed(size_bytes))
        return NULL;
    return aligned_alloc(MEM_ALIGNMENT, rounded & ~(size_t)(MEM_ALIGNMENT - 1));
}

void mem_free(void *p)
{
    free(p);
}
