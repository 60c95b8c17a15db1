/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Walks the steps in the order of the configuration, and notes of each ensemble tensor its first
 * declaration: by the ensemble's own inputs and outputs, or by the first model that is connected to
 * it. Every later declaration must agree.
 */
#include "core/config/ensemble.h"

#include <inttypes.h>
#include <string.h>
#include <strings.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/map.h"
#include "base/status.h"
#include "base/str.h"
#include "core/config/config_priv.h"

enum { MAX_SHAPE_TEXT = 512, MAX_NAMES_TEXT = 4096 };

typedef Inference__ModelEnsembling__Step step_config;

/* One declaration of a tensor. */
struct said {
    const char *model;
    Inference__DataType type;
    bool batching; /* the shape begins with a batch dimension */
    size_t n_dims;
    const int64_t *dims;
};

struct check {
    const struct model_config *config;
    const char *name; /* of the ensemble */
    struct arena arena;
    struct map tensors;              /* of struct said, by the ensemble's names */
    struct ensemble_member *members; /* by step; pb NULL: not found */
};

/* ---- shapes ---------------------------------------------------------------------------------- */

static size_t n_full(const struct said *s)
{
    return s->n_dims + s->batching;
}

static int64_t full_dim(const struct said *s, size_t i)
{
    return !s->batching ? s->dims[i] : i == 0 ? -1 : s->dims[i - 1];
}

static bool same_dim(int64_t a, int64_t b)
{
    return a == b || a == -1 || b == -1;
}

/* Compares without batch dimensions, or with the existing ones: a model that batches may be
 * connected to one that does not, if one of these fits (reference/behaviours §12.3). */
static bool are_shapes_compatible(const struct said *a, const struct said *b)
{
    bool plain = a->n_dims == b->n_dims, full = n_full(a) == n_full(b);
    for (size_t i = 0; plain && i < a->n_dims; i++)
        plain = same_dim(a->dims[i], b->dims[i]);
    for (size_t i = 0; full && i < n_full(a); i++)
        full = same_dim(full_dim(a, i), full_dim(b, i));
    return plain || full;
}

static void print_said_shape(struct buf *out, const struct said *s)
{
    buf_addc(out, '[');
    for (size_t i = 0; i < n_full(s); i++)
        buf_addf(out, "%s%" PRId64, i ? "," : "", full_dim(s, i));
    buf_addc(out, ']');
}

static const char *get_type_name(Inference__DataType type)
{
    const ProtobufCEnumValue *v =
        protobuf_c_enum_descriptor_get_value(&inference__data_type__descriptor, (int)type);
    return v ? v->name : "?";
}

/* Do both declarations of the tensor agree? */
NODISCARD static struct status *check_agreement(const struct check *k,
                                                struct config_position position, const char *tensor,
                                                const struct said *a, const struct said *b)
{
    if (a->type != b->type)
        return config_fail(k->config, position,
                           "in ensemble %s, ensemble tensor %s: inconsistent data type: %s is "
                           "inferred from model %s while %s is inferred from model %s",
                           k->name, tensor, get_type_name(a->type), a->model,
                           get_type_name(b->type), b->model);
    if (are_shapes_compatible(a, b))
        return NULL;
    AUTO(buf) first = BUF_INIT(MAX_SHAPE_TEXT);
    AUTO(buf) second = BUF_INIT(MAX_SHAPE_TEXT);
    print_said_shape(&first, a);
    print_said_shape(&second, b);
    return config_fail(k->config, position,
                       "in ensemble %s, ensemble tensor %s: inconsistent shape: %s is inferred "
                       "from model %s while %s is inferred from model %s",
                       k->name, tensor, buf_text(&first), a->model, buf_text(&second), b->model);
}

/* Notes one more declaration of the tensor. */
NODISCARD static struct status *note_said(struct check *k, struct config_position position,
                                          const char *tensor, const struct said *said)
{
    const struct said *before = map_gets(&k->tensors, tensor);
    if (before)
        return check_agreement(k, position, tensor, before, said);
    struct said *kept = arena_dup(&k->arena, said, sizeof(*said));
    if (!kept)
        return status_no_memory();
    map_puts(&k->tensors, tensor, kept);
    return NULL;
}

static struct said said_of_input(const char *model, const Inference__ModelConfig *pb,
                                 const Inference__ModelInput *input)
{
    return (struct said){.model = model,
                         .type = input->data_type,
                         .batching = pb->max_batch_size > 0,
                         .n_dims = input->n_dims,
                         .dims = input->dims};
}

static struct said said_of_output(const char *model, const Inference__ModelConfig *pb,
                                  const Inference__ModelOutput *output)
{
    return (struct said){.model = model,
                         .type = output->data_type,
                         .batching = pb->max_batch_size > 0,
                         .n_dims = output->n_dims,
                         .dims = output->dims};
}

/* Notes the ensemble's own declarations. Of several with one name the first counts, as in the
 * reference. */
NODISCARD static struct status *note_own_tensors(struct check *k)
{
    const Inference__ModelConfig *pb = k->config->pb;
    struct status *st = NULL;
    for (size_t i = 0; i < pb->n_input && !st; i++) {
        struct said said = said_of_input(pb->name, pb, pb->input[i]);
        if (!map_gets(&k->tensors, pb->input[i]->name))
            st = note_said(k, at_message(pb->input[i]), pb->input[i]->name, &said);
    }
    for (size_t i = 0; i < pb->n_output && !st; i++) {
        struct said said = said_of_output(pb->name, pb, pb->output[i]);
        if (!map_gets(&k->tensors, pb->output[i]->name))
            st = note_said(k, at_message(pb->output[i]), pb->output[i]->name, &said);
    }
    return st;
}

/* ---- one step -------------------------------------------------------------------------------- */

/* The name of a tensor, by a function, so that inputs and outputs share the search for the
 * nearest name. */
static const char *find_input_name(const Inference__ModelConfig *pb, size_t i)
{
    return i < pb->n_input ? pb->input[i]->name : NULL;
}

static const char *find_output_name(const Inference__ModelConfig *pb, size_t i)
{
    return i < pb->n_output ? pb->output[i]->name : NULL;
}

static const char *find_nearest_name(const Inference__ModelConfig *pb, const char *name,
                                     const char *(*name_at)(const Inference__ModelConfig *, size_t))
{
    const char *best = NULL, *candidate;
    size_t least = SIZE_MAX;
    for (size_t i = 0; (candidate = name_at(pb, i)); i++) {
        if (str_nearer(name, candidate, &least))
            best = candidate;
    }
    return best;
}

/* Makes the error of a tensor that the model does not have; @how "mapping to non-existing input" */
NODISCARD static struct status *no_tensor(const struct check *k, struct config_position position,
                                          const char *tensor, const char *how, const char *name,
                                          const char *model, const char *meant)
{
    AUTO(buf) advice = BUF_INIT(MAX_NAMES_TEXT);
    if (meant)
        buf_addf(&advice, "did you mean \"%s\"?", meant);
    return config_fail(k->config, advised(position, meant ? buf_text(&advice) : NULL),
                       "in ensemble %s, ensemble tensor %s is %s %s in model %s", k->name, tensor,
                       how, name, model);
}

/* An input with the name of a condition could not be told from the condition. */
NODISCARD static struct status *
fail_condition_is_input(const struct check *k, struct config_position position, const char *model)
{
    return config_fail(k->config, position,
                       "in ensemble %s, model %s has an input " ENSEMBLE_CONDITION
                       ", a name that means the condition of a step in an input map",
                       k->name, model);
}

/* What was probably meant by the name of an input that the model does not have; or NULL. */
static const char *find_nearest_input(const struct ensemble_member *m, const char *name)
{
    return strcasecmp(name, ENSEMBLE_CONDITION) == 0
               ? ENSEMBLE_CONDITION
               : find_nearest_name(m->pb, name, find_input_name);
}

NODISCARD static struct status *check_input_map(struct check *k, const step_config *step,
                                                const struct ensemble_member *m)
{
    struct map inputs = MAP_INIT; /* of any number */
    struct status *st = NULL;
    if (m->pb->n_input == 0 && !m->is_complete)
        return NULL;
    for (size_t i = m->pb->n_input; i-- > 0;)
        map_puts(&inputs, m->pb->input[i]->name, m->pb->input[i]);
    for (size_t i = 0; i < step->n_input_map && !st; i++) {
        const char *name = step->input_map[i]->key, *tensor = step->input_map[i]->value;
        struct config_position position = at_element(step, "input_map", i);
        const Inference__ModelInput *input = map_gets(&inputs, name);
        if (strcmp(name, ENSEMBLE_CONDITION) == 0) {
            st = input ? fail_condition_is_input(k, position, step->model_name) : NULL;
            continue;
        }
        if (!input) {
            st = no_tensor(k, position, tensor, "mapping to non-existing input", name,
                           step->model_name, find_nearest_input(m, name));
            continue;
        }
        struct said said = said_of_input(step->model_name, m->pb, input);
        st = note_said(k, position, tensor, &said);
    }
    map_done(&inputs);
    return st;
}

NODISCARD static struct status *check_all_mapped(const struct check *k, const step_config *step,
                                                 const struct ensemble_member *m)
{
    struct map mapped = MAP_INIT;
    struct status *st = NULL;
    for (size_t i = 0; i < step->n_input_map; i++)
        map_puts(&mapped, step->input_map[i]->key, step->input_map[i]);
    for (size_t i = 0; i < m->pb->n_input && !st; i++) {
        const Inference__ModelInput *input = m->pb->input[i];
        if (!input->optional && !map_gets(&mapped, input->name))
            st = config_fail(k->config, at_message(step),
                             "in ensemble %s, input %s in model %s is not mapped to any ensemble "
                             "tensors",
                             k->name, input->name, step->model_name);
    }
    map_done(&mapped);
    return st;
}

NODISCARD static struct status *check_output_map(struct check *k, const step_config *step,
                                                 const struct ensemble_member *m)
{
    struct map outputs = MAP_INIT; /* of any number */
    struct status *st = NULL;
    if (m->pb->n_output == 0 && !m->is_complete)
        return NULL;
    for (size_t i = m->pb->n_output; i-- > 0;)
        map_puts(&outputs, m->pb->output[i]->name, m->pb->output[i]);
    for (size_t i = 0; i < step->n_output_map && !st; i++) {
        const char *name = step->output_map[i]->key, *tensor = step->output_map[i]->value;
        struct config_position position = at_element(step, "output_map", i);
        const Inference__ModelOutput *output = map_gets(&outputs, name);
        if (!output) {
            st = no_tensor(k, position, tensor, "mapped from non-existing output", name,
                           step->model_name, find_nearest_name(m->pb, name, find_output_name));
            continue;
        }
        struct said said = said_of_output(step->model_name, m->pb, output);
        st = note_said(k, position, tensor, &said);
    }
    map_done(&outputs);
    return st;
}

NODISCARD static struct status *check_step(struct check *k, const step_config *step,
                                           const struct ensemble_member *m)
{
    int32_t allowed = k->config->pb->max_batch_size, member = m->pb->max_batch_size;
    struct status *st = NULL;
    if (member > 0 && member < allowed)
        st = config_fail(k->config, at_field(step, "model_name"),
                         "ensemble %s allows maximum batch size %d, but it contains model %s which "
                         "only allows maximum batch size to be %d",
                         k->name, allowed, step->model_name, member);
    if (!st)
        st = check_input_map(k, step, m);
    if (!st)
        st = check_all_mapped(k, step, m);
    return st ? st : check_output_map(k, step, m);
}

/* ---- Conditions ------------------------------------------------------------------------------ */

/* Is the tensor of the condition BOOL with one element, as far as anything declares it? */
NODISCARD static struct status *check_condition(const struct check *k, size_t step,
                                                struct config_position position, const char *tensor)
{
    static const int64_t one = 1;
    const struct said wanted = {.type = INFERENCE__DATA_TYPE__TYPE_BOOL, .n_dims = 1, .dims = &one};
    const struct said *said = map_gets(&k->tensors, tensor);
    if (!said || (said->type == wanted.type && are_shapes_compatible(said, &wanted)))
        return NULL;
    AUTO(buf) shape = BUF_INIT(MAX_SHAPE_TEXT);
    print_said_shape(&shape, said);
    return config_fail(k->config, position,
                       "in ensemble %s, ensemble tensor %s, the " ENSEMBLE_CONDITION
                       " of step %zu, must be TYPE_BOOL with shape [1], but %s with shape %s is "
                       "inferred from model %s",
                       k->name, tensor, step, get_type_name(said->type), buf_text(&shape),
                       said->model);
}

/* Once all tensors are declared: a condition itself declares nothing. */
NODISCARD static struct status *check_conditions(const struct check *k)
{
    const Inference__ModelEnsembling *e = k->config->pb->ensemble_scheduling;
    struct status *st = NULL;
    for (size_t i = 0; i < e->n_step && !st; i++) {
        for (size_t j = 0; j < e->step[i]->n_input_map && !st; j++) {
            if (strcmp(e->step[i]->input_map[j]->key, ENSEMBLE_CONDITION) == 0)
                st = check_condition(k, i, at_element(e->step[i], "input_map", j),
                                     e->step[i]->input_map[j]->value);
        }
    }
    return st;
}

/* ---- Where responses multiply ---------------------------------------------------------------- */

static bool is_decoupled(const struct ensemble_member *m)
{
    return m->pb && m->pb->model_transaction_policy && m->pb->model_transaction_policy->decoupled;
}

NODISCARD static struct status *many_origins(const struct check *k, struct config_position at,
                                             const char *model)
{
    return config_fail(k->config, at,
                       "in ensemble %s, step of model '%s' receives inputs originated from "
                       "different decoupled models",
                       k->name, model);
}

/* Finds the decoupled step that a step's tensors come from, itself included; NULL: none. */
NODISCARD static struct status *find_origin(const struct check *k, const struct map *origins,
                                            size_t index, const step_config **ret_origin)
{
    const step_config *step = k->config->pb->ensemble_scheduling->step[index];
    const step_config *origin = NULL;
    struct status *st = NULL;

    for (size_t i = 0; i < step->n_input_map && !st; i++) {
        const step_config *from = map_gets(origins, step->input_map[i]->value);
        if (i > 0 && from != origin)
            st = many_origins(k, at_element(step, "input_map", i), step->model_name);
        origin = from;
    }
    *ret_origin = is_decoupled(&k->members[index]) ? step : origin;
    return st;
}

/* The outputs of the ensemble meet, too: in a response. */
NODISCARD static struct status *check_outputs_meet(const struct check *k, const struct map *origins)
{
    const Inference__ModelConfig *pb = k->config->pb;
    struct status *st = NULL;

    for (size_t i = 1; i < pb->n_output && !st; i++) {
        if (map_gets(origins, pb->output[i]->name) != map_gets(origins, pb->output[0]->name))
            st = many_origins(k, at_message(pb->output[i]), k->name);
    }
    return st;
}

/*
 * A decoupled model answers a request any number of times, and each answer takes its own path. Two
 * such paths may not meet, since it is undefined which answers would belong together; nor may one
 * meet what is there once.
 */
NODISCARD static struct status *check_decoupled(struct check *k)
{
    const Inference__ModelEnsembling *e = k->config->pb->ensemble_scheduling;
    struct map origins = MAP_INIT; /* by tensor: the decoupled step that it comes from */
    const step_config *origin;
    const size_t *order = NULL;
    struct status *st = ensemble_order(k->config, &k->arena, &order);

    for (size_t n = 0; n < e->n_step && !st; n++) {
        const step_config *step = e->step[order[n]];
        st = find_origin(k, &origins, order[n], &origin);
        for (size_t i = 0; i < step->n_output_map && origin; i++)
            map_puts(&origins, step->output_map[i]->value, (void *)(uintptr_t)origin);
    }
    if (!st)
        st = check_outputs_meet(k, &origins);
    map_done(&origins);
    return st;
}

/* ---- the models ------------------------------------------------------------------------------ */

NODISCARD static struct status *no_model(const struct check *k, const step_config *step,
                                         const struct ensemble_member *m, const char *names)
{
    return config_fail(k->config, advised(at_field(step, "model_name"), m->advice),
                       "ensemble %s contains models that are not available or ambiguous: %s",
                       k->name, names);
}

/* Of the models that are not found, the reference names all in one sentence; a listener gets
 * each alone. */
NODISCARD static struct status *find_members(struct check *k, const struct ensemble_lookup *lookup,
                                             bool *ret_all)
{
    const Inference__ModelEnsembling *e = k->config->pb->ensemble_scheduling;
    const step_config *first = NULL;
    AUTO(buf) names = BUF_INIT(MAX_NAMES_TEXT);
    struct status *st = NULL;

    *ret_all = true;
    for (size_t i = 0; i < e->n_step && !st; i++) {
        const step_config *step = e->step[i];
        struct ensemble_member *m = &k->members[i];
        struct config_position position = at_field(step, "model_name");
        *m = (struct ensemble_member){0};
        enum ensemble_answer answer = lookup->find(lookup->arg, step, m);
        if (answer == ENSEMBLE_FOUND)
            continue;
        m->pb = NULL;
        *ret_all = false;
        if (answer == ENSEMBLE_NO_MODEL && k->config->listener) {
            st = no_model(k, step, m, step->model_name);
        } else if (answer == ENSEMBLE_NO_MODEL) {
            buf_addf(&names, "%s%s", names.size ? ", " : "", step->model_name);
            first = first ? first : step;
        } else if (answer == ENSEMBLE_INVALID) {
            st = config_fail(k->config, position,
                             "ensemble '%s' depends on '%s' which is not valid. Model '%s' failed "
                             "with error: %s",
                             k->name, step->model_name, step->model_name, m->why ? m->why : "");
        } else if (step->model_version != -1) {
            st = config_fail(k->config, advised(at_field(step, "model_version"), m->advice),
                             "ensemble '%s' depends on '%s' whose required version %" PRId64
                             " is not loaded.",
                             k->name, step->model_name, step->model_version);
        } else {
            st = config_fail(k->config, position,
                             "ensemble '%s' depends on '%s' which has no loaded version%s%s%s%s",
                             k->name, step->model_name, m->why ? ". Model '" : "",
                             m->why ? step->model_name : "",
                             m->why ? "' loading failed with error: " : "", m->why ? m->why : "");
        }
    }
    if (!st && first)
        st = no_model(k, first, &(struct ensemble_member){0}, buf_text(&names));
    return st;
}

struct status *ensemble_check(const struct model_config *c, const struct ensemble_lookup *lookup)
{
    const Inference__ModelEnsembling *e = c->pb->ensemble_scheduling;
    struct check k = {.config = c, .name = c->pb->name, .tensors = MAP_INIT};
    bool all = false;
    arena_init(&k.arena, NULL, 0, CONFIG_MAX_MEMORY, NULL, NULL);
    k.members = arena_alloc(&k.arena, e->n_step * sizeof(*k.members));
    struct status *st = k.members ? find_members(&k, lookup, &all) : status_no_memory();
    if (!st)
        st = note_own_tensors(&k);
    for (size_t i = 0; i < e->n_step && !st; i++) {
        if (k.members[i].pb)
            st = check_step(&k, e->step[i], &k.members[i]);
    }
    if (!st)
        st = check_conditions(&k);
    if (!st && all)
        st = check_decoupled(&k);
    map_done(&k.tensors);
    arena_reset(&k.arena);
    return st;
}

/* ---- cycles ---------------------------------------------------------------------------------- */

struct visit {
    struct visit *next;
    const Inference__ModelConfig *pb;
};

struct walk {
    struct arena arena;
    struct map seen; /* names */
    struct visit *open;
};

/* Queues the ensemble for a later visit. False for lack of memory. */
static bool visit_later(struct walk *w, const Inference__ModelConfig *pb)
{
    struct visit *v = arena_alloc(&w->arena, sizeof(*v));
    if (!v)
        return false;
    *v = (struct visit){.next = w->open, .pb = pb};
    w->open = v;
    return true;
}

/* Returns the step of one ensemble that leads back to the first one, or NULL. */
static const step_config *leads_back(struct walk *w, const struct ensemble_lookup *lookup,
                                     const Inference__ModelConfig *pb, const char *name,
                                     struct status **ret_st)
{
    const Inference__ModelEnsembling *e = pb->ensemble_scheduling;
    for (size_t i = 0; i < e->n_step; i++) {
        struct ensemble_member m = {0};
        char *model = e->step[i]->model_name;
        if (strcmp(model, name) == 0)
            return e->step[i];
        if (map_gets(&w->seen, model))
            continue;
        map_puts(&w->seen, model, model);
        if (lookup->find(lookup->arg, e->step[i], &m) == ENSEMBLE_FOUND &&
            config_is_ensemble(m.pb) && !visit_later(w, m.pb)) {
            *ret_st = status_no_memory();
            return NULL;
        }
    }
    return NULL;
}

struct status *ensemble_fail_cycle(const struct model_config *c, const char *through,
                                   const step_config *step)
{
    struct config_position position =
        step ? at_field(step, "model_name") : at_field(c->pb, "ensemble_scheduling");
    return config_fail(c, position, "circular dependency between ensembles: %s -> ... -> %s -> %s",
                       c->pb->name, through, c->pb->name);
}

struct status *ensemble_check_cycle(const struct model_config *c,
                                    const struct ensemble_lookup *lookup)
{
    const char *name = c->pb->name;
    struct walk w = {.seen = MAP_INIT};
    arena_init(&w.arena, NULL, 0, CONFIG_MAX_MEMORY, NULL, NULL);
    struct status *st = visit_later(&w, c->pb) ? NULL : status_no_memory();
    while (w.open && !st) {
        const Inference__ModelConfig *pb = w.open->pb;
        w.open = w.open->next;
        const step_config *back = leads_back(&w, lookup, pb, name, &st);
        if (!back || st)
            continue;
        st = ensemble_fail_cycle(c, pb->name, pb == c->pb ? back : NULL);
        break;
    }
    map_done(&w.seen);
    arena_reset(&w.arena);
    return st;
}
