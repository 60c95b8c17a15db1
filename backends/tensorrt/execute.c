/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A run: the inputs are gathered on the host and copied to buffers on the GPU, TensorRT computes,
 * and each output is copied from the GPU to where the answers are sent from. All of it is in one
 * stream, in that order; the thread waits for it twice. Buffers on the GPU grow to the largest use.
 *
 * After an error the stream is waited for, too: what it still does uses buffers of the batch.
 */
#include "tensorrt/execute.h"

#include <stdlib.h>
#include <string.h>

#include "common/states.h"
#include "tensorrt/execute_priv.h"
#include "tensorrt/graphs.h"

/* ---- Outputs whose size is found late -------------------------------------------------------- */

static void *give_output_memory(struct trt_inner *self, const char *name, void *current,
                                uint64_t size, uint64_t alignment)
{
    struct output_allocator *a = (struct output_allocator *)self;
    TRITONSERVER_Error *err;

    (void)name;
    (void)current;
    (void)alignment; /* the driver's memory is aligned for all */
    err = cuda_reserve(a->cuda, a->buffer, size);
    if (!err)
        return (void *)(uintptr_t)a->buffer->at;
    backend_ignore(err, "memory for an output");
    return NULL;
}

static void *give_output_memory_in_stream(struct trt_inner *self, const char *name, void *current,
                                          uint64_t size, uint64_t alignment, void *stream)
{
    (void)stream;
    return give_output_memory(self, name, current, size, alignment);
}

static void take_output_shape(struct trt_inner *self, const char *name, const struct trt_dims *dims)
{
    (void)name;
    ((struct output_allocator *)self)->dims = *dims;
}

static int32_t tell_allocator_language(struct trt_inner *self)
{
    (void)self;
    return 0; /* C++ */
}

static struct trt_interface tell_allocator(struct trt_inner *self)
{
    (void)self;
    return (struct trt_interface){"IOutputAllocator", 1, 0};
}

static void keep_allocator(struct trt_inner *self)
{
    (void)self; /* the object is ours */
}

#define FN(function) ((trt_function *)(function))

/* Two words of C++'s type information stand before a table. */
static trt_function *const allocator_table[2 + TRT_ALLOCATOR_SLOTS] = {
    NULL,
    NULL,
    FN(tell_allocator_language),
    FN(tell_allocator),
    FN(keep_allocator),
    FN(keep_allocator),
    FN(give_output_memory),
    FN(give_output_memory_in_stream),
    FN(take_output_shape)};

/* ---- Inputs ---------------------------------------------------------------------------------- */

static TRITONSERVER_Error *gather_slot(const struct executor *x, const struct batch *b,
                                       struct slot *s)
{
    const struct tensor *t = s->t;

    TRY(t->made ? ragged_gather(&s->host, b, t->made)
                : gather(&s->host, b, t->name, t->type, t->ragged ? GATHER_RAGGED : 0));
    if (s->host.rank > TRT_MAX_RANK)
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                             "input '%s' has %u dimensions, more than %d", t->name,
                             (unsigned int)s->host.rank, TRT_MAX_RANK);
    if (t->is_shape) {
        s->shape = t->dims;
        return NULL;
    }
    s->shape.rank = t->is_scalar ? 0 : (int32_t)s->host.rank;
    memcpy(s->shape.d, s->host.shape, s->host.rank * sizeof(*s->shape.d));
    s->size = s->host.size;
    (void)x;
    return NULL;
}

/* The values of a shape: those of the first request, which all have; in a model that batches, the
 * size of the batch stands before them. */
static TRITONSERVER_Error *take_values(const struct executor *x, const struct batch *b,
                                       struct slot *s)
{
    bool batches = x->model->frame->max_batch_size > 0;
    size_t element = TRITONSERVER_DataTypeByteSize(s->t->type);
    uint64_t rows = batches && b->rows > 0 ? b->rows : 1, row = s->host.size / rows;
    char *to =
        s->t->type == TRITONSERVER_TYPE_INT32 ? (char *)s->values.i32 : (char *)s->values.i64;
    const char *data = s->host.data;
    uint64_t wanted = s->t->dims.rank == 0 ? 1 : (uint64_t)s->t->dims.d[0];

    if (wanted > MAX_VALUES || row != (wanted - batches) * element)
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                             "mismatch between the number of shape values of input '%s'. Expecting "
                             "%llu. Got %llu",
                             s->t->name, (unsigned long long)(wanted - batches),
                             (unsigned long long)(row / element));
    for (uint64_t i = 1; i < rows; i++)
        if (memcmp(data, data + i * row, row) != 0)
            return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                                 "the requests of a batch have different values of the shape "
                                 "tensor '%s'",
                                 s->t->name);
    if (batches && s->t->type == TRITONSERVER_TYPE_INT32)
        s->values.i32[0] = (int32_t)b->rows;
    else if (batches)
        s->values.i64[0] = (int64_t)b->rows;
    memcpy(to + batches * element, data, row);
    return NULL;
}

static TRITONSERVER_Error *gather_engine_inputs(struct executor *x, const struct batch *b)
{
    for (size_t i = 0; i < x->model->tensors.n; i++) {
        struct slot *s = &x->slots[i];

        if (!s->t->is_input)
            continue;
        TRY(gather_slot(x, b, s));
        if (s->t->is_shape)
            TRY(take_values(x, b, s));
    }
    return NULL;
}

/* How far the shapes are from the best ones of a profile; -1: it does not allow them. */
static int64_t distance_to(const struct executor *x, int32_t profile)
{
    int64_t sum = 0;

    for (size_t i = 0; i < x->model->tensors.n; i++) {
        const struct slot *s = &x->slots[i];
        const struct limits *l;

        if (!s->t->is_input || s->t->is_shape)
            continue;
        l = &s->t->limits[profile];
        if (s->shape.rank != l->most.rank)
            return -1;
        for (int32_t d = 0; d < s->shape.rank; d++) {
            if (s->shape.d[d] < l->least.d[d] || s->shape.d[d] > l->most.d[d])
                return -1;
            sum += llabs(s->shape.d[d] - l->best.d[d]);
        }
    }
    return sum;
}

/* Why the only profile does not allow the shapes. */
static TRITONSERVER_Error *explain_shapes(const struct executor *x, int32_t profile)
{
    const char *model = x->model->name;

    for (size_t i = 0; i < x->model->tensors.n; i++) {
        const struct slot *s = &x->slots[i];
        const struct limits *l;

        if (!s->t->is_input || s->t->is_shape)
            continue;
        l = &s->t->limits[profile];
        if (s->shape.rank != l->most.rank)
            return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                                 "request specifies invalid shape for input '%s' for %s. Error "
                                 "details: model expected %d dimensions but received %d dimensions",
                                 s->t->name, model, (int)l->most.rank, (int)s->shape.rank);
        for (int32_t d = 0; d < s->shape.rank; d++)
            if (s->shape.d[d] < l->least.d[d] || s->shape.d[d] > l->most.d[d])
                return backend_error(
                    TRITONSERVER_ERROR_INVALID_ARG,
                    "request specifies invalid shape for input '%s' for %s. Error details: model "
                    "expected the shape of dimension %d to be between %lld and %lld but received "
                    "%lld",
                    s->t->name, model, (int)d, (long long)l->least.d[d], (long long)l->most.d[d],
                    (long long)s->shape.d[d]);
    }
    return backend_error(TRITONSERVER_ERROR_INTERNAL, "no optimization profile of %s fits", model);
}

static TRITONSERVER_Error *choose_lane(const struct executor *x, const struct lane **ret_lane)
{
    int64_t least = -1;

    for (size_t i = 0; i < x->n_lanes; i++) {
        int64_t distance = distance_to(x, x->lanes[i].profile);

        if (distance >= 0 && (least < 0 || distance < least)) {
            least = distance;
            *ret_lane = &x->lanes[i];
        }
    }
    if (least >= 0)
        return NULL;
    if (x->n_lanes == 1)
        return explain_shapes(x, x->lanes[0].profile);
    return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                         "failed to find any Optimization Profile among the %zu of this instance "
                         "of %s to support the requested dimensions (or shape values)",
                         x->n_lanes, x->model->name);
}

TRITONSERVER_Error *set_tensor_address(const struct executor *x, const struct lane *lane,
                                       const struct slot *s, const void *at)
{
    if (CALL(x, context_set_address, lane->context, s->t->name, (void *)(uintptr_t)at))
        return NULL;
    return messages_error("TensorRT refuses the address of a tensor");
}

TRITONSERVER_Error *reserve_slot(struct executor *x, struct slot *s)
{
    if (s->buffer.at && s->buffer.size >= s->size)
        return NULL;
    graphs_drop(x); /* they have the address */
    return cuda_reserve(x->model->cuda, &s->buffer, s->size);
}

static TRITONSERVER_Error *copy_input_in_stream(struct executor *x, struct slot *s)
{
    const void *from = s->host.data;
    void *pinned = NULL;

    if (s->size == 0)
        return NULL;
    /* Data that were used where they arrived. The driver would copy them to pinned memory, too, but
     * this thread would wait for the GPU meanwhile. */
    if (s->host.lend && !s->host.copied)
        pinned = s->host.lend(s->host.lender, s->size);
    if (pinned)
        from = memcpy(pinned, from, s->size);
    x->pending = true;
    TRY_CUDA(x->model->cuda, "failed to copy an input to the GPU", to_device, s->buffer.at, from,
             s->size, x->stream);
    return NULL;
}

static TRITONSERVER_Error *hand_input(struct executor *x, const struct lane *lane, struct slot *s)
{
    if (s->t->is_shape)
        return set_tensor_address(x, lane, s, &s->values);
    if (!CALL(x, context_set_shape, lane->context, s->t->name, &s->shape))
        return messages_error("trt failed to set the dimensions of an input");
    if (s->t->on_host)
        return set_tensor_address(x, lane, s, s->host.data ? s->host.data : &s->values);
    TRY(reserve_slot(x, s));
    TRY(copy_input_in_stream(x, s));
    return set_tensor_address(x, lane, s, (void *)(uintptr_t)s->buffer.at);
}

/* ---- Outputs --------------------------------------------------------------------------------- */

/* Is the output computed into memory of ours, and handed on from there? */
static bool goes_by_scratch(const struct slot *s)
{
    return !s->t->is_output || s->t->is_state || s->t->source || s->found_late || s->host.lend;
}

TRITONSERVER_Error *measure_slot(struct slot *s, const struct trt_dims *dims)
{
    int64_t n;

    s->shape = *dims;
    TRY(gather_elements(dims->d, (uint32_t)dims->rank, &n));
    if (__builtin_mul_overflow((uint64_t)n, TRITONSERVER_DataTypeByteSize(s->t->type), &s->size))
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG, "output '%s' is too large",
                             s->t->name);
    return NULL;
}

/* The shape that answers have. */
static uint32_t answer_shape(const struct slot *s, const int64_t **ret_shape)
{
    static const int64_t one[1] = {1};

    *ret_shape = s->t->is_scalar ? one : s->shape.d;
    return s->t->is_scalar ? 1 : (uint32_t)s->shape.rank;
}

static TRITONSERVER_Error *reserve_host(struct slot *s, void **ret_to)
{
    TRY(gather_reserve(&s->host, s->size > 0 ? s->size : 1, ret_to));
    s->host.data = *ret_to;
    return NULL;
}

/* Memory on the host for an output of known shape. */
static TRITONSERVER_Error *prepare_host(const struct batch *b, struct slot *s, void **ret_to)
{
    const int64_t *shape;
    uint32_t rank;

    if (goes_by_scratch(s))
        return reserve_host(s, ret_to);
    rank = answer_shape(s, &shape);
    TRY(scatter_begin(&s->out, b, s->t->name, s->t->hint, s->t->type, shape, rank));
    *ret_to = s->out.data;
    return NULL;
}

static TRITONSERVER_Error *hand_output(struct executor *x, const struct batch *b,
                                       const struct lane *lane, struct slot *s)
{
    struct trt_dims dims = CALL(x, context_shape, lane->context, s->t->name);
    void *to;

    if (dims.rank < 0 || dims.rank > TRT_MAX_RANK)
        return messages_error("TensorRT tells no shape of an output");
    s->found_late = false;
    for (int32_t d = 0; d < dims.rank; d++)
        s->found_late |= dims.d[d] < 0;
    if (s->found_late) {
        s->allocator.dims.rank = -1;
        return CALL(x, context_set_allocator, lane->context, s->t->name, &s->allocator.theirs)
                   ? NULL
                   : messages_error("TensorRT refuses an allocator of outputs");
    }
    TRY(measure_slot(s, &dims));
    if (s->t->on_host) {
        TRY(prepare_host(b, s, &to));
        return set_tensor_address(x, lane, s, to);
    }
    TRY(reserve_slot(x, s));
    return set_tensor_address(x, lane, s, (void *)(uintptr_t)s->buffer.at);
}

static TRITONSERVER_Error *fetch_engine_output(struct executor *x, const struct batch *b,
                                               struct slot *s)
{
    void *to;

    if (!s->t->is_output && !s->t->is_state)
        return NULL;
    if (s->found_late && s->allocator.dims.rank < 0)
        return backend_error(TRITONSERVER_ERROR_INTERNAL,
                             "TensorRT has not told the shape of output '%s'", s->t->name);
    if (s->found_late)
        TRY(measure_slot(s, &s->allocator.dims));
    if (s->t->on_host)
        return NULL;
    TRY(prepare_host(b, s, &to));
    x->pending = true;
    if (s->size > 0)
        TRY_CUDA(x->model->cuda, "failed to copy an output from the GPU", to_host, to, s->buffer.at,
                 s->size, x->stream);
    return NULL;
}

static TRITONSERVER_Error *answer_engine_output(const struct batch *b, struct slot *s)
{
    const int64_t *shape;
    uint32_t rank = answer_shape(s, &shape);

    if (!s->t->is_output)
        return NULL;
    if (!goes_by_scratch(s))
        return scatter_end(&s->out, b);
    if (s->t->source)
        return scatter_like_input(b, s->t->name, s->t->hint, s->t->type, s->t->source, s->host.data,
                                  s->size);
    return scatter_rows(b, s->t->name, s->t->hint, s->t->type, shape, rank, s->host.data, s->size);
}

/* ---- Runs ------------------------------------------------------------------------------------ */

static TRITONSERVER_Error *await_stream_of(struct executor *x)
{
    cuda_result result = x->pending ? x->model->cuda->await_stream(x->stream) : 0;

    x->pending = false;
    return result == 0 ? NULL : cuda_error(x->model->cuda, "failed to run TRT inference", result);
}

static TRITONSERVER_Error *launch_context(struct executor *x, struct batch *b,
                                          const struct lane *lane)
{
    for (size_t i = 0; i < x->model->tensors.n; i++)
        if (x->slots[i].t->is_input)
            TRY(hand_input(x, lane, &x->slots[i]));
    if (!CALL(x, context_all_specified, lane->context))
        return backend_error(TRITONSERVER_ERROR_INTERNAL,
                             "failed to specify the dimensions of all input tensors or values of "
                             "all input shape tensors");
    for (size_t i = 0; i < x->model->tensors.n; i++)
        if (!x->slots[i].t->is_input)
            TRY(hand_output(x, b, lane, &x->slots[i]));
    batch_computes(b);
    x->pending = true;
    if (!CALL(x, context_enqueue, lane->context, x->stream))
        return messages_error("unable to enqueue for inference");
    return NULL;
}

/* A graph has the addresses of the buffers, which are as large as they get (graphs_capture()). */
static TRITONSERVER_Error *launch_graph(struct executor *x, struct batch *b,
                                        const struct graph *graph)
{
    for (size_t i = 0; i < x->model->tensors.n; i++)
        if (x->slots[i].t->is_input)
            TRY(copy_input_in_stream(x, &x->slots[i]));
    TRY(graph_outputs(x, graph));
    batch_computes(b);
    x->pending = true;
    TRY_CUDA(x->model->cuda, "unable to execute graph for inference", launch_graph, graph->exec,
             x->stream);
    return NULL;
}

static TRITONSERVER_Error *compute_batch(struct executor *x, struct batch *b,
                                         const struct lane *lane)
{
    const struct graph *graph = graph_find(x, lane);

    TRY(graph ? launch_graph(x, b, graph) : launch_context(x, b, lane));
    TRY(await_stream_of(x));
    batch_computed(b);
    return NULL;
}

static TRITONSERVER_Error *fill_responses(struct executor *x, struct batch *b)
{
    for (size_t i = 0; i < x->model->tensors.n; i++)
        if (!x->slots[i].t->is_input)
            TRY(fetch_engine_output(x, b, &x->slots[i]));
    TRY(await_stream_of(x));
    for (size_t i = 0; i < x->model->tensors.n; i++)
        if (!x->slots[i].t->is_input)
            TRY(answer_engine_output(b, &x->slots[i]));
    /* After all that can fail: a batch that fails is repeated, and must find the states unchanged.
     */
    for (size_t i = 0; i < x->model->tensors.n; i++) {
        const struct slot *s = &x->slots[i];

        if (s->t->is_state)
            TRY(states_keep(b, s->t->name, s->t->type, s->shape.d, (uint32_t)s->shape.rank,
                            s->host.data, s->size));
    }
    return NULL;
}

static TRITONSERVER_Error *run_on_gpu(struct executor *x, struct batch *b, const struct lane *lane)
{
    TRITONSERVER_Error *err;

    messages_keep();
    err = compute_batch(x, b, lane);
    messages_forget();
    if (!err)
        err = fill_responses(x, b);
    if (err)
        backend_ignore(await_stream_of(x), "an inference that has failed");
    return err;
}

TRITONSERVER_Error *executor_run(struct frame_instance *in, struct batch *b)
{
    struct executor *x = in->state;
    const struct lane *lane = NULL;
    TRITONSERVER_Error *err;

    TRY(cuda_enter(&x->engine->place));
    err = gather_engine_inputs(x, b);
    if (!err)
        err = choose_lane(x, &lane);
    if (!err)
        err = run_on_gpu(x, b, lane);
    cuda_leave(&x->engine->place);
    return err;
}

/* ---- Life ------------------------------------------------------------------------------------ */

static TRITONSERVER_Error *find_dla_core(const struct frame_instance *in, int64_t *ret_core)
{
    const char *kind;
    uint32_t n;

    *ret_core = -1;
    TRY(TRITONBACKEND_ModelInstanceSecondaryDeviceCount(in->handle, &n));
    if (n == 0)
        return NULL;
    if (n > 1)
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                             "%s of model %s must have either zero or one secondary devices",
                             in->name, in->model->name);
    TRY(TRITONBACKEND_ModelInstanceSecondaryDeviceProperties(in->handle, 0, &kind, ret_core));
    if (strcmp(kind, "KIND_NVDLA") != 0 || *ret_core < 0)
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                             "secondary device for %s of model %s must be KIND_NVDLA", in->name,
                             in->model->name);
    return NULL;
}

static TRITONSERVER_Error *make_cuda_stream(struct executor *x)
{
    const struct cuda *cuda = x->model->cuda;
    int least = 0, greatest = 0;

    TRY_CUDA(cuda, "unable to read the priorities of streams", priorities, &least, &greatest);
    TRY_CUDA(cuda, "unable to create a CUDA stream", new_stream, &x->stream, 1 /* non-blocking */,
             x->model->priority > 0   ? greatest
             : x->model->priority < 0 ? least
                                      : 0);
    return NULL;
}

static TRITONSERVER_Error *make_lane(struct executor *x, struct lane *lane)
{
    messages_keep();
    lane->context = CALL(x, engine_new_context, x->engine->engine, (int32_t)x->model->strategy);
    if (!lane->context)
        return messages_error("unable to create TensorRT context");
    if (!CALL(x, context_set_profile, lane->context, lane->profile, x->stream))
        return messages_error("Can not set the specified optimization profile");
    messages_forget();
    TRY_CUDA(x->model->cuda, "Can not set the specified optimization profile", await_stream,
             x->stream);
    return NULL;
}

/* The profiles of the instance's group, or else the first. */
static TRITONSERVER_Error *read_profiles(const struct frame_instance *in, struct executor *x)
{
    uint32_t n;

    TRY(TRITONBACKEND_ModelInstanceProfileCount(in->handle, &n));
    x->lanes = calloc(n + 1, sizeof(*x->lanes));
    if (!x->lanes)
        return backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "out of memory");
    x->n_lanes = n > 0 ? n : 1;
    for (uint32_t i = 0; i < n; i++) {
        const char *name;

        TRY(TRITONBACKEND_ModelInstanceProfileName(in->handle, i, &name));
        TRY(model_profile(x->model, name, &x->lanes[i].profile));
    }
    return NULL;
}

static TRITONSERVER_Error *make_slots(struct executor *x)
{
    x->slots = calloc(x->model->tensors.n + 1, sizeof(*x->slots));
    if (!x->slots)
        return backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "out of memory");
    for (size_t i = 0; i < x->model->tensors.n; i++) {
        struct slot *s = &x->slots[i];

        s->t = &x->model->tensors.list[i];
        s->allocator = (struct output_allocator){
            .theirs = {allocator_table + 2}, .cuda = x->model->cuda, .buffer = &s->buffer};
        if (s->t->is_shape || s->t->on_host ||
            !(s->t->is_input ? x->model->pins_inputs : x->model->pins_outputs))
            continue;
        s->pinned.cuda = x->model->cuda;
        s->host.lend = cuda_lend;
        s->host.lender = &s->pinned;
    }
    return NULL;
}

static TRITONSERVER_Error *fill_executor(struct executor *x, const char *name)
{
    TRY(make_cuda_stream(x));
    for (size_t i = 0; i < x->n_lanes; i++)
        TRY(make_lane(x, &x->lanes[i]));
    graphs_capture(x, name);
    return NULL;
}

TRITONSERVER_Error *executor_open(struct frame_instance *in)
{
    struct executor *x = calloc(1, sizeof(*x));
    TRITONSERVER_InstanceGroupKind kind;
    TRITONSERVER_Error *err;
    int64_t dla_core, memory;
    int32_t gpu;

    if (!x)
        return backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "out of memory");
    in->state = x;
    x->model = in->model->state;
    TRY(TRITONBACKEND_ModelInstanceKind(in->handle, &kind));
    if (kind != TRITONSERVER_INSTANCEGROUPKIND_GPU) /* of a change of the groups */
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                             "unable to load model '%s', TensorRT backend supports only GPU device",
                             in->model->name);
    TRY(TRITONBACKEND_ModelInstanceDeviceId(in->handle, &gpu));
    TRY(find_dla_core(in, &dla_core));
    TRY(model_engine(x->model, gpu, dla_core, &x->engine));
    TRY(read_profiles(in, x));
    TRY(make_slots(x));
    TRY(cuda_enter(&x->engine->place));
    err = fill_executor(x, in->name);
    cuda_leave(&x->engine->place);
    if (err)
        return err;
    memory = CALL(x, engine_device_memory, x->engine->engine);
    return memory > 0 ? backend_report_memory(NULL, in->handle, (uint64_t)memory * x->n_lanes)
                      : NULL;
}

static void free_on_gpu(struct executor *x)
{
    const struct cuda *cuda = x->model->cuda;

    graphs_drop(x);
    for (size_t i = 0; x->lanes && i < x->n_lanes; i++)
        library_delete(x->lanes[i].context);
    for (size_t i = 0; x->slots && i < x->model->tensors.n; i++) {
        cuda_buffer_done(cuda, &x->slots[i].buffer);
        cuda_pinned_done(&x->slots[i].pinned);
    }
    if (x->stream)
        cuda->free_stream(x->stream);
}

void executor_close(struct frame_instance *in)
{
    struct executor *x = in->state;

    if (!x)
        return;
    if (x->engine) {
        backend_ignore(cuda_enter(&x->engine->place), "freeing an instance");
        free_on_gpu(x);
        cuda_leave(&x->engine->place);
    }
    for (size_t i = 0; x->slots && i < x->model->tensors.n; i++) {
        gathered_done(&x->slots[i].host);
        scattered_done(&x->slots[i].out);
    }
    free(x->slots);
    free(x->lanes);
    free(x);
}
