/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A TCP connection: descriptor, readiness and deadlines around the session of a protocol
 * (session.h). One worker owns it until it is closed. Everything that arrives in an iteration of
 * the loop is read and handled first. Replies are sent at the end of the iteration, by one writev()
 * per connection. A connection that has more to read than a small request continues after that, in
 * portions (worker.h).
 *
 * Thread: the worker's, except for conn_give().
 */
#ifndef CONCH_FRONTENDS_NET_CONN_H
#define CONCH_FRONTENDS_NET_CONN_H

#include "base/heap.h"
#include "base/list.h"
#include "base/loop.h"
#include "base/mailbox.h"
#include "frontends/net/session.h"

struct address_count;
struct tls;
struct worker;
struct worker_service;

/* The progress of a body or of replies since the start of a measurement. */
struct pace {
    uint64_t since_ns; /* start of the measurement; 0: none is running */
    uint64_t n_bytes;
    uint64_t mark; /* at the start: the number of the request for a body, conn.n_sent for replies */
};

struct conn {
    struct worker *worker;
    struct worker_service *service; /* of this worker */
    struct list link;               /* in worker->conns */
    struct list ready; /* in worker->ready, while there is more to read than a portion */
    struct message arrival;
    int fd;
    struct address_count *address; /* in listener.per_address; NULL: not counted */
    struct tls *tls;               /* NULL: the socket has the session's bytes as they are */
    struct loop_fd watch;
    struct loop_work flush;
    struct timer check; /* set while the session wants to be asked at a time: get_next_ns() */
    uint64_t check_ns;  /* that time; 0: none */
    bool client_left;   /* the client closed its sending side; unread bytes may precede */
    bool eof;           /* everything that the client sent was read */
    bool waiting;       /* the socket's buffer is full */
    bool lingering;     /* the last reply was sent; what still comes is dropped */
    uint64_t n_received, n_sent; /* bytes */
    uint64_t n_taken; /* bytes that the client had taken when the kernel was last asked */
    struct pace received, taken;  /* of a body, of replies, while in progress */
    uint64_t read_ns, written_ns; /* the last time that a byte was read, written */
    struct heap_node use;         /* in worker->by_use, ordered by ranked_ns */
    uint64_t ranked_ns;           /* the last use, or an earlier time */
    uint64_t head_ns;             /* when an incomplete head was first seen; 0: there is none */
    uint64_t head_number;         /* the number of the request at that time */
    /* The progress of the client; see conn_burden(). */
    uint64_t checked_received, checked_sent; /* n_received and n_sent at the last check */
    uint64_t recent_bytes;  /* that moved in the awaited direction between the two last checks */
    uint64_t slow_ns;       /* since when the client has been slow; 0: it is not */
    struct session session; /* the first member of the protocol's struct, which ends the block */
};

/*
 * conn_give - makes a connection of an accepted socket and gives it to a worker, which may be the
 * calling thread's own.
 *
 * Thread: that of `here`.
 * @here, to  what the two workers have of the same service
 * @fd        taken, and counted in its listener; closed at once when memory is exhausted
 * @address   taken, too; NULL: the client's address is not counted
 */
void conn_give(struct worker_service *here, struct worker_service *to, int fd,
               struct address_count *address);

/* conn_go_on - reads a portion, and queues the connection again if there is more. */
void conn_go_on(struct conn *c);

/* conn_on_space - reads on: the session wants input again. */
void conn_on_space(struct session *s);

/* conn_check_time - closes the connection, or refuses its request, when it takes too long. */
void conn_check_time(struct conn *c, uint64_t now_ns);

/* conn_active_ns - the last time that a byte was read or written. */
static inline uint64_t conn_active_ns(const struct conn *c)
{
    return c->read_ns > c->written_ns ? c->read_ns : c->written_ns;
}

/*
 * conn_is_idle - whether the connection may be closed to free its descriptor. That is so when no
 * request is in progress, or only a head that has been coming for a second, and nothing received is
 * unread. It is also so when the client has taken all replies and only has to close. Makes one or
 * two system calls.
 */
bool conn_is_idle(const struct conn *c);

/*
 * conn_burden - a weight of what the connection keeps for a client that stopped sending or reading.
 * It grows with the bytes kept, with less progress, and with time. 0 when almost nothing depends on
 * the client. A session of many requests knows its own (protocol.get_burden).
 *
 * @ret_stalled  whether the client has been below 1 KiB/s for five seconds
 */
uint64_t conn_burden(const struct conn *c, uint64_t now_ns, bool *ret_stalled);

/*
 * conn_evict - gives the connection up to free memory: refuses its request, or closes it. A session
 * of many requests gives up some of them.
 */
void conn_evict(struct conn *c);

/* conn_drain - closes the connection as soon as no request is in progress on it. */
void conn_drain(struct conn *c);

/* conn_close - closes the connection at once. */
void conn_close(struct conn *c);

#endif
