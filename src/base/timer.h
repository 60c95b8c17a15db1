/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Timers: callbacks at points in time, embedded in the objects they belong to. A set of timers is
 * only a heap ordered by deadline; who owns the set (an event loop) asks when to look again and
 * runs what is due.
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
    bool in_next; /* of the two heaps */
};

struct timers {
    struct heap heap;
    struct heap next; /* set during a run, for a time that the run has reached */
    uint64_t run_ns;  /* the time that the run in progress has reached */
    bool running;
};

/* timer_init - a timer that is not set. Nothing to end: clear it before its memory goes. */
void timer_init(struct timer *t, timer_fn callback);

void timers_init(struct timers *set);

/* timers_set - sets the timer, or sets it anew when it is set already. */
void timers_set(struct timers *set, struct timer *t, uint64_t deadline_ns);

/* timers_clear - unsets it; harmless when it is not set. */
void timers_clear(struct timers *set, struct timer *t);

/* timers_next_ns - the earliest deadline; UINT64_MAX when no timer is set. */
uint64_t timers_next_ns(const struct timers *set);

/*
 * timers_run - calls back every timer whose deadline has come, earliest first; how many. Each is
 * unset before its callback, which may set it again, and may set, clear and free any other. What a
 * callback sets for a time that has come already is for the next run, so that a run ends.
 */
unsigned int timers_run(struct timers *set, uint64_t now_ns);

#endif
