/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arena_alloc() is inline in arena.h; arena_alloc_slow() is what happens when the chunk in use is
 * full. `next` and `end` bound the free rest of one chunk, which need not be the newest of the
 * list. All addresses are aligned to 16. One thread at a time uses an arena.
 */
#include "base/arena.h"

#include <stdint.h>
#include <string.h>

#include "base/mem.h"
#include "base/pool.h"

/* With the header that mem.h adds, this is a size class of allocators, and nearly one of pools. */
enum { CHUNK_BYTES = 4096 - 16 };

struct chunk {
    struct chunk *next;
    _Alignas(16) char bytes[];
};

void arena_init(struct arena *a, void *first, size_t first_bytes, size_t max_bytes,
                struct pool *pool, struct mem_owner *owner)
{
    static char nothing; /* an object that the pointers below may point to */
    if (!first)
        first = &nothing;

    /* The caller's memory may begin anywhere; allocated memory is aligned to 16. */
    size_t skip = (size_t)(-(uintptr_t)first & 15);
    if (skip > first_bytes)
        skip = first_bytes;
    *a = (struct arena){
        .first = (char *)first + skip,
        .first_bytes = first_bytes - skip,
        .max_bytes = max_bytes,
        .pool = pool,
        .owner = owner,
    };
    a->next = a->first;
    a->end = a->first + a->first_bytes;
}

void arena_reset(struct arena *a)
{
    struct chunk *c = a->chunks;
    while (c) {
        struct chunk *next = c->next;
        if (a->pool)
            pool_release(c);
        else
            mem_free(c);
        c = next;
    }
    a->chunks = NULL;
    a->chunk_bytes_total = 0;
    a->starved = false;
    a->next = a->first;
    a->end = a->first + a->first_bytes;
}

void arena_give(struct arena *a, struct mem_owner *owner, enum mem_kind kind)
{
    BUG_ON(a->pool);
    a->owner = owner;
    a->kind = kind;
    for (struct chunk *c = a->chunks; c; c = c->next)
        mem_give(c, owner, kind);
}

static struct chunk *new_chunk(const struct arena *a, size_t total)
{
    if (a->pool)
        return pool_alloc(a->pool, total, a->owner);
    struct chunk *c = mem_try_alloc(total);
    if (a->owner)
        mem_give(c, a->owner, a->kind);
    return c;
}

void *arena_alloc_slow(struct arena *a, size_t size_bytes)
{
    if (size_bytes > a->max_bytes || size_bytes > SIZE_MAX / 2)
        return NULL;
    size_t rounded = (size_bytes + !size_bytes + 15) & ~(size_t)15;
    size_t room = MAX(rounded, (size_t)CHUNK_BYTES - sizeof(struct chunk));
    if (room > a->max_bytes - a->chunk_bytes_total) {
        room = rounded; /* near the maximum: no more than requested */
        if (room > a->max_bytes - a->chunk_bytes_total)
            return NULL;
    }

    size_t total = sizeof(struct chunk) + room;
    struct chunk *c = new_chunk(a, total);
    if (!c) {
        a->starved = true;
        return NULL;
    }
    c->next = a->chunks;
    a->chunks = c;
    a->chunk_bytes_total += room;

    /* A large block of its own must not waste the rest of the chunk in use. */
    if (room - rounded > (size_t)(a->end - a->next)) {
        a->next = c->bytes + rounded;
        a->end = c->bytes + room;
    }
    return c->bytes;
}

void *arena_dup(struct arena *a, const void *bytes, size_t n_bytes)
{
    void *copy = arena_alloc(a, n_bytes);
    if (copy && n_bytes)
        memcpy(copy, bytes, n_bytes);
    return copy;
}

char *arena_strndup(struct arena *a, const char *s, size_t length)
{
    char *copy = length < SIZE_MAX ? arena_alloc(a, length + 1) : NULL;
    if (!copy)
        return NULL;
    memcpy(copy, s, length);
    copy[length] = '\0';
    return copy;
}

void *arena_grow_slow(struct arena *a, const void *items, uint32_t n, uint32_t *capacity,
                      size_t item_bytes)
{
    uint32_t wanted = 2 * *capacity;
    size_t size_bytes;
    if (wanted < *capacity || __builtin_mul_overflow(item_bytes, (size_t)wanted, &size_bytes))
        return NULL;
    void *grown = arena_alloc(a, size_bytes);
    if (!grown)
        return NULL;
    memcpy(grown, items, n * item_bytes);
    *capacity = wanted;
    return grown;
}
