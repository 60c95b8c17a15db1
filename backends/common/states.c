/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A state's bytes are copied into a buffer of the server, and TRITONBACKEND_StateUpdate() makes
 * them the state.
 */
#include "common/states.h"

#include <string.h>

#include "common/bytes.h"
#include "common/gather.h"

static TRITONSERVER_Error *keep_request_state(const struct batch_part *part, const char *name,
                                              TRITONSERVER_DataType type, const int64_t *shape,
                                              uint32_t rank, const char *data, uint64_t size)
{
    TRITONSERVER_MemoryType memory = TRITONSERVER_MEMORY_CPU;
    TRITONBACKEND_State *state;
    int64_t id = 0;
    void *to = NULL;

    TRY(TRITONBACKEND_StateNew(&state, part->request, name, type, shape, rank));
    TRY(TRITONBACKEND_StateBuffer(state, &to, size, &memory, &id));
    if (memory == TRITONSERVER_MEMORY_GPU)
        return backend_error(TRITONSERVER_ERROR_UNSUPPORTED,
                             "state '%s' is kept in the memory of a GPU, which this backend does "
                             "not write",
                             name);
    if (size > 0)
        memcpy(to, data, size);
    return TRITONBACKEND_StateUpdate(state);
}

/* The bytes of the next n elements. */
static TRITONSERVER_Error *measure_elements(const char *name, TRITONSERVER_DataType type,
                                            const char *data, uint64_t left, uint64_t n,
                                            uint64_t *ret_size)
{
    struct bytes_reader r = bytes_begin(data, left);

    if (type == TRITONSERVER_TYPE_BYTES) {
        TRY(bytes_skip(&r, name, n));
        *ret_size = (uint64_t)(r.at - data);
        return NULL;
    }
    if (__builtin_mul_overflow(n, (uint64_t)TRITONSERVER_DataTypeByteSize(type), ret_size) ||
        *ret_size > left)
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                             "state '%s': %llu bytes are not what its shape asks for", name,
                             (unsigned long long)left);
    return NULL;
}

TRITONSERVER_Error *states_keep(struct batch *b, const char *name, TRITONSERVER_DataType type,
                                const int64_t *shape, uint32_t rank, const void *data,
                                uint64_t size)
{
    const char *at = data;
    int64_t own[BATCH_MAX_RANK], n, per_row;

    if (rank > BATCH_MAX_RANK || (b->n_parts > 1 && (rank == 0 || (uint64_t)shape[0] != b->rows)))
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                             "state '%s' has %lld rows for a batch of %llu", name,
                             rank > 0 ? (long long)shape[0] : 0, (unsigned long long)b->rows);
    memcpy(own, shape, rank * sizeof(*shape));
    TRY(gather_elements(shape, rank, &n));
    per_row = b->rows > 0 ? n / (int64_t)b->rows : 0;
    for (uint32_t i = 0; i < b->n_parts; i++) {
        struct batch_part *part = &b->parts[i];
        uint64_t taken;

        if (part->err)
            continue;
        if (b->n_parts > 1) {
            own[0] = (int64_t)part->rows;
            n = per_row * own[0];
        }
        TRY(measure_elements(name, type, at, size, (uint64_t)n, &taken));
        batch_fail(b, part, keep_request_state(part, name, type, own, rank, at, taken));
        at += taken;
        size -= taken;
    }
    return NULL;
}
