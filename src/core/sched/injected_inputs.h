/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a sequence batcher adds to a request for its backend, beside the inputs of the client:
 * control tensors and implicit states. They live with the sequence, of which the backend has one
 * request at a time, so that a request costs no memory for them.
 */
#ifndef CONCH_CORE_SCHED_INJECTED_INPUTS_H
#define CONCH_CORE_SCHED_INJECTED_INPUTS_H

#include "core/sched/controls.h"
#include "core/sched/state.h"

/* Of a model; constant. */
struct injected_inputs_spec {
    struct controls controls;
    struct state_specs states;
    uint32_t n; /* inputs */
};

struct injected_inputs {
    const struct injected_inputs_spec *spec;
    struct control_inputs controls;
    struct states *states; /* NULL: the model has none, or nothing has begun */
    struct input **list;   /* all of them; NULL before the first request */
};

NODISCARD struct status *injected_inputs_spec_init(struct injected_inputs_spec *spec,
                                                   const struct model *m);
void injected_inputs_spec_done(struct injected_inputs_spec *spec);

void injected_inputs_init(struct injected_inputs *e, const struct injected_inputs_spec *spec);
void injected_inputs_done(struct injected_inputs *e);

/*
 * injected_inputs_attach - the request gets these inputs: its states begin anew when it starts a
 * sequence, and go on otherwise.
 *
 * Errors: STATUS_UNAVAILABLE  no memory
 */
NODISCARD struct status *injected_inputs_attach(struct injected_inputs *e, struct request *r);

/*
 * injected_inputs_attach_idle - the same for a request that stands for an empty slot: "not ready",
 * and states of zeros in the shapes of a live request's.
 */
NODISCARD struct status *injected_inputs_attach_idle(struct injected_inputs *e, struct request *r,
                                                     const struct request *live);

#endif
