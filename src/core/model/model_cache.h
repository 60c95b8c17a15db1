/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a model has of the response cache, when its configuration enables it and the server has one;
 * core/cache/ implements it.
 */
#ifndef CONCH_CORE_MODEL_MODEL_CACHE_H
#define CONCH_CORE_MODEL_MODEL_CACHE_H

#include <stdint.h>

struct cache;
struct held_response;
struct request;
struct response;

/* 128 bits of XXH3. */
struct cache_key {
    uint64_t low, high;
};

/* Constant once the model is loaded. */
struct model_cache {
    struct cache *cache;   /* the server's, which outlives the model */
    struct cache_key load; /* of name, version and load: the beginning of each request's key */
    /*
     * Keeps the response of a request that was not found (request.cache.missed), unless it cannot
     * be kept. Thread: the one that sends the response, before its maker gets it; without locks.
     */
    void (*keep)(const struct response *resp);
    /*
     * The same for a response whose final flag comes alone: hold() copies it into a block of the
     * request's pool, NULL if it cannot be kept; keep_held() keeps and frees the copy, before the
     * maker gets the flag.
     */
    struct held_response *(*hold)(const struct response *resp);
    void (*keep_held)(const struct request *r, struct held_response *held);
    /*
     * Has a request answered that waits for its look-up (request.cache.posted), unless the look-up
     * ends first. Thread: any, also with locks held that the answer takes: a helper answers.
     */
    void (*cancel)(struct request *r);
};

#endif
