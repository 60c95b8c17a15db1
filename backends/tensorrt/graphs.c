/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A graph has the addresses of the buffers in it. So the buffers of an instance with graphs have
 * the size of the largest shapes of its profiles before the first graph is captured. Should one of
 * them move all the same, since its output is larger for a smaller input, the graphs are dropped.
 *
 * TensorRT must have executed the shapes once before it can be captured.
 */
#include "tensorrt/graphs.h"

#include <stdlib.h>
#include <string.h>

#include "common/model_file.h"

/* ---- What the configuration wants ------------------------------------------------------------ */

#define spec_error(...) backend_error(TRITONSERVER_ERROR_INVALID_ARG, __VA_ARGS__)

static const struct doc_value *cuda_options(const struct model *m)
{
    return doc_get(doc_get(doc_root(m->frame->config), "optimization"), "cuda");
}

static TRITONSERVER_Error *check_spec_shape(const char *input, const struct doc_value *dims,
                                            const struct doc_value *least)
{
    const struct doc_value *low = doc_first(least);

    if (doc_count(dims) > TRT_MAX_RANK)
        return spec_error("graph spec has %zu dimensions for input '%s', more than %d",
                          doc_count(dims), input, TRT_MAX_RANK);
    if (doc_count(dims) != doc_count(least))
        return spec_error("graph lower bound spec expects to have '%zu' dimensions, got %zu",
                          doc_count(dims), doc_count(least));
    for (const struct doc_value *v = doc_first(dims); v; v = v->next, low = low->next) {
        int64_t high_dim, low_dim;

        if (!doc_int(v, &high_dim) || !doc_int(low, &low_dim) || high_dim < 0 || low_dim < 0)
            return spec_error("graph spec expects input '%s' to have dimension >= 0", input);
        if (low_dim > high_dim)
            return spec_error("graph lower bound spec expects input '%s' to have dimension <= %lld",
                              input, (long long)high_dim);
    }
    return NULL;
}

static TRITONSERVER_Error *check_spec_batch(const struct model *m, const struct graph_spec *s)
{
    int64_t most = m->frame->max_batch_size;

    if (most == 0 && (s->rows != 0 || s->least_rows != 0))
        return spec_error("graph spec expects 'batch_size' to be 0 if 'max_batch_size' is 0");
    if (most > 0 && (s->rows > most || s->rows < 1 || s->least_rows > most || s->least_rows < 1))
        return spec_error("graph spec expects 'batch_size' to be >= 1 and <= %lld",
                          (long long)most);
    if (s->least_rows > s->rows)
        return spec_error("graph lower bound spec expects 'batch_size' to be <= graph spec "
                          "'batch_size'");
    return NULL;
}

static TRITONSERVER_Error *read_graph_spec(const struct model *m, const struct doc_value *v,
                                           struct graph_spec *ret)
{
    const struct doc_value *bound = doc_get(v, "graph_lower_bound");

    doc_int(doc_get(v, "batch_size"), &ret->rows);
    ret->least_rows = ret->rows;
    if (bound) {
        ret->least_rows = 0;
        doc_int(doc_get(bound, "batch_size"), &ret->least_rows);
    }
    if (doc_count(doc_get(v, "input")) > 0)
        ret->shapes = doc_get(v, "input");
    TRY(check_spec_batch(m, ret));
    for (const struct doc_value *in = doc_first(ret->shapes); in; in = in->next) {
        const struct doc_value *least = bound ? doc_get(doc_get(bound, "input"), in->key) : in;

        if (!least)
            return spec_error("graph lower bound spec expects shape for input '%s'", in->key);
        TRY(check_spec_shape(in->key, doc_get(in, "dim"), doc_get(least, "dim")));
    }
    return NULL;
}

/* Adds a size of batches to those of which graphs are made; they ascend, each is there once. */
static void add_graph_batch(struct model *m, int64_t rows)
{
    size_t at = 0;

    if (rows < (m->frame->max_batch_size > 0) || rows > m->frame->max_batch_size)
        return;
    while (at < m->n_graph_specs && m->graph_specs[at].rows < rows)
        at++;
    if (at < m->n_graph_specs && m->graph_specs[at].rows == rows)
        return;
    memmove(&m->graph_specs[at + 1], &m->graph_specs[at],
            (m->n_graph_specs++ - at) * sizeof(*m->graph_specs));
    m->graph_specs[at] = (struct graph_spec){.rows = rows, .least_rows = rows};
}

/* The scheduler that may have preferred_batch_size; NULL: the model has another. */
static const struct doc_value *find_batcher(const struct model *m)
{
    const struct doc_value *root = doc_root(m->frame->config);
    const struct doc_value *dynamic = doc_get(root, "dynamic_batching");

    return dynamic ? dynamic : doc_get(doc_get(root, "sequence_batching"), "oldest");
}

/* As Triton's backend does: 1, the preferred sizes, the largest; without a scheduler that has such
 * sizes, some small ones. */
static void add_usual_batches(struct model *m)
{
    static const int64_t usual[] = {2, 3, 4, 6, 8, 12, 16};
    const struct doc_value *batcher = find_batcher(m), *v;

    add_graph_batch(m, m->frame->max_batch_size > 0);
    add_graph_batch(m, m->frame->max_batch_size);
    for (size_t i = 0; !batcher && i < sizeof(usual) / sizeof(usual[0]); i++)
        add_graph_batch(m, usual[i]);
    for (v = doc_first(doc_get(batcher, "preferred_batch_size")); v; v = v->next) {
        int64_t rows;

        if (doc_int(v, &rows))
            add_graph_batch(m, rows);
    }
}

TRITONSERVER_Error *graphs_read(struct model *m)
{
    const struct doc_value *cuda = cuda_options(m), *wanted = doc_get(cuda, "graph_spec");
    const struct doc_value *preferred = doc_get(find_batcher(m), "preferred_batch_size");

    if (!doc_true(doc_get(cuda, "graphs")))
        return NULL;
    /* 9: the usual sizes, 1 and the largest. */
    m->graph_specs = calloc(doc_count(wanted) + doc_count(preferred) + 9, sizeof(*m->graph_specs));
    if (!m->graph_specs)
        return backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "out of memory");
    if (doc_count(wanted) == 0)
        add_usual_batches(m);
    for (const struct doc_value *v = doc_first(wanted); v; v = v->next)
        TRY(read_graph_spec(m, v, &m->graph_specs[m->n_graph_specs++]));
    return NULL;
}

/* ---- Buffers that do not move ---------------------------------------------------------------- */

/* Does the first dimension of this input count the rows of the batch? */
static bool has_rows(const struct executor *x, const struct tensor *t)
{
    return x->model->frame->max_batch_size > 0 && !t->ragged && !t->made && t->dims.rank > 0;
}

static TRITONSERVER_Error *set_slot(struct executor *x, const struct lane *lane, struct slot *s,
                                    const struct trt_dims *dims)
{
    TRY(measure_slot(s, dims));
    if (!CALL(x, context_set_shape, lane->context, s->t->name, dims))
        return messages_error("trt failed to set the dimensions of an input");
    TRY(reserve_slot(x, s));
    return set_tensor_address(x, lane, s, (void *)(uintptr_t)s->buffer.at);
}

/* The inputs' shapes are set. */
static TRITONSERVER_Error *set_outputs(struct executor *x, const struct lane *lane)
{
    for (size_t i = 0; i < x->model->tensors.n; i++) {
        struct slot *s = &x->slots[i];
        struct trt_dims dims;

        if (s->t->is_input)
            continue;
        dims = CALL(x, context_shape, lane->context, s->t->name);
        if (dims.rank < 0 || dims.rank > TRT_MAX_RANK)
            return messages_error("TensorRT tells no shape of an output");
        for (int32_t d = 0; d < dims.rank; d++)
            if (dims.d[d] < 0)
                return spec_error("the size of output '%s' depends on the values of inputs",
                                  s->t->name);
        TRY(measure_slot(s, &dims));
        TRY(reserve_slot(x, s));
        TRY(set_tensor_address(x, lane, s, (void *)(uintptr_t)s->buffer.at));
    }
    return NULL;
}

/* All tensors get the memory of the largest shapes, which is zero: what TensorRT computes from them
 * before the first request must be harmless. */
static TRITONSERVER_Error *reserve_most(struct executor *x, const struct lane *lane)
{
    for (size_t i = 0; i < x->model->tensors.n; i++) {
        struct slot *s = &x->slots[i];
        struct trt_dims most;

        if (!s->t->is_input)
            continue;
        most = s->t->limits[lane->profile].most;
        if (has_rows(x, s->t) && most.d[0] > x->model->frame->max_batch_size)
            most.d[0] = x->model->frame->max_batch_size;
        TRY(set_slot(x, lane, s, &most));
        TRY_CUDA(x->model->cuda, "unable to clear an input", fill, s->buffer.at, 0, s->buffer.size,
                 x->stream);
    }
    return set_outputs(x, lane);
}

/* ---- Captures -------------------------------------------------------------------------------- */

static TRITONSERVER_Error *find_spec_shape(const struct executor *x, const struct lane *lane,
                                           const struct graph_spec *spec, const struct tensor *t,
                                           struct trt_dims *ret)
{
    const struct doc_value *shape = doc_get(spec->shapes, t->name);

    *ret = t->limits[lane->profile].best;
    if (spec->shapes && !shape)
        return spec_error("a graph_spec has no shape for input '%s'", t->name);
    if (shape) {
        *ret = (struct trt_dims){.rank = has_rows(x, t)};
        for (const struct doc_value *v = doc_first(doc_get(shape, "dim")); v; v = v->next) {
            if (ret->rank == TRT_MAX_RANK)
                return spec_error("a graph_spec has too many dimensions for input '%s'", t->name);
            doc_int(v, &ret->d[ret->rank++]);
        }
    }
    if (has_rows(x, t))
        ret->d[0] = spec->rows;
    return NULL;
}

static bool profile_allows(const struct limits *l, const struct trt_dims *dims)
{
    bool fits = dims->rank == l->most.rank;

    for (int32_t d = 0; fits && d < dims->rank; d++)
        fits = dims->d[d] >= l->least.d[d] && dims->d[d] <= l->most.d[d];
    return fits;
}

/* @ret_fits  false: the profile does not allow the shapes, and nothing is captured */
static TRITONSERVER_Error *set_spec_shapes(struct executor *x, const struct lane *lane,
                                           const struct graph_spec *spec, bool *ret_fits)
{
    *ret_fits = true;
    for (size_t i = 0; i < x->model->tensors.n; i++) {
        struct slot *s = &x->slots[i];
        struct trt_dims dims;

        if (!s->t->is_input)
            continue;
        TRY(find_spec_shape(x, lane, spec, s->t, &dims));
        *ret_fits = profile_allows(&s->t->limits[lane->profile], &dims);
        if (!*ret_fits)
            return NULL;
        TRY(set_slot(x, lane, s, &dims));
    }
    return set_outputs(x, lane);
}

static TRITONSERVER_Error *enqueue_spec(struct executor *x, const struct lane *lane)
{
    if (!CALL(x, context_enqueue, lane->context, x->stream))
        return messages_error("unable to record CUDA graph");
    return NULL;
}

/* Records what one launch does; the driver's graph is freed in any case. */
static TRITONSERVER_Error *record_graph(struct executor *x, const struct lane *lane,
                                        void **ret_exec)
{
    const struct cuda *cuda = x->model->cuda;
    TRITONSERVER_Error *err;
    void *graph = NULL;
    cuda_result result;

    TRY_CUDA(cuda, "unable to start CUDA graph", begin_capture, x->stream, CUDA_CAPTURE_THREAD);
    err = enqueue_spec(x, lane);
    result = cuda->end_capture(x->stream, &graph); /* after an error, too */
    if (!err && result != 0)
        err = cuda_error(cuda, "unable to finish CUDA graph", result);
    if (!err) {
        result = cuda->make_executable(ret_exec, graph, 0);
        if (result != 0)
            err = cuda_error(cuda, "unable to instantiate CUDA graph", result);
    }
    if (graph)
        cuda->free_graph(graph);
    return err;
}

static TRITONSERVER_Error *keep_graph(const struct executor *x, struct lane *lane,
                                      const struct graph_spec *spec, void *exec)
{
    size_t n = x->model->tensors.n;
    struct graph *g = calloc(1, sizeof(*g) + n * sizeof(*g->shapes));
    bool pads = spec->least_rows < spec->rows;

    if (!g) {
        x->model->cuda->free_executable(exec);
        return backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "out of memory");
    }
    for (size_t i = 0; i < n; i++) {
        const struct tensor *t = x->slots[i].t;

        g->shapes[i] = x->slots[i].shape;
        pads = pads && (t->is_input ? has_rows(x, t)
                                    : g->shapes[i].rank > 0 && g->shapes[i].d[0] == spec->rows);
    }
    if (pads) {
        g->rows = spec->rows;
        g->least = spec->least_rows;
    }
    g->exec = exec;
    g->next = lane->graphs;
    lane->graphs = g;
    return NULL;
}

/* @ret_fits  false: the profile does not allow the shapes, and nothing is captured */
static TRITONSERVER_Error *capture_graph(struct executor *x, struct lane *lane,
                                         const struct graph_spec *spec, bool *ret_fits)
{
    const struct cuda *cuda = x->model->cuda;
    void *exec = NULL;

    TRY(set_spec_shapes(x, lane, spec, ret_fits));
    if (!*ret_fits)
        return NULL;
    TRY(enqueue_spec(x, lane));
    TRY_CUDA(cuda, "unable to record CUDA graph", await_stream, x->stream);
    TRY(record_graph(x, lane, &exec));
    return keep_graph(x, lane, spec, exec);
}

/* For each profile that allows the shapes. */
static TRITONSERVER_Error *capture_spec(struct executor *x, const struct graph_spec *spec)
{
    bool any = false;

    for (size_t i = 0; i < x->n_lanes; i++) {
        bool fits;

        TRY(capture_graph(x, &x->lanes[i], spec, &fits));
        any |= fits;
    }
    /* The usual sizes are no wish of the user's. */
    if (!any && spec->shapes)
        return spec_error("no optimization profile allows the shapes of a graph_spec for batches "
                          "of %lld",
                          (long long)spec->rows);
    return NULL;
}

static TRITONSERVER_Error *refuse_host_tensors(const struct model *m)
{
    for (size_t i = 0; i < m->tensors.n; i++) {
        const struct tensor *t = &m->tensors.list[i];

        if (t->is_shape || t->on_host)
            return spec_error("tensor '%s' is in the host's memory", t->name);
    }
    return NULL;
}

/* Returns the first error; what follows it is tried, too. */
static TRITONSERVER_Error *capture_all(struct executor *x)
{
    TRITONSERVER_Error *first = NULL;

    for (size_t k = 0; k < x->model->n_graph_specs; k++) {
        TRITONSERVER_Error *err = capture_spec(x, &x->model->graph_specs[k]);

        messages_keep();
        if (first)
            TRITONSERVER_ErrorDelete(err);
        else
            first = err;
    }
    return first;
}

static TRITONSERVER_Error *reserve_all(struct executor *x)
{
    for (size_t i = 0; i < x->n_lanes; i++)
        TRY(reserve_most(x, &x->lanes[i]));
    return NULL;
}

void graphs_capture(struct executor *x, const char *name)
{
    TRITONSERVER_Error *err;
    size_t n = 0;

    if (x->model->n_graph_specs == 0)
        return;
    err = refuse_host_tensors(x->model);
    messages_keep();
    if (!err)
        err = reserve_all(x);
    if (!err)
        err = capture_all(x);
    messages_forget();
    x->model->cuda->await_stream(x->stream);
    for (size_t i = 0; i < x->n_lanes; i++)
        for (const struct graph *g = x->lanes[i].graphs; g; g = g->next)
            n++;
    BACKEND_LOG(VERBOSE, "captured %zu CUDA graphs for %s", n, name);
    if (err)
        BACKEND_LOG(WARN, "model '%s': not all CUDA graphs are captured for %s: %s", x->model->name,
                    name, TRITONSERVER_ErrorMessage(err));
    TRITONSERVER_ErrorDelete(err);
}

void graphs_drop(struct executor *x)
{
    for (size_t i = 0; x->lanes && i < x->n_lanes; i++) {
        for (struct graph *g = x->lanes[i].graphs, *next; g; g = next) {
            next = g->next;
            x->model->cuda->free_executable(g->exec);
            free(g);
        }
        x->lanes[i].graphs = NULL;
    }
}

/* ---- Use ------------------------------------------------------------------------------------- */

static bool graph_fits(const struct executor *x, const struct graph *g)
{
    for (size_t i = 0; i < x->model->tensors.n; i++) {
        const struct slot *s = &x->slots[i];
        const struct trt_dims *dims = &g->shapes[i];
        int32_t first = g->rows > 0;

        if (!s->t->is_input)
            continue;
        if (s->shape.rank != dims->rank ||
            memcmp(&s->shape.d[first], &dims->d[first],
                   (size_t)(dims->rank - first) * sizeof(*dims->d)) != 0)
            return false;
        if (first && (s->shape.d[0] < g->least || s->shape.d[0] > g->rows))
            return false;
    }
    return true;
}

const struct graph *graph_find(const struct executor *x, const struct lane *lane)
{
    const struct graph *best = NULL;

    for (const struct graph *g = lane->graphs; g; g = g->next)
        if (graph_fits(x, g) && (!best || g->rows < best->rows))
            best = g;
    return best;
}

TRITONSERVER_Error *graph_outputs(struct executor *x, const struct graph *g)
{
    int64_t rows = 0;

    for (size_t i = 0; g->rows > 0 && i < x->model->tensors.n; i++)
        if (x->slots[i].t->is_input)
            rows = x->slots[i].shape.d[0];
    for (size_t i = 0; i < x->model->tensors.n; i++) {
        struct slot *s = &x->slots[i];
        struct trt_dims dims = g->shapes[i];

        if (s->t->is_input)
            continue;
        if (g->rows > 0)
            dims.d[0] = rows;
        s->found_late = false;
        TRY(measure_slot(s, &dims));
    }
    return NULL;
}
