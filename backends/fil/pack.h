/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pack - the small arrays of a forest, in one memory of their own.
 *
 * treelite allocates each array for itself. For each leaf, a prediction reads an array of 8 bytes
 * and those of a small tree, and allocates blocks of 8 bytes. Where such a block of one thread and
 * such an array lie in the same line of the cache, the other threads wait for that line at each
 * leaf: then two instances answer no more than one.
 *
 * Threads: one thread loads a model.
 */
#ifndef BACKENDS_FIL_PACK_H
#define BACKENDS_FIL_PACK_H

#include "fil/treelite.h"

/*
 * forest_pack - move the small arrays that a prediction reads into one memory, which shares no line
 * of the cache with anything else.
 * @ret_memory  set on errors, too: NULL, or what the caller frees after the model
 * Errors: UNAVAILABLE  no memory
 *         INTERNAL     treelite refuses
 */
TRITONSERVER_Error *forest_pack(const struct treelite *t, treelite_model model, uint64_t n_trees,
                                void **ret_memory);

#endif
