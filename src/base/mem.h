/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory from the system. For sizes that we choose: mem_alloc(), which aborts rather than return
 * NULL. For sizes that a client or a model chooses: mem_try_alloc() and a status. All of Conch
 * allocates through these functions, so that tests can count calls and make any one of them fail.
 * Each block is charged to an owner's account (mem_owner.h). Memory without an owner: mem_raw.h,
 * which this header includes.
 *
 * Thread: any.
 */
#ifndef CONCH_BASE_MEM_H
#define CONCH_BASE_MEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"
#include "base/mem_owner.h"
#include "base/mem_raw.h"

void *mem_alloc(size_t size_bytes);
void *mem_zalloc(size_t size_bytes);
void *mem_realloc(void *p, size_t size_bytes);
char *mem_strdup(const char *s);
char *mem_strndup(const char *s, size_t length);
char *mem_printf(const char *fmt, ...) PRINTF_LIKE(1, 2);

/* NULL when there is no memory. A size of 0 gives a pointer that mem_free() accepts. */
NODISCARD void *mem_try_alloc(size_t size_bytes);
NODISCARD void *mem_try_zalloc(size_t n_items, size_t item_bytes); /* NULL on overflow too */
NODISCARD void *mem_try_realloc(void *p, size_t size_bytes);       /* p stays valid on NULL */

/* mem_free - frees a block of any of the functions above; NULL is fine. */
void mem_free(void *p);

/*
 * mem_give - charges the block to that owner from now on, in place of the present one. NULL is
 * fine.
 */
void mem_give(void *p, struct mem_owner *owner, enum mem_kind kind);

/*
 * mem_zalloc_on_line - like mem_zalloc(), and the block begins at a cache line. For data that
 * several threads write in turns: it then lies on as few cache lines as possible.
 * mem_free_on_line - frees it; NULL is fine.
 */
void *mem_zalloc_on_line(size_t size_bytes);
void mem_free_on_line(void *p);

#endif
