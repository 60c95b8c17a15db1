/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config - compares the model and its configuration, and completes the configuration.
 */
#include "common/model_file.h"
#include "openvino/model.h"

#include <stdlib.h>
#include <string.h>

/* ---- Complete -------------------------------------------------------------------------------- */

/* A completed configuration of this model. */
struct completion {
    const struct model *m;
    bool batches;
};

static void write_side(FILE *to, const struct side *side, bool batches)
{
    fputs("[", to);
    for (size_t i = 0; i < side->n; i++) {
        const struct tensor *t = &side->tensors[i];

        fputs(i > 0 ? "," : "", to);
        model_file_write_tensor(to, t->name, t->type->config, t->dims, t->rank, batches);
    }
    fputs("]", to);
}

static void write_openvino_inputs(FILE *to, const void *arg)
{
    const struct completion *c = arg;

    write_side(to, &c->m->inputs, c->batches);
}

static void write_openvino_outputs(FILE *to, const void *arg)
{
    const struct completion *c = arg;

    write_side(to, &c->m->outputs, c->batches);
}

static TRITONSERVER_Error *check_known_ranks(const struct model *m, const struct side *side)
{
    for (size_t i = 0; i < side->n; i++)
        if (side->tensors[i].any_rank)
            return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                                 "autofill failed for model '%s': the model does not say how many "
                                 "dimensions %s '%s' has; the configuration must",
                                 m->name, side->what, side->tensors[i].name);
    return NULL;
}

TRITONSERVER_Error *complete_config(struct model *m)
{
    struct completion c = {.m = m};
    struct model_file_parts parts = {.max_batch_size = m->frame->max_batch_size,
                                     .write_inputs = write_openvino_inputs,
                                     .write_outputs = write_openvino_outputs,
                                     .arg = &c};
    bool has_batch = false;

    if (!model_file_lacks_tensors(m->frame->config))
        return NULL;
    TRY(check_known_ranks(m, &m->inputs));
    TRY(check_known_ranks(m, &m->outputs));
    if (parts.max_batch_size == 0)
        TRY(layout_has_batch(m->path, &has_batch));
    if (has_batch) {
        int64_t most = m->rt->default_max_batch_size;

        parts.max_batch_size = most > 0 ? most : 1;
        BACKEND_LOG(WARN,
                    "autofilled max_batch_size to %lld for model '%s' since batching is supported "
                    "but no max_batch_size is specified in model configuration. Must specify "
                    "max_batch_size to utilize autofill with a larger max batch size",
                    (long long)parts.max_batch_size, m->name);
    }
    c.batches = parts.max_batch_size > 0;
    TRY(model_file_complete(m->frame->handle, &m->frame->config, &parts));
    m->frame->max_batch_size = parts.max_batch_size;
    return NULL;
}

/* ---- Check ----------------------------------------------------------------------------------- */

static TRITONSERVER_Error *refuse_name(const struct side *side, const char *name)
{
    const char **names = calloc(side->n + 1, sizeof(*names));
    TRITONSERVER_Error *err;

    if (!names)
        return backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "out of memory");
    for (size_t i = 0; i < side->n; i++)
        names[i] = side->tensors[i].name;
    err = model_file_unexpected(side->what, name, names, side->n);
    free(names);
    return err;
}

/* OpenVINO may know a tensor by several names, of which it gives out any one. */
TRITONSERVER_Error *find_configured_tensor(const struct model *m, struct side *side,
                                           const char *name, struct tensor **ret_tensor)
{
    const struct ov_api *api = &m->rt->lib.api;
    struct ov_port *port = NULL;
    char *known = NULL, *copy;
    struct tensor *t = model_tensor(side, name);

    if (t) {
        *ret_tensor = t;
        return NULL;
    }
    if ((side == &m->inputs ? api->model_const_input_by_name
                            : api->model_const_output_by_name)(m->read, name, &port) != 0)
        return refuse_name(side, name);
    if (api->port_get_any_name(port, &known) == 0)
        t = model_tensor(side, known);
    api->free(known);
    api->output_const_port_free(port);
    if (!t)
        return refuse_name(side, name);
    copy = strdup(name);
    if (!copy)
        return backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "out of memory");
    free(t->name);
    t->name = copy;
    *ret_tensor = t;
    return NULL;
}

static TRITONSERVER_Error *take_type(const struct model *m, const struct side *side,
                                     struct tensor *t, const char *type)
{
    const struct element_type *asked = element_type_named(type);

    if (!asked)
        return backend_error(TRITONSERVER_ERROR_INTERNAL,
                             "unsupported datatype %s for %s '%s' for model '%s'", type, side->what,
                             t->name, m->name);
    if ((asked->size == 0) != (t->type->size == 0))
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                             "unable to load model '%s', configuration expects datatype %s for %s "
                             "'%s', model provides %s",
                             m->name, type, side->what, t->name, t->type->config);
    t->type = asked;
    return NULL;
}

static TRITONSERVER_Error *check_configured_side(struct model *m, struct side *side)
{
    const struct doc_value *v = doc_first(doc_get(doc_root(m->frame->config), side->what));

    for (; v; v = v->next) {
        const char *name = doc_string(doc_get(v, "name"), "");
        struct tensor *t;

        TRY(find_configured_tensor(m, side, name, &t));
        TRY(take_type(m, side, t, doc_string(doc_get(v, "data_type"), "")));
        t->ragged = doc_true(doc_get(v, "allow_ragged_batch"));
        t->source = ragged_source(&m->ragged, name);
    }
    return NULL;
}

/* Checks the batch inputs, which are made of the shapes of a batch. */
static TRITONSERVER_Error *check_batch_inputs(struct model *m)
{
    for (size_t i = 0; i < m->ragged.n_inputs; i++) {
        const struct ragged_input *made = &m->ragged.inputs[i];
        struct tensor *t;

        TRY(find_configured_tensor(m, &m->inputs, made->name, &t));
        for (t->type = element_types; t->type->server != made->type; t->type++)
            ; /* INT32 or FP32, which are there */
        t->made = made;
    }
    return NULL;
}

/* Checks the states of sequences: each is an input, and an output makes it. */
static TRITONSERVER_Error *check_configured_states(struct model *m)
{
    const struct doc_value *sequence = doc_get(doc_root(m->frame->config), "sequence_batching");
    const struct doc_value *v = doc_first(doc_get(sequence, "state"));

    for (; v; v = v->next) {
        const char *type = doc_string(doc_get(v, "data_type"), "");
        struct tensor *in, *out;

        TRY(find_configured_tensor(m, &m->inputs, doc_string(doc_get(v, "input_name"), ""), &in));
        TRY(take_type(m, &m->inputs, in, type));
        TRY(find_configured_tensor(m, &m->outputs, doc_string(doc_get(v, "output_name"), ""),
                                   &out));
        TRY(take_type(m, &m->outputs, out, type));
        out->is_state = true;
    }
    return NULL;
}

TRITONSERVER_Error *check_config(struct model *m)
{
    size_t n_expected = model_file_count_inputs(m->frame->config);

    if (n_expected != m->inputs.n)
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                             "unable to load model '%s', configuration expects %zu inputs, model "
                             "provides %zu",
                             m->name, n_expected, m->inputs.n);
    TRY(check_configured_side(m, &m->inputs));
    TRY(check_batch_inputs(m));
    TRY(check_configured_states(m));
    return check_configured_side(m, &m->outputs);
}
