/* SPDX-License-Identifier: Apache-2.0 */
/*
 * There are twice as many stripes as processors, rounded up to a power of two, within bounds: most
 * threads that have a stripe are idle most of the time. At its first count a thread gets the stripe
 * that the fewest others have, and returns it when it ends. So the loops, which begin together and
 * stay, do not share one while others are free.
 */
#include "base/stripe.h"

#include <pthread.h>
#include <stdint.h>

#include "base/cpu_count.h"
#include "base/mem_raw.h"

static struct {
    pthread_once_t once;
    pthread_key_t thread_end;
    unsigned int n; /* constant after that */

    pthread_mutex_t mu; /* a leaf below all others, held for a few instructions */
    unsigned int users[STRIPES_MAX];
} all = {.once = PTHREAD_ONCE_INIT, .mu = PTHREAD_MUTEX_INITIALIZER};

THREAD_WORD unsigned int stripe_mine;

static void give_stripe_back(void *arg)
{
    pthread_mutex_lock(&all.mu);
    all.users[(uintptr_t)arg - 1]--;
    pthread_mutex_unlock(&all.mu);
    stripe_mine = 0;
}

static void set_up_stripes(void)
{
    unsigned int wanted = 2 * (unsigned int)cpu_count_usable();
    all.n = STRIPES_MIN;
    while (all.n < STRIPES_MAX && all.n < wanted)
        all.n *= 2;
    pthread_key_create(&all.thread_end, give_stripe_back);
}

unsigned int stripe_choose(void)
{
    pthread_once(&all.once, set_up_stripes);
    pthread_mutex_lock(&all.mu);
    unsigned int best = 0;
    for (unsigned int i = 1; i < all.n; i++) {
        if (all.users[i] < all.users[best])
            best = i;
    }
    all.users[best]++;
    pthread_mutex_unlock(&all.mu);
    stripe_mine = best + 1;
    pthread_setspecific(all.thread_end, (void *)(uintptr_t)stripe_mine); /* NOLINT: a number */
    return best;
}

struct stripe *stripes_new(void)
{
    pthread_once(&all.once, set_up_stripes);
    struct stripe *stripes = mem_alloc_aligned(all.n * sizeof(*stripes));
    for (unsigned int i = 0; i < all.n; i++) {
        for (size_t j = 0; j < STRIPE_COUNTS; j++)
            atomic_init(&stripes[i].words[j], 1);
    }
    return stripes;
}

void stripes_free(struct stripe *stripes)
{
    mem_free_aligned(stripes);
}

void stripes_open(struct stripe *stripes, enum stripe_count count)
{
    for (unsigned int i = 0; i < all.n; i++)
        atomic_store(&stripes[i].words[count], 0);
}

/* Sums words that count twice each count. */
static long halve_sum(unsigned long sum)
{
    return (long)sum >> 1;
}

long stripes_close(struct stripe *stripes, enum stripe_count count)
{
    unsigned long sum = 0;
    for (unsigned int i = 0; i < all.n; i++) {
        long word = atomic_fetch_or(&stripes[i].words[count], 1);
        BUG_ON(word & 1);
        sum += (unsigned long)word;
    }
    return halve_sum(sum);
}

long stripes_sum(const struct stripe *stripes, enum stripe_count count)
{
    unsigned long sum = 0;
    for (unsigned int i = 0; i < all.n; i++)
        sum += (unsigned long)atomic_load_explicit(&stripes[i].words[count], memory_order_relaxed) &
               ~1ul;
    return halve_sum(sum);
}
