/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A run goes through these steps:
 *
 *     give_inputs     gives the model the requests' tensors; adjacent buffers are used in place,
 *                     others are copied into one (gather.h)
 *     give_outputs    gives memory to every output whose shape is known already; with one request
 *                     it is the memory of its response, so that the model writes into that
 *                     (scatter.h)
 *     infer           OpenVINO runs the model, on this thread and its own; again, from the first
 *                     step, if another run has broken the compiled model (compiled.h)
 *     write_run_outputs  copies each request its rows, unless they are in place
 *     keep_run_states keeps the states with which the next requests of sequences begin
 *
 * Wrapping memory in a tensor of OpenVINO costs a part of a short run. Memory is often that of the
 * last run: a client that waits for its answers, batches of one size. So a tensor that is bound
 * stays bound, and is used again when memory and shape are the same. It owns nothing, and OpenVINO
 * reads and writes it only while it infers. An output is bound in every run or in none, so none is
 * written to the memory of an earlier answer.
 */
#include "openvino/execute.h"

#include <stdlib.h>
#include <string.h>

#include "common/gather.h"
#include "common/model_file.h"
#include "common/scatter.h"
#include "common/states.h"
#include "openvino/strings.h"

/* So often is a run repeated beside others, which may break its compiled model each time; after
 * that it runs alone. */
#define TRIES_BESIDE_OTHERS 2

/* Memory as a tensor of OpenVINO, which the request has. */
struct bound {
    struct ov_tensor *tensor; /* NULL: nothing is bound */
    const void *data;         /* never read through this pointer: the memory may be freed */
    size_t rank;
    int64_t shape[BATCH_MAX_RANK];
};

struct executor {
    struct model *m;
    const struct library *lib;
    struct runner runner;
    struct watched *watched;

    /* One for each input. */
    struct gathered *in, *padded;
    struct bound *in_bound;
    /* One for each output. */
    struct scattered *out;
    struct bound *out_bound;

    struct gathered strings; /* an output of strings as it travels */
};

/* What the request has computed by then is lost. It can be run again. */
static TRITONSERVER_Error *cancel_run(void *run)
{
    const struct executor *x = run;

    TRY_OV(x->lib, "cancelling inference", infer_request_cancel, x->runner.request);
    return NULL;
}

static const struct watch_action cancel_action = {.end = cancel_run};

/* ---- Life ------------------------------------------------------------------------------------ */

TRITONSERVER_Error *executor_open(struct frame_instance *in)
{
    struct model *m = in->model->state;
    size_t n_in = m->inputs.n + 1, n_out = m->outputs.n + 1;
    struct executor *x = calloc(1, sizeof(*x));

    if (!x)
        return backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "out of memory");
    in->state = x;
    x->m = m;
    x->lib = &m->rt->lib;
    x->in = calloc(n_in, sizeof(*x->in));
    x->padded = calloc(n_in, sizeof(*x->padded));
    x->in_bound = calloc(n_in, sizeof(*x->in_bound));
    x->out = calloc(n_out, sizeof(*x->out));
    x->out_bound = calloc(n_out, sizeof(*x->out_bound));
    if (!x->in || !x->padded || !x->in_bound || !x->out || !x->out_bound)
        return backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "out of memory");
    TRY(runner_open(m, &x->runner));
    return watch_add(m->rt->watch, &cancel_action, x, m->compiled.cost_ms, &x->watched);
}

static void unbind(const struct executor *x, struct bound *all, size_t n)
{
    for (size_t i = 0; all && i < n; i++) {
        if (all[i].tensor)
            x->lib->api.tensor_free(all[i].tensor);
        all[i] = (struct bound){0};
    }
}

void executor_close(struct frame_instance *in)
{
    struct executor *x = in->state;

    if (!x)
        return;
    watch_remove(x->watched);
    runner_close(x->m, &x->runner);
    for (size_t i = 0; x->in && i < x->m->inputs.n; i++)
        gathered_done(&x->in[i]);
    for (size_t i = 0; x->padded && i < x->m->inputs.n; i++)
        gathered_done(&x->padded[i]);
    for (size_t i = 0; x->out && i < x->m->outputs.n; i++)
        scattered_done(&x->out[i]);
    unbind(x, x->in_bound, x->m->inputs.n);
    unbind(x, x->out_bound, x->m->outputs.n);
    gathered_done(&x->strings);
    free(x->in_bound);
    free(x->out_bound);
    free(x->in);
    free(x->padded);
    free(x->out);
    free(x);
}

/* ---- Inputs ---------------------------------------------------------------------------------- */

/* Takes the tensor, and lets the request have it. */
static TRITONSERVER_Error *bind_tensor(struct executor *x, const struct tensor *t, struct bound *b,
                                       struct ov_tensor *tensor)
{
    if (b->tensor)
        x->lib->api.tensor_free(b->tensor);
    b->tensor = tensor;
    b->data = NULL;
    TRY_OV(x->lib, "setting tensor data", infer_request_set_tensor_by_const_port, x->runner.request,
           t->port, tensor);
    return NULL;
}

/* Binds memory, unless it is bound already. */
static TRITONSERVER_Error *bind_memory(struct executor *x, const struct tensor *t, struct bound *b,
                                       const void *data, const int64_t *shape, size_t rank)
{
    static char nothing[64] __attribute__((aligned(64))); /* a tensor without elements has memory */
    struct ov_tensor *tensor = NULL;

    if (!data)
        data = nothing;
    if (b->data == data && b->rank == rank && memcmp(b->shape, shape, rank * sizeof(*shape)) == 0)
        return NULL;
    b->data = NULL; /* until it is bound, also after an error */
    memcpy(b->shape, shape, rank * sizeof(*shape));
    b->rank = rank;
    /* OpenVINO's interface has no const input; it does not write it. */
    TRY_OV(x->lib, "making a tensor", tensor_create_from_host_ptr, t->type->ov,
           ((struct ov_shape){(int64_t)rank, b->shape}), (void *)(uintptr_t)data, &tensor);
    TRY(bind_tensor(x, t, b, tensor));
    b->data = data;
    return NULL;
}

static TRITONSERVER_Error *check_gathered_shape(const struct tensor *t, const struct gathered *in)
{
    bool fits = t->any_rank || t->rank == in->rank;

    for (size_t d = 0; fits && d < t->rank; d++)
        fits = (in->shape[d] >= t->limits[d].min || t->limits[d].max < 0) &&
               (t->limits[d].max < 0 || in->shape[d] <= t->limits[d].max);
    return fits ? NULL
                : backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                                "input '%s' has shape %s, the model takes %s", t->name,
                                model_file_shape_text(in->shape, in->rank).text,
                                model_file_shape_text(t->dims, t->rank).text);
}

/* Fills up a batch that is smaller than the model's only one, with zeroes. */
static TRITONSERVER_Error *pad_input(struct executor *x, const struct batch *b, size_t i)
{
    struct gathered *in = &x->in[i];
    uint64_t per_row = b->rows > 0 ? in->size / b->rows : 0, size;
    void *to;

    if (b->rows == 0 || __builtin_mul_overflow(per_row, (uint64_t)x->m->fixed_rows, &size))
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                             "input '%s': a batch of %llu rows cannot be filled up",
                             x->m->inputs.tensors[i].name, (unsigned long long)b->rows);
    TRY(gather_reserve(&x->padded[i], size > 0 ? size : 1, &to));
    if (in->size > 0)
        memcpy(to, in->data, in->size);
    memset((char *)to + in->size, 0, size - in->size);
    in->data = to;
    in->shape[0] = x->m->fixed_rows;
    return NULL;
}

static TRITONSERVER_Error *give_input(struct executor *x, const struct batch *b, size_t i)
{
    const struct tensor *t = &x->m->inputs.tensors[i];
    struct gathered *in = &x->in[i];
    struct ov_tensor *tensor = NULL;
    bool pads =
        x->m->fixed_rows > 0 && b->rows != (uint64_t)x->m->fixed_rows && !t->ragged && !t->made;

    TRY(t->made ? ragged_gather(in, b, t->made)
                : gather(in, b, t->name, t->type->server, t->ragged ? GATHER_RAGGED : 0));
    if (t->scalar && in->rank == 1 && in->shape[0] == 1)
        in->rank = 0;
    if (pads && t->type->size > 0)
        TRY(pad_input(x, b, i));
    TRY(check_gathered_shape(t, in));
    if (t->type->size > 0)
        return bind_memory(x, t, &x->in_bound[i], in->data, in->shape, in->rank);
    TRY(strings_read(x->lib, t->name, in, &tensor));
    return bind_tensor(x, t, &x->in_bound[i], tensor);
}

static TRITONSERVER_Error *check_rows(const struct executor *x, const struct batch *b)
{
    const struct model *m = x->m;

    if (m->fixed_rows == 0 || b->rows == (uint64_t)m->fixed_rows || m->asked.pad)
        return NULL;
    return backend_error(TRITONSERVER_ERROR_INTERNAL,
                         "expected requests with batch size '%lld', got '%llu'... this error can "
                         "be avoided by setting 'ENABLE_BATCH_PADDING' parameter in model "
                         "configuration to 'YES' at a performance cost.",
                         (long long)m->fixed_rows, (unsigned long long)b->rows);
}

static TRITONSERVER_Error *give_inputs(struct executor *x, const struct batch *b)
{
    TRY(check_rows(x, b));
    for (size_t i = 0; i < x->m->inputs.n; i++)
        TRY(give_input(x, b, i));
    return NULL;
}

/* ---- Outputs --------------------------------------------------------------------------------- */

/* Is the shape of this output known before a run, in all runs or in none? Then it is bound. */
static bool is_output_known(const struct model *m, const struct tensor *t)
{
    bool batches = m->frame->max_batch_size > 0;

    if (t->type->size == 0 || t->any_rank || t->rank == 0 || t->source || t->is_state ||
        t->is_input || m->asked.pad)
        return false;
    for (size_t d = 0; d < t->rank; d++)
        if (t->dims[d] < 0 && !(batches && d == 0))
            return false;
    return true;
}

/* Its position among the outputs, or the answer, if there is but one. */
static uint32_t output_hint(const struct executor *x, size_t i)
{
    return x->m->outputs.n == 1 && !x->m->outputs.tensors[i].is_state ? BATCH_WANTED : (uint32_t)i;
}

/* @again  the run is repeated: the outputs have memory */
static TRITONSERVER_Error *give_outputs(struct executor *x, const struct batch *b, bool again)
{
    for (size_t i = 0; i < x->m->outputs.n; i++) {
        const struct tensor *t = &x->m->outputs.tensors[i];
        struct scattered *out = &x->out[i];
        int64_t shape[MAX_RANK];

        if (!is_output_known(x->m, t))
            continue;
        memcpy(shape, t->dims, t->rank * sizeof(*shape));
        if (shape[0] < 0)
            shape[0] = (int64_t)b->rows;
        if (!again)
            TRY(scatter_begin(out, b, t->name, output_hint(x, i), t->type->server, shape,
                              (uint32_t)t->rank));
        TRY(bind_memory(x, t, &x->out_bound[i], out->data, shape, t->rank));
    }
    return NULL;
}

/* Sends an output of OpenVINO's memory, or keeps it as a state. */
static TRITONSERVER_Error *send_output(struct executor *x, struct batch *b, size_t i,
                                       const struct ov_tensor *tensor, const struct ov_shape *from,
                                       bool keeps)
{
    const struct tensor *t = &x->m->outputs.tensors[i];
    uint32_t hint = output_hint(x, i), rank = (uint32_t)from->rank;
    int64_t shape[MAX_RANK] = {1}, n; /* servers have no tensors without dimensions */
    const void *data = NULL;
    void *elements = NULL;
    uint64_t size;

    if (rank > 0)
        memcpy(shape, from->dims, rank * sizeof(*shape));
    else
        rank = 1;
    /* Without the rows that fill up the batch. */
    if (x->m->fixed_rows > 0 && shape[0] == x->m->fixed_rows)
        shape[0] = (int64_t)b->rows;
    TRY(gather_elements(shape, rank, &n));
    if (t->type->size == 0) {
        TRY(strings_write(x->lib, tensor, (size_t)n, &x->strings, &data, &size));
    } else {
        size = (uint64_t)n * t->type->size;
        if (n > 0)
            TRY_OV(x->lib, "reading a tensor", tensor_data, tensor, &elements);
        data = elements;
    }
    if (keeps)
        return states_keep(b, t->name, t->type->server, shape, rank, data, size);
    return t->source ? scatter_like_input(b, t->name, hint, t->type->server, t->source, data, size)
                     : scatter_rows(b, t->name, hint, t->type->server, shape, rank, data, size);
}

static TRITONSERVER_Error *check_output_tensor(const struct executor *x, const struct tensor *t,
                                               const struct ov_tensor *tensor,
                                               const struct ov_shape *shape)
{
    int type = 0;

    TRY_OV(x->lib, "reading a tensor", tensor_get_element_type, tensor, &type);
    if (type == t->type->ov && shape->rank >= 0 && shape->rank <= MAX_RANK)
        return NULL;
    return backend_error(TRITONSERVER_ERROR_INTERNAL,
                         "output '%s' has OpenVINO's type %d and %lld dimensions, which is not "
                         "what the model says",
                         t->name, type, (long long)shape->rank);
}

static TRITONSERVER_Error *fetch_output(struct executor *x, struct batch *b, size_t i, bool keeps)
{
    const struct tensor *t = &x->m->outputs.tensors[i];
    const struct ov_api *api = &x->lib->api;
    struct ov_tensor *tensor = NULL;
    struct ov_shape shape = {0};
    TRITONSERVER_Error *err;

    TRY_OV(x->lib, "reading a tensor", infer_request_get_tensor_by_const_port, x->runner.request,
           t->port, &tensor);
    /* OpenVINO's interface has no shape without dimensions. */
    if ((t->any_rank || t->rank > 0) && api->tensor_get_shape(tensor, &shape) != 0)
        err = library_error(x->lib, "reading the shape of a tensor");
    else
        err = check_output_tensor(x, t, tensor, &shape);
    if (!err)
        err = send_output(x, b, i, tensor, &shape, keeps);
    if (shape.dims)
        (void)api->shape_free(&shape);
    api->tensor_free(tensor);
    return err;
}

/* Has the model made the shape that its memory was given for? */
static TRITONSERVER_Error *check_bound_shape(struct executor *x, size_t i)
{
    const struct ov_api *api = &x->lib->api;
    struct bound *b = &x->out_bound[i];
    struct ov_shape shape = {0};
    bool same;

    TRY_OV(x->lib, "reading the shape of a tensor", tensor_get_shape, b->tensor, &shape);
    same = shape.rank == (int64_t)b->rank &&
           memcmp(shape.dims, b->shape, b->rank * sizeof(*b->shape)) == 0;
    (void)api->shape_free(&shape);
    if (same)
        return NULL;
    b->data = NULL; /* bound again */
    return backend_error(TRITONSERVER_ERROR_INTERNAL,
                         "output '%s' has not the rows of the batch that it was computed for",
                         x->m->outputs.tensors[i].name);
}

static TRITONSERVER_Error *write_run_outputs(struct executor *x, struct batch *b)
{
    for (size_t i = 0; i < x->m->outputs.n; i++) {
        const struct tensor *t = &x->m->outputs.tensors[i];

        if (!is_output_known(x->m, t)) {
            TRY(fetch_output(x, b, i, false));
            continue;
        }
        if (t->dims[0] < 0)
            TRY(check_bound_shape(x, i));
        TRY(scatter_end(&x->out[i], b));
    }
    return NULL;
}

/* After all other steps: a run that failed is repeated, and must find the states unchanged. */
static TRITONSERVER_Error *keep_run_states(struct executor *x, struct batch *b)
{
    for (size_t i = 0; i < x->m->outputs.n; i++)
        if (x->m->outputs.tensors[i].is_state)
            TRY(fetch_output(x, b, i, true));
    return NULL;
}

/* ---- A run ----------------------------------------------------------------------------------- */

/* Errors: CANCELLED  all requests were cancelled */
static TRITONSERVER_Error *infer_watched(struct executor *x, const struct batch *b)
{
    bool failed, cancelled;

    watch_begin(x->watched, b->parts, b->n_parts);
    failed = x->lib->api.infer_request_infer(x->runner.request) != 0;
    cancelled = watch_end(x->watched);
    if (failed && cancelled)
        return backend_error(TRITONSERVER_ERROR_CANCELLED, "cancelled while the model was running");
    return failed ? library_error(x->lib, "running inference") : NULL;
}

static TRITONSERVER_Error *give_tensors(struct executor *x, const struct batch *b, bool again)
{
    TRY(give_inputs(x, b));
    TRY(refused_check(x->m, x->in));
    return give_outputs(x, b, again);
}

/*
 * One try of a run.
 * @tries       those before it
 * @ret_counts  what it gave counts; else it is to be repeated
 */
static TRITONSERVER_Error *try_run(struct executor *x, struct batch *b, int tries, bool *ret_counts)
{
    bool alone = tries >= TRIES_BESIDE_OTHERS, renewed;
    TRITONSERVER_Error *err;

    *ret_counts = true;
    TRY(runner_begin(x->m, &x->runner, alone, &renewed));
    if (renewed) {
        unbind(x, x->in_bound, x->m->inputs.n);
        unbind(x, x->out_bound, x->m->outputs.n);
    }
    err = give_tensors(x, b, tries > 0);
    if (err) {
        (void)runner_counts(x->m, &x->runner, alone, false);
        return err;
    }
    batch_computes(b);
    runner_enter(x->m, alone);
    err = infer_watched(x, b);
    *ret_counts = runner_counts(x->m, &x->runner, alone, err != NULL);
    runner_leave(x->m, alone);
    if (!*ret_counts) {
        TRITONSERVER_ErrorDelete(err);
        return NULL;
    }
    if (err && TRITONSERVER_ErrorCode(err) != TRITONSERVER_ERROR_CANCELLED)
        refused_learn(x->m, x->in, err);
    return err;
}

static TRITONSERVER_Error *run_until_it_counts(struct executor *x, struct batch *b)
{
    bool counts = false;

    for (int tries = 0; !counts; tries++)
        TRY(try_run(x, b, tries, &counts));
    batch_computed(b);
    TRY(write_run_outputs(x, b));
    return keep_run_states(x, b);
}

TRITONSERVER_Error *executor_run(struct frame_instance *in, struct batch *b)
{
    struct executor *x = in->state;
    TRITONSERVER_Error *err = run_until_it_counts(x, b);

    runner_end(&x->runner);
    return err;
}
