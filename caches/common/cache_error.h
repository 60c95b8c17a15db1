/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The errors of a cache.
 *
 * Threads: no state is kept; any thread.
 */
#ifndef CONCH_CACHES_COMMON_CACHE_ERROR_H
#define CONCH_CACHES_COMMON_CACHE_ERROR_H

#include "triton/core/tritoncache.h"

/* cache_error - an error with a printed text, of which 511 characters count. The caller owns it. */
__attribute__((format(printf, 2, 3))) TRITONSERVER_Error *cache_error(TRITONSERVER_Error_Code code,
                                                                      const char *format, ...);

TRITONSERVER_Error *cache_no_memory(void);

/* cache_check_arguments - INVALID_ARG, which names it, if one of them is NULL. */
TRITONSERVER_Error *cache_check_arguments(const TRITONCACHE_Cache *cache, const char *key,
                                          const TRITONCACHE_CacheEntry *entry);

#endif
