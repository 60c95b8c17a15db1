/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All inputs of all paddings of a model lie in one block of zeros. A larger block replaces it when
 * it is too small; requests that use the old block keep it.
 *
 * Paddings are made under scheduler.mu, and end on the thread on which the backend releases them.
 */
#include "core/sched/padding.h"

#include <stdatomic.h>
#include <string.h>

#include "base/mem.h"
#include "base/pool.h"
#include "base/status.h"
#include "core/model/model.h"
#include "core/request/life.h"

enum {
    REQUEST_ARENA_BYTES = 1536,
    STRING_LENGTH_BYTES = 4,
    MIN_ZEROS_BYTES = 4096,
    UNUSED_BYTES = 64 << 10, /* of requests that may be used again */
};

/* As many zeros as the largest input needs; all inputs of all paddings lie in them. */
struct zeros {
    atomic_size_t refs;
    size_t size_bytes;
    char *base;
};

struct padding_request {
    struct request request;
    struct injected_inputs injected;
    struct zeros *zeros;
    char memory[REQUEST_ARENA_BYTES];
};

/* ---- Zeros ----------------------------------------------------------------------------------- */

static void zeros_unref(struct zeros *z)
{
    if (!z || atomic_fetch_sub_explicit(&z->refs, 1, memory_order_acq_rel) != 1)
        return;
    mem_free(z->base);
    mem_free(z);
}

static struct zeros *zeros_ref(struct zeros *z)
{
    atomic_fetch_add_explicit(&z->refs, 1, memory_order_relaxed);
    return z;
}

/* Makes a larger block if the zeros are too few; requests with the old block keep it. */
NODISCARD static struct status *want_zeros(struct padding *p, size_t size_bytes)
{
    if (p->zeros && p->zeros->size_bytes >= size_bytes)
        return NULL;
    MEM_CHARGE(p->model->owner, MEM_INSTANCES);
    struct zeros *z = mem_try_zalloc(1, sizeof(*z));
    size_bytes = MAX(size_bytes, (size_t)MIN_ZEROS_BYTES);
    char *base = mem_try_zalloc(1, size_bytes);
    if (!z || !base) {
        mem_free(z);
        mem_free(base);
        return status_no_memory();
    }
    *z = (struct zeros){.size_bytes = size_bytes, .base = base};
    atomic_init(&z->refs, 1);
    zeros_unref(p->zeros);
    p->zeros = z;
    return NULL;
}

/* ---- Requests -------------------------------------------------------------------------------- */

static struct padding_request *to_padding_request(struct request *r)
{
    return CONTAINER_OF(r, struct padding_request, request);
}

static void drop_padding_response(struct request *r, struct response *resp, uint32_t flags)
{
    (void)r;
    (void)flags;
    response_free(resp);
}

/* Drops the maker's reference when the request has ended. */
static void drop_makers_reference(struct request *r, uint32_t flags)
{
    (void)flags;
    request_unref(r);
}

static void free_padding_request(struct request *r)
{
    pool_release(to_padding_request(r));
}

static const struct request_ops ops = {
    .alloc_output = response_alloc_pooled,
    .free_output = response_free_pooled,
    .respond = drop_padding_response,
    .release = drop_makers_reference,
    .destroy = free_padding_request,
};

/* A string without bytes is a length of 0. */
static bool compute_padding_bytes(const struct input *in, size_t *ret_bytes)
{
    int64_t elements;
    *ret_bytes = in->size_bytes;
    return in->dtype != DTYPE_BYTES ||
           (shape_elements(in->shape, in->n_dims, &elements) == SHAPE_FINE &&
            !__builtin_mul_overflow((size_t)elements, STRING_LENGTH_BYTES, ret_bytes));
}

NODISCARD static struct status *add_zero_input(struct request *r, const struct input *live,
                                               const struct zeros *zeros)
{
    size_t size_bytes;
    struct input *in;
    struct status *st = request_add_input(r, live->spec->name, strlen(live->spec->name),
                                          live->dtype, live->shape, live->n_dims, &in);
    if (st)
        return st;
    int64_t *shape =
        arena_dup(&r->arena, live->backend_shape, live->n_backend_dims * sizeof(*shape));
    if (!shape || !compute_padding_bytes(live, &size_bytes))
        return status_no_memory();
    in->spec = live->spec;
    in->n_backend_dims = live->n_backend_dims;
    in->backend_shape = shape;
    return request_add_data(r, in,
                            &(struct tensor_buffer){.base = zeros->base, .size_bytes = size_bytes});
}

/* Returns the size of the largest input of a request. */
static size_t find_largest_bytes(const struct request *r)
{
    size_t most = 0, bytes;
    for (uint32_t i = 0; i < r->maker.n_inputs; i++) {
        if (compute_padding_bytes(r->maker.inputs[i], &bytes))
            most = MAX(most, bytes);
    }
    return most;
}

NODISCARD static struct status *fill_padding(struct padding_request *pr, const struct request *live)
{
    struct request *r = &pr->request;
    struct status *st = NULL;
    r->seq.padding = true;
    r->admitted.batch_size = live->admitted.batch_size;
    r->admitted.start_ns = live->admitted.start_ns;
    r->admitted.queue_ns = live->admitted.queue_ns;
    for (uint32_t i = 0; i < live->maker.n_inputs && !st; i++)
        st = add_zero_input(r, live->maker.inputs[i], pr->zeros);
    if (!st)
        st = injected_inputs_attach_idle(&pr->injected, r, live);
    return st;
}

struct status *padding_new(struct padding *p, const struct request *live,
                           struct request **ret_request)
{
    struct status *st = want_zeros(p, find_largest_bytes(live));
    if (st)
        return st;
    struct padding_request *pr = pool_alloc(p->pool, sizeof(*pr), p->model->owner);
    if (!pr)
        return status_no_memory();
    model_ref(p->model);
    request_init(&pr->request, &ops, p->model, pr->memory, sizeof(pr->memory), p->pool);
    injected_inputs_init(&pr->injected, p->spec);
    pr->zeros = zeros_ref(p->zeros);
    st = fill_padding(pr, live);
    if (st)
        padding_drop(&pr->request);
    else
        *ret_request = &pr->request;
    return st;
}

/* The model's account is settled here, while the request still counts as in flight. */
void padding_released(struct request *r)
{
    struct padding_request *pr = to_padding_request(r);
    injected_inputs_done(&pr->injected);
    zeros_unref(TAKE(pr->zeros));
}

void padding_drop(struct request *r)
{
    padding_released(r);
    request_unref(r);
}

/* ------------------------------------------------------------------------------------------ */

void padding_init(struct padding *p, struct model *m, const struct injected_inputs_spec *spec)
{
    *p = (struct padding){.model = m, .spec = spec, .pool = pool_new("padding", UNUSED_BYTES, 0)};
}

void padding_done(struct padding *p)
{
    zeros_unref(p->zeros);
    pool_free(p->pool);
    *p = (struct padding){0};
}
