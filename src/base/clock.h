/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Time, behind an object so that tests control it. All times are nanoseconds of CLOCK_MONOTONIC, in
 * which backends report statistics, too. Wall time is only for logs and the times of files.
 *
 * A read of the machine's clock costs one predictable branch more than monotonic_ns(). A thread
 * that waits for a time of a clock passes the clock on (cond_wait_by_clock(),
 * sleeper_wait_by_clock()). So the clock of a test, tests/lib/fake_clock.h, wakes it.
 */
#ifndef CONCH_BASE_CLOCK_H
#define CONCH_BASE_CLOCK_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "base/compiler.h"

struct cond;
struct mutex;
struct sleeper;

#define NS_PER_US 1000ULL
#define NS_PER_MS 1000000ULL
#define NS_PER_S  1000000000ULL

/* What another clock than the machine's does. */
struct clock {
    uint64_t (*now_ns)(struct clock *c);
    /* As cond_wait_until() and sleeper_wait_until(), by this clock. */
    bool (*wait_cond)(struct clock *c, struct cond *cond, struct mutex *m, uint64_t deadline_ns);
    void (*wait_sleeper)(struct clock *c, struct sleeper *s, uint64_t deadline_ns);
};

/* The machine's clock is known by its address; its functions are never called. */
extern struct clock machine_clock;

/* clock_real - the machine's clock; valid for ever. Thread: any. */
static inline struct clock *clock_real(void)
{
    return &machine_clock;
}

/* monotonic_ns - the machine's monotonic time, for code whose tests do not control the time. */
static inline uint64_t monotonic_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
}

/* clock_now_ns - the time of the clock. Thread: any. */
static inline uint64_t clock_now_ns(struct clock *c)
{
    return LIKELY(c == clock_real()) ? monotonic_ns() : c->now_ns(c);
}

#endif
