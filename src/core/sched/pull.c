/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Instances pull. The state of an instance's runner (`runner`, under mu) changes like this:
 *
 *                  submit, may be inline           submit otherwise, or more work after inline
 *      CALLER ◄──────────────────────── NONE ──────────────────────────► WORKER
 *        │ no batch left                 ▲ ▲          no batch left         │
 *        └───────────────────────────────┘ └────────────────────────────────┘
 *
 * Invariants: an instance is on the idle list exactly while its runner is NONE. While a batch is
 * due that could be executed, no instance is idle: submit() takes one off the list with the push,
 * under the same lock, and a runner looks for more before it becomes idle. So no wake-up can be
 * lost, and a busy instance is never signalled: its worker finds the next batch by itself. (In an
 * exclusive scheduler one instance at a time has a runner, and the same then holds for all of them
 * together; one that leaves counts until it has ended its batch, and then the timer dispatches.)
 * Any other event that makes a batch due, such as the end of a delay, dispatches. The one exception
 * is short: pull_run_deferred() dispatches what a loop defers to the end of its iteration.
 *
 * An instance on which one thread executes inline, again and again, is lent to it (loan.h), and
 * counts as running. Its CALLER then comes and goes without the lock, with a request that is in no
 * queue. The invariant holds for threads that take the lock: they call the loan back before their
 * requests wait.
 *
 * With a rate limiter an instance that waits for its turn is an exception, too (pull_turn.c).
 *
 * This file has the life of such a scheduler, submit() and the timer. pull_priv.h names the others.
 */
#include "core/sched/pull_priv.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/status.h"
#include "core/backend/backend.h"
#include "core/backend/instance.h"
#include "core/backend/leave.h"
#include "core/request/life.h"
#include "core/model/model.h"
#include "core/model/model_priv.h"
#include "core/model/model_services.h"
#include "core/sched/afterwards.h"
#include "core/sched/instance_thread.h"
#include "core/sched/limiter.h"
#include "core/sched/response_order.h"
#include "core/threads/watchdog.h"

enum { SCHEDULER_LEVEL = 500 };

static void on_scheduler_timer(struct deadline_timer *t);
static const struct scheduler_ops scheduler_ops;

struct status *pull_init(struct pull_scheduler *s, const struct pull_ops *ops, struct model *m)
{
    s->base.ops = &scheduler_ops;
    s->ops = ops;
    s->model = m;
    s->clock = m->clock;
    m->scheduler_ops = ops->for_requests;
    s->exclusive = m->backend->policy == EXECUTION_DEVICE_BLOCKING;
    list_init(&s->waiting);
    s->n_instances = s->n_running = s->n_leaving = s->n_large = 0;
    s->most_bytes = 0;
    s->pads = false;
    s->closing = s->flushing = s->stopping = s->leaves = false;
    atomic_init(&s->apart_until_ns, 0);
    list_init(&s->refused);
    list_init(&s->unanswered);
    list_init(&s->left);
    list_init(&s->unused);
    s->is_answering = s->has_drained = s->ends_drained = false;
    s->deadline_timer.set = s->watch.deadline_timer.set = NULL;
    s->idle_look_ns = UINT64_MAX;
    memset(&s->loans, 0, sizeof(s->loans));
    s->thread_idle_ns = INSTANCE_THREAD_IDLE_NS;
    struct status *st = execution_init(&s->execution, s->clock,
                                       model_config_parameter(m->config, "CONCH_EXECUTION"),
                                       model_settle_bounds(m));
    const struct instance *bound = pull_bound_instance(m->instances, m->n_instances);
    if (!st && bound && s->execution.mode == EXECUTION_INLINE)
        st = execution_never_inline(&s->execution, "a host policy binds instance", bound->name);
    execution_bind(&s->execution, bound);
    if (!st && m->backend->attribute.instance_threads)
        st = execution_never_inline(&s->execution, "instances have threads of their own in backend",
                                    m->backend->name);
    if (!st)
        st = watch_init(&s->watch, m);
    /* Inline, a call beyond the limit would block the loop that must send the answer. */
    if (!st && s->watch.limit_ns != UINT64_MAX)
        st =
            execution_never_inline(&s->execution, "there is an execution limit for model", m->name);
    if (!st)
        st = limiter_add_instances(m->services->limiter, m->instances, m->n_instances);
    s->leaves = !st && pull_may_leave(s, m->instances, m->n_instances);
    if (!st && (s->leaves || execution_is_ever_inline(&s->execution)))
        st = watchdog_start(m->services->watchdog);
    if (!st)
        st = deadline_timer_init(&s->deadline_timer, m->services->deadline_timers,
                                 on_scheduler_timer);
    if (st)
        goto out;
    idle_init(&s->idle, m->n_instances);
    mutex_init(&s->mu, SCHEDULER_LEVEL, "scheduler.mu");
    cond_init(&s->quiet);
    return NULL;
out:
    limiter_remove_instances(m->services->limiter, m->instances, m->n_instances);
    deadline_timer_done(&s->deadline_timer);
    watch_done(&s->watch);
    return st;
}

void pull_done(struct pull_scheduler *s)
{
    limiter_remove_instances(s->model->services->limiter, s->model->instances,
                             s->model->n_instances);
    deadline_timer_done(&s->deadline_timer); /* when it fires now it looks for idle instances */
    watch_done(&s->watch);
    idle_done(&s->idle);
    cond_done(&s->quiet);
    mutex_done(&s->mu);
}

bool pull_is_always_inline(const struct model *m)
{
    return m->scheduler->ops == &scheduler_ops &&
           pull_scheduler_of(m)->execution.mode == EXECUTION_INLINE;
}

void pull_on_late_end(struct request *r)
{
    watch_request_ended(&pull_scheduler_of(r->model)->watch, r);
}

const struct scheduler_request_ops pull_request_ops = {
    .on_cancelled = pull_on_cancelled,
    .respond = response_order_respond,
    .on_late_end = pull_on_late_end,
};

static void on_scheduler_timer(struct deadline_timer *t)
{
    struct pull_scheduler *s = CONTAINER_OF(t, struct pull_scheduler, deadline_timer);
    struct instance *in;
    mutex_lock(&s->mu);
    if (s->ops->on_timer_locked)
        s->ops->on_timer_locked(s);
    bool must_post = pull_hand_refused_to_helper_locked(s);
    while ((in = pull_take_idle_instance_locked(s))) {
        /* Before the unlock, which would answer refused requests on this thread. */
        must_post |= pull_hand_refused_to_helper_locked(s);
        pull_give_to_worker_and_unlock(s, in);
        mutex_lock(&s->mu);
    }
    pull_end_idle_workers_locked(s, clock_now_ns(s->clock));
    must_post |= pull_hand_refused_to_helper_locked(s);
    pull_show_pending_locked(s);
    bool has_left = !list_empty(&s->left) || !list_empty(&s->unused);
    bool has_drained = s->has_drained && !s->ends_drained;
    s->ends_drained |= has_drained;
    mutex_unlock(&s->mu);
    if (must_post) {
        s->answers.run = pull_answer_refused_late;
        helpers_post(s->model->services->helpers, &s->answers);
    }
    if (UNLIKELY(has_left))
        pull_end_unused(s);
    if (UNLIKELY(has_drained))
        pull_end_drained(s);
}

/* Is the request refused, whatever the kind of scheduler? */
static bool is_refused_locked(const struct pull_scheduler *s, const struct request *r)
{
    return UNLIKELY(s->n_instances == 0) || (UNLIKELY(s->stopping) && !r->maker.goes_on);
}

/* Returns why. */
NODISCARD static struct status *refuse_request_locked(const struct pull_scheduler *s,
                                                      const struct request *r)
{
    if (s->stopping && !r->maker.goes_on)
        return request_too_late(r);
    return status_new(STATUS_UNSUPPORTED,
                      "[request id: %s] model '%s' executes nothing: all its instances are passive",
                      request_log_name(r), s->model->name);
}

static struct status *submit(struct scheduler *base, struct request *r)
{
    struct pull_scheduler *s = pull_from_base(base);
    struct inline_budget *budget = r->maker.inline_budget;

    if (budget && pull_run_lent(s, r, budget)) {
        afterwards_run(budget);
        return NULL;
    }
    mutex_lock(&s->mu);
    /* Before the push, which may find that it is cancelled already, and refuse it. */
    pull_waits_locked(s, r);
    struct status *st =
        is_refused_locked(s, r) ? refuse_request_locked(s, r) : s->ops->push_locked(s, r);
    if (UNLIKELY(st != NULL)) {
        atomic_store_explicit(&r->life.waiting, false, memory_order_relaxed);
        pull_add_pending_locked(s, -1);
        s->n_large -= r->queue.is_large;
        pull_unlock(s);
        return st;
    }
    /* A thread that has cancelled it before it waited leaves it to this one. */
    if (UNLIKELY(atomic_load(&r->life.cancelled)))
        pull_refuse_cancelled_locked(s, r);
    bool may_inline = pull_may_inline_locked(s, budget);
    bool waits = may_inline && s->ops->batches && pull_defer_to_iteration_end(s, budget);
    struct instance *in = waits ? NULL : pull_take_idle_instance_locked(s);
    if (!in)
        pull_unlock(s);
    else if (may_inline)
        pull_run_inline_and_unlock(s, in, budget, r->admitted.queue_ns);
    else
        pull_give_to_worker_and_unlock(s, in);
    if (may_inline)
        afterwards_run(budget);
    return NULL;
}

static void take_position(struct scheduler *base, struct request *r)
{
    struct pull_scheduler *s = pull_from_base(base);
    if (!s->order)
        return;
    mutex_lock(&s->mu);
    response_order_add(s->order, r);
    mutex_unlock(&s->mu);
}

size_t scheduler_hook(const char *variable)
{
    const char *text = getenv(variable);
    return text ? (size_t)strtoul(text, NULL, 10) : 0;
}

static void use_instances(struct scheduler *base)
{
    struct pull_scheduler *s = pull_from_base(base);
    const struct model *m = s->model;
    mutex_lock(&s->mu);
    for (uint32_t i = m->n_instances; i-- > 0;) {
        struct instance *in = m->instances[i];
        in->number = i;
        in->on_unused = pull_on_unused;
        if (in->group->passive)
            continue;
        in->runner = RUNNER_NONE;
        in->watcher = &s->watch.watcher;
        in->leave.ops = &pull_leave_ops;
        idle_add(&s->idle, i);
        s->n_instances++;
    }
    mutex_unlock(&s->mu);
}

static void flush_queue(struct scheduler *base)
{
    struct pull_scheduler *s = pull_from_base(base);
    mutex_lock(&s->mu);
    s->flushing = true;
    pull_dispatch_and_unlock(s);
}

static size_t count_open(struct scheduler *base)
{
    struct pull_scheduler *s = pull_from_base(base);
    if (!s->ops->n_open_locked)
        return 0;
    mutex_lock(&s->mu);
    size_t n = s->ops->n_open_locked(s);
    mutex_unlock(&s->mu);
    return n;
}

static size_t close_queue(struct scheduler *base)
{
    struct pull_scheduler *s = pull_from_base(base);
    mutex_lock(&s->mu);
    s->closing = s->flushing = true;
    size_t n = s->ops->n_open_locked ? s->ops->n_open_locked(s) : 0;
    pull_dispatch_and_unlock(s);
    return n;
}

/* From now on every request takes the lock. */
static void stop_lending_locked(struct pull_scheduler *s)
{
    struct instance *in;
    s->stopping = true;
    while ((in = loan_call_back_locked(&s->loans)))
        pull_become_idle_locked(s, in);
}

static void stop_queue(struct scheduler *base)
{
    struct pull_scheduler *s = pull_from_base(base);
    mutex_lock(&s->mu);
    s->flushing = true;
    stop_lending_locked(s);
    pull_dispatch_and_unlock(s);
}

/* A model of which no request waits is not locked. */
static void read_use(struct scheduler *base, uint64_t now_ns, struct watch_use *ret)
{
    struct pull_scheduler *s = pull_from_base(base);
    watch_read(&s->watch, now_ns, ret);
    if (atomic_load_explicit(&s->model->pending, memory_order_relaxed) == 0)
        return;
    mutex_lock(&s->mu);
    uint64_t came_ns = s->ops->find_oldest_locked(s);
    mutex_unlock(&s->mu);
    if (came_ns < now_ns)
        ret->oldest_pending_ns = now_ns - came_ns;
}

static char *name_stuck_instance(struct scheduler *base)
{
    return watch_stuck_instance(&pull_from_base(base)->watch);
}

static void free_when_quiet(struct scheduler *base)
{
    struct pull_scheduler *s = pull_from_base(base);
    /* The last request has ended, yet its caller may be inside instance_execute(). */
    mutex_lock(&s->mu);
    stop_lending_locked(s);
    pull_withdraw_limits_locked(s);
    while (s->n_running > 0)
        cond_wait(&s->quiet, &s->mu);
    mutex_unlock(&s->mu);

    for (uint32_t i = 0; i < s->model->n_instances; i++) {
        mutex_lock(&s->mu); /* the timer reads them */
        struct instance_thread *w = TAKE(s->model->instances[i]->thread);
        mutex_unlock(&s->mu);
        instance_thread_stop(w);
        leave_forget(s->model->instances[i]);
    }
    s->ops->free(s);
}

static const struct scheduler_ops scheduler_ops = {
    .submit = submit,
    .flush = flush_queue,
    .n_open = count_open,
    .close = close_queue,
    .stop = stop_queue,
    .free = free_when_quiet,
    .use_instances = use_instances,
    .read_use = read_use,
    .stuck_instance = name_stuck_instance,
    .can_change = pull_can_change,
    .change = pull_change,
    .take_position = take_position,
};
