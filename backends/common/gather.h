/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gather - makes one tensor from an input of all requests of a batch.
 *
 * Each request has its own buffers for an input, one or several. Buffers that are contiguous, as
 * with a single request of one buffer, are used in place; otherwise they are copied once.
 *
 *     struct gathered in = {0};                      kept in the instance
 *     TRY(gather(&in, b, "IN", TRITONSERVER_TYPE_FP32, 0));
 *     … in.data, in.shape …                          until the next gather() or the release
 *     gathered_done(&in);                            when the instance goes
 */
#ifndef BACKENDS_COMMON_GATHER_H
#define BACKENDS_COMMON_GATHER_H

#include "common/batch.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Lends memory for copies, in the place of gather's own: memory that a device reads faster, for
 * example. The lender keeps owning it; it is valid until the lender's next call.
 * Returns NULL if the lender has none: gather then allocates its own.
 */
typedef void *gather_lend_fn(void *lender, uint64_t size);

struct gathered {
    bool present; /* false: optional, and no request has it; the rest is then empty */
    bool copied;  /* data is our memory, not the requests' */
    TRITONSERVER_DataType type;
    uint32_t rank;
    int64_t shape[BATCH_MAX_RANK]; /* the first dimension is the sum of the requests' */
    const void *data;              /* aligned for its type; to be read only */
    uint64_t size;

    gather_lend_fn *lend; /* NULL: nobody lends. Set by the caller, like lender */
    void *lender;

    /* Private: memory for copies, as large as the largest copy so far. */
    void *scratch;
    uint64_t scratch_size;
};

enum gather_flags {
    GATHER_OPTIONAL = 1, /* requests may lack it, but then all of them */
    GATHER_RAGGED = 2,   /* their shapes differ (allow_ragged_batch): the result is a list of all
                            their elements, [n] */
};

/*
 * gather - gather the input of that name, of all parts that have not failed, in their order.
 * @type   the type that it must have; TRITONSERVER_TYPE_INVALID: any
 * @flags  of enum gather_flags
 * Errors: INVALID_ARG  another type, or shapes that do not fit together
 *         UNAVAILABLE  no memory
 *         UNSUPPORTED  data in GPU memory
 */
TRITONSERVER_Error *gather(struct gathered *g, const struct batch *b, const char *name,
                           TRITONSERVER_DataType type, unsigned int flags);
void gathered_done(struct gathered *g);

/* gather_reserve - size bytes of g's own memory, aligned to 64; gathered_done() frees it. */
TRITONSERVER_Error *gather_reserve(struct gathered *g, uint64_t size, void **ret_memory);

/* gather_elements - how many elements a shape has. Errors: INVALID_ARG  a dimension below 0, or too
 * many elements */
TRITONSERVER_Error *gather_elements(const int64_t *shape, uint32_t rank, int64_t *ret_n);

#ifdef __cplusplus
}
#endif
#endif
