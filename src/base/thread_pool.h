/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A pool of blocks (pool.h) for each thread that asks, for those who have no loop: threads of
 * embedders, which otherwise would all take the lock of one pool twice per request. The thread has
 * joined its pool (pool_attach()): for small blocks it takes no lock at all.
 *
 * A thread that ends leaves its pool to the next one that needs one, with whatever is still given
 * out of it; so there are never more pools than there were threads at one time.
 */
#ifndef CONCH_BASE_THREAD_POOL_H
#define CONCH_BASE_THREAD_POOL_H

#include <stddef.h>

struct pool;

/* thread_pool - the calling thread's; borrowed, for as long as the process lasts. */
struct pool *thread_pool(void);

/* thread_pools_trim - all of them give back what they keep for later. Thread: any. */
void thread_pools_trim(void);

/* thread_pools_count - how many there are. For tests. */
size_t thread_pools_count(void);

#endif
