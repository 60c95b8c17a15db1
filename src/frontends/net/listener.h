/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A listening socket, watched by the first worker's loop; connections go to the worker that has
 * the fewest. When descriptors run out, accepting pauses for a moment and says so once: clients
 * then wait in the kernel's queue.
 */
#ifndef CONCH_FRONTENDS_NET_LISTENER_H
#define CONCH_FRONTENDS_NET_LISTENER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/loop.h"

struct worker;

struct listener {
    int fd;
    int port; /* the one in use, also where 0 was asked for */
    struct worker *workers;
    unsigned int n_workers;
    unsigned int max_conns; /* 0 = no limit */
    struct loop_fd watch;
    struct timer pause;
    bool told; /* that accepting paused */
};

/*
 * listener_open - binds and listens.
 *
 * @address  a numeric address or a host name; "" or "0.0.0.0" for every address
 * @port     0 for any that is free
 * Errors:   STATUS_UNAVAILABLE  Socket 'a:p' already in use
 *           STATUS_INVALID_ARG  the address means nothing
 */
NODISCARD struct status *listener_open(struct listener *l, const char *address, int port,
                                       bool reuse_port);

/* listener_start - begins to accept. Thread: the first worker's, or before it runs. */
NODISCARD struct status *listener_start(struct listener *l, struct worker *workers,
                                        unsigned int n_workers, unsigned int max_conns);

/* listener_close - no more. Thread: as listener_start(). */
void listener_close(struct listener *l);

#endif
