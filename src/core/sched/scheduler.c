/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Instances pull: who runs an instance (`runner`, under mu) goes round like this.
 *
 *                  submit, may be inline           submit otherwise, or more work after inline
 *      CALLER ◄──────────────────────── NONE ──────────────────────────► WORKER
 *        │ nothing left                  ▲ ▲          nothing left          │
 *        └───────────────────────────────┘ └────────────────────────────────┘
 *
 * Invariants: an instance is on the idle list exactly while its runner is NONE. While requests are
 * queued that could be executed, no instance is idle: submit() takes one off the list with the
 * push, under the same lock, and a runner looks for more before it becomes idle. So no wake-up can
 * be lost, and a busy instance is never signalled: its worker finds the next batch by itself.
 * (Of an exclusive scheduler one instance at a time has a runner, and the same then holds for all
 * of them together.)
 *
 * A worker thread starts with the first work that needs it.
 */
#include "core/sched/scheduler.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "core/backend/backend.h"
#include "core/backend/instance.h"
#include "core/model.h"
#include "core/request_priv.h"

enum { SCHEDULER_LEVEL = 500 };

struct status *scheduler_init(struct scheduler *s, const struct scheduler_ops *ops, struct model *m)
{
    s->ops = ops;
    s->model = m;
    s->exclusive = m->backend->policy == EXECUTION_DEVICE_BLOCKING;
    list_init(&s->idle);
    s->n_running = 0;
    s->stopping = false;
    struct status *st =
        execution_init(&s->execution, model_config_parameter(m->config, "CONCH_EXECUTION"));
    if (st)
        return st;
    mutex_init(&s->mu, SCHEDULER_LEVEL, "scheduler.mu");
    cond_init(&s->quiet);
    return NULL;
}

void scheduler_done(struct scheduler *s)
{
    cond_done(&s->quiet);
    mutex_done(&s->mu);
}

void scheduler_add_instance(struct scheduler *s, struct instance *in)
{
    mutex_lock(&s->mu);
    in->runner = RUNNER_NONE;
    list_push_front(&s->idle, &in->idle_link);
    mutex_unlock(&s->mu);
}

static void become_idle_locked(struct scheduler *s, struct instance *in)
{
    in->runner = RUNNER_NONE;
    list_push_front(&s->idle, &in->idle_link);
    if (--s->n_running == 0 && UNLIKELY(s->stopping))
        cond_signal(&s->quiet);
}

/* An instance that may execute now, off the list and counted, or NULL. */
static struct instance *take_idle_locked(struct scheduler *s)
{
    if (UNLIKELY(s->exclusive) && s->n_running)
        return NULL;
    struct list *link = list_pop(&s->idle);
    if (!link)
        return NULL;
    s->n_running++;
    return LIST_ENTRY(link, struct instance, idle_link);
}

/* Executes batches until there is none; the caller holds mu and is the instance's runner. */
static void run_locked(struct scheduler *s, struct instance *in)
{
    for (;;) {
        uint32_t n = s->ops->take_locked(s, in->batch, in->batch_capacity);
        if (n == 0)
            break;
        mutex_unlock(&s->mu);
        uint64_t bytes, took_ns = instance_execute(in, in->batch, n, monotonic_ns(), &bytes);
        if (took_ns)
            execution_measured(&s->execution, took_ns, bytes, false);
        mutex_lock(&s->mu);
    }
    become_idle_locked(s, in);
}

static void worker(void *arg)
{
    struct instance *in = arg;
    struct scheduler *s = in->model->scheduler;

    mutex_lock(&s->mu);
    while (!in->stop) {
        if (in->runner == RUNNER_WORKER)
            run_locked(s, in);
        else
            cond_wait(&in->work, &s->mu);
    }
    mutex_unlock(&s->mu);
}

/*
 * The instance's worker is its runner from now on: wake it, or start it. (Starting it under the
 * lock means that nobody sees a thread whose id is not known yet.) Where the system has no thread
 * left, this one runs the model: rather late than never. Unlocks mu.
 */
static void give_to_worker_and_unlock(struct scheduler *s, struct instance *in)
{
    struct status *st = NULL;

    in->runner = RUNNER_WORKER;
    if (LIKELY(in->has_thread)) {
        cond_signal(&in->work);
    } else {
        st = thread_start(&in->thread, in->name, worker, in);
        in->has_thread = !st;
        if (st)
            run_locked(s, in);
    }
    mutex_unlock(&s->mu);
    log_status(LOG_WARN, "a model runs on the thread of its request", st);
}

static void run_inline(struct scheduler *s, struct instance *in, uint32_t n,
                       struct inline_budget *budget)
{
    /* The request was queued a moment ago: no need to ask for the time again. */
    uint64_t bytes, start_ns = in->batch[0]->queue_ns;
    uint64_t took_ns = instance_execute(in, in->batch, n, start_ns, &bytes);
    budget->left_ns -= MIN(took_ns, budget->left_ns);
    if (took_ns)
        execution_measured(&s->execution, took_ns, bytes, true);

    mutex_lock(&s->mu);
    /* What came meanwhile from other threads goes to the worker: this one has a loop to turn. */
    if (LIKELY(!s->ops->has_work_locked(s))) {
        become_idle_locked(s, in);
        mutex_unlock(&s->mu);
        return;
    }
    give_to_worker_and_unlock(s, in);
}

struct status *scheduler_submit(struct scheduler *s, struct request *r)
{
    struct inline_budget *budget = r->budget;

    mutex_lock(&s->mu);
    struct status *st =
        UNLIKELY(s->stopping)
            ? status_new(STATUS_UNAVAILABLE,
                         "[request id: %s] Server is stopping, scheduler for model has stopped "
                         "accepting new inference requests",
                         request_log_name(r))
            : s->ops->push_locked(s, r);
    struct instance *in = st ? NULL : take_idle_locked(s);
    if (!in) {
        mutex_unlock(&s->mu);
        return st;
    }
    if (execution_may_inline(&s->execution, budget)) {
        uint32_t n = s->ops->take_locked(s, in->batch, in->batch_capacity);
        in->runner = RUNNER_CALLER;
        if (!n)
            become_idle_locked(s, in);
        mutex_unlock(&s->mu);
        if (n)
            run_inline(s, in, n, budget);
        return NULL;
    }
    give_to_worker_and_unlock(s, in);
    return NULL;
}

void scheduler_stop(struct scheduler *s)
{
    mutex_lock(&s->mu);
    s->stopping = true;
    mutex_unlock(&s->mu);
}

void scheduler_free(struct scheduler *s)
{
    if (!s)
        return;
    /* The last request has ended, yet its caller may be inside instance_execute(). */
    mutex_lock(&s->mu);
    s->stopping = true;
    while (s->n_running > 0)
        cond_wait(&s->quiet, &s->mu);
    mutex_unlock(&s->mu);

    struct model *m = s->model;
    for (uint32_t i = 0; i < m->n_instances; i++) {
        struct instance *in = m->instances[i];
        if (!in)
            continue;
        mutex_lock(&s->mu);
        in->stop = true;
        bool has_thread = in->has_thread;
        cond_signal(&in->work);
        mutex_unlock(&s->mu);
        if (has_thread)
            thread_join(&in->thread);
    }
    s->ops->free(s);
}
