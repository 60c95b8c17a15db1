/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of data types, and the arithmetic of shapes. Clients choose shapes, so products are
 * checked for overflow; a shape with a 0 in it has no elements, however large its other dimensions
 * are.
 */
#include "core/model/tensor.h"

#include <string.h>

#include "base/buf.h"

static const struct {
    char name[8]; /* with zeros behind it, so that names are compared as numbers */
    size_t size_bytes;
} types[N_DTYPES] = {
    [DTYPE_BOOL] = {"BOOL", 1},     [DTYPE_UINT8] = {"UINT8", 1},   [DTYPE_UINT16] = {"UINT16", 2},
    [DTYPE_UINT32] = {"UINT32", 4}, [DTYPE_UINT64] = {"UINT64", 8}, [DTYPE_INT8] = {"INT8", 1},
    [DTYPE_INT16] = {"INT16", 2},   [DTYPE_INT32] = {"INT32", 4},   [DTYPE_INT64] = {"INT64", 8},
    [DTYPE_FP16] = {"FP16", 2},     [DTYPE_FP32] = {"FP32", 4},     [DTYPE_FP64] = {"FP64", 8},
    [DTYPE_BYTES] = {"BYTES", 0},   [DTYPE_BF16] = {"BF16", 2},
};

const char *memory_place_type(enum memory_place place)
{
    if (place >= PLACE_GPU)
        return "GPU";
    return place == PLACE_CPU_PINNED ? "CPU_PINNED" : "CPU";
}

uint32_t memory_place_id(enum memory_place place)
{
    return place >= PLACE_GPU ? (uint32_t)(place - PLACE_GPU) : 0;
}

size_t dtype_size(enum dtype t)
{
    return (unsigned int)t < N_DTYPES ? types[t].size_bytes : 0;
}

const char *dtype_name(enum dtype t)
{
    return (unsigned int)t < N_DTYPES && types[t].name[0] ? types[t].name : "<invalid>";
}

enum dtype dtype_from_name(const char *name, size_t length)
{
    char wanted[sizeof(types[0].name)] = {0};
    if (length == 0 || length >= sizeof(wanted) || !name[length - 1])
        return DTYPE_INVALID;
    memcpy(wanted, name, length);
    for (int t = DTYPE_INVALID + 1; t < N_DTYPES; t++) {
        if (memcmp(types[t].name, wanted, sizeof(wanted)) == 0)
            return (enum dtype)t;
    }
    return DTYPE_INVALID;
}

enum shape_fault shape_elements(const int64_t *shape, size_t n_dims, int64_t *ret_elements)
{
    int64_t elements = 1;
    bool too_large = false, empty = false;
    for (size_t i = 0; i < n_dims; i++) {
        if (shape[i] < 0)
            return SHAPE_BAD_DIM;
        if (shape[i] == 0)
            empty = true;
        else if (__builtin_mul_overflow(elements, shape[i], &elements))
            too_large = true;
    }
    if (empty) {
        *ret_elements = 0;
        return SHAPE_FINE;
    }
    if (too_large)
        return SHAPE_TOO_LARGE;
    *ret_elements = elements;
    return SHAPE_FINE;
}

void shape_print(struct buf *b, const int64_t *shape, size_t n_dims)
{
    buf_addc(b, '[');
    for (size_t i = 0; i < n_dims; i++)
        buf_addf(b, "%s%lld", i ? "," : "", (long long)shape[i]);
    buf_addc(b, ']');
}
