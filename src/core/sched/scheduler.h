/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model version has one scheduler, to which its requests are submitted. This file has what the
 * rest of the core asks of any kind of scheduler. Most kinds hand requests to the model's instances
 * (pull.h). That of an ensemble has no instances: it submits requests to other models.
 */
#ifndef CONCH_CORE_SCHED_SCHEDULER_H
#define CONCH_CORE_SCHED_SCHEDULER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"
#include "core/model/model.h"
#include "core/request/request.h"

struct instance_change;
struct scheduler;
struct status;
struct watch_use;

/* What a kind of scheduler implements; constant. The functions below, which call these, have their
 * contracts. */
struct scheduler_ops {
    struct status *(*submit)(struct scheduler *s, struct request *r);
    void (*flush)(struct scheduler *s);
    size_t (*n_open)(struct scheduler *s);
    size_t (*close)(struct scheduler *s);
    void (*stop)(struct scheduler *s);
    void (*free)(struct scheduler *s);
    /* Of kinds that have instances. */
    void (*use_instances)(struct scheduler *s);
    void (*read_use)(struct scheduler *s, uint64_t now_ns, struct watch_use *ret);
    char *(*stuck_instance)(struct scheduler *s);
    /* Optional: the instances of the kind cannot change. */
    bool (*can_change)(struct scheduler *s, const struct instance_change *c);
    void (*change)(struct scheduler *s, struct instance_change *c);
    /* Gives a request that is not submitted, or not yet, its position in the order of responses.
     * Optional: the kind has no such order. */
    void (*take_position)(struct scheduler *s, struct request *r);
};

/* The first member of each kind. A kind also sets model.scheduler_ops when it is made. */
struct scheduler {
    const struct scheduler_ops *ops; /* constant */
};

/*
 * scheduler_new - the scheduler that the model's configuration asks for.
 *
 * Errors: as its kind has them: STATUS_INVALID_ARG, STATUS_UNAVAILABLE
 */
NODISCARD struct status *scheduler_new(struct model *m, struct scheduler **ret_scheduler);

/* The kinds. */
/* default_scheduler_new - one request at a time, in order of arrival (reference/behaviours §10.1).
 */
NODISCARD struct status *default_scheduler_new(struct model *m, struct scheduler **ret_scheduler);
/* dynamic_scheduler_new - batches, priorities, limits of the queue: dynamic.c. */
NODISCARD struct status *dynamic_scheduler_new(struct model *m, struct scheduler **ret_scheduler);
/* sequence_scheduler_new - the requests of a sequence one after the other: sequence.c. */
NODISCARD struct status *sequence_scheduler_new(struct model *m, struct scheduler **ret_scheduler);
/* ensemble_scheduler_new - the steps of an ensemble, by other models: ensemble.c. */
NODISCARD struct status *ensemble_scheduler_new(struct model *m, struct scheduler **ret_scheduler);

/*
 * scheduler_use_instances - the scheduler may execute on the model's instances from now on, the
 * first one first; it never uses passive instances. Thread: control.
 */
void scheduler_use_instances(struct scheduler *s);

/* cached_submit - the next function for a model that has a response cache; cached.c. */
NODISCARD struct status *cached_submit(struct scheduler *s, struct request *r);

/*
 * scheduler_submit - answers from the response cache, queues or executes a request that has been
 * admitted (request_admit(), request_begin()).
 *
 * Thread: any, without locks. May execute the model before it returns (r->maker.inline_budget).
 * @r      taken on success, still the caller's on error
 * Errors: STATUS_UNAVAILABLE  the model is stopping
 *         STATUS_UNSUPPORTED  all its instances are passive
 */
NODISCARD static inline struct status *scheduler_submit(struct scheduler *s, struct request *r)
{
    return UNLIKELY(r->model->cached != NULL) ? cached_submit(s, r) : s->ops->submit(s, r);
}

/* scheduler_flush - executes at once, now and from now on, what would wait for further requests. */
static inline void scheduler_flush(struct scheduler *s)
{
    s->ops->flush(s);
}

/* scheduler_n_open - how many sequences have begun and not ended. */
static inline size_t scheduler_n_open(struct scheduler *s)
{
    return s->ops->n_open(s);
}

/*
 * scheduler_close - flushes, and refuses to begin sequences. Those that have begun may go on to
 * their end; returns how many there are.
 */
static inline size_t scheduler_close(struct scheduler *s)
{
    return s->ops->close(s);
}

/* scheduler_stop - refuses new requests from now on; those inside are still executed. */
static inline void scheduler_stop(struct scheduler *s)
{
    s->ops->stop(s);
}

/* scheduler_read_use - what the model's backend executes now; zeros for a kind without instances.
 * Thread: any that ensures that the instances live on. */
void scheduler_read_use(struct scheduler *s, uint64_t now_ns, struct watch_use *ret);

/* scheduler_stuck_instance - the name of an instance with requests beyond the execution limit,
 * which the caller frees; NULL: there is none. Thread: as above. */
char *scheduler_stuck_instance(struct scheduler *s);

/*
 * scheduler_can_change - can the model go on with these instances in place of those that it has? If
 * not, it is to be loaded anew: it has sequences and would lose instances, one instance at a time
 * executes, or what the scheduler knows of all instances together would change.
 *
 * @c  NULL: could it, with any?
 * Thread: control, which alone changes the model's instances.
 */
bool scheduler_can_change(struct scheduler *s, const struct instance_change *c);

/*
 * scheduler_change - the model has these instances from now on. The new ones have their limits
 * (limiter.h). Those that leave get no more work. Each ends on a helper when its execution is over
 * and the backend has let go of its requests, and the model counts as in use until then. What waits
 * is executed by the others.
 *
 * Thread: control, without locks. Takes the list `all`.
 */
void scheduler_change(struct scheduler *s, struct instance_change *c);

/*
 * scheduler_free - waits for the threads that still execute something of the model, and frees the
 * scheduler. It must be stopped and empty; a thread may still be returning from its last execution.
 * NULL is fine.
 */
void scheduler_free(struct scheduler *s);

#endif
