/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory from the system. Sizes that we choose: mem_alloc(), which aborts rather than return NULL.
 * Sizes that a client or a model chooses: mem_try_alloc() and a status. All of Conch allocates
 * through here, so that tests can count calls and make any one of them fail, and so that each block
 * is on its owner's account (mem_owner.h).
 */
#ifndef CONCH_BASE_MEM_H
#define CONCH_BASE_MEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"
#include "base/mem_owner.h"

#define MEM_ALIGNMENT 64 /* of tensors: a cache line, and the widest vector register */

void *mem_alloc(size_t size_bytes);
void *mem_zalloc(size_t size_bytes);
void *mem_realloc(void *p, size_t size_bytes);
char *mem_strdup(const char *s);
char *mem_strndup(const char *s, size_t length);
char *mem_printf(const char *fmt, ...) PRINTF_LIKE(1, 2);

/*
 * mem_exit_when_exhausted - where there is no memory for a size that we have chosen, the process
 * ends with exit code 1 from now on, not by SIGABRT: for the program, whose process it is. Thread:
 * the first.
 */
void mem_exit_when_exhausted(void);

/* NULL when there is no memory; zero bytes give a pointer that mem_free() takes. */
NODISCARD void *mem_try_alloc(size_t size_bytes);
NODISCARD void *mem_try_zalloc(size_t n_items, size_t item_bytes); /* NULL on overflow too */
NODISCARD void *mem_try_realloc(void *p, size_t size_bytes);       /* p stays valid on NULL */

/* mem_free - ends any of the above; NULL is fine. */
void mem_free(void *p);

/* mem_give - from now on it is that owner's memory, whoever paid until now. NULL is fine. */
void mem_give(void *p, struct mem_owner *owner, enum mem_kind kind);

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

#endif
