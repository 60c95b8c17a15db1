/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The execution on the thread that brings a request, in schedulers with instances: on a lent
 * instance (loan.h), on an idle one, or at the end of the loop's iteration. execution.h has the
 * rules.
 */
#include "core/sched/pull_priv.h"

#include "base/clock.h"
#include "base/log.h"
#include "core/backend/backend.h"
#include "core/backend/instance.h"
#include "core/model/model.h"
#include "core/model/model_priv.h"
#include "core/sched/afterwards.h"
#include "core/sched/limiter.h"
#include "core/threads/watchdog.h"

/* A model whose executions leave stays off the loops for so long when it has held one up. */
#define APART_NS (10 * NS_PER_S)

/* Only a worker executes large requests inline, and one at a time. */
static bool may_inline_large_locked(const struct pull_scheduler *s,
                                    const struct inline_budget *budget)
{
    return budget && budget->is_workers && !s->ops->batches && s->n_large == s->n_pending &&
           execution_may_inline_large(&s->execution, budget, s->most_bytes);
}

/* May this thread, a loop, execute now, since the execution leaves? */
static bool may_leave_now(const struct pull_scheduler *s, const struct inline_budget *budget)
{
    uint64_t until_ns = atomic_load_explicit(&s->apart_until_ns, memory_order_relaxed);
    return budget->left_ns > 0 && (LIKELY(until_ns == 0) || clock_now_ns(s->clock) >= until_ns);
}

bool pull_may_inline_locked(const struct pull_scheduler *s, const struct inline_budget *budget)
{
    if (UNLIKELY(s->leaves))
        return budget && budget->loop && !s->n_large && may_leave_now(s, budget);
    if (UNLIKELY(s->n_large) && s->execution.mode != EXECUTION_INLINE)
        return may_inline_large_locked(s, budget);
    return execution_may_inline(&s->execution, budget) && !(budget->is_embedders && s->pads);
}

/* The budget has been used for that long. */
static void use_budget(struct inline_budget *budget, uint64_t start_ns, uint64_t took_ns)
{
    budget->left_ns -= MIN(took_ns, budget->left_ns);
    budget->now_ns = took_ns ? start_ns + took_ns : 0;
}

/* Has the backend finish the execution that has left. Whatever the result, the instance is this
 * thread's. */
static enum finish finish_inline(struct pull_scheduler *s, struct instance *in,
                                 struct inline_budget *budget)
{
    uint64_t start_ns = clock_now_ns(s->clock), took_ns;
    inline_watch_begin(&budget->watch, in, start_ns);
    enum finish how = instance_finish(in, false, start_ns, &took_ns);
    inline_watch_end(&budget->watch);
    use_budget(budget, start_ns, took_ns);
    return how;
}

/* Lets an execution go that has left. False: it is over, and the instance is this thread's. */
static bool part_with_batch(struct pull_scheduler *s, struct instance *in,
                            struct inline_budget *budget)
{
    enum finish how = FINISH_LATER;
    while (how == FINISH_LATER) {
        switch (leave_publish(in)) {
        case LEAVE_AWAY:
            return true; /* the instance and its scheduler may be gone */
        case LEAVE_RANG:
            how = finish_inline(s, in, budget);
            break;
        default:
            how = FINISH_ON_THREAD;
        }
    }
    if (how == FINISH_OVER)
        return false;
    pull_finish_on_worker(in);
    return true;
}

/* The time that counts is without the waits of the thread for a CPU. */
static void note_inline(struct pull_scheduler *s, struct inline_budget *budget, uint32_t n,
                        uint64_t took_ns, uint64_t bytes)
{
    if (UNLIKELY(bytes > EXECUTION_LARGE_BYTES) && budget->is_workers) {
        if (took_ns && n == 1)
            execution_measured_large(&s->execution, took_ns, bytes);
    } else if (took_ns) {
        uint64_t starved_ns = UNLIKELY(took_ns >= EXECUTION_LONG_NS)
                                  ? inline_watch_starved_ns(&budget->watch, took_ns)
                                  : 0;
        execution_measured(&s->execution, took_ns - starved_ns, bytes, true);
    }
}

/* Returns false if the execution has left: the instance is no more this thread's. */
static bool execute_inline(struct pull_scheduler *s, struct instance *in,
                           struct inline_budget *budget, uint32_t n, uint64_t start_ns)
{
    struct leave_scope scope;
    uint64_t bytes;
    if (UNLIKELY(s->leaves))
        leave_begin(&scope, in, budget);
    inline_watch_begin(&budget->watch, in, start_ns);
    uint64_t took_ns = instance_execute(in, in->batch, n, start_ns, &bytes);
    inline_watch_end(&budget->watch);
    use_budget(budget, start_ns, took_ns);
    note_inline(s, budget, n, took_ns, bytes);
    return LIKELY(!s->leaves) || !leave_end(&scope) || !part_with_batch(s, in, budget);
}

/* No request waits, and this thread has executed on the instance inline. */
static void lend_or_become_idle_locked(struct pull_scheduler *s, struct instance *in)
{
    if (!s->ops->lends || s->stopping || s->exclusive || s->leaves ||
        !loan_lend_locked(&s->loans, in))
        pull_become_idle_locked(s, in);
}

/*
 * After an execution on this thread: executes further requests that other threads have brought
 * meanwhile, while its budget has time left, since waking the worker for them would cost more. The
 * rest is the worker's. Unlocks mu.
 *
 * Where executions leave, all of them are the worker's. It goes on without the loop, which then
 * gets several answers in one iteration, and so packs and sends them at less cost (gRPC, 16
 * clients: 57 µs of CPU for a request in place of 79).
 */
static void go_on_inline_and_unlock(struct pull_scheduler *s, struct instance *in,
                                    struct inline_budget *budget)
{
    if (UNLIKELY(in->limit != NULL)) {
        pull_leave_limited_and_unlock(s, in);
        return;
    }
    if (UNLIKELY(in->is_leaving)) {
        pull_become_idle_locked(s, in);
        pull_unlock(s);
        return;
    }
    loan_note_locked(in, !s->ops->has_work_locked(s, in));
    while (UNLIKELY(pull_has_work_locked(s, in))) {
        if (s->leaves || budget->left_ns == 0 || !pull_may_inline_locked(s, budget)) {
            pull_give_to_worker_and_unlock(s, in);
            return;
        }
        uint32_t n = pull_take_batch_locked(s, in);
        if (n == 0)
            break;
        pull_unlock(s);
        if (!execute_inline(s, in, budget, n, clock_now_ns(s->clock)))
            return;
        mutex_lock(&s->mu);
    }
    if (LIKELY(!in->is_leaving))
        lend_or_become_idle_locked(s, in);
    else
        pull_become_idle_locked(s, in);
    pull_unlock(s);
}

void pull_run_inline_and_unlock(struct pull_scheduler *s, struct instance *in,
                                struct inline_budget *budget, uint64_t start_ns)
{
    in->runner = RUNNER_CALLER;
    backend_stays(s->model->backend);
    idle_note_inline(&s->idle, in->number);
    uint32_t n = pull_take_batch_locked(s, in);
    if (UNLIKELY(in->limit != NULL)) {
        in->limit->was_used = n > 0;
        if (n == 0) {
            pull_leave_limited_and_unlock(s, in);
            return;
        }
    }
    if (UNLIKELY(n == 0)) {
        pull_become_idle_locked(s, in);
        pull_unlock(s);
        return;
    }
    pull_unlock(s);
    if (!execute_inline(s, in, budget, n, start_ns))
        return;
    mutex_lock(&s->mu);
    go_on_inline_and_unlock(s, in, budget);
}

static bool may_run_lent(const struct pull_scheduler *s, const struct request *r,
                         const struct inline_budget *budget)
{
    uint64_t bytes = pull_count_input_bytes(r);
    if (UNLIKELY(bytes > EXECUTION_LARGE_BYTES) && s->execution.mode != EXECUTION_INLINE)
        return budget->is_workers && execution_may_inline_large(&s->execution, budget, bytes);
    return execution_may_inline(&s->execution, budget);
}

bool pull_run_lent(struct pull_scheduler *s, struct request *r, struct inline_budget *budget)
{
    if (!may_run_lent(s, r, budget))
        return false;
    struct instance *in = loan_take(&s->loans);
    if (!in)
        return false;
    in->batch[0] = r;
    /* Queued a moment ago, so the clock is not read again. */
    (void)execute_inline(s, in, budget, 1, r->admitted.queue_ns); /* it does not leave */
    if (LIKELY(loan_give_back(in)))
        return true;
    mutex_lock(&s->mu);
    loan_end_locked(&s->loans, in);
    go_on_inline_and_unlock(s, in, budget);
    return true;
}

/* The answer to the batch that has left may be there. */
static void finish_on_loop(struct instance *in, struct inline_budget *budget)
{
    struct pull_scheduler *s = pull_scheduler_of(in->model);
    inline_budget_fill(budget);
    backend_stays(s->model->backend);
    enum finish how = finish_inline(s, in, budget);
    if (how == FINISH_ON_THREAD) {
        pull_finish_on_worker(in);
    } else if (how == FINISH_OVER || !part_with_batch(s, in, budget)) {
        mutex_lock(&s->mu);
        go_on_inline_and_unlock(s, in, budget);
    }
    afterwards_run(budget);
}

const struct leave_ops pull_leave_ops = {.finish = finish_on_loop,
                                         .finish_on_worker = pull_finish_on_worker};

void pull_on_long_execution(struct instance *in, uint64_t stood_ns)
{
    struct pull_scheduler *s = pull_scheduler_of(in->model);
    bool off = execution_overdue(&s->execution, stood_ns);
    if (s->leaves) {
        atomic_store_explicit(&s->apart_until_ns, clock_now_ns(s->clock) + APART_NS,
                              memory_order_relaxed);
        log_warn("model '%s' version %s, instance '%s': sending a batch away, or answering it, has "
                 "held up an event loop for %llu ms, and goes on; for %llu s the model's own "
                 "threads do that",
                 in->model->name, in->model->version_text, in->name,
                 (unsigned long long)(stood_ns / NS_PER_MS),
                 (unsigned long long)(APART_NS / NS_PER_S));
        return;
    }
    log_warn("model '%s' version %s, instance '%s': an inline execution has held up its thread for "
             "%llu ms, and goes on; %s",
             in->model->name, in->model->version_text, in->name,
             (unsigned long long)(stood_ns / NS_PER_MS),
             off ? "the model executes on threads of its own from now on, until many executions "
                   "have been short"
                 : "its CONCH_EXECUTION says 'inline'");
}

bool pull_defer_to_iteration_end(struct pull_scheduler *s, struct inline_budget *budget)
{
    if (!budget->on_wait)
        return false;
    for (uint32_t i = 0; i < budget->n_waiting; i++) {
        if (budget->waiting[i] == s->model)
            return true;
    }
    if (budget->n_waiting == ARRAY_SIZE(budget->waiting))
        return false;
    budget->waiting[budget->n_waiting++] = pull_hold_model(s);
    if (budget->n_waiting == 1)
        budget->on_wait(budget);
    return true;
}

/* Executes batches of one model while the budget has time left; the rest goes to the worker. */
static void run_deferred_model(struct pull_scheduler *s, struct inline_budget *budget)
{
    struct instance *in;
    mutex_lock(&s->mu);
    while ((in = pull_take_idle_instance_locked(s))) {
        if (pull_may_inline_locked(s, budget))
            pull_run_inline_and_unlock(s, in, budget, clock_now_ns(s->clock));
        else
            pull_give_to_worker_and_unlock(s, in);
        mutex_lock(&s->mu);
    }
    pull_unlock(s);
}

void pull_run_deferred(struct inline_budget *budget)
{
    while (budget->n_waiting > 0) {
        struct model *m = budget->waiting[--budget->n_waiting];
        run_deferred_model(pull_scheduler_of(m), budget);
        pull_release_model(m);
        afterwards_run(budget);
    }
}
