/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cross-origin requests of browsers (CORS, in the Fetch standard of WHATWG): which headers a reply
 * needs, so that the browser gives it to a page of another origin. They allow nothing that another
 * client may not do: restrictions and access rules are asked as for any request.
 */
#ifndef CONCH_FRONTENDS_HTTP_CORS_H
#define CONCH_FRONTENDS_HTTP_CORS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"
#include "frontends/net/exchange.h"

struct cors;
struct status;

/*
 * cors_new - reads the value of --http-cors-origins. *ret_cors is NULL when it is "": no reply gets
 * a header. Constant afterwards, so any thread may use it.
 *
 * Errors: STATUS_INVALID_ARG  an item is no origin
 */
NODISCARD struct status *cors_new(const char *origins, struct cors **ret_cors);
void cors_free(struct cors *c);

/*
 * cors_find_origin - the number of the request's origin in the list. 0: the origin is not in the
 * list, or the head has not exactly one Origin.
 */
uint8_t cors_find_origin(const struct cors *c, const struct http_head *head);

/* cors_is_preflight - whether the browser asks if it may send a request. */
bool cors_is_preflight(const struct http_head *head, uint8_t origin);

/*
 * cors_headers - the headers of every reply to a request of that origin; never empty. They live as
 * long as c.
 */
struct span cors_headers(const struct cors *c, uint8_t origin);

/*
 * cors_keep_asked - copies the names of headers that a preflight asks for into the exchange's
 * arena. NULL: there are none, they are not a list of names, or there is no memory for them.
 */
const char *cors_keep_asked(struct exchange *x, const struct http_head *head);

/* cors_reply_preflight - replies that the page may send these headers. Thread: the loop's. */
void cors_reply_preflight(struct exchange *x, const char *asked);

#endif
