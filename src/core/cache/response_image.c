/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writer and reader of the image. Both copy the heads, so that an image may begin at any address.
 */
#include "core/cache/response_image.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/status.h"
#include "core/model/model.h"
#include "core/request/life.h"

enum {
    IMAGE_MAGIC = 0x31524e43, /* also tells the order of bytes */
    PART_ALIGNMENT = 8,
    TENSOR_ALIGNMENT = 64, /* within the image */
    MAX_DIMS = 64,
};

struct image_head {
    uint32_t magic, n_outputs, n_parameters, unused;
    uint64_t size_bytes;
};

struct output_head {
    uint64_t size_bytes;
    uint32_t dtype, n_dims, name_bytes, unused;
};

struct parameter_head {
    uint64_t value; /* or the bytes of the string, with its NUL */
    uint32_t type, name_bytes;
};

static size_t align_image(size_t n, size_t alignment)
{
    return (n + alignment - 1) & ~(alignment - 1);
}

/* ---- Writing --------------------------------------------------------------------------------- */

/* Does the size follow from the shape? Of BYTES the bytes themselves tell. */
static bool fits_shape(enum dtype dtype, const int64_t *shape, size_t n_dims, size_t size_bytes)
{
    int64_t elements, bytes;
    if (shape_elements(shape, n_dims, &elements) != SHAPE_FINE)
        return false;
    return dtype == DTYPE_BYTES ||
           (!__builtin_mul_overflow(elements, (int64_t)dtype_size(dtype), &bytes) &&
            (uint64_t)bytes == size_bytes);
}

static bool can_keep_output(const struct output *out)
{
    return out->dtype > DTYPE_INVALID && out->dtype < N_DTYPES && out->n_dims <= MAX_DIMS &&
           (out->allocated || out->size_bytes == 0) && out->memory_type != MEMORY_GPU &&
           fits_shape(out->dtype, out->shape, out->n_dims, out->size_bytes);
}

static size_t output_image_bytes(size_t at, const struct output *out)
{
    size_t head =
        sizeof(struct output_head) + out->n_dims * sizeof(int64_t) + strlen(out->name) + 1;
    at = align_image(at + head, out->size_bytes ? TENSOR_ALIGNMENT : PART_ALIGNMENT);
    return align_image(at + out->size_bytes, PART_ALIGNMENT);
}

static size_t parameter_image_bytes(size_t at, const struct parameter *p)
{
    size_t text = p->type == PARAMETER_STRING ? strlen(p->string) + 1 : 0;
    return align_image(at + sizeof(struct parameter_head) + strlen(p->name) + 1 + text,
                       PART_ALIGNMENT);
}

size_t response_image_bytes(const struct response *resp)
{
    size_t at = sizeof(struct image_head);
    if (resp->error)
        return 0;
    for (uint32_t i = 0; i < resp->n_outputs; i++) {
        if (!can_keep_output(resp->outputs[i]))
            return 0;
        at = output_image_bytes(at, resp->outputs[i]);
    }
    for (uint32_t i = 0; i < resp->n_parameters; i++) {
        if (resp->parameters[i].type >= PARAMETER_BYTES)
            return 0;
        at = parameter_image_bytes(at, &resp->parameters[i]);
    }
    return at;
}

/* Writes at *at, and moves it behind what was written. */
static void write_image_bytes(char *to, size_t *at, const void *bytes, size_t n)
{
    if (n > 0)
        memcpy(to + *at, bytes, n);
    *at += n;
}

/* The gap has zeros: nothing of this process's memory goes into a cache. */
static void write_image_gap(char *to, size_t *at, size_t alignment)
{
    size_t end = align_image(*at, alignment);
    memset(to + *at, 0, end - *at);
    *at = end;
}

static void write_image_output(char *to, size_t *at, const struct output *out)
{
    const struct output_head head = {.size_bytes = out->size_bytes,
                                     .dtype = out->dtype,
                                     .n_dims = out->n_dims,
                                     .name_bytes = (uint32_t)strlen(out->name) + 1};
    write_image_bytes(to, at, &head, sizeof(head));
    write_image_bytes(to, at, out->shape, out->n_dims * sizeof(*out->shape));
    write_image_bytes(to, at, out->name, head.name_bytes);
    write_image_gap(to, at, out->size_bytes ? TENSOR_ALIGNMENT : PART_ALIGNMENT);
    write_image_bytes(to, at, out->base, out->size_bytes);
    write_image_gap(to, at, PART_ALIGNMENT);
}

static void write_image_parameter(char *to, size_t *at, const struct parameter *p)
{
    struct parameter_head head = {.type = p->type, .name_bytes = (uint32_t)strlen(p->name) + 1};
    switch (p->type) {
    case PARAMETER_STRING:
        head.value = strlen(p->string) + 1;
        break;
    case PARAMETER_BOOL:
        head.value = p->boolean;
        break;
    case PARAMETER_DOUBLE:
        memcpy(&head.value, &p->float64, sizeof(head.value));
        break;
    default:
        head.value = (uint64_t)p->int64;
    }
    write_image_bytes(to, at, &head, sizeof(head));
    write_image_bytes(to, at, p->name, head.name_bytes);
    if (p->type == PARAMETER_STRING)
        write_image_bytes(to, at, p->string, head.value);
    write_image_gap(to, at, PART_ALIGNMENT);
}

void response_image_write(const struct response *resp, void *to, size_t size_bytes)
{
    size_t at = 0;
    const struct image_head head = {.magic = IMAGE_MAGIC,
                                    .n_outputs = resp->n_outputs,
                                    .n_parameters = resp->n_parameters,
                                    .size_bytes = size_bytes};
    write_image_bytes(to, &at, &head, sizeof(head));
    for (uint32_t i = 0; i < resp->n_outputs; i++)
        write_image_output(to, &at, resp->outputs[i]);
    for (uint32_t i = 0; i < resp->n_parameters; i++)
        write_image_parameter(to, &at, &resp->parameters[i]);
}

/* ---- Reading --------------------------------------------------------------------------------- */

struct image_reader {
    const char *bytes;
    size_t size_bytes, at;
};

/* Returns the next n bytes; NULL: there are fewer. */
static const char *take_image_bytes(struct image_reader *in, uint64_t n)
{
    if (n > in->size_bytes - in->at)
        return NULL;
    const char *p = in->bytes + in->at;
    in->at += n;
    return p;
}

static bool take_image_copy(struct image_reader *in, void *to, size_t n)
{
    const char *p = take_image_bytes(in, n);
    if (p && n > 0)
        memcpy(to, p, n);
    return p;
}

static bool skip_gap(struct image_reader *in, size_t alignment)
{
    return take_image_bytes(in, align_image(in->at, alignment) - in->at);
}

/* Returns a string of n bytes that ends with its only NUL; NULL: there is none. */
static const char *take_image_text(struct image_reader *in, uint64_t n)
{
    const char *p = n > 0 ? take_image_bytes(in, n) : NULL;
    return p && memchr(p, '\0', n) == p + n - 1 ? p : NULL;
}

NODISCARD static struct status *no_image(const struct request *r)
{
    return status_new(STATUS_INVALID_ARG,
                      "the cache's bytes are no response of model '%s' that this server has kept",
                      r->model->name);
}

NODISCARD static struct status *read_image_tensor(struct output *out, const char *bytes,
                                                  size_t size_bytes)
{
    out->memory_type = MEMORY_CPU;
    out->memory_type_id = 0;
    struct status *st = output_alloc(out, size_bytes);
    if (st)
        return st;
    if (out->memory_type == MEMORY_GPU)
        return status_new(STATUS_UNSUPPORTED, "output '%s' is in the memory of a GPU", out->name);
    if (size_bytes > 0)
        memcpy(out->base, bytes, size_bytes);
    return NULL;
}

NODISCARD static struct status *read_image_output(struct image_reader *in, struct response *resp)
{
    struct request *r = resp->request;
    struct output_head head;
    struct output *out;
    int64_t shape[MAX_DIMS];
    if (!take_image_copy(in, &head, sizeof(head)) || head.dtype == DTYPE_INVALID ||
        head.dtype >= N_DTYPES || head.n_dims > MAX_DIMS ||
        !take_image_copy(in, shape, head.n_dims * sizeof(*shape)))
        return no_image(r);
    const char *name = take_image_text(in, head.name_bytes);
    const struct tensor_spec *spec = name ? model_find_output(r->model, name) : NULL;
    if (!spec || !skip_gap(in, head.size_bytes ? TENSOR_ALIGNMENT : PART_ALIGNMENT))
        return no_image(r);
    const char *bytes = take_image_bytes(in, head.size_bytes);
    if (!bytes || !skip_gap(in, PART_ALIGNMENT) ||
        !fits_shape((enum dtype)head.dtype, shape, head.n_dims, head.size_bytes))
        return no_image(r);
    struct status *st =
        response_add_output(resp, spec->name, (enum dtype)head.dtype, shape, head.n_dims, &out);
    return st ? st : read_image_tensor(out, bytes, head.size_bytes);
}

NODISCARD static struct status *read_image_parameter(struct image_reader *in, struct response *resp)
{
    struct parameter_head head;
    if (!take_image_copy(in, &head, sizeof(head)) || head.type >= PARAMETER_BYTES)
        return no_image(resp->request);
    struct parameter p = {.name = take_image_text(in, head.name_bytes),
                          .type = (enum parameter_type)head.type};
    if (!p.name)
        return no_image(resp->request);
    switch (p.type) {
    case PARAMETER_STRING:
        p.string = take_image_text(in, head.value);
        if (!p.string)
            return no_image(resp->request);
        break;
    case PARAMETER_BOOL:
        p.boolean = head.value != 0;
        break;
    case PARAMETER_DOUBLE:
        memcpy(&p.float64, &head.value, sizeof(p.float64));
        break;
    default:
        p.int64 = (int64_t)head.value;
    }
    if (!skip_gap(in, PART_ALIGNMENT))
        return no_image(resp->request);
    return response_add_parameter(resp, &p);
}

NODISCARD static struct status *read_parts(struct image_reader *in, struct response *resp)
{
    struct image_head head;
    if (!take_image_copy(in, &head, sizeof(head)) || head.magic != IMAGE_MAGIC ||
        head.size_bytes != in->size_bytes || head.n_outputs > resp->request->model->n_outputs)
        return no_image(resp->request);
    struct status *st = NULL;
    for (uint32_t i = 0; !st && i < head.n_outputs; i++)
        st = read_image_output(in, resp);
    for (uint32_t i = 0; !st && i < head.n_parameters; i++)
        st = read_image_parameter(in, resp);
    return !st && in->at != in->size_bytes ? no_image(resp->request) : st;
}

struct status *response_image_read(const void *bytes, size_t size_bytes, struct request *r,
                                   struct response **ret_response)
{
    struct image_reader in = {.bytes = bytes, .size_bytes = size_bytes};
    struct response *resp;
    struct status *st = response_new(r, &resp);
    if (st)
        return st;
    resp->as_sent = true;
    st = read_parts(&in, resp);
    if (st)
        response_free(resp);
    else
        *ret_response = resp;
    return st;
}
