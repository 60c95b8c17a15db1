/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config - compares the model file and the model configuration, and completes the configuration.
 */
#include "common/model_file.h"
#include "onnxruntime/external.h"
#include "onnxruntime/model.h"

#include <stdlib.h>
#include <string.h>

static const struct doc_value *config_get(const struct model *m, const char *key)
{
    return doc_get(doc_root(m->config), key);
}

/* ---- Complete ------------------------------------------------------------------------------- */

/* A model can batch when the first dimension of every tensor has any size. */
static bool can_batch(const struct model *m)
{
    for (size_t i = 0; i < m->n_required; i++)
        if (m->inputs[i].rank == 0 || m->inputs[i].dims[0] != -1)
            return false;
    for (size_t i = 0; i < m->n_outputs; i++)
        if (m->outputs[i].rank == 0 || m->outputs[i].dims[0] != -1)
            return false;
    return true;
}

static void write_tensors(FILE *to, const struct tensor *tensors, size_t n, bool batches)
{
    fputs("[", to);
    for (size_t i = 0; i < n; i++) {
        if (i > 0)
            fputs(",", to);
        model_file_write_tensor(to, tensors[i].name, tensors[i].type->config, tensors[i].dims,
                                tensors[i].rank, batches);
    }
    fputs("]", to);
}

static TRITONSERVER_Error *choose_batch_size(struct model *m, int64_t *ret_size)
{
    int64_t size = 0;

    doc_int(config_get(m, "max_batch_size"), &size);
    if (!can_batch(m)) {
        if (size > 0)
            return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                                 "autofill failed for model '%s': model does not support batching "
                                 "while non-zero max_batch_size is specified",
                                 m->name);
    } else if (size == 0) {
        size = m->rt->default_max_batch_size;
        if (size > 0)
            BACKEND_LOG(
                WARN,
                "model '%s' can batch but its configuration has no max_batch_size, or 0: %lld "
                "is used, this backend's default-max-batch-size; write max_batch_size: N in "
                "its config.pbtxt to allow batches of N",
                m->name, (long long)size);
    }
    *ret_size = size;
    return NULL;
}

/* A completed configuration of this model. */
struct completion {
    const struct model *m;
    bool batches;
};

static void write_completed_inputs(FILE *to, const void *arg)
{
    const struct completion *c = arg;

    write_tensors(to, c->m->inputs, c->m->n_required, c->batches);
}

static void write_completed_outputs(FILE *to, const void *arg)
{
    const struct completion *c = arg;

    write_tensors(to, c->m->outputs, c->m->n_outputs, c->batches);
}

TRITONSERVER_Error *model_complete_config(struct model *m, TRITONBACKEND_Model *handle)
{
    struct completion c = {.m = m};
    struct model_file_parts parts = {.write_inputs = write_completed_inputs,
                                     .write_outputs = write_completed_outputs,
                                     .arg = &c};

    if (!model_file_lacks_tensors(m->config))
        return NULL;
    TRY(choose_batch_size(m, &parts.max_batch_size));
    c.batches = parts.max_batch_size > 0;
    return model_file_complete(handle, &m->config, &parts);
}

/* ---- Check ---------------------------------------------------------------------------------- */

static TRITONSERVER_Error *refuse_unexpected_tensor(const char *what, const char *name,
                                                    const struct tensor *tensors, size_t n)
{
    const char **names = calloc(n + 1, sizeof(*names));
    TRITONSERVER_Error *err;

    if (!names)
        return backend_error(TRITONSERVER_ERROR_INTERNAL, "out of memory");
    for (size_t i = 0; i < n; i++)
        names[i] = tensors[i].name;
    err = model_file_unexpected(what, name, names, n);
    free(names);
    return err;
}

static bool shapes_fit(const struct tensor *t, const int64_t *dims, size_t rank)
{
    if (t->rank != rank)
        return false;
    for (size_t i = 0; i < rank; i++)
        if (t->dims[i] >= 0 && dims[i] >= 0 && t->dims[i] != dims[i])
            return false;
    return true;
}

static TRITONSERVER_Error *check_ragged(const struct model *m, const struct tensor *t)
{
    if (t->rank == 0 || (t->rank == 1 && t->dims[0] < 0))
        return NULL;
    return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                         "unable to load model '%s', configuration expects model provides input "
                         "with shape [-1] for ragged input '%s', model provides %s",
                         m->name, t->name, model_file_shape_text(t->dims, t->rank).text);
}

static bool is_one(const int64_t *dims, size_t rank)
{
    for (size_t i = 0; i < rank; i++)
        if (dims[i] != 1)
            return false;
    return true;
}

static TRITONSERVER_Error *check_config_shape(const struct model *m, struct tensor *t,
                                              const struct doc_value *config)
{
    int64_t dims[MAX_RANK];
    size_t rank;

    if (t->source) /* its own shape is cut by the inputs' */
        return NULL;
    if (t->ragged)
        return check_ragged(m, t);
    TRY(model_file_config_shape(m->name, config, m->max_batch_size > 0, MAX_RANK, dims, &rank));
    if (t->rank == 0) {
        /* A single value, or a model of unknown rank; then any shape fits. */
        t->scalar = m->max_batch_size == 0 && (rank == 0 || (rank == 1 && dims[0] == 1));
        return is_one(dims, rank) || !external_has_shape(m->path, t->name)
                   ? NULL
                   : backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                                   "unable to load model '%s', scalar tensor '%s', should only "
                                   "provide 1 in the model configuration when the model doesn't "
                                   "support batching. Model configuration provided: %s.",
                                   m->name, t->name, model_file_shape_text(dims, rank).text);
    }
    if (m->max_batch_size > 0 && t->dims[0] != -1)
        return backend_error(
            TRITONSERVER_ERROR_INVALID_ARG,
            "model '%s', tensor '%s': max_batch_size > 0 needs a model whose first "
            "dimension is -1, but the model expects shape %s",
            m->name, t->name, model_file_shape_text(t->dims, t->rank).text);
    if (shapes_fit(t, dims, rank))
        return NULL;
    return backend_error(
        TRITONSERVER_ERROR_INVALID_ARG,
        "model '%s', tensor '%s': the model expects %zu dimensions (shape %s) but the model "
        "configuration specifies %zu dimensions (%s %s)",
        m->name, t->name, t->rank, model_file_shape_text(t->dims, t->rank).text, rank,
        m->max_batch_size > 0 ? "an initial batch dimension because max_batch_size > 0 followed by "
                                "the explicit tensor shape, making complete shape"
                              : "shape",
        model_file_shape_text(dims, rank).text);
}

static TRITONSERVER_Error *check_type(const struct model *m, const struct tensor *t,
                                      const struct doc_value *config, const char *what)
{
    const char *type = doc_string(doc_get(config, "data_type"), "");

    if (strcmp(type, t->type->config) == 0)
        return NULL;
    return backend_error(
        TRITONSERVER_ERROR_INVALID_ARG,
        "unable to load model '%s', configuration expects datatype %s for %s '%s', "
        "model provides %s",
        m->name, type, what, t->name, t->type->config);
}

static TRITONSERVER_Error *check_side(const struct model *m, const char *what,
                                      struct tensor *tensors, size_t n)
{
    for (const struct doc_value *v = doc_first(config_get(m, what)); v; v = v->next) {
        const char *name = doc_string(doc_get(v, "name"), "");
        struct tensor *t = model_tensor(tensors, n, name);

        if (!t)
            return refuse_unexpected_tensor(what, name, tensors, n);
        t->configured = true;
        t->optional = doc_true(doc_get(v, "optional"));
        t->ragged = doc_true(doc_get(v, "allow_ragged_batch"));
        t->source = ragged_source(&m->ragged, name);
        TRY(check_type(m, t, v, what));
        TRY(check_config_shape(m, t, v));
    }
    return NULL;
}

/* Checks the batch inputs, which are made of the shapes of a batch. */
static TRITONSERVER_Error *check_made(const struct model *m)
{
    for (size_t i = 0; i < m->ragged.n_inputs; i++) {
        const struct ragged_input *made = &m->ragged.inputs[i];
        struct tensor *t = model_tensor(m->inputs, m->n_inputs, made->name);

        if (!t)
            return refuse_unexpected_tensor("input", made->name, m->inputs, m->n_inputs);
        if (t->type->server != made->type)
            return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                                 "unable to load model '%s', configuration expects datatype "
                                 "TYPE_%s for batch input '%s', model provides %s",
                                 m->name, TRITONSERVER_DataTypeString(made->type), t->name,
                                 t->type->config);
        t->configured = true;
        t->made = made;
    }
    return NULL;
}

/* Checks the states of sequences: each is an input, and an output makes it. */
static TRITONSERVER_Error *check_states(const struct model *m)
{
    const struct doc_value *sequence = config_get(m, "sequence_batching");
    const struct doc_value *v = doc_first(doc_get(sequence, "state"));

    for (; v; v = v->next) {
        const char *in_name = doc_string(doc_get(v, "input_name"), "");
        const char *out_name = doc_string(doc_get(v, "output_name"), "");
        struct tensor *in = model_tensor(m->inputs, m->n_inputs, in_name);
        struct tensor *out = model_tensor(m->outputs, m->n_outputs, out_name);

        if (!in)
            return refuse_unexpected_tensor("input", in_name, m->inputs, m->n_inputs);
        if (!out)
            return refuse_unexpected_tensor("output", out_name, m->outputs, m->n_outputs);
        TRY(check_type(m, in, v, "state input"));
        TRY(check_config_shape(m, in, v));
        TRY(check_type(m, out, v, "state output"));
        TRY(check_config_shape(m, out, v));
        in->configured = true;
        out->is_state = true;
    }
    return NULL;
}

/* Counts the configuration's inputs that have a value in the file. */
static size_t count_defaults(const struct model *m)
{
    size_t n = 0;

    for (size_t i = m->n_required; i < m->n_inputs; i++)
        n += m->inputs[i].configured;
    return n;
}

TRITONSERVER_Error *model_check_config(struct model *m)
{
    size_t n_expected = model_file_count_inputs(m->config);
    size_t n_defaults;

    if (n_expected < m->n_required || n_expected > m->n_inputs)
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                             "unable to load model '%s', configuration expects %zu inputs, model "
                             "provides %zu",
                             m->name, n_expected, m->n_required);
    /* Controls and states of sequences are inputs, too. */
    for (size_t i = 0; i < m->n_required; i++)
        m->inputs[i].configured = true;
    TRY(check_side(m, "input", m->inputs, m->n_inputs));
    TRY(check_made(m));
    TRY(check_states(m));
    n_defaults = count_defaults(m);
    if (n_expected - n_defaults != m->n_required)
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                             "unable to load model '%s', configuration expects %zu inputs, model "
                             "provides %zu, and %zu that have a value in its file",
                             m->name, n_expected, m->n_required, m->n_inputs - m->n_required);
    return check_side(m, "output", m->outputs, m->n_outputs);
}
