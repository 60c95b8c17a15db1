/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A run gathers the inputs, which PyTorch uses where they lie, calls forward(), and copies each
 * output into the responses: PyTorch allocates what a script returns, so it cannot be told to write
 * there.
 */
#include "pytorch/run.h"

#include <stdlib.h>
#include <string.h>

#include "common/bytes.h"
#include "common/gather.h"
#include "common/scatter.h"
#include "common/states.h"

/* PyTorch watches one run, and compiles in the next; the one after that is the first quick one. */
#define WARMING_RUNS 3

/* Inputs of more bytes are not warmed with: the memory is the model's to spend, not ours. */
#define WARMING_BYTES (64 << 20)

/* Nor batches whose runs would take longer, by the time of one row: what such a model pays to
 * compile is little beside what it executes. */
#define WARMING_NS 1000000000

struct runner {
    struct torch_model *model;
    struct shim_model *module; /* the model's, or a copy */
    bool owns_module;
    TRITONBACKEND_ModelInstance *instance;
    struct gathered *in;        /* for each input of the configuration */
    struct shim_tensor *inputs; /* for each argument, or member of a dictionary */
    size_t n_inputs;
    struct shim_result *result; /* of this run; between runs cleared; NULL: none was */
};

/* ---- Inputs ---------------------------------------------------------------------------------- */

static struct shim_tensor *input_of(struct runner *r, size_t i)
{
    return &r->inputs[r->model->takes_dict ? i : r->model->inputs.list[i].index];
}

static TRITONSERVER_Error *gather_port(struct runner *r, const struct batch *b, size_t i)
{
    const struct port *p = &r->model->inputs.list[i];
    struct gathered *in = &r->in[i];
    struct shim_tensor *to = input_of(r, i);
    int64_t n;

    TRY(p->made ? ragged_gather(in, b, p->made)
                : gather(in, b, p->name, p->type,
                         (p->optional ? GATHER_OPTIONAL : 0) | (p->ragged ? GATHER_RAGGED : 0)));
    *to = (struct shim_tensor){.name = p->name, .type = TRITONSERVER_TYPE_INVALID};
    if (!in->present)
        return NULL;
    to->type = in->type;
    to->rank = in->rank;
    to->shape = in->shape;
    to->data = in->data;
    to->size = in->size;
    if (in->type != TRITONSERVER_TYPE_BYTES)
        return NULL;
    TRY(gather_elements(in->shape, in->rank, &n));
    return bytes_check(p->name, in->data, in->size, (uint64_t)n);
}

/* ---- Outputs --------------------------------------------------------------------------------- */

static const struct shim_tensor *find_result(const struct runner *r, const struct port *p)
{
    const struct shim_result *result = r->result;

    if (!result->named)
        return p->index < result->n_outputs ? &result->outputs[p->index] : NULL;
    for (size_t i = 0; i < result->n_outputs; i++)
        if (strcmp(result->outputs[i].name, p->name) == 0)
            return &result->outputs[i];
    return NULL;
}

static TRITONSERVER_Error *check_result(const struct runner *r, const struct port *p,
                                        const struct shim_tensor *out)
{
    if (!out && r->result->named)
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                             "The dictionary that model '%s' returns has no member '%s'",
                             r->model->name, p->name);
    if (!out)
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                             "The output %s in the model configuration refers to an output index "
                             "which doesn't exist. This model has %zu outputs",
                             p->name, r->result->n_outputs);
    if (out->kind)
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                             "output '%s' must be of type Tensor, List[str] or Tuple containing "
                             "one of these two types, or Dict[str, Tensor]; the model has returned "
                             "%s",
                             p->name, out->kind);
    if (out->type != p->type)
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                             "unexpected datatype TYPE_%s for inference output '%s', expecting "
                             "TYPE_%s",
                             TRITONSERVER_DataTypeString(out->type), p->name,
                             TRITONSERVER_DataTypeString(p->type));
    if (out->rank > BATCH_MAX_RANK)
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                             "output '%s' has %u dimensions, more than %d", p->name,
                             (unsigned int)out->rank, BATCH_MAX_RANK);
    return NULL;
}

/* Gives the server the state for the next request of each sequence. */
static TRITONSERVER_Error *keep_port_state(struct batch *b, const struct port *p,
                                           const struct shim_tensor *out)
{
    if (out->type == TRITONSERVER_TYPE_BYTES)
        return backend_error(TRITONSERVER_ERROR_UNSUPPORTED, "state '%s' has strings", p->name);
    return states_keep(b, p->name, out->type, out->shape, out->rank, out->data, out->size);
}

static TRITONSERVER_Error *answer_output(const struct runner *r, const struct batch *b,
                                         const struct port *p)
{
    const struct shim_tensor *out = find_result(r, p);
    static const int64_t one[1] = {1};
    const int64_t *shape;
    uint32_t rank;

    TRY(check_result(r, p, out));
    if (!p->is_output)
        return NULL;
    if (p->source)
        return scatter_like_input(b, p->name, p->hint, out->type, p->source, out->data, out->size);
    /* A single value is a list of one, where the configuration has it so. */
    shape = out->shape;
    rank = out->rank;
    if (rank == 0 && r->model->max_batch_size == 0 && doc_count(p->shape) == 1) {
        shape = one;
        rank = 1;
    }
    return scatter_rows(b, p->name, p->hint, out->type, shape, rank, out->data, out->size);
}

/* ---- Runs ------------------------------------------------------------------------------------ */

static TRITONSERVER_Error *call_forward(struct runner *r)
{
    const struct torch_model *t = r->model;
    char *text = t->shim->run(r->module, &t->options, r->inputs, r->n_inputs, &r->result);

    if (!text && r->result)
        return NULL;
    return library_error(TRITONSERVER_ERROR_INTERNAL, "PyTorch execute failure", text);
}

static void clear_returned(struct runner *r)
{
    if (r->result)
        r->model->shim->clear(r->result);
}

static TRITONSERVER_Error *compute_answers(struct runner *r, struct batch *b)
{
    const struct torch_model *t = r->model;

    for (size_t i = 0; i < t->inputs.n; i++)
        TRY(gather_port(r, b, i));
    batch_computes(b);
    TRY(call_forward(r));
    batch_computed(b);
    for (size_t i = 0; i < t->outputs.n; i++)
        TRY(answer_output(r, b, &t->outputs.list[i]));
    /* After all that can fail: a batch that fails is repeated, and must find the states unchanged.
     */
    for (size_t i = 0; i < t->outputs.n; i++)
        if (t->outputs.list[i].is_state)
            TRY(keep_port_state(b, &t->outputs.list[i], find_result(r, &t->outputs.list[i])));
    return NULL;
}

TRITONSERVER_Error *runner_run(struct frame_instance *in, struct batch *b)
{
    struct runner *r = in->state;
    TRITONSERVER_Error *err = compute_answers(r, b);

    clear_returned(r);
    return err;
}

/* ---- Warm ------------------------------------------------------------------------------------ */

/* INVALID: the configuration does not tell it. */
static TRITONSERVER_DataType choose_zero_type(const struct port *p)
{
    return p->type == TRITONSERVER_TYPE_INVALID ? p->control : p->type;
}

/* The shape of so many rows, if the configuration leaves no dimension open. */
static bool read_fixed_shape(const struct torch_model *t, const struct port *p, int64_t n_rows,
                             int64_t *shape, uint32_t *ret_rank, uint64_t *ret_size)
{
    uint32_t rank = 0;
    TRITONSERVER_DataType type = choose_zero_type(p);
    uint64_t size = type == TRITONSERVER_TYPE_BYTES ? 4 : TRITONSERVER_DataTypeByteSize(type);

    if (type == TRITONSERVER_TYPE_INVALID || (!p->shape && type != p->control) || p->ragged ||
        p->made)
        return false;
    if (t->max_batch_size > 0) {
        shape[rank++] = n_rows;
        size *= (uint64_t)n_rows; /* both are below 2^32 */
    }
    if (!p->shape) /* a control: one value for each row */
        shape[rank++] = 1;
    for (const struct doc_value *v = doc_first(p->shape); v; v = v->next) {
        int64_t n;

        if (rank == BATCH_MAX_RANK || !doc_int(v, &n) || n < 0 ||
            __builtin_mul_overflow(size, (uint64_t)n, &size) || size > WARMING_BYTES)
            return false;
        shape[rank++] = n;
    }
    *ret_rank = rank;
    *ret_size = size;
    return size <= WARMING_BYTES;
}

/* Makes an input of zeroes, which are empty strings, too. */
static bool fill_with_zeroes(struct runner *r, size_t i, int64_t n_rows)
{
    const struct port *p = &r->model->inputs.list[i];
    struct gathered *in = &r->in[i];
    struct shim_tensor *to = input_of(r, i);
    uint64_t size;
    uint32_t rank;
    void *zeroes;

    if (!read_fixed_shape(r->model, p, n_rows, in->shape, &rank, &size))
        return false;
    TRITONSERVER_Error *err = gather_reserve(in, size > 0 ? size : 1, &zeroes);

    if (err) {
        backend_ignore(err, "warming a model");
        return false;
    }
    memset(zeroes, 0, size);
    *to = (struct shim_tensor){.name = p->name,
                               .type = choose_zero_type(p),
                               .rank = rank,
                               .shape = in->shape,
                               .data = zeroes,
                               .size = size};
    return true;
}

/* A model that refuses zeroes stays as it is. */
static void report_refusal(const struct torch_model *t, int64_t n_rows, TRITONSERVER_Error *err)
{
    const char *why = TRITONSERVER_ErrorMessage(err);

    /* Code that refuses a row of zeroes was compiled for other shapes. */
    if (t->is_package)
        BACKEND_LOG(WARN, "model '%s': with zeroes it says: %s", t->name, why);
    else
        BACKEND_LOG(VERBOSE,
                    "model '%s' is not warmed with a batch of %lld: with zeroes it says: %s",
                    t->name, (long long)n_rows, why);
    TRITONSERVER_ErrorDelete(err);
}

/* Returns the time of the last run, ns; 0 if there was none. */
static uint64_t warm_rows(struct runner *r, int64_t n_rows)
{
    uint64_t from = 0;

    for (size_t i = 0; i < r->model->inputs.n; i++)
        if (!fill_with_zeroes(r, i, n_rows))
            return 0;
    for (int i = 0; i < WARMING_RUNS; i++) {
        from = backend_now_ns();
        TRITONSERVER_Error *err = call_forward(r);

        clear_returned(r);
        if (err) {
            report_refusal(r->model, n_rows, err);
            return 0;
        }
    }
    return backend_now_ns() - from;
}

static void warm_batch(struct runner *r, int64_t n_rows, uint64_t row_ns)
{
    if (n_rows > 1 && n_rows <= r->model->max_batch_size &&
        row_ns < WARMING_NS / WARMING_RUNS / (uint64_t)n_rows)
        warm_rows(r, n_rows);
}

static void warm_preferred(struct runner *r, const struct doc_value *batcher, uint64_t row_ns)
{
    for (const struct doc_value *v = doc_first(doc_get(batcher, "preferred_batch_size")); v;
         v = v->next) {
        int64_t n;

        if (doc_int(v, &n) && n != r->model->max_batch_size)
            warm_batch(r, n, row_ns);
    }
}

/* PyTorch compiles for the shapes that it sees: one row, a full batch, and what the scheduler aims
 * at. A model whose first runs would change what it answers later stays as it is; a package was
 * compiled before. */
static void warm(struct runner *r, const struct doc_value *config)
{
    uint64_t row_ns;

    if (r->module->writes_itself)
        return;
    row_ns = warm_rows(r, 1);
    if (row_ns == 0 || r->model->is_package)
        return;
    warm_batch(r, r->model->max_batch_size, row_ns);
    warm_preferred(r, doc_get(config, "dynamic_batching"), row_ns);
    warm_preferred(r, doc_get(doc_get(config, "sequence_batching"), "oldest"), row_ns);
}

/* ---- Life ------------------------------------------------------------------------------------ */

static TRITONSERVER_Error *take_module(struct runner *r)
{
    struct torch_model *t = r->model;
    struct shim_model *copy = NULL;
    char *text;

    r->module = t->module;
    /* A module that changes is only what the others are copied from. */
    if (t->shares || (!t->module->writes_itself && !atomic_exchange(&t->taken, true)))
        return NULL;
    text = t->shim->copy(t->module, &copy);
    if (!copy) /* even without a text (shim.h) */
        return library_error(TRITONSERVER_ERROR_INTERNAL, "copying a model", text);
    r->module = copy;
    r->owns_module = true;
    return NULL;
}

static TRITONSERVER_Error *fill_runner(struct runner *r, const struct doc *config)
{
    const struct torch_model *t = r->model;

    r->n_inputs = t->takes_dict ? t->inputs.n : t->module->n_arguments;
    r->in = calloc(t->inputs.n + 1, sizeof(*r->in));
    r->inputs = calloc(r->n_inputs + 1, sizeof(*r->inputs));
    if (!r->in || !r->inputs)
        return backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "out of memory");
    for (size_t i = 0; i < r->n_inputs; i++)
        r->inputs[i].type = TRITONSERVER_TYPE_INVALID;
    TRY(take_module(r));
    warm(r, doc_root(config));
    return r->owns_module ? backend_report_memory(NULL, r->instance, r->module->size) : NULL;
}

TRITONSERVER_Error *runner_open(struct frame_instance *in)
{
    struct runner *r = calloc(1, sizeof(*r));

    if (!r)
        return backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "out of memory");
    in->state = r;
    r->instance = in->handle;
    r->model = in->model->state;
    return fill_runner(r, in->model->config);
}

void runner_close(struct frame_instance *in)
{
    struct runner *r = in->state;

    if (!r)
        return;
    for (size_t i = 0; r->in && i < r->model->inputs.n; i++)
        gathered_done(&r->in[i]);
    if (r->result)
        r->model->shim->release(r->result);
    if (r->owns_module)
        r->model->shim->free(r->module);
    free(r->in);
    free(r->inputs);
    free(r);
}
