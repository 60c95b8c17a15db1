/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One loop's part in accepting connections. Every loop watches the listening sockets, so that a
 * busy loop does not keep clients from connecting. With EPOLLEXCLUSIVE a new connection wakes one
 * waiting loop, not all. The accepting loop gives the connection to the worker with the least work.
 * It skips workers that have been inside an iteration for long or are busier than others, and takes
 * the one of the rest with the fewest connections.
 *
 * When descriptors run short, the acceptor makes room for new clients: it closes the connections
 * that have been idle for longest, on any loop. When no connection is idle, or when the user's
 * limit of connections is reached, this loop accepts nothing for 100 ms and logs that once. Clients
 * then wait in the kernel's queue.
 *
 * Thread: the worker's, or any one while it does not run.
 */
#ifndef CONCH_FRONTENDS_NET_ACCEPTOR_H
#define CONCH_FRONTENDS_NET_ACCEPTOR_H

#include <stdbool.h>

#include "base/loop.h"
#include "frontends/net/listener.h"

struct acceptor {
    struct worker_service *service; /* whose loop it runs on, and whose listener it shares */
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
 * acceptor_choose - finds the worker with the least work, as far as other threads can see its work.
 * Returns this acceptor's own worker when all others have been inside an iteration for long.
 */
struct worker_service *acceptor_choose(const struct acceptor *a);

/*
 * acceptor_start - makes the service's worker accept, after listener_serve().
 *
 * Errors: as loop_add_fd()
 */
NODISCARD struct status *acceptor_start(struct acceptor *a, struct worker_service *service);

/*
 * acceptor_stop - makes the worker stop accepting; harmless when it does not accept. The sockets
 * stay open.
 */
void acceptor_stop(struct acceptor *a);

#endif
