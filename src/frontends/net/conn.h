/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A TCP connection: descriptor, readiness, deadlines around an HTTP/1.1 state (http1.h). It is
 * owned by one worker for life. All that arrives in an iteration of the loop is read and handled
 * first; what is to be sent leaves at the end of the iteration, by one writev() per connection.
 * What has more to be read than a small request goes on when that is done, by portions (worker.h).
 *
 * Thread: the worker's, except conn_new() and conn_give().
 */
#ifndef CONCH_FRONTENDS_NET_CONN_H
#define CONCH_FRONTENDS_NET_CONN_H

#include "base/heap.h"
#include "base/list.h"
#include "base/loop.h"
#include "frontends/net/http1.h"

struct worker;

/* How fast something goes on: what had moved when this began to be measured. */
struct pace {
    uint64_t since_ns; /* 0: it is not measured */
    uint64_t n_bytes;
    uint64_t mark; /* which body it is: http1.n_begun; conn.n_sent, then */
};

struct conn {
    struct worker *worker;
    struct list link;  /* of worker->conns */
    struct list ready; /* of worker->ready, while it has more than its portion of an iteration */
    struct message arrival;
    int fd;
    struct loop_fd watch;
    struct loop_work flush;
    struct http1 http1;
    bool client_left;             /* it has closed its sending side; perhaps behind unread bytes */
    bool eof;                     /* the client sends no more */
    bool waiting;                 /* the socket's buffer is full */
    bool lingering;               /* all is said; what the client still sends is thrown away */
    uint64_t n_received, n_sent;  /* bytes */
    uint64_t n_taken;             /* of those sent, when the kernel was last asked for the rest */
    struct pace received, taken;  /* of a body, of replies, while one is under way */
    uint64_t read_ns, written_ns; /* the last time that something moved */
    struct heap_node use;         /* of worker->by_use, whose order is ranked_ns: */
    uint64_t ranked_ns;           /* its last use, or an earlier time */
    uint64_t head_ns;             /* when an unfinished head was seen first; 0 = there is none */
    uint64_t head_number;         /* http1.n_begun, then */
    /* How the client keeps up; see conn_burden(). */
    uint64_t moved_bytes, moved_before_bytes; /* since the last look, and between the two before */
    uint64_t slow_ns;                         /* since when it has been slow; 0 = it is not */
};

/*
 * conn_give - gives an accepted socket to a worker, of which the calling thread's may be one.
 *
 * Thread: here's.
 * @fd  taken, counted in to->listener; closed at once when memory ends
 */
void conn_give(struct worker *here, struct worker *to, int fd);

/* conn_go_on - reads its portion of the iteration. It waits anew if there is more. */
void conn_go_on(struct conn *c);

/* conn_on_space - it may read again. */
void conn_on_space(struct http1 *h);

/* conn_check_time - closes the connection, or refuses its request, when it takes too long. */
void conn_check_time(struct conn *c, uint64_t now_ns);

/* conn_active_ns - when something last moved. */
static inline uint64_t conn_active_ns(const struct conn *c)
{
    return c->read_ns > c->written_ns ? c->read_ns : c->written_ns;
}

/* conn_is_idle - no request is under way, or none but a head that has been coming for a second, and
 * nothing that has come is unread; or all has been answered and taken, and the client has yet to
 * close. A system call or two. */
bool conn_is_idle(const struct conn *c);

/*
 * conn_burden - how much the connection keeps for a client that does not send or read on: more for
 * more bytes, for less progress, for longer. 0 when next to nothing depends on the client.
 *
 * @ret_stalled  it has been below 1 KiB/s for five seconds
 */
uint64_t conn_burden(const struct conn *c, uint64_t now_ns, bool *ret_stalled);

/* conn_evict - gives the connection up for others: its request is refused, or it is closed. */
void conn_evict(struct conn *c);

/* conn_drain - closes the connection as soon as nothing is under way on it. */
void conn_drain(struct conn *c);

/* conn_close - at once. */
void conn_close(struct conn *c);

#endif
