/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A chunked body (RFC 9112, 7.1): bytes in, data out, nothing kept.
 *
 * As strict as the grammar, since what a proxy in front reads differently from us is a way to
 * smuggle requests: lines end with CR LF, sizes are digits and nothing around them, trailers have
 * names and are not folded. Extensions and trailers are passed over; how much of them may come is
 * bounded, and so is the number of chunks.
 *
 * Thread: whose connection it is.
 */
#ifndef CONCH_FRONTENDS_NET_CHUNKS_H
#define CONCH_FRONTENDS_NET_CHUNKS_H

#include <stddef.h>
#include <stdint.h>

#include "frontends/net/span.h"

enum {
    CHUNKS_MAX_DIGITS = 16,           /* of a size, zeros in front of it too */
    CHUNKS_MAX_LINE_EXTENSION = 1024, /* bytes of one chunk's extensions */
    CHUNKS_MAX_EXTENSIONS = 16 << 10, /* … of all of a body */
    CHUNKS_MAX_TRAILER = 8 << 10,     /* bytes of all trailers */
};

struct chunks {
    uint8_t state;    /* see chunks.c */
    uint8_t n_digits; /* of the size that is being read */
    uint64_t left;    /* bytes of data of this chunk that are to come */
    unsigned int n_chunks, max_chunks;
    uint32_t line_bytes;      /* of this chunk's extensions */
    uint32_t extension_bytes; /* of all */
    uint32_t trailer_bytes;
};

/* chunks_init - for a new body. */
void chunks_init(struct chunks *c, unsigned int max_chunks);

/* CHUNKS_MORE: all bytes are used. CHUNKS_DATA: some data, ask again. CHUNKS_END: the body is over.
 * CHUNKS_FAULT: it is no chunked body, or too much around its data; do not ask again. */
enum chunks_event { CHUNKS_MORE, CHUNKS_DATA, CHUNKS_END, CHUNKS_FAULT };

/*
 * chunks_next - goes on with the body.
 *
 * @ret_used   how many of the bytes are done with, also those of the data
 * @ret_data   DATA: where it is, in bytes
 * @ret_fault  FAULT: what to say
 */
enum chunks_event chunks_next(struct chunks *c, const char *bytes, size_t n_bytes, size_t *ret_used,
                              struct span *ret_data, struct http_fault *ret_fault);

#endif
