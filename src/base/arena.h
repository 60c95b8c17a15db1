/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An arena: memory that lives and dies together, such as all that belongs to one request. It
 * starts in memory that its owner brings (so that the usual request allocates nothing) and grows
 * by chunks from a pool, up to a maximum.
 */
#ifndef CONCH_BASE_ARENA_H
#define CONCH_BASE_ARENA_H

#include <stdbool.h>
#include <stddef.h>

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
    bool starved; /* something was not given since memory ended, not since max_bytes was reached */
    enum mem_kind kind; /* of the owner's memory, without a pool */
};

/*
 * arena_init - an arena that begins in first[0..first_bytes) and may take up to max_bytes more.
 *
 * @pool   where chunks come from; NULL takes them from the system
 * @owner  who pays for the chunks of a pool; NULL for nobody
 */
void arena_init(struct arena *a, void *first, size_t first_bytes, size_t max_bytes,
                struct pool *pool, struct mem_owner *owner);

/* arena_give - of an arena without a pool: that owner pays for what it has and what it will have.
 */
void arena_give(struct arena *a, struct mem_owner *owner, enum mem_kind kind);

/* arena_reset - everything is free again, the chunks are given back. */
void arena_reset(struct arena *a);

/* arena_alloc - memory aligned for any type; NULL when the maximum or the memory ends. */
void *arena_alloc_slow(struct arena *a, size_t size_bytes);

static inline void *arena_alloc(struct arena *a, size_t size_bytes)
{
    /* Nothing takes one place too: NULL means failure only. */
    size_t rounded = (size_bytes + !size_bytes + 15) & ~(size_t)15;
    if (LIKELY(rounded >= size_bytes && (size_t)(a->end - a->next) >= rounded)) {
        void *p = a->next;
        a->next += rounded;
        return p;
    }
    return arena_alloc_slow(a, size_bytes);
}

void *arena_dup(struct arena *a, const void *bytes, size_t n_bytes);
char *arena_strndup(struct arena *a, const char *s, size_t length);

#endif
