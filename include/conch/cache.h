/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What Conch looks for in a response cache besides tritoncache.h. Triton does not look for it, so
 * the same library serves both.
 */
#ifndef CONCH_CACHE_H
#define CONCH_CACHE_H

#include <stdbool.h>

#include "triton/core/tritoncache.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * conch_cache_never_waits - a function that a cache may define: true when CacheLookup and
 * CacheInsert wait for nothing. That is, they open no file, make no call over a network, do not
 * sleep, and take no lock that another thread holds for longer than a few hundred instructions.
 *
 * The server then calls them on the thread that has the request or its response, such as one that
 * reads network connections. It calls a cache without the function, or whose function returns
 * false, on threads of their own, but for requests of programs that embed the server: their look-up
 * is made inside TRITONSERVER_ServerInferAsync, as in Triton.
 *
 * Thread: the one that loads the cache, once, before CacheInitialize.
 */
TRITONCACHE_ISPEC bool conch_cache_never_waits(void);

#ifdef __cplusplus
}
#endif

#endif
