/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory is made with the first request that is shown to the backend and ends with the
 * sequence; a request only gets pointers to it. What a sequence has is under scheduler.mu; a
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

void injected_inputs_init(struct injected_inputs *e, const struct injected_inputs_spec *spec)
{
    e->spec = spec;
    e->states = NULL;
    e->list = NULL;
}

void injected_inputs_done(struct injected_inputs *e)
{
    states_free(e->states);
    mem_free(e->list);
    e->states = NULL;
    e->list = NULL;
}

/* Before the first request. */
NODISCARD static struct status *make_injected_inputs(struct injected_inputs *e)
{
    const struct injected_inputs_spec *spec = e->spec;
    struct status *st = NULL;
    if (LIKELY(e->list != NULL))
        return NULL;
    MEM_CHARGE(spec->states.owner, MEM_INSTANCES);
    if (spec->states.n && !e->states)
        st = states_new(&spec->states, &e->states);
    if (st)
        return st;
    controls_make(&spec->controls, &e->controls);
    e->list = mem_try_zalloc(spec->n, sizeof(*e->list));
    if (!e->list)
        return status_no_memory();
    for (uint32_t i = 0; i < spec->n; i++)
        e->list[i] = i < spec->controls.n ? &e->controls.inputs[i]
                                          : &e->states->items[i - spec->controls.n].input;
    return NULL;
}

static void attach_injected_inputs(struct injected_inputs *e, struct request *r, bool ready)
{
    controls_show(&e->spec->controls, r, ready, &e->controls);
    if (e->states)
        states_show(e->states, r);
    r->states = e->states;
    r->n_injected = e->spec->n;
    r->injected = e->list;
}

struct status *injected_inputs_attach(struct injected_inputs *e, struct request *r)
{
    bool first = e->states == NULL;
    struct status *st = make_injected_inputs(e);
    if (!st && e->states && (first || (r->flags & REQUEST_SEQUENCE_START)))
        st = states_begin(e->states);
    if (!st)
        attach_injected_inputs(e, r, true);
    return st;
}

struct status *injected_inputs_attach_idle(struct injected_inputs *e, struct request *r,
                                           const struct request *live)
{
    struct status *st = make_injected_inputs(e);
    if (!st && e->states)
        st = live->states ? states_begin_like(e->states, live->states) : states_begin(e->states);
    if (!st)
        attach_injected_inputs(e, r, false);
    return st;
}
