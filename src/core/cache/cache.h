/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The response cache of a server: a library, <directory>/<name>/libtritoncache_<name>.so, which is
 * loaded when the server is made and unloaded when its models are. A look-up is made before a
 * request waits in a scheduler (sched/cached.h), and the response of a request that was not found
 * is kept before its maker gets it.
 *
 * A library may wait, for a lock or for a network. So event loops and instances do not ask it: a
 * thread of the cache does (posted_look_up.h), and the response of a request is copied and kept by
 * such a thread, too. A library that exports conch_cache_never_waits() (include/conch/cache.h) is
 * called on the thread that has the request or its response.
 *
 * What a library returns is not trusted: any failure is a miss, and is logged. A library that does
 * not return blocks at most CACHE_MAX_POSTED requests; others go on without it.
 *
 * Source: reference/behaviours §17
 */
#ifndef CONCH_CORE_CACHE_CACHE_H
#define CONCH_CORE_CACHE_CACHE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"
#include "base/mutex.h"
#include "core/cache/cache_entry.h"
#include "core/model/model_cache.h"
#include "core/threads/helpers.h"

struct cache_use;
struct dl;
struct request;
struct response;
struct server_options;
struct status;

enum {
    CACHE_MAX_POSTED = 256,            /* look-ups that threads of the cache have to make */
    CACHE_MAX_KEEPING_BYTES = 64 << 20 /* responses that they have to keep */
};

/* What a cache implements; all are mandatory. */
struct cache_functions {
    struct status *(*initialize)(void **ret_cache, const char *config);
    struct status *(*finalize)(void *cache);
    struct status *(*look_up)(void *cache, const char *key, struct cache_entry *entry,
                              struct cache_copier *copier);
    struct status *(*insert)(void *cache, const char *key, struct cache_entry *entry,
                             struct cache_copier *copier);
};

struct cache {
    /* Constant. */
    char *name, *path, *config;
    struct dl *library;
    struct cache_functions fns;
    void *of_library; /* the object that Initialize has made */
    bool never_waits;

    struct helpers threads;
    struct mutex mu; /* level 862 in core/README.md; guards the claims of posted look-ups */
    /* Any thread. */
    atomic_uint n_posted;
    atomic_size_t keeping_bytes;
};

/*
 * cache_open - loads and initialises the cache that the options name. *ret_cache is NULL when they
 * name none.
 *
 * Thread: the one that makes the server.
 * Errors: STATUS_INVALID_ARG  several caches; the library is not there; no directory is named
 *         STATUS_NOT_FOUND    the library cannot be loaded, or lacks a function
 *         as Initialize returns them
 */
NODISCARD struct status *cache_open(const struct server_options *options, struct cache **ret_cache);

/* cache_close - waits for the cache's threads, finalises and unloads it. No model has it any more.
 * NULL is fine. */
void cache_close(struct cache *c);

/* cache_keep, cache_hold, cache_keep_held - keep, hold, keep_held of model_cache: see there. */
void cache_keep(const struct response *resp);
struct held_response *cache_hold(const struct response *resp);
void cache_keep_held(const struct request *r, struct held_response *h);

/*
 * cache_look_up - asks for the response to the request. NULL: there is none, or the cache has
 * failed. The caller ends a response as one of response_new().
 *
 * Thread: any that holds the request, without locks; waits as long as the library does.
 * @key  that of the request
 */
struct response *cache_look_up(struct request *r);

/* cache_look_up_claiming - the same for a request that is claimed once the cache has its response;
 * NULL, too, when it cannot be claimed. */
struct response *cache_look_up_claiming(struct cache *c, struct cache_key key,
                                        struct cache_claim *claim);

#endif
