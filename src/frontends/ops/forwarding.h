/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Headers of a client that become parameters of its requests: --grpc-header-forward-pattern. The
 * names of headers are matched when the head comes; the list is applied to each request of the call
 * (reference/features §2.2).
 *
 * Thread: the caller's. Limits: a head is bounded, and so are its headers.
 */
#ifndef CONCH_FRONTENDS_OPS_FORWARDING_H
#define CONCH_FRONTENDS_OPS_FORWARDING_H

#include <stddef.h>

#include "base/compiler.h"

struct arena;
struct regex;
struct request;
struct status;

struct forwarded {
    const char *name, *value;
    struct forwarded *next; /* in the order in which they came */
};

/*
 * forwarding_add - adds a copy of the header to the list if the pattern matches some part of the
 * name.
 *
 * Errors: STATUS_UNAVAILABLE  no memory
 */
NODISCARD struct status *forwarding_add(const struct regex *pattern, const char *name,
                                        size_t name_length, const char *value, size_t value_length,
                                        struct arena *arena, struct forwarded **list);

/*
 * forwarding_apply - adds the headers to the request as parameters that are strings.
 *
 * Errors: STATUS_INVALID_ARG  a header has the name of a parameter with a meaning of its own
 *         STATUS_UNAVAILABLE  no memory
 */
NODISCARD struct status *forwarding_apply(const struct forwarded *list, struct request *r);

#endif
