/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Time, behind an object so that tests control it. All times are nanoseconds of CLOCK_MONOTONIC, in
 * which backends report statistics, too. Wall time is only for logs.
 */
#ifndef CONCH_BASE_CLOCK_H
#define CONCH_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

#define NS_PER_US 1000ULL
#define NS_PER_MS 1000000ULL
#define NS_PER_S  1000000000ULL

struct clock {
    uint64_t (*now_ns)(struct clock *c);
};

static inline uint64_t clock_now_ns(struct clock *c)
{
    return c->now_ns(c);
}

/* clock_real - the machine's clock; valid for ever. Thread: any. */
struct clock *clock_real(void);

/* monotonic_ns - the machine's monotonic time, for code whose tests do not control the time. */
static inline uint64_t monotonic_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
}

/* A clock that stands still until clock_fake_advance() moves it. Thread: any. */
struct clock_fake {
    struct clock clock;
    uint64_t time_ns; /* atomically */
};

void clock_fake_init(struct clock_fake *c, uint64_t time_ns);
void clock_fake_advance(struct clock_fake *c, uint64_t by_ns);

#endif
