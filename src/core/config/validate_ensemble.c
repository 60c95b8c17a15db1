/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rules of an ensemble that need only its own configuration (reference/behaviours §14.14):
 * every tensor must be reached from the inputs, and must be used. The declarations of the composing
 * models are checked where these are known.
 *
 * A tensor is ready when it is an input of the ensemble, or when all tensors are ready that its
 * step reads. Readiness spreads through a work list, so the time is linear in the number of map
 * entries.
 */
#include <string.h>

#include "base/arena.h"
#include "base/map.h"
#include "base/status.h"
#include "core/config/config.h"
#include "core/config/config_priv.h"
#include "core/config/ensemble.h"

struct step;

/* One use of a tensor by a step. */
struct use {
    struct use *next; /* of the same tensor */
    struct step *step;
};

struct tensor {
    const char *name;
    struct step *writer; /* NULL: none */
    struct use *readers;
    struct tensor *next_ready; /* in the work list */
    struct tensor *next_made;  /* in the order of first mention */
    bool ready;
    bool is_output;
};

struct step {
    struct tensor **reads, **writes;
    size_t n_reads, n_writes;
    size_t n_missing; /* reads that are not ready yet */
};

struct graph {
    const struct model_config *config;
    struct arena arena;
    struct map tensors;
    struct tensor *first_made, **last_made;
    struct tensor *work;
    struct step *steps;
    size_t *order; /* the steps by index, as they become ready; NULL: not wanted */
    size_t n_ordered;
    size_t n_faults_before; /* that a listener has got */
};

static struct tensor *tensor_named(struct graph *g, const char *name)
{
    struct tensor *t = map_gets(&g->tensors, name);
    if (t)
        return t;
    t = arena_alloc(&g->arena, sizeof(*t));
    if (!t)
        return NULL;
    *t = (struct tensor){.name = name};
    map_puts(&g->tensors, name, t);
    *g->last_made = t;
    g->last_made = &t->next_made;
    return t;
}

NODISCARD static struct status *link_outputs(struct graph *g, struct step *s, size_t index)
{
    const Inference__ModelConfig *pb = g->config->pb;
    const Inference__ModelEnsembling__Step *step = pb->ensemble_scheduling->step[index];
    s->writes = arena_alloc(&g->arena, step->n_output_map * sizeof(struct tensor *));
    if (!s->writes)
        return status_no_memory();
    struct status *st = NULL;
    for (size_t i = 0; i < step->n_output_map && !st; i++) {
        struct tensor *t = tensor_named(g, step->output_map[i]->value);
        if (!t)
            return status_no_memory();
        if (t->writer)
            st = config_fail(g->config, at_element(step, "output_map", i),
                             "ensemble tensor '%s' can appear in an output map only once for "
                             "ensemble '%s' step %zu",
                             t->name, pb->name, index);
        t->writer = s;
        s->writes[s->n_writes++] = t;
    }
    return st;
}

NODISCARD static struct status *link_inputs(struct graph *g, struct step *s,
                                            const Inference__ModelEnsembling__Step *step)
{
    s->reads = arena_alloc(&g->arena, step->n_input_map * sizeof(struct tensor *));
    if (!s->reads)
        return status_no_memory();
    for (size_t i = 0; i < step->n_input_map; i++) {
        struct tensor *t = tensor_named(g, step->input_map[i]->value);
        struct use *use = arena_alloc(&g->arena, sizeof(*use));
        if (!t || !use)
            return status_no_memory();
        *use = (struct use){.next = t->readers, .step = s};
        t->readers = use;
        s->reads[s->n_reads++] = t;
    }
    s->n_missing = s->n_reads;
    return NULL;
}

NODISCARD static struct status *link_steps(struct graph *g)
{
    const Inference__ModelConfig *pb = g->config->pb;
    const Inference__ModelEnsembling *e = pb->ensemble_scheduling;
    g->steps = arena_alloc(&g->arena, e->n_step * sizeof(struct step));
    if (!g->steps)
        return status_no_memory();
    struct status *st = NULL;
    for (size_t i = 0; i < e->n_step && !st; i++) {
        const Inference__ModelEnsembling__Step *step = e->step[i];
        const char *missing = !*step->model_name    ? "model_name"
                              : !step->n_input_map  ? "input_map"
                              : !step->n_output_map ? "output_map"
                                                    : NULL;
        g->steps[i] = (struct step){0};
        if (missing)
            st =
                config_fail(g->config, at_message(step),
                            "must specify '%s' in step %zu of ensemble '%s'", missing, i, pb->name);
        if (!st)
            st = link_outputs(g, &g->steps[i], i);
        if (!st)
            st = link_inputs(g, &g->steps[i], step);
    }
    return st;
}

static void make_ready(struct graph *g, struct tensor *t)
{
    if (t->ready)
        return;
    t->ready = true;
    t->next_ready = g->work;
    g->work = t;
}

NODISCARD static struct status *start_from_inputs(struct graph *g)
{
    const Inference__ModelConfig *pb = g->config->pb;
    struct status *st = NULL;
    for (size_t i = 0; i < pb->n_input && !st; i++) {
        struct tensor *t = map_gets(&g->tensors, pb->input[i]->name);
        if (t)
            make_ready(g, t);
        else /* the odd quote is the reference's */
            st = config_fail(g->config, at_field(pb->input[i], "name"),
                             "ensemble input '%s' for ensemble %s' is not used", pb->input[i]->name,
                             pb->name);
    }
    return st;
}

/* The tensors of conditions come from somewhere: so the error is where the name is. */
NODISCARD static struct status *validate_conditions(struct graph *g)
{
    const Inference__ModelEnsembling *e = g->config->pb->ensemble_scheduling;
    struct status *st = NULL;
    for (size_t i = 0; i < e->n_step && !st; i++) {
        for (size_t k = 0; k < e->step[i]->n_input_map && !st; k++) {
            const Inference__ModelEnsembling__Step__InputMapEntry *entry = e->step[i]->input_map[k];
            const struct tensor *t = map_gets(&g->tensors, entry->value);
            if (strcmp(entry->key, ENSEMBLE_CONDITION) == 0 && !t->writer && !t->ready)
                st = config_fail(g->config, at_element(e->step[i], "input_map", k),
                                 "ensemble tensor '%s', the " ENSEMBLE_CONDITION
                                 " of step %zu of ensemble '%s', is neither an input of the "
                                 "ensemble nor an output of a step",
                                 t->name, i, g->config->pb->name);
        }
    }
    return st;
}

static void propagate_readiness(struct graph *g)
{
    while (g->work) {
        struct tensor *t = g->work;
        g->work = t->next_ready;
        for (struct use *use = t->readers; use; use = use->next) {
            struct step *s = use->step;
            if (--s->n_missing)
                continue;
            if (g->order)
                g->order[g->n_ordered++] = (size_t)(s - g->steps);
            for (size_t i = 0; i < s->n_writes; i++)
                make_ready(g, s->writes[i]);
        }
    }
}

NODISCARD static struct status *validate_ensemble_output(struct graph *g,
                                                         const Inference__ModelOutput *output)
{
    const char *name = output->name, *ensemble = g->config->pb->name, *open = NULL;
    struct config_position position = at_field(output, "name");
    struct tensor *t = map_gets(&g->tensors, name);
    if (!t)
        return config_fail(g->config, position, "ensemble output '%s' for ensemble %s' is not used",
                           name, ensemble);
    if (t->ready) {
        t->is_output = true;
        return NULL;
    }
    for (size_t k = 0; t->writer && k < t->writer->n_reads && !open; k++) {
        if (!t->writer->reads[k]->ready)
            open = t->writer->reads[k]->name;
    }
    if (!open)
        return config_fail(g->config, position, "output '%s' for ensemble '%s' is not written",
                           name, ensemble);
    return config_fail(g->config, position,
                       "output '%s' for ensemble '%s' is not written: at least one of its "
                       "depending tensors, '%s', is not connected",
                       name, ensemble, open);
}

NODISCARD static struct status *validate_unused(struct graph *g)
{
    struct status *st = NULL;
    for (struct tensor *t = g->first_made; t && !st; t = t->next_made) {
        if (!t->is_output && (!t->ready || !t->readers))
            st = config_fail(g->config, at_field(g->config->pb, "ensemble_scheduling"),
                             "ensemble tensor '%s' is unused in ensemble '%s'", t->name,
                             g->config->pb->name);
    }
    return st;
}

/* Has a listener got a fault that would cause another one further on? */
static bool is_spoilt(const struct graph *g)
{
    return g->config->listener && g->config->listener->n_faults > g->n_faults_before;
}

static void graph_init(struct graph *g, const struct model_config *c)
{
    *g = (struct graph){.config = c, .tensors = MAP_INIT};
    g->last_made = &g->first_made;
    g->n_faults_before = c->listener ? c->listener->n_faults : 0;
    arena_init(&g->arena, NULL, 0, CONFIG_MAX_MEMORY, NULL, NULL);
}

static void graph_done(struct graph *g)
{
    map_done(&g->tensors);
    arena_reset(&g->arena);
}

struct status *ensemble_order(const struct model_config *c, struct arena *arena,
                              const size_t **ret_steps)
{
    size_t n = c->pb->ensemble_scheduling->n_step;
    struct graph g;
    graph_init(&g, c);
    g.order = arena_alloc(arena, n * sizeof(*g.order));
    struct status *st = g.order ? link_steps(&g) : status_no_memory();
    if (!st)
        st = start_from_inputs(&g);
    if (!st) {
        propagate_readiness(&g);
        BUG_ON(g.n_ordered != n); /* otherwise a tensor would not be ready, which is a fault */
        *ret_steps = g.order;
    }
    graph_done(&g);
    return st;
}

NODISCARD static struct status *validate_graph(const struct model_config *c)
{
    const Inference__ModelConfig *pb = c->pb;
    struct graph g;
    graph_init(&g, c);
    struct status *st = link_steps(&g);
    if (!st && !is_spoilt(&g))
        st = start_from_inputs(&g);
    if (!st && !is_spoilt(&g))
        st = validate_conditions(&g);
    if (!st && !is_spoilt(&g)) {
        propagate_readiness(&g);
        for (size_t i = 0; i < pb->n_output && !st; i++)
            st = validate_ensemble_output(&g, pb->output[i]);
    }
    if (!st && !is_spoilt(&g))
        st = validate_unused(&g);
    graph_done(&g);
    return st;
}

struct status *config_validate_ensemble(const struct model_config *c)
{
    const Inference__ModelConfig *pb = c->pb;
    const char *name = pb->name;

    if (strcmp(pb->platform, "ensemble") != 0)
        return config_fail(
            c,
            advised(at_field(pb, "ensemble_scheduling"), "an ensemble has platform: \"ensemble\""),
            "ensemble scheduling cannot be set for model '%s' whose platform is "
            "not ensemble",
            name);
    if (pb->n_instance_group)
        return config_fail(c, at_field(pb, "instance_group"),
                           "instance group should not be specified for ensemble '%s'", name);
    if (pb->optimization)
        return config_fail(c, at_field(pb, "optimization"),
                           "optimization should not be specified for ensemble '%s'", name);
    if (pb->n_model_warmup)
        return config_fail(c, at_field(pb, "model_warmup"),
                           "model_warmup can not be specified for ensemble '%s'", name);
    if (pb->ensemble_scheduling->n_step == 0)
        return config_fail(c, at_field(pb, "ensemble_scheduling"),
                           "must specify 'step' for ensemble '%s'", name);
    return validate_graph(c);
}
