/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory is made with the first request that is shown to the backend and freed with the
 * sequence; a request only gets pointers to it. A sequence's memory is under scheduler.mu; a
 * padding has its own.
 */
#include "core/sched/injected_inputs.h"

#include "base/mem.h"
#include "base/status.h"
#include "core/model/model.h"

struct status *injected_inputs_spec_init(struct injected_inputs_spec *spec, const struct model *m)
{
    controls_init(&spec->controls, model_config_sequences(m->config), m->batching);
    struct status *st = state_specs_init(&spec->states, m);
    spec->n = spec->controls.n + spec->states.n;
    return st;
}

void injected_inputs_spec_done(struct injected_inputs_spec *spec)
{
    state_specs_done(&spec->states);
}

void injected_inputs_init(struct injected_inputs *injected, const struct injected_inputs_spec *spec)
{
    injected->spec = spec;
    injected->states = NULL;
    injected->list = NULL;
}

void injected_inputs_done(struct injected_inputs *injected)
{
    states_free(injected->states);
    mem_free(injected->list);
    injected->states = NULL;
    injected->list = NULL;
}

/* Called before the first request. */
NODISCARD static struct status *make_injected_inputs(struct injected_inputs *injected)
{
    const struct injected_inputs_spec *spec = injected->spec;
    struct status *st = NULL;
    if (LIKELY(injected->list != NULL))
        return NULL;
    MEM_CHARGE(spec->states.owner, MEM_INSTANCES);
    if (spec->states.n && !injected->states)
        st = states_new(&spec->states, &injected->states);
    if (st)
        return st;
    controls_make(&spec->controls, &injected->controls);
    injected->list = mem_try_zalloc(spec->n, sizeof(*injected->list));
    if (!injected->list)
        return status_no_memory();
    for (uint32_t i = 0; i < spec->n; i++)
        injected->list[i] = i < spec->controls.n
                                ? &injected->controls.inputs[i]
                                : &injected->states->items[i - spec->controls.n].input;
    return NULL;
}

static void attach_injected_inputs(struct injected_inputs *injected, struct request *r, bool ready)
{
    controls_show(&injected->spec->controls, r, ready, &injected->controls);
    if (injected->states)
        states_show(injected->states, r);
    r->seq.states = injected->states;
    r->seq.n_injected = injected->spec->n;
    r->seq.injected = injected->list;
}

struct status *injected_inputs_attach(struct injected_inputs *injected, struct request *r)
{
    bool first = injected->states == NULL;
    struct status *st = make_injected_inputs(injected);
    if (!st && injected->states && (first || (r->maker.flags & REQUEST_SEQUENCE_START)))
        st = states_begin(injected->states);
    if (!st)
        attach_injected_inputs(injected, r, true);
    return st;
}

struct status *injected_inputs_attach_idle(struct injected_inputs *injected, struct request *r,
                                           const struct request *live)
{
    struct status *st = make_injected_inputs(injected);
    if (!st && injected->states)
        st = live->seq.states ? states_begin_like(injected->states, live->seq.states)
                              : states_begin(injected->states);
    if (!st)
        attach_injected_inputs(injected, r, false);
    return st;
}
