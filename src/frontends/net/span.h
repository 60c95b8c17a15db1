/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Small values that the parsers of HTTP give: a part of what was received, and what is wrong with
 * it.
 */
#ifndef CONCH_FRONTENDS_NET_SPAN_H
#define CONCH_FRONTENDS_NET_SPAN_H

#include <stdbool.h>
#include <stddef.h>

struct span {
    const char *at;
    size_t length;
};

/* span_is - whether the span equals the text, letter case ignored. */
bool span_is(struct span s, const char *text);

/* Why a connection cannot go on: what it is told before it is closed. */
struct http_fault {
    int status;       /* 400, 408, 413, 431, 501, 503, 505 */
    const char *text; /* constant */
};

/* Non-empty chunks of a request body, where nobody says otherwise; as in the reference. */
#define HTTP_MAX_CHUNKS 65536

#endif
