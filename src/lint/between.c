/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Faults between models: equal names, and ensembles.
 */
#include <string.h>

#include "base/map.h"
#include "base/mem.h"
#include "base/status.h"
#include "base/str.h"
#include "core/config/ensemble.h"
#include "core/storage/storage.h"
#include "lint/lint.h"

/* A suggestion compares a name with all models, so only this many are made. */
enum { MAX_SUGGESTIONS = 50 };

struct between {
    struct lint_run *run;
    struct map by_name; /* the first model of each name; others of that name follow it */
    const struct lint_model *asking; /* the ensemble whose models are searched */
    bool even_wrong;                 /* find models that cannot be served, too */
    size_t n_suggestions;
    char *advice; /* about the last model searched */
};

static void add_to_model(struct lint_model *m, enum lint_code code, const char *fmt,
                         const char *first, const char *second)
{
    char *text = mem_printf("%s '%s' and '%s'", fmt, first, second);
    char *folder = storage_path(m->storage, m->name);
    lint_add(&m->found, code, (struct lint_position){.file = folder}, NULL, "%s", text);
    mem_free(folder);
    mem_free(text);
}

static bool have_same_name(const struct lint_model *a, const struct lint_model *b)
{
    return strcmp(a->name, b->name) == 0;
}

/* ---- names ----------------------------------------------------------------------------------- */

static void report_duplicates(struct lint_run *run)
{
    for (size_t i = 1; i < run->n_models && !run->options->model_namespacing; i++) {
        struct lint_model *a = &run->models[i - 1], *b = &run->models[i];
        if (!have_same_name(a, b))
            continue;
        add_to_model(b, LINT_DUPLICATE,
                     "model appears in two or more repositories:", a->storage->root,
                     b->storage->root);
    }
}

static void check_name_case(struct lint_run *run)
{
    struct map seen = MAP_INIT;
    char **folded = mem_zalloc((run->n_models + 1) * sizeof(*folded));
    for (size_t i = 0; i < run->n_models; i++) {
        struct lint_model *m = &run->models[i];
        folded[i] = mem_strdup(m->name);
        for (char *c = folded[i]; *c; c++)
            *c = (char)(*c >= 'A' && *c <= 'Z' ? *c - 'A' + 'a' : *c);
        const struct lint_model *other = map_puts(&seen, folded[i], m);
        if (other && !have_same_name(other, m))
            add_to_model(m, LINT_NAME_CASE,
                         "only the case of letters tells these models apart:", other->name,
                         m->name);
    }
    map_done(&seen);
    for (size_t i = 0; i < run->n_models; i++)
        mem_free(folded[i]);
    mem_free(folded);
}

/* ---- Looking models up ----------------------------------------------------------------------- */

/* Finds the model that a step names: among several of that name the one in the step's namespace,
 * or otherwise the one beside the ensemble. NULL if there is none, or more than one fits. */
static struct lint_model *find_model(const struct between *b,
                                     const Inference__ModelEnsembling__Step *step)
{
    struct lint_model *first = map_gets(&b->by_name, step->model_name), *found = NULL;
    struct lint_model *end = b->run->models + b->run->n_models;
    size_t n = 0;
    for (struct lint_model *m = first; m && m < end && have_same_name(m, first); m++) {
        bool fits = !*step->model_namespace || strcmp(m->storage->root, step->model_namespace) == 0;
        if (fits && !*step->model_namespace && m->root == b->asking->root &&
            b->run->options->model_namespacing)
            return m;
        if (fits) {
            found = m;
            n++;
        }
    }
    return n == 1 ? found : NULL;
}

static void suggest_model(struct between *b, const char *name)
{
    const char *best = NULL;
    size_t least = SIZE_MAX;
    if (b->n_suggestions++ >= MAX_SUGGESTIONS)
        return;
    for (size_t i = 0; i < b->run->n_models; i++) {
        if (str_nearer(name, b->run->models[i].name, &least))
            best = b->run->models[i].name;
    }
    if (best && strcmp(best, name) != 0)
        b->advice = mem_printf("did you mean \"%s\"?", best);
}

static bool has_version(const struct lint_model *m, int64_t version)
{
    for (size_t i = 0; i < m->n_versions; i++) {
        if (m->versions[i] == version)
            return true;
    }
    return version == -1 && m->n_versions > 0;
}

static enum ensemble_answer find_member(void *arg, const Inference__ModelEnsembling__Step *step,
                                        struct ensemble_member *ret_member)
{
    struct between *b = arg;
    struct lint_model *m = find_model(b, step);
    mem_free(TAKE(b->advice));
    if (!m) {
        suggest_model(b, step->model_name);
        ret_member->advice = b->advice;
        return ENSEMBLE_NO_MODEL;
    }
    ret_member->why = m->first_error;
    if (m->first_error)
        return m->is_ensemble ? ENSEMBLE_INVALID : ENSEMBLE_NO_VERSION;
    if (!has_version(m, step->model_version))
        return ENSEMBLE_NO_VERSION;
    if (!m->config)
        lint_read_again(b->run, m);
    if (!m->config)
        return ENSEMBLE_NO_MODEL; /* it has vanished meanwhile */
    ret_member->pb = m->config->pb;
    ret_member->is_complete = m->is_complete;
    return ENSEMBLE_FOUND;
}

/* ---- ensembles ------------------------------------------------------------------------------- */

/* Returns the input of that name that the model requires; NULL: it has none, or an optional one. */
static const Inference__ModelInput *find_required(const struct lint_model *m, const char *name)
{
    const Inference__ModelConfig *pb = m->config->pb;
    for (size_t i = 0; i < pb->n_input; i++) {
        if (strcmp(pb->input[i]->name, name) == 0)
            return pb->input[i]->optional ? NULL : pb->input[i];
    }
    return NULL;
}

/* An optional input that is omitted does not reach a model that requires it. */
static void check_optional_inputs(const struct between *b, struct lint_model *m)
{
    const Inference__ModelConfig *pb = m->config->pb;
    const Inference__ModelEnsembling *e = pb->ensemble_scheduling;
    struct map optional = MAP_INIT;
    for (size_t i = 0; i < pb->n_input; i++) {
        if (pb->input[i]->optional)
            map_puts(&optional, pb->input[i]->name, pb->input[i]);
    }
    for (size_t i = 0; i < e->n_step && optional.count; i++) {
        const struct lint_model *member = find_model(b, e->step[i]);
        for (size_t k = 0; k < e->step[i]->n_input_map && member && member->config; k++) {
            const Inference__ModelEnsembling__Step__InputMapEntry *entry = e->step[i]->input_map[k];
            const Inference__ModelInput *input = map_gets(&optional, entry->value);
            if (!input || !find_required(member, entry->key))
                continue;
            struct lint_position position = {.file = m->config_path};
            model_config_where(m->config, input, "optional", 0, &position.line, &position.column);
            lint_add(&m->found, LINT_OPTIONAL, position, NULL,
                     "input '%s' is optional, but input '%s' of model '%s', to which it leads, is "
                     "not",
                     input->name, entry->key, member->name);
        }
    }
    map_done(&optional);
}

/* The tensor that decides whether the step runs; NULL: it always runs. */
static const char *find_condition(const Inference__ModelEnsembling__Step *step)
{
    const char *found = NULL;
    for (size_t i = 0; i < step->n_input_map; i++) {
        if (strcmp(step->input_map[i]->key, ENSEMBLE_CONDITION) == 0)
            found = step->input_map[i]->value;
    }
    return found;
}

static void check_reads_of_skipped(const struct between *b, struct lint_model *m, size_t index,
                                   const struct map *conditions)
{
    const Inference__ModelEnsembling__Step *step = m->config->pb->ensemble_scheduling->step[index];
    const struct lint_model *member = find_model(b, step);
    const char *own = find_condition(step);
    for (size_t i = 0; i < step->n_input_map && member && member->config; i++) {
        const Inference__ModelEnsembling__Step__InputMapEntry *entry = step->input_map[i];
        const char *condition = map_gets(conditions, entry->value);
        if (!condition || (own && strcmp(own, condition) == 0) ||
            !find_required(member, entry->key))
            continue;
        struct lint_position position = {.file = m->config_path};
        model_config_where(m->config, step, "input_map", i, &position.line, &position.column);
        lint_add(&m->found, LINT_OPTIONAL, position, NULL,
                 "tensor '%s' is absent when " ENSEMBLE_CONDITION
                 " '%s' skips its step, but input '%s' of model '%s', to which it leads, is not "
                 "optional",
                 entry->value, condition, entry->key, member->name);
    }
}

/* Outputs of a step that is skipped do not reach a model that requires them, unless that one is
 * skipped with it. */
static void check_skipped_steps(const struct between *b, struct lint_model *m)
{
    const Inference__ModelEnsembling *e = m->config->pb->ensemble_scheduling;
    struct map conditions = MAP_INIT; /* by the tensors that steps with a condition write */
    for (size_t i = 0; i < e->n_step; i++) {
        const char *condition = find_condition(e->step[i]);
        for (size_t k = 0; k < e->step[i]->n_output_map && condition; k++)
            map_puts(&conditions, e->step[i]->output_map[k]->value, (void *)(uintptr_t)condition);
    }
    for (size_t i = 0; i < e->n_step && conditions.count; i++)
        check_reads_of_skipped(b, m, i, &conditions);
    map_done(&conditions);
}

static void note_first_error(struct lint_model *m)
{
    for (size_t i = 0; i < m->found.n && !m->first_error; i++) {
        const struct lint_finding *item = &m->found.items[i];
        if (item->code == LINT_ENSEMBLE || item->code == LINT_DUPLICATE)
            m->first_error = item->text;
    }
}

static void check_ensemble(struct between *b, struct lint_model *m)
{
    struct lint_fault_sink sink = {
        .found = &m->found, .file = m->config_path, .rule = LINT_ENSEMBLE};
    struct config_listener listener = {.on_fault = lint_on_fault, .arg = &sink};
    const struct ensemble_lookup lookup = {.find = find_member, .arg = b};
    if (m->first_error)
        return;
    b->asking = m;
    m->config->listener = &listener;
    struct status *st = ensemble_check(m->config, &lookup);
    m->config->listener = NULL;
    if (st)
        lint_add(&m->found, LINT_READ, (struct lint_position){.file = m->config_path}, NULL, "%s",
                 status_message(st));
    status_free(st);
    note_first_error(m);
}

/* ---- Cycles, and the order of ensembles ------------------------------------------------------ */

/*
 * A depth-first walk, which orders the ensembles: parts before wholes. A part that is still on the
 * stack closes a cycle of all ensembles on the stack from it on. (An ensemble that reaches the
 * cycle later, by a part that is ordered already, depends on one that is not valid.) Each ensemble
 * is reported in one cycle, so the time is linear in the number of steps.
 */
struct walk {
    struct between *b;
    struct node {
        enum { NOT_SEEN, ON_STACK, ORDERED } state;
        size_t position;  /* on the stack */
        size_t next_step; /* the step before leads to the next one on the stack */
    } * nodes;            /* by model */
    struct lint_model **order, **stack;
    size_t n_ordered, n_stack;
    size_t *sound; /* the stack positions of ensembles without a cycle so far, ascending */
    size_t n_sound;
};

static struct node *node_of(const struct walk *w, const struct lint_model *m)
{
    return &w->nodes[m - w->b->run->models];
}

static void push_model(struct walk *w, struct lint_model *m)
{
    *node_of(w, m) = (struct node){.state = ON_STACK, .position = w->n_stack};
    w->sound[w->n_sound++] = w->n_stack;
    w->stack[w->n_stack++] = m;
}

static void pop_model(struct walk *w)
{
    struct lint_model *m = w->stack[--w->n_stack];
    node_of(w, m)->state = ORDERED;
    w->order[w->n_ordered++] = m;
    if (w->n_sound && w->sound[w->n_sound - 1] == w->n_stack)
        w->n_sound--;
}

/* The top of the stack has this ensemble, which is below it, as its part. */
static void close_cycle(struct walk *w, const struct lint_model *part)
{
    size_t from = node_of(w, part)->position;
    while (w->n_sound && w->sound[w->n_sound - 1] >= from) {
        size_t at = w->sound[--w->n_sound];
        struct lint_model *m = w->stack[at];
        const struct lint_model *through = w->stack[at == from ? w->n_stack - 1 : at - 1];
        const Inference__ModelEnsembling *e = m->config->pb->ensemble_scheduling;
        struct lint_fault_sink sink = {
            .found = &m->found, .file = m->config_path, .rule = LINT_ENSEMBLE};
        struct config_listener listener = {.on_fault = lint_on_fault, .arg = &sink};
        m->config->listener = &listener;
        status_free(
            ensemble_fail_cycle(m->config, through->name, e->step[node_of(w, m)->next_step - 1]));
        m->config->listener = NULL;
        note_first_error(m);
    }
}

/* Returns the next part of an ensemble that has not been visited; NULL if there is none. */
static struct lint_model *next_part(struct walk *w, const struct lint_model *m)
{
    const Inference__ModelEnsembling *e = m->config->pb->ensemble_scheduling;
    struct node *node = node_of(w, m);
    w->b->asking = m;
    while (node->next_step < e->n_step) {
        struct lint_model *part = find_model(w->b, e->step[node->next_step++]);
        if (!part || !part->is_ensemble)
            continue;
        if (node_of(w, part)->state == NOT_SEEN)
            return part;
        if (node_of(w, part)->state == ON_STACK)
            close_cycle(w, part);
    }
    return NULL;
}

static void walk_from(struct walk *w, struct lint_model *first)
{
    push_model(w, first);
    while (w->n_stack) {
        struct lint_model *part = next_part(w, w->stack[w->n_stack - 1]);
        if (part)
            push_model(w, part);
        else
            pop_model(w);
    }
}

static void check_ensembles(struct between *b)
{
    size_t n = b->run->n_models;
    struct walk w = {.b = b,
                     .nodes = mem_zalloc((n + 1) * sizeof(struct node)),
                     .order = mem_zalloc((n + 1) * sizeof(struct lint_model *)),
                     .stack = mem_zalloc((n + 1) * sizeof(struct lint_model *)),
                     .sound = mem_zalloc((n + 1) * sizeof(size_t))};
    for (size_t i = 0; i < n; i++) {
        if (b->run->models[i].is_ensemble && w.nodes[i].state == NOT_SEEN)
            walk_from(&w, &b->run->models[i]);
    }
    for (size_t i = 0; i < w.n_ordered; i++) {
        check_ensemble(b, w.order[i]);
        check_optional_inputs(b, w.order[i]);
        check_skipped_steps(b, w.order[i]);
    }
    mem_free(w.sound);
    mem_free(w.stack);
    mem_free(w.order);
    mem_free(w.nodes);
}

void lint_check_between(struct lint_run *run)
{
    struct between b = {.run = run, .by_name = MAP_INIT};
    report_duplicates(run);
    check_name_case(run);
    for (size_t i = run->n_models; i-- > 0;)
        map_puts(&b.by_name, run->models[i].name, &run->models[i]);
    check_ensembles(&b);
    map_done(&b.by_name);
    mem_free(b.advice);
}
