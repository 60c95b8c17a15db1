/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A run goes through these steps, each a function:
 *
 *     bind_inputs    wraps the requests' tensors as values of ONNX Runtime; adjacent buffers are
 *                    used in place, others are copied into one (gather.h)
 *     choose_outputs finds the outputs of the model that a request wants
 *     bind_outputs   gives memory to every output whose shape is known already; with one request
 *                    it is the memory of its response, so that the model writes into that
 *                    (scatter.h)
 *     run_session    runs the model
 *     write_outputs  copies each request its rows, unless the model has written them in place
 *     keep_states    keeps the states with which the next requests of sequences begin
 *
 * Nothing is sent before the end, so a failed run can be repeated in another way.
 *
 * Wrapping memory in a value of ONNX Runtime costs a tenth of a short run for each tensor. Memory
 * is often that of the last run: a client that waits for its answers, batches of one size. So a
 * wrapped value is kept, and used again when memory and shape are the same. It owns nothing.
 */
#include "onnxruntime/execute.h"

#include <stdlib.h>
#include <string.h>

#include "common/frame.h"
#include "common/gather.h"
#include "common/scatter.h"
#include "onnxruntime/session.h"
#include "onnxruntime/states.h"
#include "onnxruntime/strings.h"

/* Memory as a value of ONNX Runtime. */
struct wrapped {
    struct ort_value *value; /* NULL: nothing was wrapped yet */
    const void *data;        /* never read through this pointer: the memory may be freed */
    uint64_t size;
    size_t rank;
    int64_t shape[BATCH_MAX_RANK];
};

struct bound_output {
    const struct tensor *t;
    uint32_t hint; /* its position among the model's outputs, or BATCH_WANTED */
    bool wanted;   /* by a request; otherwise it is only a state */
    bool bound;    /* the model writes into `to`; its value is a wrapped one */
    struct scattered to;
    int64_t shape[MAX_RANK]; /* of the whole batch */
    size_t rank;
    size_t n_elements;
};

struct executor {
    struct frame_execution execution;
    struct model *m;
    const struct library *lib;
    struct ort_run_options *run_options;
    struct watched *watched;

    /* One for each of the model's inputs. */
    struct gathered *in;
    struct wrapped *in_wrapped;
    /* One for each input of this run. */
    struct ort_value **in_values;
    const char **in_names;
    size_t n_in;
    /* The values of strings among them, made for this run. */
    struct ort_value **in_strings;
    size_t n_strings;

    struct wrapped *out_wrapped; /* one for each of the model's outputs */
    /* One for each output of this run. */
    struct bound_output *out;
    struct ort_value **out_values;
    const char **out_names;
    size_t n_out;

    bool predict; /* bind outputs in this attempt? */
    bool run_failed;
};

static TRITONSERVER_Error *terminate_run(void *run)
{
    const struct executor *x = run;

    return library_error(x->lib, x->lib->api.RunOptionsSetTerminate(x->run_options));
}

static TRITONSERVER_Error *permit_runs(void *run)
{
    const struct executor *x = run;

    return library_error(x->lib, x->lib->api.RunOptionsUnsetTerminate(x->run_options));
}

static const struct watch_action run_action = {.end = terminate_run, .allow = permit_runs};

/* ---- Life ----------------------------------------------------------------------------------- */

static bool alloc_arrays(struct executor *x)
{
    size_t n_in = x->m->n_inputs + 1, n_out = x->m->n_outputs + 1;

    x->in = calloc(n_in, sizeof(*x->in));
    x->in_wrapped = calloc(n_in, sizeof(*x->in_wrapped));
    x->in_strings = calloc(n_in, sizeof(struct ort_value *));
    x->in_values = calloc(n_in, sizeof(struct ort_value *));
    x->in_names = calloc(n_in, sizeof(char *));
    x->out_wrapped = calloc(n_out, sizeof(*x->out_wrapped));
    x->out = calloc(n_out, sizeof(*x->out));
    x->out_values = calloc(n_out, sizeof(struct ort_value *));
    x->out_names = calloc(n_out, sizeof(char *));
    return x->in && x->in_wrapped && x->in_strings && x->in_values && x->in_names &&
           x->out_wrapped && x->out && x->out_values && x->out_names;
}

static void release_wrapped(const struct executor *x, struct wrapped *all, size_t n)
{
    for (size_t i = 0; all && i < n; i++)
        if (all[i].value)
            x->lib->api.ReleaseValue(all[i].value);
    free(all);
}

static TRITONSERVER_Error *run_batch(void *arg, struct batch *b);

TRITONSERVER_Error *executor_new(struct model *m, TRITONBACKEND_ModelInstance *instance,
                                 struct executor **ret_executor)
{
    struct executor *x = calloc(1, sizeof(*x));
    TRITONSERVER_Error *err;

    if (!x)
        return backend_error(TRITONSERVER_ERROR_INTERNAL, "out of memory");
    x->m = m;
    x->lib = &m->rt->lib;
    x->execution = (struct frame_execution){.execute = run_batch,
                                            .arg = x,
                                            .instance = instance,
                                            .model = m->name,
                                            .has_rows = m->max_batch_size > 0,
                                            .repeat_alone = true,
                                            .names_model = true};
    if (!alloc_arrays(x)) {
        executor_free(x);
        return backend_error(TRITONSERVER_ERROR_INTERNAL, "out of memory");
    }
    err = session_run_options(m, &x->run_options);
    if (!err)
        err = watch_add(m->rt->watch, &run_action, x, 0, &x->watched);
    if (err) {
        executor_free(x);
        return err;
    }
    *ret_executor = x;
    return NULL;
}

void executor_free(struct executor *x)
{
    if (!x)
        return;
    for (size_t i = 0; x->in && i < x->m->n_inputs; i++)
        gathered_done(&x->in[i]);
    for (size_t i = 0; x->out && i < x->m->n_outputs; i++)
        scattered_done(&x->out[i].to);
    release_wrapped(x, x->in_wrapped, x->m->n_inputs);
    release_wrapped(x, x->out_wrapped, x->m->n_outputs);
    free(x->in);
    free(x->in_strings);
    free(x->in_values);
    free(x->in_names);
    free(x->out);
    free(x->out_values);
    free(x->out_names);
    batch_done(&x->execution.batch);
    watch_remove(x->watched);
    if (x->run_options)
        x->lib->api.ReleaseRunOptions(x->run_options);
    free(x);
}

/* Releases the values of a run, with the memory that belongs to ONNX Runtime. */
static void release_values(struct executor *x)
{
    for (size_t i = 0; i < x->n_strings; i++)
        x->lib->api.ReleaseValue(x->in_strings[i]);
    for (size_t i = 0; i < x->n_out; i++)
        if (!x->out[i].bound && x->out_values[i])
            x->lib->api.ReleaseValue(x->out_values[i]);
    x->n_in = x->n_strings = x->n_out = 0;
}

/* Returns the value for this memory: the kept one, or a new one that replaces it. */
static TRITONSERVER_Error *wrap_memory(struct executor *x, struct wrapped *w,
                                       const struct tensor *t, const void *data, uint64_t size,
                                       const int64_t *shape, size_t rank,
                                       struct ort_value **ret_value)
{
    if (!w->value || w->data != data || w->size != size || w->rank != rank ||
        memcmp(w->shape, shape, rank * sizeof(*shape)) != 0) {
        if (w->value)
            x->lib->api.ReleaseValue(w->value);
        w->value = NULL;
        /* ONNX Runtime's interface has no const input; it does not write it. */
        TRY_ORT(x->lib, CreateTensorWithDataAsOrtValue(x->m->rt->cpu, (void *)(uintptr_t)data, size,
                                                       shape, rank, t->type->ort, &w->value));
        w->data = data;
        w->size = size;
        w->rank = rank;
        memcpy(w->shape, shape, rank * sizeof(*shape));
    }
    *ret_value = w->value;
    return NULL;
}

/* ---- Inputs --------------------------------------------------------------------------------- */

static TRITONSERVER_Error *bind_input(struct executor *x, const struct batch *b, size_t i)
{
    const struct tensor *t = &x->m->inputs[i];
    struct gathered *in = &x->in[i];
    struct ort_value **value = &x->in_values[x->n_in];

    in->present = false;
    in->rank = 0;
    if (!t->configured) /* the file's own value holds */
        return NULL;
    TRY(t->made ? ragged_gather(in, b, t->made)
                : gather(in, b, t->name, t->type->server,
                         (t->optional ? GATHER_OPTIONAL : 0) | (t->ragged ? GATHER_RAGGED : 0)));
    if (!in->present)
        return NULL;
    if (t->scalar && in->rank == 1 && in->shape[0] == 1)
        in->rank = 0;
    if (t->type->size == 0) {
        TRY(strings_read(x->lib, x->m->rt->heap, t->name, in->data, in->size, in->shape, in->rank,
                         value));
        x->in_strings[x->n_strings++] = *value;
    } else {
        TRY(wrap_memory(x, &x->in_wrapped[i], t, in->data, in->size, in->shape, in->rank, value));
    }
    x->in_names[x->n_in++] = t->name;
    return NULL;
}

static TRITONSERVER_Error *bind_inputs(struct executor *x, const struct batch *b)
{
    for (size_t i = 0; i < x->m->n_inputs; i++)
        TRY(bind_input(x, b, i));
    return NULL;
}

/* ---- Outputs, before the run ---------------------------------------------------------------- */

static TRITONSERVER_Error *is_output_wanted(const struct batch *b, const struct tensor *t,
                                            uint32_t hint, bool *ret_wanted)
{
    *ret_wanted = false;
    for (uint32_t i = 0; i < b->n_parts && !*ret_wanted; i++)
        if (!b->parts[i].err)
            TRY(batch_wants(&b->parts[i], t->name, hint, ret_wanted));
    return NULL;
}

/* Handles the usual request: it names no outputs, which means all of them. */
static TRITONSERVER_Error *wants_all_outputs(const struct executor *x, const struct batch *b,
                                             bool *ret_all)
{
    uint32_t n = 0;

    if (!b->parts[0].err)
        TRY(TRITONBACKEND_RequestOutputCount(b->parts[0].request, &n));
    *ret_all = n == x->m->n_outputs; /* no request has an output twice */
    return NULL;
}

static TRITONSERVER_Error *choose_outputs(struct executor *x, const struct batch *b)
{
    bool all;

    x->n_out = 0;
    TRY(wants_all_outputs(x, b, &all));
    for (size_t i = 0; i < x->m->n_outputs; i++) {
        const struct tensor *t = &x->m->outputs[i];
        struct bound_output *out = &x->out[x->n_out];
        bool wanted = all;

        if (!all)
            TRY(is_output_wanted(b, t, (uint32_t)i, &wanted));
        if (!wanted && !t->is_state)
            continue;
        out->t = t;
        out->wanted = wanted;
        out->hint = b->n_parts == 1 ? BATCH_WANTED : (uint32_t)i;
        out->bound = false;
        x->out_names[x->n_out] = t->name;
        x->out_values[x->n_out++] = NULL;
    }
    return NULL;
}

/* Predicts the shape of an output; false: it is unknown or too large. */
static bool predict_shape(const struct executor *x, const struct batch *b, struct bound_output *out,
                          uint64_t *ret_size)
{
    const struct tensor *t = out->t;
    uint64_t size = t->type->size;

    if (!t->predictable)
        return false;
    for (size_t d = 0; d < t->rank; d++) {
        const struct dim_source *from = &t->from[d];

        out->shape[d] = t->dims[d];
        if (from->input >= 0) {
            if ((size_t)from->dim >= x->in[from->input].rank)
                return false;
            out->shape[d] = x->in[from->input].shape[from->dim];
        }
        if (__builtin_mul_overflow(size, (uint64_t)out->shape[d], &size))
            return false;
    }
    out->rank = t->rank;
    *ret_size = size;
    return size > 0 && size <= INT64_MAX && (b->n_parts == 1 || (uint64_t)out->shape[0] == b->rows);
}

static TRITONSERVER_Error *bind_outputs(struct executor *x, const struct batch *b)
{
    for (size_t i = 0; i < x->n_out && x->predict; i++) {
        struct bound_output *out = &x->out[i];
        const struct tensor *t = out->t;
        uint64_t size;

        if (t->is_state || !predict_shape(x, b, out, &size))
            continue;
        TRY(scatter_begin(&out->to, b, t->name, out->hint, t->type->server, out->shape,
                          (uint32_t)out->rank));
        out->bound = true;
        TRY(wrap_memory(x, &x->out_wrapped[t - x->m->outputs], t, out->to.data, size, out->shape,
                        out->rank, &x->out_values[i]));
    }
    return NULL;
}

/* ---- Outputs, after the run ----------------------------------------------------------------- */

static TRITONSERVER_Error *read_info(struct executor *x, const struct tensor *t,
                                     const struct ort_shape *info, struct bound_output *out)
{
    enum ort_element type;

    TRY_ORT(x->lib, GetTensorElementType(info, &type));
    TRY_ORT(x->lib, GetDimensionsCount(info, &out->rank));
    if (type != t->type->ort || out->rank > MAX_RANK)
        return backend_error(
            TRITONSERVER_ERROR_INTERNAL,
            "output '%s' has ONNX element type %d and %zu dimensions, which is not "
            "what the model says",
            t->name, (int)type, out->rank);
    TRY_ORT(x->lib, GetDimensions(info, out->shape, out->rank));
    out->n_elements = 1;
    for (size_t d = 0; d < out->rank; d++)
        out->n_elements *= (size_t)out->shape[d];
    if (out->rank == 0) /* a single value; servers have no tensors without dimensions */
        out->shape[out->rank++] = 1;
    return NULL;
}

/* Reads the type and shape of the output that the model made. */
static TRITONSERVER_Error *describe_output(struct executor *x, struct bound_output *out,
                                           const struct ort_value *value)
{
    struct ort_shape *info = NULL;
    TRITONSERVER_Error *err;

    TRY_ORT(x->lib, GetTensorTypeAndShape(value, &info));
    err = read_info(x, out->t, info, out);
    x->lib->api.ReleaseTensorTypeAndShapeInfo(info);
    return err;
}

/* Writes strings directly into the responses. */
static TRITONSERVER_Error *write_strings(struct executor *x, const struct batch_part *part,
                                         const struct bound_output *out,
                                         const struct ort_value *value, size_t first, size_t n)
{
    TRITONBACKEND_Output *output;
    int64_t shape[MAX_RANK];
    size_t size;
    void *to;

    memcpy(shape, out->shape, out->rank * sizeof(*shape));
    if (n != out->n_elements)
        shape[0] = (int64_t)part->rows;
    TRY(strings_size(x->lib, value, first, n, &size));
    TRY(TRITONBACKEND_ResponseOutput(part->response, &output, out->t->name, TRITONSERVER_TYPE_BYTES,
                                     shape, (uint32_t)out->rank));
    TRY(backend_output_alloc(output, size, &to));
    return strings_write(x->lib, value, first, n, to, size);
}

static TRITONSERVER_Error *check_bound_rows(const struct batch *b, const struct bound_output *out)
{
    if (b->n_parts == 1 || (uint64_t)out->shape[0] == b->rows)
        return NULL;
    return backend_error(TRITONSERVER_ERROR_INTERNAL,
                         "output '%s' has %lld rows for a batch of %llu", out->t->name,
                         (long long)out->shape[0], (unsigned long long)b->rows);
}

static TRITONSERVER_Error *scatter_strings(struct executor *x, const struct batch *b,
                                           const struct bound_output *out,
                                           const struct ort_value *value)
{
    size_t first = 0, n = out->n_elements;
    size_t per_row = b->rows > 0 ? out->n_elements / b->rows : 0;

    TRY(check_bound_rows(b, out));
    for (uint32_t i = 0; i < b->n_parts; i++, first += n) {
        const struct batch_part *part = &b->parts[i];
        bool wanted;

        if (b->n_parts > 1)
            n = part->err ? 0 : part->rows * per_row;
        if (part->err)
            continue;
        TRY(batch_wants(part, out->t->name, out->hint, &wanted));
        if (wanted)
            TRY(write_strings(x, part, out, value, first, n));
    }
    return NULL;
}

/* Copies an output into the responses: a batch is contiguous and its responses are not, or the
 * size was not known before. */
static TRITONSERVER_Error *write_output(struct executor *x, const struct batch *b,
                                        struct bound_output *out, struct ort_value *value)
{
    const struct tensor *t = out->t;
    void *data = NULL;

    if (out->bound)
        return scatter_end(&out->to, b);
    TRY(describe_output(x, out, value));
    if (t->type->size == 0)
        return scatter_strings(x, b, out, value);
    TRY_ORT(x->lib, GetTensorMutableData(value, &data));
    if (t->source)
        return scatter_like_input(b, t->name, out->hint, t->type->server, t->source, data,
                                  out->n_elements * t->type->size);
    return scatter_rows(b, t->name, out->hint, t->type->server, out->shape, (uint32_t)out->rank,
                        data, out->n_elements * t->type->size);
}

/* Gives the server the state for the next request of each sequence. */
static TRITONSERVER_Error *keep_state(struct executor *x, struct batch *b, struct bound_output *out,
                                      const struct ort_value *value)
{
    size_t first = 0, n, per_row;

    TRY(describe_output(x, out, value));
    n = out->n_elements;
    per_row = b->rows > 0 ? n / b->rows : 0;
    TRY(check_bound_rows(b, out));
    for (uint32_t i = 0; i < b->n_parts; i++, first += n) {
        struct batch_part *part = &b->parts[i];
        int64_t shape[MAX_RANK];

        memcpy(shape, out->shape, out->rank * sizeof(*shape));
        if (b->n_parts > 1) {
            n = part->err ? 0 : part->rows * per_row;
            shape[0] = (int64_t)part->rows;
        }
        /* A failed state harms no other sequence. */
        if (!part->err)
            batch_fail(b, part,
                       state_keep(x->lib, part->request, out->t, value, first, n, shape,
                                  (uint32_t)out->rank));
    }
    return NULL;
}

/* After all other steps: a run that failed is repeated, and must find the states unchanged. */
static TRITONSERVER_Error *keep_states(struct executor *x, struct batch *b)
{
    for (size_t i = 0; i < x->n_out; i++)
        if (x->out[i].t->is_state)
            TRY(keep_state(x, b, &x->out[i], x->out_values[i]));
    return NULL;
}

/* ---- A run ---------------------------------------------------------------------------------- */

/* Runs the model.
 * Errors: CANCELLED  all requests were cancelled */
static TRITONSERVER_Error *run_session(struct executor *x, const struct batch *b)
{
    struct ort_status *status;
    bool cancelled;

    watch_begin(x->watched, b->parts, b->n_parts);
    status = x->lib->api.Run(x->m->session, x->run_options, x->in_names,
                             (const struct ort_value *const *)x->in_values, x->n_in, x->out_names,
                             x->n_out, x->out_values);
    cancelled = watch_end(x->watched);
    if (status && cancelled) {
        x->lib->api.ReleaseStatus(status);
        return backend_error(TRITONSERVER_ERROR_CANCELLED, "cancelled while the model was running");
    }
    x->run_failed = status != NULL;
    return library_error(x->lib, status);
}

/* Makes complete but unsent responses from the requests. */
static TRITONSERVER_Error *compute_responses(struct executor *x, struct batch *b)
{
    TRY(bind_inputs(x, b));
    TRY(choose_outputs(x, b));
    TRY(bind_outputs(x, b));
    batch_computes(b);
    TRY(run_session(x, b));
    batch_computed(b);
    for (size_t i = 0; i < x->n_out; i++)
        if (x->out[i].wanted)
            TRY(write_output(x, b, &x->out[i], x->out_values[i]));
    return keep_states(x, b);
}

static bool any_bound(const struct executor *x)
{
    for (size_t i = 0; i < x->n_out; i++)
        if (x->out[i].bound)
            return true;
    return false;
}

static TRITONSERVER_Error *attempt_batch(struct executor *x, struct batch *b, bool predict,
                                         bool *ret_worth_another)
{
    TRITONSERVER_Error *err;

    x->predict = predict;
    x->run_failed = false;
    x->n_in = x->n_strings = x->n_out = 0;
    err = compute_responses(x, b);
    *ret_worth_another = err && x->run_failed && any_bound(x);
    /* Before the responses are sent or dropped, because their memory may be in these values. */
    release_values(x);
    return err;
}

/*
 * Models do not always keep to the shapes that they declare; then ONNX Runtime refuses the bound
 * memory. Its texts differ from release to release, so a failed run is repeated without bound
 * outputs. If it then succeeds, the shape was the reason, and the model's shapes are not trusted
 * again.
 */
static TRITONSERVER_Error *run_batch(void *arg, struct batch *b)
{
    struct executor *x = arg;
    bool predict = atomic_load_explicit(&x->m->predict, memory_order_relaxed), again;
    TRITONSERVER_Error *err = attempt_batch(x, b, predict, &again), *first = err;

    if (!again)
        return err;
    if (b->n_parts == 1)
        batch_single(b, 0, b); /* a response without outputs */
    err = batch_empty(b) ? NULL : attempt_batch(x, b, false, &again);
    if (!err) {
        atomic_store_explicit(&x->m->predict, false, memory_order_relaxed);
        BACKEND_LOG(WARN,
                    "model '%s' makes outputs of other shapes than it declares; they are copied "
                    "from now on: %s",
                    x->m->name, TRITONSERVER_ErrorMessage(first));
    }
    TRITONSERVER_ErrorDelete(first);
    return err;
}

TRITONSERVER_Error *executor_run(struct executor *x, TRITONBACKEND_Request **requests, uint32_t n)
{
    return frame_run(&x->execution, requests, n);
}
