/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of no owner: aligned blocks, whole pages. What keeps accounts itself takes them (pools,
 * the accounts of mem_owner.h), and what lies on cache lines of its own; all others include mem.h.
 */
#ifndef CONCH_BASE_MEM_RAW_H
#define CONCH_BASE_MEM_RAW_H

#include <stdbool.h>
#include <stddef.h>

#include "base/compiler.h"

#define MEM_ALIGNMENT 64 /* of tensors: a cache line, and the widest vector register */

/*
 * mem_exit_when_exhausted - where there is no memory for a size that we have chosen, the process
 * ends with exit code 1 from now on, not by SIGABRT: for the program, whose process it is. Thread:
 * the first.
 */
void mem_exit_when_exhausted(void);

/*
 * mem_alloc_aligned, mem_try_alloc_aligned, mem_free_aligned - memory aligned to MEM_ALIGNMENT, of
 * no owner: for pools, which keep accounts of their own, and for what is on cache lines of its own.
 */
void *mem_alloc_aligned(size_t size_bytes);
NODISCARD void *mem_try_alloc_aligned(size_t size_bytes);
void mem_free_aligned(void *p);

/*
 * mem_try_map - whole pages from the system, zero, of no owner: they cost nothing until they are
 * touched, and are the system's again as soon as they are unmapped. NULL when there is no room.
 *
 * @size_bytes  of whole pages (4096), as in the two below
 *
 * mem_try_remap - the same pages with others behind them, perhaps at another place. No byte is
 * copied, half a millisecond for 2 GB. On NULL, all is as it was.
 *
 * mem_unmap - takes time by what has been touched: 2 GB in small pages 116 ms.
 */
NODISCARD void *mem_try_map(size_t size_bytes);
NODISCARD void *mem_try_remap(void *p, size_t old_bytes, size_t size_bytes);
void mem_unmap(void *p, size_t size_bytes);

/*
 * mem_set_test_hook - calls hook before every allocation; where it returns false, a mem_try_
 * function returns NULL (the others go on, since they may not fail). NULL removes it.
 *
 * Thread: any, while no other thread allocates. For tests: counting, failing the n-th.
 */
typedef bool (*mem_test_hook_fn)(size_t size_bytes);
void mem_set_test_hook(mem_test_hook_fn hook);

/* mem_is_allowed - asks the hook; true without one. For mem.c. */
bool mem_is_allowed(size_t size_bytes);

/* mem_end_process - says that there is no memory for a size that we have chosen. For mem.c. */
NORETURN void mem_end_process(size_t size_bytes);

#endif
