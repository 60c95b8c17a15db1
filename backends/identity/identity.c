/* SPDX-License-Identifier: Apache-2.0 */
/*
 * identity - copies the k-th configured input to the k-th configured output.
 *
 * Any type and any shape, BYTES and tensors without elements included. It does nothing else, so it
 * shows the cost of a server around a model, and it is the backend to try clients with.
 *
 * Model parameters
 *   execute_delay_ms                how long each execution takes, milliseconds; 0
 *   instance_wise_delay_multiplier  m: instance i of a group takes m * i times as long, once at
 *                                   least; 0
 *   creation_delay_sec              how long each instance takes to load, seconds; 0
 *
 * Threads: the model's state is constant once it is loaded, instances have none, and a request is
 * answered without an allocation here. Without a delay the time of an execution depends only on the
 * size of its inputs, which the backend declares to the server (conch/backend.h).
 */
#include <stdlib.h>
#include <string.h>

#include "common/frame.h"
#include "identity/demonstration.h"

struct pair {
    const char *input; /* names, borrowed from the configuration */
    const char *output;
};

struct model {
    struct pair *pairs;
    size_t n_pairs;
    int64_t execute_delay_ms;
    int64_t delay_multiplier;
    int64_t creation_delay_sec;
    TRITONSERVER_Metric *metric; /* NULL: without the demonstration */
};

/* ---- Backend -------------------------------------------------------------------------------- */

static TRITONSERVER_Error *initialize(TRITONBACKEND_Backend *backend)
{
    struct demonstration *d;
    TRITONSERVER_Error *err;

    TRY(demonstration_open(backend, &d));
    err = TRITONBACKEND_BackendSetState(backend, d);
    if (err)
        demonstration_close(d);
    return err;
}

static void close_backend_demonstration(TRITONBACKEND_Backend *backend)
{
    void *d = NULL;

    backend_ignore(TRITONBACKEND_BackendState(backend, &d), "reading a state");
    demonstration_close(d);
}

static TRITONSERVER_Error *begin_demonstration(const struct frame_model *fm, struct model *m)
{
    TRITONBACKEND_Backend *backend;
    void *d;

    TRY(TRITONBACKEND_ModelBackend(fm->handle, &backend));
    TRY(TRITONBACKEND_BackendState(backend, &d));
    return demonstration_model_open(d, fm, &m->metric);
}

/* ---- Model ---------------------------------------------------------------------------------- */

static TRITONSERVER_Error *read_pair(const char *model, const struct doc_value *in,
                                     const struct doc_value *out, struct pair *ret_pair)
{
    const char *in_type = doc_string(doc_get(in, "data_type"), "");
    const char *out_type = doc_string(doc_get(out, "data_type"), "");

    ret_pair->input = doc_string(doc_get(in, "name"), "");
    ret_pair->output = doc_string(doc_get(out, "name"), "");
    if (strcmp(in_type, out_type) == 0)
        return NULL;
    return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                         "model '%s': identity copies input '%s' to output '%s', but their "
                         "types are %s and %s",
                         model, ret_pair->input, ret_pair->output, in_type, out_type);
}

/* Pairs inputs with outputs by their position in the configuration. */
static TRITONSERVER_Error *read_pairs(struct model *m, const char *name, const struct doc *config)
{
    const struct doc_value *inputs = doc_get(doc_root(config), "input");
    const struct doc_value *outputs = doc_get(doc_root(config), "output");
    const struct doc_value *in = doc_first(inputs), *out = doc_first(outputs);

    if (doc_count(inputs) != doc_count(outputs))
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                             "model '%s': identity needs as many outputs as inputs, the "
                             "configuration has %zu inputs and %zu outputs",
                             name, doc_count(inputs), doc_count(outputs));
    m->pairs = calloc(doc_count(inputs) + 1, sizeof(*m->pairs));
    if (!m->pairs)
        return backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "out of memory");
    for (; in; in = in->next, out = out->next)
        TRY(read_pair(name, in, out, &m->pairs[m->n_pairs++]));
    return NULL;
}

static TRITONSERVER_Error *open_identity_model(struct frame_model *fm)
{
    struct model *m = fm->state = calloc(1, sizeof(*m));

    if (!m)
        return backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "out of memory");
    TRY(read_pairs(m, fm->name, fm->config));
    TRY(backend_parameter_int(fm->config, "execute_delay_ms", 0, 3600 * 1000, 0,
                              &m->execute_delay_ms));
    TRY(backend_parameter_int(fm->config, "instance_wise_delay_multiplier", 0, 1000, 0,
                              &m->delay_multiplier));
    TRY(backend_parameter_int(fm->config, "creation_delay_sec", 0, 3600, 0,
                              &m->creation_delay_sec));
    TRY(begin_demonstration(fm, m));
    return m->execute_delay_ms > 0 ? NULL : backend_declare_bounded(fm->handle);
}

static void model_close(struct frame_model *fm)
{
    struct model *m = fm->state;

    if (m) {
        demonstration_model_close(m->metric);
        free(m->pairs);
    }
    free(m);
}

static TRITONSERVER_Error *open_identity_instance(struct frame_instance *in)
{
    const struct model *m = in->model->state;

    if (m->metric && m->creation_delay_sec)
        BACKEND_LOG(INFO, "Creation delay is set to: %lld", (long long)m->creation_delay_sec);
    backend_pause_ms(m->creation_delay_sec * 1000);
    return demonstration_instance_open(m->metric, in);
}

static void instance_close(struct frame_instance *in)
{
    const struct model *m = in->model->state;

    demonstration_instance_close(m->metric);
}

/* ---- Requests ------------------------------------------------------------------------------- */

/* Finds the pair that writes this output. Outputs mostly come in the order of the configuration. */
static const struct pair *find_pair(const struct model *m, uint32_t hint, const char *output)
{
    if (hint < m->n_pairs && strcmp(m->pairs[hint].output, output) == 0)
        return &m->pairs[hint];
    for (size_t i = 0; i < m->n_pairs; i++)
        if (strcmp(m->pairs[i].output, output) == 0)
            return &m->pairs[i];
    return NULL;
}

static TRITONSERVER_Error *copy_tensor(const struct batch_part *part, const struct pair *p)
{
    TRITONSERVER_DataType type;
    TRITONBACKEND_Output *output;
    TRITONBACKEND_Input *input;
    const int64_t *shape;
    uint32_t n_dims, n_buffers;
    uint64_t size;
    void *to;

    TRY(TRITONBACKEND_RequestInput(part->request, p->input, &input));
    TRY(TRITONBACKEND_InputProperties(input, NULL, &type, &shape, &n_dims, &size, &n_buffers));
    TRY(TRITONBACKEND_ResponseOutput(part->response, &output, p->output, type, shape, n_dims));
    TRY(backend_output_alloc(output, size, &to));
    return backend_input_copy(input, n_buffers, to, size);
}

/* Writes the outputs that the request asks for. */
static TRITONSERVER_Error *fill_response(const struct model *m, const struct batch_part *part,
                                         uint32_t number)
{
    uint32_t n_outputs;

    TRY(TRITONBACKEND_RequestOutputCount(part->request, &n_outputs));
    for (uint32_t i = 0; i < n_outputs; i++) {
        const struct pair *p;
        const char *name;

        TRY(TRITONBACKEND_RequestOutputName(part->request, i, &name));
        p = find_pair(m, i, name);
        if (!p)
            return backend_error(TRITONSERVER_ERROR_INVALID_ARG, "there is no output '%s'", name);
        TRY(copy_tensor(part, p));
    }
    return m->metric ? demonstration_answer(m->metric, part, number) : NULL;
}

/* The name of an instance ends in its number within its group. */
static int64_t delay_of(const struct model *m, const char *instance)
{
    const char *number = strrchr(instance, '_');
    int64_t times = number ? m->delay_multiplier * (int64_t)strtoul(number + 1, NULL, 10) : 0;

    return m->execute_delay_ms * (times > 1 ? times : 1);
}

/* This model computes only a copy, so the statistics count nothing else. */
static TRITONSERVER_Error *execute_identity(struct frame_instance *in, struct batch *b)
{
    const struct model *m = in->model->state;

    if (m->metric)
        BACKEND_LOG(VERBOSE, "model %s, instance %s, executing %u requests", in->model->name,
                    in->name, b->n_parts);
    if (m->execute_delay_ms > 0) {
        backend_pause_ms(delay_of(m, in->name));
        batch_drop_cancelled(b);
    }
    for (uint32_t i = 0; i < b->n_parts; i++)
        if (!b->parts[i].err)
            batch_fail(b, &b->parts[i], fill_response(m, &b->parts[i], i));
    return NULL;
}

static const struct frame frame = {
    .initialize = initialize,
    .finalize = close_backend_demonstration,
    .model_open = open_identity_model,
    .model_close = model_close,
    .instance_open = open_identity_instance,
    .instance_close = instance_close,
    .execute = execute_identity,
};
BACKEND_FRAME(frame)
