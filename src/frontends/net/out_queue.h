/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An out-queue: the bytes that a connection has still to send, as pieces in their order. Nothing is
 * copied: each piece lies in its owner's memory, and its release tells the owner that the piece is
 * sent or dropped. Pieces are embedded in their owners, so that the queue has no memory of its own
 * and adding cannot fail.
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
    const char *bytes;      /* the part that is not sent yet; at least one byte */
    size_t n_bytes;
    /*
     * Called when the bytes are sent or dropped: the piece is the owner's again, and may be freed.
     * Must not change the queue. NULL: the owner need not know.
     */
    void (*release)(void *owner);
    void *owner;
};

struct out_queue {
    struct out_piece *first, *last; /* NULL when empty */
    size_t n_bytes;                 /* of all pieces */
};

/*
 * out_queue_add_chain - appends pieces that are linked already and have n_bytes together. Each
 * piece is the queue's until its release.
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

/* out_queue_take_back - removes p, the first piece, without its release. */
void out_queue_take_back(struct out_queue *q, struct out_piece *p);

/*
 * out_queue_gather - the bytes to send next, in order; returns the number of pieces, 0 when the
 * queue is empty.
 *
 * @ret_bytes  the number of these bytes
 */
int out_queue_gather(const struct out_queue *q, struct iovec *pieces, int max_pieces,
                     size_t *ret_bytes);

/*
 * out_queue_sent - removes the first n_bytes, which were sent, and releases the pieces that are
 * sent whole.
 */
void out_queue_sent(struct out_queue *q, size_t n_bytes);

/* out_queue_drop - releases all pieces: nothing more is sent. */
void out_queue_drop(struct out_queue *q);

#endif
