/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Listening sockets of one port, watched by the first worker's loop: one for each address that the
 * host name stands for, so that "localhost" is there for who asks ::1 and for who asks 127.0.0.1.
 * Connections go to the worker that has the fewest. When descriptors run out, accepting pauses for
 * a moment and says so once: clients then wait in the kernel's queue.
 */
#ifndef CONCH_FRONTENDS_NET_LISTENER_H
#define CONCH_FRONTENDS_NET_LISTENER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/loop.h"

struct worker;

enum { LISTENER_MAX_SOCKETS = 8 };

struct listener {
    struct listening {
        int fd;
        struct loop_fd watch;
        struct listener *listener;
    } sockets[LISTENER_MAX_SOCKETS];
    unsigned int n_sockets;
    int port; /* the one in use, also where 0 was asked for */
    struct worker *workers;
    unsigned int n_workers;
    unsigned int max_conns; /* 0 = no limit */
    bool started;
    struct timer pause;
    bool told; /* that accepting paused */
};

/*
 * listener_open - binds and listens.
 *
 * @address  a numeric address, or a host name; "" or "0.0.0.0" for every IPv4 address. "ipv4:" or
 *           "ipv6:" may stand before it, as the reference has it. Of the addresses of a name those
 *           that this machine does not have are passed over, as long as there is one.
 * @port     0 for any that is free
 * Errors:   STATUS_UNAVAILABLE  Socket 'a:p' already in use
 *           STATUS_INVALID_ARG  the address means nothing, or more than LISTENER_MAX_SOCKETS
 * addresses
 */
NODISCARD struct status *listener_open(struct listener *l, const char *address, int port,
                                       bool reuse_port);

/* listener_start - begins to accept. Thread: the first worker's, or before it runs. */
NODISCARD struct status *listener_start(struct listener *l, struct worker *workers,
                                        unsigned int n_workers, unsigned int max_conns);

/* listener_close - no more. Thread: as listener_start(). */
void listener_close(struct listener *l);

#endif
