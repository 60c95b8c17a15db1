/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A response is one piece of memory: the struct, and behind it the beginning of its arena, enough
 * for a few outputs and, if they are small, for their data. One response of a request lies in the
 * request's own arena, if there is room (r->admitted.spare). The thread that takes `spare_taken`
 * from false to true owns it until the response is freed, which may be in a later run of the
 * request. The others are blocks of the request's pool. A response keeps its request alive, and
 * while it is unsent it counts as a sender (life.c).
 */
#include "core/request/response.h"

#include <stdint.h>
#include <string.h>

#include "base/mem.h"

#include "base/pool.h"
#include "base/status.h"
#include "core/model/model.h"

enum {
    RESPONSE_BYTES = 1024,
    RESPONSE_SPARE_BYTES = 768,
    MAX_ARENA_BYTES = 16 << 20,
    SMALL_OUTPUT_BYTES = 256,
};

void response_spare(struct request *r)
{
    struct arena *a = &r->arena;
    if (r->admitted.spare || a->chunks || (size_t)(a->end - a->next) < RESPONSE_SPARE_BYTES)
        return;
    r->admitted.spare = arena_alloc(a, RESPONSE_SPARE_BYTES);
    atomic_store_explicit(&r->life.spare_taken, false, memory_order_relaxed);
}

static struct response *take_room(struct request *r, size_t *ret_bytes)
{
    /* Acquire: its last owner has finished with it. */
    if (!atomic_load_explicit(&r->life.spare_taken, memory_order_relaxed) &&
        !atomic_exchange_explicit(&r->life.spare_taken, true, memory_order_acquire)) {
        *ret_bytes = RESPONSE_SPARE_BYTES;
        return r->admitted.spare;
    }
    *ret_bytes = RESPONSE_BYTES;
    return pool_alloc(r->pool, RESPONSE_BYTES, r->model->owner);
}

static void give_room(struct request *r, struct response *resp)
{
    if (LIKELY(resp == r->admitted.spare))
        atomic_store_explicit(&r->life.spare_taken, false, memory_order_release);
    else if ((char *)resp == r->last_room)
        atomic_store_explicit(&r->life.last_taken, false, memory_order_release);
    else
        pool_release(resp);
}

static void init_response(struct response *resp, size_t bytes, struct request *r)
{
    memset(resp, 0, sizeof(*resp));
    resp->request = r;
    resp->id = r->maker.id;
    request_ref(r);
    list_init(&resp->link);
    arena_init(&resp->arena, resp + 1, bytes - sizeof(*resp), MAX_ARENA_BYTES, r->pool,
               r->model->owner);
}

struct status *response_make(struct request *r, struct response **ret_response)
{
    size_t bytes;
    struct response *resp = take_room(r, &bytes);
    if (UNLIKELY(!resp)) {
        /* Relaxed: whoever ends the request comes after this call by its own order. */
        atomic_store_explicit(&r->life.lacks_response, true, memory_order_relaxed);
        return status_no_memory();
    }
    init_response(resp, bytes, r);
    *ret_response = resp;
    return NULL;
}

static_assert(sizeof(struct response) <= REQUEST_LAST_ROOM_BYTES, "room for a last response");

struct response *response_make_last(struct request *r)
{
    size_t bytes;
    struct response *resp = take_room(r, &bytes);
    if (UNLIKELY(!resp)) {
        /* Acquire: its last owner has finished with it. */
        if (atomic_exchange_explicit(&r->life.last_taken, true, memory_order_acquire))
            return NULL;
        resp = (struct response *)r->last_room;
        bytes = sizeof(*resp);
    }
    init_response(resp, bytes, r);
    return resp;
}

void response_discard(struct response *resp)
{
    struct request *r = resp->request;
    for (uint32_t i = 0; i < resp->n_outputs; i++) {
        if (resp->outputs[i]->allocated)
            r->ops->free_output(r, resp->outputs[i]);
    }
    status_free(resp->error);
    arena_done(&resp->arena);
    give_room(r, resp);
}

/* Returns the model's own string of that name, which need not be copied; NULL when its output at
 * that index has another name. */
static const char *own_name(const struct response *resp, const char *name)
{
    const struct model *m = resp->request->model;
    if (resp->n_outputs >= m->n_outputs)
        return NULL;
    const char *own = m->outputs[resp->n_outputs].name;
    return own == name || strcmp(own, name) == 0 ? own : NULL;
}

struct status *response_add_output(struct response *resp, const char *name, enum dtype dtype,
                                   const int64_t *shape, size_t n_dims, struct output **ret_output)
{
    struct output **outputs = arena_grow(&resp->arena, resp->outputs, resp->n_outputs,
                                         &resp->output_capacity, sizeof(*outputs));
    if (!outputs)
        return status_no_memory();
    resp->outputs = outputs;
    const char *own = own_name(resp, name);
    size_t name_bytes = own ? 0 : strlen(name) + 1;
    struct output *out =
        arena_alloc(&resp->arena, sizeof(*out) + n_dims * sizeof(*shape) + name_bytes);
    if (!out)
        return status_no_memory();
    int64_t *dims = (int64_t *)(out + 1);
    if (n_dims)
        memcpy(dims, shape, n_dims * sizeof(*shape));
    *out = (struct output){
        .response = resp,
        .name = own ? own : memcpy(dims + n_dims, name, name_bytes),
        .dtype = dtype,
        .n_dims = (uint32_t)n_dims,
        .shape = dims,
    };
    resp->outputs[resp->n_outputs++] = out;
    *ret_output = out;
    return NULL;
}

struct status *output_alloc(struct output *out, size_t size_bytes)
{
    struct request *r = out->response->request;
    if (out->allocated)
        return status_new(STATUS_ALREADY_EXISTS, "allocated buffer for output '%s' already exists",
                          out->name);
    struct status *st = r->ops->alloc_output(r, out, size_bytes);
    if (st)
        return st;
    out->size_bytes = size_bytes;
    out->allocated = true;
    return NULL;
}

struct status *response_add_parameter(struct response *resp, const struct parameter *p)
{
    if (!parameter_append(&resp->arena, &resp->parameters, &resp->n_parameters,
                          &resp->parameter_capacity, p))
        return status_no_memory();
    return NULL;
}

struct status *response_add_named_parameter(struct response *resp, const struct parameter *p)
{
    if (!parameter_append_named(&resp->arena, &resp->parameters, &resp->n_parameters,
                                &resp->parameter_capacity, p))
        return status_no_memory();
    return NULL;
}

struct status *output_undo_reshape(struct response *resp, struct output *out,
                                   const struct tensor_spec *spec)
{
    size_t batch_dims = resp->request->model->batching ? 1 : 0;
    if (out->n_dims != spec->n_reshape_dims + batch_dims)
        return NULL; /* a backend may answer any shape; this one is not the reshaped one */

    int64_t *shape = arena_alloc(&resp->arena, (spec->n_dims + batch_dims) * sizeof(*shape));
    if (!shape)
        return status_no_memory();
    if (batch_dims)
        shape[0] = out->shape[0];
    uint32_t from = 0;
    for (uint32_t i = 0; i < spec->n_dims; i++) {
        shape[batch_dims + i] = spec->dims[i];
        if (spec->dims[i] != -1)
            continue;
        while (from < spec->n_reshape_dims && spec->reshape_dims[from] != -1)
            from++;
        BUG_ON(from == spec->n_reshape_dims);
        shape[batch_dims + i] = out->shape[batch_dims + from++];
    }
    out->shape = shape;
    out->n_dims = spec->n_dims + (uint32_t)batch_dims;
    return NULL;
}

/* Returns the description of an output, which mostly stands where the model has it and then has the
 * model's own name (own_name()). */
static const struct tensor_spec *find_output_at(const struct model *m, uint32_t i, const char *name)
{
    if (LIKELY(i < m->n_outputs && m->outputs[i].name == name))
        return &m->outputs[i];
    return model_find_output(m, name);
}

/*
 * Makes the outputs that the client gets: the requested ones, without the model's reshape. A
 * backend may answer any type and shape; only a name that the model does not have is an error. The
 * cache keeps what this function has made, and a reshape cannot be undone twice.
 */
struct status *response_check(struct response *resp)
{
    struct model *m = resp->request->model;
    if (UNLIKELY(resp->as_sent))
        return NULL;
    for (uint32_t i = 0; i < resp->n_outputs; i++) {
        struct output *out = resp->outputs[i];
        const struct tensor_spec *spec = find_output_at(m, i, out->name);
        if (UNLIKELY(!spec))
            return status_new(STATUS_INVALID_ARG, "unexpected inference output '%s' for model '%s'",
                              out->name, m->name);
        if (spec->has_reshape) {
            struct status *st = output_undo_reshape(resp, out, spec);
            if (st)
                return st;
        }
    }
    return NULL;
}

/* Allocates a small output in the response's own block, which saves a lock now and one at the
 * end. NULL when it does not fit. */
static void *alloc_small(struct response *resp, size_t size_bytes)
{
    struct arena *a = &resp->arena;
    if (size_bytes > SMALL_OUTPUT_BYTES || a->chunks ||
        (size_t)(a->end - a->next) < size_bytes + MEM_ALIGNMENT)
        return NULL;
    /* The arena aligns to 16; tensors begin as aligned as in the pool. */
    char *p = arena_alloc(a, size_bytes + MEM_ALIGNMENT - 16);
    return p + (-(uintptr_t)p & (MEM_ALIGNMENT - 1));
}

static bool is_small(const struct output *out)
{
    const struct arena *a = &out->response->arena;
    return (uintptr_t)out->base - (uintptr_t)a->first < a->first_bytes;
}

struct status *response_alloc_pooled(struct request *r, struct output *out, size_t size_bytes)
{
    out->memory_type = MEMORY_CPU;
    out->memory_type_id = 0;
    if (size_bytes == 0)
        return NULL;
    out->base = alloc_small(out->response, size_bytes);
    if (!out->base)
        out->base = pool_alloc(r->pool, size_bytes, r->model->owner);
    if (!out->base)
        return status_new(STATUS_UNAVAILABLE,
                          "out of memory: %zu bytes for output '%s' of model '%s'", size_bytes,
                          out->name, r->model->name);
    return NULL;
}

void response_free_pooled(struct request *r, struct output *out)
{
    (void)r;
    if (!is_small(out))
        pool_release(out->base);
}
