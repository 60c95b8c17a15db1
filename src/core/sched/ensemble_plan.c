/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compiles in three passes: tensors by name, with their writers and readers; the kind of wave of
 * each tensor and step, in an order in which writers come before readers; the places in the waves.
 */
#include "core/sched/ensemble_plan.h"

#include <string.h>

#include "base/map.h"
#include "base/mem.h"
#include "base/status.h"
#include "core/config/config.h"
#include "core/config/ensemble.h"

enum { MAX_PLAN_BYTES = 64 << 20 };

typedef Inference__ModelEnsembling__Step step_config;

/* The plan while it is made: the same arrays, not constant yet. */
struct compiler {
    const Inference__ModelConfig *pb;
    const Inference__ModelEnsembling *config;
    struct ensemble_plan *plan;
    struct arena *arena;
    struct map by_name;        /* tensors */
    const char **of_decoupled; /* by kind: the model whose responses make it; for errors */
    struct ensemble_model *models;
    struct ensemble_step *steps;
    struct ensemble_tensor *tensors;
    struct ensemble_wave_kind *kinds;
};

/* An array of n zeroed items in the plan's arena; NULL without memory. */
static void *alloc_items(struct compiler *k, size_t n, size_t item_bytes)
{
    size_t bytes;
    if (__builtin_mul_overflow(n, item_bytes, &bytes))
        return NULL;
    void *items = arena_alloc(k->arena, bytes);
    return items ? memset(items, 0, bytes) : NULL;
}

/* ---- Tensors --------------------------------------------------------------------------------- */

static uint32_t find_or_add_tensor(struct compiler *k, char *name)
{
    struct ensemble_tensor *t = map_gets(&k->by_name, name);
    if (!t) {
        t = &k->tensors[k->plan->n_tensors++];
        *t = (struct ensemble_tensor){
            .name = name, .writer = ENSEMBLE_NONE, .input = ENSEMBLE_NONE, .output = ENSEMBLE_NONE};
        map_puts(&k->by_name, name, t);
    }
    return (uint32_t)(t - k->tensors);
}

static uint32_t find_or_add_model(struct compiler *k, const step_config *config)
{
    struct ensemble_plan *p = k->plan;
    for (uint32_t i = 0; i < p->n_models; i++) {
        const struct ensemble_model *m = &k->models[i];
        if (m->version == config->model_version && strcmp(m->name, config->model_name) == 0 &&
            strcmp(m->namespace, config->model_namespace) == 0)
            return i;
    }
    k->models[p->n_models] = (struct ensemble_model){.namespace = config->model_namespace,
                                                     .name = config->model_name,
                                                     .version = config->model_version};
    return p->n_models++;
}

NODISCARD static struct status *link_step(struct compiler *k, uint32_t index)
{
    const step_config *config = k->config->step[index];
    struct ensemble_step *s = &k->steps[index];
    struct ensemble_mapping *inputs = alloc_items(k, config->n_input_map, sizeof(*inputs));
    struct ensemble_mapping *outputs = alloc_items(k, config->n_output_map, sizeof(*outputs));
    if (!inputs || !outputs)
        return status_no_memory();
    s->model = find_or_add_model(k, config);
    s->inputs = inputs;
    s->outputs = outputs;
    s->condition = ENSEMBLE_NONE;
    for (size_t i = 0; i < config->n_input_map; i++) {
        uint32_t tensor = find_or_add_tensor(k, config->input_map[i]->value);
        k->tensors[tensor].n_readers++;
        if (strcmp(config->input_map[i]->key, ENSEMBLE_CONDITION) == 0)
            s->condition = tensor;
        else
            inputs[s->n_inputs++] = (struct ensemble_mapping){config->input_map[i]->key, tensor};
    }
    for (size_t i = 0; i < config->n_output_map; i++) {
        uint32_t tensor = find_or_add_tensor(k, config->output_map[i]->value);
        k->tensors[tensor].writer = index;
        outputs[s->n_outputs++] = (struct ensemble_mapping){config->output_map[i]->key, tensor};
    }
    return NULL;
}

/* Writes into an array of the plan, which is constant only for others. */
static void set_item(const uint32_t *items, uint32_t i, uint32_t value)
{
    ((uint32_t *)(uintptr_t)items)[i] = value;
}

NODISCARD static struct status *link_readers(struct compiler *k)
{
    struct ensemble_plan *p = k->plan;
    uint32_t *n_noted = alloc_items(k, p->n_tensors, sizeof(*n_noted));
    if (!n_noted)
        return status_no_memory();
    for (uint32_t i = 0; i < p->n_tensors; i++) {
        k->tensors[i].readers = alloc_items(k, k->tensors[i].n_readers, sizeof(uint32_t));
        if (!k->tensors[i].readers)
            return status_no_memory();
    }
    for (uint32_t i = 0; i < p->n_steps; i++) {
        const struct ensemble_step *s = &k->steps[i];
        for (uint32_t j = 0; j < s->n_inputs; j++) {
            uint32_t tensor = s->inputs[j].tensor;
            set_item(k->tensors[tensor].readers, n_noted[tensor]++, i);
        }
        if (s->condition != ENSEMBLE_NONE)
            set_item(k->tensors[s->condition].readers, n_noted[s->condition]++, i);
    }
    return NULL;
}

NODISCARD static struct status *link_own_tensors(struct compiler *k)
{
    struct ensemble_plan *p = k->plan;
    uint32_t *inputs = alloc_items(k, k->pb->n_input, sizeof(*inputs));
    uint32_t *outputs = alloc_items(k, k->pb->n_output, sizeof(*outputs));
    if (!inputs || !outputs)
        return status_no_memory();
    for (size_t i = 0; i < k->pb->n_input; i++) {
        inputs[i] = find_or_add_tensor(k, k->pb->input[i]->name);
        k->tensors[inputs[i]].input = p->n_inputs++;
    }
    for (size_t i = 0; i < k->pb->n_output; i++) {
        outputs[i] = find_or_add_tensor(k, k->pb->output[i]->name);
        k->tensors[outputs[i]].output = p->n_outputs++;
    }
    p->inputs = inputs;
    p->outputs = outputs;
    return NULL;
}

NODISCARD static struct status *link_all(struct compiler *k)
{
    struct ensemble_plan *p = k->plan;
    size_t n_steps = k->config->n_step, n_names = k->pb->n_input + k->pb->n_output;
    for (size_t i = 0; i < n_steps; i++)
        n_names += k->config->step[i]->n_input_map + k->config->step[i]->n_output_map;
    if (n_names >= UINT32_MAX)
        return status_new(STATUS_INVALID_ARG, "ensemble %s: %zu names of tensors are too many",
                          p->name, n_names);
    k->models = alloc_items(k, n_steps, sizeof(*k->models));
    k->steps = alloc_items(k, n_steps, sizeof(*k->steps));
    k->tensors = alloc_items(k, n_names, sizeof(*k->tensors));
    k->kinds = alloc_items(k, n_steps + 1, sizeof(*k->kinds));
    k->of_decoupled = alloc_items(k, n_steps + 1, sizeof(*k->of_decoupled));
    if (!k->models || !k->steps || !k->tensors || !k->kinds || !k->of_decoupled)
        return status_no_memory();
    p->models = k->models;
    p->steps = k->steps;
    p->tensors = k->tensors;
    p->kinds = k->kinds;
    p->n_steps = (uint32_t)n_steps;
    struct status *st = link_own_tensors(k);
    for (uint32_t i = 0; i < p->n_steps && !st; i++)
        st = link_step(k, i);
    return st ? st : link_readers(k);
}

/* ---- Kinds of waves -------------------------------------------------------------------------- */

NODISCARD static struct status *several_sources(const struct compiler *k, const char *model)
{
    return status_new(
        STATUS_INVALID_ARG,
        "in ensemble %s, step of model '%s' receives inputs originated from different "
        "decoupled models",
        k->plan->name, model);
}

/* The kind of what reads these tensors. */
NODISCARD static struct status *join_kinds(const struct compiler *k, const char *model,
                                           uint32_t tensor, uint32_t *kind)
{
    if (*kind != ENSEMBLE_NONE && *kind != k->tensors[tensor].kind)
        return several_sources(k, model);
    *kind = k->tensors[tensor].kind;
    return NULL;
}

NODISCARD static struct status *set_kind_of_step(struct compiler *k, uint32_t index, bool decoupled)
{
    struct ensemble_plan *p = k->plan;
    struct ensemble_step *s = &k->steps[index];
    const char *model = k->models[s->model].name;
    struct status *st = NULL;
    s->kind = ENSEMBLE_NONE;
    for (uint32_t i = 0; i < s->n_inputs && !st; i++)
        st = join_kinds(k, model, s->inputs[i].tensor, &s->kind);
    if (!st && s->condition != ENSEMBLE_NONE)
        st = join_kinds(k, model, s->condition, &s->kind);
    if (st)
        return st;
    s->makes = s->kind;
    if (decoupled) {
        s->makes = p->n_kinds++;
        k->kinds[s->makes].step = index;
    }
    for (uint32_t i = 0; i < s->n_outputs; i++)
        k->tensors[s->outputs[i].tensor].kind = s->makes;
    return NULL;
}

NODISCARD static struct status *set_order(struct compiler *k, const struct model_config *c)
{
    const size_t *order = NULL;
    struct status *st = ensemble_order(c, k->arena, &order);
    if (st)
        return st;
    uint32_t *steps = alloc_items(k, k->plan->n_steps, sizeof(*steps));
    if (!steps)
        return status_no_memory();
    for (uint32_t i = 0; i < k->plan->n_steps; i++)
        steps[i] = (uint32_t)order[i];
    k->plan->order = steps;
    return NULL;
}

NODISCARD static struct status *set_kinds(struct compiler *k, const bool *decoupled)
{
    struct ensemble_plan *p = k->plan;
    struct status *st = NULL;
    uint32_t kind = ENSEMBLE_NONE;
    k->kinds[p->n_kinds++].step = ENSEMBLE_NONE;
    for (uint32_t i = 0; i < p->n_steps && !st; i++)
        st = set_kind_of_step(k, p->order[i], decoupled[p->order[i]]);
    for (uint32_t i = 0; i < p->n_outputs && !st; i++)
        st = join_kinds(k, p->name, p->outputs[i], &kind);
    p->answer_kind = kind;
    return st;
}

/* Gives each tensor and each step its place in its kind of wave. */
NODISCARD static struct status *set_slots(struct compiler *k)
{
    struct ensemble_plan *p = k->plan;
    for (uint32_t i = 0; i < p->n_tensors; i++)
        k->tensors[i].slot = k->kinds[k->tensors[i].kind].n_tensors++;
    for (uint32_t i = 0; i < p->n_steps; i++)
        k->steps[i].slot = k->kinds[k->steps[i].kind].n_steps++;
    for (uint32_t i = 0; i < p->n_kinds; i++) {
        struct ensemble_wave_kind *w = &k->kinds[i];
        w->tensors = alloc_items(k, w->n_tensors, sizeof(*w->tensors));
        w->steps = alloc_items(k, w->n_steps, sizeof(*w->steps));
        w->n_uses = alloc_items(k, w->n_tensors, sizeof(*w->n_uses));
        if (!w->tensors || !w->steps || !w->n_uses)
            return status_no_memory();
    }
    for (uint32_t i = 0; i < p->n_tensors; i++) {
        const struct ensemble_tensor *t = &k->tensors[i];
        set_item(k->kinds[t->kind].tensors, t->slot, i);
        set_item(k->kinds[t->kind].n_uses, t->slot, t->n_readers + (t->output != ENSEMBLE_NONE));
    }
    for (uint32_t i = 0; i < p->n_steps; i++)
        set_item(k->kinds[k->steps[i].kind].steps, k->steps[i].slot, i);
    return NULL;
}

/* ---- What an output needs -------------------------------------------------------------------- */

static void need_writer(const struct ensemble_plan *p, uint64_t *steps, uint32_t tensor)
{
    if (tensor != ENSEMBLE_NONE && p->tensors[tensor].writer != ENSEMBLE_NONE)
        ensemble_set_add(steps, p->tensors[tensor].writer);
}

void ensemble_plan_need(const struct ensemble_plan *p, uint32_t output, uint64_t *steps)
{
    need_writer(p, steps, p->outputs[output]);
    for (uint32_t i = p->n_steps; i-- > 0;) { /* readers before writers, so one pass is enough */
        const struct ensemble_step *s = &p->steps[p->order[i]];
        if (!ensemble_set_has(steps, p->order[i]))
            continue;
        for (uint32_t j = 0; j < s->n_inputs; j++)
            need_writer(p, steps, s->inputs[j].tensor);
        need_writer(p, steps, s->condition);
    }
}

/* A prepared configuration has no step that no output needs. */
NODISCARD static struct status *set_all(struct compiler *k)
{
    struct ensemble_plan *p = k->plan;
    uint64_t *steps = alloc_items(k, ensemble_set_words(p->n_steps), sizeof(*steps));
    uint64_t *outputs = alloc_items(k, ensemble_set_words(p->n_outputs), sizeof(*outputs));
    if (!steps || !outputs)
        return status_no_memory();
    for (uint32_t i = 0; i < p->n_steps; i++)
        ensemble_set_add(steps, i);
    for (uint32_t i = 0; i < p->n_outputs; i++)
        ensemble_set_add(outputs, i);
    p->all_steps = steps;
    p->all_outputs = outputs;
    return NULL;
}

/* ------------------------------------------------------------------------------------------ */

struct status *ensemble_plan_new(const struct model_config *c, const bool *decoupled,
                                 struct ensemble_plan **ret_plan)
{
    struct ensemble_plan *p = mem_zalloc(sizeof(*p));
    arena_init(&p->arena, NULL, 0, MAX_PLAN_BYTES, NULL, NULL);
    p->name = c->pb->name;
    p->max_inflight_requests = c->pb->ensemble_scheduling->max_inflight_requests;
    struct compiler k = {.pb = c->pb,
                         .config = c->pb->ensemble_scheduling,
                         .plan = p,
                         .arena = &p->arena,
                         .by_name = MAP_INIT};
    struct status *st = link_all(&k);
    if (!st)
        st = set_order(&k, c);
    if (!st)
        st = set_kinds(&k, decoupled);
    if (!st)
        st = set_slots(&k);
    if (!st)
        st = set_all(&k);
    map_done(&k.by_name);
    if (st)
        ensemble_plan_free(p);
    else
        *ret_plan = p;
    return st;
}

void ensemble_plan_free(struct ensemble_plan *p)
{
    if (!p)
        return;
    arena_reset(&p->arena);
    mem_free(p);
}

uint32_t ensemble_plan_find_output(const struct ensemble_plan *p, const char *name)
{
    for (uint32_t i = 0; i < p->n_outputs; i++) {
        if (strcmp(p->tensors[p->outputs[i]].name, name) == 0)
            return i;
    }
    return ENSEMBLE_NONE;
}
