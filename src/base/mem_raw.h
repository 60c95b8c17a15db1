/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory without an owner: aligned blocks and whole pages. It is for code that keeps accounts
 * itself (pools, mem_owner.h) and for data on cache lines of its own. All other code includes
 * mem.h.
 */
#ifndef CONCH_BASE_MEM_RAW_H
#define CONCH_BASE_MEM_RAW_H

#include <stdbool.h>
#include <stddef.h>

#include "base/compiler.h"

#define MEM_ALIGNMENT 64 /* of tensors: a cache line, and the widest vector register */

/*
 * mem_exit_when_exhausted - from now on, when there is no memory for a size that we have chosen,
 * the process ends with exit code 1 and not by SIGABRT. For the server program, which owns its
 * process.
 * Thread: the first.
 */
void mem_exit_when_exhausted(void);

/*
 * mem_alloc_aligned, mem_try_alloc_aligned, mem_free_aligned - memory aligned to MEM_ALIGNMENT,
 * without an owner. The first aborts without memory, the second returns NULL. Thread: any.
 */
void *mem_alloc_aligned(size_t size_bytes);
NODISCARD void *mem_try_alloc_aligned(size_t size_bytes);
void mem_free_aligned(void *p);

/*
 * mem_try_map - maps whole pages of zeros, without an owner; NULL when there is no room. Pages cost
 * nothing until they are touched, and return to the system as soon as they are unmapped.
 *
 * @size_bytes  a multiple of 4096, as in the two functions below
 *
 * mem_try_remap - makes the mapping larger, perhaps at another address. No byte is copied: 2 GB
 * take half a millisecond. On NULL the mapping is as before.
 *
 * mem_unmap - takes time in proportion to the pages that were touched: 2 GB in small pages 116 ms.
 */
NODISCARD void *mem_try_map(size_t size_bytes);
NODISCARD void *mem_try_remap(void *p, size_t old_bytes, size_t size_bytes);
void mem_unmap(void *p, size_t size_bytes);

/*
 * mem_set_test_hook - calls hook before every allocation. Where the hook returns false, a mem_try_
 * function returns NULL; the other functions go on, since they may not fail. NULL removes the hook.
 *
 * Thread: any, while no other thread allocates. For tests, to count allocations or fail the n-th.
 */
typedef bool (*mem_test_hook_fn)(size_t size_bytes);
void mem_set_test_hook(mem_test_hook_fn hook);

/* mem_is_allowed - what the hook returns; true without a hook. For mem.c. */
bool mem_is_allowed(size_t size_bytes);

/*
 * mem_end_process - reports that memory for a size that we chose is exhausted, and ends the
 * process. For mem.c.
 */
NORETURN void mem_end_process(size_t size_bytes);

#endif
