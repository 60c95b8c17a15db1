/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model version has one scheduler, with one lock. Requests are pushed into it; instances pull
 * batches out of it. What is common to all schedulers (who runs where, waking, stopping) is in
 * scheduler.c; a kind of scheduler is a queue with a rule for the next batch (struct
 * scheduler_ops).
 */
#ifndef CONCH_CORE_SCHED_SCHEDULER_H
#define CONCH_CORE_SCHED_SCHEDULER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "base/mutex.h"
#include "core/control.h"
#include "core/sched/deadline_timer.h"
#include "core/sched/execution.h"
#include "core/sched/idle.h"
#include "core/sched/loan.h"
#include "core/sched/watch.h"
#include "core/statistics.h"

struct instance;
struct model;
struct request;
struct scheduler;
struct status;
struct inline_budget;

struct scheduler_ops {
    bool batches;      /* requests of one iteration of a loop are better executed together */
    bool per_instance; /* has_work_locked() may say yes to one idle instance and no to another */
    bool take_unlocks; /* take_locked() may let go of mu and take it again; never on a loop */
    /* An idle instance with nothing waiting executes a request alone: it may be lent (loan.h), and
     * gets requests then that the kind never sees. has_work_locked() is asked with no instance. */
    bool lends;
    /* Under mu. Takes r, or returns why not. */
    struct status *(*push_locked)(struct scheduler *s, struct request *r);
    /* Under mu. The next batch for the instance, at most max requests; 0: nothing is due now. */
    uint32_t (*take_locked)(struct scheduler *s, struct instance *in, struct request **batch,
                            uint32_t max);
    /* Under mu. Would take_locked() give a batch, or is there something that it has to look at? */
    bool (*has_work_locked)(struct scheduler *s, const struct instance *in);
    /* Under mu. Takes out a waiting request that is cancelled; false: it must stay. Optional. */
    bool (*remove_locked)(struct scheduler *s, struct request *r);
    /* Under mu. The timer has fired: whatever is due is done, or dispatched afterwards. Optional.
     */
    void (*on_timer_locked)(struct scheduler *s);
    /* Under mu. What has begun and wants further requests before it ends: sequences. Optional. */
    size_t (*n_open_locked)(const struct scheduler *s);
    /* No instance runs, and no request is left. */
    void (*free)(struct scheduler *s);
};

struct scheduler {
    /* Constant once made. */
    const struct scheduler_ops *ops;
    struct model *model;
    struct execution execution;
    bool pads;      /* batches have paddings: nothing of it runs on an embedder's thread */
    bool exclusive; /* one instance at a time executes: the backend's policy is DEVICE_BLOCKING */
    struct watch watch;      /* of what its instances execute */
    uint64_t thread_idle_ns; /* how long a worker waits for more; constant from the first request */
    struct loans loans;      /* seldom written */

    /*
     * What each request writes stands together, in front of the lock, whose own words come first in
     * it; and away from what is only read.
     */
    char pad[64];
    /* Under mu. */
    struct idle idle;    /* instances with no runner, and not lent */
    struct list waiting; /* requests, oldest first, of a scheduler that has no other queue */
    /* Requests that are not executed: they get their r->refusal as soon as mu is let go of. */
    struct list refused;
    unsigned int n_running; /* instances with a runner, or lent */
    unsigned int n_pending; /* requests that wait; model.pending shows it */
    unsigned int n_large;   /* … and are too large to be executed inline */

    struct mutex mu; /* level 500 in core/README.md */
    /* Under mu. */
    unsigned int n_instances; /* those that execute: not passive */
    struct cond quiet;        /* stopping, and no instance has a runner any more */
    struct list unanswered;   /* … by a helper: those of a timer */
    bool is_answering;        /* that helper is at work, or about to be */
    struct deadline_timer deadline_timer;
    uint64_t idle_look_ns; /* when it rings for workers that wait in vain; UINT64_MAX: none */
    bool closing;          /* flushing, and nothing begins any more */
    bool flushing;         /* no request waits for others to come: what is here is executed */
    bool stopping;         /* flushing, and no request is accepted any more */

    struct control_job answers; /* its helper's: answer_refused_late() */
};

/* scheduler_init, scheduler_done - the common part, for those who make a kind of scheduler. */
NODISCARD struct status *scheduler_init(struct scheduler *s, const struct scheduler_ops *ops,
                                        struct model *m);
void scheduler_done(struct scheduler *s);

/*
 * scheduler_unlock - lets go of mu, and answers the refused ones. For whoever locked it and may
 * have refused some.
 */
void scheduler_unlock(struct scheduler *s);

/* scheduler_waits_locked - the request waits: it is being pushed, or is given back by the backend.
 */
void scheduler_waits_locked(struct scheduler *s, struct request *r);

/*
 * scheduler_refuse_locked - the request, which is in no queue any more, is answered with that error
 * when mu is let go of. The error is taken.
 */
void scheduler_refuse_locked(struct scheduler *s, struct request *r, enum failure_reason reason,
                             struct status *error);

/*
 * scheduler_dispatch_and_unlock - idle instances get what is due now: after anything but a push or
 * a take has made a batch due. The caller holds mu, and does not afterwards.
 */
void scheduler_dispatch_and_unlock(struct scheduler *s);

/*
 * scheduler_new - the scheduler that the model's configuration asks for.
 *
 * Errors: as its kind has them: STATUS_INVALID_ARG, STATUS_UNAVAILABLE
 */
NODISCARD struct status *scheduler_new(struct model *m, struct scheduler **ret_scheduler);

/*
 * scheduler_hook - the reference holds requests back until so many wait, which its tests rely on:
 * the number in one of its environment variables; 0: it holds none.
 */
size_t scheduler_hook(const char *variable);

/* The kinds. */
/* default_scheduler_new - first in, first out, one request at a time (reference/behaviours
 * §10.1). */
NODISCARD struct status *default_scheduler_new(struct model *m, struct scheduler **ret_scheduler);
/* dynamic_scheduler_new - batches, priorities, limits of the queue: dynamic.c. */
NODISCARD struct status *dynamic_scheduler_new(struct model *m, struct scheduler **ret_scheduler);
/* sequence_scheduler_new - requests of a sequence, one after the other: sequence.c. */
NODISCARD struct status *sequence_scheduler_new(struct model *m, struct scheduler **ret_scheduler);

/*
 * scheduler_use_instances - the model's instances may be used from now on, the first one first;
 * passive ones never are. Thread: control.
 */
void scheduler_use_instances(struct scheduler *s);

/*
 * scheduler_submit - a checked request that request_begin() has seen.
 *
 * Thread: any. Takes s->mu. May execute the model before it returns (r->inline_budget).
 * @r      taken on success, still the caller's on error
 * Errors: STATUS_UNAVAILABLE  the model is stopping
 *         STATUS_UNSUPPORTED  all its instances are passive
 */
NODISCARD struct status *scheduler_submit(struct scheduler *s, struct request *r);

/*
 * scheduler_cancelled - the request has been cancelled: if it waits in a scheduler it is answered
 * soon, by another thread.
 *
 * Thread: any that has a reference to the request, also with a lock of a level below mu.
 */
void scheduler_cancelled(struct request *r);

/*
 * scheduler_run_deferred - the thread has pushed all requests of this iteration: executes what was
 * put off until now, as far as the budget has time left.
 *
 * Thread: the budget's. No lock is held.
 */
void scheduler_run_deferred(struct inline_budget *budget);

/* scheduler_flush - whoever waits for others to come is executed now, and from now on. */
void scheduler_flush(struct scheduler *s);

/* scheduler_n_open - how much has begun that wants further requests before it ends. */
size_t scheduler_n_open(struct scheduler *s);

/*
 * scheduler_close - … and nothing begins that would want further requests. Returns how much of that
 * has begun, and may go on to its end.
 */
size_t scheduler_close(struct scheduler *s);

/* scheduler_stop - refuses new requests from now on; those inside are still executed. */
void scheduler_stop(struct scheduler *s);

/*
 * scheduler_free - waits for whoever still runs an instance, and joins the workers. The scheduler
 * is stopped and empty: a runner may still be on its way back from its last execution. NULL is
 * fine.
 */
void scheduler_free(struct scheduler *s);

#endif
