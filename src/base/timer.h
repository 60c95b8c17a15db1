/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Timers: callbacks at points in time, embedded in the objects that they belong to. A set of timers
 * is a heap ordered by deadline. The owner of the set (an event loop) asks for the next deadline
 * and runs what is due.
 *
 * Thread: the owner's.
 */
#ifndef CONCH_BASE_TIMER_H
#define CONCH_BASE_TIMER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/heap.h"

struct timer;
typedef void (*timer_fn)(struct timer *t);

struct timer {
    struct heap_node node;
    uint64_t deadline_ns; /* monotonic */
    timer_fn callback;
    bool is_set;
    bool in_next; /* it is in timers.next, not in timers.heap */
};

struct timers {
    struct heap heap;
    struct heap next; /* timers set during a run whose deadline has passed already */
    uint64_t run_ns;  /* now_ns of the run in progress */
    bool running;
};

/* timer_init - makes a timer that is not set. Clear it before its memory is freed. */
void timer_init(struct timer *t, timer_fn callback);

void timers_init(struct timers *set);

/* timers_set - sets the timer, or moves it when it is set already. */
void timers_set(struct timers *set, struct timer *t, uint64_t deadline_ns);

/* timers_clear - unsets the timer; harmless when it is not set. */
void timers_clear(struct timers *set, struct timer *t);

/* timers_next_ns - the earliest deadline; UINT64_MAX when no timer is set. */
uint64_t timers_next_ns(const struct timers *set);

/*
 * timers_run - calls back every timer whose deadline has come, earliest first; returns their
 * number. Each timer is unset before its callback. The callback may set it again, and may set,
 * clear and free any other timer. A timer that a callback sets for a time that has passed fires in
 * the next run, so that every run ends.
 */
unsigned int timers_run(struct timers *set, uint64_t now_ns);

#endif
