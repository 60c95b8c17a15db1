/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The same for each of many models, several at a time: the threads share the work, each takes the
 * next one. Who waits for a warm-up lends its slot: another thread comes, and when the slot is
 * taken back, the next one that has done a piece of work goes.
 */
#include <stdatomic.h>

#include "base/log.h"
#include "base/mutex.h"
#include "base/status.h"
#include "base/thread.h"
#include "core/load_slot.h"
#include "core/repo/repository.h"
#include "core/server_options.h"

enum { CREW_LEVEL = 865, MAX_THREADS = 64, MAX_LENT = 192 };

struct crew {
    /* Constant. */
    const char *thread_name;
    size_t n;
    void (*work)(void *arg, size_t i);
    void *arg;

    atomic_size_t next;

    struct mutex mu; /* level 865 in core/README.md */
    /* Under mu. */
    size_t n_threads; /* started; they stay in the list when they have ended */
    size_t n_excess;  /* of those that work: so many are to go */
    struct thread threads[MAX_THREADS + MAX_LENT];
};

struct worker {
    struct load_slot slot;
    struct crew *crew;
    bool has_lent; /* it has lent and not taken back: the slot counts them */
};

static void work_for_crew(void *arg);

static struct status *start_worker_locked(struct crew *c)
{
    mutex_assert_held(&c->mu);
    struct status *st = thread_start(&c->threads[c->n_threads], c->thread_name, work_for_crew, c);
    c->n_threads += !st;
    return st;
}

static void lend_crew_slot(struct load_slot *p)
{
    struct worker *w = CONTAINER_OF(p, struct worker, slot);
    struct crew *c = w->crew;
    struct status *st = NULL;
    mutex_lock(&c->mu);
    if (c->n_excess) {
        c->n_excess--;
        w->has_lent = true;
    } else if (atomic_load(&c->next) < c->n && c->n_threads < ARRAY_SIZE(c->threads)) {
        st = start_worker_locked(c);
        w->has_lent = !st;
    }
    mutex_unlock(&c->mu);
    log_status(LOG_WARN, "no other thread loads models while one is warmed up", st);
}

static void take_crew_slot_back(struct load_slot *p)
{
    struct worker *w = CONTAINER_OF(p, struct worker, slot);
    mutex_lock(&w->crew->mu);
    w->crew->n_excess += w->has_lent;
    w->has_lent = false;
    mutex_unlock(&w->crew->mu);
}

static bool end_if_excess(struct crew *c)
{
    mutex_lock(&c->mu);
    bool excess = c->n_excess > 0;
    c->n_excess -= excess;
    mutex_unlock(&c->mu);
    return excess;
}

static void work_for_crew(void *arg)
{
    struct crew *c = arg;
    struct worker w = {.slot = {.lend = lend_crew_slot, .take_back = take_crew_slot_back},
                       .crew = c};
    size_t i;
    load_slot_set(&w.slot);
    while ((i = atomic_fetch_add(&c->next, 1)) < c->n) {
        c->work(c->arg, i);
        if (end_if_excess(c))
            break;
    }
    load_slot_set(NULL);
}

static void start_workers(struct crew *c, size_t wanted)
{
    struct status *st = NULL;
    mutex_lock(&c->mu);
    while (c->n_threads + 1 < wanted && !st) /* this thread works, too */
        st = start_worker_locked(c);
    mutex_unlock(&c->mu);
    log_status(LOG_WARN, "fewer threads load or unload models", st);
}

/* Threads are started by threads that are still at work. */
static void join_workers(struct crew *c)
{
    for (size_t i = 0;; i++) {
        mutex_lock(&c->mu);
        bool is_last = i == c->n_threads;
        mutex_unlock(&c->mu);
        if (is_last)
            return;
        thread_join(&c->threads[i]);
    }
}

void repository_parallel_for(struct repository *repo, const char *thread_name, size_t n,
                             void (*work)(void *arg, size_t i), void *arg)
{
    struct load_slot *outer = load_slot_mine(); /* of a control thread that looks at them all */
    struct crew c = {.thread_name = thread_name, .n = n, .work = work, .arg = arg};
    mutex_init(&c.mu, CREW_LEVEL, "crew");
    size_t wanted = MIN((size_t)repo->options->load_threads, (size_t)MAX_THREADS);
    start_workers(&c, MIN(wanted, n));
    work_for_crew(&c);
    join_workers(&c);
    mutex_done(&c.mu);
    load_slot_set(outer);
}
