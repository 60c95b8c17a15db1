/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What server and cache pass to each other: an entry, which is a list of buffers, and the copy
 * between them. These are TRITONCACHE_CacheEntry and TRITONCACHE_Allocator. Both live during one
 * call of the cache, on the stack of its caller.
 *
 *     insert   the entry has one buffer, the image of a response (response_image.h). The cache
 *              puts a buffer of its own in its place, and the copy fills that
 *     look-up  the entry is empty. The cache adds the buffer that it has kept, and the copy makes
 *              the response from it
 */
#ifndef CONCH_CORE_CACHE_CACHE_ENTRY_H
#define CONCH_CORE_CACHE_CACHE_ENTRY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"
#include "core/model/tensor.h"

struct request;
struct response;
struct status;

/* A request has one response, so its entry has one buffer; more are taken, and not used. */
enum { CACHE_ENTRY_MAX_BUFFERS = 8 };

struct cache_buffer {
    void *base; /* borrowed */
    size_t size_bytes;
    enum memory_type type;
    int64_t type_id;
};

struct cache_entry {
    size_t n;
    struct cache_buffer buffers[CACHE_ENTRY_MAX_BUFFERS];
};

/*
 * cache_entry_add - adds a buffer behind the others.
 * cache_entry_set - replaces one.
 * cache_entry_get - one of them; borrowed.
 *
 * Thread: the one on which the cache was called.
 * Errors: STATUS_INVALID_ARG  there is no buffer of that index; its base is NULL, but not its size
 *         STATUS_UNSUPPORTED  the entry has no room for another one
 */
NODISCARD struct status *cache_entry_add(struct cache_entry *e, const struct cache_buffer *b);
NODISCARD struct status *cache_entry_set(struct cache_entry *e, size_t index,
                                         const struct cache_buffer *b);
NODISCARD struct status *cache_entry_get(const struct cache_entry *e, size_t index,
                                         const struct cache_buffer **ret_buffer);

/* A request that another thread may end until it has been claimed. */
struct cache_claim {
    struct request *(*fn)(void *arg); /* NULL: it has ended */
    void *arg;
    struct request *request; /* once it has been claimed */
    bool has_failed;
};

/* One call of the cache. */
struct cache_copier {
    struct cache_entry *entry;
    /* Insert. */
    const void *image; /* NULL: it is a look-up */
    size_t image_bytes;
    /* Look-up. */
    struct request *request; /* NULL: it is to be claimed */
    struct cache_claim *claim;
    struct response *response; /* made by the copy; the caller's */
    bool is_done;
};

/*
 * cache_copy - what TRITONCACHE_Copy does.
 *
 * Thread: the one on which the cache was called, without locks of ours.
 * Errors: STATUS_INVALID_ARG  the entry is not that of the call, has not exactly one buffer, or too
 *                             small a one; the copy is done already; see also response_image_read()
 *         STATUS_UNSUPPORTED  a buffer in the memory of a GPU
 *         STATUS_CANCELLED    the request has ended
 *         STATUS_UNAVAILABLE  no memory
 */
NODISCARD struct status *cache_copy(struct cache_copier *c, struct cache_entry *e);

#endif
