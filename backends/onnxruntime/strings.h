/* SPDX-License-Identifier: Apache-2.0 */
/*
 * strings - tensors of strings, between the server's form (for each element 32 bits of length,
 * little-endian, and its bytes) and ONNX Runtime's (an object per element).
 */
#ifndef BACKENDS_ONNXRUNTIME_STRINGS_H
#define BACKENDS_ONNXRUNTIME_STRINGS_H

#include "onnxruntime/library.h"

/*
 * strings_read - make a string tensor.
 * @name    of the input, for messages
 * @heap    where its elements are allocated
 * @data    size bytes that hold all elements of the shape, no more and no less
 * Errors: INVALID_ARG  the data has more or fewer elements than the shape
 */
TRITONSERVER_Error *strings_read(const struct library *lib, struct ort_allocator *heap,
                                 const char *name, const void *data, size_t size,
                                 const int64_t *shape, size_t rank, struct ort_value **ret_value);

/* strings_size - bytes that elements [first, first + n) take in the server's form. */
TRITONSERVER_Error *strings_size(const struct library *lib, const struct ort_value *value,
                                 size_t first, size_t n, size_t *ret_size);

/* strings_write - write these elements. @room  bytes at `to`, as strings_size() gives them */
TRITONSERVER_Error *strings_write(const struct library *lib, const struct ort_value *value,
                                  size_t first, size_t n, void *to, size_t room);

#endif
