/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN: classes are spaced four per power of two from 256 bytes to 64 MiB, so that rounding
 * wastes less than a quarter. A block larger than the last class is allocated from and freed to the
 * system directly. A header of 64 bytes (which keeps the alignment) in front of each block names
 * the pool, the class and the owner, so that a release needs only the block.
 *
 * A thread that has joined the pool keeps some blocks of the small classes in lists of its own,
 * which it uses first.
 *
 * Lifetime: pool_free() may be called while blocks are still in use (a slow backend holds a buffer
 * of a closed connection). The pool object then lives until the last of them is released.
 */
#include "base/pool.h"

#include <stdatomic.h>
#include <stdbool.h>

#include "base/budget.h"
#include "base/mem.h"
#include "base/mutex.h"

enum {
    FIRST_SHIFT = 8, /* 256 bytes */
    LAST_SHIFT = 26, /* 64 MiB */
    STEPS = 4,       /* classes per power of two */
    N_CLASSES = (LAST_SHIFT - FIRST_SHIFT) * STEPS + 1,
    NO_CLASS = N_CLASSES,
    NEAR_CLASSES = 4 * STEPS + 1, /* up to 4 KiB */
    POOL_LEVEL = 900,             /* a leaf: no lock is taken under it */
    MAPPED_BYTES = 1 << 20,       /* from here on a mapping of its own, in a pool with a budget */
    SETTLED_BYTES = 1 << 20,      /* kept at rest */
    WINDOW_SETTLES = 4,           /* calls of pool_settle(), some seconds */
    PAGE_BYTES = 4096,
};

struct header {
    struct pool *pool;
    struct mem_owner *owner;
    size_t size_bytes;   /* of the block, without this header */
    struct header *next; /* of the same class, while unused */
    unsigned int class;
    unsigned int magic : 31;
    unsigned int is_mapped : 1;
    size_t made_bytes; /* see pool_made_bytes(); belongs to the block's owner */
    char pad[MEM_ALIGNMENT - 6 * 8];
};

_Static_assert(sizeof(struct header) == MEM_ALIGNMENT, "the header keeps the block's alignment");

#define MAGIC_USED   0x55c0c4e5u
#define MAGIC_UNUSED 0x44c0c4e5u

struct pool {
    const char *name;
    size_t max_unused_bytes;
    size_t max_used_bytes; /* 0 = no limit */
    struct budget *budget; /* or NULL */

    /* The thread that has joined, by the address of its `self`. */
    _Atomic(const char *) user;
    /* Used by that thread alone. */
    unsigned int max_near; /* blocks of each class */
    struct {
        struct header *first;
        unsigned int n;
    } near[NEAR_CLASSES];

    struct mutex mu;
    /* Under mu. */
    struct {
        struct header *first; /* the last released one is first */
        unsigned int n;
        unsigned int n_least;                        /* since the last pool_settle() */
        unsigned int n_least_window, n_least_before; /* in this window, and in the one before */
    } unused[N_CLASSES];
    unsigned int n_settles;
    struct pool_stats stats;
    size_t n_used;
    size_t peak_bytes;      /* the most in use since the last pool_settle() */
    size_t last_peak_bytes; /* … and before, decreasing */
    bool settles;           /* pool_settle() is being called, so peaks count */
    bool closed;            /* pool_free() was called; the last release ends the pool */
};

/* ---- The system ----------------------------------------------------------------------------- */

/* Computes the size of a block with its header. */
static bool total_bytes(const struct pool *p, size_t bytes, size_t *ret_total)
{
    size_t page = p->budget && bytes >= MAPPED_BYTES ? PAGE_BYTES : 1, total;
    if (__builtin_add_overflow(bytes, sizeof(struct header) + page - 1, &total))
        return false;
    *ret_total = total & ~(page - 1);
    return true;
}

static struct header *block_from_system(struct pool *p, unsigned int class, size_t bytes)
{
    bool is_mapped = p->budget && bytes >= MAPPED_BYTES;
    size_t total;
    if (!total_bytes(p, bytes, &total) || (p->budget && !budget_take(p->budget, total)))
        return NULL;
    struct header *h = is_mapped ? mem_try_map(total) : mem_try_alloc_aligned(total);
    if (!h) {
        if (p->budget)
            budget_give(p->budget, total);
        return NULL;
    }
    *h = (struct header){.pool = p,
                         .size_bytes = bytes,
                         .class = class,
                         .is_mapped = is_mapped,
                         .made_bytes = is_mapped ? 0 : bytes};
    return h;
}

/* Thread: any, without p->mu. p itself must exist meanwhile. */
static void block_to_system(struct pool *p, struct header *h)
{
    size_t total;
    BUG_ON(!total_bytes(p, h->size_bytes, &total));
    if (h->is_mapped) {
        budget_unmap(p->budget, h, total);
        return;
    }
    mem_free_aligned(h);
    if (p->budget)
        budget_give(p->budget, total);
}

/* ---- Size classes --------------------------------------------------------------------------- */

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
    p->max_near = POOL_NEAR_BLOCKS;
    mutex_init(&p->mu, POOL_LEVEL, "pool.mu");
    return p;
}

void pool_set_budget(struct pool *p, struct budget *budget)
{
    p->budget = budget_ref(budget);
}

/* Returns the unused block that was released last, or NULL. */
static struct header *take_one_locked(struct pool *p, unsigned int class)
{
    mutex_assert_held(&p->mu);
    if (class == NO_CLASS || !p->unused[class].first)
        return NULL;
    struct header *h = p->unused[class].first;
    p->unused[class].first = h->next;
    p->unused[class].n--;
    p->unused[class].n_least = MIN(p->unused[class].n_least, p->unused[class].n);
    p->stats.unused_bytes -= h->size_bytes;
    return h;
}

static bool count_used(struct pool *p, size_t bytes)
{
    mutex_assert_held(&p->mu);
    if (p->max_used_bytes &&
        (bytes > p->max_used_bytes || p->stats.used_bytes > p->max_used_bytes - bytes))
        return false;
    p->stats.used_bytes += bytes;
    p->peak_bytes = MAX(p->peak_bytes, p->stats.used_bytes);
    return true;
}

/* ---- Blocks of a joined thread --------------------------------------------------------------- */

static void give_block_back(struct pool *p, struct header *h, bool again);
static THREAD_WORD char self; /* its address identifies this thread */

/* Relaxed: only the thread itself ever finds its own address there. */
static bool is_user(const struct pool *p)
{
    return atomic_load_explicit(&p->user, memory_order_relaxed) == &self;
}

void pool_attach(struct pool *p)
{
    BUG_ON(atomic_load_explicit(&p->user, memory_order_relaxed));
    atomic_store_explicit(&p->user, &self, memory_order_relaxed);
}

void pool_detach(struct pool *p)
{
    BUG_ON(!is_user(p));
    atomic_store_explicit(&p->user, NULL, memory_order_relaxed);
    for (unsigned int class = 0; class < NEAR_CLASSES; class ++) {
        struct header *h;
        while ((h = p->near[class].first)) {
            p->near[class].first = h->next;
            p->near[class].n--;
            give_block_back(p, h, true);
        }
    }
}

void pool_keep_near(struct pool *p, unsigned int n_blocks)
{
    p->max_near = MAX(p->max_near, n_blocks);
}

static struct header *take_near(struct pool *p, unsigned int class)
{
    if (class >= NEAR_CLASSES || !is_user(p))
        return NULL;
    struct header *h = p->near[class].first;
    if (h) {
        p->near[class].first = h->next;
        p->near[class].n--;
    }
    return h;
}

static bool keep_near(struct pool *p, struct header *h)
{
    if (h->class >= NEAR_CLASSES || !is_user(p) || p->near[h->class].n == p->max_near)
        return false;
    h->next = p->near[h->class].first;
    p->near[h->class].first = h;
    p->near[h->class].n++;
    return true;
}

/* ---- Allocation ------------------------------------------------------------------------------ */

static void *give_out(struct header *h, struct mem_owner *owner)
{
    h->owner = owner;
    h->magic = MAGIC_USED;
    mem_owner_charge(owner, MEM_TENSORS, h->size_bytes);
    return h + 1;
}

void *pool_alloc(struct pool *p, size_t size_bytes, struct mem_owner *owner)
{
    unsigned int class = class_of(size_bytes);
    struct header *near = take_near(p, class);
    if (LIKELY(near != NULL))
        return give_out(near, owner);
    size_t bytes = class == NO_CLASS ? size_bytes : class_bytes(class);

    mutex_lock(&p->mu);
    p->stats.n_allocs++;
    if (!count_used(p, bytes)) {
        mutex_unlock(&p->mu);
        return NULL;
    }
    p->n_used++;
    struct header *h = take_one_locked(p, class);
    p->stats.n_misses += !h;
    bool has_others = p->stats.unused_bytes > 0;
    mutex_unlock(&p->mu);

    if (!h) {
        h = block_from_system(p, class, bytes);
        if (!h && p->budget && has_others) {
            pool_trim(p, 0); /* gives unused blocks of other classes back to the budget */
            h = block_from_system(p, class, bytes);
        }
        if (!h) {
            mutex_lock(&p->mu);
            p->stats.used_bytes -= bytes;
            p->n_used--;
            mutex_unlock(&p->mu);
            return NULL;
        }
    }
    return give_out(h, owner);
}

/* Extends the mapping; the header moves with it. */
static struct header *grow_mapping(struct pool *p, struct header *h, size_t bytes)
{
    size_t before, total;
    BUG_ON(!total_bytes(p, h->size_bytes, &before));
    if (!total_bytes(p, bytes, &total))
        return NULL;
    if (!budget_take(p->budget, total - before))
        return NULL;
    struct header *grown = mem_try_remap(h, before, total);
    if (!grown)
        budget_give(p->budget, total - before);
    return grown;
}

void *pool_grow(void *block, size_t size_bytes)
{
    struct header *h = (struct header *)block - 1;
    BUG_ON(h->magic != MAGIC_USED);
    struct pool *p = h->pool;
    size_t before = h->size_bytes;
    if (!h->is_mapped || size_bytes <= before)
        return size_bytes <= before ? block : NULL;

    mutex_lock(&p->mu);
    bool fits = count_used(p, size_bytes - before);
    mutex_unlock(&p->mu);
    if (!fits)
        return NULL;
    struct header *grown = grow_mapping(p, h, size_bytes);
    if (!grown) {
        mutex_lock(&p->mu);
        p->stats.used_bytes -= size_bytes - before;
        mutex_unlock(&p->mu);
        return NULL;
    }
    grown->size_bytes = size_bytes;
    grown->class = NO_CLASS;
    /* In this order: the owner may have no other block that keeps it. */
    mem_owner_charge(grown->owner, MEM_TENSORS, size_bytes);
    mem_owner_discharge(grown->owner, MEM_TENSORS, before);
    return grown + 1;
}

/* Removes unused blocks beyond keep_bytes and links them; free_blocks() frees them without the
 * lock. */
static struct header *take_unused_locked(struct pool *p, size_t keep_bytes)
{
    struct header *victims = NULL, *h;

    for (unsigned int class = N_CLASSES; class -- > 0;) { /* the large ones free most */
        while (p->stats.unused_bytes > keep_bytes && (h = take_one_locked(p, class))) {
            h->next = victims;
            victims = h;
        }
    }
    return victims;
}

/*
 * The number of blocks of a class that were not needed: since the last call, if no block of the
 * class was in use meanwhile; otherwise during two windows, as steady traffic needs a few more
 * blocks now and then.
 */
static unsigned int count_idle_locked(struct pool *p, unsigned int class)
{
    unsigned int n = p->unused[class].n, n_least = p->unused[class].n_least;
    if (n_least == n) {
        p->unused[class].n_least_window = p->unused[class].n_least_before = n;
        return n;
    }
    p->unused[class].n_least_window = MIN(p->unused[class].n_least_window, n_least);
    n_least = MIN(p->unused[class].n_least_window, p->unused[class].n_least_before);
    if (p->n_settles % WINDOW_SETTLES == 0) {
        p->unused[class].n_least_before = p->unused[class].n_least_window;
        p->unused[class].n_least_window = n;
    }
    return n_least;
}

/* Removes from each class half of the blocks that were not needed. */
static struct header *take_idle_blocks_locked(struct pool *p)
{
    struct header *victims = NULL, *h;

    p->n_settles++;
    for (unsigned int class = N_CLASSES; class -- > 0;) {
        unsigned int n = (count_idle_locked(p, class) + 1) / 2;
        while (n-- > 0 && p->stats.unused_bytes > SETTLED_BYTES &&
               (h = take_one_locked(p, class))) {
            h->next = victims;
            victims = h;
            p->unused[class].n_least_window -= p->unused[class].n_least_window > 0;
            p->unused[class].n_least_before -= p->unused[class].n_least_before > 0;
        }
        p->unused[class].n_least = p->unused[class].n;
    }
    return victims;
}

static void free_blocks(struct pool *p, struct header *h)
{
    bool in_allocator = false;
    while (h) {
        struct header *next = h->next;
        in_allocator |= !h->is_mapped;
        block_to_system(p, h);
        h = next;
    }
    if (in_allocator && p->budget)
        budget_purge(p->budget);
}

/* A closed pool has no unused blocks, and no user any more. */
static void pool_end(struct pool *p)
{
    mutex_done(&p->mu);
    budget_unref(p->budget);
    mem_free(p);
}

/* Under mu. Returns how many unused bytes the pool may keep while this many are in use. */
static size_t may_keep_locked(const struct pool *p)
{
    size_t peak_bytes = p->settles ? MAX(p->peak_bytes, p->last_peak_bytes) : 0;
    size_t below_peak = peak_bytes - MIN(peak_bytes, p->stats.used_bytes);
    return MAX(p->max_unused_bytes, below_peak);
}

/* Moves a block to the shared lists if it may be used again, otherwise to the system. */
static void give_block_back(struct pool *p, struct header *h, bool again)
{
    size_t bytes = h->size_bytes;
    mutex_lock(&p->mu);
    p->stats.used_bytes -= bytes;
    bool keep = again && !p->closed && h->class != NO_CLASS &&
                p->stats.unused_bytes + bytes <= may_keep_locked(p);
    if (LIKELY(keep)) {
        h->next = p->unused[h->class].first;
        p->unused[h->class].first = h;
        p->unused[h->class].n++;
        p->stats.unused_bytes += bytes;
        p->n_used--; /* the pool is not closed, and stays */
        mutex_unlock(&p->mu);
        return;
    }
    mutex_unlock(&p->mu);

    block_to_system(p, h); /* while it still counts, so that the pool stays */
    mutex_lock(&p->mu);
    p->n_used--;
    bool last = p->closed && p->n_used == 0;
    mutex_unlock(&p->mu);
    if (last)
        pool_end(p);
}

/* From now on the block has no owner; it counts as in use until give_block_back(). NULL for
 * NULL. */
static struct header *end_use(void *block)
{
    if (!block)
        return NULL;
    struct header *h = (struct header *)block - 1;
    BUG_ON(h->magic != MAGIC_USED); /* released twice, or not from a pool */
    h->magic = MAGIC_UNUSED;
    mem_owner_discharge(h->owner, MEM_TENSORS, h->size_bytes);
    return h;
}

void pool_release(void *block)
{
    struct header *h = end_use(block);
    if (h && !keep_near(h->pool, h))
        give_block_back(h->pool, h, true);
}

void pool_disown(void *block)
{
    struct header *h = (struct header *)block - 1;
    BUG_ON(h->magic != MAGIC_USED);
    mem_owner_discharge(TAKE(h->owner), MEM_TENSORS, h->size_bytes);
}

bool pool_reuse(void *block, const struct pool *p, size_t size_bytes, struct mem_owner *owner)
{
    struct header *h = (struct header *)block - 1;
    BUG_ON(h->magic != MAGIC_USED || h->owner);
    if (h->pool != p || h->size_bytes < size_bytes || h->size_bytes / 2 > size_bytes)
        return false;
    h->owner = owner;
    mem_owner_charge(owner, MEM_TENSORS, h->size_bytes);
    return true;
}

void pool_discard(void *block)
{
    struct header *h = end_use(block);
    if (h)
        give_block_back(h->pool, h, false);
}

void pool_free(struct pool *p)
{
    if (!p)
        return;
    mutex_lock(&p->mu);
    p->closed = true;
    p->n_used++; /* this call */
    struct header *victims = take_unused_locked(p, 0);
    mutex_unlock(&p->mu);
    free_blocks(p, victims);
    mutex_lock(&p->mu);
    bool last = --p->n_used == 0;
    mutex_unlock(&p->mu); /* p may be freed from here on: another thread releases the last block */
    if (last)
        pool_end(p);
}

size_t pool_block_bytes(const void *block)
{
    return ((const struct header *)block - 1)->size_bytes;
}

size_t pool_made_bytes(const void *block)
{
    return ((const struct header *)block - 1)->made_bytes;
}

void pool_set_made(void *block, size_t bytes)
{
    ((struct header *)block - 1)->made_bytes = bytes;
}

void pool_trim(struct pool *p, size_t keep_bytes)
{
    mutex_lock(&p->mu);
    struct header *victims = take_unused_locked(p, keep_bytes);
    mutex_unlock(&p->mu);
    free_blocks(p, victims);
}

bool pool_settle(struct pool *p)
{
    mutex_lock(&p->mu);
    p->settles = true;
    /* An older peak halves each time, so that varying peaks cost nothing. */
    p->last_peak_bytes = MAX(p->peak_bytes, p->last_peak_bytes / 2);
    p->peak_bytes = p->stats.used_bytes;
    struct header *victims = take_idle_blocks_locked(p);
    bool at_rest = p->stats.unused_bytes <= SETTLED_BYTES;
    mutex_unlock(&p->mu);
    free_blocks(p, victims);
    return at_rest;
}

void pool_stats(struct pool *p, struct pool_stats *ret_stats)
{
    mutex_lock(&p->mu);
    *ret_stats = p->stats;
    mutex_unlock(&p->mu);
}
