/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A waiter is listed from before it reads the time until it has been woken, so a move of the time
 * finds it. The move signals the waiter's condition while it holds the waiter's mutex: by then the
 * waiter is inside the wait, or has not unlocked that mutex yet. The waiter locks our mutex while
 * it holds its own, and the move does the opposite; so the move only tries to lock the waiter's,
 * again and again. (It locks it without the check of levels, which are for waiters.) A sleeper
 * needs no lock: it may be roused without a reason at any time.
 *
 * The time is read without the lock. Relaxed order is enough, since the time publishes nothing
 * else.
 */
#include "lib/fake_clock.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/compiler.h"
#include "base/sleeper.h"

enum { FAKE_CLOCK_LEVEL = 2000 };

struct waiter {
    struct list link; /* of clock_fake.waiters */
    uint64_t deadline_ns;
    /* What it waits on: a condition with its mutex, or a sleeper. */
    struct cond *cond;
    struct mutex *m;
    struct sleeper *sleeper;
};

static uint64_t read_time_ns(struct clock *clock)
{
    struct clock_fake *c = CONTAINER_OF(clock, struct clock_fake, clock);
    return __atomic_load_n(&c->time_ns, __ATOMIC_RELAXED);
}

/* False: the time has come already. */
static bool begin_wait(struct clock_fake *c, struct waiter *w)
{
    mutex_lock(&c->mu);
    bool waits = c->time_ns < w->deadline_ns;
    if (waits) {
        list_push(&c->waiters, &w->link);
        cond_broadcast(&c->changed);
    }
    mutex_unlock(&c->mu);
    return waits;
}

/* Returns whether the time has not come yet. */
static bool end_wait(struct clock_fake *c, struct waiter *w)
{
    mutex_lock(&c->mu);
    list_remove(&w->link);
    bool in_time = c->time_ns < w->deadline_ns;
    mutex_unlock(&c->mu);
    return in_time;
}

static bool wait_cond(struct clock *clock, struct cond *cond, struct mutex *m, uint64_t deadline_ns)
{
    struct clock_fake *c = CONTAINER_OF(clock, struct clock_fake, clock);
    struct waiter w = {.deadline_ns = deadline_ns, .cond = cond, .m = m};
    if (!begin_wait(c, &w))
        return false;
    cond_wait(cond, m);
    return end_wait(c, &w);
}

static void wait_sleeper(struct clock *clock, struct sleeper *s, uint64_t deadline_ns)
{
    struct clock_fake *c = CONTAINER_OF(clock, struct clock_fake, clock);
    struct waiter w = {.deadline_ns = deadline_ns, .sleeper = s};
    if (!begin_wait(c, &w))
        return;
    sleeper_wait(s, 0);
    (void)end_wait(c, &w);
}

void clock_fake_init(struct clock_fake *c, uint64_t time_ns)
{
    c->clock = (struct clock){
        .now_ns = read_time_ns, .wait_cond = wait_cond, .wait_sleeper = wait_sleeper};
    __atomic_store_n(&c->time_ns, time_ns, __ATOMIC_RELAXED);
    mutex_init(&c->mu, FAKE_CLOCK_LEVEL, "fake clock");
    list_init(&c->waiters);
    cond_init(&c->changed);
}

/* False: another thread holds its mutex, perhaps the waiter itself, which is about to wait. */
static bool try_wake(struct waiter *w)
{
    if (w->sleeper) {
        sleeper_wake(sleeper_rouse(w->sleeper));
        return true;
    }
    if (pthread_mutex_trylock(&w->m->mu) != 0)
        return false;
    cond_broadcast(w->cond);
    pthread_mutex_unlock(&w->m->mu);
    return true;
}

static bool try_wake_due_locked(struct clock_fake *c)
{
    bool all = true;
    LIST_FOR_EACH (link, &c->waiters) {
        struct waiter *w = LIST_ENTRY(link, struct waiter, link);
        if (w->deadline_ns <= c->time_ns)
            all &= try_wake(w);
    }
    return all;
}

void clock_fake_advance(struct clock_fake *c, uint64_t by_ns)
{
    mutex_lock(&c->mu);
    __atomic_fetch_add(&c->time_ns, by_ns, __ATOMIC_RELAXED);
    while (!try_wake_due_locked(c)) {
        mutex_unlock(&c->mu);
        sched_yield();
        mutex_lock(&c->mu);
    }
    mutex_unlock(&c->mu);
}

static bool has_waiter_locked(const struct clock_fake *c, uint64_t until_ns)
{
    LIST_FOR_EACH (link, &c->waiters) {
        uint64_t deadline_ns = LIST_ENTRY(link, struct waiter, link)->deadline_ns;
        if (deadline_ns > c->time_ns && deadline_ns <= until_ns)
            return true;
    }
    return false;
}

void clock_fake_await(struct clock_fake *c, uint64_t by_ns)
{
    uint64_t give_up_ns = monotonic_ns() + 60 * NS_PER_S;
    mutex_lock(&c->mu);
    while (!has_waiter_locked(c, c->time_ns + by_ns)) {
        if (!cond_wait_until(&c->changed, &c->mu, give_up_ns)) {
            fprintf(stderr, "fake clock: for a minute no thread has waited for the next %llu ns\n",
                    (unsigned long long)by_ns);
            abort();
        }
    }
    mutex_unlock(&c->mu);
}
