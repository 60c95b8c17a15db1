/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The messages of a gRPC stream as they come: five bytes of prefix (compressed or not, length),
 * then the message, in any portions.
 *
 * A message is copied once, from the bytes that were read into a block of the pool. The place of
 * the message in its block is chosen so that its first raw tensor is aligned to 64 bytes. A message
 * of up to 1 MiB, or of what the stream's window has room for, comes unasked. It has 64 KiB of
 * memory until half of these have come, which then lie elsewhere only if they came slowly. A longer
 * message waits for its turn once its first 64 KiB are there. With the turn its block grows to the
 * whole length, and the client may send the rest.
 *
 * Thread: the loop's.
 */
#ifndef CONCH_FRONTENDS_GRPC_INCOMING_H
#define CONCH_FRONTENDS_GRPC_INCOMING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"

struct http2_stream;
struct pool;
struct status;

enum {
    INCOMING_PREFIX_BYTES = 5,
    INCOMING_FIRST_BYTES = 64 << 10,  /* the block of a message that has just begun */
    INCOMING_MUCH_BYTES = 32 << 10,   /* … it gets a larger one when so many have come */
    INCOMING_UNASKED_BYTES = 1 << 20, /* the longest message that needs no turn */
};

struct incoming {
    /* Constant. */
    struct http2_stream *stream;
    struct pool *pool;
    size_t max_bytes;     /* of a message */
    size_t unasked_bytes; /* the longest message that the stream's window has room for */
    uint32_t first_bytes; /* of a longer one that come before it asks for its turn */

    uint8_t shift;        /* where the message begins in its block */
    bool has_turn;        /* it has had its turn */
    bool waits;           /* for its turn */
    bool told_incomplete; /* the stream knows that the message must go on, … */
    size_t told_bytes;    /* … and has this weight for it */
    bool has_tensors;     /* it is a ModelInferRequest; constant */
    bool compressed;      /* the message */
    uint8_t n_prefix;     /* the bytes of the prefix that have come */
    unsigned char prefix[INCOMING_PREFIX_BYTES];
    size_t n_bytes, n_come; /* of the message */
    char *block;            /* NULL: none of it has come */
    size_t room;            /* of the block */
    size_t n_held;          /* bytes that came before the turn and do not yet count as taken */
    size_t n_expected;      /* bytes that the turn has granted and that have not come */
};

/* A message that is complete. */
struct incoming_message {
    char *block; /* the receiver's, which releases it by pool_release(); NULL: the message has 0
                    bytes */
    const char *bytes;
    size_t n_bytes;
    bool compressed;
};

/* incoming_init - begins with no message. */
void incoming_init(struct incoming *in, struct http2_stream *stream, struct pool *pool,
                   size_t max_bytes, bool has_tensors);
/* incoming_done - releases an incomplete message. */
void incoming_done(struct incoming *in);

/*
 * incoming_add - takes bytes up to the end of the first message.
 *
 * @ret_used      the number of bytes used
 * @ret_complete  whether *ret_message is set
 * Errors: STATUS_INTERNAL   the first byte of the prefix is neither 0 nor 1
 *         STATUS_EXHAUSTED  the message is longer than max_bytes, or there is no memory for it
 */
NODISCARD struct status *incoming_add(struct incoming *in, const char *bytes, size_t n_bytes,
                                      size_t *ret_used, bool *ret_complete,
                                      struct incoming_message *ret_message);

/*
 * incoming_on_turn - takes memory for the whole message, for http2_handler.on_turn. False: there is
 * no memory.
 */
bool incoming_on_turn(struct incoming *in);

/* incoming_is_within - whether a message has begun and is not complete. */
static inline bool incoming_is_within(const struct incoming *in)
{
    return in->n_prefix > 0;
}

#endif
