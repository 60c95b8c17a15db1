/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory from the system. Sizes that we choose: mem_alloc(), which aborts rather than return NULL.
 * Sizes that a client or a model chooses: mem_try_alloc() and a status. All of Conch allocates
 * through here, so that tests can count calls and make any one of them fail, and so that each block
 * is on its owner's account (mem_owner.h). Memory of no owner: mem_raw.h, which this header
 * includes.
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

/* NULL when there is no memory; zero bytes give a pointer that mem_free() takes. */
NODISCARD void *mem_try_alloc(size_t size_bytes);
NODISCARD void *mem_try_zalloc(size_t n_items, size_t item_bytes); /* NULL on overflow too */
NODISCARD void *mem_try_realloc(void *p, size_t size_bytes);       /* p stays valid on NULL */

/* mem_free - ends any of the above; NULL is fine. */
void mem_free(void *p);

/* mem_give - from now on it is that owner's memory, whoever paid until now. NULL is fine. */
void mem_give(void *p, struct mem_owner *owner, enum mem_kind kind);

/*
 * mem_zalloc_on_line - zeros that somebody pays for, as mem_zalloc() gives them, at the beginning
 * of a cache line. For what threads write in turns: it lies on as few lines as it needs.
 * mem_free_on_line - ends it; NULL is fine.
 */
void *mem_zalloc_on_line(size_t size_bytes);
void mem_free_on_line(void *p);

#endif
