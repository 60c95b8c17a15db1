/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A header in front of each block from malloc() has its size and its owner. Aligned blocks and
 * mapped pages have no header and no owner. The functions that allocate ask the test hook first;
 * those that cannot fail ignore its answer. Any thread.
 */
#include "base/mem.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * The header of each block: the owner that is charged. 16 bytes, so that the block is aligned as
 * malloc's are. With the header no allocation has 0 bytes, for which malloc may answer NULL.
 */
struct header {
    struct mem_owner *owner; /* or NULL */
    size_t size_bytes : 56;  /* without the header */
    size_t kind : 8;
};

_Static_assert(sizeof(struct header) == 16, "the header keeps the block's alignment");

/* No block of malloc's is that large, so the sum cannot wrap. */
enum { HEADER_BYTES = sizeof(struct header) };
#define MAX_BYTES ((size_t)1 << 55)

static struct header *header_of(void *p)
{
    return (struct header *)p - 1;
}

/* Returns the block behind a header from the system, charged to the current owner; NULL stays
 * NULL. */
static void *charge_block(struct header *h, size_t size_bytes)
{
    if (UNLIKELY(!h))
        return NULL;
    struct mem_payer payer = mem_payer_now();
    *h = (struct header){.owner = payer.owner, .size_bytes = size_bytes, .kind = payer.kind};
    mem_owner_charge(payer.owner, payer.kind, size_bytes);
    return h + 1;
}

static void *get_block(size_t size_bytes)
{
    return size_bytes > MAX_BYTES ? NULL
                                  : charge_block(malloc(HEADER_BYTES + size_bytes), size_bytes);
}

static void *get_zeroed(size_t size_bytes)
{
    return size_bytes > MAX_BYTES ? NULL
                                  : charge_block(calloc(1, HEADER_BYTES + size_bytes), size_bytes);
}

/* The block keeps its owner. */
static void *resize_block(void *p, size_t size_bytes)
{
    if (!p)
        return get_block(size_bytes);
    if (size_bytes > MAX_BYTES)
        return NULL;
    struct header *h = realloc(header_of(p), HEADER_BYTES + size_bytes);
    if (!h)
        return NULL;
    size_t before = h->size_bytes;
    h->size_bytes = size_bytes;
    /* In this order: the owner may have no other block that keeps it. */
    mem_owner_charge(h->owner, h->kind, size_bytes);
    mem_owner_discharge(h->owner, h->kind, before);
    return h + 1;
}

void *mem_alloc(size_t size_bytes)
{
    (void)mem_is_allowed(size_bytes);
    void *p = get_block(size_bytes);
    if (!p)
        mem_end_process(size_bytes);
    return p;
}

void *mem_zalloc(size_t size_bytes)
{
    (void)mem_is_allowed(size_bytes);
    void *p = get_zeroed(size_bytes);
    if (!p)
        mem_end_process(size_bytes);
    return p;
}

void *mem_realloc(void *p, size_t size_bytes)
{
    (void)mem_is_allowed(size_bytes);
    void *grown = resize_block(p, size_bytes);
    if (!grown)
        mem_end_process(size_bytes);
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
    return mem_is_allowed(size_bytes) ? get_block(size_bytes) : NULL;
}

void *mem_try_zalloc(size_t n_items, size_t item_bytes)
{
    size_t size_bytes;
    if (__builtin_mul_overflow(n_items, item_bytes, &size_bytes) || !mem_is_allowed(size_bytes))
        return NULL;
    return get_zeroed(size_bytes);
}

void *mem_try_realloc(void *p, size_t size_bytes)
{
    return mem_is_allowed(size_bytes) ? resize_block(p, size_bytes) : NULL;
}

void mem_give(void *p, struct mem_owner *owner, enum mem_kind kind)
{
    if (!p)
        return;
    struct header *h = header_of(p);
    struct header before = *h;
    mem_owner_charge(owner, kind, h->size_bytes);
    h->owner = owner;
    h->kind = kind;
    mem_owner_discharge(before.owner, before.kind, before.size_bytes);
}

void mem_free(void *p)
{
    if (!p)
        return;
    struct header *h = header_of(p);
    mem_owner_discharge(h->owner, h->kind, h->size_bytes);
    free(h);
}

/* The address of the block lies in front of it. */
void *mem_zalloc_on_line(size_t size_bytes)
{
    void **block = mem_zalloc(size_bytes + sizeof(*block) + MEM_ALIGNMENT - 1);
    uintptr_t at = (uintptr_t)(block + 1) + MEM_ALIGNMENT - 1;
    void **p = (void **)(at - at % MEM_ALIGNMENT);
    p[-1] = block;
    return p;
}

void mem_free_on_line(void *p)
{
    if (p)
        mem_free(((void **)p)[-1]);
}
