/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A singly linked list: pieces leave at the front only. A piece is removed before its release is
 * called, since the release may free the piece. Thread: the loop's.
 */
#include "frontends/net/out_queue.h"

static void remove_first(struct out_queue *q)
{
    q->n_bytes -= q->first->n_bytes;
    q->first = q->first->next;
    if (!q->first)
        q->last = NULL;
}

static void release_first(struct out_queue *q)
{
    struct out_piece *p = q->first;
    remove_first(q);
    if (p->release)
        p->release(p->owner);
}

void out_queue_take_back(struct out_queue *q, struct out_piece *p)
{
    BUG_ON(q->first != p);
    remove_first(q);
}

int out_queue_gather(const struct out_queue *q, struct iovec *pieces, int max_pieces,
                     size_t *ret_bytes)
{
    int n = 0;
    size_t n_bytes = 0;
    for (const struct out_piece *p = q->first; p && n < max_pieces; p = p->next) {
        pieces[n++] = (struct iovec){(void *)(uintptr_t)p->bytes, p->n_bytes};
        n_bytes += p->n_bytes;
    }
    *ret_bytes = n_bytes;
    return n;
}

void out_queue_sent(struct out_queue *q, size_t n_bytes)
{
    struct out_piece *p;
    while ((p = q->first) && n_bytes >= p->n_bytes) {
        n_bytes -= p->n_bytes;
        release_first(q);
    }
    if (n_bytes == 0)
        return;
    BUG_ON(!p); /* more bytes than the queue had */
    p->bytes += n_bytes;
    p->n_bytes -= n_bytes;
    q->n_bytes -= n_bytes;
}

void out_queue_drop(struct out_queue *q)
{
    while (q->first)
        release_first(q);
}
