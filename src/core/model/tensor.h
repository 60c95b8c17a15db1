/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tensors: data types, shapes, and where bytes live.
 */
#ifndef CONCH_CORE_MODEL_TENSOR_H
#define CONCH_CORE_MODEL_TENSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"

struct buf;

/* The values are those of TRITONSERVER_DataType and of ModelConfig's DataType. */
enum dtype {
    DTYPE_INVALID,
    DTYPE_BOOL,
    DTYPE_UINT8,
    DTYPE_UINT16,
    DTYPE_UINT32,
    DTYPE_UINT64,
    DTYPE_INT8,
    DTYPE_INT16,
    DTYPE_INT32,
    DTYPE_INT64,
    DTYPE_FP16,
    DTYPE_FP32,
    DTYPE_FP64,
    DTYPE_BYTES, /* TYPE_STRING in configurations */
    DTYPE_BF16,
    N_DTYPES,
};

/* dtype_size - bytes of one element; 0 for BYTES and for what is no data type. */
size_t dtype_size(enum dtype t);
/* dtype_name - the name on the wire, "FP32"; "<invalid>" for what is no data type. */
const char *dtype_name(enum dtype t);
/* dtype_from_name - DTYPE_INVALID when there is none of that name. */
enum dtype dtype_from_name(const char *name, size_t length);

/* The values are those of TRITONSERVER_MemoryType. */
enum memory_type { MEMORY_CPU, MEMORY_CPU_PINNED, MEMORY_GPU };

/* Where a backend's memory is: the machine's, pinned, and that of each GPU. */
enum memory_place {
    PLACE_CPU = MEMORY_CPU,
    PLACE_CPU_PINNED = MEMORY_CPU_PINNED,
    PLACE_GPU = MEMORY_GPU, /* of GPU 0, and those of the others behind it */
    N_MEMORY_PLACES = PLACE_GPU + 16
};

/* memory_place_type, memory_place_id - a place as the statistics name it: "GPU", 3. */
const char *memory_place_type(enum memory_place place);
uint32_t memory_place_id(enum memory_place place);

/* One stretch of a tensor's bytes, borrowed. */
struct tensor_buffer {
    const void *base;
    size_t size_bytes;
    enum memory_type type;
    int64_t type_id;
    const char *host_policy; /* NULL = for every instance */
};

enum shape_fault { SHAPE_FINE, SHAPE_BAD_DIM, SHAPE_TOO_LARGE };

/*
 * shape_elements - the product of the dimensions, 1 for none.
 *
 * Returns SHAPE_BAD_DIM for a negative dimension, SHAPE_TOO_LARGE past INT64_MAX.
 */
enum shape_fault shape_elements(const int64_t *shape, size_t n_dims, int64_t *ret_elements);

/* shape_print - appends "[1,-1,224]". */
void shape_print(struct buf *b, const int64_t *shape, size_t n_dims);

#endif
