/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A clock that stands still until the test moves it. A thread that waits for a time of this clock
 * (cond_wait_by_clock(), sleeper_wait_by_clock()) goes on when the time has come: no thread waits
 * for real time, and no timer fires before its time.
 *
 *     clock_fake_init(&clock, 1000 * NS_PER_S);
 *     options->clock = &clock.clock;            or another maker that takes a clock
 *     …                                         an action that sets a timer
 *     clock_fake_await(&clock, 2 * NS_PER_MS);  a thread waits for it
 *     clock_fake_advance(&clock, 2 * NS_PER_MS);
 *     …                                         wait for the timer's action
 */
#ifndef CONCH_TESTS_LIB_FAKE_CLOCK_H
#define CONCH_TESTS_LIB_FAKE_CLOCK_H

#include <stdint.h>

#include "base/clock.h"
#include "base/list.h"
#include "base/mutex.h"

struct clock_fake {
    struct clock clock;
    uint64_t time_ns; /* atomically; set under mu */
    struct mutex mu; /* above all levels of the server's locks: it is taken with any of them held */
    /* Under mu. */
    struct list waiters;
    struct cond changed; /* a thread waits */
};

/* clock_fake_init - @time_ns  not 0, which means "never" in places. No thread waits. */
void clock_fake_init(struct clock_fake *c, uint64_t time_ns);

/*
 * clock_fake_advance - moves the time, and wakes all threads that wait for a time that has come;
 * they may still be about to go on when this returns. Thread: any, without a lock that they wait
 * with.
 */
void clock_fake_advance(struct clock_fake *c, uint64_t by_ns);

/*
 * clock_fake_await - returns as soon as a thread waits for a time that is at most by_ns ahead. Ends
 * the test program if no thread does for a minute. Thread: any, without locks.
 */
void clock_fake_await(struct clock_fake *c, uint64_t by_ns);

#endif
