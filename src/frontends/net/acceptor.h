/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A loop's part of accepting. Every loop watches the listening sockets (EPOLLEXCLUSIVE: a new
 * connection wakes one that waits, not all), so that one that is busy keeps nobody from connecting.
 * Who accepts gives the connection to the worker with the least work: of those that are not inside
 * an iteration for long, and not busier than others, the one with the fewest connections.
 *
 * When descriptors run short, the connections that have been idle for longest, of all loops, are
 * closed for those that wait. Where none is idle, and at the limit that the user has set, this loop
 * accepts nothing for a moment and says so once: clients wait in the kernel's queue.
 *
 * Thread: the worker's, or any one before it runs and after its end.
 */
#ifndef CONCH_FRONTENDS_NET_ACCEPTOR_H
#define CONCH_FRONTENDS_NET_ACCEPTOR_H

#include <stdbool.h>

#include "base/loop.h"
#include "frontends/net/listener.h"

struct acceptor {
    struct listener *listener; /* of all acceptors */
    struct worker *worker;
    struct accepting {
        struct loop_fd watch;
        struct acceptor *acceptor;
    } sockets[LISTENER_MAX_SOCKETS];
    struct timer pause;
    bool started;
    unsigned int n_accepted; /* in this iteration */
    /* While descriptors are short. */
    struct worker *asked; /* to make room for this one; or NULL */
    bool in_shortage;     /* this one accepts, for the rest of the iteration */
    unsigned int room;    /* it may accept so many before it looks at the descriptors again */
};

/*
 * acceptor_choose - the worker with the least work, as far as that can be seen from outside; this
 * one, where all others are inside an iteration for long.
 */
struct worker *acceptor_choose(const struct acceptor *a);

/*
 * acceptors_start - every worker accepts.
 *
 * Thread: any, before the workers run.
 * @n_reserved_fds  descriptors that are not for connections
 */
NODISCARD struct status *acceptors_start(struct listener *l, struct worker *workers,
                                         unsigned int n_workers, unsigned int max_conns,
                                         unsigned int n_reserved_fds);

/* acceptors_stop - the worker accepts no more; harmless when it does not. The sockets stay open.
 * Thread: the worker's. */
void acceptors_stop(struct listener *l, struct worker *w);

/* acceptors_end - stops all that accept, and closes the sockets. Thread: any, when no worker runs,
 * or none accepts. */
void acceptors_end(struct listener *l);

#endif
