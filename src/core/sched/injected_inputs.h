/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Injected inputs are those that a sequence batcher adds to the client's inputs for the backend:
 * control tensors and implicit states. They belong to the sequence, of which the backend has one
 * request at a time, so a request needs no memory for them.
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
    struct states *states; /* NULL: the model has none, or no sequence has begun */
    struct input **list;   /* all of them; NULL before the first request */
};

NODISCARD struct status *injected_inputs_spec_init(struct injected_inputs_spec *spec,
                                                   const struct model *m);
void injected_inputs_spec_done(struct injected_inputs_spec *spec);

void injected_inputs_init(struct injected_inputs *injected,
                          const struct injected_inputs_spec *spec);
void injected_inputs_done(struct injected_inputs *injected);

/*
 * injected_inputs_attach - gives the request these inputs. Its states are the initial ones if it
 * starts a sequence, else those that the sequence's last request has left.
 *
 * Errors: STATUS_UNAVAILABLE  no memory
 */
NODISCARD struct status *injected_inputs_attach(struct injected_inputs *injected,
                                                struct request *r);

/*
 * injected_inputs_attach_idle - the same for a request that stands for an empty slot: "not ready",
 * and states of zeros in the shapes of a live request's.
 */
NODISCARD struct status *injected_inputs_attach_idle(struct injected_inputs *injected,
                                                     struct request *r, const struct request *live);

#endif
