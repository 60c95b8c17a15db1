/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The content codings of HTTP: what a client has packed its body with, and what it takes.
 *
 * No state; any thread.
 */
#ifndef CONCH_FRONTENDS_HTTP_CODING_H
#define CONCH_FRONTENDS_HTTP_CODING_H

#include "base/compress.h"
#include "frontends/net/span.h"

enum http_coding { CODING_IDENTITY, CODING_GZIP, CODING_DEFLATE, CODING_UNKNOWN };

/* coding_of_body - by the value of Content-Encoding; .at is NULL without the header. */
enum http_coding coding_of_body(struct span content_encoding);

/*
 * coding_of_reply - the coding of the greatest weight in a value of Accept-Encoding, the first one
 * of equal ones; CODING_IDENTITY without the header. A weight of 0 excludes a coding, one that is
 * no number excludes it, too. Never CODING_UNKNOWN.
 */
enum http_coding coding_of_reply(struct span accept_encoding);

/* coding_format - of gzip or deflate. */
enum compress_format coding_format(enum http_coding coding);

/* coding_header - the line of the reply that names gzip or deflate. */
struct span coding_header(enum http_coding coding);

#endif
