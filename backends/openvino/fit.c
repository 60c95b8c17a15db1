/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fit - makes the model one that takes what the configuration promises: batches of any size, or of
 * one size where the model is not able to do that; the configuration's shapes with
 * RESHAPE_IO_LAYERS; its types, to which OpenVINO converts inside the model.
 */
#include "common/model_file.h"
#include "openvino/model.h"

#include <stdlib.h>
#include <string.h>

#define ANY_ROWS (-1)

/* Is the first dimension of this input the batch? */
static bool takes_batch(const struct model *m, const struct tensor *t)
{
    return m->frame->max_batch_size > 0 && !t->ragged && !t->made;
}

/* What the configuration says of the tensor: as an input or output, or as a state; NULL: nothing.
 */
static const struct doc_value *config_tensor(const struct model *m, const struct side *side,
                                             const struct tensor *t)
{
    const struct doc_value *v = doc_first(doc_get(doc_root(m->frame->config), side->what));

    const struct doc_value *sequence = doc_get(doc_root(m->frame->config), "sequence_batching");
    const char *key = side == &m->inputs ? "input_name" : "output_name";

    while (v && strcmp(doc_string(doc_get(v, "name"), ""), t->name) != 0)
        v = v->next;
    if (v)
        return v;
    v = doc_first(doc_get(sequence, "state"));
    while (v && strcmp(doc_string(doc_get(v, key), ""), t->name) != 0)
        v = v->next;
    return v;
}

/* ---- Shapes ---------------------------------------------------------------------------------- */

static TRITONSERVER_Error *refuse_shape(const struct model *m, const struct tensor *t,
                                        int64_t *dims, size_t rank)
{
    bool batches = m->frame->max_batch_size > 0;

    if (batches && rank > 0)
        dims[0] = m->frame->max_batch_size;
    return backend_error(
        TRITONSERVER_ERROR_INVALID_ARG,
        "model '%s', tensor '%s': the model expects %zu dimensions (shape %s) but the model "
        "configuration specifies %zu dimensions (%s %s)",
        m->name, t->name, t->rank, model_file_shape_text(t->dims, t->rank).text, rank,
        batches ? "an initial batch dimension because max_batch_size > 0 followed by the explicit "
                  "tensor shape, making complete shape"
                : "shape",
        model_file_shape_text(dims, rank).text);
}

static bool is_dimension_fit(const struct ov_dimension *limits, int64_t dim)
{
    return dim < 0 || (dim >= limits->min && (limits->max < 0 || dim <= limits->max));
}

/* Compares a shape of the configuration with the model's, from a dimension on. */
static TRITONSERVER_Error *check_shape(const struct model *m, struct tensor *t, int64_t *dims,
                                       size_t rank, size_t from)
{
    bool fits = t->rank == rank;

    if (m->frame->max_batch_size > 0 && t->rank == 0)
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                             "model '%s', tensor '%s': for the model to support batching the shape "
                             "should have at least 1 dimension",
                             m->name, t->name);
    if (t->rank == 0 && rank == 1 && dims[0] == 1) {
        t->scalar = true;
        return NULL;
    }
    for (size_t d = from; fits && d < rank; d++)
        fits = is_dimension_fit(&t->limits[d], dims[d]);
    return fits ? NULL : refuse_shape(m, t, dims, rank);
}

static void take_shape(struct tensor *t, const int64_t *dims, size_t rank)
{
    t->any_rank = false;
    t->rank = rank;
    for (size_t d = 0; d < rank; d++) {
        t->dims[d] = dims[d];
        t->limits[d] = dims[d] < 0 ? any_size : (struct ov_dimension){dims[d], dims[d]};
    }
}

/* Compares the input with the configuration, or takes the configuration's shape.
 * @ret_changed  set to true in the latter case; otherwise left alone */
static TRITONSERVER_Error *fit_input(const struct model *m, struct tensor *t, bool *ret_changed)
{
    const struct doc_value *config = config_tensor(m, &m->inputs, t);
    int64_t dims[MAX_RANK];
    size_t rank;

    if (t->ragged && (t->any_rank || t->rank != 1 || t->dims[0] >= 0))
        return backend_error(
            TRITONSERVER_ERROR_INVALID_ARG,
            "unable to load model '%s', configuration expects model provides input with shape [-1] "
            "for ragged input '%s', model provides %s",
            m->name, t->name, model_file_shape_text(t->dims, t->rank).text);
    if (!config || t->ragged || t->made)
        return NULL;
    TRY(model_file_config_shape(m->name, config, m->frame->max_batch_size > 0, MAX_RANK, dims,
                                &rank));
    if (!t->any_rank && (!m->asked.reshape || t->rank != rank))
        return check_shape(m, t, dims, rank, takes_batch(m, t));
    take_shape(t, dims, rank);
    *ret_changed = true;
    return NULL;
}

/* Gives the model the inputs' shapes, with so many rows. */
static TRITONSERVER_Error *reshape_model(struct model *m, int64_t rows, bool always)
{
    struct ov_partial_shape *shapes = calloc(m->inputs.n + 1, sizeof(*shapes));
    const char **names = calloc(m->inputs.n + 1, sizeof(*names));
    TRITONSERVER_Error *err = NULL;
    bool changed = always;

    if (!shapes || !names)
        err = backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "out of memory");
    for (size_t i = 0; !err && i < m->inputs.n; i++) {
        struct tensor *t = &m->inputs.tensors[i];

        if (takes_batch(m, t) && t->rank > 0) {
            changed |= t->dims[0] != rows;
            t->limits[0] = rows < 0 ? any_size : (struct ov_dimension){rows, rows};
        }
        names[i] = t->name;
        shapes[i].rank =
            t->any_rank ? any_size : (struct ov_dimension){(int64_t)t->rank, (int64_t)t->rank};
        shapes[i].dims = t->limits;
    }
    m->reshaped |= changed;
    if (!err && changed && m->rt->lib.api.model_reshape(m->read, names, shapes, m->inputs.n) != 0)
        err = library_error(&m->rt->lib, "changing the shapes of inputs");
    free(shapes);
    free(names);
    return err ? err : model_read_shapes(m);
}

/* Do all outputs have so many rows? */
static bool outputs_follow(const struct model *m, int64_t rows)
{
    for (size_t i = 0; i < m->outputs.n; i++) {
        const struct tensor *t = &m->outputs.tensors[i];

        if (!t->source && !t->any_rank && (t->rank == 0 || (t->dims[0] >= 0 && t->dims[0] != rows)))
            return false;
    }
    return true;
}

/* Batches of any size, or else of max_batch_size. */
static TRITONSERVER_Error *fit_batch(struct model *m, bool changed)
{
    TRITONSERVER_Error *err;

    if (m->frame->max_batch_size == 0)
        return reshape_model(m, 0, changed);
    if (!m->asked.fixed_batch) {
        err = reshape_model(m, ANY_ROWS, changed);
        if (err ? TRITONSERVER_ErrorCode(err) == TRITONSERVER_ERROR_UNAVAILABLE
                : outputs_follow(m, ANY_ROWS))
            return err; /* NULL, or no memory */
        BACKEND_LOG(INFO, "model '%s' takes batches of %lld rows only: %s", m->name,
                    (long long)m->frame->max_batch_size,
                    err ? TRITONSERVER_ErrorMessage(err) : "its outputs do not follow the inputs");
        if (err)
            TRITONSERVER_ErrorDelete(err);
    }
    m->fixed_rows = m->frame->max_batch_size;
    return reshape_model(m, m->fixed_rows, true);
}

static TRITONSERVER_Error *check_output(struct model *m, struct tensor *t)
{
    const struct doc_value *config = config_tensor(m, &m->outputs, t);
    int64_t dims[MAX_RANK];
    size_t rank;

    if (!config || t->any_rank || t->source)
        return NULL;
    TRY(model_file_config_shape(m->name, config, m->frame->max_batch_size > 0, MAX_RANK, dims,
                                &rank));
    if (m->fixed_rows > 0)
        dims[0] = m->fixed_rows;
    return check_shape(m, t, dims, rank, 0);
}

/* ---- Types ----------------------------------------------------------------------------------- */

static TRITONSERVER_Error *convert_input(const struct library *l, const struct ov_steps *steps,
                                         const struct tensor *t)
{
    struct ov_input_tensor *tensor = NULL;
    struct ov_input *input = NULL;
    TRITONSERVER_Error *err = NULL;

    TRY_OV(l, "setting the type of an input", preprocess_prepostprocessor_get_input_info_by_name,
           steps, t->name, &input);
    if (l->api.preprocess_input_info_get_tensor_info(input, &tensor) != 0 ||
        l->api.preprocess_input_tensor_info_set_element_type(tensor, t->type->ov) != 0)
        err = library_error(l, "setting the type of an input");
    if (tensor)
        l->api.preprocess_input_tensor_info_free(tensor);
    l->api.preprocess_input_info_free(input);
    return err;
}

static TRITONSERVER_Error *convert_output(const struct library *l, const struct ov_steps *steps,
                                          const struct tensor *t)
{
    struct ov_output_tensor *tensor = NULL;
    struct ov_output *output = NULL;
    TRITONSERVER_Error *err = NULL;

    TRY_OV(l, "setting the type of an output", preprocess_prepostprocessor_get_output_info_by_name,
           steps, t->name, &output);
    if (l->api.preprocess_output_info_get_tensor_info(output, &tensor) != 0 ||
        l->api.preprocess_output_set_element_type(tensor, t->type->ov) != 0)
        err = library_error(l, "setting the type of an output");
    if (tensor)
        l->api.preprocess_output_tensor_info_free(tensor);
    l->api.preprocess_output_info_free(output);
    return err;
}

static TRITONSERVER_Error *convert_all(const struct model *m, const struct ov_steps *steps)
{
    for (size_t i = 0; i < m->inputs.n; i++)
        TRY(convert_input(&m->rt->lib, steps, &m->inputs.tensors[i]));
    for (size_t i = 0; i < m->outputs.n; i++)
        TRY(convert_output(&m->rt->lib, steps, &m->outputs.tensors[i]));
    return NULL;
}

static TRITONSERVER_Error *fit_types(struct model *m)
{
    const struct library *l = &m->rt->lib;
    struct ov_steps *steps = NULL;
    struct ov_model *converted = NULL;
    TRITONSERVER_Error *err;

    TRY_OV(l, "converting types", preprocess_prepostprocessor_create, m->read, &steps);
    err = convert_all(m, steps);
    if (!err && l->api.preprocess_prepostprocessor_build(steps, &converted) != 0)
        err = library_error(l, "converting types");
    l->api.preprocess_prepostprocessor_free(steps);
    if (err)
        return err;
    l->api.model_free(m->read);
    m->read = converted;
    return NULL;
}

TRITONSERVER_Error *fit_model(struct model *m)
{
    bool changed = false;

    for (size_t i = 0; i < m->inputs.n; i++)
        TRY(fit_input(m, &m->inputs.tensors[i], &changed));
    TRY(fit_batch(m, changed));
    for (size_t i = 0; i < m->outputs.n; i++)
        TRY(check_output(m, &m->outputs.tensors[i]));
    return fit_types(m);
}
