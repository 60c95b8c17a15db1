/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A mutex with a level. Locks are taken by rising level (the table is in core/README.md). Debug
 * builds keep each thread's stack of held locks. They abort on a wrong order, on a second lock of
 * the same mutex, and on an unlock by another thread. Release builds use plain pthread mutexes.
 */
#ifndef CONCH_BASE_MUTEX_H
#define CONCH_BASE_MUTEX_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"

struct mutex {
    pthread_mutex_t mu;
    int level;
    const char *name;
};

/* mutex_init - mutexes of lower levels are taken first; name is borrowed for ever. */
void mutex_init(struct mutex *m, int level, const char *name);
void mutex_done(struct mutex *m);

#ifdef CONCH_DEBUG
void mutex_lock(struct mutex *m);
void mutex_unlock(struct mutex *m);
void mutex_assert_held(const struct mutex *m);
/* mutex_assert_none_held - precedes each call of foreign code: no callback runs under our locks. */
void mutex_assert_none_held(void);
#else
static inline void mutex_lock(struct mutex *m)
{
    pthread_mutex_lock(&m->mu);
}

static inline void mutex_unlock(struct mutex *m)
{
    pthread_mutex_unlock(&m->mu);
}

static inline void mutex_assert_held(const struct mutex *m)
{
    (void)m;
}

static inline void mutex_assert_none_held(void)
{
}
#endif

struct clock;

/* A condition that waits on CLOCK_MONOTONIC. */
struct cond {
    pthread_cond_t cv;
};

void cond_init(struct cond *c);
void cond_done(struct cond *c);
void cond_wait(struct cond *c, struct mutex *m);
/* cond_wait_until - false after deadline_ns (monotonic); UINT64_MAX waits without a limit. */
bool cond_wait_until(struct cond *c, struct mutex *m, uint64_t deadline_ns);
/* cond_wait_by_clock - the same, where deadline_ns is a time of that clock. */
bool cond_wait_by_clock(struct cond *c, struct mutex *m, struct clock *clock, uint64_t deadline_ns);
void cond_signal(struct cond *c);
void cond_broadcast(struct cond *c);

#endif
