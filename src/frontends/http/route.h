/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The routes: the handler for each method and path. Paths are matched as received, without
 * percent-decoding, as in the reference. A slash at the end makes another path.
 */
#ifndef CONCH_FRONTENDS_HTTP_ROUTE_H
#define CONCH_FRONTENDS_HTTP_ROUTE_H

#include <stdbool.h>

#include "frontends/net/head.h"
#include "frontends/ops/restrictions.h"

struct exchange;

struct route {
    enum http_method method;
    /*
     * {m} is a model's name: one segment, not empty. [/versions/{v}] is optional; {v} is digits.
     * {r} is a repository's name, {s} that of a region of shared memory, one segment like {m}.
     */
    const char *pattern;
    void (*handle)(struct exchange *x);
    enum ops_api api;       /* the part of the protocol that an operator may restrict */
    const char *error_type; /* content type of the error for another method */
    bool takes_body;        /* the handler needs the body of the request */
    /* Reads further headers into the frontend's note of the head (head.h); NULL: there are none. */
    void (*read_head)(void *note, const struct http_head *head);
};

struct route_match {
    const struct route *route;                      /* NULL: no such path */
    struct span model, version, repository, region; /* .at is NULL: not in the pattern */
};

/*
 * route_find - the first route whose pattern and method match; if none has the method, the first
 * whose pattern matches.
 */
struct route_match route_find(const struct route *routes, size_t n_routes, enum http_method method,
                              struct span path);

#endif
