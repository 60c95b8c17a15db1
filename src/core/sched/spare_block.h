/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The large block that a step of an ensemble has just freed, for the outputs of the next step on
 * the same thread. Otherwise each step takes fresh memory from the system, whose pages the kernel
 * must make: of an output of 100 MB that its model writes, some 25 000 page faults.
 *
 * A thread keeps one block, and only between the execution that has freed it and the end of what
 * that execution has set going (afterwards.h). So nothing is kept while a request waits, or at
 * rest.
 *
 * Thread: any; each has a block of its own. No lock is held.
 */
#ifndef CONCH_CORE_SCHED_SPARE_BLOCK_H
#define CONCH_CORE_SCHED_SPARE_BLOCK_H

#include <stddef.h>

struct mem_owner;
struct pool;

/* Smaller ones are left to the pools. */
#define SPARE_BLOCK_LEAST_BYTES ((size_t)1 << 20)

/* spare_block_release - releases the block, or keeps it for a moment. Taken. */
void spare_block_release(void *block);

/*
 * spare_block_take - the block that this thread keeps, if it is of that pool and fits; else NULL.
 * The caller ends it with pool_release(), or spare_block_release().
 *
 * @owner  is charged for it, as by pool_alloc()
 */
void *spare_block_take(const struct pool *p, size_t size_bytes, struct mem_owner *owner);

#endif
