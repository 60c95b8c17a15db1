/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The texts in gRPC's headers and trailers (its protocol over HTTP/2): timeouts, encodings, content
 * types, the message of a status. No state; any thread.
 */
#ifndef CONCH_FRONTENDS_GRPC_TEXT_H
#define CONCH_FRONTENDS_GRPC_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"
#include "frontends/net/span.h"

/* The encodings of messages; bits of a set. */
enum grpc_encoding {
    GRPC_IDENTITY = 1,
    GRPC_DEFLATE = 2,
    GRPC_GZIP = 4,
};

/* grpc_encoding_name - "identity", "deflate", "gzip"; static. */
const char *grpc_encoding_name(enum grpc_encoding encoding);

/* grpc_encoding_of - the encoding of that name; 0: there is none. */
unsigned int grpc_encoding_of(struct span name);

/*
 * grpc_accepted_encodings - the set of known encodings in a list with commas; always has
 * GRPC_IDENTITY.
 */
unsigned int grpc_accepted_encodings(struct span list);

/* The encodings that this server accepts, for grpc-accept-encoding. */
#define GRPC_ACCEPT_ENCODING "identity,deflate,gzip"

/*
 * grpc_is_content_type - whether the value is application/grpc, also with a suffix (+proto) or
 * parameters.
 */
bool grpc_is_content_type(struct span value);

/*
 * grpc_is_metadata - whether a header of that name is the application's. The others are gRPC's.
 */
bool grpc_is_metadata(struct span name);

/*
 * grpc_parse_timeout - the header grpc-timeout: digits and a unit (H M S m u n), with blanks around
 * them, as gRPC's own library reads it.
 *
 * Returns false when the value is invalid. Numbers above 10^9 and longer times become UINT64_MAX
 * ns.
 */
bool grpc_parse_timeout(struct span value, uint64_t *ret_ns);

/*
 * grpc_encode_message - the text of a status for grpc-message: '%' and all bytes outside of blank
 * to '~' become %XX.
 *
 * @out  room for 3 × length bytes
 * Returns the length of the encoded text.
 */
size_t grpc_encode_message(const char *text, size_t length, char *out);

#endif
