/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Alarms: what a scheduler has to do at a point in time, such as to send a batch that waited long
 * enough, or to answer a request whose time in the queue is over, while every instance may be busy.
 *
 * All alarms of a server ring on one thread, which starts with the first of them. An alarm is told
 * by when to ring, and may ring earlier for what it was told before: who is rung looks at what is
 * due and says by when to ring next. So the usual case, a new batch while the alarm of the last one
 * is still set, costs no more than a comparison.
 */
#ifndef CONCH_CORE_SCHED_ALARM_H
#define CONCH_CORE_SCHED_ALARM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/mutex.h"
#include "base/thread.h"
#include "base/timer.h"

struct alarm;
struct status;
/* Called on the alarms' thread, without locks; not for long, for others wait. */
typedef void (*alarm_fn)(struct alarm *a);

/* A server's. */
struct alarms {
    struct mutex mu; /* level 700 in core/README.md */
    /* Under mu. */
    struct timers timers;
    struct alarm *ringing; /* whose callback runs now */
    struct cond changed;   /* there is an earlier time, or the end; or the ringing one has rung */
    bool has_thread, ending;
    struct thread thread;
};

struct alarm {
    struct alarms *set; /* NULL: not made */
    alarm_fn ring;
    struct timer timer; /* under alarms.mu */
    bool ending;        /* likewise */
    /* When the timer is set for; UINT64_MAX: it is not. Written under alarms.mu. */
    atomic_uint_least64_t at_ns;
};

void alarms_init(struct alarms *set);
/* alarms_done - no alarm is left. Joins the thread. */
void alarms_done(struct alarms *set);

/*
 * alarm_init - an alarm that does not ring yet.
 *
 * Thread: control.
 * Errors: STATUS_UNAVAILABLE  the system has no room for the thread
 */
NODISCARD struct status *alarm_init(struct alarm *a, struct alarms *set, alarm_fn ring);

/*
 * alarm_ring_by - rings at that time (monotonic) at the latest. Thread: any, also inside ring().
 */
void alarm_ring_by(struct alarm *a, uint64_t at_ns);

/*
 * alarm_done - it does not ring any more; waits for the end of ring(), and nobody sets it
 * meanwhile. One that was never made is fine.
 */
void alarm_done(struct alarm *a);

#endif
