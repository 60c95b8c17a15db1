/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One loop's part in accepting connections. Every loop watches the listening sockets, so that a
 * busy loop does not keep clients from connecting. With EPOLLEXCLUSIVE a new connection wakes one
 * waiting loop, not all. The accepting loop gives the connection to the worker with the least work.
 * Workers that have been inside an iteration for long, or are busier than others, are passed over;
 * of the rest it takes the one with the fewest connections.
 *
 * When descriptors run short, the connections of all loops that have been idle for longest are
 * closed, to make room for those that wait. When none is idle, or when the user's limit of
 * connections is reached, this loop accepts nothing for a moment and logs that once. Clients then
 * wait in the kernel's queue.
 *
 * Thread: the worker's, or any one before the worker runs and after it has ended.
 */
#ifndef CONCH_FRONTENDS_NET_ACCEPTOR_H
#define CONCH_FRONTENDS_NET_ACCEPTOR_H

#include <stdbool.h>

#include "base/loop.h"
#include "frontends/net/listener.h"

struct acceptor {
    struct listener *listener; /* the one that all acceptors share */
    struct worker *worker;
    struct accepting {
        struct loop_fd watch;
        struct acceptor *acceptor;
    } sockets[LISTENER_MAX_SOCKETS];
    struct timer pause;
    bool started;
    unsigned int n_accepted; /* connections, in this iteration */
    /* While descriptors are short. */
    struct worker *asked; /* the worker that was asked to close idle connections, or NULL */
    bool in_shortage;     /* this acceptor accepts alone, until the iteration ends */
    unsigned int room;    /* connections that it may accept before it counts descriptors again */
};

/*
 * acceptor_choose - the worker with the least work, as other threads can see it. When all others
 * have been inside an iteration for long, it is this acceptor's own.
 */
struct worker *acceptor_choose(const struct acceptor *a);

/*
 * acceptors_start - makes every worker accept.
 *
 * Thread: any, before the workers run.
 * @max_conns       the most connections at one time; 0: no limit
 * @n_reserved_fds  descriptors that connections must not use
 */
NODISCARD struct status *acceptors_start(struct listener *l, struct worker *workers,
                                         unsigned int n_workers, unsigned int max_conns,
                                         unsigned int n_reserved_fds);

/*
 * acceptors_stop - makes the worker stop accepting; harmless when it does not accept. The sockets
 * stay open. Thread: the worker's.
 */
void acceptors_stop(struct listener *l, struct worker *w);

/*
 * acceptors_end - stops all acceptors and closes the sockets. Thread: any, when no worker runs or
 * none accepts.
 */
void acceptors_end(struct listener *l);

#endif
