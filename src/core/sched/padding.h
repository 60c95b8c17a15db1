/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Paddings are requests that stand for empty slots, so that the others of a batch are at the index
 * of their slot (reference/behaviours §11.8). A padding has the inputs of another request of the
 * batch, with zeros as their bytes, and control tensors that say "not ready". Its responses are
 * thrown away, and statistics do not count it (reference/behaviours §16.10).
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
    struct zeros *zeros; /* the bytes of their inputs; NULL before the first padding */
};

void padding_init(struct padding *p, struct model *m, const struct injected_inputs_spec *spec);
/* padding_done - all of its requests have ended. */
void padding_done(struct padding *p);

/*
 * padding_new - makes a request like `live`, an admitted one of the same batch. The padding is
 * freed when the backend has released it.
 *
 * Errors: STATUS_UNAVAILABLE  no memory
 */
NODISCARD struct status *padding_new(struct padding *p, const struct request *live,
                                     struct request **ret_request);

/* padding_drop - frees a padding that no backend has got. */
void padding_drop(struct request *r);

/* padding_released - the backend has released the padding: its inputs are not read any more.
 * Thread: any. */
void padding_released(struct request *r);

#endif
