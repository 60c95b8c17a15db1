/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A run goes through these steps:
 *
 *     give_run_inputs    a tensor for each input: the requests' memory where it is one piece and
 *                        aligned to 64 bytes, which TensorFlow asks for; else a copy
 *     SessionRun         on this thread, where the model is small, and TensorFlow's own
 *     send_run_outputs   each request gets its rows, copied out of TensorFlow's memory
 *     keep_session_states  the states with which the next requests of sequences begin
 *
 * TensorFlow may hand an input on as an output. So inputs live until the outputs are sent. A model
 * that changes variables could keep an input for good, and always gets copies.
 */
#include "tensorflow/tf_run.h"

#include <stdlib.h>
#include <string.h>

#include "common/bytes.h"
#include "common/gather.h"
#include "common/model_file.h"
#include "common/scatter.h"
#include "common/states.h"

#define TF_ALIGNMENT 64

struct tf_runner {
    struct tf_loaded *l;
    struct tf_session *session;
    struct tf_status *status;

    /* One for each input. */
    struct gathered *in;
    /* Those that requests have: what is given, where. */
    size_t n_given;
    struct tf_tensor **given;
    struct tf_port *given_to;
    /* One for each output that is wanted: its index, its place, what was made. */
    size_t n_out, *out;
    struct tf_port *ports;
    struct tf_tensor **made;

    struct gathered strings; /* an output of strings as it travels */
};

/* ---- Life ------------------------------------------------------------------------------------ */

static TRITONSERVER_Error *fill_tf_runner(struct tf_runner *r, struct tf_loaded *l)
{
    const struct tf_model *m = l->m;
    size_t n_in = m->inputs.n + 1, n_out = m->outputs.n + 1;

    r->in = calloc(n_in, sizeof(*r->in));
    r->given = calloc(n_in, sizeof(struct tf_tensor *));
    r->given_to = calloc(n_in, sizeof(*r->given_to));
    r->out = calloc(n_out, sizeof(*r->out));
    r->ports = calloc(n_out, sizeof(*r->ports));
    r->made = calloc(n_out, sizeof(struct tf_tensor *));
    if (!r->in || !r->given || !r->given_to || !r->out || !r->ports || !r->made)
        return backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "out of memory");
    TRY(tf_session_take(l, &r->session));
    r->status = l->lib->api.NewStatus();
    for (size_t i = 0; i < m->outputs.n; i++) {
        if (!l->wanted[i] && !m->outputs.tensors[i].is_state)
            continue;
        r->out[r->n_out] = i;
        r->ports[r->n_out++] = r->session->outputs[i];
    }
    return NULL;
}

TRITONSERVER_Error *tf_runner_new(struct tf_loaded *l, struct tf_runner **ret_runner)
{
    struct tf_runner *r = calloc(1, sizeof(*r));
    TRITONSERVER_Error *err;

    if (!r)
        return backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "out of memory");
    r->l = l;
    err = fill_tf_runner(r, l);
    if (err)
        tf_runner_free(r);
    else
        *ret_runner = r;
    return err;
}

void tf_runner_free(struct tf_runner *r)
{
    for (size_t i = 0; r->in && i < r->l->m->inputs.n; i++)
        gathered_done(&r->in[i]);
    gathered_done(&r->strings);
    if (r->status)
        r->l->lib->api.DeleteStatus(r->status);
    if (r->session)
        tf_session_give_back(r->l, r->session);
    free(r->in);
    free(r->given);
    free(r->given_to);
    free(r->out);
    free(r->ports);
    free(r->made);
    free(r);
}

/* ---- Inputs ---------------------------------------------------------------------------------- */

static void leave_memory(void *data, size_t len, void *arg)
{
    (void)data;
    (void)len;
    (void)arg;
}

/* TensorFlow has let go of strings, maybe long after the execution: variables keep them. */
static void free_strings(void *data, size_t len, void *arg)
{
    const struct tf_api *api = arg;
    struct tf_string *strings = data;

    for (size_t n = len / sizeof(*strings); n > 0; n--)
        api->StringDealloc(&strings[n - 1]);
    free(data);
}

static TRITONSERVER_Error *refuse_tensor_size(size_t size)
{
    return backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "TensorFlow has no memory for %zu bytes",
                         size);
}

static TRITONSERVER_Error *make_strings(const struct tf_runner *r, const char *name,
                                        const struct gathered *in, struct tf_tensor **ret_tensor)
{
    const struct tf_api *api = &r->l->lib->api;
    struct bytes_reader from = bytes_begin(in->data, in->size);
    struct tf_string *to;
    size_t size;
    int64_t n;

    TRY(gather_elements(in->shape, in->rank, &n));
    TRY(bytes_check(name, in->data, in->size, (uint64_t)n));
    size = (size_t)n * sizeof(*to); /* each has four bytes in the request */
    to = aligned_alloc(TF_ALIGNMENT, (size / TF_ALIGNMENT + 1) * TF_ALIGNMENT);
    if (!to)
        return refuse_tensor_size(size);
    for (int64_t i = 0; i < n; i++) {
        const char *data = "";
        uint32_t len = 0;

        backend_ignore(bytes_next(&from, name, &data, &len), "reading checked strings");
        api->StringInit(&to[i]);
        api->StringCopy(&to[i], data, len);
    }
    /* Their interface has no const argument; the deallocator only reads it. */
    *ret_tensor = api->NewTensor(TF_STRING_TYPE, in->shape, (int)in->rank, to, size, free_strings,
                                 (void *)(uintptr_t)api);
    return *ret_tensor ? NULL : refuse_tensor_size(size);
}

static TRITONSERVER_Error *make_input_tensor(const struct tf_runner *r, const struct gathered *in,
                                             int type, struct tf_tensor **ret_tensor)
{
    const struct tf_api *api = &r->l->lib->api;

    if (r->l->in_place && in->size > 0 && (uintptr_t)in->data % TF_ALIGNMENT == 0) {
        /* TensorFlow's interface has no const input; it does not write it. */
        *ret_tensor = api->NewTensor(type, in->shape, (int)in->rank, (void *)(uintptr_t)in->data,
                                     in->size, leave_memory, NULL);
        if (*ret_tensor)
            return NULL;
    }
    *ret_tensor = api->AllocateTensor(type, in->shape, (int)in->rank, in->size);
    if (!*ret_tensor || (in->size > 0 && !api->TensorData(*ret_tensor)))
        return refuse_tensor_size(in->size);
    if (in->size > 0)
        memcpy(api->TensorData(*ret_tensor), in->data, in->size);
    return NULL;
}

static TRITONSERVER_Error *give_run_input(struct tf_runner *r, const struct batch *b, size_t i)
{
    const struct tf_model *m = r->l->m;
    const struct tensor *t = &m->inputs.tensors[i];
    struct gathered *in = &r->in[i];
    struct tf_tensor **to;
    TRITONSERVER_Error *err;

    TRY(t->made
            ? ragged_gather(in, b, t->made)
            : gather(in, b, t->name, t->type->server,
                     (t->ragged ? GATHER_RAGGED : 0) | (r->l->optional[i] ? GATHER_OPTIONAL : 0)));
    if (!t->made && !in->present)
        return NULL;
    if (t->scalar && in->rank == 1 && in->shape[0] == 1)
        in->rank = 0;
    to = &r->given[r->n_given];
    *to = NULL;
    err = t->type->size == 0 ? make_strings(r, t->name, in, to)
                             : make_input_tensor(r, in, m->signature.inputs.tensors[i].type, to);
    r->given_to[r->n_given] = r->session->inputs[i];
    r->n_given += *to != NULL;
    return err;
}

static void free_given(struct tf_runner *r)
{
    while (r->n_given > 0)
        r->l->lib->api.DeleteTensor(r->given[--r->n_given]);
}

/* ---- Outputs --------------------------------------------------------------------------------- */

static TRITONSERVER_Error *write_string_output(struct tf_runner *r, const struct tf_tensor *tensor,
                                               size_t n, const void **ret_data, uint64_t *ret_size)
{
    const struct tf_api *api = &r->l->lib->api;
    const struct tf_string *from = n > 0 ? api->TensorData(tensor) : NULL;
    uint64_t size = 0;
    void *to;

    for (size_t i = 0; i < n; i++) {
        size_t len = api->StringGetSize(&from[i]);

        if (len > UINT32_MAX)
            return backend_error(TRITONSERVER_ERROR_UNSUPPORTED,
                                 "an output has a string of %zu bytes", len);
        size += bytes_size((uint32_t)len);
    }
    TRY(gather_reserve(&r->strings, size > 0 ? size : 1, &to));
    *ret_data = to;
    *ret_size = size;
    for (size_t i = 0; i < n; i++)
        to = bytes_put(to, api->StringGetDataPointer(&from[i]),
                       (uint32_t)api->StringGetSize(&from[i]));
    return NULL;
}

/* Reads the shape of what was made, which must have the type that the model says. */
static TRITONSERVER_Error *read_made_shape(const struct tf_runner *r, size_t i,
                                           const struct tf_tensor *made, int64_t *shape,
                                           uint32_t *ret_rank)
{
    const struct saved_tensor *t = &r->l->m->signature.outputs.tensors[i];
    int rank = r->l->lib->api.NumDims(made);

    if (r->l->lib->api.TensorType(made) != t->type || rank < 0 || rank > MAX_RANK)
        return backend_error(TRITONSERVER_ERROR_INTERNAL,
                             "output '%s' has TensorFlow's type %d and %d dimensions, which is not "
                             "what the model says",
                             t->name, r->l->lib->api.TensorType(made), rank);
    for (int d = 0; d < rank; d++)
        shape[d] = r->l->lib->api.Dim(made, d);
    shape[0] = rank > 0 ? shape[0] : 1; /* servers have no tensors without dimensions */
    *ret_rank = rank > 0 ? (uint32_t)rank : 1;
    return NULL;
}

static TRITONSERVER_Error *send_made(struct tf_runner *r, struct batch *b, size_t o, bool keeps)
{
    size_t i = r->out[o];
    const struct tensor *t = &r->l->m->outputs.tensors[i];
    uint32_t hint = r->n_out == 1 && !t->is_state ? BATCH_WANTED : (uint32_t)o, rank;
    int64_t shape[MAX_RANK], n;
    const void *data = NULL;
    uint64_t size;

    TRY(read_made_shape(r, i, r->made[o], shape, &rank));
    TRY(gather_elements(shape, rank, &n));
    if (t->type->size == 0) {
        TRY(write_string_output(r, r->made[o], (size_t)n, &data, &size));
    } else {
        size = (uint64_t)n * t->type->size;
        if (r->l->lib->api.TensorByteSize(r->made[o]) != size)
            return backend_error(TRITONSERVER_ERROR_INTERNAL, "output '%s' has not %llu bytes",
                                 t->name, (unsigned long long)size);
        data = size > 0 ? r->l->lib->api.TensorData(r->made[o]) : NULL;
    }
    if (keeps)
        return states_keep(b, t->name, t->type->server, shape, rank, data, size);
    return t->source ? scatter_like_input(b, t->name, hint, t->type->server, t->source, data, size)
                     : scatter_rows(b, t->name, hint, t->type->server, shape, rank, data, size);
}

static TRITONSERVER_Error *send_run_outputs(struct tf_runner *r, struct batch *b)
{
    for (size_t o = 0; o < r->n_out; o++)
        if (r->l->wanted[r->out[o]])
            TRY(send_made(r, b, o, false));
    return NULL;
}

/* After all other steps: a run that failed is repeated, and must find the states unchanged. */
static TRITONSERVER_Error *keep_session_states(struct tf_runner *r, struct batch *b)
{
    for (size_t o = 0; o < r->n_out; o++)
        if (r->l->m->outputs.tensors[r->out[o]].is_state)
            TRY(send_made(r, b, o, true));
    return NULL;
}

/* ---- A run ----------------------------------------------------------------------------------- */

static TRITONSERVER_Error *run_tf_session(struct tf_runner *r, struct batch *b)
{
    const struct tf_model *m = r->l->m;

    for (size_t i = 0; i < m->inputs.n; i++)
        TRY(give_run_input(r, b, i));
    batch_computes(b);
    r->l->lib->api.SessionRun(r->session->object, NULL, r->given_to, r->given, (int)r->n_given,
                              r->ports, r->made, (int)r->n_out, NULL, 0, NULL, r->status);
    batch_computed(b);
    TRY(tf_library_error(r->l->lib, r->status, "running the model"));
    TRY(send_run_outputs(r, b));
    return keep_session_states(r, b);
}

TRITONSERVER_Error *tf_runner_run(struct tf_runner *r, struct batch *b)
{
    TRITONSERVER_Error *err = run_tf_session(r, b);

    for (size_t o = 0; o < r->n_out; o++) {
        if (r->made[o])
            r->l->lib->api.DeleteTensor(r->made[o]);
        r->made[o] = NULL;
    }
    free_given(r);
    return err;
}
