/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Outputs take one of two ways. scatter_rows() and scatter_like_input() copy data that the backend
 * has into the responses. scatter_begin() gives memory to compute into; scatter_end() copies it
 * only where the batch has several requests, or where the memory of the response is not aligned.
 */
#include "common/scatter.h"

#include <string.h>

#include "common/bytes.h"

static TRITONSERVER_Error *wrong_size(const char *name, uint64_t size)
{
    return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                         "output '%s': %llu bytes are not what its shape asks for", name,
                         (unsigned long long)size);
}

/* Computes the bytes of a tensor whose elements have a fixed size. */
static TRITONSERVER_Error *tensor_size(const char *name, TRITONSERVER_DataType type,
                                       const int64_t *shape, uint32_t rank, uint64_t *ret_size)
{
    uint32_t element = TRITONSERVER_DataTypeByteSize(type);
    int64_t n;

    if (element == 0)
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                             "output '%s': elements of type %s have no size of their own", name,
                             TRITONSERVER_DataTypeString(type));
    TRY(gather_elements(shape, rank, &n));
    if (__builtin_mul_overflow((uint64_t)n, element, ret_size))
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG, "output '%s' is too large", name);
    return NULL;
}

static TRITONSERVER_Error *check_output_rows(const struct batch *b, const char *name,
                                             const int64_t *shape, uint32_t rank)
{
    if (rank > BATCH_MAX_RANK)
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                             "output '%s' has %u dimensions, more than %d", name,
                             (unsigned int)rank, BATCH_MAX_RANK);
    if (b->n_parts > 1 && (rank == 0 || (uint64_t)shape[0] != b->rows))
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                             "output '%s' has %lld rows for a batch of %llu", name,
                             rank ? (long long)shape[0] : 0, (unsigned long long)b->rows);
    return NULL;
}

/* ---- Copies --------------------------------------------------------------------------------- */

static TRITONSERVER_Error *put_output(const struct batch_part *part, const char *name,
                                      TRITONSERVER_DataType type, const int64_t *shape,
                                      uint32_t rank, const void *data, uint64_t size)
{
    TRITONBACKEND_Output *output;
    void *to;

    TRY(TRITONBACKEND_ResponseOutput(part->response, &output, name, type, shape, rank));
    TRY(backend_output_alloc(output, size, &to));
    if (size > 0)
        memcpy(to, data, size);
    return NULL;
}

/* Takes the next n elements from the data. */
static TRITONSERVER_Error *take_elements(const char *name, TRITONSERVER_DataType type, uint64_t n,
                                         const char **data, uint64_t *size, uint64_t *ret_taken)
{
    uint64_t taken;

    if (type == TRITONSERVER_TYPE_BYTES) {
        struct bytes_reader r = bytes_begin(*data, *size);

        TRY(bytes_skip(&r, name, n));
        taken = (uint64_t)(r.at - *data);
    } else if (__builtin_mul_overflow(n, TRITONSERVER_DataTypeByteSize(type), &taken) ||
               taken > *size) {
        return wrong_size(name, *size);
    }
    *data += taken;
    *size -= taken;
    *ret_taken = taken;
    return NULL;
}

TRITONSERVER_Error *scatter_rows(const struct batch *b, const char *name, uint32_t hint,
                                 TRITONSERVER_DataType type, const int64_t *shape, uint32_t rank,
                                 const void *data, uint64_t size)
{
    int64_t own[BATCH_MAX_RANK], per_row, n;
    const char *at = data;
    uint64_t left = size;

    TRY(check_output_rows(b, name, shape, rank));
    memcpy(own, shape, rank * sizeof(*shape));
    TRY(gather_elements(shape, rank, &n));
    per_row = b->rows > 0 ? n / (int64_t)b->rows : 0;
    for (uint32_t i = 0; i < b->n_parts; i++) {
        const struct batch_part *part = &b->parts[i];
        const char *from = at;
        uint64_t taken;
        bool wanted;

        if (part->err)
            continue;
        if (b->n_parts > 1) {
            own[0] = (int64_t)part->rows;
            n = per_row * own[0];
        }
        TRY(take_elements(name, type, (uint64_t)n, &at, &left, &taken));
        TRY(batch_wants(part, name, hint, &wanted));
        if (wanted)
            TRY(put_output(part, name, type, own, rank, from, taken));
    }
    return left == 0 || b->rows == 0 ? NULL : wrong_size(name, size);
}

TRITONSERVER_Error *scatter_like_input(const struct batch *b, const char *name, uint32_t hint,
                                       TRITONSERVER_DataType type, const char *input,
                                       const void *data, uint64_t size)
{
    const char *at = data;
    uint64_t left = size;

    for (uint32_t i = 0; i < b->n_parts; i++) {
        const struct batch_part *part = &b->parts[i];
        TRITONBACKEND_Input *source;
        const char *from = at;
        const int64_t *shape;
        uint64_t taken;
        uint32_t rank;
        bool wanted;

        if (part->err)
            continue;
        TRY(TRITONBACKEND_RequestInput(part->request, input, &source));
        TRY(TRITONBACKEND_InputProperties(source, NULL, NULL, &shape, &rank, NULL, NULL));
        TRY(tensor_size(name, type, shape, rank, &taken));
        if (taken > left)
            return wrong_size(name, size);
        at += taken;
        left -= taken;
        TRY(batch_wants(part, name, hint, &wanted));
        if (wanted)
            TRY(put_output(part, name, type, shape, rank, from, taken));
    }
    return left == 0 ? NULL : wrong_size(name, size);
}

/* ---- In place ------------------------------------------------------------------------------- */

/* Gets the memory of the only request's response. */
static TRITONSERVER_Error *begin_in_place(struct scattered *s, const struct batch_part *part)
{
    TRITONBACKEND_Output *output;
    void *to;

    TRY(TRITONBACKEND_ResponseOutput(part->response, &output, s->name, s->type, s->shape, s->rank));
    TRY(backend_output_alloc(output, s->size, &to));
    /* Shared memory at an odd offset is not computed into (is_usable_run() in gather.c). */
    s->in_place = (uintptr_t)to % TRITONSERVER_DataTypeByteSize(s->type) == 0;
    if (s->in_place)
        s->data = to;
    else
        s->move_to = to;
    return NULL;
}

TRITONSERVER_Error *scatter_begin(struct scattered *s, const struct batch *b, const char *name,
                                  uint32_t hint, TRITONSERVER_DataType type, const int64_t *shape,
                                  uint32_t rank)
{
    s->data = s->move_to = NULL;
    s->in_place = false;
    s->wanted = true;
    s->name = name;
    s->hint = hint;
    s->type = type;
    s->rank = rank;
    TRY(check_output_rows(b, name, shape, rank));
    memcpy(s->shape, shape, rank * sizeof(*shape));
    TRY(tensor_size(name, type, shape, rank, &s->size));
    if (b->n_parts == 1) {
        TRY(batch_wants(&b->parts[0], name, hint, &s->wanted));
        if (s->wanted && s->size > 0)
            TRY(begin_in_place(s, &b->parts[0]));
    }
    return s->in_place ? NULL : gather_reserve(&s->memory, s->size > 0 ? s->size : 1, &s->data);
}

TRITONSERVER_Error *scatter_end(struct scattered *s, const struct batch *b)
{
    if (s->in_place || !s->wanted)
        return NULL;
    if (s->move_to) {
        memcpy(s->move_to, s->data, s->size);
        return NULL;
    }
    return scatter_rows(b, s->name, s->hint, s->type, s->shape, s->rank, s->data, s->size);
}

void scattered_done(struct scattered *s)
{
    gathered_done(&s->memory);
    *s = (struct scattered){0};
}
