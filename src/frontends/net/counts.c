/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reader's side of the counts. Thread: any.
 */
#include "frontends/net/counts.h"

static uint64_t read_count(const _Atomic uint64_t *count)
{
    return atomic_load_explicit((_Atomic uint64_t *)(uintptr_t)count, memory_order_relaxed);
}

void net_counts_sum(const struct net_counts *c, struct net_totals *totals)
{
    for (int i = 0; i < N_NET_COUNTS; i++)
        totals->of[i] += read_count(&c->of[i]);
    for (int i = 0; i < NET_N_ANSWERS; i++)
        totals->answers[i] += read_count(&c->answers[i]);
}
