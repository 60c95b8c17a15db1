/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests that stand for slots without a request, so that the others of a batch are where their
 * slots are (reference/behaviours §11.8). They look like another request of the batch, but for
 * their bytes, which are zeros, and for control tensors that say "not ready". Nobody reads the
 * responses, and statistics do not count them (reference/behaviours §16.10).
 */
#ifndef CONCH_CORE_SCHED_PADDING_H
#define CONCH_CORE_SCHED_PADDING_H

#include "core/sched/injected_inputs.h"

struct pool;
struct zeros;

/* Of a scheduler. Under its lock. */
struct padding {
    struct model *model;
    const struct injected_inputs_spec *spec;
    struct pool *pool;
    struct zeros *zeros; /* what inputs are made of; NULL before the first */
};

void padding_init(struct padding *p, struct model *m, const struct injected_inputs_spec *spec);
/* padding_done - all of its requests have ended. */
void padding_done(struct padding *p);

/*
 * padding_new - a request like `live`, a checked one that is in the same batch. It ends when the
 * backend has let go of it.
 *
 * Errors: STATUS_UNAVAILABLE  no memory
 */
NODISCARD struct status *padding_new(struct padding *p, const struct request *live,
                                     struct request **ret_request);

/* padding_drop - ends one that is not given to a backend after all. */
void padding_drop(struct request *r);

/* padding_released - nobody reads its inputs any more. Thread: any. */
void padding_released(struct request *r);

#endif
