/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counts that many threads change and hardly anybody reads. Each thread adds to a stripe, a cache
 * line that it shares with no other thread that runs at the same time (as long as there are no more
 * than processors), and who wants to know adds the stripes up.
 *
 *     if (!stripe_add(stripes, STRIPE_REFS, -1))     the count is closed:
 *         … atomic_fetch_sub(&rest, 1) …             everybody adds to one word, and sees it end
 *
 * The sum of open stripes is an estimate, and nobody can see it become 0. Who needs to know when
 * that happens closes the count: stripes_close() gives what the stripes had, exactly, and from then
 * on stripe_add() has each thread add to a word of the caller's. A count is kept away from 0 in
 * that word (STRIPE_BIAS) until the sum is in it.
 *
 * Thread: any, for all functions; a count is opened before others know of it, and closed once.
 */
#ifndef CONCH_BASE_STRIPE_H
#define CONCH_BASE_STRIPE_H

#include <stdatomic.h>
#include <stdbool.h>

#include "base/compiler.h"

/* What one line counts: an owner of memory (mem_owner.h) and its model share their stripes. */
enum stripe_count {
    STRIPE_BLOCKS, /* of memory, and bytes of tensors */
    STRIPE_REFS,
    STRIPE_INFLIGHT,
    STRIPE_COUNTS
};

/* Twice the count, and one more when it is closed. What comes to a closed one means nothing. One
 * may wrap, where one thread only adds and another one takes off; the sum does not. */
struct stripe {
    _Alignas(64) atomic_long words[STRIPE_COUNTS];
};

enum { STRIPES_MIN = 8, STRIPES_MAX = 64 };
#define STRIPE_BIAS (1L << 40) /* more than anybody counts */

/* stripes_new - all counts are closed; stripes_free() ends them. */
struct stripe *stripes_new(void);
void stripes_free(struct stripe *stripes);

/* This thread's number, and one more; 0: it has none yet. For stripe_here(). */
extern THREAD_WORD unsigned int stripe_mine;
unsigned int stripe_choose(void);

/* stripe_here - this thread's number, below STRIPES_MAX. */
static inline unsigned int stripe_here(void)
{
    return LIKELY(stripe_mine) ? stripe_mine - 1 : stripe_choose();
}

/* stripe_add - false: the count is closed, and n belongs to the caller's word. */
NODISCARD static inline bool stripe_add(struct stripe *stripes, enum stripe_count count, long n)
{
    return LIKELY(!(atomic_fetch_add(&stripes[stripe_here()].words[count], 2 * n) & 1));
}

void stripes_open(struct stripe *stripes, enum stripe_count count);

/* stripes_close - returns what was counted; who adds from now on is told that it is closed. */
long stripes_close(struct stripe *stripes, enum stripe_count count);

/* stripes_sum - of an open count; a change that is under way may be seen half. */
long stripes_sum(const struct stripe *stripes, enum stripe_count count);

#endif
