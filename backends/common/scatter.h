/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scatter - an output of a whole batch, cut into the responses of its requests. Only those that ask
 * for the output get it.
 *
 * scatter_begin() gives memory to compute into. With one request that is the response's memory, so
 * nothing is copied. With several, scatter_end() copies each request its rows.
 *
 *     struct scattered out = {0};                                kept in the instance
 *     TRY(scatter_begin(&out, b, "OUT", 0, type, shape, rank));
 *     … write out.size bytes to out.data …
 *     TRY(scatter_end(&out, b));
 *     scattered_done(&out);                                      when the instance goes
 *
 * scatter_rows() is for data that the backend has already, or whose size is not known before
 * (BYTES).
 */
#ifndef BACKENDS_COMMON_SCATTER_H
#define BACKENDS_COMMON_SCATTER_H

#include "common/gather.h"

#ifdef __cplusplus
extern "C" {
#endif

struct scattered {
    void *data;    /* aligned for its type */
    uint64_t size; /* bytes */
    bool in_place; /* in the server's memory: scatter_end() copies nothing */

    /* Private. */
    const char *name;
    uint32_t hint;
    TRITONSERVER_DataType type;
    uint32_t rank;
    int64_t shape[BATCH_MAX_RANK];
    void *move_to; /* the server's memory, where it is not aligned */
    bool wanted;
    struct gathered memory;
};

/*
 * scatter_begin - memory for an output.
 * @name   borrowed until scatter_end()
 * @hint   its index among the outputs of the configuration
 * @type   not BYTES
 * @shape  of the whole batch; copied
 * Errors: INVALID_ARG  the shape does not fit this batch
 *         UNAVAILABLE  no memory
 *         UNSUPPORTED  the server gave memory of a GPU
 */
TRITONSERVER_Error *scatter_begin(struct scattered *s, const struct batch *b, const char *name,
                                  uint32_t hint, TRITONSERVER_DataType type, const int64_t *shape,
                                  uint32_t rank);
TRITONSERVER_Error *scatter_end(struct scattered *s, const struct batch *b);
void scattered_done(struct scattered *s);

/*
 * scatter_rows - copy each request its rows.
 * @shape  of the whole batch; with several requests its first dimension is b->rows
 * @data   size bytes; elements of BYTES as they travel: each a length and its bytes
 * Errors: INVALID_ARG  shape and size do not fit together, or not with the batch
 */
TRITONSERVER_Error *scatter_rows(const struct batch *b, const char *name, uint32_t hint,
                                 TRITONSERVER_DataType type, const int64_t *shape, uint32_t rank,
                                 const void *data, uint64_t size);

/*
 * scatter_like_input - copy each request as many elements as its input of another name has, in that
 * input's shape (batch_output, BATCH_SCATTER_WITH_INPUT_SHAPE).
 * @data  the elements of all requests, one behind the other; not BYTES
 * Errors: INVALID_ARG  the data has more or fewer elements than all these inputs together
 */
TRITONSERVER_Error *scatter_like_input(const struct batch *b, const char *name, uint32_t hint,
                                       TRITONSERVER_DataType type, const char *input,
                                       const void *data, uint64_t size);

#ifdef __cplusplus
}
#endif
#endif
