/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Texts are cut to a bound, so that an error costs one allocation, the server's.
 */
#include "common/cache_error.h"

#include <stdarg.h>
#include <stdio.h>

TRITONSERVER_Error *cache_error(TRITONSERVER_Error_Code code, const char *format, ...)
{
    char text[512];
    va_list ap;
    va_start(ap, format);
    vsnprintf(text, sizeof(text), format, ap);
    va_end(ap);
    return TRITONSERVER_ErrorNew(code, text);
}

TRITONSERVER_Error *cache_no_memory(void)
{
    return cache_error(TRITONSERVER_ERROR_UNAVAILABLE, "out of memory");
}

TRITONSERVER_Error *cache_check_arguments(const TRITONCACHE_Cache *cache, const char *key,
                                          const TRITONCACHE_CacheEntry *entry)
{
    const char *missing = !cache ? "cache" : !key ? "key" : !entry ? "entry" : NULL;
    return missing ? cache_error(TRITONSERVER_ERROR_INVALID_ARG, "%s was nullptr", missing) : NULL;
}
