/* SPDX-License-Identifier: Apache-2.0 */
/*
 * local - the response cache in the memory of the server's process: `--cache-config
 * local,size=<bytes>`. It keeps entries up to that size, with what they need besides their bytes,
 * and drops the least recently used ones (store.h).
 *
 * It also runs under Triton. Source: reference/behaviours §17.6
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cache_error.h"
#include "common/cache_settings.h"
#include "conch/cache.h"
#include "local/gauges.h"
#include "local/store.h"

enum { MAX_BUFFERS = 4096 };

/* The cache that Initialize makes. */
struct local {
    struct store *store;
    struct gauges *gauges; /* NULL: the server has no metrics */
};

/* Locks are held for a few hundred instructions. */
bool conch_cache_never_waits(void)
{
    return true;
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
    store_free(c->store);
    free(c);
    return NULL;
}

/* ---- Look-up ----------------------------------------------------------------------------------
 */

/* Put together by hand: each miss makes one. */
static TRITONSERVER_Error *miss_error(const struct store_key *key)
{
    static const char before[] = "key [", after[] = "] does not exist";
    char text[256];
    size_t n = sizeof(before) - 1;
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
    uint64_t from_ns = store_now_ns();
    struct store_key k = store_key_of(key);
    struct store_entry *e = store_find(c->store, &k, from_ns);
    err = e ? pass_entry(e, entry, allocator) : miss_error(&k);
    if (e)
        store_put(e);
    store_note_look_up(c->store, &k, store_now_ns() - from_ns);
    return err;
}

/* ---- Insert -----------------------------------------------------------------------------------
 */

/* The server's buffers: their sizes, and attributes for those that are to replace them. */
static TRITONSERVER_Error *read_buffers(TRITONCACHE_CacheEntry *entry, struct store_buffer *buffers,
                                        size_t n)
{
    TRITONSERVER_Error *err = NULL;
    for (size_t i = 0; !err && i < n; i++) {
        struct store_buffer *b = &buffers[i];
        TRITONSERVER_MemoryType type = TRITONSERVER_MEMORY_CPU;
        void *base;
        err = TRITONSERVER_BufferAttributesNew(&b->attributes);
        if (!err)
            err = TRITONCACHE_CacheEntryGetBuffer(entry, i, &base, b->attributes);
        if (!err)
            err = TRITONSERVER_BufferAttributesByteSize(b->attributes, &b->size_bytes);
        if (!err)
            err = TRITONSERVER_BufferAttributesMemoryType(b->attributes, &type);
        if (!err && type == TRITONSERVER_MEMORY_GPU)
            err = cache_error(TRITONSERVER_ERROR_UNSUPPORTED,
                              "only buffers in the memory of the CPU can be kept");
        if (!err)
            err =
                TRITONSERVER_BufferAttributesSetMemoryType(b->attributes, TRITONSERVER_MEMORY_CPU);
    }
    return err;
}

/* Makes an entry with a copy of the server's bytes. */
static TRITONSERVER_Error *copy_entry(const struct store_key *key, TRITONCACHE_CacheEntry *entry,
                                      TRITONCACHE_Allocator *allocator,
                                      struct store_buffer *buffers, size_t n,
                                      struct store_entry **ret_entry)
{
    TRITONSERVER_Error *err = read_buffers(entry, buffers, n);
    if (err)
        return err;
    struct store_entry *e = store_entry_new(key, buffers, n);
    if (!e)
        return cache_no_memory();
    for (size_t i = 0; i < n; i++)
        buffers[i].attributes = NULL; /* the entry's now */
    for (size_t i = 0; !err && i < n; i++)
        err =
            TRITONCACHE_CacheEntrySetBuffer(entry, i, e->buffers[i].base, e->buffers[i].attributes);
    if (!err)
        err = TRITONCACHE_Copy(allocator, entry);
    if (err)
        store_put(e);
    else
        *ret_entry = e;
    return err;
}

static TRITONSERVER_Error *exists_error(const struct store_key *key)
{
    return cache_error(TRITONSERVER_ERROR_ALREADY_EXISTS, "key '%s' already exists", key->text);
}

static TRITONSERVER_Error *insert_entry(struct local *c, const struct store_key *key,
                                        TRITONCACHE_CacheEntry *entry,
                                        TRITONCACHE_Allocator *allocator,
                                        struct store_buffer *buffers, size_t n, uint64_t now_ns)
{
    struct store_entry *e = NULL;
    TRITONSERVER_Error *err = copy_entry(key, entry, allocator, buffers, n, &e);
    if (err)
        return err;
    size_t bytes = e->charged_bytes;
    switch (store_add(c->store, e, now_ns)) {
    case STORE_EXISTS:
        return exists_error(key);
    case STORE_TOO_LARGE:
        return cache_error(TRITONSERVER_ERROR_INTERNAL,
                           "%zu bytes do not fit into the cache, which has %zu", bytes,
                           store_limit_bytes(c->store));
    default:
        return NULL;
    }
}

TRITONSERVER_Error *TRITONCACHE_CacheInsert(TRITONCACHE_Cache *cache, const char *key,
                                            TRITONCACHE_CacheEntry *entry,
                                            TRITONCACHE_Allocator *allocator)
{
    struct local *c = (struct local *)cache;
    size_t n;
    TRITONSERVER_Error *err = cache_check_arguments(cache, key, entry);
    if (err)
        return err;
    uint64_t from_ns = store_now_ns();
    struct store_key k = store_key_of(key);
    if (store_has(c->store, &k))
        return exists_error(&k);
    err = TRITONCACHE_CacheEntryBufferCount(entry, &n);
    if (err)
        return err;
    if (n == 0 || n > MAX_BUFFERS)
        return cache_error(TRITONSERVER_ERROR_INVALID_ARG,
                           "an entry has %zu buffers, expected 1 to %d", n, MAX_BUFFERS);
    struct store_buffer one = {0}, *many = n > 1 ? calloc(n, sizeof(*many)) : NULL;
    struct store_buffer *buffers = n > 1 ? many : &one;
    if (!buffers)
        return cache_no_memory();
    err = insert_entry(c, &k, entry, allocator, buffers, n, from_ns);
    for (size_t i = 0; i < n; i++) {
        if (buffers[i].attributes)
            TRITONSERVER_BufferAttributesDelete(buffers[i].attributes);
    }
    free(many);
    store_note_insert(c->store, &k, store_now_ns() - from_ns);
    return err;
}
