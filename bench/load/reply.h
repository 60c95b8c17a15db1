/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BENCH_LOAD_REPLY_H
#define BENCH_LOAD_REPLY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Reads HTTP/1.1 replies from a byte stream, one after another, as cheaply as a client may: only
 * the status, Content-Length, Transfer-Encoding and Connection are parsed, and bodies are never
 * collected.
 */

enum { REPLY_HEAD_MAX = 16384 };

/* Where a chunked body is. */
enum reply_chunk {
    CHUNK_NONE, /* the body is not chunked */
    CHUNK_SIZE, /* in the line of a chunk's size */
    CHUNK_DATA,
    CHUNK_END,     /* in the line break behind the data */
    CHUNK_TRAILER, /* in a line behind the last chunk */
    CHUNK_DONE,
};

struct reply {
    /* A head that did not arrive in one piece waits here. */
    char head[REPLY_HEAD_MAX];
    size_t head_len;

    /* The reply in progress, valid while in_body. */
    bool in_body;
    bool close; /* the server said "Connection: close" */
    int status;
    size_t body_len; /* of a chunked body: known when it has ended */
    size_t body_pos; /* bytes of the body already seen */
    enum reply_chunk chunk;
    size_t chunk_left; /* bytes of the chunk still to come; of a size: as far as read */
    size_t line_len;   /* bytes of the line in progress */
};

enum reply_event {
    REPLY_MORE,  /* all bytes are consumed */
    REPLY_BODY,  /* ret_span is the next piece of the body, at body_pos - its length */
    REPLY_END,   /* one reply is complete; call again with the rest */
    REPLY_ERROR, /* not the HTTP that this reader knows; ret_why has the reason */
};

/*
 * reply_feed - advance over *bytes and report the next event.
 *
 * Call it until it answers REPLY_MORE or REPLY_ERROR. Interim replies (1xx) are skipped.
 * @bytes, @len  moved past the consumed bytes
 */
enum reply_event reply_feed(struct reply *r, const char **bytes, size_t *len, const char **ret_span,
                            size_t *ret_span_len, const char **ret_why);

/* reply_reset - forget everything, for a new connection. */
void reply_reset(struct reply *r);

#endif
