/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of the block is posted, like the next step, and posted again as long as something else
 * waits behind it: so it is the last thing that the thread does.
 */
#include "core/sched/spare_block.h"

#include <stdbool.h>

#include "base/compiler.h"
#include "base/pool.h"
#include "core/sched/afterwards.h"

static THREAD_WORD void *kept;
static THREAD_WORD bool is_posted;
static THREAD_WORD struct afterwards end_item;

static void end_kept(struct afterwards *a, struct inline_budget *budget)
{
    (void)budget;
    if (kept && afterwards_last) {
        afterwards_post(a);
        return;
    }
    is_posted = false;
    pool_release(TAKE(kept));
}

void spare_block_release(void *block)
{
    if (!afterwards_waits() || pool_block_bytes(block) < SPARE_BLOCK_LEAST_BYTES) {
        pool_release(block);
        return;
    }
    pool_release(TAKE(kept));
    pool_disown(block);
    kept = block;
    if (is_posted)
        return;
    is_posted = true;
    end_item.run = end_kept;
    afterwards_post(&end_item);
}

void *spare_block_take(const struct pool *p, size_t size_bytes, struct mem_owner *owner)
{
    return kept && pool_reuse(kept, p, size_bytes, owner) ? TAKE(kept) : NULL;
}
