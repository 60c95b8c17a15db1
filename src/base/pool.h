/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A pool of memory blocks in size classes, last in first out: the block given out is the one that
 * was given back last, so that it is still in the cache (cycling through cold buffers cost the
 * prototype a factor of three). Blocks are aligned to 64 bytes. Each block names an owner, whose
 * account the pool keeps. Unused blocks are kept up to a set number of bytes, and beyond that as
 * long as used and unused together are no more than what was in use at the peak of late, so that
 * steady traffic of any size asks nothing of the system. That is for pools whose owner calls
 * pool_settle() each second: half of what nobody has needed for that second then goes back.
 *
 * A pool may share a budget (budget.h) with others. It then counts there what it has from the
 * system, and its blocks from 1 MiB on are mappings of their own, which are the system's again as
 * soon as they are given back.
 *
 * Thread: any. Each event loop has a pool of its own, so that its lock is rarely contended; a
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
    size_t used_bytes;   /* given out, as rounded up to size classes */
    size_t unused_bytes; /* kept for the next */
    uint64_t n_allocs;   /* calls of pool_alloc() */
    uint64_t n_misses;   /* … that had to ask the system */
};

/*
 * pool_new - a pool that always may keep max_unused_bytes for later and never has more than
 * max_used_bytes given out (0 = no limit).
 */
struct pool *pool_new(const char *name, size_t max_unused_bytes, size_t max_used_bytes);

/*
 * pool_attach, pool_detach - from now on, until now, the calling thread has some blocks of each
 * small size at hand, which it takes and gives back without the lock. What is at hand counts as
 * used, and is out of the reach of pool_trim(). No other thread has joined the pool.
 */
void pool_attach(struct pool *p);
void pool_detach(struct pool *p);

/* pool_set_budget - before the first block; the pool has a reference to the budget from now on. */
void pool_set_budget(struct pool *p, struct budget *budget);

/* pool_free - ends the pool. Blocks still given out stay valid; the last release frees the rest. */
void pool_free(struct pool *p);

/*
 * pool_alloc - a block of at least size_bytes, aligned to 64; its content is undefined.
 *
 * @owner   who is charged; NULL for nobody
 * Returns  NULL when the limit, the budget or the memory ends
 */
NODISCARD void *pool_alloc(struct pool *p, size_t size_bytes, struct mem_owner *owner);

/*
 * pool_grow - a larger block with the same content, at the same address or another; no byte is
 * copied.
 *
 * Returns  NULL when that block cannot grow so (it is smaller than 1 MiB, or the pool has no
 *          budget), or memory ends: it stays as it was
 */
NODISCARD void *pool_grow(void *block, size_t size_bytes);

/* pool_release - gives a block back to the pool it came from; NULL is fine. */
void pool_release(void *block);

/*
 * pool_discard - pool_release() for a block that must not be used again: it goes to the system, and
 * if it is a mapping, by the budget's thread.
 */
void pool_discard(void *block);

/*
 * pool_made_bytes - how many of its first bytes are known to have pages, so that to write there
 * does not take the kernel long. pool_set_made() notes that there are more. Thread: the block's
 * owner's.
 */
size_t pool_made_bytes(const void *block);
void pool_set_made(void *block, size_t bytes);

/* pool_block_bytes - how many bytes the block really has. */
size_t pool_block_bytes(const void *block);

/* pool_trim - gives unused blocks back to the system until at most keep_bytes are left. */
void pool_trim(struct pool *p, size_t keep_bytes);

/*
 * pool_settle - forgets older peaks and gives back half of what nobody has needed since the last
 * call. To be called once in the beginning, and about once a second until it says that it is at
 * rest, while there is traffic.
 *
 * Returns  whether next to nothing is unused: another call would change nothing
 */
bool pool_settle(struct pool *p);

void pool_stats(struct pool *p, struct pool_stats *ret_stats);

#endif
