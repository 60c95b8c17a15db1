/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What one loop counts of the connections of one service. The loop alone writes, so that counting
 * needs no locked instruction; other threads read and add up (net_server_add_totals()). A reader
 * sees each count as it was at some moment, and counts never fall.
 */
#ifndef CONCH_FRONTENDS_NET_COUNTS_H
#define CONCH_FRONTENDS_NET_COUNTS_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/compiler.h"

enum net_count {
    NET_CONNS_BEGUN,
    NET_CONNS_ENDED,
    NET_RECEIVED_BYTES, /* of the socket: with TLS those of its records */
    NET_SENT_BYTES,
    NET_CANCELLED, /* requests that ended before they had an answer: the client or its connection
                      is gone */
    /* The client was too slow with … */
    NET_STALLED_HEAD,   /* … the head of a request */
    NET_STALLED_BODY,   /* … the rest of a body, or of a message */
    NET_STALLED_ANSWER, /* … taking an answer */
    /* What a limit has refused, cut off or kept waiting. */
    NET_REFUSED_CONNS,   /* times that no connection was accepted, since as many as allowed are open
                          */
    NET_REFUSED_ADDRESS, /* connections of an address that has as many as it may */
    NET_REFUSED_HEAD,    /* heads that are too large */
    NET_REFUSED_BODY,    /* bodies and messages that are too large */
    NET_REFUSED_MEMORY,  /* requests and answers for which the budget is short */
    NET_REFUSED_STREAMS, /* streams beyond those of a connection */
    NET_REFUSED_WASTE,   /* connections whose client wastes our work */
    NET_HANDSHAKES,      /* of TLS */
    NET_HANDSHAKES_FAILED,
    N_NET_COUNTS
};

/* An answer is counted by a number below this: of HTTP/1.1 its status less 100, of gRPC its code.
 */
enum { NET_N_ANSWERS = 500 };

struct net_counts {
    /* Written by the loop, read by any thread; relaxed. */
    _Atomic uint64_t of[N_NET_COUNTS];
    _Atomic uint64_t answers[NET_N_ANSWERS];
};

struct net_totals {
    uint64_t of[N_NET_COUNTS];
    uint64_t answers[NET_N_ANSWERS];
};

static inline void net_count_add(_Atomic uint64_t *count, uint64_t n)
{
    uint64_t before = atomic_load_explicit(count, memory_order_relaxed);
    atomic_store_explicit(count, before + n, memory_order_relaxed);
}

/* net_count - adds n. Thread: the loop's. */
static inline void net_count(struct net_counts *c, enum net_count which, uint64_t n)
{
    net_count_add(&c->of[which], n);
}

/* net_count_answer - counts an answer; numbers from NET_N_ANSWERS on are not counted. */
static inline void net_count_answer(struct net_counts *c, unsigned int number)
{
    if (LIKELY(number < NET_N_ANSWERS))
        net_count_add(&c->answers[number], 1);
}

/* net_counts_sum - adds the counts to the totals. Thread: any. */
void net_counts_sum(const struct net_counts *c, struct net_totals *totals);

#endif
