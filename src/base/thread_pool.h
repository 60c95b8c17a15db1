/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A pool of blocks (pool.h) for each calling thread that has no loop. These are threads of
 * embedders, which would otherwise all take the lock of one pool twice per request. The thread is
 * attached to its pool (pool_attach()), so that small blocks need no lock at all.
 *
 * When a thread ends, its pool goes to the next thread that needs one, even if blocks of it are
 * still in use. So there are never more pools than there were threads at one time.
 */
#ifndef CONCH_BASE_THREAD_POOL_H
#define CONCH_BASE_THREAD_POOL_H

#include <stddef.h>

struct pool;

/* thread_pool - the calling thread's pool; borrowed, valid until the process ends. */
struct pool *thread_pool(void);

/* thread_pools_trim - frees the unused blocks of all these pools. Thread: any. */
void thread_pools_trim(void);

/* thread_pools_count - the number of these pools. For tests. */
size_t thread_pools_count(void);

#endif
