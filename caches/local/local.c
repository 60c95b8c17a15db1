/* SPDX-License-Identifier: Apache-2.0 */
/*
 * local - the response cache in the memory of the server's process: `--cache-config
 * local,size=<bytes>`. It keeps entries up to that size, with what they need besides their bytes,
 * and drops the least recently used ones (store.h).
 *
 * It also runs under Triton. Source: reference/behaviours §17.6
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cache_error.h"
#include "common/cache_settings.h"
#include "conch/cache.h"
#include "local/gauges.h"
#include "local/store.h"
#include "local/ticks.h"

enum { MAX_BUFFERS = 4096 };

/* The cache that Initialize makes. */
struct local {
    struct store *store;
    struct gauges *gauges; /* NULL: the server has no metrics */
    /* What the next insertion uses, so that it need not make one; any thread. */
    _Atomic(TRITONSERVER_BufferAttributes *) attributes;
};

extern __typeof__(conch_cache_miss) conch_cache_miss __attribute__((weak));

/* Locks are held for a few hundred instructions. */
bool conch_cache_never_waits(void)
{
    return true;
}

/* ---- Attributes -------------------------------------------------------------------------------
 */

/* An object for reading what the server's buffers are: the cache's, if no other thread has it. */
static TRITONSERVER_Error *take_attributes(struct local *c, TRITONSERVER_BufferAttributes **ret)
{
    *ret = atomic_exchange(&c->attributes, NULL);
    return *ret ? NULL : TRITONSERVER_BufferAttributesNew(ret);
}

static void give_back_attributes(struct local *c, TRITONSERVER_BufferAttributes *a)
{
    TRITONSERVER_BufferAttributes *before = atomic_exchange(&c->attributes, a);
    if (before)
        TRITONSERVER_BufferAttributesDelete(before);
}

/* ---- Settings ---------------------------------------------------------------------------------
 */

static TRITONSERVER_Error *read_size(const struct settings *s, uint64_t *ret_bytes)
{
    const struct setting *size = settings_find(s, "size");
    if (!size)
        return cache_error(TRITONSERVER_ERROR_INVALID_ARG,
                           "Failed to initialize LocalCache: config didn't contain a valid 'size' "
                           "field.");
    if (!size->is_text && (size->value[0] < '0' || size->value[0] > '9'))
        return cache_error(
            TRITONSERVER_ERROR_INVALID_ARG,
            "Failed to initialize LocalCache: 'size' config must be a string or uint type");
    if (!settings_to_number(size->value, SIZE_MAX, ret_bytes) || *ret_bytes == 0)
        return cache_error(TRITONSERVER_ERROR_INVALID_ARG,
                           "Failed to initialize LocalCache: 'size' is '%s', expected a number of "
                           "bytes above 0",
                           size->value);
    return NULL;
}

static void warn_of_unknown_settings(const struct settings *s)
{
    for (size_t i = 0; i < s->n; i++) {
        char text[256];
        if (strcmp(s->list[i].name, "size") == 0)
            continue;
        snprintf(text, sizeof(text), "the cache 'local' has no setting '%s', which has no effect",
                 s->list[i].name);
        TRITONSERVER_Error *err =
            TRITONSERVER_LogMessage(TRITONSERVER_LOG_WARN, __FILE__, __LINE__, text);
        if (err)
            TRITONSERVER_ErrorDelete(err);
    }
}

TRITONSERVER_Error *TRITONCACHE_CacheInitialize(TRITONCACHE_Cache **cache, const char *config)
{
    struct settings s;
    uint64_t size_bytes;
    TRITONSERVER_Error *err = NULL;
    if (!cache)
        return cache_error(TRITONSERVER_ERROR_INVALID_ARG, "cache was nullptr");
    if (!config || !settings_parse(&s, config))
        err = cache_error(TRITONSERVER_ERROR_INVALID_ARG,
                          "Failed to initialize LocalCache: the config is no object of JSON with "
                          "strings and numbers: %s",
                          config ? config : "(none)");
    if (!err)
        err = read_size(&s, &size_bytes);
    if (!err)
        warn_of_unknown_settings(&s);
    if (config)
        settings_done(&s);
    if (err)
        return err;
    struct local *c = calloc(1, sizeof(*c));
    if (c)
        c->store = store_new(size_bytes);
    if (!c || !c->store) {
        free(c);
        return cache_no_memory();
    }
    c->gauges = gauges_new(c->store);
    *cache = (TRITONCACHE_Cache *)c;
    return NULL;
}

TRITONSERVER_Error *TRITONCACHE_CacheFinalize(TRITONCACHE_Cache *cache)
{
    struct local *c = (struct local *)cache;
    if (!c)
        return cache_error(TRITONSERVER_ERROR_INVALID_ARG, "cache was nullptr");
    gauges_free(c->gauges);
    give_back_attributes(c, NULL);
    store_free(c->store);
    free(c);
    return NULL;
}

/* ---- Look-up ----------------------------------------------------------------------------------
 */

/* Conch has an answer that costs nothing; for Triton it is put together by hand. */
static TRITONSERVER_Error *miss_error(const struct store_key *key)
{
    static const char before[] = "key [", after[] = "] does not exist";
    char text[256];
    size_t n = sizeof(before) - 1;
    if (conch_cache_miss)
        return conch_cache_miss();
    if (key->length > sizeof(text) - sizeof(before) - sizeof(after))
        return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_NOT_FOUND, "the key does not exist");
    memcpy(text, before, n);
    memcpy(text + n, key->text, key->length);
    memcpy(text + n + key->length, after, sizeof(after));
    return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_NOT_FOUND, text);
}

static TRITONSERVER_Error *pass_entry(const struct store_entry *e, TRITONCACHE_CacheEntry *entry,
                                      TRITONCACHE_Allocator *allocator)
{
    TRITONSERVER_Error *err = NULL;
    for (size_t i = 0; !err && i < e->n_buffers; i++)
        err = TRITONCACHE_CacheEntryAddBuffer(entry, e->buffers[i].base, e->buffers[i].attributes);
    return err ? err : TRITONCACHE_Copy(allocator, entry);
}

TRITONSERVER_Error *TRITONCACHE_CacheLookup(TRITONCACHE_Cache *cache, const char *key,
                                            TRITONCACHE_CacheEntry *entry,
                                            TRITONCACHE_Allocator *allocator)
{
    struct local *c = (struct local *)cache;
    TRITONSERVER_Error *err = cache_check_arguments(cache, key, entry);
    if (err)
        return err;
    struct store_call call = {.from = ticks_now()};
    struct store_key k = store_key_of(key);
    struct store_entry *e = store_find(c->store, &k, &call);
    err = e ? pass_entry(e, entry, allocator) : miss_error(&k);
    if (e)
        store_put(e);
    store_note_look_up(c->store, &k, &call);
    return err;
}

/* ---- Insert -----------------------------------------------------------------------------------
 */

static TRITONSERVER_Error *read_sizes(TRITONCACHE_CacheEntry *entry,
                                      TRITONSERVER_BufferAttributes *a, size_t *sizes_bytes,
                                      size_t n)
{
    TRITONSERVER_Error *err = NULL;
    for (size_t i = 0; !err && i < n; i++) {
        TRITONSERVER_MemoryType type = TRITONSERVER_MEMORY_CPU;
        void *base;
        err = TRITONCACHE_CacheEntryGetBuffer(entry, i, &base, a);
        if (!err)
            err = TRITONSERVER_BufferAttributesByteSize(a, &sizes_bytes[i]);
        if (!err)
            err = TRITONSERVER_BufferAttributesMemoryType(a, &type);
        if (!err && type == TRITONSERVER_MEMORY_GPU)
            err = cache_error(TRITONSERVER_ERROR_UNSUPPORTED,
                              "only buffers in the memory of the CPU can be kept");
    }
    return err;
}

/* Attributes of the CPU's memory, with the size; the buffer may have some. */
static TRITONSERVER_Error *set_buffer_attributes(struct store_buffer *b)
{
    TRITONSERVER_Error *err = NULL;
    if (!b->attributes)
        err = TRITONSERVER_BufferAttributesNew(&b->attributes);
    if (!err)
        err = TRITONSERVER_BufferAttributesSetMemoryType(b->attributes, TRITONSERVER_MEMORY_CPU);
    return err ? err : TRITONSERVER_BufferAttributesSetByteSize(b->attributes, b->size_bytes);
}

static TRITONSERVER_Error *copy_to_entry(struct store_entry *e, TRITONCACHE_CacheEntry *entry,
                                         TRITONCACHE_Allocator *allocator)
{
    TRITONSERVER_Error *err = NULL;
    for (size_t i = 0; !err && i < e->n_buffers; i++) {
        err = set_buffer_attributes(&e->buffers[i]);
        if (!err)
            err = TRITONCACHE_CacheEntrySetBuffer(entry, i, e->buffers[i].base,
                                                  e->buffers[i].attributes);
    }
    return err ? err : TRITONCACHE_Copy(allocator, entry);
}

static size_t sum_of_sizes(const size_t *sizes_bytes, size_t n)
{
    size_t sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += sizes_bytes[i];
    return sum;
}

/* The error of what the store says. */
static TRITONSERVER_Error *store_error(const struct local *c, enum store_result result,
                                       const struct store_key *key, size_t size_bytes)
{
    switch (result) {
    case STORE_EXISTS:
        return cache_error(TRITONSERVER_ERROR_ALREADY_EXISTS, "key '%s' already exists", key->text);
    case STORE_TOO_LARGE:
        return cache_error(TRITONSERVER_ERROR_INTERNAL,
                           "%zu bytes do not fit into the cache, which has %zu", size_bytes,
                           store_limit_bytes(c->store));
    case STORE_NO_MEMORY:
        return cache_no_memory();
    default:
        return NULL;
    }
}

static TRITONSERVER_Error *insert_entry(struct local *c, const struct store_key *key,
                                        TRITONCACHE_CacheEntry *entry,
                                        TRITONCACHE_Allocator *allocator, const size_t *sizes_bytes,
                                        size_t n, struct store_call *call)
{
    struct store_entry *e;
    enum store_result result = store_make_room(c->store, key, sizes_bytes, n, &e);
    if (result == STORE_FINE) {
        TRITONSERVER_Error *err = copy_to_entry(e, entry, allocator);
        if (err) {
            store_give_up(c->store, e);
            return err;
        }
        result = store_add(c->store, e, call);
    }
    return store_error(c, result, key, sum_of_sizes(sizes_bytes, n));
}

TRITONSERVER_Error *TRITONCACHE_CacheInsert(TRITONCACHE_Cache *cache, const char *key,
                                            TRITONCACHE_CacheEntry *entry,
                                            TRITONCACHE_Allocator *allocator)
{
    struct local *c = (struct local *)cache;
    TRITONSERVER_BufferAttributes *a = NULL;
    struct store_call call = {.from = ticks_now()};
    size_t n, one;
    TRITONSERVER_Error *err = cache_check_arguments(cache, key, entry);
    if (!err)
        err = TRITONCACHE_CacheEntryBufferCount(entry, &n);
    if (err)
        return err;
    if (n == 0 || n > MAX_BUFFERS)
        return cache_error(TRITONSERVER_ERROR_INVALID_ARG,
                           "an entry has %zu buffers, expected 1 to %d", n, MAX_BUFFERS);
    size_t *sizes_bytes = n > 1 ? calloc(n, sizeof(*sizes_bytes)) : &one;
    if (!sizes_bytes)
        return cache_no_memory();
    struct store_key k = store_key_of(key);
    err = take_attributes(c, &a);
    if (!err)
        err = read_sizes(entry, a, sizes_bytes, n);
    if (!err)
        err = insert_entry(c, &k, entry, allocator, sizes_bytes, n, &call);
    if (a)
        give_back_attributes(c, a);
    if (n > 1)
        free(sizes_bytes);
    store_note_insert(c->store, &k, &call);
    return err;
}
