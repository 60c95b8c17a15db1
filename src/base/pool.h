/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A pool of memory blocks in size classes, last in first out: pool_alloc() returns the block that
 * was released last, so that it is still in the CPU's cache. (Cycling through cold buffers cost the
 * prototype a factor of three.) Blocks are aligned to 64 bytes. Each block names an owner, whose
 * account the pool keeps (mem_owner.h).
 *
 * A pool keeps unused blocks up to a set number of bytes. Beyond that it keeps them as long as used
 * and unused blocks together are no more than the recent peak of use. So steady traffic of any size
 * takes nothing from the system. The pool's owner must then call pool_settle() each second, which
 * gives back half of the blocks of a size that nobody uses, and of a size in use half of what was
 * not needed for some seconds.
 *
 * A pool may share a budget (budget.h) with others. It then counts there the bytes that it has from
 * the system. Its blocks from 1 MiB on are mappings of their own, which return to the system as
 * soon as they are released.
 *
 * Thread: any. Each event loop has a pool of its own, so that its lock is rarely contended. A
 * backend's thread takes output buffers from the pool of the loop that waits for them.
 */
#ifndef CONCH_BASE_POOL_H
#define CONCH_BASE_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"

struct budget;
struct pool;
struct mem_owner;

struct pool_stats {
    size_t used_bytes;   /* in use, rounded up to size classes */
    size_t unused_bytes; /* kept for later */
    uint64_t n_allocs;   /* calls of pool_alloc() */
    uint64_t n_misses;   /* … that took memory from the system */
};

/*
 * pool_new - makes a pool that may always keep max_unused_bytes for later, and never has more than
 * max_used_bytes in use (0: no limit). The caller ends it with pool_free().
 */
struct pool *pool_new(const char *name, size_t max_unused_bytes, size_t max_used_bytes);

/*
 * pool_attach, pool_detach - between them the calling thread keeps some blocks of each small size
 * to itself, and takes and releases those without the lock. These blocks count as used, and
 * pool_trim() cannot free them. Only one thread at a time may be attached to a pool.
 */
void pool_attach(struct pool *p);
void pool_detach(struct pool *p);

/*
 * pool_keep_near - allows the attached thread more blocks: up to n_blocks of each size up to 4 KiB.
 * The number is POOL_NEAR_BLOCKS at first, and never gets smaller.
 *
 * Thread: the attached one; any while none is attached
 */
enum { POOL_NEAR_BLOCKS = 64 };
void pool_keep_near(struct pool *p, unsigned int n_blocks);

/* pool_set_budget - to be called before the first block; the pool refs the budget. */
void pool_set_budget(struct pool *p, struct budget *budget);

/* pool_free - ends the pool. Blocks still given out stay valid; the last release frees the rest. */
void pool_free(struct pool *p);

/*
 * pool_alloc - a block of at least size_bytes, aligned to 64 bytes; its content is undefined.
 *
 * @owner   is charged for the block; NULL: nobody is
 * Returns  NULL when the limit, the budget or the memory is exhausted
 */
NODISCARD void *pool_alloc(struct pool *p, size_t size_bytes, struct mem_owner *owner);

/*
 * pool_grow - makes a block larger and returns its address, which may be a new one. The content
 * stays, and no byte is copied.
 *
 * Returns  NULL when the block cannot grow: it is smaller than 1 MiB, the pool has no budget, or
 *          memory is exhausted. The block is then as before
 */
NODISCARD void *pool_grow(void *block, size_t size_bytes);

/* pool_release - gives a block back to the pool it came from; NULL is fine. */
void pool_release(void *block);

/* pool_disown - from now on nobody is charged for the block. */
void pool_disown(void *block);

/*
 * pool_reuse - gives the caller's block, which has no owner, another use in its place: charges the
 * owner. Returns false, and changes nothing, when the block is not of this pool, too small, or more
 * than twice as large as wanted.
 */
NODISCARD bool pool_reuse(void *block, const struct pool *p, size_t size_bytes,
                          struct mem_owner *owner);

/*
 * pool_discard - like pool_release(), but the block is not reused: it returns to the system. If it
 * is a mapping, the budget's thread unmaps it.
 */
void pool_discard(void *block);

/*
 * pool_made_bytes - the number of the block's first bytes that are known to have pages, so that
 * writing there does not take the kernel long. pool_set_made() records that there are more. Thread:
 * the one that has the block.
 */
size_t pool_made_bytes(const void *block);
void pool_set_made(void *block, size_t bytes);

/* pool_block_bytes - the usable size of the block, at least what was asked for. */
size_t pool_block_bytes(const void *block);

/* pool_trim - gives unused blocks back to the system until at most keep_bytes are left. */
void pool_trim(struct pool *p, size_t keep_bytes);

/*
 * pool_settle - forgets older peaks and frees half of the blocks that were not needed: since the
 * last call where none of the size was used, else for four to eight calls. While there is traffic,
 * call it once at the beginning, and then about once a second until it returns true.
 *
 * Returns  true when almost nothing is unused: another call would change nothing
 */
bool pool_settle(struct pool *p);

void pool_stats(struct pool *p, struct pool_stats *ret_stats);

#endif
