/* SPDX-License-Identifier: Apache-2.0 */
/*
 * identity - what comes in as the k-th configured input goes out as the k-th configured output.
 *
 * Any type and any shape, BYTES and tensors without elements too. It does nothing else, so it shows
 * what a server costs around a model, and it is the backend to try clients with.
 *
 * Model parameters
 *   execute_delay_ms    how long each execution takes, milliseconds; 0
 *   creation_delay_sec  how long each instance takes to load, seconds; 0
 *
 * Threads: the model's state is constant once it is loaded, instances have none, and a request is
 * answered without allocating anything here.
 */
#include "common/backend.h"

#include <stdlib.h>
#include <string.h>

struct pair {
    const char *input; /* names, borrowed from config */
    const char *output;
};

struct model {
    struct doc *config;
    struct pair *pairs;
    size_t n_pairs;
    bool batches; /* the first dimension of a shape is the batch */
    int64_t execute_delay_ms;
    int64_t creation_delay_sec;
};

/* ---- Model ---------------------------------------------------------------------------------- */

static void model_free(struct model *m)
{
    if (!m)
        return;
    doc_free(m->config);
    free(m->pairs);
    free(m);
}

/* Pair inputs with outputs by their place in the configuration. */
static TRITONSERVER_Error *model_pair(struct model *m, const char *name)
{
    const struct doc_value *inputs = doc_get(doc_root(m->config), "input");
    const struct doc_value *outputs = doc_get(doc_root(m->config), "output");
    const struct doc_value *in = doc_first(inputs), *out = doc_first(outputs);

    if (doc_count(inputs) != doc_count(outputs))
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                             "model '%s': identity needs as many outputs as inputs, the "
                             "configuration has %zu inputs and %zu outputs",
                             name, doc_count(inputs), doc_count(outputs));
    m->pairs = calloc(doc_count(inputs) + 1, sizeof(*m->pairs));
    if (!m->pairs)
        return backend_error(TRITONSERVER_ERROR_INTERNAL, "out of memory");
    for (; in; in = in->next, out = out->next) {
        struct pair *p = &m->pairs[m->n_pairs++];
        const char *in_type = doc_string(doc_get(in, "data_type"), "");
        const char *out_type = doc_string(doc_get(out, "data_type"), "");

        p->input = doc_string(doc_get(in, "name"), "");
        p->output = doc_string(doc_get(out, "name"), "");
        if (strcmp(in_type, out_type) != 0)
            return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                                 "model '%s': identity copies input '%s' to output '%s', but their "
                                 "types are %s and %s",
                                 name, p->input, p->output, in_type, out_type);
    }
    return NULL;
}

static TRITONSERVER_Error *model_load(struct model *m, TRITONBACKEND_Model *model)
{
    int64_t max_batch_size = 0;
    const char *name;

    TRY(TRITONBACKEND_ModelName(model, &name));
    TRY(backend_model_config(model, &m->config));
    TRY(model_pair(m, name));
    doc_int(doc_get(doc_root(m->config), "max_batch_size"), &max_batch_size);
    m->batches = max_batch_size > 0;
    TRY(backend_parameter_int(m->config, "execute_delay_ms", 0, 3600 * 1000, 0,
                              &m->execute_delay_ms));
    return backend_parameter_int(m->config, "creation_delay_sec", 0, 3600, 0,
                                 &m->creation_delay_sec);
}

TRITONSERVER_Error *TRITONBACKEND_Initialize(TRITONBACKEND_Backend *backend)
{
    return backend_check_version();
}

TRITONSERVER_Error *TRITONBACKEND_ModelInitialize(TRITONBACKEND_Model *model)
{
    struct model *m = calloc(1, sizeof(*m));
    TRITONSERVER_Error *err;

    if (!m)
        return backend_error(TRITONSERVER_ERROR_INTERNAL, "out of memory");
    err = model_load(m, model);
    if (!err)
        err = TRITONBACKEND_ModelSetState(model, m);
    if (err)
        model_free(m);
    return err;
}

TRITONSERVER_Error *TRITONBACKEND_ModelFinalize(TRITONBACKEND_Model *model)
{
    void *m;

    TRY(TRITONBACKEND_ModelState(model, &m));
    model_free(m);
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceInitialize(TRITONBACKEND_ModelInstance *instance)
{
    TRITONBACKEND_Model *model;
    void *state;

    TRY(TRITONBACKEND_ModelInstanceModel(instance, &model));
    TRY(TRITONBACKEND_ModelState(model, &state));
    backend_pause_ms(((const struct model *)state)->creation_delay_sec * 1000);
    return TRITONBACKEND_ModelInstanceSetState(instance, state);
}

/* ---- Requests ------------------------------------------------------------------------------- */

/* Which pair writes this output? Outputs mostly come in the order of the configuration. */
static const struct pair *find_pair(const struct model *m, uint32_t hint, const char *output)
{
    if (hint < m->n_pairs && strcmp(m->pairs[hint].output, output) == 0)
        return &m->pairs[hint];
    for (size_t i = 0; i < m->n_pairs; i++)
        if (strcmp(m->pairs[i].output, output) == 0)
            return &m->pairs[i];
    return NULL;
}

static TRITONSERVER_Error *copy_tensor(TRITONBACKEND_Request *request,
                                       TRITONBACKEND_Response *response, const struct pair *p)
{
    TRITONSERVER_DataType type;
    TRITONBACKEND_Output *output;
    TRITONBACKEND_Input *input;
    const int64_t *shape;
    uint32_t n_dims, n_buffers;
    uint64_t size;
    void *to;

    TRY(TRITONBACKEND_RequestInput(request, p->input, &input));
    TRY(TRITONBACKEND_InputProperties(input, NULL, &type, &shape, &n_dims, &size, &n_buffers));
    TRY(TRITONBACKEND_ResponseOutput(response, &output, p->output, type, shape, n_dims));
    TRY(backend_output_alloc(output, size, &to));
    return backend_input_copy(input, n_buffers, to, size);
}

/* Write the outputs that the request asks for. */
static TRITONSERVER_Error *fill_response(const struct model *m, TRITONBACKEND_Request *request,
                                         TRITONBACKEND_Response *response)
{
    uint32_t n_outputs;

    TRY(TRITONBACKEND_RequestOutputCount(request, &n_outputs));
    for (uint32_t i = 0; i < n_outputs; i++) {
        const struct pair *p;
        const char *name;

        TRY(TRITONBACKEND_RequestOutputName(request, i, &name));
        p = find_pair(m, i, name);
        if (!p)
            return backend_error(TRITONSERVER_ERROR_INVALID_ARG, "there is no output '%s'", name);
        TRY(copy_tensor(request, response, p));
    }
    return NULL;
}

/* 1 for models that do not batch. */
static uint64_t batch_size(const struct model *m, TRITONBACKEND_Request *request)
{
    TRITONBACKEND_Input *input;
    TRITONSERVER_Error *err;
    const int64_t *shape;
    uint32_t n_dims;

    if (!m->batches)
        return 1;
    err = TRITONBACKEND_RequestInputByIndex(request, 0, &input);
    if (!err)
        err = TRITONBACKEND_InputProperties(input, NULL, NULL, &shape, &n_dims, NULL, NULL);
    if (!err && n_dims > 0)
        return (uint64_t)shape[0];
    TRITONSERVER_ErrorDelete(err);
    return 1;
}

/* Make the response of one request; on error there may or may not be one. */
static TRITONSERVER_Error *make_response(const struct model *m, TRITONBACKEND_Request *request,
                                         TRITONBACKEND_Response **response)
{
    bool cancelled = false;

    TRY(TRITONBACKEND_ResponseNew(response, request));
    if (m->execute_delay_ms > 0)
        TRY(TRITONBACKEND_RequestIsCancelled(request, &cancelled));
    if (cancelled)
        return backend_error(TRITONSERVER_ERROR_CANCELLED, "cancelled while it was executed");
    return fill_response(m, request, *response);
}

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceExecute(TRITONBACKEND_ModelInstance *instance,
                                                       TRITONBACKEND_Request **requests,
                                                       const uint32_t request_count)
{
    const struct model *m;
    uint64_t start_ns, end_ns, batch = 0;
    void *state;

    TRY(TRITONBACKEND_ModelInstanceState(instance, &state));
    m = state;

    start_ns = backend_now_ns();
    if (m->execute_delay_ms > 0)
        backend_pause_ms(m->execute_delay_ms);
    for (uint32_t i = 0; i < request_count; i++) {
        TRITONBACKEND_Response *response = NULL;
        TRITONSERVER_Error *err;

        batch += batch_size(m, requests[i]);
        err = make_response(m, requests[i], &response);
        end_ns = backend_now_ns();
        /* All statistics come before the answer that they count, so that a client which has its
         * answer finds it counted. Copying is all that this model computes. */
        backend_ignore(TRITONBACKEND_ModelInstanceReportStatistics(
                           instance, requests[i], !err, start_ns, start_ns, end_ns, end_ns),
                       "reporting statistics");
        if (i == request_count - 1)
            backend_ignore(TRITONBACKEND_ModelInstanceReportBatchStatistics(
                               instance, batch, start_ns, start_ns, end_ns, end_ns),
                           "reporting statistics");
        if (err)
            backend_answer_error(requests[i], response, err);
        else
            backend_ignore(
                TRITONBACKEND_ResponseSend(response, TRITONSERVER_RESPONSE_COMPLETE_FINAL, NULL),
                "sending a response");
        backend_ignore(TRITONBACKEND_RequestRelease(requests[i], TRITONSERVER_REQUEST_RELEASE_ALL),
                       "releasing a request");
    }
    return NULL;
}
