/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One thread per server waits for the next timer and calls it, without deadline_timers.mu;
 * `running` is the timer in its call, so that deadline_timer_done() can wait for its end. `at_ns`
 * repeats the timer's time: a caller that needs nothing earlier sees that without the lock.
 */
#include "core/threads/deadline_timer.h"

#include "base/clock.h"
#include "base/status.h"

enum { DEADLINE_TIMERS_LEVEL = 700 };

void deadline_timers_init(struct deadline_timers *set, struct clock *clock)
{
    *set = (struct deadline_timers){.clock = clock};
    mutex_init(&set->mu, DEADLINE_TIMERS_LEVEL, "deadline_timers.mu");
    cond_init(&set->changed);
    timers_init(&set->timers);
}

void deadline_timers_done(struct deadline_timers *set)
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

/* Calls a timer that is due. Unlocks mu meanwhile; the timer may be freed afterwards. */
static void call_due_timer(struct timer *timer)
{
    struct deadline_timer *t = CONTAINER_OF(timer, struct deadline_timer, timer);
    struct deadline_timers *set = t->set;

    atomic_store_explicit(&t->at_ns, UINT64_MAX, memory_order_relaxed);
    set->running = t;
    mutex_unlock(&set->mu);
    t->on_timer(t);
    mutex_lock(&set->mu);
    set->running = NULL;
    cond_broadcast(&set->changed);
}

static void run_timer_thread(void *arg)
{
    struct deadline_timers *set = arg;
    mutex_lock(&set->mu);
    while (!set->ending) {
        if (timers_run(&set->timers, clock_now_ns(set->clock)) == 0)
            cond_wait_by_clock(&set->changed, &set->mu, set->clock, timers_next_ns(&set->timers));
    }
    mutex_unlock(&set->mu);
}

struct status *deadline_timer_init(struct deadline_timer *t, struct deadline_timers *set,
                                   deadline_timer_fn fn)
{
    struct status *st = NULL;
    mutex_lock(&set->mu);
    if (!set->has_thread)
        st = thread_start(&set->thread, "timers", run_timer_thread, set);
    set->has_thread = !st;
    mutex_unlock(&set->mu);
    if (st)
        return st;
    *t = (struct deadline_timer){.set = set, .on_timer = fn};
    timer_init(&t->timer, call_due_timer);
    atomic_init(&t->at_ns, UINT64_MAX);
    return NULL;
}

void deadline_timer_fire_by(struct deadline_timer *t, uint64_t at_ns)
{
    /*
     * Relaxed: the caller holds the lock of the timer's function. If that function runs now, either
     * it has not taken the lock yet, or this thread took it later, and sees UINT64_MAX.
     */
    if (LIKELY(atomic_load_explicit(&t->at_ns, memory_order_relaxed) <= at_ns))
        return;
    struct deadline_timers *set = t->set;
    mutex_lock(&set->mu);
    if (!t->ending && at_ns < atomic_load_explicit(&t->at_ns, memory_order_relaxed)) {
        bool first = at_ns < timers_next_ns(&set->timers);
        atomic_store_explicit(&t->at_ns, at_ns, memory_order_relaxed);
        timers_set(&set->timers, &t->timer, at_ns);
        if (first)
            cond_broadcast(&set->changed);
    }
    mutex_unlock(&set->mu);
}

void deadline_timer_done(struct deadline_timer *t)
{
    struct deadline_timers *set = t->set;
    if (!set)
        return;
    mutex_lock(&set->mu);
    t->ending = true; /* its function may be about to set it again */
    timers_clear(&set->timers, &t->timer);
    while (set->running == t)
        cond_wait(&set->changed, &set->mu);
    mutex_unlock(&set->mu);
    t->set = NULL;
}
