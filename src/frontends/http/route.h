/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The routes: which handler answers which method and path. Paths are matched as they came, without
 * decoding, as the reference does; a slash at the end is another path.
 */
#ifndef CONCH_FRONTENDS_HTTP_ROUTE_H
#define CONCH_FRONTENDS_HTTP_ROUTE_H

#include <stdbool.h>

#include "frontends/net/head.h"

struct exchange;

struct route {
    enum http_method method;
    /*
     * {m} is a model's name: one segment, not empty. [/versions/{v}] may be missing; digits.
     * {r} is a repository's name, as {m}.
     */
    const char *pattern;
    void (*handle)(struct exchange *x);
    const char *error_type; /* content type of the answer to another method */
    bool takes_body;        /* the body of the request matters */
    /* Reads more of the head into the frontend's note of it (head.h); NULL: nothing more. */
    void (*read_head)(void *note, const struct http_head *head);
};

struct route_match {
    const struct route *route;              /* NULL: no such path */
    struct span model, version, repository; /* at NULL: the pattern has none */
};

/* route_find - the first route whose pattern fits, whatever the method. */
struct route_match route_find(const struct route *routes, size_t n_routes, struct span path);

#endif
