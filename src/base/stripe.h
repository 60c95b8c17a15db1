/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counts that many threads change and few read. Each thread adds to a stripe, which is a cache
 * line. While there are no more threads than CPUs, no two running threads share a stripe. A reader
 * adds up all stripes.
 *
 *     if (!stripe_add(stripes, STRIPE_REFS, -1))     the count is closed:
 *         … atomic_fetch_sub(&rest, 1) …             all threads add to one word
 *
 * The sum of open stripes is an estimate, and no thread can see it reach 0. To see that, the caller
 * closes the count. stripes_close() returns the exact sum. From then on stripe_add() returns false,
 * and each thread adds to a word of the caller's. The caller adds STRIPE_BIAS to that word, so that
 * it cannot reach 0 before the sum has been added.
 *
 * Thread: any, for all functions. A count is opened before other threads know of it, and closed
 * once.
 */
#ifndef CONCH_BASE_STRIPE_H
#define CONCH_BASE_STRIPE_H

#include <stdatomic.h>
#include <stdbool.h>

#include "base/compiler.h"

/* The counts of one line. An owner of memory (mem_owner.h) and its model share their stripes. */
enum stripe_count {
    STRIPE_BLOCKS, /* of memory; also their bytes, for tensors */
    STRIPE_REFS,
    STRIPE_INFLIGHT,
    STRIPE_COUNTS
};

/*
 * Each word is twice the count, plus one when the count is closed. What is added after the close is
 * ignored. A single word may wrap, when one thread only adds and another only subtracts; the sum is
 * still right.
 */
struct stripe {
    _Alignas(64) atomic_long words[STRIPE_COUNTS];
};

enum { STRIPES_MIN = 8, STRIPES_MAX = 64 };
#define STRIPE_BIAS (1L << 40) /* more than any count */

/* stripes_new - all counts begin closed; stripes_free() frees them. */
struct stripe *stripes_new(void);
void stripes_free(struct stripe *stripes);

/* For stripe_here(): this thread's number plus one; 0: it has none yet. */
extern THREAD_WORD unsigned int stripe_mine;
unsigned int stripe_choose(void);

/* stripe_here - this thread's stripe number, below STRIPES_MAX. */
static inline unsigned int stripe_here(void)
{
    return LIKELY(stripe_mine) ? stripe_mine - 1 : stripe_choose();
}

/* stripe_add - false: the count is closed, and the caller adds n to its own word. */
NODISCARD static inline bool stripe_add(struct stripe *stripes, enum stripe_count count, long n)
{
    return LIKELY(!(atomic_fetch_add(&stripes[stripe_here()].words[count], 2 * n) & 1));
}

void stripes_open(struct stripe *stripes, enum stripe_count count);

/* stripes_close - returns the exact sum; from now on stripe_add() returns false. */
long stripes_close(struct stripe *stripes, enum stripe_count count);

/* stripes_sum - the sum of an open count; a change in progress may be included in part. */
long stripes_sum(const struct stripe *stripes, enum stripe_count count);

#endif
