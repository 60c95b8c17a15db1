/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the options of all services in conch.h have in common: defaults from options.def, and a size
 * as their first member.
 */
#ifndef CONCH_FRONTENDS_SERVE_SERVICE_OPTIONS_H
#define CONCH_FRONTENDS_SERVE_SERVICE_OPTIONS_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"

/* option_default - a default, multiplied by the factor; true and false are 1 and 0. */
static inline int64_t option_default(const char *text, int64_t factor)
{
    return strcmp(text, "true") == 0 ? 1 : strtoll(text, NULL, 10) * factor;
}

/*
 * service_options_take - copies what a caller has set over the defaults in *ret. The caller's
 * header may be older than ours: then its structure is smaller, and the members behind it keep
 * their defaults.
 *
 * @function  the caller's, for the error: "conch_http_start"
 * @given     NULL: an argument is missing
 * @n_bytes   of *ret
 * Errors:    STATUS_INVALID_ARG
 */
NODISCARD static inline struct status *service_options_take(const char *function, const void *given,
                                                            void *ret, size_t n_bytes)
{
    size_t n_given = 0;
    if (given)
        memcpy(&n_given, given, sizeof(n_given));
    if (n_given == 0 || n_given > n_bytes)
        return status_new(STATUS_INVALID_ARG, "%s: invalid arguments", function);
    memcpy(ret, given, n_given);
    return NULL;
}

#endif
