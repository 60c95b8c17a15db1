/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A parser of a chunked body (RFC 9112, 7.1): bytes in, data out; it keeps nothing.
 *
 * It is as strict as the grammar. A body that we and a proxy in front of us read differently could
 * smuggle a request. Lines end with CR LF, sizes are digits with nothing around them, trailers have
 * names and are not folded. Extensions and trailers are skipped. Their size is limited, and so is
 * the number of chunks.
 *
 * Thread: the connection's.
 */
#ifndef CONCH_FRONTENDS_NET_CHUNKS_H
#define CONCH_FRONTENDS_NET_CHUNKS_H

#include <stddef.h>
#include <stdint.h>

#include "frontends/net/span.h"

enum {
    CHUNKS_MAX_DIGITS = 16,           /* of a size, with leading zeros */
    CHUNKS_MAX_LINE_EXTENSION = 1024, /* bytes of one chunk's extensions */
    CHUNKS_MAX_EXTENSIONS = 16 << 10, /* … of all chunks of a body */
    CHUNKS_MAX_TRAILER = 8 << 10,     /* bytes of all trailers */
};

struct chunks {
    uint8_t state;    /* see chunks.c */
    uint8_t n_digits; /* of the size that is being read */
    uint64_t left;    /* bytes of data of this chunk still to come */
    unsigned int n_chunks, max_chunks;
    uint32_t line_bytes;      /* of this chunk's extensions */
    uint32_t extension_bytes; /* of all */
    uint32_t trailer_bytes;
};

/* chunks_init - begins a new body. */
void chunks_init(struct chunks *c, unsigned int max_chunks);

/*
 * CHUNKS_MORE: all bytes are used, and more are needed. CHUNKS_DATA: returns some data; call again.
 * CHUNKS_END: the body has ended. CHUNKS_FAULT: the body is malformed, or too much surrounds its
 * data; do not call again.
 */
enum chunks_event { CHUNKS_MORE, CHUNKS_DATA, CHUNKS_END, CHUNKS_FAULT };

/*
 * chunks_next - parses the next part of the body.
 *
 * @ret_used   the number of bytes parsed, data included
 * @ret_data   DATA: where the data is in bytes
 * @ret_fault  FAULT: the error for the client
 */
enum chunks_event chunks_next(struct chunks *c, const char *bytes, size_t n_bytes, size_t *ret_used,
                              struct span *ret_data, struct http_fault *ret_fault);

#endif
