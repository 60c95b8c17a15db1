/* SPDX-License-Identifier: Apache-2.0 */
/*
 * In debug builds `held` has the locks of each thread, in the order in which it took them, and each
 * call is checked against it. In release builds mutex.h has lock and unlock as inline functions,
 * and the notes here do nothing. A wait unlocks its mutex, so it removes the mutex from `held`
 * meanwhile.
 */
#include "base/mutex.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"

void mutex_init(struct mutex *m, int level, const char *name)
{
    pthread_mutex_init(&m->mu, NULL);
    m->level = level;
    m->name = name;
}

void mutex_done(struct mutex *m)
{
    pthread_mutex_destroy(&m->mu);
}

#ifdef CONCH_DEBUG

enum { MAX_HELD = 16 };

static __thread const struct mutex *held[MAX_HELD];
static __thread int n_held;

NORETURN static void abort_for_misuse(const struct mutex *m, const char *what)
{
    fprintf(stderr, "conch: mutex '%s' (level %d) %s; this thread holds:", m->name, m->level, what);
    for (int i = 0; i < n_held; i++)
        fprintf(stderr, " '%s' (level %d)", held[i]->name, held[i]->level);
    fputc('\n', stderr);
    abort();
}

static int index_of(const struct mutex *m)
{
    for (int i = n_held - 1; i >= 0; i--) {
        if (held[i] == m)
            return i;
    }
    return -1;
}

static void note_locked(struct mutex *m)
{
    BUG_ON(n_held == MAX_HELD);
    held[n_held++] = m;
}

static void note_unlocked(struct mutex *m)
{
    int i = index_of(m);
    if (i < 0)
        abort_for_misuse(m, "is unlocked, but not held");
    for (n_held--; i < n_held; i++)
        held[i] = held[i + 1];
}

void mutex_lock(struct mutex *m)
{
    for (int i = 0; i < n_held; i++) {
        if (held[i]->level >= m->level)
            abort_for_misuse(m, "is locked out of order");
    }
    pthread_mutex_lock(&m->mu);
    note_locked(m);
}

void mutex_unlock(struct mutex *m)
{
    note_unlocked(m);
    pthread_mutex_unlock(&m->mu);
}

void mutex_assert_held(const struct mutex *m)
{
    if (index_of(m) < 0)
        abort_for_misuse(m, "should be held");
}

void mutex_assert_none_held(void)
{
    if (n_held)
        abort_for_misuse(held[n_held - 1], "is held across a call out of Conch");
}

#else

static void note_locked(struct mutex *m)
{
    (void)m;
}

static void note_unlocked(struct mutex *m)
{
    (void)m;
}

#endif

void cond_init(struct cond *c)
{
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&c->cv, &attr);
    pthread_condattr_destroy(&attr);
}

void cond_done(struct cond *c)
{
    pthread_cond_destroy(&c->cv);
}

void cond_wait(struct cond *c, struct mutex *m)
{
    note_unlocked(m);
    pthread_cond_wait(&c->cv, &m->mu);
    note_locked(m);
}

bool cond_wait_until(struct cond *c, struct mutex *m, uint64_t deadline_ns)
{
    if (deadline_ns == UINT64_MAX) {
        cond_wait(c, m);
        return true;
    }
    struct timespec ts = {.tv_sec = (time_t)(deadline_ns / NS_PER_S),
                          .tv_nsec = (long)(deadline_ns % NS_PER_S)};
    note_unlocked(m);
    int err = pthread_cond_timedwait(&c->cv, &m->mu, &ts);
    note_locked(m);
    return err != ETIMEDOUT;
}

bool cond_wait_by_clock(struct cond *c, struct mutex *m, struct clock *clock, uint64_t deadline_ns)
{
    if (clock == clock_real() || deadline_ns == UINT64_MAX)
        return cond_wait_until(c, m, deadline_ns);
    return clock->wait_cond(clock, c, m, deadline_ns);
}

void cond_signal(struct cond *c)
{
    pthread_cond_signal(&c->cv);
}

void cond_broadcast(struct cond *c)
{
    pthread_cond_broadcast(&c->cv);
}
