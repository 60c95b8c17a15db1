/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A request as its maker sees it: made, filled, used again, cancelled. life.c has its life in the
 * server. Everything that is added lies in the request's arena.
 */
#include "core/request/request.h"

#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/status.h"
#include "core/model/model.h"

enum {
    MAX_ARENA_BYTES = 64 << 20, /* names, shapes and parameters of one request; no tensors */
    COMPACT_ABOVE_BYTES = 64 << 10,
    MAX_CORRELATION_LENGTH = 128,
};

void request_init(struct request *r, const struct request_ops *ops, struct model *model,
                  void *first, size_t first_bytes, struct pool *pool)
{
    /* By the C library's function: with a known size the compiler uses string instructions,
     * which start slowly. */
    size_t bytes = offsetof(struct request, last_room);
    __asm__("" : "+r"(bytes));
    memset(r, 0, bytes);
    r->ops = ops;
    r->model = model;
    r->pool = pool;
    r->maker.id = "";
    arena_init(&r->arena, first, first_bytes, MAX_ARENA_BYTES, pool, model->owner);
    list_init(&r->queue.link);
    atomic_init(&r->life.refs, 1);
    atomic_init(&r->life.stage, REQUEST_IDLE);
    atomic_init(&r->life.spare_taken, true);
}

void request_ref(struct request *r)
{
    atomic_fetch_add_explicit(&r->life.refs, 1, memory_order_relaxed);
}

void request_unref(struct request *r)
{
    /* acq_rel: the thread that frees it sees the writes of the others. The holder of the only
     * reference needs no read-modify-write, because no thread can take another one. */
    if (atomic_load_explicit(&r->life.refs, memory_order_acquire) != 1 &&
        atomic_fetch_sub_explicit(&r->life.refs, 1, memory_order_acq_rel) != 1)
        return;
    struct request_calls *calls = atomic_load_explicit(&r->life.calls, memory_order_relaxed);
    if (UNLIKELY(calls != NULL))
        calls->unref(calls);
    arena_done(&r->arena);
    model_unref(r->model);
    r->ops->destroy(r);
}

bool request_is_late(const struct request *r)
{
    return clock_now_ns(r->model->clock) >= r->maker.deadline_ns;
}

struct parameter *parameter_append(struct arena *a, struct parameter **items, uint32_t *n,
                                   uint32_t *capacity, const struct parameter *p)
{
    struct parameter named = *p;
    named.name = arena_strndup(a, p->name, strlen(p->name));
    return named.name ? parameter_append_named(a, items, n, capacity, &named) : NULL;
}

struct parameter *parameter_append_named(struct arena *a, struct parameter **items, uint32_t *n,
                                         uint32_t *capacity, const struct parameter *p)
{
    struct parameter *grown = arena_grow(a, *items, *n, capacity, sizeof(**items));
    if (!grown)
        return NULL;
    *items = grown;
    grown[*n] = *p;
    if (p->type == PARAMETER_STRING) {
        grown[*n].string = arena_strndup(a, p->string, strlen(p->string));
        if (!grown[*n].string)
            return NULL;
    }
    return &grown[(*n)++];
}

/* @own  its name, which outlives the request; NULL: no memory */
static struct status *input_new(struct request *r, const char *own, struct input **ret_input)
{
    struct input **inputs = arena_grow(&r->arena, r->maker.inputs, r->maker.n_inputs,
                                       &r->maker.input_capacity, sizeof(*inputs));
    if (!inputs)
        return status_no_memory();
    r->maker.inputs = inputs;
    struct input *in = arena_alloc(&r->arena, sizeof(*in));
    if (!in || !own)
        return status_no_memory();
    *in = (struct input){.name = own, .request = r, .buffers = &in->first, .buffer_capacity = 1};
    inputs[r->maker.n_inputs++] = in;
    *ret_input = in;
    return NULL;
}

static struct status *input_append(struct request *r, const char *name, size_t name_length,
                                   struct input **ret_input)
{
    for (uint32_t i = 0; i < r->maker.n_inputs; i++) {
        if (strncmp(r->maker.inputs[i]->name, name, name_length) == 0 &&
            r->maker.inputs[i]->name[name_length] == '\0')
            return status_new(STATUS_INVALID_ARG,
                              "[request id: %s] input '%.*s' already exists in request",
                              request_log_name(r), (int)name_length, name);
    }

    const char *own = model_input_name(r->model, r->maker.n_inputs, name, name_length);
    if (!own)
        own = arena_strndup(&r->arena, name, name_length);
    return input_new(r, own, ret_input);
}

enum dims_fault { DIMS_FINE, DIMS_NEGATIVE, DIMS_TOO_LARGE };

/* Checks the shape of an input as the reference does: -1 is checked later, smaller values never. */
static inline enum dims_fault find_dims_fault(const int64_t *shape, size_t n_dims)
{
    int64_t elements = 1;
    for (size_t i = 0; i < n_dims; i++) {
        if (shape[i] < -1)
            return DIMS_NEGATIVE;
        if (shape[i] > 0 && __builtin_mul_overflow(elements, shape[i], &elements))
            return DIMS_TOO_LARGE;
    }
    return DIMS_FINE;
}

static struct status *wrong_given_shape(const char *name, size_t name_length, const int64_t *shape,
                                        size_t n_dims, enum dims_fault fault)
{
    if (fault == DIMS_TOO_LARGE)
        return status_new(STATUS_INVALID_ARG,
                          "element count for tensor '%.*s' exceeds maximum size of %lld",
                          (int)name_length, name, (long long)INT64_MAX);
    AUTO(buf) text = BUF_INIT(4096);
    shape_print(&text, shape, n_dims);
    return status_new(STATUS_INVALID_ARG, "tensor '%.*s' contains an invalid dimension in shape %s",
                      (int)name_length, name, buf_text(&text));
}

struct status *request_add_input(struct request *r, const char *name, size_t name_length,
                                 enum dtype dtype, const int64_t *shape, size_t n_dims,
                                 struct input **ret_input)
{
    enum dims_fault fault = find_dims_fault(shape, n_dims);
    if (UNLIKELY(fault != DIMS_FINE))
        return wrong_given_shape(name, name_length, shape, n_dims, fault);

    struct input *in;
    struct status *st = input_append(r, name, name_length, &in);
    if (st)
        return st;
    in->dtype = dtype;
    in->n_dims = (uint32_t)n_dims;
    in->shape = arena_dup(&r->arena, shape, n_dims * sizeof(*shape));
    if (!in->shape) {
        r->maker.n_inputs--;
        return status_no_memory();
    }
    *ret_input = in;
    return NULL;
}

struct status *request_add_known_input(struct request *r, const struct tensor_spec *spec,
                                       enum dtype dtype, const int64_t *shape, size_t n_dims,
                                       struct input **ret_input)
{
    enum dims_fault fault = find_dims_fault(shape, n_dims);
    if (UNLIKELY(fault != DIMS_FINE))
        return wrong_given_shape(spec->name, strlen(spec->name), shape, n_dims, fault);
    struct status *st = input_new(r, spec->name, ret_input);
    if (st)
        return st;
    (*ret_input)->dtype = dtype;
    (*ret_input)->n_dims = (uint32_t)n_dims;
    (*ret_input)->shape = shape;
    return NULL;
}

struct status *request_add_raw_input(struct request *r, const char *name, size_t name_length,
                                     struct input **ret_input)
{
    struct input *in;
    struct status *st = input_append(r, name, name_length, &in);
    if (st)
        return st;
    in->raw = true;
    *ret_input = in;
    return NULL;
}

struct input *request_find_input(const struct request *r, const char *name)
{
    for (uint32_t i = 0; i < r->maker.n_inputs; i++) {
        if (r->maker.inputs[i]->name == name || strcmp(r->maker.inputs[i]->name, name) == 0)
            return r->maker.inputs[i];
    }
    return NULL;
}

struct status *request_add_data(struct request *r, struct input *in,
                                const struct tensor_buffer *buffer)
{
    size_t total = in->size_bytes;
    if (!buffer->host_policy && __builtin_add_overflow(total, buffer->size_bytes, &total))
        return status_new(STATUS_INVALID_ARG, "byte size overflow for input '%s'", in->name);

    struct tensor_buffer *buffers =
        arena_grow(&r->arena, in->buffers, in->n_buffers, &in->buffer_capacity, sizeof(*buffers));
    if (!buffers)
        return status_no_memory();
    in->buffers = buffers;
    buffers[in->n_buffers] = *buffer;
    if (buffer->host_policy) {
        char *policy = arena_strndup(&r->arena, buffer->host_policy, strlen(buffer->host_policy));
        if (!policy)
            return status_no_memory();
        buffers[in->n_buffers].host_policy = policy;
    }
    in->n_buffers++;
    in->size_bytes = total;
    return NULL;
}

struct status *request_add_output(struct request *r, const char *name, size_t name_length)
{
    for (uint32_t i = 0; i < r->maker.n_outputs; i++) {
        if (strncmp(r->maker.outputs[i], name, name_length) == 0 &&
            r->maker.outputs[i][name_length] == '\0')
            return status_new(STATUS_INVALID_ARG,
                              "[request id: %s] output '%.*s' already exists in request",
                              request_log_name(r), (int)name_length, name);
    }
    const char **outputs = arena_grow(&r->arena, r->maker.outputs, r->maker.n_outputs,
                                      &r->maker.output_capacity, sizeof(*outputs));
    const char *own = model_output_name(r->model, r->maker.n_outputs, name, name_length);
    if (!own)
        own = arena_strndup(&r->arena, name, name_length);
    if (!outputs || !own)
        return status_no_memory();
    r->maker.outputs = outputs;
    outputs[r->maker.n_outputs++] = own;
    return NULL;
}

struct status *request_add_parameter(struct request *r, const struct parameter *p)
{
    if (!parameter_append(&r->arena, &r->maker.parameters, &r->maker.n_parameters,
                          &r->maker.parameter_capacity, p))
        return status_no_memory();
    return NULL;
}

struct status *request_set_id(struct request *r, const char *id, size_t length)
{
    char *copy = arena_strndup(&r->arena, id, length);
    if (!copy)
        return status_no_memory();
    r->maker.id = copy;
    return NULL;
}

struct status *request_set_correlation_string(struct request *r, const char *id, size_t length)
{
    if (length > MAX_CORRELATION_LENGTH)
        return status_new(STATUS_UNSUPPORTED,
                          "string correlation ID cannot be longer than %d characters",
                          MAX_CORRELATION_LENGTH);
    char *copy = arena_strndup(&r->arena, id, length);
    if (!copy)
        return status_no_memory();
    r->maker.correlation_id = (struct correlation_id){.string = copy};
    return NULL;
}

const char *request_log_name(const struct request *r)
{
    return r->maker.id[0] ? r->maker.id : "<id_unknown>";
}

/* ---- Objects that are used again ------------------------------------------------------------- */

/* The copies are complete before they replace the originals. */
static struct input *copy_input(struct arena *a, const struct input *in)
{
    struct input *copy = arena_dup(a, in, sizeof(*in));
    if (!copy)
        return NULL;
    copy->name = arena_strndup(a, in->name, strlen(in->name));
    copy->shape = in->shape ? arena_dup(a, in->shape, in->n_dims * sizeof(*in->shape)) : NULL;
    copy->buffer_capacity = MAX(in->n_buffers, 1u);
    copy->buffers = in->n_buffers > 1
                        ? arena_dup(a, in->buffers, in->n_buffers * sizeof(*copy->buffers))
                        : &copy->first;
    if (!copy->name || (in->shape && !copy->shape) || !copy->buffers)
        return NULL;
    if (in->n_buffers == 1)
        copy->first = in->buffers[0];
    for (uint32_t i = 0; i < in->n_buffers; i++) {
        struct tensor_buffer *b = &copy->buffers[i];
        if (b->base == &in->raw_length)
            b->base = &copy->raw_length;
        if (b->host_policy) {
            b->host_policy = arena_strndup(a, b->host_policy, strlen(b->host_policy));
            if (!b->host_policy)
                return NULL;
        }
    }
    return copy;
}

static bool copy_parts(struct request *to, struct arena *a, const struct request *from)
{
    const char *string = from->maker.correlation_id.string;
    to->maker.id =
        from->maker.id[0] ? arena_strndup(a, from->maker.id, strlen(from->maker.id)) : "";
    to->maker.correlation_id.string = string ? arena_strndup(a, string, strlen(string)) : NULL;
    if (!to->maker.id || (string && !to->maker.correlation_id.string))
        return false;

    to->maker.n_parameters = to->maker.parameter_capacity = 0;
    to->maker.parameters = NULL;
    for (uint32_t i = 0; i < from->maker.n_parameters; i++) {
        if (!parameter_append(a, &to->maker.parameters, &to->maker.n_parameters,
                              &to->maker.parameter_capacity, &from->maker.parameters[i]))
            return false;
    }
    to->maker.inputs = arena_alloc(a, from->maker.n_inputs * sizeof(*to->maker.inputs));
    to->maker.outputs = arena_alloc(a, from->maker.n_outputs * sizeof(*to->maker.outputs));
    if (!to->maker.inputs || !to->maker.outputs)
        return false;
    to->maker.input_capacity = from->maker.n_inputs;
    to->maker.output_capacity = from->maker.n_outputs;
    for (uint32_t i = 0; i < from->maker.n_inputs; i++) {
        to->maker.inputs[i] = copy_input(a, from->maker.inputs[i]);
        if (!to->maker.inputs[i])
            return false;
    }
    for (uint32_t i = 0; i < from->maker.n_outputs; i++) {
        to->maker.outputs[i] =
            arena_strndup(a, from->maker.outputs[i], strlen(from->maker.outputs[i]));
        if (!to->maker.outputs[i])
            return false;
    }
    return true;
}

void request_compact(struct request *r)
{
    if (LIKELY(r->arena.chunk_bytes_total <=
               MAX((size_t)COMPACT_ABOVE_BYTES, r->compact_above_bytes)))
        return;
    struct arena fresh;
    struct request parts;
    arena_init(&fresh, NULL, 0, MAX_ARENA_BYTES, r->pool, r->model->owner);
    if (!copy_parts(&parts, &fresh, r)) {
        arena_reset(&fresh); /* no memory for that: it goes on as it is */
        return;
    }
    r->maker.id = parts.maker.id;
    r->maker.correlation_id.string = parts.maker.correlation_id.string;
    r->maker.inputs = parts.maker.inputs;
    r->maker.input_capacity = parts.maker.input_capacity;
    r->maker.outputs = parts.maker.outputs;
    r->maker.output_capacity = parts.maker.output_capacity;
    r->maker.parameters = parts.maker.parameters;
    r->maker.n_parameters = parts.maker.n_parameters;
    r->maker.parameter_capacity = parts.maker.parameter_capacity;
    arena_reset(&r->arena);
    r->arena = fresh;
    r->compact_above_bytes = 2 * fresh.chunk_bytes_total;
}
