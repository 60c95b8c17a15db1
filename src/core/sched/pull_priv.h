/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files share of schedulers with instances: pull.c (life and submit), pull_refuse.c
 * (requests that are not executed), pull_worker.c (workers), pull_inline.c (the thread that brings
 * the request), pull_turn.c (instances with a limit), pull_change.c (other instances). A function
 * `…_locked` is called under mu; one that ends in `and_unlock` releases mu for its caller.
 */
#ifndef CONCH_CORE_SCHED_PULL_PRIV_H
#define CONCH_CORE_SCHED_PULL_PRIV_H

#include <stdatomic.h>

#include "core/backend/instance.h"
#include "core/backend/leave.h"
#include "core/model/model.h"
#include "core/model/model_priv.h"
#include "core/request/request.h"
#include "core/sched/pull.h"

/* pull_from_base - the scheduler that begins with `base`. */
static inline struct pull_scheduler *pull_from_base(struct scheduler *base)
{
    return CONTAINER_OF(base, struct pull_scheduler, base);
}

/*
 * pull_hold_model, pull_release_model - a thread that works for the scheduler without a request in
 * it or an instance to run counts as a request, so that the scheduler is not freed meanwhile.
 */
static inline struct model *pull_hold_model(struct pull_scheduler *s)
{
    model_ref(s->model);
    model_request_begun(s->model);
    return s->model;
}

static inline void pull_release_model(struct model *m)
{
    model_request_ended(m);
    model_unref(m);
}

/*
 * pull_add_pending_locked, pull_show_pending_locked - for the metrics: requests are counted by the
 * push, and uncounted by a take or a refusal, all under mu; the unlock publishes the number. So a
 * request that is executed at once, inline, writes nothing of the model.
 */
static inline void pull_add_pending_locked(struct pull_scheduler *s, int n)
{
    s->n_pending += (unsigned int)n;
}

static inline void pull_show_pending_locked(struct pull_scheduler *s)
{
    atomic_uint *shown = &s->model->pending;
    if (atomic_load_explicit(shown, memory_order_relaxed) != s->n_pending)
        atomic_store_explicit(shown, s->n_pending, memory_order_relaxed);
}

/* pull_count_input_bytes - the bytes of all inputs of the request. */
static inline uint64_t pull_count_input_bytes(const struct request *r)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < r->maker.n_inputs; i++)
        bytes += r->maker.inputs[i]->size_bytes;
    return bytes;
}

/* ---- Requests that are not executed: pull_refuse.c ------------------------------------------- */

/*
 * pull_unlock_and_wake - pull_unlock(), and wakes a worker as soon as mu is unlocked, before any
 * request is answered. NULL: none.
 */
void pull_unlock_and_wake(struct pull_scheduler *s, void *asleep);

/*
 * pull_refuse_cancelled_locked - returns whether the request waited and could be taken out: it is
 * among the refused ones then.
 */
bool pull_refuse_cancelled_locked(struct pull_scheduler *s, struct request *r);

/*
 * pull_hand_refused_to_helper_locked - leaves the refused requests to a helper, one for each model.
 * The timers' thread, which all models of a server share, calls it: it answers no request, since an
 * embedder's callback may take long. Returns whether the caller must post
 * pull_answer_refused_late(), without the lock.
 */
NODISCARD bool pull_hand_refused_to_helper_locked(struct pull_scheduler *s);

/*
 * pull_answer_refused_late - answers the refused requests that have no answer yet, in the order of
 * their refusal.
 *
 * Thread: a helper.
 */
void pull_answer_refused_late(struct control_job *job);

/* ---- Instances and their workers: pull_worker.c ---------------------------------------------- */

/* pull_become_idle_locked - the instance, which was counted as running, has no runner now. */
void pull_become_idle_locked(struct pull_scheduler *s, struct instance *in);

/*
 * pull_take_idle_instance_locked - returns an instance that has a batch to execute now, off the
 * idle list and counted, or NULL.
 */
struct instance *pull_take_idle_instance_locked(struct pull_scheduler *s);

/*
 * pull_take_batch_locked - takes the next batch into in->batch, which is allocated with an
 * instance's first batch. Returns how many requests it has; 0: no batch is due.
 */
uint32_t pull_take_batch_locked(struct pull_scheduler *s, struct instance *in);

/*
 * pull_give_to_worker_and_unlock - makes the instance's worker its runner: wakes it, or starts it.
 * (It is started under the lock, so that no thread sees it without its id. It is woken without the
 * lock, which it takes first of all.)
 */
void pull_give_to_worker_and_unlock(struct pull_scheduler *s, struct instance *in);

/* pull_finish_on_worker - leaves it to the worker to finish an execution that has left (leave.h).
 * Thread: the instance's runner. */
void pull_finish_on_worker(struct instance *in);

/* pull_dispatch_to_workers_locked - gives each idle instance with work to its worker. Unlocks mu,
 * and locks it again. */
void pull_dispatch_to_workers_locked(struct pull_scheduler *s);

/* pull_end_idle_workers_locked - the timer has fired: ends workers that have waited too long. */
void pull_end_idle_workers_locked(struct pull_scheduler *s, uint64_t now_ns);

/* ---- Instances come and go: pull_change.c ---------------------------------------------------- */

/* pull_bound_instance - the first of them whose host policy binds it to CPUs or memory; NULL: none
 * is bound. */
const struct instance *pull_bound_instance(struct instance *const *instances, uint32_t n);

/* pull_may_leave - do the executions of a scheduler with these instances leave? */
bool pull_may_leave(const struct pull_scheduler *s, struct instance *const *instances, uint32_t n);

/* pull_can_change, pull_change - scheduler_can_change(), scheduler_change(). */
bool pull_can_change(struct scheduler *base, const struct instance_change *c);
void pull_change(struct scheduler *base, struct instance_change *c);

/* pull_leave_locked - an instance that leaves has lost its runner. */
void pull_leave_locked(struct pull_scheduler *s, struct instance *in);

/* pull_has_work_locked - has the instance to look for a batch? */
static inline bool pull_has_work_locked(struct pull_scheduler *s, const struct instance *in)
{
    return LIKELY(!in->is_leaving) && s->ops->has_work_locked(s, in);
}

/* pull_end_unused - has instances ended that are out of service. Thread: the timers', no lock is
 * held. */
void pull_end_unused(struct pull_scheduler *s);

/* pull_end_drained - has instances taken out of service that have drained. Thread: as above. */
void pull_end_drained(struct pull_scheduler *s);

/* pull_on_unused - of instances. */
void pull_on_unused(struct instance *in);

/* ---- On the thread of the request: pull_inline.c --------------------------------------------- */

/* pull_may_inline_locked - may a thread with this budget execute what waits? NULL: it may not. */
bool pull_may_inline_locked(const struct pull_scheduler *s, const struct inline_budget *budget);

/*
 * pull_run_lent - executes on the instance that is lent to this thread, if it is free: then no
 * request waits, and this one need not, either. Without the lock, unless another thread wants the
 * instance meanwhile. Returns whether the request has been executed.
 */
bool pull_run_lent(struct pull_scheduler *s, struct request *r, struct inline_budget *budget);

/* pull_run_inline_and_unlock - executes a batch on this thread. */
void pull_run_inline_and_unlock(struct pull_scheduler *s, struct instance *in,
                                struct inline_budget *budget, uint64_t start_ns);

/* pull_leave_ops - those of instances whose executions leave. */
extern const struct leave_ops pull_leave_ops;

/*
 * pull_defer_to_iteration_end - defers the model to the end of the iteration, when it is executed
 * with all requests that arrive until then. False: the thread has no such end, or too many models
 * wait for it.
 */
bool pull_defer_to_iteration_end(struct pull_scheduler *s, struct inline_budget *budget);

/* ---- Instances with a limit: pull_turn.c ----------------------------------------------------- */

/*
 * pull_take_first_turn_locked - may the instance, which is idle and has work, execute now? If not,
 * it is off the idle list and counted from now on, and pull_run_granted() has it executed.
 */
bool pull_take_first_turn_locked(struct pull_scheduler *s, struct instance *in);

/*
 * pull_take_limited_batch_locked - pull_take_batch_locked() for an instance with a limit: each
 * batch has a turn of its own. 0: there is no batch now, or the instance waits for its turn
 * (*ret_waits); its runner leaves it, then. Or the caller has work to do first: the turns of
 * others, which are appended to `granted`, refused requests, or what is to be done afterwards.
 */
uint32_t pull_take_limited_batch_locked(struct pull_scheduler *s, struct instance *in,
                                        struct list *granted, bool *ret_waits);

/*
 * pull_leave_limited_and_unlock - leaves an instance with a limit, which has executed inline, to
 * its worker or to nobody.
 */
void pull_leave_limited_and_unlock(struct pull_scheduler *s, struct instance *in);

/* pull_run_granted - has the instances execute that have been granted a turn; mu of no scheduler is
 * held. Empties the list. */
void pull_run_granted(struct list *granted);

/* pull_withdraw_limits_locked - no request is left that an instance could wait for. */
void pull_withdraw_limits_locked(struct pull_scheduler *s);

#endif
