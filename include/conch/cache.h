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

/*
 * conch_cache_miss - what CacheLookup may return when there is no entry: an error of the code
 * NOT_FOUND that costs nothing, while TRITONSERVER_ErrorNew allocates one with a text. Only Conch
 * has the function. A library that also runs in Triton declares it once more, as weak, and looks
 * whether it is there:
 *
 *     extern __typeof__(conch_cache_miss) conch_cache_miss __attribute__((weak));
 *     …
 *     return conch_cache_miss ? conch_cache_miss() : TRITONSERVER_ErrorNew(…);
 *
 * Thread: any.
 */
TRITONCACHE_DECLSPEC TRITONSERVER_Error *conch_cache_miss(void);

#ifdef __cplusplus
}
#endif

#endif
