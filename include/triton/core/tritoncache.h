/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tritoncache.h - what a response cache is given, and what it has to define.
 *
 * A cache is a shared library, libtritoncache_NAME.so, chosen by `--cache-config NAME,…`. It maps
 * keys to entries; an entry is a list of buffers, one for each response. This is Conch's own text
 * of Triton's interface, cache API version 0.1.
 *
 * The cache owns its memory, the server its own; bytes go between them only by TRITONCACHE_Copy:
 *
 *     Insert   the entry's buffers are the server's. The cache sets buffers of its own in their
 *              place (CacheEntrySetBuffer), and Copy brings the bytes there
 *     Lookup   the cache adds its buffers to the empty entry (CacheEntryAddBuffer), and Copy brings
 *              the bytes to the server
 *
 * The cache may not drop or reuse its buffers before Copy has returned.
 */
#ifndef TRITON_CORE_TRITONCACHE_H
#define TRITON_CORE_TRITONCACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "triton/core/tritonserver.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What the server exports, and what the cache exports. */
#define TRITONCACHE_DECLSPEC __attribute__((__visibility__("default")))
#define TRITONCACHE_ISPEC    __attribute__((__visibility__("default")))

struct TRITONCACHE_Allocator;
struct TRITONCACHE_Cache;
struct TRITONCACHE_CacheEntry;

typedef struct TRITONCACHE_Allocator TRITONCACHE_Allocator;
typedef struct TRITONCACHE_Cache TRITONCACHE_Cache;
typedef struct TRITONCACHE_CacheEntry TRITONCACHE_CacheEntry;

/* ---- Version -------------------------------------------------------------------------------- */

/* As for backends: equal major numbers, and the server's minor number is not smaller. */
#define TRITONCACHE_API_VERSION_MAJOR 0
#define TRITONCACHE_API_VERSION_MINOR 1

/* TRITONCACHE_ApiVersion - the version that the server implements. */
TRITONCACHE_DECLSPEC TRITONSERVER_Error *TRITONCACHE_ApiVersion(uint32_t *major, uint32_t *minor);

/* ---- Entries -------------------------------------------------------------------------------- */

/* TRITONCACHE_CacheEntryBufferCount - number of its buffers. */
TRITONCACHE_DECLSPEC TRITONSERVER_Error *
TRITONCACHE_CacheEntryBufferCount(TRITONCACHE_CacheEntry *entry, size_t *count);

/*
 * TRITONCACHE_CacheEntryAddBuffer - one more buffer, behind the others.
 * @base               the cache's
 * @buffer_attributes  its size and place, copied
 */
TRITONCACHE_DECLSPEC TRITONSERVER_Error *
TRITONCACHE_CacheEntryAddBuffer(TRITONCACHE_CacheEntry *entry, void *base,
                                TRITONSERVER_BufferAttributes *buffer_attributes);

/*
 * TRITONCACHE_CacheEntryGetBuffer - one of its buffers.
 * @buffer_attributes  the caller's; size and place are written into it
 * Errors: INVALID_ARG  no such index
 */
TRITONCACHE_DECLSPEC TRITONSERVER_Error *
TRITONCACHE_CacheEntryGetBuffer(TRITONCACHE_CacheEntry *entry, size_t index, void **base,
                                TRITONSERVER_BufferAttributes *buffer_attributes);

/*
 * TRITONCACHE_CacheEntrySetBuffer - another buffer in the place of one of them.
 * @new_base           the cache's
 * @buffer_attributes  its size and place, copied; NULL: those of the buffer before
 * Errors: INVALID_ARG  no such index
 */
TRITONCACHE_DECLSPEC TRITONSERVER_Error *
TRITONCACHE_CacheEntrySetBuffer(TRITONCACHE_CacheEntry *entry, size_t index, void *new_base,
                                TRITONSERVER_BufferAttributes *buffer_attributes);

/*
 * TRITONCACHE_Copy - bring the bytes to where the entry says; both ways, see above.
 * @allocator  the one that Insert or Lookup got
 */
TRITONCACHE_DECLSPEC TRITONSERVER_Error *TRITONCACHE_Copy(TRITONCACHE_Allocator *allocator,
                                                          TRITONCACHE_CacheEntry *entry);

/* ---- What a cache defines: all four --------------------------------------------------------- */

/*
 * TRITONCACHE_CacheInitialize - make the cache.
 * @config  a JSON object of the settings on the command line
 */
TRITONCACHE_ISPEC TRITONSERVER_Error *TRITONCACHE_CacheInitialize(TRITONCACHE_Cache **cache,
                                                                  const char *config);

/* TRITONCACHE_CacheFinalize - end it. */
TRITONCACHE_ISPEC TRITONSERVER_Error *TRITONCACHE_CacheFinalize(TRITONCACHE_Cache *cache);

/*
 * TRITONCACHE_CacheLookup - fill the entry of that key.
 * Thread: any, several at once.
 * Errors: NOT_FOUND  there is none
 */
TRITONCACHE_ISPEC TRITONSERVER_Error *TRITONCACHE_CacheLookup(TRITONCACHE_Cache *cache,
                                                              const char *key,
                                                              TRITONCACHE_CacheEntry *entry,
                                                              TRITONCACHE_Allocator *allocator);

/*
 * TRITONCACHE_CacheInsert - keep an entry.
 * Thread: any, several at once.
 * Errors: ALREADY_EXISTS  there is one of that key
 */
TRITONCACHE_ISPEC TRITONSERVER_Error *TRITONCACHE_CacheInsert(TRITONCACHE_Cache *cache,
                                                              const char *key,
                                                              TRITONCACHE_CacheEntry *entry,
                                                              TRITONCACHE_Allocator *allocator);

#ifdef __cplusplus
}
#endif

#endif
