/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tritoncache.h: what a response cache calls while the server calls it.
 */
#include "triton/core/tritoncache.h"

#include "api/handles.h"
#include "base/status.h"
#include "conch/cache.h"
#include "core/cache/cache_entry.h"

TRITONSERVER_Error *TRITONCACHE_ApiVersion(uint32_t *major, uint32_t *minor)
{
    NEED(major);
    NEED(minor);
    *major = TRITONCACHE_API_VERSION_MAJOR;
    *minor = TRITONCACHE_API_VERSION_MINOR;
    return NULL;
}

TRITONSERVER_Error *TRITONCACHE_CacheEntryBufferCount(TRITONCACHE_CacheEntry *entry, size_t *count)
{
    NEED(entry);
    NEED(count);
    *count = to_entry(entry)->n;
    return NULL;
}

static struct cache_buffer cache_buffer_of(void *base, const struct buffer_attributes *a)
{
    return (struct cache_buffer){
        .base = base, .size_bytes = a->size_bytes, .type = a->type, .type_id = a->type_id};
}

TRITONSERVER_Error *
TRITONCACHE_CacheEntryAddBuffer(TRITONCACHE_CacheEntry *entry, void *base,
                                TRITONSERVER_BufferAttributes *buffer_attributes)
{
    NEED(entry);
    NEED(buffer_attributes);
    const struct cache_buffer b = cache_buffer_of(base, to_attributes(buffer_attributes));
    return as_status(cache_entry_add(to_entry(entry), &b));
}

TRITONSERVER_Error *
TRITONCACHE_CacheEntryGetBuffer(TRITONCACHE_CacheEntry *entry, size_t index, void **base,
                                TRITONSERVER_BufferAttributes *buffer_attributes)
{
    const struct cache_buffer *b;
    NEED(entry);
    NEED(base);
    NEED(buffer_attributes);
    struct status *st = cache_entry_get(to_entry(entry), index, &b);
    if (st)
        return as_status(st);
    *base = b->base;
    *to_attributes(buffer_attributes) = (struct buffer_attributes){
        .type = b->type, .type_id = b->type_id, .size_bytes = b->size_bytes};
    return NULL;
}

TRITONSERVER_Error *
TRITONCACHE_CacheEntrySetBuffer(TRITONCACHE_CacheEntry *entry, size_t index, void *new_base,
                                TRITONSERVER_BufferAttributes *buffer_attributes)
{
    const struct cache_buffer *present;
    NEED(entry);
    struct status *st = cache_entry_get(to_entry(entry), index, &present);
    if (st)
        return as_status(st);
    struct cache_buffer b = *present;
    b.base = new_base;
    if (buffer_attributes)
        b = cache_buffer_of(new_base, to_attributes(buffer_attributes));
    return as_status(cache_entry_set(to_entry(entry), index, &b));
}

TRITONSERVER_Error *TRITONCACHE_Copy(TRITONCACHE_Allocator *allocator,
                                     TRITONCACHE_CacheEntry *entry)
{
    NEED(allocator);
    NEED(entry);
    return as_status(cache_copy(to_copier(allocator), to_entry(entry)));
}

TRITONSERVER_Error *conch_cache_miss(void)
{
    return as_status(status_not_found());
}
