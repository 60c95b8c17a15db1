/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bytes - the elements of a BYTES tensor: each is its length, 4 bytes with the lowest first, and so
 * many bytes. Reading checks every length against what is there; nothing is copied.
 */
#ifndef BACKENDS_COMMON_BYTES_H
#define BACKENDS_COMMON_BYTES_H

#include "common/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What is left to read. */
struct bytes_reader {
    const char *at;
    uint64_t left;
    uint64_t n_read;
};

/* bytes_begin - a reader at the first element; borrows the data. */
struct bytes_reader bytes_begin(const void *data, uint64_t size);

/*
 * bytes_next - the next element.
 * @tensor    its name, for the error
 * @ret_data  borrowed from the data
 * Errors: INVALID_ARG  no element is left, or it ends beyond the data
 */
TRITONSERVER_Error *bytes_next(struct bytes_reader *r, const char *tensor, const char **ret_data,
                               uint32_t *ret_len);

/* bytes_skip - skip n elements. Errors: as bytes_next() */
TRITONSERVER_Error *bytes_skip(struct bytes_reader *r, const char *tensor, uint64_t n);

/* bytes_check - has the data exactly n elements, and nothing after them?
 * Errors: INVALID_ARG  it has not */
TRITONSERVER_Error *bytes_check(const char *tensor, const void *data, uint64_t size, uint64_t n);

/* bytes_size - how many bytes an element of len bytes takes, its length included. */
uint64_t bytes_size(uint32_t len);

/* bytes_put - write an element, bytes_size(len) bytes; returns the address after it. */
void *bytes_put(void *to, const void *data, uint32_t len);

#ifdef __cplusplus
}
#endif
#endif
