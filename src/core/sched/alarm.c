/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One thread per server waits for the next timer and calls its alarm, without alarms.mu; `ringing`
 * says whose call runs, so that alarm_done() can wait for its end. `at_ns` repeats the timer's
 * time: a caller that needs nothing earlier sees that without the lock.
 */
#include "core/sched/alarm.h"

#include "base/clock.h"
#include "base/status.h"

enum { ALARMS_LEVEL = 700 };

void alarms_init(struct alarms *set)
{
    *set = (struct alarms){0};
    mutex_init(&set->mu, ALARMS_LEVEL, "alarms.mu");
    cond_init(&set->changed);
    timers_init(&set->timers);
}

void alarms_done(struct alarms *set)
{
    mutex_lock(&set->mu);
    set->ending = true;
    cond_broadcast(&set->changed);
    mutex_unlock(&set->mu);
    if (set->has_thread)
        thread_join(&set->thread);
    cond_done(&set->changed);
    mutex_done(&set->mu);
}

/* The timer of one alarm is due. Lets go of mu meanwhile, and the alarm may be gone afterwards. */
static void call_due_alarm(struct timer *t)
{
    struct alarm *a = CONTAINER_OF(t, struct alarm, timer);
    struct alarms *set = a->set;

    atomic_store_explicit(&a->at_ns, UINT64_MAX, memory_order_relaxed);
    set->ringing = a;
    mutex_unlock(&set->mu);
    a->ring(a);
    mutex_lock(&set->mu);
    set->ringing = NULL;
    cond_broadcast(&set->changed);
}

static void run_alarm_thread(void *arg)
{
    struct alarms *set = arg;
    mutex_lock(&set->mu);
    while (!set->ending) {
        if (timers_run(&set->timers, monotonic_ns()) == 0)
            cond_wait_until(&set->changed, &set->mu, timers_next_ns(&set->timers));
    }
    mutex_unlock(&set->mu);
}

struct status *alarm_init(struct alarm *a, struct alarms *set, alarm_fn fn)
{
    struct status *st = NULL;
    mutex_lock(&set->mu);
    if (!set->has_thread)
        st = thread_start(&set->thread, "alarms", run_alarm_thread, set);
    set->has_thread = !st;
    mutex_unlock(&set->mu);
    if (st)
        return st;
    *a = (struct alarm){.set = set, .ring = fn};
    timer_init(&a->timer, call_due_alarm);
    atomic_init(&a->at_ns, UINT64_MAX);
    return NULL;
}

void alarm_ring_by(struct alarm *a, uint64_t at_ns)
{
    /*
     * Relaxed: the caller holds the lock of what the alarm's function looks at. If that runs just
     * now, it has either not looked yet, or this thread's lock came after it, and sees UINT64_MAX.
     */
    if (LIKELY(atomic_load_explicit(&a->at_ns, memory_order_relaxed) <= at_ns))
        return;
    struct alarms *set = a->set;
    mutex_lock(&set->mu);
    if (!a->ending && at_ns < atomic_load_explicit(&a->at_ns, memory_order_relaxed)) {
        bool first = at_ns < timers_next_ns(&set->timers);
        atomic_store_explicit(&a->at_ns, at_ns, memory_order_relaxed);
        timers_set(&set->timers, &a->timer, at_ns);
        if (first)
            cond_broadcast(&set->changed);
    }
    mutex_unlock(&set->mu);
}

void alarm_done(struct alarm *a)
{
    struct alarms *set = a->set;
    if (!set)
        return;
    mutex_lock(&set->mu);
    a->ending = true; /* its function may be about to set it anew */
    timers_clear(&set->timers, &a->timer);
    while (set->ringing == a)
        cond_wait(&set->changed, &set->mu);
    mutex_unlock(&set->mu);
    a->set = NULL;
}
