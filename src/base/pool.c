/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN: classes are spaced four per power of two from 256 bytes to 64 MiB, so that rounding
 * wastes less than a quarter. A block larger than the last class goes to and from the system
 * directly. In front of each block stands a header of 64 bytes (which keeps the alignment) that
 * names the pool, the class and the owner, so that giving back needs the block alone.
 *
 * Lifetime: pool_free() may come while blocks are still out (a slow backend holds a buffer of a
 * connection that is gone). The pool object then lives until the last of them is given back.
 */
#include "base/pool.h"

#include <stdbool.h>
#include <sys/mman.h>

#include "base/mem.h"
#include "base/mutex.h"

enum {
    FIRST_SHIFT = 8, /* 256 bytes */
    LAST_SHIFT = 26, /* 64 MiB */
    STEPS = 4,       /* classes per power of two */
    N_CLASSES = (LAST_SHIFT - FIRST_SHIFT) * STEPS + 1,
    NO_CLASS = N_CLASSES,
    POOL_LEVEL = 900, /* a leaf: nothing is locked under it */
    HUGE_BYTES = 2 << 20,
};

struct header {
    struct pool *pool;
    struct mem_owner *owner;
    size_t size_bytes;   /* of the block, without this header */
    struct header *next; /* of the same class, while unused */
    unsigned int class;
    unsigned int magic;
    char pad[MEM_ALIGNMENT - 5 * 8];
};

_Static_assert(sizeof(struct header) == MEM_ALIGNMENT, "the header keeps the block's alignment");

#define MAGIC_USED   0x55c0c4e5u
#define MAGIC_UNUSED 0x44c0c4e5u

struct pool {
    const char *name;
    size_t max_unused_bytes;
    size_t max_used_bytes; /* 0 = no limit */

    struct mutex mu;
    /* Under mu. */
    struct header *unused[N_CLASSES]; /* last given back first */
    struct pool_stats stats;
    size_t n_used;
    size_t peak_bytes;      /* the most in use since the last pool_settle() */
    size_t last_peak_bytes; /* … and before, fading */
    bool settles;           /* pool_settle() is being called: peaks count */
    bool closed;            /* pool_free() was called; the last release ends the pool */
};

static unsigned int class_of(size_t size_bytes)
{
    if (size_bytes <= (size_t)1 << FIRST_SHIFT)
        return 0;
    if (size_bytes > (size_t)1 << LAST_SHIFT)
        return NO_CLASS;
    /* size is in (2^shift, 2^(shift+1)]; which quarter of that? */
    unsigned int shift = 63 - (unsigned int)__builtin_clzl(size_bytes - 1);
    unsigned int step = (unsigned int)((size_bytes - 1 - ((size_t)1 << shift)) >> (shift - 2));
    return (shift - FIRST_SHIFT) * STEPS + step + 1;
}

static size_t class_bytes(unsigned int class)
{
    if (class == 0)
        return (size_t)1 << FIRST_SHIFT;
    unsigned int shift = FIRST_SHIFT + (class - 1) / STEPS;
    unsigned int step = (class - 1) % STEPS;
    return ((size_t)1 << shift) + ((size_t)(step + 1) << (shift - 2));
}

struct pool *pool_new(const char *name, size_t max_unused_bytes, size_t max_used_bytes)
{
    struct pool *p = mem_zalloc(sizeof(*p));
    p->name = name;
    p->max_unused_bytes = max_unused_bytes;
    p->max_used_bytes = max_used_bytes;
    mutex_init(&p->mu, POOL_LEVEL, "pool.mu");
    return p;
}

static struct header *block_from_system(struct pool *p, unsigned int class, size_t bytes)
{
    size_t total;
    if (__builtin_add_overflow(bytes, sizeof(struct header), &total))
        return NULL;
    struct header *h = mem_try_alloc_aligned(total);
    if (!h)
        return NULL;
    /* Fewer page faults while a large buffer is touched for the first time; advice only. */
    if (bytes >= HUGE_BYTES) {
        uintptr_t from = ((uintptr_t)h + 4095) & ~(uintptr_t)4095;
        (void)madvise((void *)from, ((uintptr_t)h + total - from) & ~(uintptr_t)4095,
                      MADV_HUGEPAGE);
    }
    *h = (struct header){.pool = p, .size_bytes = bytes, .class = class};
    return h;
}

void *pool_alloc(struct pool *p, size_t size_bytes, struct mem_owner *owner)
{
    unsigned int class = class_of(size_bytes);
    size_t bytes = class == NO_CLASS ? size_bytes : class_bytes(class);

    mutex_lock(&p->mu);
    p->stats.n_allocs++;
    if (p->max_used_bytes && bytes > p->max_used_bytes - p->stats.used_bytes) {
        mutex_unlock(&p->mu);
        return NULL;
    }
    p->stats.used_bytes += bytes;
    p->peak_bytes = MAX(p->peak_bytes, p->stats.used_bytes);
    p->n_used++;
    struct header *h = class == NO_CLASS ? NULL : p->unused[class];
    if (h) {
        p->unused[class] = h->next;
        p->stats.unused_bytes -= bytes;
    } else {
        p->stats.n_misses++;
    }
    mutex_unlock(&p->mu);

    if (!h) {
        h = block_from_system(p, class, bytes);
        if (!h) {
            mutex_lock(&p->mu);
            p->stats.used_bytes -= bytes;
            p->n_used--;
            mutex_unlock(&p->mu);
            return NULL;
        }
    }
    h->owner = owner;
    h->magic = MAGIC_USED;
    mem_owner_charge(owner, MEM_TENSORS, bytes);
    return h + 1;
}

/* Unused blocks beyond keep_bytes, taken out and linked: freed by free_blocks() without the lock.
 */
static struct header *take_unused_locked(struct pool *p, size_t keep_bytes)
{
    struct header *victims = NULL;

    mutex_assert_held(&p->mu);
    for (int class = N_CLASSES - 1; class >= 0; class --) { /* the large ones give back most */
        while (p->stats.unused_bytes > keep_bytes && p->unused[class]) {
            struct header *h = p->unused[class];
            p->unused[class] = h->next;
            p->stats.unused_bytes -= h->size_bytes;
            h->next = victims;
            victims = h;
        }
    }
    return victims;
}

static void free_blocks(struct header *h)
{
    while (h) {
        struct header *next = h->next;
        mem_free_aligned(h);
        h = next;
    }
}

/* A closed pool has no unused blocks; nobody else knows it any more. */
static void pool_end(struct pool *p)
{
    mutex_done(&p->mu);
    mem_free(p);
}

/* Under mu. How many unused bytes are justified while so many are in use. */
static size_t may_keep_locked(const struct pool *p)
{
    size_t peak_bytes = p->settles ? MAX(p->peak_bytes, p->last_peak_bytes) : 0;
    size_t below_peak = peak_bytes - MIN(peak_bytes, p->stats.used_bytes);
    return MAX(p->max_unused_bytes, below_peak);
}

void pool_release(void *block)
{
    if (!block)
        return;
    struct header *h = (struct header *)block - 1;
    BUG_ON(h->magic != MAGIC_USED); /* released twice, or not from a pool */
    struct pool *p = h->pool;
    size_t bytes = h->size_bytes;
    h->magic = MAGIC_UNUSED;
    mem_owner_discharge(h->owner, MEM_TENSORS, bytes);

    mutex_lock(&p->mu);
    p->stats.used_bytes -= bytes;
    p->n_used--;
    bool keep =
        !p->closed && h->class != NO_CLASS && p->stats.unused_bytes + bytes <= may_keep_locked(p);
    if (keep) {
        h->next = p->unused[h->class];
        p->unused[h->class] = h;
        p->stats.unused_bytes += bytes;
    }
    bool last = p->closed && p->n_used == 0;
    mutex_unlock(&p->mu);

    if (!keep)
        mem_free_aligned(h);
    if (last)
        pool_end(p);
}

void pool_free(struct pool *p)
{
    if (!p)
        return;
    mutex_lock(&p->mu);
    p->closed = true;
    bool last = p->n_used == 0;
    struct header *victims = take_unused_locked(p, 0);
    mutex_unlock(&p->mu); /* p may be gone from here on: another thread releases the last block */
    free_blocks(victims);
    if (last)
        pool_end(p);
}

size_t pool_block_bytes(const void *block)
{
    return ((const struct header *)block - 1)->size_bytes;
}

void pool_trim(struct pool *p, size_t keep_bytes)
{
    mutex_lock(&p->mu);
    struct header *victims = take_unused_locked(p, keep_bytes);
    mutex_unlock(&p->mu);
    free_blocks(victims);
}

void pool_settle(struct pool *p)
{
    mutex_lock(&p->mu);
    p->settles = true;
    /* An eighth less each time, so that peaks that vary a little cost nothing. */
    p->last_peak_bytes = MAX(p->peak_bytes, p->last_peak_bytes - p->last_peak_bytes / 8);
    p->peak_bytes = p->stats.used_bytes;
    size_t keep_bytes = may_keep_locked(p);
    bool too_much = p->stats.unused_bytes > keep_bytes;
    mutex_unlock(&p->mu);
    if (too_much)
        pool_trim(p, keep_bytes);
}

void pool_stats(struct pool *p, struct pool_stats *ret_stats)
{
    mutex_lock(&p->mu);
    *ret_stats = p->stats;
    mutex_unlock(&p->mu);
}
