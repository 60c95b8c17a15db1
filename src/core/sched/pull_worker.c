/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which instance executes next, in schedulers with instances, and its execution on its worker
 * (instance_thread.h): a thread that starts and ends as needed. A submit that finds it ended, under
 * the same lock, starts the next one.
 */
#include "core/sched/pull_priv.h"

#include "base/clock.h"
#include "base/cpu_binding.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/status.h"
#include "base/thread.h"
#include "core/backend/backend.h"
#include "core/backend/instance.h"
#include "core/model/model.h"
#include "core/model/model_priv.h"
#include "core/model/model_services.h"
#include "core/sched/afterwards.h"
#include "core/sched/batch_strategy.h"
#include "core/sched/instance_thread.h"

#define GATHER_NS 50000ULL /* a worker's executions before it does what they set going */

void pull_become_idle_locked(struct pull_scheduler *s, struct instance *in)
{
    in->runner = RUNNER_NONE;
    if (UNLIKELY(in->is_leaving)) {
        s->n_leaving--;
        pull_leave_locked(s, in);
        return;
    }
    idle_add(&s->idle, in->number);
    if (--s->n_running == 0 && UNLIKELY(s->stopping))
        cond_signal(&s->quiet);
}

/* Returns the instance to ask next after another that had no batch; IDLE_NONE: there is none. */
static uint32_t next_idle_locked(const struct pull_scheduler *s, uint32_t after)
{
    return s->ops->per_instance ? idle_next(&s->idle, after + 1) : (uint32_t)IDLE_NONE;
}

/* Takes back an instance that is lent and not in use, for another thread; or NULL. */
static struct instance *call_instance_back_locked(struct pull_scheduler *s)
{
    return s->loans.n && s->ops->has_work_locked(s, NULL) ? loan_call_back_locked(&s->loans) : NULL;
}

struct instance *pull_take_idle_instance_locked(struct pull_scheduler *s)
{
    if (UNLIKELY(s->exclusive) && s->n_running + s->n_leaving > 0)
        return NULL;
    if (s->n_running == s->n_instances)
        return call_instance_back_locked(s);
    uint32_t i = s->ops->per_instance ? idle_next(&s->idle, 0) : idle_best(&s->idle);
    for (; i != IDLE_NONE; i = next_idle_locked(s, i)) {
        struct instance *in = s->model->instances[i];
        if (s->ops->has_work_locked(s, in)) {
            if (UNLIKELY(in->limit != NULL) && !pull_take_first_turn_locked(s, in))
                continue;
            idle_remove(&s->idle, i);
            s->n_running++;
            return in;
        }
    }
    return call_instance_back_locked(s);
}

uint32_t pull_take_batch_locked(struct pull_scheduler *s, struct instance *in)
{
    if (UNLIKELY(in->is_leaving))
        return 0;
    if (UNLIKELY(!in->batch)) {
        MEM_CHARGE(s->model->owner, MEM_INSTANCES);
        in->batch = in->batch_capacity == 1
                        ? in->batch_of_one
                        : mem_zalloc(2 * in->batch_capacity * sizeof(*in->batch));
    }
    uint32_t n = s->ops->take_locked(s, in, in->batch, in->batch_capacity);
    int n_waited = 0;
    for (uint32_t i = 0; i < n; i++) {
        atomic_store_explicit(&in->batch[i]->life.waiting, false, memory_order_relaxed);
        n_waited += !in->batch[i]->seq.padding;
        s->n_large -= in->batch[i]->queue.is_large;
    }
    pull_add_pending_locked(s, -n_waited);
    return n;
}

/*
 * Learns whether the model is fast enough for event loops, unless that is known. A long time of a
 * thread that was preempted in between proves nothing: its answer may have woken the very thread
 * that took its CPU.
 */
static void learn_on_worker(struct pull_scheduler *s, struct instance *in, uint64_t took_ns,
                            uint64_t bytes)
{
    long n_before = in->n_preempted;
    in->n_preempted = thread_preemptions();
    if (took_ns < EXECUTION_SHORT_NS || in->n_preempted == n_before)
        execution_measured(&s->execution, took_ns, bytes, false);
}

/* The bytes of a request that is executed alone and large; 0: it is not large, or there are
 * several. */
static uint64_t bytes_at_once(const struct instance *in, uint32_t n)
{
    return UNLIKELY(n == 1 && in->batch[0]->queue.is_large) ? pull_count_input_bytes(in->batch[0])
                                                            : 0;
}

/* Begins the next steps of the requests that this thread has just executed. @w  NULL: it is not
 * the instance's worker */
static void run_afterwards(struct instance_thread *w)
{
    struct inline_budget *budget = w ? instance_thread_budget(w) : NULL;
    afterwards_run(budget);
    if (budget)
        pull_run_deferred(budget);
}

/* Finishes what has left the loop, on a thread that may wait. Unlocks mu meanwhile. */
static void finish_here_locked(struct pull_scheduler *s, struct instance *in)
{
    uint64_t took_ns;
    in->leave.is_due = false;
    pull_unlock(s);
    (void)instance_finish(in, true, clock_now_ns(s->clock), &took_ns);
    mutex_lock(&s->mu);
}

/*
 * Executes batches until there is none; the caller holds mu and is the instance's runner. @w  as
 * above
 *
 * What the executions set going is done when no batch is left, or after GATHER_NS of executions.
 * So requests that came together also end together: their maker, woken by the first answer, finds
 * the others, too, instead of taking the CPU from this thread at each of them.
 */
static void run_instance_locked(struct pull_scheduler *s, struct instance *in,
                                struct instance_thread *w)
{
    struct list granted = LIST_INIT(granted);
    uint64_t gathered_ns = 0;
    bool waits = false;
    if (UNLIKELY(in->leave.is_due))
        finish_here_locked(s, in);
    for (;;) {
        uint32_t n = LIKELY(!in->limit) ? pull_take_batch_locked(s, in)
                                        : pull_take_limited_batch_locked(s, in, &granted, &waits);
        /* The unlock answers what the take has refused; after that there may be a batch. */
        bool is_last = n == 0 && list_empty(&s->refused) && list_empty(&granted);
        if (is_last && LIKELY(!afterwards_last))
            break;
        /* A take that has unlocked mu may have left requests, which idle instances get. */
        if (UNLIKELY(s->ops->take_unlocks || in->limit))
            pull_dispatch_to_workers_locked(s);
        pull_unlock(s);
        pull_run_granted(&granted);
        if (n > 0) {
            in->ends_soon = execution_is_short(&s->execution, bytes_at_once(in, n));
            uint64_t bytes,
                took_ns = instance_execute(in, in->batch, n, clock_now_ns(s->clock), &bytes);
            if (took_ns && execution_is_in_doubt(&s->execution, bytes))
                learn_on_worker(s, in, took_ns, bytes);
            gathered_ns += took_ns;
        }
        if (UNLIKELY(afterwards_last != NULL) && (is_last || gathered_ns >= GATHER_NS)) {
            run_afterwards(w);
            gathered_ns = 0;
        }
        mutex_lock(&s->mu);
    }
    if (UNLIKELY(waits))
        in->runner = RUNNER_NONE; /* counted as running; pull_run_granted() goes on with it */
    else
        pull_become_idle_locked(s, in);
}

static bool is_run_by_worker_locked(struct instance *in)
{
    return in->runner == RUNNER_WORKER;
}

static void run_worker_locked(struct instance *in)
{
    run_instance_locked(pull_scheduler_of(in->model), in, in->thread);
}

/* The timer is mostly set already, by an earlier wait of the worker. */
static void waits_locked(struct instance *in, uint64_t until_ns)
{
    struct pull_scheduler *s = pull_scheduler_of(in->model);
    s->idle_look_ns = MIN(s->idle_look_ns, until_ns);
    deadline_timer_fire_by(&s->deadline_timer, s->idle_look_ns);
}

static const struct instance_thread_ops thread_ops = {
    .has_work_locked = is_run_by_worker_locked,
    .work_locked = run_worker_locked,
    .waits_locked = waits_locked,
};

void pull_end_idle_workers_locked(struct pull_scheduler *s, uint64_t now_ns)
{
    if (now_ns >= s->idle_look_ns) {
        s->idle_look_ns = UINT64_MAX;
        for (uint32_t i = 0; i < s->model->n_instances; i++) {
            struct instance_thread *w = s->model->instances[i]->thread;
            if (w)
                s->idle_look_ns = MIN(s->idle_look_ns, instance_thread_end_idle_locked(w, now_ns));
        }
    }
    if (s->idle_look_ns != UINT64_MAX)
        deadline_timer_fire_by(&s->deadline_timer, s->idle_look_ns);
}

/* If the system has no thread left, this thread runs the model: late is better than never. */
static void run_here_and_unlock(struct pull_scheduler *s, struct instance *in, struct status *why)
{
    struct cpu_binding before;
    struct status *st = instance_enter_cpu_binding(in, &before);
    model_code_stays(s->model);
    run_instance_locked(s, in, NULL);
    pull_unlock(s);
    cpu_binding_restore(&before);
    log_status(LOG_WARN, "a model runs on the thread of its request", why);
    log_status(LOG_WARN, "a model runs where its host policy does not want it", st);
}

void pull_give_to_worker_and_unlock(struct pull_scheduler *s, struct instance *in)
{
    struct status *st = NULL;
    void *asleep = NULL;

    in->runner = RUNNER_WORKER;
    if (LIKELY(in->thread && !instance_thread_has_ended_locked(in->thread)))
        asleep = instance_thread_rouse_locked(in->thread);
    else
        st = instance_thread_start_locked(in, in->thread, &thread_ops, &s->mu, s->thread_idle_ns,
                                          &in->thread);
    if (UNLIKELY(st != NULL))
        run_here_and_unlock(s, in, st);
    else
        pull_unlock_and_wake(s, asleep);
}

void pull_finish_on_worker(struct instance *in)
{
    struct pull_scheduler *s = pull_scheduler_of(in->model);
    mutex_lock(&s->mu);
    in->leave.is_due = true;
    pull_give_to_worker_and_unlock(s, in);
}

void pull_dispatch_to_workers_locked(struct pull_scheduler *s)
{
    struct instance *in;
    while ((in = pull_take_idle_instance_locked(s))) {
        pull_give_to_worker_and_unlock(s, in);
        mutex_lock(&s->mu);
    }
}

void pull_dispatch_and_unlock(struct pull_scheduler *s)
{
    pull_dispatch_to_workers_locked(s);
    pull_unlock(s);
}
