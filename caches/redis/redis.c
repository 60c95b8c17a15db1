/* SPDX-License-Identifier: Apache-2.0 */
/*
 * redis - a response cache in a Redis server: `--cache-config redis,host=<name>`. Several servers
 * may share it. Each entry is a string of Redis under "conch:<key>":
 *
 *     8 bytes  number of buffers
 *     8 bytes  the size of each
 *     …        their bytes, one after the other
 *
 * When Redis is away a look-up finds nothing and an insert keeps nothing, at once (pool.h). What it
 * drops, and when, is Redis' own matter (maxmemory-policy). It also runs under Triton.
 */
#include <hiredis/hiredis.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cache_error.h"
#include "common/cache_settings.h"
#include "redis/pool.h"
#include "triton/core/tritoncache.h"

enum {
    MAX_BUFFERS = 4096,
    MAX_KEY = 256,
    MAX_POOL = 1024,
    MAX_TIMEOUT_MS = 3600000,
    ERROR_BYTES = 256,
    MAX_VALUE_BYTES = 512 << 20, /* of a string of Redis */
};

/* ---- Settings ---------------------------------------------------------------------------------
 */

struct number_setting {
    const char *name;
    uint64_t least, most, initial, *to;
};

static bool is_of_tls(const char *name)
{
    static const char *const names[] = {"cert", "key", "cacert", "cert_dir", "sni"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strcmp(name, names[i]) == 0)
            return true;
    }
    return strncmp(name, "tls", 3) == 0;
}

/* Debian's hiredis has no TLS. */
static TRITONSERVER_Error *refuse_tls(const struct settings *s)
{
    for (size_t i = 0; i < s->n; i++) {
        if (is_of_tls(s->list[i].name) && strcmp(s->list[i].value, "false") != 0)
            return cache_error(TRITONSERVER_ERROR_UNSUPPORTED,
                               "Failed to initialize RedisCache: TLS is not supported, which "
                               "the setting '%s' is for",
                               s->list[i].name);
    }
    return NULL;
}

static TRITONSERVER_Error *read_redis_number(const struct settings *s,
                                             const struct number_setting *n)
{
    const struct setting *given = settings_find(s, n->name);
    *n->to = n->initial;
    if (!given || (settings_to_number(given->value, n->most, n->to) && *n->to >= n->least))
        return NULL;
    return cache_error(TRITONSERVER_ERROR_INVALID_ARG,
                       "Failed to initialize RedisCache: '%s' is '%s', expected a number from "
                       "%llu to %llu",
                       n->name, given->value, (unsigned long long)n->least,
                       (unsigned long long)n->most);
}

static const char *text_setting(const struct settings *s, const char *name, const char *variable)
{
    const struct setting *given = settings_find(s, name);
    const char *text = given ? given->value : getenv(variable);
    return text && *text ? text : NULL;
}

static TRITONSERVER_Error *read_redis_settings(const struct settings *s, struct pool_settings *ret)
{
    uint64_t port, db, size;
    const struct setting *host = settings_find(s, "host");
    const struct number_setting numbers[] = {
        {"port", 1, 65535, 6379, &port},
        {"db", 0, 1 << 20, 0, &db},
        {"pool_size", 1, MAX_POOL, 8, &size},
        {"connect_timeout", 1, MAX_TIMEOUT_MS, 250, &ret->connect_timeout_ms},
        {"socket_timeout", 1, MAX_TIMEOUT_MS, 250, &ret->socket_timeout_ms},
        {"wait_timeout", 0, MAX_TIMEOUT_MS, 100, &ret->wait_timeout_ms},
    };
    TRITONSERVER_Error *err = refuse_tls(s);
    if (!err && (!host || !*host->value))
        err = cache_error(TRITONSERVER_ERROR_INVALID_ARG,
                          "Failed to initialize RedisCache: the setting 'host' is missing");
    for (size_t i = 0; !err && i < sizeof(numbers) / sizeof(numbers[0]); i++)
        err = read_redis_number(s, &numbers[i]);
    if (err)
        return err;
    ret->host = host->value;
    ret->user = text_setting(s, "user", "TRITONCACHE_REDIS_USERNAME");
    ret->password = text_setting(s, "password", "TRITONCACHE_REDIS_PASSWORD");
    ret->port = (unsigned int)port;
    ret->db = (unsigned int)db;
    ret->size = (unsigned int)size;
    return NULL;
}

/* A Redis that is away may come later; one that refuses the login is a mistake in the settings. */
static TRITONSERVER_Error *try_redis(struct pool *p)
{
    static const char *ping[] = {"PING"};
    char error[ERROR_BYTES];
    redisReply *reply;
    enum pool_result result = pool_command(p, 1, ping, NULL, &reply, error, sizeof(error));
    if (result == POOL_REFUSED)
        return cache_error(TRITONSERVER_ERROR_INVALID_ARG,
                           "Failed to initialize RedisCache: Redis answers to %s", error);
    if (result != POOL_OK)
        return NULL;
    TRITONSERVER_Error *err =
        reply->type == REDIS_REPLY_ERROR
            ? cache_error(TRITONSERVER_ERROR_INVALID_ARG,
                          "Failed to initialize RedisCache: Redis answers to PING: %s", reply->str)
            : NULL;
    freeReplyObject(reply);
    return err;
}

TRITONSERVER_Error *TRITONCACHE_CacheInitialize(TRITONCACHE_Cache **cache, const char *config)
{
    struct settings s;
    struct pool_settings pool_settings;
    struct pool *p = NULL;
    if (!cache || !config)
        return cache_error(TRITONSERVER_ERROR_INVALID_ARG, "%s was nullptr",
                           cache ? "config" : "cache");
    TRITONSERVER_Error *err =
        settings_parse(&s, config)
            ? read_redis_settings(&s, &pool_settings)
            : cache_error(TRITONSERVER_ERROR_INVALID_ARG,
                          "Failed to initialize RedisCache: the config is no object of JSON "
                          "with strings and numbers");
    if (!err)
        p = pool_new(&pool_settings);
    settings_done(&s);
    if (err)
        return err;
    err = p ? try_redis(p) : cache_no_memory();
    if (err)
        pool_free(p);
    else
        *cache = (TRITONCACHE_Cache *)p;
    return err;
}

TRITONSERVER_Error *TRITONCACHE_CacheFinalize(TRITONCACHE_Cache *cache)
{
    if (!cache)
        return cache_error(TRITONSERVER_ERROR_INVALID_ARG, "cache was nullptr");
    pool_free((struct pool *)cache);
    return NULL;
}

/* Prints the name under which Redis has the entry; false: the key is too long. */
static bool print_redis_name(char name[MAX_KEY], const char *key)
{
    return snprintf(name, MAX_KEY, "conch:%s", key) < MAX_KEY;
}

static TRITONSERVER_Error *check_call(TRITONCACHE_Cache *cache, const char *key,
                                      TRITONCACHE_CacheEntry *entry, char name[MAX_KEY])
{
    TRITONSERVER_Error *err = cache_check_arguments(cache, key, entry);
    if (!err && !print_redis_name(name, key))
        err =
            cache_error(TRITONSERVER_ERROR_INVALID_ARG, "the key is longer than %d bytes", MAX_KEY);
    return err;
}

/* ---- Look-up ----------------------------------------------------------------------------------
 */

static TRITONSERVER_Error *add_redis_buffer(TRITONCACHE_CacheEntry *entry, char *base, uint64_t n)
{
    TRITONSERVER_BufferAttributes *a;
    TRITONSERVER_Error *err = TRITONSERVER_BufferAttributesNew(&a);
    if (err)
        return err;
    err = TRITONSERVER_BufferAttributesSetByteSize(a, n);
    if (!err)
        err = TRITONSERVER_BufferAttributesSetMemoryType(a, TRITONSERVER_MEMORY_CPU);
    if (!err)
        err = TRITONCACHE_CacheEntryAddBuffer(entry, base, a);
    TRITONSERVER_BufferAttributesDelete(a);
    return err;
}

static TRITONSERVER_Error *pass_value(char *value, size_t size_bytes, TRITONCACHE_CacheEntry *entry,
                                      TRITONCACHE_Allocator *allocator)
{
    uint64_t n = 0, size;
    TRITONSERVER_Error *err = NULL;
    if (size_bytes >= sizeof(n))
        memcpy(&n, value, sizeof(n));
    if (n == 0 || n > MAX_BUFFERS || size_bytes < (n + 1) * sizeof(n))
        return cache_error(TRITONSERVER_ERROR_INTERNAL,
                           "what Redis has under the key is no entry of this cache");
    size_t at = (n + 1) * sizeof(n);
    for (uint64_t i = 0; !err && i < n; i++) {
        memcpy(&size, value + (i + 1) * sizeof(size), sizeof(size));
        if (size > size_bytes - at)
            return cache_error(TRITONSERVER_ERROR_INTERNAL,
                               "what Redis has under the key is cut off");
        err = add_redis_buffer(entry, value + at, size);
        at += size;
    }
    return err ? err : TRITONCACHE_Copy(allocator, entry);
}

static TRITONSERVER_Error *redis_miss(const char *key)
{
    return cache_error(TRITONSERVER_ERROR_NOT_FOUND, "key [%s] does not exist", key);
}

TRITONSERVER_Error *TRITONCACHE_CacheLookup(TRITONCACHE_Cache *cache, const char *key,
                                            TRITONCACHE_CacheEntry *entry,
                                            TRITONCACHE_Allocator *allocator)
{
    char name[MAX_KEY], error[ERROR_BYTES];
    redisReply *reply;
    TRITONSERVER_Error *err = check_call(cache, key, entry, name);
    if (err)
        return err;
    const char *args[] = {"GET", name};
    enum pool_result result =
        pool_command((struct pool *)cache, 2, args, NULL, &reply, error, sizeof(error));
    if (result == POOL_AWAY)
        return redis_miss(key);
    if (result == POOL_REFUSED)
        return cache_error(TRITONSERVER_ERROR_UNAVAILABLE, "Redis answers to %s", error);
    switch (reply->type) {
    case REDIS_REPLY_STRING:
        err = pass_value(reply->str, (size_t)reply->len, entry, allocator);
        break;
    case REDIS_REPLY_NIL:
        err = redis_miss(key);
        break;
    default:
        err = cache_error(TRITONSERVER_ERROR_INTERNAL, "Redis answers to GET: %s",
                          reply->type == REDIS_REPLY_ERROR ? reply->str : "no string");
    }
    freeReplyObject(reply);
    return err;
}

/* ---- Insert -----------------------------------------------------------------------------------
 */

/* Reads the sizes of the server's buffers into the head of a value. */
static TRITONSERVER_Error *read_buffer_sizes(TRITONCACHE_CacheEntry *entry, uint64_t *sizes,
                                             size_t n, TRITONSERVER_BufferAttributes *a,
                                             size_t *ret_total)
{
    TRITONSERVER_Error *err = NULL;
    size_t total = 0;
    for (size_t i = 0; !err && i < n; i++) {
        size_t size = 0;
        void *base;
        err = TRITONCACHE_CacheEntryGetBuffer(entry, i, &base, a);
        if (!err)
            err = TRITONSERVER_BufferAttributesByteSize(a, &size);
        if (!err && size > MAX_VALUE_BYTES - total)
            err = cache_error(TRITONSERVER_ERROR_INTERNAL, "a string of Redis has at most %d bytes",
                              MAX_VALUE_BYTES);
        sizes[i] = size;
        total += size;
    }
    *ret_total = total;
    return err;
}

/* Has the server copy the bytes behind the head; the value is the caller's. */
static TRITONSERVER_Error *make_value(TRITONCACHE_CacheEntry *entry,
                                      TRITONCACHE_Allocator *allocator, size_t n,
                                      TRITONSERVER_BufferAttributes *a, char **ret_value,
                                      size_t *ret_bytes)
{
    size_t head = (n + 1) * sizeof(uint64_t), total;
    uint64_t sizes[MAX_BUFFERS + 1];
    TRITONSERVER_Error *err = read_buffer_sizes(entry, sizes + 1, n, a, &total);
    if (err)
        return err;
    sizes[0] = n;
    char *value = malloc(head + total);
    if (!value)
        return cache_no_memory();
    memcpy(value, sizes, head);
    size_t at = head;
    for (size_t i = 0; !err && i < n; i++) {
        err = TRITONSERVER_BufferAttributesSetByteSize(a, sizes[i + 1]);
        if (!err)
            err = TRITONSERVER_BufferAttributesSetMemoryType(a, TRITONSERVER_MEMORY_CPU);
        if (!err)
            err = TRITONCACHE_CacheEntrySetBuffer(entry, i, value + at, a);
        at += sizes[i + 1];
    }
    if (!err)
        err = TRITONCACHE_Copy(allocator, entry);
    if (err) {
        free(value);
        return err;
    }
    *ret_value = value;
    *ret_bytes = head + total;
    return NULL;
}

static TRITONSERVER_Error *store_value(struct pool *p, const char *key, const char *name,
                                       const char *value, size_t size_bytes)
{
    char error[ERROR_BYTES];
    redisReply *reply;
    const char *args[] = {"SET", name, value, "NX"};
    const size_t lengths[] = {3, strlen(name), size_bytes, 2};
    enum pool_result result = pool_command(p, 4, args, lengths, &reply, error, sizeof(error));
    if (result == POOL_AWAY)
        return NULL; /* the log has said so */
    if (result == POOL_REFUSED)
        return cache_error(TRITONSERVER_ERROR_UNAVAILABLE, "Redis answers to %s", error);
    TRITONSERVER_Error *err = NULL;
    if (reply->type == REDIS_REPLY_ERROR)
        err = cache_error(TRITONSERVER_ERROR_UNAVAILABLE, "Redis answers to SET: %s", reply->str);
    else if (reply->type == REDIS_REPLY_NIL)
        err = cache_error(TRITONSERVER_ERROR_ALREADY_EXISTS, "key '%s' already exists", key);
    freeReplyObject(reply);
    return err;
}

TRITONSERVER_Error *TRITONCACHE_CacheInsert(TRITONCACHE_Cache *cache, const char *key,
                                            TRITONCACHE_CacheEntry *entry,
                                            TRITONCACHE_Allocator *allocator)
{
    char name[MAX_KEY], *value = NULL;
    TRITONSERVER_BufferAttributes *a = NULL;
    size_t n, size_bytes;
    TRITONSERVER_Error *err = check_call(cache, key, entry, name);
    if (!err)
        err = TRITONCACHE_CacheEntryBufferCount(entry, &n);
    if (err)
        return err;
    if (n == 0 || n > MAX_BUFFERS)
        return cache_error(TRITONSERVER_ERROR_INVALID_ARG,
                           "an entry has %zu buffers, expected 1 to %d", n, MAX_BUFFERS);
    err = TRITONSERVER_BufferAttributesNew(&a);
    if (err)
        return err;
    err = make_value(entry, allocator, n, a, &value, &size_bytes);
    TRITONSERVER_BufferAttributesDelete(a);
    if (!err)
        err = store_value((struct pool *)cache, key, name, value, size_bytes);
    free(value);
    return err;
}
