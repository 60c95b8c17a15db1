/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a sequence batcher adds to a request for its backend, beside the inputs of the client:
 * control tensors and implicit states. They live with the sequence, of which the backend has one
 * request at a time, so that a request costs no memory for them.
 */
#ifndef CONCH_CORE_SCHED_EXTRAS_H
#define CONCH_CORE_SCHED_EXTRAS_H

#include "core/sched/controls.h"
#include "core/sched/state.h"

/* Of a model; constant. */
struct extras_spec {
    struct controls controls;
    struct state_specs states;
    uint32_t n; /* inputs */
};

struct extras {
    const struct extras_spec *spec;
    struct control_inputs controls;
    struct states *states; /* NULL: the model has none, or nothing has begun */
    struct input **list;   /* all of them; NULL before the first request */
};

NODISCARD struct status *extras_spec_init(struct extras_spec *spec, const struct model *m);
void extras_spec_done(struct extras_spec *spec);

void extras_init(struct extras *e, const struct extras_spec *spec);
void extras_done(struct extras *e);

/*
 * extras_show - the request gets them: its states begin anew when it starts a sequence, and go on
 * otherwise.
 *
 * Errors: STATUS_UNAVAILABLE  no memory
 */
NODISCARD struct status *extras_show(struct extras *e, struct request *r);

/*
 * extras_show_none - the same for a request that stands for an empty slot: "not ready", and states
 * of zeros in the shapes of a live request's.
 */
NODISCARD struct status *extras_show_none(struct extras *e, struct request *r,
                                          const struct request *live);

#endif
