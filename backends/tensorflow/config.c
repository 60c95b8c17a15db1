/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config - compares the signature of a model and its configuration, and completes the
 * configuration. The texts of errors are those of Triton's TensorFlow backend.
 */
#include "tensorflow/model.h"

#include <stdlib.h>
#include <string.h>

#include "common/model_file.h"

_Static_assert(SAVED_MAX_RANK == MAX_RANK, "a tensor is described by either");

const struct element_type *tf_element_type(int type)
{
    static const char *const names[] = {
        [1] = "TYPE_FP32",    [2] = "TYPE_FP64",    [3] = "TYPE_INT32",   [4] = "TYPE_UINT8",
        [5] = "TYPE_INT16",   [6] = "TYPE_INT8",    [7] = "TYPE_STRING",  [9] = "TYPE_INT64",
        [10] = "TYPE_BOOL",   [14] = "TYPE_BF16",   [17] = "TYPE_UINT16", [19] = "TYPE_FP16",
        [22] = "TYPE_UINT32", [23] = "TYPE_UINT64",
    };

    if (type < 0 || (size_t)type >= sizeof(names) / sizeof(names[0]) || !names[type])
        return NULL;
    return element_type_named(names[type]);
}

/* ---- The signature --------------------------------------------------------------------------- */

static TRITONSERVER_Error *describe_tensor(const struct tf_model *m, const char *what,
                                           const struct saved_tensor *from, struct tensor *to)
{
    to->type = tf_element_type(from->type);
    if (!from->place || !to->type)
        return backend_error(TRITONSERVER_ERROR_UNSUPPORTED,
                             "unable to load model '%s', %s '%s' of signature '%s' is a tensor "
                             "that no configuration has (%s, type %d in TensorFlow)",
                             m->name, what, from->name, m->signature.name,
                             from->place ? "dense" : "sparse or composite", from->type);
    to->name = from->name;
    to->any_rank = from->any_rank;
    to->rank = from->rank;
    memcpy(to->dims, from->dims, from->rank * sizeof(*from->dims));
    return NULL;
}

static TRITONSERVER_Error *describe_side(const struct tf_model *m, const char *what,
                                         const struct saved_side *from, struct side *to)
{
    to->what = what;
    to->tensors = calloc(from->n + 1, sizeof(*to->tensors));
    if (!to->tensors)
        return backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "out of memory");
    to->n = from->n;
    for (size_t i = 0; i < from->n; i++)
        TRY(describe_tensor(m, what, &from->tensors[i], &to->tensors[i]));
    return NULL;
}

TRITONSERVER_Error *tf_take_signature(struct tf_model *m)
{
    TRY(describe_side(m, "input", &m->signature.inputs, &m->inputs));
    return describe_side(m, "output", &m->signature.outputs, &m->outputs);
}

/* ---- Complete -------------------------------------------------------------------------------- */

/* A completed configuration of this model. */
struct tf_completion {
    const struct tf_model *m;
    bool batches;
};

static void write_signature_side(FILE *to, const struct side *side, bool batches)
{
    const char *between = "[";

    for (size_t i = 0; i < side->n; i++) {
        const struct tensor *t = &side->tensors[i];

        fputs(between, to);
        model_file_write_tensor(to, t->name, t->type->config, t->dims, t->rank, batches);
        between = ",";
    }
    fputs(side->n > 0 ? "]" : "[]", to);
}

static void write_signature_inputs(FILE *to, const void *arg)
{
    const struct tf_completion *c = arg;

    write_signature_side(to, &c->m->inputs, c->batches);
}

static void write_signature_outputs(FILE *to, const void *arg)
{
    const struct tf_completion *c = arg;

    write_signature_side(to, &c->m->outputs, c->batches);
}

/* May the first dimension of each tensor be the batch? */
static bool takes_batches(const struct side *side)
{
    for (size_t i = 0; i < side->n; i++)
        if (side->tensors[i].rank == 0 || side->tensors[i].dims[0] != -1)
            return false;
    return true;
}

/* Tensors that the configuration has already: do their dims leave out the batch? */
struct hint {
    bool given, batches;
};

static TRITONSERVER_Error *take_hints(const struct tf_model *m, const struct side *side,
                                      struct hint *h)
{
    const struct doc_value *v = doc_first(doc_get(doc_root(m->frame->config), side->what));

    for (; v; v = v->next) {
        const struct tensor *t = model_tensor(side, doc_string(doc_get(v, "name"), ""));
        const struct doc_value *d = doc_first(doc_get(v, "dims"));
        size_t rank = 0;

        for (; d; d = d->next)
            rank++;
        if (!t || rank == 0)
            continue;
        if (h->given && h->batches != (t->rank == rank + 1))
            return backend_error(TRITONSERVER_ERROR_INTERNAL,
                                 "unable to autofill for '%s', model tensor configurations are "
                                 "contradicting each other in terms of whether batching is "
                                 "supported",
                                 m->name);
        h->given = true;
        h->batches = t->rank == rank + 1;
    }
    return NULL;
}

static TRITONSERVER_Error *refuse_unknown_rank(const struct tf_model *m, const struct side *side)
{
    for (size_t i = 0; i < side->n; i++)
        if (side->tensors[i].any_rank)
            return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                                 "unable to autofill for '%s': the model does not say how many "
                                 "dimensions tensor '%s' has; the configuration must",
                                 m->name, side->tensors[i].name);
    return NULL;
}

/* Sets max_batch_size where the configuration has none. */
static TRITONSERVER_Error *complete_batch(struct tf_model *m, int64_t most, int64_t *ret_size)
{
    bool possible = takes_batches(&m->inputs) && takes_batches(&m->outputs);
    struct hint h = {.batches = possible};

    *ret_size = m->frame->max_batch_size;
    if (*ret_size > 0 && !possible)
        return backend_error(TRITONSERVER_ERROR_INTERNAL,
                             "unable to autofill for '%s', configuration specified max-batch %lld "
                             "but model signature does not support batching",
                             m->name, (long long)*ret_size);
    if (*ret_size > 0 || !possible)
        return NULL;
    TRY(take_hints(m, &m->inputs, &h));
    TRY(take_hints(m, &m->outputs, &h));
    if (!h.batches)
        return NULL;
    *ret_size = most > 0 ? most : 1;
    BACKEND_LOG(WARN,
                "autofilled max_batch_size to %lld for model '%s' since batching is supported but "
                "no max_batch_size is specified in model configuration. Must specify "
                "max_batch_size to utilize autofill with a larger max batch size",
                (long long)*ret_size, m->name);
    return NULL;
}

TRITONSERVER_Error *tf_complete_config(struct tf_model *m, int64_t default_max_batch_size)
{
    struct tf_completion c = {.m = m};
    struct model_file_parts parts = {.write_inputs = write_signature_inputs,
                                     .write_outputs = write_signature_outputs,
                                     .arg = &c};

    if (!model_file_lacks_tensors(m->frame->config))
        return NULL;
    TRY(refuse_unknown_rank(m, &m->inputs));
    TRY(refuse_unknown_rank(m, &m->outputs));
    TRY(complete_batch(m, default_max_batch_size, &parts.max_batch_size));
    c.batches = parts.max_batch_size > 0;
    TRY(model_file_complete(m->frame->handle, &m->frame->config, &parts));
    m->frame->max_batch_size = parts.max_batch_size;
    return NULL;
}

/* ---- Check ----------------------------------------------------------------------------------- */

static TRITONSERVER_Error *find_signature_tensor(const struct side *side, const char *name,
                                                 struct tensor **ret_tensor)
{
    const char **names;
    TRITONSERVER_Error *err;

    *ret_tensor = model_tensor(side, name);
    if (*ret_tensor)
        return NULL;
    names = calloc(side->n + 1, sizeof(*names));
    if (!names)
        return backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "out of memory");
    for (size_t i = 0; i < side->n; i++)
        names[i] = side->tensors[i].name;
    err = model_file_unexpected(side->what, name, names, side->n);
    free(names);
    return err;
}

static TRITONSERVER_Error *check_signature_type(const struct tf_model *m, const struct side *side,
                                                const struct tensor *t,
                                                const struct doc_value *config)
{
    const char *type = doc_string(doc_get(config, "data_type"), "");

    return strcmp(type, t->type->config) == 0
               ? NULL
               : backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                               "unable to load model '%s', configuration expects datatype %s for "
                               "%s '%s', model provides %s",
                               m->name, type, side->what, t->name, t->type->config);
}

static TRITONSERVER_Error *refuse_dims(const struct tf_model *m, const struct tensor *t,
                                       const int64_t *dims, size_t rank)
{
    return backend_error(
        TRITONSERVER_ERROR_INVALID_ARG,
        "model '%s', tensor '%s': the model expects %zu dimensions (shape %s) but the model "
        "configuration specifies %zu dimensions (%s %s)",
        m->name, t->name, t->rank, model_file_shape_text(t->dims, t->rank).text, rank,
        m->frame->max_batch_size > 0
            ? "an initial batch dimension because max_batch_size > 0 followed by the explicit "
              "tensor shape, making complete shape"
            : "shape",
        model_file_shape_text(dims, rank).text);
}

/* Compares the dims of a configuration with the signature's, those of an output exactly. */
static TRITONSERVER_Error *check_dims(const struct tf_model *m, struct tensor *t,
                                      const struct doc_value *config, bool is_exact)
{
    bool batches = m->frame->max_batch_size > 0;
    int64_t dims[MAX_RANK];
    bool same;
    size_t rank;

    if (t->any_rank)
        return NULL;
    TRY(model_file_config_shape(m->name, config, batches, MAX_RANK, dims, &rank));
    if (batches && (t->rank == 0 || t->dims[0] != -1))
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                             "model '%s', tensor '%s': for the model to support batching the shape "
                             "should have at least 1 dimension and the first dimension must be -1; "
                             "but shape expected by the model is %s",
                             m->name, t->name, model_file_shape_text(t->dims, t->rank).text);
    t->scalar = t->rank == 0 && (rank == 0 || (rank == 1 && dims[0] == 1));
    if (t->scalar)
        return NULL;
    same = rank == t->rank;
    for (size_t d = 0; same && d < rank; d++)
        same = dims[d] == t->dims[d] || (t->dims[d] == -1 && !is_exact) ||
               /* as a configuration says it, which cannot have 0 */
               (t->dims[d] == 0 && dims[d] == -1);
    return same ? NULL : refuse_dims(m, t, dims, rank);
}

static TRITONSERVER_Error *check_signature_ragged(const struct tf_model *m, const struct tensor *t)
{
    return t->any_rank || (t->rank == 1 && t->dims[0] == -1)
               ? NULL
               : backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                               "unable to load model '%s', configuration expects model provides "
                               "input with shape [-1] for ragged input '%s', model provides %s",
                               m->name, t->name, model_file_shape_text(t->dims, t->rank).text);
}

static TRITONSERVER_Error *check_signature_side(const struct tf_model *m, const struct side *side)
{
    const struct doc_value *v = doc_first(doc_get(doc_root(m->frame->config), side->what));

    for (; v; v = v->next) {
        const char *name = doc_string(doc_get(v, "name"), "");
        struct tensor *t;

        TRY(find_signature_tensor(side, name, &t));
        t->ragged = doc_true(doc_get(v, "allow_ragged_batch"));
        t->source = ragged_source(&m->ragged, name);
        if (t->ragged)
            TRY(check_signature_ragged(m, t));
        else if (!t->source)
            TRY(check_dims(m, t, v, side == &m->outputs));
        TRY(check_signature_type(m, side, t, v));
    }
    return NULL;
}

static TRITONSERVER_Error *check_controls(const struct tf_model *m,
                                          const struct doc_value *sequence)
{
    const struct doc_value *v = doc_first(doc_get(sequence, "control_input"));

    for (; v; v = v->next) {
        const char *name = doc_string(doc_get(v, "name"), "");

        if (!model_tensor(&m->inputs, name))
            return backend_error(TRITONSERVER_ERROR_INTERNAL,
                                 "configuration specified sequence control '%s', but model does "
                                 "not provide that input",
                                 name);
    }
    return NULL;
}

/* Checks the states of sequences: each is an input, and an output makes it. */
static TRITONSERVER_Error *check_signature_states(const struct tf_model *m,
                                                  const struct doc_value *sequence)
{
    const struct doc_value *v = doc_first(doc_get(sequence, "state"));

    for (; v; v = v->next) {
        struct tensor *in, *out;

        TRY(find_signature_tensor(&m->inputs, doc_string(doc_get(v, "input_name"), ""), &in));
        TRY(check_signature_type(m, &m->inputs, in, v));
        TRY(check_dims(m, in, v, false));
        TRY(find_signature_tensor(&m->outputs, doc_string(doc_get(v, "output_name"), ""), &out));
        TRY(check_signature_type(m, &m->outputs, out, v));
        out->is_state = true;
    }
    return NULL;
}

/* Checks the inputs that are made of the shapes of a batch. */
static TRITONSERVER_Error *check_made_inputs(const struct tf_model *m)
{
    for (size_t i = 0; i < m->ragged.n_inputs; i++) {
        const struct ragged_input *made = &m->ragged.inputs[i];
        struct tensor *t;

        TRY(find_signature_tensor(&m->inputs, made->name, &t));
        if (t->type->server != made->type)
            return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                                 "unable to load model '%s', batch input '%s' has another datatype "
                                 "than the model, which provides %s",
                                 m->name, t->name, t->type->config);
        t->made = made;
    }
    return NULL;
}

TRITONSERVER_Error *tf_check_config(struct tf_model *m)
{
    const struct doc_value *sequence = doc_get(doc_root(m->frame->config), "sequence_batching");
    size_t n_expected = model_file_count_inputs(m->frame->config);

    TRY(ragged_read(m->frame->config, &m->ragged));
    TRY(check_controls(m, sequence));
    if (n_expected != m->inputs.n)
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                             "unable to load model '%s', configuration expects %zu inputs, model "
                             "provides %zu",
                             m->name, n_expected, m->inputs.n);
    TRY(check_signature_side(m, &m->inputs));
    TRY(check_made_inputs(m));
    TRY(check_signature_states(m, sequence));
    return check_signature_side(m, &m->outputs);
}
