/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A scheduler whose requests instances execute: callers push requests into it, instances pull
 * batches out of it, under one lock. pull.c and its parts (pull_priv.h) have what such kinds have
 * in common: which thread executes a batch, waking, stopping. A kind is a queue with a rule for the
 * next batch (struct pull_ops).
 */
#ifndef CONCH_CORE_SCHED_PULL_H
#define CONCH_CORE_SCHED_PULL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "base/mutex.h"
#include "core/model/statistics.h"
#include "core/sched/execution.h"
#include "core/sched/idle.h"
#include "core/sched/loan.h"
#include "core/sched/scheduler.h"
#include "core/sched/watch.h"
#include "core/threads/control.h"
#include "core/threads/deadline_timer.h"

struct clock;
struct instance;
struct model;
struct request;
struct pull_scheduler;
struct scheduler_request_ops;
struct status;
struct inline_budget;
struct response_order;

struct pull_ops {
    const struct scheduler_request_ops *for_requests; /* set in the model with the scheduler */
    bool batches;      /* requests of one iteration of a loop are better executed together */
    bool per_instance; /* has_work_locked() may say yes to one idle instance and no to another */
    bool take_unlocks; /* take_locked() may unlock mu and lock it again; never on a loop */
    /* When nothing waits, an idle instance executes a request alone. So it may be lent (loan.h),
     * and then gets requests without push_locked() and take_locked(). has_work_locked() is called
     * with a NULL instance. */
    bool lends;
    bool leaves; /* an execution may leave (core/backend/leave.h): nothing of the kind looks at who
                    executes */
    /* Under mu. Takes r on success; an error is the reason for which it refuses r. */
    struct status *(*push_locked)(struct pull_scheduler *s, struct request *r);
    /* Under mu. Gives the instance its next batch, of at most max requests. 0: none is due now. */
    uint32_t (*take_locked)(struct pull_scheduler *s, struct instance *in, struct request **batch,
                            uint32_t max);
    /* Under mu. Does take_locked() have to be called: for a batch, or for other work of its kind?
     */
    bool (*has_work_locked)(struct pull_scheduler *s, const struct instance *in);
    /* Under mu. Removes a cancelled request from the queue; false: it must stay. Optional. */
    bool (*remove_locked)(struct pull_scheduler *s, struct request *r);
    /* Under mu. The timer has fired: does what is due; batches are dispatched afterwards. Optional.
     */
    void (*on_timer_locked)(struct pull_scheduler *s);
    /* Under mu. Returns when the oldest of the requests that wait came; UINT64_MAX: none waits. */
    uint64_t (*find_oldest_locked)(const struct pull_scheduler *s);
    /* Under mu. Returns how many sequences have begun and not ended. Optional. */
    size_t (*n_open_locked)(const struct pull_scheduler *s);
    /* Of kinds that are `per_instance`, under mu. The model has these instances, too, from now on.
     */
    void (*add_instances_locked)(struct pull_scheduler *s, struct instance *const *instances,
                                 uint32_t n);
    /* … The instance gets nothing new. Returns whether it must stay for what it has: then
     * pull_drained_locked() says when that is over. May be called again. */
    bool (*drain_locked)(struct pull_scheduler *s, struct instance *in);
    /* … The instance, for which drain_locked() has said no, is the model's no more. */
    void (*remove_instance_locked)(struct pull_scheduler *s, struct instance *in);
    /* Frees the scheduler. No instance runs, and no request is left. */
    void (*free)(struct pull_scheduler *s);
};

struct pull_scheduler {
    struct scheduler base;
    /* Constant once made. */
    const struct pull_ops *ops;
    struct model *model;
    struct clock *clock; /* the model's */
    struct execution execution;
    bool pads; /* batches may have paddings: the model never runs on an embedder's thread */
    struct response_order *order; /* set by the kind before pull_init(); NULL: there is none */
    bool exclusive; /* one instance at a time executes: the backend's policy is DEVICE_BLOCKING */
    bool leaves; /* executions on loops leave (core/backend/leave.h), so that they are always short
                  */
    /* With `leaves`; relaxed: no execution is inline before this time, since one was long. */
    atomic_uint_least64_t apart_until_ns;
    struct watch watch;      /* of what its instances execute */
    uint64_t thread_idle_ns; /* how long a worker waits for more; constant from the first request */
    struct loans loans;      /* seldom written */

    /*
     * The fields that each request writes stand together, apart from those that are only read. They
     * stand in front of the lock, whose own words are at its start.
     */
    char pad[64];
    /* Under mu. */
    struct idle idle;    /* instances that have no runner and are not lent */
    struct list waiting; /* requests, oldest first, of a scheduler that has no other queue */
    /* Requests that are not executed: pull_unlock() answers them with their r->queue.refusal.
     */
    struct list refused;
    unsigned int n_running; /* instances with a runner, or lent; none that leaves */
    unsigned int n_leaving; /* instances with a runner that leave */
    unsigned int n_pending; /* requests that wait; copied to model.pending */
    unsigned int n_large;   /* … and are large: seldom executed inline (execution.h) */
    uint64_t most_bytes;    /* none of these is larger */

    struct mutex mu; /* level 500 in core/README.md */
    /* Under mu. */
    unsigned int n_instances; /* those that execute: not passive */
    /* Out of service (pull_change.c): instances that have left their last runner; those that nobody
     * uses any more. The timer sees to both. */
    struct list left, unused;
    bool has_drained;           /* an instance need not stay any longer */
    bool ends_drained;          /* a helper takes such instances out, or is about to */
    struct control_job drained; /* the helper's */
    struct cond quiet;          /* stopping, and no instance has a runner any more */
    struct list unanswered;     /* requests that a timer refused: a helper thread answers them */
    bool is_answering;          /* that helper is at work, or about to be */
    struct deadline_timer deadline_timer;
    uint64_t idle_look_ns; /* when it fires to end idle workers; UINT64_MAX: none waits */
    bool closing;          /* flushing, and no new sequence begins */
    bool flushing;         /* no request waits for others to come: all are executed at once */
    bool stopping;         /* flushing, and new requests are refused */

    struct control_job answers; /* the helper's job: pull_answer_refused_late() */
};

/* pull_scheduler_of - the scheduler of a model that has instances. */
static inline struct pull_scheduler *pull_scheduler_of(const struct model *m)
{
    return CONTAINER_OF(m->scheduler, struct pull_scheduler, base);
}

/* pull_init, pull_done - the common part, called by each kind. */
NODISCARD struct status *pull_init(struct pull_scheduler *s, const struct pull_ops *ops,
                                   struct model *m);
void pull_done(struct pull_scheduler *s);

/* pull_request_ops - those of schedulers that have no sequences. The functions below are in
 * them, and in those of other schedulers. */
extern const struct scheduler_request_ops pull_request_ops;
void pull_on_cancelled(struct request *r);
void pull_on_late_end(struct request *r);

/*
 * pull_unlock - unlocks mu, then answers the requests in s->refused. A caller that may have
 * refused requests under mu unlocks it with this function.
 */
void pull_unlock(struct pull_scheduler *s);

/* pull_drained_locked - an instance for which drain_locked() has said yes need not stay any longer:
 * a helper takes it out. */
void pull_drained_locked(struct pull_scheduler *s);

/* pull_waits_locked - counts the request as waiting: it is being pushed, or the backend has
 * given it back. */
void pull_waits_locked(struct pull_scheduler *s, struct request *r);

/*
 * pull_refuse_locked - puts the request into s->refused: it is answered with that error after
 * mu is unlocked. The request must be in no queue any more. The error is taken.
 */
void pull_refuse_locked(struct pull_scheduler *s, struct request *r, enum failure_reason reason,
                        struct status *error);

/*
 * pull_dispatch_and_unlock - gives idle instances the batches that are due now, and unlocks
 * mu, which the caller has locked. To be called when something other than a push or a take has made
 * a batch due.
 */
void pull_dispatch_and_unlock(struct pull_scheduler *s);

/*
 * scheduler_hook - a hook for the reference's tests, which make the server hold requests back until
 * a given number wait. Returns the number in that environment variable; 0: none are held back.
 */
size_t scheduler_hook(const char *variable);

/* pull_is_always_inline - does CONCH_EXECUTION say that the model's callers execute it? */
bool pull_is_always_inline(const struct model *m);

/*
 * pull_run_deferred - executes the models in budget->waiting, as far as the budget has time
 * left. To be called when the thread has submitted all requests of this iteration.
 *
 * Thread: the budget's. No lock is held.
 */
void pull_run_deferred(struct inline_budget *budget);

/* pull_on_long_execution - for the watchdog: the model executes on its workers from now on,
 * unless the operator said `inline`; logs that. */
void pull_on_long_execution(struct instance *in, uint64_t stood_ns);

#endif
