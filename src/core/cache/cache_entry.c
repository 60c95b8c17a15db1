/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Caches are other people's code: each call checks what it is given.
 */
#include "core/cache/cache_entry.h"

#include <string.h>

#include "base/status.h"
#include "core/cache/response_image.h"

NODISCARD static struct status *check_buffer(const struct cache_buffer *b)
{
    if (b->base || b->size_bytes == 0)
        return NULL;
    return status_new(STATUS_INVALID_ARG, "a cache's buffer of %zu bytes is at NULL",
                      b->size_bytes);
}

NODISCARD static struct status *check_buffer_index(const struct cache_entry *e, size_t index)
{
    if (index < e->n)
        return NULL;
    return status_new(STATUS_INVALID_ARG,
                      "buffer %zu of a cache entry does not exist: the entry has %zu", index, e->n);
}

struct status *cache_entry_add(struct cache_entry *e, const struct cache_buffer *b)
{
    struct status *st = check_buffer(b);
    if (!st && e->n == CACHE_ENTRY_MAX_BUFFERS)
        st = status_new(STATUS_UNSUPPORTED, "a cache entry has at most %d buffers",
                        CACHE_ENTRY_MAX_BUFFERS);
    if (!st)
        e->buffers[e->n++] = *b;
    return st;
}

struct status *cache_entry_set(struct cache_entry *e, size_t index, const struct cache_buffer *b)
{
    struct status *st = check_buffer_index(e, index);
    if (!st)
        st = check_buffer(b);
    if (!st)
        e->buffers[index] = *b;
    return st;
}

struct status *cache_entry_get(const struct cache_entry *e, size_t index,
                               const struct cache_buffer **ret_buffer)
{
    struct status *st = check_buffer_index(e, index);
    if (!st)
        *ret_buffer = &e->buffers[index];
    return st;
}

static struct status *copy_to_cache(const struct cache_copier *c, const struct cache_buffer *b)
{
    if (b->size_bytes < c->image_bytes)
        return status_new(STATUS_INVALID_ARG,
                          "the cache's buffer has %zu bytes, and the response %zu", b->size_bytes,
                          c->image_bytes);
    if (b->base != c->image)
        memcpy(b->base, c->image, c->image_bytes);
    return NULL;
}

static struct status *read_kept_response(struct cache_copier *c, const struct cache_buffer *b)
{
    struct cache_claim *claim = c->claim;
    if (!c->request) {
        c->request = claim->request = claim->fn(claim->arg);
        claim->has_failed = !c->request;
    }
    if (!c->request)
        return status_new(STATUS_CANCELLED, "the request has ended");
    return response_image_read(b->base, b->size_bytes, c->request, &c->response);
}

struct status *cache_copy(struct cache_copier *c, struct cache_entry *e)
{
    const struct cache_buffer *b = &e->buffers[0];
    if (e != c->entry || c->is_done)
        return status_new(STATUS_INVALID_ARG, "the cache copies %s",
                          c->is_done ? "a second time" : "the entry of another call");
    if (e->n != 1)
        return status_new(STATUS_INVALID_ARG,
                          "the cache's entry has %zu buffers; one response is expected", e->n);
    if (b->type == MEMORY_GPU)
        return status_new(STATUS_UNSUPPORTED, "the cache's buffer is in the memory of a GPU");
    struct status *st = c->image ? copy_to_cache(c, b) : read_kept_response(c, b);
    c->is_done = !st;
    return st;
}
