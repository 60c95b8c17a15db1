/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A run goes through these steps, each a function:
 *
 *     bind_inputs    the requests' tensors as values of ONNX Runtime; one contiguous input buffer
 *                    is used where it lies, anything else is copied together
 *     choose_outputs which of the model's outputs does any request want?
 *     bind_outputs   one request: ask the server for the memory of every output whose shape is
 *                    known already, so that the model writes into the answer itself
 *     Run
 *     write_outputs  copy what was not written in place, each request its rows
 *     finish         statistics, answers, release
 *
 * Up to `finish` nothing has been sent, so a failed run can be repeated in another way.
 */
#include "onnxruntime/execute.h"

#include <stdlib.h>
#include <string.h>

#include "onnxruntime/session.h"
#include "onnxruntime/strings.h"

/* Memory for copies, kept from run to run: the largest input decides, as with the model's own. */
struct scratch {
    void *data;
    size_t size;
};

struct bound_input {
    int64_t shape[MAX_RANK];
    size_t rank;
    struct scratch scratch;
};

struct bound_output {
    const struct tensor *t;
    bool in_place; /* in the server's memory, nothing is left to do */
    void *move_to; /* the server's memory, from where scratch is copied into it */
    struct scratch scratch;
    bool described;          /* what follows is known */
    int64_t shape[MAX_RANK]; /* of the whole batch */
    size_t rank;
    size_t n_elements;
    const char *data; /* NULL for strings */
};

/* One request of the run. */
struct part {
    TRITONBACKEND_Request *request;
    TRITONBACKEND_Response *response;
    uint64_t rows; /* its share of the batch dimension; 1 if the model does not batch */
};

struct executor {
    struct model *m;
    const struct library *lib;
    TRITONBACKEND_ModelInstance *instance;
    struct ort_run_options *run_options;
    struct watched *watched;

    struct bound_input *in; /* one for each of the model's inputs */
    /* One for each of them that this run has. */
    struct ort_value **in_values;
    const char **in_names;
    size_t n_in;

    /* One for each of the model's outputs that this run makes. */
    struct bound_output *out;
    struct ort_value **out_values;
    const char **out_names;
    size_t n_out;
    /* One for each of the model's outputs: its place in the arrays above; -1: not wanted. */
    int *place;

    TRITONBACKEND_Request **requests; /* of this run */
    struct part *parts;               /* one for each */
    uint32_t n_parts, max_parts;
    uint64_t rows; /* of all parts */
    bool predict;  /* bind outputs to the server's memory in this attempt? */
    bool run_failed;
    uint64_t exec_start_ns, compute_start_ns, compute_end_ns;
};

/* ---- Life ----------------------------------------------------------------------------------- */

static bool alloc_arrays(struct executor *x)
{
    size_t n_in = x->m->n_inputs + 1, n_out = x->m->n_outputs + 1;

    x->in = calloc(n_in, sizeof(*x->in));
    x->in_values = calloc(n_in, sizeof(struct ort_value *));
    x->in_names = calloc(n_in, sizeof(char *));
    x->out = calloc(n_out, sizeof(*x->out));
    x->out_values = calloc(n_out, sizeof(struct ort_value *));
    x->out_names = calloc(n_out, sizeof(char *));
    x->place = calloc(n_out, sizeof(int));
    return x->in && x->in_values && x->in_names && x->out && x->out_values && x->out_names &&
           x->place;
}

TRITONSERVER_Error *executor_new(struct model *m, TRITONBACKEND_ModelInstance *instance,
                                 struct executor **ret_executor)
{
    struct executor *x = calloc(1, sizeof(*x));
    TRITONSERVER_Error *err;

    if (!x)
        return backend_error(TRITONSERVER_ERROR_INTERNAL, "out of memory");
    x->m = m;
    x->lib = &m->rt->lib;
    x->instance = instance;
    if (!alloc_arrays(x)) {
        executor_free(x);
        return backend_error(TRITONSERVER_ERROR_INTERNAL, "out of memory");
    }
    err = session_run_options(m, &x->run_options);
    if (!err)
        err = watch_add(m->rt->watch, x->run_options, &x->watched);
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
        free(x->in[i].scratch.data);
    for (size_t i = 0; x->out && i < x->m->n_outputs; i++)
        free(x->out[i].scratch.data);
    free(x->in);
    free(x->in_values);
    free(x->in_names);
    free(x->out);
    free(x->out_values);
    free(x->out_names);
    free(x->place);
    free(x->parts);
    watch_remove(x->watched);
    if (x->run_options)
        x->lib->api.ReleaseRunOptions(x->run_options);
    free(x);
}

static TRITONSERVER_Error *reserve(struct scratch *s, size_t size)
{
    void *data;

    if (size <= s->size)
        return NULL;
    /* 64: a cache line, and the widest vector. */
    if (posix_memalign(&data, 64, size) != 0)
        return backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "out of memory for %zu bytes", size);
    free(s->data);
    s->data = data;
    s->size = size;
    return NULL;
}

/* Forget the values of a run. Their memory is the server's, ours or theirs; the last goes with it.
 */
static void release_values(struct executor *x)
{
    for (size_t i = 0; i < x->n_in; i++)
        if (x->in_values[i])
            x->lib->api.ReleaseValue(x->in_values[i]);
    for (size_t i = 0; i < x->n_out; i++)
        if (x->out_values[i])
            x->lib->api.ReleaseValue(x->out_values[i]);
    x->n_in = 0;
    x->n_out = 0;
}

/* ---- Inputs --------------------------------------------------------------------------------- */

/* What one request has for one input. */
struct piece {
    TRITONBACKEND_Input *input;
    const int64_t *shape;
    uint32_t rank;
    uint32_t n_buffers;
    uint64_t size;
};

static TRITONSERVER_Error *get_piece(const struct tensor *t, TRITONBACKEND_Request *request,
                                     struct piece *ret_piece)
{
    TRITONSERVER_DataType type;
    struct piece p;

    TRY(TRITONBACKEND_RequestInput(request, t->name, &p.input));
    TRY(TRITONBACKEND_InputProperties(p.input, NULL, &type, &p.shape, &p.rank, &p.size,
                                      &p.n_buffers));
    if (type != t->type->server)
        return backend_error(
            TRITONSERVER_ERROR_INVALID_ARG, "input '%s' has type %s, the model expects %s", t->name,
            TRITONSERVER_DataTypeString(type), TRITONSERVER_DataTypeString(t->type->server));
    if (p.rank > MAX_RANK)
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                             "input '%s' has %u dimensions, more than %d", t->name,
                             (unsigned int)p.rank, MAX_RANK);
    *ret_piece = p;
    return NULL;
}

/* Shape of an input over all parts, its bytes, and its last piece. Only the first dimension may
 * differ. */
static TRITONSERVER_Error *join_shapes(struct executor *x, const struct tensor *t,
                                       struct bound_input *in, uint64_t *ret_size,
                                       struct piece *ret_last)
{
    bool batches = x->m->max_batch_size > 0;
    uint64_t size = 0;
    struct piece p;

    for (uint32_t i = 0; i < x->n_parts; i++) {
        TRY(get_piece(t, x->parts[i].request, &p));
        if (i == 0) {
            memcpy(in->shape, p.shape, p.rank * sizeof(int64_t));
            in->rank = p.rank;
        } else if (p.rank != in->rank || p.rank == 0 ||
                   memcmp(p.shape + 1, in->shape + 1, (p.rank - 1) * sizeof(int64_t)) != 0) {
            return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                                 "input '%s' differs in shape between the requests of a batch",
                                 t->name);
        } else {
            in->shape[0] += p.shape[0];
        }
        if (batches && x->n_in == 0) /* all inputs have the same */
            x->parts[i].rows = p.rank > 0 ? (uint64_t)p.shape[0] : 1;
        size += p.size;
    }
    if (t->scalar && in->rank == 1 && in->shape[0] == 1)
        in->rank = 0;
    *ret_size = size;
    *ret_last = p;
    return NULL;
}

/* Copy all parts of an input together. */
static TRITONSERVER_Error *gather(struct executor *x, const struct tensor *t,
                                  struct bound_input *in, uint64_t size, const void **ret_data)
{
    uint64_t done = 0;

    TRY(reserve(&in->scratch, size > 0 ? size : 1));
    for (uint32_t i = 0; i < x->n_parts; i++) {
        struct piece p;

        TRY(get_piece(t, x->parts[i].request, &p));
        if (p.size > size - done)
            return backend_error(TRITONSERVER_ERROR_INTERNAL, "input '%s' has grown", t->name);
        TRY(backend_input_copy(p.input, p.n_buffers, (char *)in->scratch.data + done, p.size));
        done += p.size;
    }
    *ret_data = in->scratch.data;
    return NULL;
}

/* The data of an input as one run of bytes: as it lies, or copied when it lies in several pieces or
 * where elements would cross their natural alignment. Compilers rely on that alignment when they
 * vectorise a loop, so a float at an odd address can crash the model. */
static TRITONSERVER_Error *input_data(struct executor *x, const struct tensor *t,
                                      struct bound_input *in, uint64_t size,
                                      const struct piece *last, const void **ret_data)
{
    TRITONSERVER_MemoryType memory = TRITONSERVER_MEMORY_CPU;
    int64_t memory_id = 0;
    const void *data;
    uint64_t n;

    if (x->n_parts == 1 && last->n_buffers == 1) {
        TRY(TRITONBACKEND_InputBuffer(last->input, 0, &data, &n, &memory, &memory_id));
        if (memory != TRITONSERVER_MEMORY_GPU && n == size && size > 0 &&
            (t->type->size == 0 || (uintptr_t)data % t->type->size == 0)) {
            *ret_data = data;
            return NULL;
        }
    }
    return gather(x, t, in, size, ret_data);
}

/* Whether the requests have this input at all; the scheduler puts only such into one batch which
 * are alike in that, and what is unlike fails in join_shapes(). */
static bool is_given(const struct executor *x, const struct tensor *t)
{
    TRITONBACKEND_Input *input;
    TRITONSERVER_Error *err;

    if (!t->configured)
        return false;
    if (!t->optional)
        return true;
    for (uint32_t i = 0; i < x->n_parts; i++) {
        err = TRITONBACKEND_RequestInput(x->parts[i].request, t->name, &input);
        if (!err)
            return true;
        TRITONSERVER_ErrorDelete(err);
    }
    return false;
}

static TRITONSERVER_Error *bind_input(struct executor *x, size_t i)
{
    const struct tensor *t = &x->m->inputs[i];
    struct bound_input *in = &x->in[i];
    struct ort_value **value = &x->in_values[x->n_in];
    struct piece last = {0};
    const void *data = NULL;
    uint64_t size = 0;

    in->rank = 0;
    if (!is_given(x, t))
        return NULL;
    TRY(join_shapes(x, t, in, &size, &last));
    TRY(input_data(x, t, in, size, &last, &data));
    if (t->type->size == 0)
        TRY(strings_read(x->lib, x->m->rt->heap, t->name, data, size, in->shape, in->rank, value));
    else /* Their interface has no word for input that is only read; they do not write it. */
        TRY_ORT(x->lib, CreateTensorWithDataAsOrtValue(x->m->rt->cpu, (void *)(uintptr_t)data, size,
                                                       in->shape, in->rank, t->type->ort, value));
    x->in_names[x->n_in++] = t->name;
    return NULL;
}

static TRITONSERVER_Error *bind_inputs(struct executor *x)
{
    x->n_in = 0;
    for (uint32_t i = 0; i < x->n_parts; i++)
        x->parts[i].rows = 1;
    for (size_t i = 0; i < x->m->n_inputs; i++)
        TRY(bind_input(x, i));
    x->rows = 0;
    for (uint32_t i = 0; i < x->n_parts; i++)
        x->rows += x->parts[i].rows;
    return NULL;
}

/* ---- Outputs, before the run ---------------------------------------------------------------- */

/* Index of the model's output of that name; -1: none. Mostly they come in the model's order. */
static int find_output(const struct model *m, uint32_t hint, const char *name)
{
    if (hint < m->n_outputs && strcmp(m->outputs[hint].name, name) == 0)
        return (int)hint;
    for (size_t i = 0; i < m->n_outputs; i++)
        if (strcmp(m->outputs[i].name, name) == 0)
            return (int)i;
    return -1;
}

static TRITONSERVER_Error *wanted_output(struct executor *x, TRITONBACKEND_Request *request,
                                         uint32_t i, int *ret_output)
{
    const char *name;

    TRY(TRITONBACKEND_RequestOutputName(request, i, &name));
    *ret_output = find_output(x->m, i, name);
    if (*ret_output < 0)
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG, "the model has no output '%s'", name);
    return NULL;
}

static void add_output(struct executor *x, int output)
{
    struct bound_output *out = &x->out[x->n_out];

    x->place[output] = (int)x->n_out;
    x->out_names[x->n_out] = x->m->outputs[output].name;
    x->out_values[x->n_out] = NULL;
    out->t = &x->m->outputs[output];
    out->in_place = false;
    out->move_to = NULL;
    out->described = false;
    x->n_out++;
}

static TRITONSERVER_Error *choose_outputs(struct executor *x)
{
    x->n_out = 0;
    for (size_t i = 0; i < x->m->n_outputs; i++)
        x->place[i] = -1;
    for (uint32_t k = 0; k < x->n_parts; k++) {
        TRITONBACKEND_Request *request = x->parts[k].request;
        uint32_t n;

        TRY(TRITONBACKEND_RequestOutputCount(request, &n));
        for (uint32_t i = 0; i < n; i++) {
            int output;

            TRY(wanted_output(x, request, i, &output));
            if (x->place[output] < 0)
                add_output(x, output);
        }
    }
    return NULL;
}

/* The shape that an output will have; false: it cannot be known or is beyond all measure. */
static bool predict_shape(const struct executor *x, const struct tensor *t,
                          struct bound_output *out, uint64_t *ret_size)
{
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
    return size <= INT64_MAX;
}

static TRITONSERVER_Error *bind_output(struct executor *x, size_t place)
{
    struct bound_output *out = &x->out[place];
    const struct tensor *t = out->t;
    TRITONBACKEND_Output *output;
    uint64_t size;
    void *to;

    if (!predict_shape(x, t, out, &size) || size == 0)
        return NULL;
    TRY(TRITONBACKEND_ResponseOutput(x->parts[0].response, &output, t->name, t->type->server,
                                     out->shape, (uint32_t)out->rank));
    TRY(backend_output_alloc(output, size, &to));
    out->in_place = true;
    if ((uintptr_t)to % t->type->size != 0) {
        /* Shared memory at an odd offset: the model must not write there, see input_data(). */
        TRY(reserve(&out->scratch, size));
        out->move_to = to;
        to = out->scratch.data;
    }
    out->n_elements = size / t->type->size;
    TRY_ORT(x->lib, CreateTensorWithDataAsOrtValue(x->m->rt->cpu, to, size, out->shape, out->rank,
                                                   t->type->ort, &x->out_values[place]));
    return NULL;
}

static TRITONSERVER_Error *bind_outputs(struct executor *x)
{
    TRY(TRITONBACKEND_ResponseNew(&x->parts[0].response, x->parts[0].request));
    if (!x->predict)
        return NULL;
    for (size_t place = 0; place < x->n_out; place++)
        TRY(bind_output(x, place));
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

/* What the model has made; once per run and output. */
static TRITONSERVER_Error *describe(struct executor *x, size_t place)
{
    struct bound_output *out = &x->out[place];
    const struct tensor *t = out->t;
    struct ort_shape *info = NULL;
    TRITONSERVER_Error *err;
    void *data = NULL;

    if (out->described)
        return NULL;
    TRY_ORT(x->lib, GetTensorTypeAndShape(x->out_values[place], &info));
    err = read_info(x, t, info, out);
    x->lib->api.ReleaseTensorTypeAndShapeInfo(info);
    if (err)
        return err;
    if (t->type->size > 0)
        TRY_ORT(x->lib, GetTensorMutableData(x->out_values[place], &data));
    out->data = data;
    if (x->n_parts > 1 && (uint64_t)out->shape[0] != x->rows)
        return backend_error(TRITONSERVER_ERROR_INTERNAL,
                             "output '%s' has %lld rows for a batch of %llu", t->name,
                             (long long)out->shape[0], (unsigned long long)x->rows);
    out->described = true;
    return NULL;
}

/* Copy the rows of one part from an output that ONNX Runtime holds. It is a copy because a batch
 * lies together and its answers do not, or because the size was not known before. */
static TRITONSERVER_Error *copy_rows(struct executor *x, size_t place, struct part *part,
                                     uint64_t first_row)
{
    struct bound_output *out = &x->out[place];
    const struct tensor *t = out->t;
    size_t first = 0, n = out->n_elements, size;
    int64_t shape[MAX_RANK];
    TRITONBACKEND_Output *output;
    void *to;

    memcpy(shape, out->shape, out->rank * sizeof(*shape));
    if (x->n_parts > 1) {
        size_t per_row = x->rows > 0 ? out->n_elements / x->rows : 0;

        first = first_row * per_row;
        n = part->rows * per_row;
        shape[0] = (int64_t)part->rows;
    }
    if (t->type->size > 0)
        size = n * t->type->size;
    else
        TRY(strings_size(x->lib, x->out_values[place], first, n, &size));
    TRY(TRITONBACKEND_ResponseOutput(part->response, &output, t->name, t->type->server, shape,
                                     (uint32_t)out->rank));
    TRY(backend_output_alloc(output, size, &to));
    if (t->type->size == 0)
        return strings_write(x->lib, x->out_values[place], first, n, to, size);
    if (size > 0 && out->data)
        memcpy(to, out->data + first * t->type->size, size);
    return NULL;
}

/* The outputs of one request out of several. */
static TRITONSERVER_Error *write_part(struct executor *x, struct part *part, uint64_t first_row)
{
    uint32_t n;

    TRY(TRITONBACKEND_ResponseNew(&part->response, part->request));
    TRY(TRITONBACKEND_RequestOutputCount(part->request, &n));
    for (uint32_t i = 0; i < n; i++) {
        int output;

        TRY(wanted_output(x, part->request, i, &output));
        TRY(describe(x, (size_t)x->place[output]));
        TRY(copy_rows(x, (size_t)x->place[output], part, first_row));
    }
    return NULL;
}

static TRITONSERVER_Error *write_only_part(struct executor *x)
{
    for (size_t place = 0; place < x->n_out; place++) {
        struct bound_output *out = &x->out[place];

        if (out->move_to)
            memcpy(out->move_to, out->scratch.data, out->n_elements * out->t->type->size);
        if (out->in_place)
            continue;
        TRY(describe(x, place));
        TRY(copy_rows(x, place, &x->parts[0], 0));
    }
    return NULL;
}

static TRITONSERVER_Error *write_outputs(struct executor *x)
{
    uint64_t first_row = 0;

    if (x->n_parts == 1)
        return write_only_part(x);
    for (uint32_t i = 0; i < x->n_parts; i++) {
        TRY(write_part(x, &x->parts[i], first_row));
        first_row += x->parts[i].rows;
    }
    return NULL;
}

/* ---- A run ---------------------------------------------------------------------------------- */

/* Forget all answers that were begun. */
static void drop_responses(struct executor *x)
{
    for (uint32_t i = 0; i < x->n_parts; i++) {
        if (x->parts[i].response)
            backend_ignore(TRITONBACKEND_ResponseDelete(x->parts[i].response),
                           "deleting a response");
        x->parts[i].response = NULL;
    }
}

/* A request of a batch that failed may have been cancelled meanwhile. */
static TRITONSERVER_Error *check_wanted(struct executor *x)
{
    bool cancelled = false;

    TRY(TRITONBACKEND_RequestIsCancelled(x->parts[0].request, &cancelled));
    if (cancelled)
        return backend_error(TRITONSERVER_ERROR_CANCELLED, "cancelled before the model ran");
    return NULL;
}

static TRITONSERVER_Error *prepare(struct executor *x)
{
    if (x->n_parts == 1)
        TRY(check_wanted(x));
    TRY(bind_inputs(x));
    TRY(choose_outputs(x));
    if (x->n_parts == 1)
        TRY(bind_outputs(x));
    return NULL;
}

/* The model itself. Errors: CANCELLED  nobody wants the answers any longer */
static TRITONSERVER_Error *run_session(struct executor *x)
{
    struct ort_status *status;
    bool cancelled;

    watch_begin(x->watched, x->requests, x->n_parts);
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

/* From the requests to complete but unsent responses. */
static TRITONSERVER_Error *compute(struct executor *x)
{
    x->rows = x->n_parts; /* until the inputs tell */
    x->run_failed = false;
    x->exec_start_ns = x->compute_start_ns = x->compute_end_ns = backend_now_ns();
    TRY(prepare(x));
    x->compute_start_ns = x->compute_end_ns = backend_now_ns();
    TRY(run_session(x));
    x->compute_end_ns = backend_now_ns();
    return write_outputs(x);
}

static void finish(struct executor *x, TRITONSERVER_Error *err)
{
    uint64_t end_ns = backend_now_ns();

    /* All statistics come before the answers that they count, so that a client which has its
     * answer finds it counted. */
    for (uint32_t i = 0; i < x->n_parts; i++)
        backend_ignore(TRITONBACKEND_ModelInstanceReportStatistics(
                           x->instance, x->parts[i].request, !err, x->exec_start_ns,
                           x->compute_start_ns, x->compute_end_ns, end_ns),
                       "reporting statistics");
    backend_ignore(
        TRITONBACKEND_ModelInstanceReportBatchStatistics(
            x->instance, x->rows, x->exec_start_ns, x->compute_start_ns, x->compute_end_ns, end_ns),
        "reporting statistics");
    for (uint32_t i = 0; i < x->n_parts; i++) {
        struct part *part = &x->parts[i];

        if (err)
            backend_answer_error(part->request, part->response, err); /* n_parts is 1 */
        else
            backend_ignore(TRITONBACKEND_ResponseSend(part->response,
                                                      TRITONSERVER_RESPONSE_COMPLETE_FINAL, NULL),
                           "sending a response");
        backend_ignore(
            TRITONBACKEND_RequestRelease(part->request, TRITONSERVER_REQUEST_RELEASE_ALL),
            "releasing a request");
    }
}

static bool any_in_place(const struct executor *x)
{
    for (size_t i = 0; i < x->n_out; i++)
        if (x->out[i].in_place)
            return true;
    return false;
}

static TRITONSERVER_Error *attempt(struct executor *x, bool predict, bool *ret_worth_another)
{
    TRITONSERVER_Error *err;

    x->predict = predict;
    err = compute(x);
    *ret_worth_another = err && x->run_failed && any_in_place(x);
    /* Before the answers are sent or dropped: their memory may be in these values. */
    release_values(x);
    return err;
}

/*
 * Models do not always keep to the shapes that they declare, and then ONNX Runtime refuses the
 * memory we bound. Its texts differ from release to release, so a failed run is repeated without
 * that; only if it then succeeds was it the shape, and the model is not trusted again.
 */
static TRITONSERVER_Error *run(struct executor *x)
{
    bool predict = atomic_load_explicit(&x->m->predict, memory_order_relaxed), again;
    TRITONSERVER_Error *err = attempt(x, predict, &again), *first = err;

    if (!again)
        return err;
    drop_responses(x);
    err = attempt(x, false, &again);
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

static TRITONSERVER_Error *name_model(const struct model *m, TRITONSERVER_Error *err)
{
    TRITONSERVER_Error *named;

    if (!err)
        return NULL;
    named = backend_error(TRITONSERVER_ErrorCode(err), "model '%s': %s", m->name,
                          TRITONSERVER_ErrorMessage(err));
    TRITONSERVER_ErrorDelete(err);
    return named;
}

static void run_alone(struct executor *x, TRITONBACKEND_Request *request)
{
    struct part part = {.request = request};
    struct part *parts = x->parts;

    x->requests = &request;
    x->parts = &part;
    x->n_parts = 1;
    finish(x, name_model(x->m, run(x)));
    x->parts = parts;
}

static bool run_together(struct executor *x, TRITONBACKEND_Request **requests, uint32_t n)
{
    TRITONSERVER_Error *err;

    if (n > x->max_parts) {
        struct part *parts = realloc(x->parts, n * sizeof(*parts));

        if (!parts)
            return false;
        x->parts = parts;
        x->max_parts = n;
    }
    x->requests = requests;
    x->n_parts = n;
    for (uint32_t i = 0; i < n; i++)
        x->parts[i] = (struct part){.request = requests[i]};
    err = run(x);
    if (!err) {
        finish(x, NULL);
        return true;
    }
    BACKEND_LOG(VERBOSE, "model '%s': a batch of %u requests failed (%s); each runs alone",
                x->m->name, (unsigned int)n, TRITONSERVER_ErrorMessage(err));
    TRITONSERVER_ErrorDelete(err);
    drop_responses(x);
    return false;
}

void executor_run(struct executor *x, TRITONBACKEND_Request **requests, uint32_t n)
{
    if (n > 1 && x->m->max_batch_size > 0 && run_together(x, requests, n))
        return;
    for (uint32_t i = 0; i < n; i++)
        run_alone(x, requests[i]);
}
