/* SPDX-License-Identifier: Apache-2.0 */
/*
 * max_inflight_requests of an ensemble: how many requests of each step may be in flight, among all
 * requests of the ensemble (reference/behaviours §12.6). A step that is one too many waits in a
 * list for the end of another one. The thread that has produced it, inside a decoupled model's
 * backend, waits as well, so that a fast producer does not fill the memory. No thread of a loop
 * waits: a producer never executes inline.
 */
#ifndef CONCH_CORE_SCHED_ENSEMBLE_LIMIT_H
#define CONCH_CORE_SCHED_ENSEMBLE_LIMIT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"

struct ensemble_limits;
struct ensemble_step_run;
struct request;

/* What the limits know of a request of the ensemble; part of its object. */
struct ensemble_limited {
    struct request *request; /* constant */
    uint32_t n_waiting;      /* its steps that wait; under the lock of the limits */
};

/* ensemble_limits_new - limits of n_steps steps; ensemble_limits_free() ends them. */
struct ensemble_limits *ensemble_limits_new(uint32_t n_steps, uint32_t max);
/* ensemble_limits_free - no step has a place, and none waits. NULL is fine. */
void ensemble_limits_free(struct ensemble_limits *l);

/*
 * ensemble_limits_take - a place for the step. False: it waits, and the caller leaves it alone
 * until one of the functions below returns it. Thread: any, without locks.
 */
NODISCARD bool ensemble_limits_take(struct ensemble_limits *l, struct ensemble_limited *of,
                                    struct ensemble_step_run *s);

/* ensemble_limits_give - a request of that step has ended. Returns the step that has its place now,
 * perhaps of another request, to be begun; NULL: none has waited. */
struct ensemble_step_run *ensemble_limits_give(struct ensemble_limits *l, uint32_t step);

/*
 * ensemble_limits_wait - the producer waits until no step of the request waits any more; at most
 * for 300 s, and until the request is given up.
 *
 * Returns a step that has waited to the end, to be begun beyond the limit; the caller calls again.
 * NULL: no step of the request waits.
 */
struct ensemble_step_run *ensemble_limits_wait(struct ensemble_limits *l,
                                               struct ensemble_limited *of);

/* ensemble_limits_owner - whose step it is that one of the two functions above has returned. */
struct ensemble_limited *ensemble_limits_owner(const struct ensemble_step_run *s);

#endif
