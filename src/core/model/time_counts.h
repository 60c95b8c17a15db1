/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long the requests of an instance took, counted by buckets: the histograms of times on the
 * page of metrics. The bounds are 1, 2.5 and 5 times powers of ten, from 10 µs to 10 s. A number's
 * highest bit leads to the only bound that may be inside its octave, so one comparison finds the
 * bucket.
 *
 * Thread: one at a time counts; any may read the counters, one by one, meanwhile.
 */
#ifndef CONCH_CORE_MODEL_TIME_COUNTS_H
#define CONCH_CORE_MODEL_TIME_COUNTS_H

#include <stdatomic.h>
#include <stdint.h>

enum counted_time {
    TIME_OF_REQUEST, /* from its acceptance to its end */
    TIME_IN_QUEUE,   /* until its execution began */
    TIME_OF_COMPUTE, /* in its backend */
    N_COUNTED_TIMES,
};

enum { TIME_BUCKETS = 20 };

struct time_counts {
    atomic_uint_least64_t of[N_COUNTED_TIMES][TIME_BUCKETS];
};

/* The upper bounds of the buckets, inclusive; UINT64_MAX: the last one has none. */
extern const uint64_t time_bounds_ns[TIME_BUCKETS];
/* The first bound that is not below 2^i. */
extern const unsigned char time_octaves[64];

/* time_bucket - the bucket of a time. */
static inline unsigned int time_bucket(uint64_t ns)
{
    unsigned int i = time_octaves[63 - __builtin_clzll(ns | 1)];
    return i + (ns > time_bounds_ns[i]);
}

/* time_counts_add - counts a time. Thread: the one that counts. */
static inline void time_counts_add(struct time_counts *c, enum counted_time which, uint64_t ns)
{
    atomic_uint_least64_t *n = &c->of[which][time_bucket(ns)];
    atomic_store_explicit(n, atomic_load_explicit(n, memory_order_relaxed) + 1,
                          memory_order_relaxed);
}

#endif
