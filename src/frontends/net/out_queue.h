/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An out-queue: the bytes that a connection has still to send, as pieces in their order. Nothing is
 * copied: each piece lies in memory of its owner, who is told when the piece has been sent, or
 * never will be. Pieces are embedded in what they belong to, so that the queue has no memory of its
 * own and adding cannot fail.
 *
 * Thread: the loop's.
 */
#ifndef CONCH_FRONTENDS_NET_OUT_QUEUE_H
#define CONCH_FRONTENDS_NET_OUT_QUEUE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "base/compiler.h"

struct out_piece {
    struct out_piece *next; /* in the queue, oldest first */
    const char *bytes;      /* what is left of the piece; of at least one byte */
    size_t n_bytes;
    /*
     * The bytes have been sent, or are dropped; the piece is the owner's again, and may be freed.
     * Must not change the queue. NULL when nobody needs to know.
     */
    void (*release)(void *owner);
    void *owner;
};

struct out_queue {
    struct out_piece *first, *last; /* NULL when empty */
    size_t n_bytes;                 /* of all pieces */
};

/*
 * out_queue_add_chain - adds pieces at the end that are linked already, n_bytes together. Each is
 * the queue's until its release.
 */
static inline void out_queue_add_chain(struct out_queue *q, struct out_piece *first,
                                       struct out_piece *last, size_t n_bytes)
{
    last->next = NULL;
    if (q->last)
        q->last->next = first;
    else
        q->first = first;
    q->last = last;
    q->n_bytes += n_bytes;
}

/* out_queue_add - the same for one piece. */
static inline void out_queue_add(struct out_queue *q, struct out_piece *p)
{
    out_queue_add_chain(q, p, p, p->n_bytes);
}

/* out_queue_take_back - takes the first piece, p, out again without a release. */
void out_queue_take_back(struct out_queue *q, struct out_piece *p);

/*
 * out_queue_gather - the bytes to send next, in order; returns the number of pieces, 0 when the
 * queue is empty.
 *
 * @ret_bytes  how many bytes that are
 */
int out_queue_gather(const struct out_queue *q, struct iovec *pieces, int max_pieces,
                     size_t *ret_bytes);

/* out_queue_sent - takes note that the first n_bytes were sent; releases what has left whole. */
void out_queue_sent(struct out_queue *q, size_t n_bytes);

/* out_queue_drop - releases all pieces: nothing more is sent. */
void out_queue_drop(struct out_queue *q);

#endif
