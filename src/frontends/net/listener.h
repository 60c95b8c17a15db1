/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Listening sockets of one port, watched by every worker's loop (acceptor.h): one for each address
 * that the host name stands for, so that "localhost" is there for who asks ::1 and for who asks
 * 127.0.0.1.
 */
#ifndef CONCH_FRONTENDS_NET_LISTENER_H
#define CONCH_FRONTENDS_NET_LISTENER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"

struct acceptor;
struct status;
struct worker;

enum { LISTENER_MAX_SOCKETS = 8 };

struct listener {
    /* Set by listener_open(), constant afterwards. */
    int fds[LISTENER_MAX_SOCKETS];
    unsigned int n_sockets;
    int port; /* the one in use, also where 0 was asked for */

    /* Set by acceptors_start(), constant afterwards. */
    struct worker *workers;
    unsigned int n_workers;
    struct acceptor *acceptors; /* one for each worker */
    unsigned int max_conns;     /* 0 = no limit */
    int first_reserved_fd;      /* a connection should have a lower descriptor */
    unsigned int n_reserved_fds;

    /* Any thread, relaxed. */
    atomic_uint n_open;     /* connections, those that are being accepted included */
    atomic_bool told;       /* that accepting paused */
    atomic_bool told_short; /* that idle connections are closed */
    atomic_bool is_short;   /* of descriptors: room is made before one accepts */

    atomic_bool accepts_in_shortage; /* an acceptor makes room; the others wait */
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

/* listener_reserve - how many descriptors connections should leave to all else in the process: 64,
 * or a quarter of those that it may have. */
unsigned int listener_reserve(void);

/*
 * listener_shut - nobody can connect any more, from now on; what each loop does is of no account.
 *
 * Thread: any, between acceptors_start() and acceptors_end().
 */
void listener_shut(struct listener *l);

/* listener_close - closes the sockets. Thread: any, when no worker accepts. */
void listener_close(struct listener *l);

/* listener_give_slot_back - a connection that was counted is gone. Thread: any. */
static inline void listener_give_slot_back(struct listener *l)
{
    atomic_fetch_sub_explicit(&l->n_open, 1, memory_order_relaxed);
}

#endif
