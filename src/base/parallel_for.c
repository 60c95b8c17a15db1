/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads share an index that only grows. When a worker lends its share, one more thread may work:
 * one that was to end stays, or a new one is started. When it takes its share back, the next thread
 * that has finished a call ends (`n_excess`). So the number of working threads is bounded, except
 * for a moment.
 *
 * Threads: any; working threads start others, and the caller joins them.
 */
#include "base/parallel_for.h"

#include <stdatomic.h>

#include "base/log.h"
#include "base/mutex.h"
#include "base/status.h"
#include "base/thread.h"

enum { PARALLEL_LEVEL = 865 };

struct crew {
    /* Constant. */
    const struct parallel_options *options;
    size_t n;
    void (*work)(void *arg, size_t i);
    void *arg;

    atomic_size_t next;

    struct mutex mu; /* level 865 in core/README.md */
    /* Under mu. */
    size_t n_threads; /* started; they stay in the list after their end */
    size_t n_excess;  /* how many of the working threads must end */
    struct thread threads[PARALLEL_MAX_THREADS + PARALLEL_MAX_LENT];
};

struct parallel_worker {
    struct crew *crew;
    bool has_lent; /* another thread works in its place. Under crew.mu */
};

static _Thread_local struct parallel_worker *mine;

struct parallel_worker *parallel_worker_mine(void)
{
    return mine;
}

static void work_for_crew(void *arg);

static struct status *start_worker_locked(struct crew *c)
{
    mutex_assert_held(&c->mu);
    struct status *st =
        thread_start(&c->threads[c->n_threads], c->options->thread_name, work_for_crew, c);
    c->n_threads += !st;
    return st;
}

static void log_thread_shortage(const struct crew *c, struct status *st)
{
    if (c->options->shortage)
        log_status(LOG_WARN, c->options->shortage, st);
    else
        status_free(st);
}

void parallel_worker_lend(struct parallel_worker *w)
{
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
    log_thread_shortage(c, st);
}

void parallel_worker_take_back(struct parallel_worker *w)
{
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
    struct parallel_worker w = {.crew = c}, *outer = mine;
    size_t i;
    mine = &w;
    while ((i = atomic_fetch_add(&c->next, 1)) < c->n) {
        c->work(c->arg, i);
        if (end_if_excess(c))
            break;
    }
    mine = outer;
}

static void start_workers(struct crew *c, size_t wanted)
{
    struct status *st = NULL;
    mutex_lock(&c->mu);
    while (c->n_threads + 1 < wanted && !st) /* this thread works, too */
        st = start_worker_locked(c);
    mutex_unlock(&c->mu);
    log_thread_shortage(c, st);
}

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

void parallel_for(const struct parallel_options *options, size_t n,
                  void (*work)(void *arg, size_t i), void *arg)
{
    struct crew c = {.options = options, .n = n, .work = work, .arg = arg};
    mutex_init(&c.mu, PARALLEL_LEVEL, "parallel_for");
    size_t wanted = MIN(options->max_threads, (size_t)PARALLEL_MAX_THREADS);
    start_workers(&c, MIN(wanted, n));
    work_for_crew(&c);
    join_workers(&c);
    mutex_done(&c.mu);
}
