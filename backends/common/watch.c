/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN: a run that is short is never looked at, so it pays for one exchange at its begin and one
 * at its end, and for no lock. `state` counts the runs, with two flags:
 *
 *      idle ──begin──► RUNS ──end──► idle                            the usual run
 *                       │ ▲
 *          look claims  │ │ a request is not cancelled
 *                       ▼ │
 *                    RUNS | CLAIMED ──end: waits for the look──► idle
 *
 * The thread reads a run's requests only while it has claimed it, so the run cannot end, and
 * they cannot go away, before it has read them. A run that it ends stays claimed.
 */
#include "common/watch.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define WATCH_TICK_MS 10
#define IDLE_TICKS    100 /* until the thread sleeps */

/* Flags of watched.state; above them is the number of the run. */
enum { RUNS = 1, CLAIMED = 2, NEXT_RUN = 4 };

struct watched {
    struct watch *watch;
    const struct watch_action *action;
    void *run;                    /* what the action gets */
    uint64_t least_ms;            /* a run that is ended has been seen for so long */
    struct watched *next, **link; /* under watch.mu */

    /* Written by the runner, and read by the thread while it has claimed the run. */
    const struct batch_part *parts;
    uint32_t n;

    atomic_uint_least64_t state;

    pthread_mutex_t mu; /* level: after watch.mu; held by the thread while it reads a claimed run */
    /* Under mu. */
    bool ended; /* this run was ended */

    /* Only the thread uses these. */
    uint64_t seen;    /* the state at the last look */
    uint64_t seen_ms; /* when the thread first saw it */
};

struct watch {
    pthread_t thread;
    bool started;

    pthread_mutex_t mu;
    pthread_cond_t changed;
    /* Under mu. */
    struct watched *first;
    bool stopping;
    /* Written under mu; read without mu by a runner that has just published its run
     * (watch_begin()). */
    atomic_bool awake;
};

/* ---- The thread ----------------------------------------------------------------------------- */

static bool all_cancelled(const struct watched *d)
{
    for (uint32_t i = 0; i < d->n; i++) {
        TRITONSERVER_Error *err;
        bool cancelled = false;

        err = TRITONBACKEND_RequestIsCancelled(d->parts[i].request, &cancelled);
        TRITONSERVER_ErrorDelete(err);
        if (!cancelled)
            return false;
    }
    return true;
}

/* The claimed run exists until mu is unlocked, because its end waits for mu. */
static void terminate_if_cancelled(struct watched *d, uint64_t run)
{
    pthread_mutex_lock(&d->mu);
    if (!atomic_compare_exchange_strong(&d->state, &run, run | CLAIMED)) {
        pthread_mutex_unlock(&d->mu); /* it has just ended */
        return;
    }
    d->ended = all_cancelled(d);
    if (d->ended)
        backend_ignore(d->action->end(d->run), "ending a run");
    else
        atomic_store(&d->state, run);
    pthread_mutex_unlock(&d->mu);
}

/* True: it has run since the last look. */
static bool check_watched(struct watched *d, uint64_t now_ms)
{
    uint64_t state = atomic_load(&d->state);
    bool ran = (state & RUNS) || state != d->seen;

    if (state != d->seen)
        d->seen_ms = now_ms;
    else if ((state & RUNS) && !(state & CLAIMED) && now_ms - d->seen_ms >= d->least_ms)
        terminate_if_cancelled(d, state);
    d->seen = state;
    return ran;
}

static bool check_all_watched_locked(struct watch *w)
{
    struct timespec now;
    bool ran = false;
    uint64_t now_ms;

    clock_gettime(CLOCK_MONOTONIC, &now);
    now_ms = (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
    for (struct watched *d = w->first; d; d = d->next)
        ran |= check_watched(d, now_ms);
    return ran;
}

/* Waits for one tick, or until there is a run. Spurious wake-ups do no harm. */
static void wait_for_tick_locked(struct watch *w)
{
    struct timespec until;

    if (!atomic_load(&w->awake)) {
        pthread_cond_wait(&w->changed, &w->mu);
        return;
    }
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += WATCH_TICK_MS * 1000000L;
    if (until.tv_nsec >= 1000000000L) {
        until.tv_nsec -= 1000000000L;
        until.tv_sec++;
    }
    pthread_cond_timedwait(&w->changed, &w->mu, &until);
}

static void *watch_main(void *arg)
{
    struct watch *w = arg;
    int idle = 0;

    pthread_mutex_lock(&w->mu);
    while (!w->stopping) {
        wait_for_tick_locked(w);
        if (!atomic_load(&w->awake))
            continue;
        idle = check_all_watched_locked(w) ? 0 : idle + 1;
        if (idle < IDLE_TICKS)
            continue;
        /* First clear `awake`, then look once more: a run that this look misses finds the flag
         * clear, and wakes the thread. */
        atomic_store(&w->awake, false);
        if (check_all_watched_locked(w))
            atomic_store(&w->awake, true);
        idle = 0;
    }
    pthread_mutex_unlock(&w->mu);
    return NULL;
}

/* ---- Runs ----------------------------------------------------------------------------------- */

void watch_begin(struct watched *d, const struct batch_part *parts, uint32_t n)
{
    struct watch *w = d->watch;

    d->parts = parts;
    d->n = n;
    /* Only the runner writes it while no run is in progress. */
    atomic_fetch_add(&d->state, NEXT_RUN | RUNS);
    if (atomic_load(&w->awake))
        return;
    pthread_mutex_lock(&w->mu);
    atomic_store(&w->awake, true);
    pthread_cond_signal(&w->changed);
    pthread_mutex_unlock(&w->mu);
}

/* Ends a run that the thread has claimed. */
static bool end_claimed(struct watched *d)
{
    bool ended;

    pthread_mutex_lock(&d->mu);
    ended = d->ended;
    d->ended = false;
    atomic_store(&d->state, atomic_load(&d->state) & ~(uint64_t)(RUNS | CLAIMED));
    pthread_mutex_unlock(&d->mu);
    if (ended && d->action->allow)
        backend_ignore(d->action->allow(d->run), "making runs possible again");
    return ended;
}

bool watch_end(struct watched *d)
{
    uint64_t run = atomic_load(&d->state) & ~(uint64_t)CLAIMED;

    if (atomic_compare_exchange_strong(&d->state, &run, run & ~(uint64_t)RUNS))
        return false;
    return end_claimed(d);
}

/* ---- Life ----------------------------------------------------------------------------------- */

static TRITONSERVER_Error *no_memory_error(void)
{
    return backend_error(TRITONSERVER_ERROR_INTERNAL, "out of memory");
}

TRITONSERVER_Error *watch_add(struct watch *w, const struct watch_action *action, void *run,
                              uint64_t least_ms, struct watched **ret_watched)
{
    struct watched *d = calloc(1, sizeof(*d));

    if (!d)
        return no_memory_error();
    d->watch = w;
    d->action = action;
    d->run = run;
    d->least_ms = least_ms;
    pthread_mutex_init(&d->mu, NULL);
    pthread_mutex_lock(&w->mu);
    d->next = w->first;
    d->link = &w->first;
    if (d->next)
        d->next->link = &d->next;
    w->first = d;
    pthread_mutex_unlock(&w->mu);
    *ret_watched = d;
    return NULL;
}

void watch_remove(struct watched *d)
{
    if (!d)
        return;
    pthread_mutex_lock(&d->watch->mu);
    *d->link = d->next;
    if (d->next)
        d->next->link = d->link;
    pthread_mutex_unlock(&d->watch->mu);
    pthread_mutex_destroy(&d->mu);
    free(d);
}

TRITONSERVER_Error *watch_new(struct watch **ret_watch)
{
    struct watch *w = calloc(1, sizeof(*w));
    pthread_condattr_t attributes;
    int why;

    if (!w)
        return no_memory_error();
    pthread_mutex_init(&w->mu, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&w->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    why = pthread_create(&w->thread, NULL, watch_main, w);
    if (why) {
        watch_free(w);
        return backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "cannot start a thread: %s",
                             strerror(why));
    }
    w->started = true;
    *ret_watch = w;
    return NULL;
}

void watch_free(struct watch *w)
{
    if (!w)
        return;
    if (w->started) {
        pthread_mutex_lock(&w->mu);
        w->stopping = true;
        pthread_cond_signal(&w->changed);
        pthread_mutex_unlock(&w->mu);
        pthread_join(w->thread, NULL);
    }
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->mu);
    free(w);
}
