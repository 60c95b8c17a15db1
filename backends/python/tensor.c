/* SPDX-License-Identifier: Apache-2.0 */
/* tensor - see tensor.h. */
#include "python/tensor.h"

#include <string.h>

static bool count_tensor_elements(struct tensor *t)
{
    uint64_t n = 1;

    for (uint32_t d = 0; d < t->rank; d++) {
        if (t->shape[d] < 0 || __builtin_mul_overflow(n, (uint64_t)t->shape[d], &n))
            return false;
    }
    t->n_elements = n;
    return true;
}

static bool has_its_size(const struct tensor *t)
{
    uint64_t size;
    const uint32_t element = TRITONSERVER_DataTypeByteSize(t->type);

    if (t->type == TRITONSERVER_TYPE_BYTES) /* a length each, at least */
        return t->n_elements <= t->size_bytes / 4;
    return element && !__builtin_mul_overflow(t->n_elements, element, &size) &&
           size == t->size_bytes;
}

bool tensor_read(struct tensor *t, struct channel *c, struct unpacker *u)
{
    size_t len;
    const char *name = unpack_str(u, &len);

    if (u->failed || len >= sizeof t->name)
        return false;
    memcpy(t->name, name, len);
    t->name[len] = 0;
    const uint32_t type = unpack_u32(u);
    t->rank = unpack_count(u, PROTOCOL_MAX_RANK, sizeof(int64_t));
    for (uint32_t d = 0; d < t->rank; d++)
        t->shape[d] = unpack_i64(u);
    t->size_bytes = unpack_u64(u);
    const uint64_t at = unpack_u64(u);
    t->block = unpack_u64(u);
    if (u->failed || type == TRITONSERVER_TYPE_INVALID || type > TRITONSERVER_TYPE_BF16)
        return false;
    t->type = (TRITONSERVER_DataType)type;
    t->data = at % BLOCK_ALIGN ? NULL : mapping_find(c->up, at, t->size_bytes);
    return t->data && count_tensor_elements(t) && has_its_size(t);
}

void tensor_text(struct unpacker *u, char *to, size_t room)
{
    size_t len;
    const char *text = unpack_str(u, &len);

    if (len >= room)
        len = room - 1;
    memcpy(to, text, len);
    to[len] = 0;
}
