/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A TCP connection: descriptor, readiness, deadlines around an HTTP/1.1 state (http1.h). It is
 * owned by one worker for life. All that arrives in a turn of the loop is read and handled first;
 * what is to be sent leaves at the end of the turn, by one writev() per connection.
 *
 * Thread: the worker's, except conn_new() and conn_give().
 */
#ifndef CONCH_FRONTENDS_NET_CONN_H
#define CONCH_FRONTENDS_NET_CONN_H

#include "base/list.h"
#include "base/loop.h"
#include "frontends/net/http1.h"

struct worker;

struct conn {
    struct worker *worker;
    struct list link; /* of worker->conns */
    struct message arrival;
    int fd;
    struct loop_fd watch;
    struct loop_work flush;
    struct http1 http1;
    bool eof;                     /* the client sends no more */
    bool waiting;                 /* the socket's buffer is full */
    bool lingering;               /* all is said; what the client still sends is thrown away */
    int n_unsent;                 /* bytes that the kernel still had when it was last asked */
    uint64_t read_ns, written_ns; /* the last time that something moved */
    uint64_t head_ns;             /* when an unfinished head began; 0 = there is none */
};

/*
 * conn_give - hands an accepted socket to a worker, which may be the calling thread's or another's.
 *
 * @fd  taken; closed at once when memory ends
 */
void conn_give(struct worker *w, int fd);

/* conn_check_time - closes the connection, or refuses its request, when it takes too long. */
void conn_check_time(struct conn *c, uint64_t now_ns);

/* conn_drain - closes the connection as soon as nothing is under way on it. */
void conn_drain(struct conn *c);

/* conn_close - at once. */
void conn_close(struct conn *c);

#endif
