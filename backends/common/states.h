/* SPDX-License-Identifier: Apache-2.0 */
/*
 * states - implicit states of sequences: outputs that the server keeps, and hands to the model as
 * inputs with the next request of the same sequence.
 */
#ifndef BACKENDS_COMMON_STATES_H
#define BACKENDS_COMMON_STATES_H

#include "common/batch.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * states_keep - set the state of each request's sequence to its rows of an output. A request whose
 * state cannot be set fails alone. Thread: the one that executes the instance.
 * @name   of the output that is the state
 * @shape  of the whole batch; with several requests its first dimension is b->rows
 * @data   size bytes; elements of BYTES as they travel
 * Errors: INVALID_ARG  shape and size do not fit together, or not with the batch
 */
TRITONSERVER_Error *states_keep(struct batch *b, const char *name, TRITONSERVER_DataType type,
                                const int64_t *shape, uint32_t rank, const void *data,
                                uint64_t size);

#ifdef __cplusplus
}
#endif
#endif
