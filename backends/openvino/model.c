/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model is loaded in these steps:
 *
 *     find_openvino_file   the file, or the folder of a SavedModel
 *     read_model        OpenVINO reads it; its tensors
 *     name_side         where another backend knows their names
 *     complete_config, check_config, fit_model
 *     quick_prepare     a small one is computed in the thread that calls
 *     heed_cpu_quota, device_prepare  the device's properties
 *     compiled_make     OpenVINO compiles it for the device; the tensors' ports
 *     quick_declare     where a small one executes
 */
#include "openvino/model.h"

#include <stdlib.h>
#include <string.h>

#include "common/model_file.h"
#include "openvino/ir.h"

struct tensor *model_tensor(const struct side *side, const char *name)
{
    for (size_t i = 0; i < side->n; i++)
        if (strcmp(side->tensors[i].name, name) == 0)
            return &side->tensors[i];
    return NULL;
}

/* ---- Tensors --------------------------------------------------------------------------------- */

static TRITONSERVER_Error *read_tensor_name(const struct model *m, const struct side *side,
                                            size_t i, const struct ov_port *port)
{
    const struct ov_api *api = &m->rt->lib.api;
    char *name = NULL;

    if (api->port_get_any_name(port, &name) != 0)
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG, "model '%s': its %s %zu has no name",
                             m->name, side->what, i);
    side->tensors[i].name = strdup(name);
    api->free(name);
    return side->tensors[i].name ? NULL
                                 : backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "out of memory");
}

static TRITONSERVER_Error *read_element_type(const struct model *m, const struct side *side,
                                             size_t i, const struct ov_port *port)
{
    struct tensor *t = &side->tensors[i];
    int type = 0;

    TRY_OV(&m->rt->lib, "reading the type of a tensor", port_get_element_type, port, &type);
    t->type = element_type_of(type);
    return t->type ? NULL
                   : backend_error(TRITONSERVER_ERROR_UNSUPPORTED,
                                   "model '%s': %s '%s' has a datatype that no configuration has "
                                   "(number %d in OpenVINO)",
                                   m->name, side->what, t->name, type);
}

static TRITONSERVER_Error *take_partial_shape(const struct model *m, struct tensor *t,
                                              const struct ov_partial_shape *shape)
{
    t->any_rank = shape->rank.min != shape->rank.max;
    t->rank = t->any_rank ? 0 : (size_t)shape->rank.max;
    if (t->rank > MAX_RANK)
        return backend_error(TRITONSERVER_ERROR_UNSUPPORTED,
                             "model '%s', tensor '%s': more than %d dimensions", m->name, t->name,
                             MAX_RANK);
    for (size_t d = 0; d < t->rank; d++) {
        t->limits[d] = shape->dims[d];
        t->dims[d] = t->limits[d].min == t->limits[d].max ? t->limits[d].max : -1;
    }
    return NULL;
}

static TRITONSERVER_Error *read_tensor_shape(const struct model *m, struct tensor *t,
                                             const struct ov_port *port)
{
    const struct library *l = &m->rt->lib;
    struct ov_partial_shape shape = {0};
    TRITONSERVER_Error *err;

    TRY_OV(l, "reading the shape of a tensor", port_get_partial_shape, port, &shape);
    err = take_partial_shape(m, t, &shape);
    l->api.partial_shape_free(&shape);
    return err;
}

static TRITONSERVER_Error *read_tensor(const struct model *m, const struct side *side, size_t i)
{
    const struct ov_api *api = &m->rt->lib.api;
    struct ov_port *port = NULL;
    TRITONSERVER_Error *err;

    if ((side == &m->inputs ? api->model_const_input_by_index
                            : api->model_const_output_by_index)(m->read, i, &port) != 0)
        return library_error(&m->rt->lib, "reading a tensor");
    err = read_tensor_name(m, side, i, port);
    if (!err)
        err = read_element_type(m, side, i, port);
    if (!err)
        err = read_tensor_shape(m, &side->tensors[i], port);
    api->output_const_port_free(port);
    return err;
}

static TRITONSERVER_Error *read_side(const struct model *m, struct side *side)
{
    const struct ov_api *api = &m->rt->lib.api;
    size_t n = 0;

    if ((side == &m->inputs ? api->model_inputs_size : api->model_outputs_size)(m->read, &n) != 0)
        return library_error(&m->rt->lib, "counting tensors");
    side->tensors = calloc(n + 1, sizeof(*side->tensors));
    if (!side->tensors)
        return backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "out of memory");
    side->n = n;
    for (size_t i = 0; i < n; i++)
        TRY(read_tensor(m, side, i));
    return NULL;
}

static TRITONSERVER_Error *read_shapes_of(struct model *m, struct side *side)
{
    const struct ov_api *api = &m->rt->lib.api;

    for (size_t i = 0; i < side->n; i++) {
        struct tensor *t = &side->tensors[i];
        struct ov_port *port = NULL;
        TRITONSERVER_Error *err;

        if ((side == &m->inputs ? api->model_const_input_by_name
                                : api->model_const_output_by_name)(m->read, t->name, &port) != 0)
            return library_error(&m->rt->lib, "reading a tensor");
        err = read_tensor_shape(m, t, port);
        api->output_const_port_free(port);
        if (err)
            return err;
    }
    return NULL;
}

TRITONSERVER_Error *model_read_shapes(struct model *m)
{
    TRY(read_shapes_of(m, &m->inputs));
    return read_shapes_of(m, &m->outputs);
}

/* ---- The steps ------------------------------------------------------------------------------- */

/* A SavedModel is a folder, which OpenVINO takes as a whole. */
#define SAVED_MODEL "saved_model.pb"

static TRITONSERVER_Error *find_openvino_file(struct model *m)
{
    size_t len, tail = strlen(SAVED_MODEL) + 1;

    TRY(model_file_find(m->frame->handle, m->frame->config, m->name, "model.xml", SAVED_MODEL,
                        &m->path));
    len = strlen(m->path);
    if (len > tail && strcmp(m->path + len - tail, "/" SAVED_MODEL) == 0)
        m->path[len - tail] = '\0';
    return NULL;
}

/* OpenVINO's texts name the file, or not. Takes the error. */
static TRITONSERVER_Error *name_file(const struct model *m, TRITONSERVER_Error *err)
{
    const char *text = TRITONSERVER_ErrorMessage(err);
    TRITONSERVER_Error *named;

    if (strstr(text, m->path))
        return err;
    named = backend_error(TRITONSERVER_ErrorCode(err), "%s (in '%s')", text, m->path);
    TRITONSERVER_ErrorDelete(err);
    return named;
}

static TRITONSERVER_Error *read_model(struct model *m)
{
    const struct library *l = &m->rt->lib;

    TRY_OV(l, "making a core", core_create, &m->core);
    /* OpenVINO would map the file of weights: whoever writes it anew while the model serves would
     * change answers, or end the server. */
    TRY_OV(l, "configuring openvino core", core_set_property, m->core, "", "ENABLE_MMAP", "NO");
    TRY(add_extension(m));
    if (l->api.core_read_model(m->core, m->path, NULL, &m->read) != 0)
        return name_file(m, library_error(l, "reading model"));
    TRY(read_side(m, &m->inputs));
    return read_side(m, &m->outputs);
}

/* OpenVINO's interface in C cannot give variables the values that they begin with. Only its own
 * files have them. */
static TRITONSERVER_Error *warn_of_variables(const struct model *m)
{
    TRITONSERVER_Error *err = NULL;
    char *text = ir_is_file(m->path) ? ir_read(m->path, IR_MOST_BYTES, &err) : NULL;

    if (text && strstr(text, " type=\"ReadValue\""))
        BACKEND_LOG(WARN,
                    "model '%s' has variables (ReadValue): OpenVINO keeps their values from one "
                    "request to the next of the same instance, whoever sends it",
                    m->name);
    free(text);
    return err;
}

/* OpenVINO does not tell what a compiled model takes. So the size of its weights is that of the
 * files that have them: the .bin beside an .xml, or else all that the model consists of. */
static TRITONSERVER_Error *report_weights(const struct model *m)
{
    size_t len = strlen(m->path);
    const char *path = m->path;
    char *weights = NULL;
    uint64_t bytes;

    if (ir_is_file(path)) {
        if (asprintf(&weights, "%.*s.bin", (int)(len - 4), path) < 0)
            return backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "out of memory");
        path = weights;
    }
    bytes = model_file_bytes(path);
    free(weights);
    return backend_report_memory(m->frame->handle, NULL, bytes);
}

static TRITONSERVER_Error *name_side(const struct model *m, struct side *side,
                                     const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct tensor *t;
        TRITONSERVER_Error *err = find_configured_tensor(m, side, names[i], &t);

        if (!err)
            continue;
        TRITONSERVER_ErrorDelete(err);
        return backend_error(TRITONSERVER_ERROR_UNSUPPORTED,
                             "model '%s': OpenVINO does not read the %s '%s' of the file", m->name,
                             side->what, names[i]);
    }
    if (side->n == n)
        return NULL;
    return backend_error(TRITONSERVER_ERROR_UNSUPPORTED,
                         "model '%s': OpenVINO reads %zu %ss where the file has %zu", m->name,
                         side->n, side->what, n);
}

/* Finds the model and reads it. */
static TRITONSERVER_Error *fetch_model(struct model *m, const struct origin *origin)
{
    if (!origin) {
        TRY(find_openvino_file(m));
        return read_model(m);
    }
    m->path = strdup(origin->path);
    if (!m->path)
        return backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "out of memory");
    TRY(read_model(m));
    TRY(name_side(m, &m->inputs, origin->inputs, origin->n_inputs));
    return name_side(m, &m->outputs, origin->outputs, origin->n_outputs);
}

static TRITONSERVER_Error *load_openvino_model(struct model *m, const struct origin *origin)
{
    bool complete;

    TRY(read_parameters(m->frame->config, origin, &m->asked));
    TRY(fetch_model(m, origin));
    TRY(TRITONBACKEND_ModelAutoCompleteConfig(m->frame->handle, &complete));
    if (complete)
        TRY(complete_config(m));
    /* Again: what it borrows is of the configuration before. */
    TRY(read_parameters(m->frame->config, origin, &m->asked));
    TRY(ragged_read(m->frame->config, &m->ragged));
    TRY(check_config(m));
    TRY(fit_model(m));
    TRY(quick_prepare(m));
    heed_cpu_quota(&m->asked);
    TRY(device_prepare(m));
    TRY(compiled_make(m));
    TRY(quick_declare(m));
    TRY(warn_of_variables(m));
    return report_weights(m);
}

TRITONSERVER_Error *model_open_from(struct frame_model *frame, const struct origin *origin)
{
    struct model *m = calloc(1, sizeof(*m));
    TRITONSERVER_Error *err;
    stack_t before;

    if (!m)
        return backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "out of memory");
    frame->state = m;
    m->rt = frame->backend;
    m->frame = frame;
    m->name = frame->name;
    refused_init(&m->refused);
    m->inputs.what = "input";
    m->outputs.what = "output";
    (void)sigaltstack(NULL, &before);
    err = load_openvino_model(m, origin);
    library_give_stack_back(&before);
    return err;
}

TRITONSERVER_Error *model_open(struct frame_model *frame)
{
    return model_open_from(frame, NULL);
}

static void free_side(const struct model *m, struct side *side)
{
    for (size_t i = 0; i < side->n; i++) {
        free(side->tensors[i].name);
        if (side->tensors[i].port)
            m->rt->lib.api.output_const_port_free(side->tensors[i].port);
    }
    free(side->tensors);
}

void model_close(struct frame_model *frame)
{
    struct model *m = frame->state;

    if (!m)
        return;
    free_side(m, &m->inputs);
    free_side(m, &m->outputs);
    compiled_done(m);
    refused_done(&m->refused);
    if (m->read)
        m->rt->lib.api.model_free(m->read);
    if (m->core)
        m->rt->lib.api.core_free(m->core);
    ragged_done(&m->ragged);
    free(m->path);
    free(m);
}
