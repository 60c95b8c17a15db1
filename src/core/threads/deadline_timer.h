/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A deadline timer calls a scheduler at a point in time, even while all instances are busy: to send
 * a batch that has waited long enough, or to answer a request whose time in the queue is over.
 *
 * All deadline timers of a server fire on one thread, which starts with the first of them. A timer
 * may fire earlier than the latest time it was set for, because of an earlier setting: the callback
 * finds out what is due, and sets the time for the next call. So the usual case, a new batch while
 * the timer of the last one is still set, costs no more than a comparison.
 */
#ifndef CONCH_CORE_THREADS_DEADLINE_TIMER_H
#define CONCH_CORE_THREADS_DEADLINE_TIMER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/mutex.h"
#include "base/thread.h"
#include "base/timer.h"

struct clock;
struct deadline_timer;
struct status;
/* Called on the timers' thread, without locks. Must return soon, since other timers wait. */
typedef void (*deadline_timer_fn)(struct deadline_timer *t);

/* A server's. */
struct deadline_timers {
    struct clock *clock; /* constant */
    struct mutex mu;     /* level 700 in core/README.md */
    /* Under mu. */
    struct timers timers;
    struct deadline_timer *running; /* whose callback runs now */
    struct cond changed; /* there is an earlier time, `ending` is set, or `running` has ended */
    bool has_thread, ending;
    struct thread thread;
};

struct deadline_timer {
    struct deadline_timers *set; /* NULL: not made */
    deadline_timer_fn on_timer;
    struct timer timer; /* under deadline_timers.mu */
    bool ending;        /* likewise */
    /* The time that the timer is set for; UINT64_MAX: not set. Written under deadline_timers.mu. */
    atomic_uint_least64_t at_ns;
};

/* deadline_timers_init - @clock  whose times the timers fire at; borrowed until the end. */
void deadline_timers_init(struct deadline_timers *set, struct clock *clock);
/* deadline_timers_done - joins the thread. No timer is left. */
void deadline_timers_done(struct deadline_timers *set);

/*
 * deadline_timer_init - a timer that does not fire yet.
 *
 * Thread: control.
 * Errors: STATUS_UNAVAILABLE  the system has no room for the thread
 */
NODISCARD struct status *deadline_timer_init(struct deadline_timer *t, struct deadline_timers *set,
                                             deadline_timer_fn on_timer);

/*
 * deadline_timer_fire_by - sets the timer: it fires at that time of the set's clock at the latest.
 * Thread: any, also inside on_timer().
 */
void deadline_timer_fire_by(struct deadline_timer *t, uint64_t at_ns);

/*
 * deadline_timer_done - ends the timer, and waits for the end of on_timer(). No thread may set it
 * meanwhile. A timer that was never initialised (all zeros) is fine.
 */
void deadline_timer_done(struct deadline_timer *t);

#endif
