/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Small values that the HTTP parsers return: a part of the received bytes, and a fault in them.
 */
#ifndef CONCH_FRONTENDS_NET_SPAN_H
#define CONCH_FRONTENDS_NET_SPAN_H

#include <stdbool.h>
#include <stddef.h>

struct span {
    const char *at;
    size_t length;
};

/* span_is - whether the span equals the text, regardless of letter case. */
bool span_is(struct span s, const char *text);

/*
 * span_next_item - the text before the separator, without blanks around it. *rest becomes the text
 * behind it.
 */
struct span span_next_item(struct span *rest, char separator);

/* A fault after which a connection cannot go on. It is the last reply before the close. */
struct http_fault {
    int status;       /* 400, 408, 413, 431, 501, 503, 505 */
    const char *text; /* constant */
};

/* The default limit of non-empty chunks in a request body, as in the reference. */
#define HTTP_MAX_CHUNKS 65536

#endif
