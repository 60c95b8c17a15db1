/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The processor's counter of time: it is read in a third of the time that clock_gettime() takes.
 * Ticks order the uses of entries, and measure calls; how long a tick is, a reader finds out by
 * two reads of both clocks.
 */
#ifndef CONCH_CACHES_LOCAL_TICKS_H
#define CONCH_CACHES_LOCAL_TICKS_H

#include <stdint.h>
#include <time.h>

/* ticks_clock_ns - the monotonic clock, which nobody adjusts. */
static inline uint64_t ticks_clock_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC_RAW, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static inline uint64_t ticks_now(void)
{
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
    uint64_t ticks;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
    return ticks;
#else
    return ticks_clock_ns();
#endif
}

#endif
