/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The blocks of the tensors that a frontend makes from text or typed values for one inference. All
 * are released at once. Thread: one at a time.
 */
#ifndef CONCH_FRONTENDS_OPS_TENSOR_BLOCKS_H
#define CONCH_FRONTENDS_OPS_TENSOR_BLOCKS_H

#include <stddef.h>

#include "base/compiler.h"

struct mem_owner;
struct pool;

struct tensor_blocks {
    void *first; /* NULL: none */
};

/*
 * tensor_blocks_add - a block of size_bytes from the pool, aligned to 64 bytes, which lives until
 * tensor_blocks_release(). NULL: no memory.
 *
 * @owner  the account that is charged for the block; NULL: none
 */
NODISCARD void *tensor_blocks_add(struct tensor_blocks *b, struct pool *pool, size_t size_bytes,
                                  struct mem_owner *owner);

void tensor_blocks_release(struct tensor_blocks *b);

#endif
