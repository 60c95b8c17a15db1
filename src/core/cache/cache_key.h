/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The key of a request in the cache: XXH3-128 over everything that its response depends on. That is
 * the model's name and version, which load of it, name, data type, shape and bytes of each input,
 * whatever their order, the requested outputs, and the request's parameters. Its id, priority and
 * timeouts are not part of the key.
 *
 * A load has a random number, so that no response outlives the model that has computed it. The
 * model's parameter CONCH_CACHE_ID replaces that number by a text: loads with the same text share
 * their responses, also those of other servers that use the same Redis.
 *
 * Source: reference/behaviours §17.1; docs/compatibility.md has the differences
 */
#ifndef CONCH_CORE_CACHE_CACHE_KEY_H
#define CONCH_CORE_CACHE_CACHE_KEY_H

#include <stdbool.h>
#include <stdint.h>

#include "core/model/model_cache.h"

struct model;
struct request;

enum { CACHE_KEY_TEXT_BYTES = 33 }; /* 32 digits and a NUL */

/* cache_key_of_load - the beginning of the keys of this load; the second call for a model gives
 * another one, unless the model has a CONCH_CACHE_ID. */
struct cache_key cache_key_of_load(const struct model *m);

/*
 * cache_key_of - the key of an admitted request of a model that has a cache. Allocates nothing.
 * False: an input is in the memory of a GPU.
 *
 * Thread: any that holds the request.
 */
bool cache_key_of(const struct request *r, struct cache_key *ret_key);

void cache_key_print(struct cache_key key, char ret_text[CACHE_KEY_TEXT_BYTES]);

#endif
