/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A step in a wave:
 *
 *   WAITING ─all inputs are there─► READY ─next_step()─► STARTED ─skip()─► UNNEEDED
 *      │                              │                     │
 *      └─ the request fails, or ends ─┴─► UNNEEDED          ├ respond(ended) ┐ both, in
 *                                                           └ release() ─────┴ any order: UNNEEDED
 *
 * Invariants: n_running counts steps that are READY, or STARTED without their end; n_held those
 * that are STARTED and not released. A tensor's n_uses counts the entries of input maps of steps
 * that are WAITING, READY, or STARTED and not released, and one more while the answer needs it.
 * Its value is gone when that falls to 0. A wave's n_uses counts its steps that are not UNNEEDED,
 * and its answer; at 0 its memory is freed, so nothing touches a wave after unuse_wave().
 *
 * A step that is not decoupled writes into the wave that it runs in, once. A decoupled one makes a
 * wave for each of its responses.
 *
 * Answers: an ensemble that is not decoupled has one, which waits for the end of all steps. Each
 * wave of a decoupled one is answered as soon as its outputs are known. An error is the last
 * answer, and waits for the end of all steps.
 */
#include "core/sched/ensemble_run.h"

#include <string.h>

#include "base/pool.h"
#include "base/status.h"

/* ---- Memory ---------------------------------------------------------------------------------- */

static size_t wave_bytes(const struct ensemble_plan *p, uint32_t kind)
{
    const struct ensemble_wave_kind *k = &p->kinds[kind];
    return sizeof(struct ensemble_wave) + k->n_steps * sizeof(struct ensemble_step_run) +
           k->n_tensors * sizeof(struct ensemble_tensor_run);
}

static size_t set_bytes(const struct ensemble_plan *p)
{
    return (ensemble_set_words(p->n_steps) + ensemble_set_words(p->n_outputs)) * sizeof(uint64_t);
}

/* The struct, the first wave, two sets. A plan has room for far fewer items than would overflow. */
size_t ensemble_run_bytes(const struct ensemble_plan *p)
{
    return sizeof(struct ensemble_run) + wave_bytes(p, 0) + set_bytes(p);
}

void ensemble_run_init(struct ensemble_run *run, const struct ensemble_plan *p, struct pool *pool,
                       struct mem_owner *owner)
{
    *run = (struct ensemble_run){.plan = p, .pool = pool, .owner = owner};
    run->first = (struct ensemble_wave *)(void *)(run + 1);
    list_init(&run->waves);
    list_init(&run->ready);
    list_init(&run->complete);
}

void ensemble_run_done(struct ensemble_run *run)
{
    BUG_ON(!list_empty(&run->waves) || run->gone || run->n_running || run->n_held);
    status_free(TAKE(run->error));
}

static void unuse_wave(struct ensemble_run *run, struct ensemble_wave *w)
{
    if (--w->n_uses)
        return;
    list_remove(&w->link);
    if (w != run->first)
        pool_release(w);
}

/* ---- Tensors --------------------------------------------------------------------------------- */

static void value_gone(struct ensemble_run *run, struct ensemble_value *value)
{
    if (!value)
        return;
    value->next = run->gone;
    run->gone = value;
}

static void unuse_tensor(struct ensemble_run *run, struct ensemble_wave *w, uint32_t tensor)
{
    struct ensemble_tensor_run *t = &w->tensors[run->plan->tensors[tensor].slot];
    if (--t->n_uses == 0)
        value_gone(run, TAKE(t->value));
}

static void unuse_inputs(struct ensemble_run *run, struct ensemble_step_run *s)
{
    const struct ensemble_step *step = &run->plan->steps[s->step];
    for (uint32_t i = 0; i < step->n_inputs; i++)
        unuse_tensor(run, s->wave, step->inputs[i].tensor);
    if (step->condition != ENSEMBLE_NONE)
        unuse_tensor(run, s->wave, step->condition);
}

static void unuse_outputs(struct ensemble_run *run, struct ensemble_wave *w)
{
    w->is_answerable = false;
    for (uint32_t i = 0; i < run->plan->n_outputs; i++) {
        if (ensemble_set_has(run->requested, i))
            unuse_tensor(run, w, run->plan->outputs[i]);
    }
    unuse_wave(run, w);
}

static uint32_t count_uses(const struct ensemble_run *run, const struct ensemble_tensor *t)
{
    uint32_t n = t->output != ENSEMBLE_NONE && ensemble_set_has(run->requested, t->output);
    for (uint32_t i = 0; i < t->n_readers; i++)
        n += ensemble_set_has(run->needed, t->readers[i]);
    return n;
}

/* ---- Waves ----------------------------------------------------------------------------------- */

static void init_step(struct ensemble_run *run, struct ensemble_wave *w, uint32_t slot)
{
    uint32_t index = run->plan->kinds[w->kind].steps[slot];
    const struct ensemble_step *step = &run->plan->steps[index];
    struct ensemble_step_run *s = &w->steps[slot];
    *s = (struct ensemble_step_run){.wave = w, .step = index};
    if (!ensemble_set_has(run->needed, index))
        return;
    s->stage = ENSEMBLE_WAITING;
    s->n_missing = step->n_inputs + (step->condition != ENSEMBLE_NONE);
    w->n_uses++;
}

static void init_wave(struct ensemble_run *run, struct ensemble_wave *w, uint32_t kind)
{
    const struct ensemble_plan *p = run->plan;
    const struct ensemble_wave_kind *k = &p->kinds[kind];
    *w = (struct ensemble_wave){.kind = kind};
    list_push(&run->waves, &w->link);
    list_init(&w->complete);
    w->steps = (struct ensemble_step_run *)(void *)(w + 1);
    w->tensors = (struct ensemble_tensor_run *)(void *)(w->steps + k->n_steps);
    for (uint32_t i = 0; i < k->n_steps; i++)
        init_step(run, w, i);
    bool all = run->needed == p->all_steps && run->requested == p->all_outputs;
    for (uint32_t i = 0; i < k->n_tensors; i++)
        w->tensors[i] = (struct ensemble_tensor_run){
            .n_uses = all ? k->n_uses[i] : count_uses(run, &p->tensors[k->tensors[i]])};
    if (kind == p->answer_kind) {
        w->is_answerable = true;
        w->n_missing_outputs = run->n_requested;
        w->n_uses++;
    }
}

static void input_is_there(struct ensemble_run *run, struct ensemble_step_run *s)
{
    if (s->stage != ENSEMBLE_WAITING || --s->n_missing)
        return;
    s->stage = ENSEMBLE_READY;
    list_push(&run->ready, &s->link);
    run->n_running++;
}

/* The tensor is there, or is known to be absent. Takes the value. */
static void set_tensor(struct ensemble_run *run, struct ensemble_wave *w, uint32_t tensor,
                       struct ensemble_value *value)
{
    const struct ensemble_plan *p = run->plan;
    const struct ensemble_tensor *t = &p->tensors[tensor];
    struct ensemble_tensor_run *state = &w->tensors[t->slot];
    if (state->n_uses == 0) {
        value_gone(run, value);
        return;
    }
    state->value = value;
    for (uint32_t i = 0; i < t->n_readers; i++)
        input_is_there(run, &w->steps[p->steps[t->readers[i]].slot]);
    if (t->output != ENSEMBLE_NONE && ensemble_set_has(run->requested, t->output) &&
        --w->n_missing_outputs == 0)
        list_push(&run->complete, &w->complete);
}

static void choose_needed(struct ensemble_run *run, const uint64_t *outputs)
{
    const struct ensemble_plan *p = run->plan;
    run->needed = p->all_steps;
    run->requested = p->all_outputs;
    run->n_requested = p->n_outputs;
    if (!outputs)
        return;
    uint64_t *needed = (uint64_t *)(void *)((char *)run->first + wave_bytes(p, 0));
    uint64_t *requested = needed + ensemble_set_words(p->n_steps);
    memset(needed, 0, set_bytes(p));
    run->needed = needed;
    run->requested = requested;
    run->n_requested = 0;
    for (uint32_t i = 0; i < p->n_outputs; i++) {
        if (!ensemble_set_has(outputs, i))
            continue;
        ensemble_set_add(requested, i);
        run->n_requested++;
        ensemble_plan_need(p, i, needed);
    }
}

void ensemble_run_begin(struct ensemble_run *run, const uint64_t *outputs,
                        struct ensemble_value *const *inputs)
{
    const struct ensemble_plan *p = run->plan;
    choose_needed(run, outputs);
    init_wave(run, run->first, 0);
    run->first->n_uses++; /* until all inputs are set */
    for (uint32_t i = 0; i < p->n_inputs; i++)
        set_tensor(run, run->first, p->inputs[i], inputs[i]);
    unuse_wave(run, run->first);
}

/* ---- The end of what has not begun ----------------------------------------------------------- */

static void drop_step(struct ensemble_run *run, struct ensemble_step_run *s)
{
    if (s->stage == ENSEMBLE_READY) {
        list_remove(&s->link);
        run->n_running--;
    } else if (s->stage != ENSEMBLE_WAITING) {
        return;
    }
    s->stage = ENSEMBLE_UNNEEDED;
    unuse_inputs(run, s);
    unuse_wave(run, s->wave);
}

/* Is the wave to be answered, whatever happens to the others? */
static bool is_answer_certain(const struct ensemble_run *run, const struct ensemble_wave *w)
{
    return w == run->answering ||
           (ensemble_plan_is_decoupled(run->plan) && !list_empty(&w->complete));
}

/* Nothing begins any more, and no wave is answered whose outputs are not known yet. */
static void drop_rest(struct ensemble_run *run)
{
    LIST_FOR_EACH_SAFE (link, &run->waves) {
        struct ensemble_wave *w = LIST_ENTRY(link, struct ensemble_wave, link);
        uint32_t n_steps = run->plan->kinds[w->kind].n_steps;
        w->n_uses++; /* it stays while this loop is in it */
        for (uint32_t i = 0; i < n_steps; i++)
            drop_step(run, &w->steps[i]);
        if (w->is_answerable && !is_answer_certain(run, w)) {
            list_remove(&w->complete);
            unuse_outputs(run, w);
        }
        unuse_wave(run, w);
    }
}

void ensemble_run_fail(struct ensemble_run *run, struct status *error)
{
    if (ensemble_run_has_failed(run) || run->has_final) {
        status_free(error);
        return;
    }
    atomic_store_explicit(&run->has_failed, true, memory_order_relaxed);
    run->error = error;
    drop_rest(run);
}

/* ---- Steps ----------------------------------------------------------------------------------- */

struct ensemble_step_run *ensemble_run_next_step(struct ensemble_run *run)
{
    struct list *link = list_pop(&run->ready);
    if (!link)
        return NULL;
    struct ensemble_step_run *s = LIST_ENTRY(link, struct ensemble_step_run, link);
    s->stage = ENSEMBLE_STARTED;
    run->n_held++;
    return s;
}

/* Frees the step's place when the owner has ended with it. */
static void end_if_over(struct ensemble_run *run, struct ensemble_step_run *s)
{
    if (!s->has_ended || !s->is_released)
        return;
    s->stage = ENSEMBLE_UNNEEDED;
    unuse_wave(run, s->wave);
}

static void release_step(struct ensemble_run *run, struct ensemble_step_run *s)
{
    s->is_released = true;
    run->n_held--;
    unuse_inputs(run, s);
}

static void count_ended_step(struct ensemble_run *run, struct ensemble_step_run *s)
{
    s->has_ended = true;
    run->n_running--;
}

void ensemble_run_release(struct ensemble_run *run, struct ensemble_step_run *s)
{
    release_step(run, s);
    end_if_over(run, s);
}

static struct ensemble_wave *make_wave(struct ensemble_run *run, uint32_t kind, void *data)
{
    struct ensemble_wave *w = pool_alloc(run->pool, wave_bytes(run->plan, kind), run->owner);
    if (!w)
        return NULL;
    init_wave(run, w, kind);
    w->data = data;
    return w;
}

/* The wave for the step's next outputs; NULL: the request has failed. */
static struct ensemble_wave *wave_of_outputs(struct ensemble_run *run, struct ensemble_step_run *s,
                                             void *data)
{
    const struct ensemble_step *step = &run->plan->steps[s->step];
    struct ensemble_wave *w = s->wave;
    if (ensemble_run_has_failed(run) || run->has_final)
        return NULL;
    if (step->makes != w->kind) {
        w = make_wave(run, step->makes, data);
        if (!w)
            ensemble_run_fail(run, status_no_memory());
    } else if (s->has_answered) {
        ensemble_run_fail(run,
                          status_new(STATUS_INTERNAL,
                                     "step %u, model '%s', has sent more than one response, but is "
                                     "not decoupled",
                                     s->step, run->plan->models[step->model].name));
        w = NULL;
    }
    s->has_answered = true;
    return w;
}

/* @outputs  NULL: all are absent */
static void take_step_outputs(struct ensemble_run *run, struct ensemble_step_run *s,
                              struct ensemble_value *const *outputs, void *wave_data)
{
    const struct ensemble_step *step = &run->plan->steps[s->step];
    struct ensemble_wave *w = wave_of_outputs(run, s, wave_data);
    if (w)
        w->n_uses++; /* it stays until all its tensors are set */
    for (uint32_t i = 0; i < step->n_outputs; i++) {
        struct ensemble_value *value = outputs ? outputs[i] : NULL;
        if (w)
            set_tensor(run, w, step->outputs[i].tensor, value);
        else
            value_gone(run, value);
    }
    if (w)
        unuse_wave(run, w);
}

void ensemble_run_skip(struct ensemble_run *run, struct ensemble_step_run *s)
{
    take_step_outputs(run, s, NULL, NULL);
    release_step(run, s);
    count_ended_step(run, s);
    end_if_over(run, s);
}

/*
 * Clients may compare the reference's text, so the step stands behind it. A cancel names none: it
 * ends whatever step there is.
 */
static struct status *name_step(const struct ensemble_run *run, const struct ensemble_step_run *s,
                                struct status *error)
{
    const struct ensemble_step *step = &run->plan->steps[s->step];
    if (ensemble_run_has_failed(run) || status_code(error) == STATUS_CANCELLED)
        return error;
    return status_suffix(error, " (step %u, model '%s')", s->step,
                         run->plan->models[step->model].name);
}

void ensemble_run_respond(struct ensemble_run *run, struct ensemble_step_run *s,
                          struct ensemble_value *const *outputs, void *wave_data, bool ended,
                          struct status *error)
{
    if (outputs)
        take_step_outputs(run, s, outputs, wave_data);
    if (error)
        ensemble_run_fail(run, name_step(run, s, error));
    if (!ended)
        return;
    count_ended_step(run, s);
    end_if_over(run, s);
}

/* ---- Answers --------------------------------------------------------------------------------- */

/* Does no step read the outputs any more? */
static bool is_unread(const struct ensemble_run *run, const struct ensemble_wave *w)
{
    const struct ensemble_plan *p = run->plan;
    for (uint32_t i = 0; i < p->n_outputs; i++) {
        if (ensemble_set_has(run->requested, i) &&
            w->tensors[p->tensors[p->outputs[i]].slot].n_uses > 1)
            return false;
    }
    return true;
}

/* The first wave that can be answered now, or NULL. */
static struct ensemble_wave *find_answerable(const struct ensemble_run *run)
{
    if (run->n_running && !ensemble_plan_is_decoupled(run->plan))
        return NULL;
    LIST_FOR_EACH (link, &run->complete) {
        struct ensemble_wave *w = LIST_ENTRY(link, struct ensemble_wave, complete);
        if (is_unread(run, w))
            return w;
    }
    return NULL;
}

static void take_wave_answer(struct ensemble_run *run, struct ensemble_wave *w,
                             struct ensemble_answer *ret_answer)
{
    list_remove(&w->complete);
    run->answering = w;
    run->has_responded = true;
    ret_answer->wave = run->answering;
    ret_answer->is_final =
        run->n_running == 0 && list_empty(&run->complete) && !ensemble_run_has_failed(run);
}

static void take_end(struct ensemble_run *run, struct ensemble_answer *ret_answer)
{
    ret_answer->is_final = true;
    ret_answer->error = TAKE(run->error);
    ret_answer->is_deadlock = !ensemble_run_has_failed(run) && !run->has_responded &&
                              !ensemble_plan_is_decoupled(run->plan);
}

bool ensemble_run_next_answer(struct ensemble_run *run, struct ensemble_answer *ret_answer)
{
    if (run->is_answering || run->has_final)
        return false;
    if (run->n_running && list_empty(&run->complete))
        return false; /* the usual case */
    *ret_answer = (struct ensemble_answer){0};
    struct ensemble_wave *w = find_answerable(run);
    if (w)
        take_wave_answer(run, w, ret_answer);
    else if (run->n_running == 0 && list_empty(&run->complete))
        take_end(run, ret_answer);
    else
        return false;
    run->is_answering = true;
    if (ret_answer->is_final) {
        run->has_final = true;
        drop_rest(run);
    }
    return true;
}

void ensemble_run_answered(struct ensemble_run *run)
{
    struct ensemble_wave *w = TAKE(run->answering);
    run->is_answering = false;
    if (w)
        unuse_outputs(run, w);
}

struct ensemble_value *ensemble_run_take_gone(struct ensemble_run *run)
{
    return TAKE(run->gone);
}
