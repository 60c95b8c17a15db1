/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model version has one scheduler, with one lock. Callers push requests into it; instances pull
 * batches out of it. scheduler.c has what is common to all schedulers: which thread executes a
 * batch, waking, stopping. A kind of scheduler is a queue with a rule for the next batch (struct
 * scheduler_ops).
 */
#ifndef CONCH_CORE_SCHED_SCHEDULER_H
#define CONCH_CORE_SCHED_SCHEDULER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "base/mutex.h"
#include "core/model/statistics.h"
#include "core/sched/execution.h"
#include "core/sched/idle.h"
#include "core/sched/loan.h"
#include "core/sched/watch.h"
#include "core/threads/control.h"
#include "core/threads/deadline_timer.h"

struct clock;
struct instance;
struct model;
struct request;
struct scheduler;
struct scheduler_request_ops;
struct status;
struct inline_budget;

struct scheduler_ops {
    const struct scheduler_request_ops *for_requests; /* set in the model with the scheduler */
    bool batches;      /* requests of one iteration of a loop are better executed together */
    bool per_instance; /* has_work_locked() may say yes to one idle instance and no to another */
    bool take_unlocks; /* take_locked() may unlock mu and lock it again; never on a loop */
    /* When nothing waits, an idle instance executes a request alone. So it may be lent (loan.h),
     * and then gets requests without push_locked() and take_locked(). has_work_locked() is called
     * with a NULL instance. */
    bool lends;
    /* Under mu. Takes r on success; an error is the reason for which it refuses r. */
    struct status *(*push_locked)(struct scheduler *s, struct request *r);
    /* Under mu. Gives the instance its next batch, of at most max requests. 0: none is due now. */
    uint32_t (*take_locked)(struct scheduler *s, struct instance *in, struct request **batch,
                            uint32_t max);
    /* Under mu. Does take_locked() have to be called: for a batch, or for other work of its kind?
     */
    bool (*has_work_locked)(struct scheduler *s, const struct instance *in);
    /* Under mu. Removes a cancelled request from the queue; false: it must stay. Optional. */
    bool (*remove_locked)(struct scheduler *s, struct request *r);
    /* Under mu. The timer has fired: does what is due; batches are dispatched afterwards. Optional.
     */
    void (*on_timer_locked)(struct scheduler *s);
    /* Under mu. Returns how many sequences have begun and not ended. Optional. */
    size_t (*n_open_locked)(const struct scheduler *s);
    /* Frees the scheduler. No instance runs, and no request is left. */
    void (*free)(struct scheduler *s);
};

struct scheduler {
    /* Constant once made. */
    const struct scheduler_ops *ops;
    struct model *model;
    struct clock *clock; /* the model's */
    struct execution execution;
    bool pads;      /* batches may have paddings: the model never runs on an embedder's thread */
    bool exclusive; /* one instance at a time executes: the backend's policy is DEVICE_BLOCKING */
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
    /* Requests that are not executed: scheduler_unlock() answers them with their r->queue.refusal.
     */
    struct list refused;
    unsigned int n_running; /* instances with a runner, or lent */
    unsigned int n_pending; /* requests that wait; copied to model.pending */
    unsigned int n_large;   /* … and are too large to be executed inline */

    struct mutex mu; /* level 500 in core/README.md */
    /* Under mu. */
    unsigned int n_instances; /* those that execute: not passive */
    struct cond quiet;        /* stopping, and no instance has a runner any more */
    struct list unanswered;   /* requests that a timer refused: a helper thread answers them */
    bool is_answering;        /* that helper is at work, or about to be */
    struct deadline_timer deadline_timer;
    uint64_t idle_look_ns; /* when it fires to end idle workers; UINT64_MAX: none waits */
    bool closing;          /* flushing, and no new sequence begins */
    bool flushing;         /* no request waits for others to come: all are executed at once */
    bool stopping;         /* flushing, and new requests are refused */

    struct control_job answers; /* the helper's job: answer_refused_late() */
};

/* scheduler_init, scheduler_done - the common part, called by each kind of scheduler. */
NODISCARD struct status *scheduler_init(struct scheduler *s, const struct scheduler_ops *ops,
                                        struct model *m);
void scheduler_done(struct scheduler *s);

/* scheduler_request_ops - those of schedulers that have no sequences. The functions below are in
 * them, and in those of other schedulers. */
extern const struct scheduler_request_ops scheduler_request_ops;
void scheduler_on_cancelled(struct request *r);
void scheduler_on_late_end(struct request *r);

/*
 * scheduler_unlock - unlocks mu, then answers the requests in s->refused. A caller that may have
 * refused requests under mu unlocks it with this function.
 */
void scheduler_unlock(struct scheduler *s);

/* scheduler_waits_locked - counts the request as waiting: it is being pushed, or the backend has
 * given it back. */
void scheduler_waits_locked(struct scheduler *s, struct request *r);

/*
 * scheduler_refuse_locked - puts the request into s->refused: it is answered with that error after
 * mu is unlocked. The request must be in no queue any more. The error is taken.
 */
void scheduler_refuse_locked(struct scheduler *s, struct request *r, enum failure_reason reason,
                             struct status *error);

/*
 * scheduler_dispatch_and_unlock - gives idle instances the batches that are due now, and unlocks
 * mu, which the caller has locked. To be called when something other than a push or a take has made
 * a batch due.
 */
void scheduler_dispatch_and_unlock(struct scheduler *s);

/*
 * scheduler_new - the scheduler that the model's configuration asks for.
 *
 * Errors: as its kind has them: STATUS_INVALID_ARG, STATUS_UNAVAILABLE
 */
NODISCARD struct status *scheduler_new(struct model *m, struct scheduler **ret_scheduler);

/*
 * scheduler_hook - a hook for the reference's tests, which make the server hold requests back until
 * a given number wait. Returns the number in that environment variable; 0: none are held back.
 */
size_t scheduler_hook(const char *variable);

/* The kinds. */
/* default_scheduler_new - one request at a time, in order of arrival (reference/behaviours §10.1).
 */
NODISCARD struct status *default_scheduler_new(struct model *m, struct scheduler **ret_scheduler);
/* dynamic_scheduler_new - batches, priorities, limits of the queue: dynamic.c. */
NODISCARD struct status *dynamic_scheduler_new(struct model *m, struct scheduler **ret_scheduler);
/* sequence_scheduler_new - the requests of a sequence one after the other: sequence.c. */
NODISCARD struct status *sequence_scheduler_new(struct model *m, struct scheduler **ret_scheduler);

/*
 * scheduler_use_instances - the scheduler may execute on the model's instances from now on, the
 * first one first; it never uses passive instances. Thread: control.
 */
void scheduler_use_instances(struct scheduler *s);

/*
 * scheduler_submit - queues or executes a request that has been admitted (request_admit(),
 * request_begin()).
 *
 * Thread: any. Takes s->mu. May execute the model before it returns (r->maker.inline_budget).
 * @r      taken on success, still the caller's on error
 * Errors: STATUS_UNAVAILABLE  the model is stopping
 *         STATUS_UNSUPPORTED  all its instances are passive
 */
NODISCARD struct status *scheduler_submit(struct scheduler *s, struct request *r);

/* scheduler_is_always_inline - does CONCH_EXECUTION say that the model's callers execute it? */
bool scheduler_is_always_inline(const struct model *m);

/*
 * scheduler_run_deferred - executes the models in budget->waiting, as far as the budget has time
 * left. To be called when the thread has submitted all requests of this iteration.
 *
 * Thread: the budget's. No lock is held.
 */
void scheduler_run_deferred(struct inline_budget *budget);

/* scheduler_on_long_execution - for the watchdog: the model executes on its workers from now on,
 * unless the operator said `inline`; logs that. */
void scheduler_on_long_execution(struct instance *in, uint64_t stood_ns);

/* scheduler_flush - executes at once, now and from now on, what would wait for further requests. */
void scheduler_flush(struct scheduler *s);

/* scheduler_n_open - how many sequences have begun and not ended. */
size_t scheduler_n_open(struct scheduler *s);

/*
 * scheduler_close - flushes, and refuses to begin sequences. Those that have begun may go on to
 * their end; returns how many there are.
 */
size_t scheduler_close(struct scheduler *s);

/* scheduler_stop - refuses new requests from now on; those inside are still executed. */
void scheduler_stop(struct scheduler *s);

/*
 * scheduler_free - waits for the threads that still run an instance, joins the workers, and frees
 * the scheduler. It must be stopped and empty; a thread may still be returning from its last
 * execution. NULL is fine.
 */
void scheduler_free(struct scheduler *s);

#endif
