/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An arena: memory that is freed all at once, such as everything that belongs to one request. An
 * arena starts in memory that its owner provides, so that the usual request allocates nothing. It
 * grows by chunks from a pool or from the system, up to a maximum.
 */
#ifndef CONCH_BASE_ARENA_H
#define CONCH_BASE_ARENA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"
#include "base/mem_owner.h"

struct pool;

struct arena {
    char *next, *end;
    char *first;
    size_t first_bytes;
    void *chunks; /* the chunks taken so far, linked */
    size_t chunk_bytes_total;
    size_t max_bytes;
    struct pool *pool;
    struct mem_owner *owner;
    bool starved;       /* an allocation failed for want of memory, not because of max_bytes */
    enum mem_kind kind; /* without a pool: the kind of memory that the owner is charged for */
};

/*
 * arena_init - makes an arena that begins in first[0..first_bytes) and may take up to max_bytes
 * more.
 *
 * @first  the caller's; it must stay until the last use of the arena
 * @pool   where chunks come from; NULL takes them from the system
 * @owner  charged for the chunks of a pool; NULL: nobody is charged
 */
void arena_init(struct arena *a, void *first, size_t first_bytes, size_t max_bytes,
                struct pool *pool, struct mem_owner *owner);

/*
 * arena_give - charges the owner for the chunks of an arena without a pool, those it has and those
 * that it takes later.
 */
void arena_give(struct arena *a, struct mem_owner *owner, enum mem_kind kind);

/* arena_reset - frees all allocations at once and gives the chunks back. */
void arena_reset(struct arena *a);

/* arena_done - frees all allocations of an arena that is not used again before the next
 * arena_init(). */
static inline void arena_done(struct arena *a)
{
    if (UNLIKELY(a->chunks != NULL))
        arena_reset(a);
}

/* arena_alloc - memory aligned for any type; NULL beyond the maximum or without memory. */
void *arena_alloc_slow(struct arena *a, size_t size_bytes);

static inline void *arena_alloc(struct arena *a, size_t size_bytes)
{
    /* An allocation of 0 bytes takes 16, too, so that NULL means failure only. */
    size_t rounded = (size_bytes + !size_bytes + 15) & ~(size_t)15;
    if (LIKELY(rounded >= size_bytes && (size_t)(a->end - a->next) >= rounded)) {
        void *p = a->next;
        a->next += rounded;
        return p;
    }
    return arena_alloc_slow(a, size_bytes);
}

/* arena_dup, arena_strndup - a copy in the arena; NULL as above. */
void *arena_dup(struct arena *a, const void *bytes, size_t n_bytes);
char *arena_strndup(struct arena *a, const char *s, size_t length);

enum { ARENA_FIRST_ITEMS = 4 };

/*
 * arena_grow - room for one more item behind the n items of an array in the arena. Returns the
 * array, which may have moved; NULL as above, and then nothing has changed.
 *
 * The capacity grows from ARENA_FIRST_ITEMS by doubling. What the array had before stays in the
 * arena as waste, at most as much as the array now has.
 */
void *arena_grow_slow(struct arena *a, const void *items, uint32_t n, uint32_t *capacity,
                      size_t item_bytes);

static inline void *arena_grow(struct arena *a, void *items, uint32_t n, uint32_t *capacity,
                               size_t item_bytes)
{
    if (n < *capacity)
        return items;
    if (UNLIKELY(*capacity > 0))
        return arena_grow_slow(a, items, n, capacity, item_bytes);
    /* The one time that most arrays of a request grow. */
    void *first = arena_alloc(a, ARENA_FIRST_ITEMS * item_bytes);
    if (LIKELY(first != NULL))
        *capacity = ARENA_FIRST_ITEMS;
    return first;
}

#endif
