/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Does a request fit its model? The order and the texts are those of reference/behaviours §7, since
 * clients and their tests rely on the first error. Each function is a pass over a few inputs;
 * nothing is allocated unless an input is reshaped or raw.
 */
#include "core/request/admit.h"

#include <endian.h>
#include <string.h>

#include "base/buf.h"
#include "base/status.h"
#include "core/model/model.h"
#include "core/request/request.h"

enum { MAX_TEXT = 16 << 10 };

#define PREFIX "[request id: %s] "

/* Makes the error of a request that does not fit; a long list of names is cut, not refused. */
NODISCARD PRINTF_LIKE(2, 3) static struct status *misfit(const struct request *r, const char *fmt,
                                                         ...)
{
    va_list ap;
    va_start(ap, fmt);
    struct status *st = status_newv(STATUS_INVALID_ARG, fmt, ap);
    va_end(ap);
    return status_prefix(st, PREFIX, request_log_name(r));
}

/* ---- What the model expects, behind the reference's text --------------------------------------
 */

enum { MAX_LISTED = 8 };

/* The shape that a request gives: with the batch dimension in front. */
static void print_expected(struct buf *out, const struct model *m, const struct tensor_spec *spec)
{
    if (!m->batching) {
        shape_print(out, spec->dims, spec->n_dims);
        return;
    }
    buf_adds(out, "[-1");
    for (uint32_t i = 0; i < spec->n_dims; i++)
        buf_addf(out, ",%lld", (long long)spec->dims[i]);
    buf_addc(out, ']');
}

/* The error of a name that the model does not have. */
static struct status *wrong_name(const struct model *m, const char *what, const char *name,
                                 const struct tensor_spec *specs, uint32_t n)
{
    AUTO(buf) list = BUF_INIT(MAX_TEXT);
    for (uint32_t i = 0; i < MIN(n, (uint32_t)MAX_LISTED); i++) {
        buf_addf(&list, "%s'%s' %s ", i ? ", " : "", specs[i].name, dtype_name(specs[i].dtype));
        print_expected(&list, m, &specs[i]);
    }
    if (n > MAX_LISTED)
        buf_addf(&list, " and %u more", n - MAX_LISTED);
    return status_new(STATUS_INVALID_ARG, "unexpected inference %s '%s' for model '%s'; it has %s",
                      what, name, m->name, n ? buf_text(&list) : "none");
}

/* Adds the shape to be sent, if the input is right but for its batch dimension. */
static void add_batch_advice(struct buf *out, const struct model *m, const struct input *in,
                             const struct tensor_spec *spec)
{
    bool lacks_batch = m->batching && spec && in->n_dims == spec->n_dims;
    for (uint32_t i = 0; i < in->n_dims && lacks_batch; i++)
        lacks_batch = in->shape[i] >= 0 && (spec->dims[i] == -1 || spec->dims[i] == in->shape[i]);
    if (!lacks_batch)
        return;
    buf_adds(out, "; the model takes a batch: send [1");
    for (uint32_t i = 0; i < in->n_dims; i++)
        buf_addf(out, ",%lld", (long long)in->shape[i]);
    buf_addc(out, ']');
}

/* ---- Raw input (reference/behaviours §5.1) --------------------------------------------------- */

static struct status *deduce_raw_shape(struct request *r, struct input *in,
                                       const struct tensor_spec *spec)
{
    struct model *m = r->model;
    size_t batch_dims = m->batching ? 1 : 0;
    int64_t *shape = arena_alloc(&r->arena, (spec->n_dims + batch_dims) * sizeof(*shape));
    if (!shape)
        return status_no_memory();
    if (batch_dims)
        shape[0] = 1;
    in->shape = shape;
    in->n_dims = spec->n_dims + (uint32_t)batch_dims;
    shape += batch_dims;

    if (spec->dtype == DTYPE_BYTES) {
        if (spec->n_dims != 1 || spec->dims[0] != 1)
            return misfit(r,
                          "For BYTE datatype raw input '%s', the model must have input shape [1]",
                          spec->name);
        shape[0] = 1;
        /* The body is one element without its length, which is put in front. */
        struct tensor_buffer *both = arena_alloc(&r->arena, (in->n_buffers + 1) * sizeof(*both));
        if (!both)
            return status_no_memory();
        if (in->size_bytes > UINT32_MAX)
            return misfit(r, "raw input '%s' of %zu bytes is too large for a BYTES element",
                          in->name, in->size_bytes);
        in->raw_length = htole32((uint32_t)in->size_bytes);
        both[0] =
            (struct tensor_buffer){.base = &in->raw_length, .size_bytes = sizeof(in->raw_length)};
        for (uint32_t i = 0; i < in->n_buffers; i++)
            both[i + 1] = in->buffers[i];
        in->buffers = both;
        in->buffer_capacity = ++in->n_buffers;
        in->size_bytes += sizeof(in->raw_length);
        return NULL;
    }

    int64_t known = (int64_t)dtype_size(spec->dtype);
    int64_t *variable = NULL;
    for (uint32_t i = 0; i < spec->n_dims; i++) {
        shape[i] = spec->dims[i];
        if (shape[i] != -1) {
            if (__builtin_mul_overflow(known, shape[i], &known))
                return misfit(r, "byte size overflow for input '%s'", in->name);
        } else if (variable) {
            return misfit(r,
                          "The shape of the raw input '%s' can not be deduced because there are "
                          "more than one variable-sized dimension",
                          spec->name);
        } else {
            variable = &shape[i];
        }
    }
    if (variable)
        *variable = known > 0 ? (int64_t)in->size_bytes / known : 0;
    return NULL;
}

/*
 * As in the reference, a raw input keeps its maker's name while errors may name it. It is the
 * model's only input.
 */
static struct status *check_raw(struct request *r, bool *ret_raw)
{
    struct model *m = r->model;
    bool raw = false;
    for (uint32_t i = 0; i < r->maker.n_inputs; i++)
        raw |= r->maker.inputs[i]->raw;
    *ret_raw = raw;
    if (LIKELY(!raw))
        return NULL;
    if (r->maker.n_inputs != 1 || m->n_inputs != 1)
        return misfit(r,
                      "Raw request must only have 1 input (found %u) to be deduced but got %u "
                      "inputs in '%s' model configuration",
                      r->maker.n_inputs, m->n_inputs, m->name);

    struct input *in = r->maker.inputs[0];
    in->dtype = m->inputs[0].dtype;
    in->raw = false; /* a request that is sent again has its shape */
    return deduce_raw_shape(r, in, &m->inputs[0]);
}

/* A body without inference data is a raw input, by mistake most often when it is empty. */
static struct status *advise_raw(const struct request *r, struct status *st)
{
    if (st == status_no_memory() || r->maker.inputs[0]->size_bytes > 0)
        return st;
    struct status *whole =
        status_new(status_code(st), "%s; the body of the request is empty", status_message(st));
    status_free(st);
    return whole;
}

/* ---- Names, counts --------------------------------------------------------------------------- */

static struct status *wrong_input_count(struct request *r)
{
    struct model *m = r->model;
    AUTO(buf) got = BUF_INIT(MAX_TEXT);
    AUTO(buf) missing = BUF_INIT(MAX_TEXT);

    for (uint32_t i = 0; i < r->maker.n_inputs; i++)
        buf_addf(&got, "%s'%s'", i ? "," : "", r->maker.inputs[i]->name);
    for (uint32_t i = 0; i < m->n_inputs; i++) {
        if (!m->inputs[i].optional && !request_find_input(r, m->inputs[i].name))
            buf_addf(&missing, "%s'%s'", missing.size ? "," : "[", m->inputs[i].name);
    }
    /* If no input is missing the reference loses the opening bracket, and its clients match on
     * that. */
    if (m->n_required_inputs == m->n_inputs)
        return misfit(r,
                      "expected %u inputs but got %u inputs for model '%s'. Got input(s) [%s], but "
                      "missing required input(s) %s]. Please provide all required input(s).",
                      m->n_inputs, r->maker.n_inputs, m->name, buf_text(&got), buf_text(&missing));
    return misfit(r,
                  "expected number of inputs between %u and %u but got %u inputs for model '%s'. "
                  "Got input(s) [%s], but missing required input(s) %s]. Please provide all "
                  "required input(s).",
                  m->n_required_inputs, m->n_inputs, r->maker.n_inputs, m->name, buf_text(&got),
                  buf_text(&missing));
}

static struct status *check_names(struct request *r, bool raw)
{
    struct model *m = r->model;
    for (uint32_t i = 0; i < r->maker.n_outputs; i++) {
        if (!model_find_output(m, r->maker.outputs[i]))
            return wrong_name(m, "output", r->maker.outputs[i], m->outputs, m->n_outputs);
    }
    if (r->maker.n_inputs > m->n_inputs || r->maker.n_inputs < m->n_required_inputs)
        return wrong_input_count(r);
    for (uint32_t i = 0; i < r->maker.n_inputs; i++) {
        struct input *in = r->maker.inputs[i];
        in->spec = raw ? &m->inputs[0] : model_find_input(m, in->name);
        if (!in->spec)
            return wrong_name(m, "input", in->name, m->inputs, m->n_inputs);
    }
    return NULL;
}

static struct status *too_large_batch(struct request *r, const struct input *in)
{
    struct model *m = r->model;
    AUTO(buf) advice = BUF_INIT(MAX_TEXT);
    add_batch_advice(&advice, m, in, in->spec);
    if (advice.size == 0 && m->config && m->config->batch_from_backend)
        buf_addf(
            &advice,
            "; its config.pbtxt has %s, so its backend has chosen %u: write a larger one there",
            m->config->batch_written ? "max_batch_size 0" : "no max_batch_size", m->max_batch_size);
    return misfit(r, "inference request batch-size must be <= %u for '%s'%s", m->max_batch_size,
                  m->name, buf_text(&advice));
}

static struct status *no_batch_dimension(struct request *r, const struct input *in)
{
    AUTO(buf) advice = BUF_INIT(MAX_TEXT);
    add_batch_advice(&advice, r->model, in, in->spec);
    return misfit(r, "input '%s' has no shape but model requires batch dimension for '%s'%s",
                  in->name, r->model->name, buf_text(&advice));
}

static struct status *check_batch(struct request *r)
{
    struct model *m = r->model;
    r->admitted.batch_size = 0;
    if (!m->batching)
        return NULL;

    for (uint32_t i = 0; i < r->maker.n_inputs; i++) {
        struct input *in = r->maker.inputs[i];
        if (in->n_dims == 0)
            return no_batch_dimension(r, in);
        if (in->shape[0] > m->max_batch_size)
            return too_large_batch(r, in);
        if (in->shape[0] < 0)
            continue; /* the next step names it */
        if (i == 0 || r->admitted.batch_size == 0)
            r->admitted.batch_size = (uint32_t)in->shape[0];
        else if (r->admitted.batch_size != (uint32_t)in->shape[0])
            return misfit(r, "input '%s' batch size does not match other inputs for '%s'", in->name,
                          m->name);
    }
    return NULL;
}

/* ---- Each input ------------------------------------------------------------------------------ */

static struct status *wrong_shape(struct request *r, const struct input *in)
{
    struct model *m = r->model;
    AUTO(buf) expected = BUF_INIT(MAX_TEXT);
    AUTO(buf) got = BUF_INIT(MAX_TEXT);
    AUTO(buf) advice = BUF_INIT(MAX_TEXT);
    print_expected(&expected, m, in->spec);
    shape_print(&got, in->shape, in->n_dims);
    add_batch_advice(&advice, m, in, in->spec);
    return misfit(
        r, "unexpected shape for input '%s' for model '%s'. Expected %s, got %s. %s%s", in->name,
        m->name, buf_text(&expected), buf_text(&got),
        m->batching
            ? "NOTE: Setting a non-zero max_batch_size in the model config requires a batch "
              "dimension to be prepended to each input shape. If you want to specify the full "
              "shape including the batch dim in your input dims config, try setting "
              "max_batch_size to zero. See the model configuration docs for more info on "
              "max_batch_size."
            : "",
        buf_text(&advice));
}

/* Applies the reshape that the backend sees; its -1 take the values of the dims' -1. */
static struct status *apply_reshape(struct request *r, struct input *in, size_t batch_dims)
{
    const struct tensor_spec *spec = in->spec;
    int64_t *shape = arena_alloc(&r->arena, (spec->n_reshape_dims + batch_dims) * sizeof(*shape));
    if (!shape)
        return status_no_memory();
    in->n_backend_dims = spec->n_reshape_dims + (uint32_t)batch_dims;
    in->backend_shape = shape;
    if (batch_dims)
        *shape++ = in->shape[0];

    const int64_t *given = in->shape + batch_dims;
    uint32_t from = 0;
    for (uint32_t i = 0; i < spec->n_reshape_dims; i++) {
        shape[i] = spec->reshape_dims[i];
        if (shape[i] != -1)
            continue;
        while (from < spec->n_dims && spec->dims[from] != -1)
            from++;
        BUG_ON(from == spec->n_dims); /* validation compares the numbers of -1 */
        shape[i] = given[from++];
    }
    return NULL;
}

static struct status *check_input_shape(struct request *r, struct input *in)
{
    struct model *m = r->model;
    const struct tensor_spec *spec = in->spec;
    size_t batch_dims = m->batching ? 1 : 0;

    if (in->dtype != spec->dtype)
        return misfit(r, "inference input '%s' data-type is '%s', but model '%s' expects '%s'",
                      in->name, dtype_name(in->dtype), m->name, dtype_name(spec->dtype));

    for (uint32_t i = 0; i < in->n_dims; i++) {
        if (in->shape[i] < 0) {
            AUTO(buf) got = BUF_INIT(MAX_TEXT);
            shape_print(&got, in->shape, in->n_dims);
            return misfit(r,
                          "All input dimensions should be specified for input '%s' for model "
                          "'%s', got %s",
                          in->name, m->name, buf_text(&got));
        }
    }
    if (in->n_dims != spec->n_dims + batch_dims)
        return wrong_shape(r, in);
    for (uint32_t i = 0; i < spec->n_dims; i++) {
        if (spec->dims[i] != -1 && spec->dims[i] != in->shape[i + batch_dims])
            return wrong_shape(r, in);
    }

    in->n_backend_dims = in->n_dims;
    in->backend_shape = in->shape;
    return spec->has_reshape ? apply_reshape(r, in, batch_dims) : NULL;
}

/* ---- Bytes ----------------------------------------------------------------------------------- */

static bool is_on_cpu(const struct input *in)
{
    for (uint32_t i = 0; i < in->n_buffers; i++) {
        if (in->buffers[i].type == MEMORY_GPU)
            return false;
    }
    return true;
}

/* BYTES: each element is a length of 4 bytes and that many bytes; a length lies in one buffer.
 * @advice  ends the error about too few elements */
static struct status *check_strings(struct request *r, const struct input *in, const char *advice,
                                    int64_t expected)
{
    const char *model = r->model->name;
    int64_t n = 0;
    size_t wanted = 0; /* bytes that the current element still needs */
    uint32_t length = 0;

    for (uint32_t i = 0; i < in->n_buffers; i++) {
        const char *p = in->buffers[i].base;
        size_t left = in->buffers[i].size_bytes;
        if (in->buffers[i].host_policy)
            continue;
        while (left) {
            if (wanted) {
                size_t some = MIN(wanted, left);
                wanted -= some;
                p += some;
                left -= some;
                continue;
            }
            if (left < sizeof(length))
                return misfit(r,
                              "incomplete string length indicator for inference input '%s' for "
                              "model '%s', expecting 4 bytes but only %zu bytes available. Please "
                              "make sure the string length indicator is in one buffer.",
                              in->name, model, left);
            memcpy(&length, p, sizeof(length));
            length = le32toh(length);
            wanted = length;
            p += sizeof(length);
            left -= sizeof(length);
            if (++n > expected)
                return misfit(r,
                              "unexpected number of string elements %lld for inference input '%s' "
                              "for model '%s', expecting %lld",
                              (long long)n, in->name, model, (long long)expected);
        }
    }
    if (wanted)
        return misfit(r,
                      "incomplete string data for inference input '%s' for model '%s', expecting "
                      "string of length %u but only %zu bytes available",
                      in->name, model, length, (size_t)length - wanted);
    if (n != expected)
        return misfit(r,
                      "expected %lld string elements for inference input '%s' for model '%s', "
                      "got %lld%s",
                      (long long)expected, in->name, model, (long long)n, advice);
    return NULL;
}

/* @advice  ends the error; without one the shape's elements do */
static struct status *wrong_byte_size(struct request *r, const struct input *in, const char *advice,
                                      int64_t elements, int64_t expected)
{
    AUTO(buf) sizes = BUF_INIT(MAX_TEXT);
    if (!*advice)
        buf_addf(&sizes, "; its shape has %lld elements %s of %zu bytes", (long long)elements,
                 dtype_name(in->dtype), dtype_size(in->dtype));
    return misfit(r,
                  "input byte size mismatch for input '%s' for model '%s'. Expected %lld, got "
                  "%zu%s%s",
                  in->name, r->model->name, (long long)expected, in->size_bytes, advice,
                  buf_text(&sizes));
}

static struct status *check_bytes(struct request *r, struct input *in)
{
    struct model *m = r->model;
    size_t skip = m->batching ? 1 : 0;
    int64_t elements, expected;

    if (shape_elements(in->shape + skip, in->n_dims - skip, &elements) != SHAPE_FINE)
        return misfit(r, "element count for tensor '%s' exceeds maximum size of %lld", in->name,
                      (long long)INT64_MAX);
    /* As in the reference, a batch of 0 counts as one: its bytes are then missing. When they are
     * not, the reference gives the backend that row without a batch dimension. */
    bool has_no_rows = skip && in->shape[0] == 0;
    const char *advice = has_no_rows ? "; its batch size is 0" : "";
    int64_t batch = skip && !has_no_rows ? in->shape[0] : 1;
    size_t element_bytes = dtype_size(in->dtype);
    if (__builtin_mul_overflow(elements, batch, &elements) ||
        __builtin_mul_overflow(elements, (int64_t)MAX(element_bytes, (size_t)1), &expected))
        return misfit(r, "byte size overflow for input '%s'", in->name);

    struct status *st = NULL;
    if (in->dtype == DTYPE_BYTES)
        st = is_on_cpu(in) ? check_strings(r, in, advice, elements) : NULL;
    else if ((uint64_t)expected != in->size_bytes)
        st = wrong_byte_size(r, in, advice, elements, expected);
    if (!st && has_no_rows && elements > 0)
        st = misfit(r, "input '%s' has a batch size of 0 for model '%s', but %zu bytes", in->name,
                    m->name, in->size_bytes);
    return st;
}

/* ---- Sequences ------------------------------------------------------------------------------- */

/* A model that expects a number as correlation id gets no string, and the reverse. */
static struct status *check_correlation_id(const struct request *r)
{
    const struct model *m = r->model;
    enum dtype given = r->maker.correlation_id.string ? DTYPE_BYTES : DTYPE_UINT64;
    if (LIKELY(m->corrid == DTYPE_INVALID) || (given == DTYPE_BYTES) == (m->corrid == DTYPE_BYTES))
        return NULL;
    return misfit(r,
                  "sequence batching control 'CORRID' data-type is '%s', but model '%s' expects "
                  "'%s'",
                  dtype_name(given), m->name, dtype_name(m->corrid));
}

/* ---- The usual request ------------------------------------------------------------------------
 */

/* As check_names(), check_input_shape() and check_bytes(), of an input that has the model's own
 * name (model_input_name()), one size of elements and no reshape. @batch  0: the model has none */
static bool is_plain_input(struct input *in, const struct tensor_spec *spec, int64_t batch)
{
    uint32_t skip = batch != 0;
    int64_t bytes = (int64_t)dtype_size(spec->dtype);
    if (in->name != spec->name || in->dtype != spec->dtype || in->raw || spec->has_reshape ||
        bytes == 0 || in->n_dims != spec->n_dims + skip || (skip && in->shape[0] != batch))
        return false;
    for (uint32_t i = 0; i < spec->n_dims; i++) {
        int64_t dim = in->shape[skip + i];
        if (dim < 0 || (spec->dims[i] != -1 && spec->dims[i] != dim) ||
            __builtin_mul_overflow(bytes, dim, &bytes))
            return false;
    }
    if ((skip && __builtin_mul_overflow(bytes, batch, &bytes)) || (uint64_t)bytes != in->size_bytes)
        return false;
    in->spec = spec;
    in->n_backend_dims = in->n_dims;
    in->backend_shape = in->shape;
    return true;
}

/*
 * Admits the usual request, which has the model's inputs and outputs in their order, in one pass.
 * False says nothing: the checks above decide then.
 */
static bool admit_plain(struct request *r)
{
    const struct model *m = r->model;
    int64_t batch = 0;
    if (r->maker.n_inputs == 0 || r->maker.n_inputs != m->n_inputs ||
        r->maker.n_outputs > m->n_outputs || m->corrid != DTYPE_INVALID)
        return false;
    if (m->batching) {
        const struct input *first = r->maker.inputs[0];
        if (first->n_dims == 0 || first->shape[0] <= 0 || first->shape[0] > m->max_batch_size)
            return false;
        batch = first->shape[0];
    }
    for (uint32_t i = 0; i < r->maker.n_outputs; i++) {
        if (r->maker.outputs[i] != m->outputs[i].name)
            return false;
    }
    for (uint32_t i = 0; i < r->maker.n_inputs; i++) {
        if (!is_plain_input(r->maker.inputs[i], &m->inputs[i], batch))
            return false;
    }
    r->admitted.batch_size = (uint32_t)batch;
    return true;
}

/* ------------------------------------------------------------------------------------------ */

struct status *request_admit(struct request *r)
{
    if (LIKELY(admit_plain(r)))
        return NULL;
    bool raw;
    struct status *st = check_raw(r, &raw);
    if (!st)
        st = check_names(r, raw);
    if (!st)
        st = check_batch(r);
    for (uint32_t i = 0; !st && i < r->maker.n_inputs; i++)
        st = check_input_shape(r, r->maker.inputs[i]);
    for (uint32_t i = 0; !st && i < r->maker.n_inputs; i++)
        st = check_bytes(r, r->maker.inputs[i]);
    if (!st)
        st = check_correlation_id(r);
    if (raw && !st)
        r->maker.inputs[0]->name =
            r->maker.inputs[0]->spec->name; /* the backend gets the model's name */
    return raw && st ? advise_raw(r, st) : st;
}
