/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Deadline timers: what a scheduler has to do at a point in time, such as to send a batch that
 * waited long enough, or to answer a request whose time in the queue is over, while every instance
 * may be busy.
 *
 * All deadline timers of a server fire on one thread, which starts with the first of them. A timer
 * is told by when to fire, and may fire earlier for what it was told before: the callback looks at
 * what is due and says by when to fire next. So the usual case, a new batch while the timer of the
 * last one is still set, costs no more than a comparison.
 */
#ifndef CONCH_CORE_SCHED_DEADLINE_TIMER_H
#define CONCH_CORE_SCHED_DEADLINE_TIMER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/mutex.h"
#include "base/thread.h"
#include "base/timer.h"

struct deadline_timer;
struct status;
/* Called on the timers' thread, without locks; not for long, for others wait. */
typedef void (*deadline_timer_fn)(struct deadline_timer *a);

/* A server's. */
struct deadline_timers {
    struct mutex mu; /* level 700 in core/README.md */
    /* Under mu. */
    struct timers timers;
    struct deadline_timer *running; /* whose callback runs now */
    struct cond changed; /* there is an earlier time, or the end; or the running one has ended */
    bool has_thread, ending;
    struct thread thread;
};

struct deadline_timer {
    struct deadline_timers *set; /* NULL: not made */
    deadline_timer_fn on_timer;
    struct timer timer; /* under deadline_timers.mu */
    bool ending;        /* likewise */
    /* When the timer is set for; UINT64_MAX: it is not. Written under deadline_timers.mu. */
    atomic_uint_least64_t at_ns;
};

void deadline_timers_init(struct deadline_timers *set);
/* deadline_timers_done - no timer is left. Joins the thread. */
void deadline_timers_done(struct deadline_timers *set);

/*
 * deadline_timer_init - a timer that does not fire yet.
 *
 * Thread: control.
 * Errors: STATUS_UNAVAILABLE  the system has no room for the thread
 */
NODISCARD struct status *deadline_timer_init(struct deadline_timer *a, struct deadline_timers *set,
                                             deadline_timer_fn on_timer);

/*
 * deadline_timer_fire_by - fires at that time (monotonic) at the latest. Thread: any, also inside
 * on_timer().
 */
void deadline_timer_fire_by(struct deadline_timer *a, uint64_t at_ns);

/*
 * deadline_timer_done - it does not fire any more; waits for the end of on_timer(), and nobody sets
 * it meanwhile. One that was never made is fine.
 */
void deadline_timer_done(struct deadline_timer *a);

#endif
