/* SPDX-License-Identifier: Apache-2.0 */
/*
 * odd - a response cache that breaks rules on purpose, and otherwise keeps everything for ever.
 *
 * The setting `do` says how:
 *
 *     keep      as it should
 *     lie       a look-up succeeds without a copy
 *     cut       a look-up passes half of the bytes; `garble`: each 5th byte is another; `long`: it
 *               passes 16 bytes more; `empty`: none; `several`: two buffers; `null`: a buffer at
 * NULL twice     it copies twice fail      a look-up fails after the copy; `refuse`: before it full
 * an insert fails; `short`: its buffer is too small many      it adds a hundred buffers hold      a
 * look-up waits while the file at `file` exists, after it has made <file>.reached no_cache
 * Initialize succeeds and makes none
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/cache_settings.h"
#include "triton/core/tritoncache.h"

struct kept {
    struct kept *next;
    char *key, *bytes;
    size_t n;
};

struct odd {
    char what[32], file[4096];
    pthread_mutex_t mu;
    struct kept *all; /* under mu; constant once in the list */
};

static bool does(const struct odd *o, const char *what)
{
    return strcmp(o->what, what) == 0;
}

static TRITONSERVER_Error *oops(TRITONSERVER_Error_Code code)
{
    return TRITONSERVER_ErrorNew(code, "the odd cache says no");
}

TRITONSERVER_Error *TRITONCACHE_CacheInitialize(TRITONCACHE_Cache **cache, const char *config)
{
    struct settings s;
    if (!settings_parse(&s, config)) {
        settings_done(&s);
        return oops(TRITONSERVER_ERROR_INVALID_ARG);
    }
    const struct setting *what = settings_find(&s, "do"), *file = settings_find(&s, "file");
    struct odd *o = calloc(1, sizeof(*o));
    snprintf(o->what, sizeof(o->what), "%s", what ? what->value : "keep");
    snprintf(o->file, sizeof(o->file), "%s", file ? file->value : "");
    settings_done(&s);
    pthread_mutex_init(&o->mu, NULL);
    if (does(o, "no_cache"))
        free(o);
    else
        *cache = (TRITONCACHE_Cache *)o;
    return NULL;
}

TRITONSERVER_Error *TRITONCACHE_CacheFinalize(TRITONCACHE_Cache *cache)
{
    struct odd *o = (struct odd *)cache;
    while (o->all) {
        struct kept *k = o->all;
        o->all = k->next;
        free(k->key);
        free(k->bytes);
        free(k);
    }
    pthread_mutex_destroy(&o->mu);
    free(o);
    return NULL;
}

static struct kept *find(struct odd *o, const char *key)
{
    pthread_mutex_lock(&o->mu);
    struct kept *k = o->all;
    while (k && strcmp(k->key, key) != 0)
        k = k->next;
    pthread_mutex_unlock(&o->mu);
    return k;
}

static void hold(const struct odd *o)
{
    char reached[sizeof(o->file) + 16];
    const struct timespec moment = {.tv_nsec = 1000000};
    snprintf(reached, sizeof(reached), "%s.reached", o->file);
    if (access(o->file, F_OK) != 0)
        return;
    FILE *f = fopen(reached, "w");
    if (f)
        fclose(f);
    while (access(o->file, F_OK) == 0)
        nanosleep(&moment, NULL);
}

static TRITONSERVER_Error *add(TRITONCACHE_CacheEntry *entry, void *base, size_t n)
{
    TRITONSERVER_BufferAttributes *a;
    TRITONSERVER_BufferAttributesNew(&a);
    TRITONSERVER_BufferAttributesSetByteSize(a, n);
    TRITONSERVER_Error *err = TRITONCACHE_CacheEntryAddBuffer(entry, base, a);
    TRITONSERVER_BufferAttributesDelete(a);
    return err;
}

static TRITONSERVER_Error *pass(struct odd *o, char *bytes, size_t n, TRITONCACHE_CacheEntry *entry,
                                TRITONCACHE_Allocator *allocator)
{
    TRITONSERVER_Error *err = NULL;
    if (does(o, "garble")) {
        for (size_t i = 0; i < n; i += 5)
            bytes[i] = (char)(bytes[i] + 1);
    }
    if (does(o, "cut"))
        n /= 2;
    if (does(o, "long"))
        n += 16;
    if (does(o, "empty"))
        n = 0;
    if (does(o, "null"))
        return add(entry, NULL, n);
    for (int i = does(o, "many") ? 100 : does(o, "several") ? 2 : 1; !err && i > 0; i--)
        err = add(entry, bytes, n);
    if (!err)
        err = TRITONCACHE_Copy(allocator, entry);
    if (!err && does(o, "twice"))
        err = TRITONCACHE_Copy(allocator, entry);
    if (!err && does(o, "fail"))
        err = oops(TRITONSERVER_ERROR_INTERNAL);
    return err;
}

TRITONSERVER_Error *TRITONCACHE_CacheLookup(TRITONCACHE_Cache *cache, const char *key,
                                            TRITONCACHE_CacheEntry *entry,
                                            TRITONCACHE_Allocator *allocator)
{
    struct odd *o = (struct odd *)cache;
    if (does(o, "hold"))
        hold(o);
    struct kept *k = find(o, key);
    if (!k)
        return oops(TRITONSERVER_ERROR_NOT_FOUND);
    if (does(o, "lie"))
        return NULL;
    if (does(o, "refuse"))
        return oops(TRITONSERVER_ERROR_UNAVAILABLE);
    char *bytes = calloc(1, k->n + 16); /* gone after the copy, as the contract allows */
    memcpy(bytes, k->bytes, k->n);
    TRITONSERVER_Error *err = pass(o, bytes, k->n, entry, allocator);
    free(bytes);
    return err;
}

/* Has the server copy the bytes into a buffer of ours. */
static TRITONSERVER_Error *take_bytes(struct odd *o, TRITONCACHE_CacheEntry *entry,
                                      TRITONCACHE_Allocator *allocator, struct kept *k)
{
    TRITONSERVER_BufferAttributes *a;
    void *base;
    TRITONSERVER_BufferAttributesNew(&a);
    TRITONSERVER_Error *err = TRITONCACHE_CacheEntryGetBuffer(entry, 0, &base, a);
    if (!err) {
        TRITONSERVER_BufferAttributesByteSize(a, &k->n);
        k->bytes = malloc(k->n);
        TRITONSERVER_BufferAttributesSetByteSize(a, does(o, "short") ? k->n / 2 : k->n);
        err = TRITONCACHE_CacheEntrySetBuffer(entry, 0, k->bytes, a);
    }
    TRITONSERVER_BufferAttributesDelete(a);
    return err ? err : TRITONCACHE_Copy(allocator, entry);
}

TRITONSERVER_Error *TRITONCACHE_CacheInsert(TRITONCACHE_Cache *cache, const char *key,
                                            TRITONCACHE_CacheEntry *entry,
                                            TRITONCACHE_Allocator *allocator)
{
    struct odd *o = (struct odd *)cache;
    if (does(o, "full"))
        return oops(TRITONSERVER_ERROR_INTERNAL);
    if (find(o, key))
        return oops(TRITONSERVER_ERROR_ALREADY_EXISTS);
    struct kept *k = calloc(1, sizeof(*k));
    TRITONSERVER_Error *err = take_bytes(o, entry, allocator, k);
    if (err) {
        free(k->bytes);
        free(k);
        return err;
    }
    k->key = strdup(key);
    pthread_mutex_lock(&o->mu);
    k->next = o->all;
    o->all = k;
    pthread_mutex_unlock(&o->mu);
    return NULL;
}
