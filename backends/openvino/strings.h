/* SPDX-License-Identifier: Apache-2.0 */
/*
 * strings - tensors of strings.
 *
 * OpenVINO's C interface makes such tensors, but reads none: their memory is an array of C++'s
 * std::string. Its layout, a pointer and a length, is read here, after strings_check() has seen
 * that the library has this layout.
 */
#ifndef BACKENDS_OPENVINO_STRINGS_H
#define BACKENDS_OPENVINO_STRINGS_H

#include "common/gather.h"
#include "openvino/library.h"

#define STRINGS_ELEMENT_SIZE 32

/* strings_check - has the library the layout that is read here?
 * Errors: UNSUPPORTED  it has not */
TRITONSERVER_Error *strings_check(const struct library *l);

/*
 * strings_read - makes a tensor of a gathered input.
 * @ret_tensor  the caller frees it
 * Errors: INVALID_ARG  the input's bytes are not its elements
 *         UNAVAILABLE  no memory
 */
TRITONSERVER_Error *strings_read(const struct library *l, const char *name,
                                 const struct gathered *in, struct ov_tensor **ret_tensor);

/*
 * strings_write - the n elements of a tensor as a BYTES tensor has them.
 * @to        scratch memory that the result is in
 * Errors: UNAVAILABLE  no memory
 */
TRITONSERVER_Error *strings_write(const struct library *l, const struct ov_tensor *tensor, size_t n,
                                  struct gathered *to, const void **ret_data, uint64_t *ret_size);

#endif
