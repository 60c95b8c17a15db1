/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blocks of a pool in a list. The first MEM_ALIGNMENT bytes of each block hold the link to the next
 * one, so that the rest is aligned like the block. Thread: one at a time.
 */
#include "frontends/ops/tensor_blocks.h"

#include "base/mem.h"
#include "base/pool.h"

void *tensor_blocks_add(struct tensor_blocks *b, struct pool *pool, size_t size_bytes,
                        struct mem_owner *owner)
{
    size_t total;
    if (__builtin_add_overflow(size_bytes, (size_t)MEM_ALIGNMENT, &total))
        return NULL;
    char *block = pool_alloc(pool, total, owner);
    if (!block)
        return NULL;
    *(void **)(void *)block = b->first;
    b->first = block;
    return block + MEM_ALIGNMENT;
}

void tensor_blocks_release(struct tensor_blocks *b)
{
    void *block = TAKE(b->first);
    while (block) {
        void *next = *(void **)block;
        pool_release(block);
        block = next;
    }
}
