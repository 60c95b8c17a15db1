/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The requests that are executed for another request, their parent: the steps of an ensemble. They
 * are found when the parent is cancelled, so that each of them is cancelled at once, wherever it
 * is: in a queue, at a backend, or with steps of its own.
 *
 *     steps_begin(&run->steps, parent, free_run)    the parent is accepted
 *     steps_add_locked(&run->steps, &a->step)       before a step is submitted; false: do not
 *     steps_remove_locked(&run->steps, &a->step)    in the step's ops->release()
 *     steps_end(&run->steps, parent)                none is left, and the parent is answered next
 *
 * Deadlines need no such way down: each step has its parent's maker.deadline_ns, so that none is
 * executed from then on. Whoever has set the deadline has a timer, answers its client in time, and
 * cancels the parent; the steps then leave their queues.
 *
 * The canceller of a parent and the thread that ends it may run at the same time. So the object is
 * counted: the parent has a reference, which the first of the two takes out of parent->life.steps.
 */
#ifndef CONCH_CORE_REQUEST_STEPS_H
#define CONCH_CORE_REQUEST_STEPS_H

#include <stdatomic.h>
#include <stdbool.h>

#include "base/compiler.h"
#include "base/list.h"
#include "base/mutex.h"

struct request;

/* One step, in the object of its maker. */
struct step {
    struct list link; /* under steps.mu */
    struct request *request;
};

/* Those of one parent. Its owner may guard more than this by `mu`. */
struct steps {
    struct mutex mu; /* level 480 in core/README.md; no request is submitted or answered under it */
    /* Under mu. */
    struct list running;
    bool is_cancelled; /* the parent is: no step begins any more */

    /* Any thread. */
    atomic_int refs;
    void (*free)(struct steps *s); /* constant; called by the thread that drops the last reference,
                                      possibly inside request_cancel() */
};

/* steps_init - without steps, and without a parent that reaches them by a cancel. The caller has
 * the only reference. */
void steps_init(struct steps *s, void (*free)(struct steps *s));
/* steps_ref, steps_unref - the last unref calls s->free(). Thread: any. */
void steps_ref(struct steps *s);
void steps_unref(struct steps *s);

/* steps_begin - from now on a cancel of the parent reaches the steps, too. The caller has a
 * reference, which steps_end() ends. */
void steps_begin(struct steps *s, struct request *parent, void (*free)(struct steps *s));

/*
 * steps_end - no step is left, and the parent needs none any more; afterwards the object may be
 * gone. Thread: the one that is about to answer the parent, without mu.
 */
void steps_end(struct steps *s, struct request *parent);

/*
 * steps_add_locked - notes a step before it is submitted. Its maker has a reference to
 * step->request until it has called steps_remove_locked().
 *
 * Returns false when the parent has been cancelled: the step must not be submitted, and is not
 * noted.
 */
NODISCARD bool steps_add_locked(struct steps *s, struct step *step);
/* steps_remove_locked - the step has ended, or could not be submitted. */
void steps_remove_locked(struct steps *s, struct step *step);

/*
 * steps_cancel - cancels all steps, and prevents further ones. For request_cancel(); also for the
 * owner, whose reference keeps the object.
 *
 * Thread: any, without locks of the level of mu or above.
 */
void steps_cancel(struct steps *s);

/* steps_cancel_of - the same for the steps that the parent has now, if it has any. Thread: any that
 * has a reference to the parent. */
void steps_cancel_of(struct request *parent);

#endif
