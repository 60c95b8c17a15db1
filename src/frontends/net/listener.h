/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Listening sockets of one port, watched by the loop of every worker (acceptor.h). There is one
 * socket for each address of the host name, so that "localhost" serves clients of ::1 and of
 * 127.0.0.1.
 */
#ifndef CONCH_FRONTENDS_NET_LISTENER_H
#define CONCH_FRONTENDS_NET_LISTENER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"
#include "frontends/net/unix_socket.h"

struct address_count;
struct address_limit;
struct status;
struct worker_service;

enum { LISTENER_MAX_SOCKETS = 8, LISTENER_PLACE_BYTES = 320 };

struct listener {
    /* Set by listener_open(), constant afterwards. */
    int fds[LISTENER_MAX_SOCKETS];
    unsigned int n_sockets;
    int port; /* the port in use, also when 0 was asked for; 0 for "unix:" */
    char place[LISTENER_PLACE_BYTES]; /* for people: a:p, or unix:PATH */

    struct unix_socket file; /* of "unix:"; the thread that starts and stops the service */

    /* Set by listener_serve(), constant afterwards. */
    struct worker_service *services; /* of each worker that has connections of this port */
    unsigned int n_services;
    unsigned int max_conns;            /* 0 = no limit */
    struct address_limit *per_address; /* NULL = no limit */
    int first_reserved_fd;             /* connections should have lower descriptors */
    unsigned int n_reserved_fds;

    /* Any thread, relaxed. */
    atomic_uint n_open;                 /* connections, including those being accepted */
    atomic_bool pause_logged;           /* the log line about a pause was written */
    atomic_bool shortage_logged;        /* the log line about closed idle connections was written */
    _Atomic uint64_t refusal_logged_ns; /* when the log last told of an address beyond its limit */
    atomic_bool in_shortage; /* descriptors are short: an acceptor makes room before it accepts */

    atomic_bool accepts_in_shortage; /* an acceptor makes room; the others wait */
};

/*
 * listener_open - binds and listens. The caller ends it with listener_done().
 *
 * @address  a numeric address or a host name; "" or "0.0.0.0" for every IPv4 address. "ipv4:" or
 *           "ipv6:" may precede it, as in the reference. Addresses of a name that this machine does
 *           not have are skipped, as long as one is left. "unix:PATH" or "unix:@NAME" for clients
 *           of this machine (unix_socket.h)
 * @port     0 for any free port; ignored for "unix:"
 * Errors:   STATUS_UNAVAILABLE  Socket 'a:p' already in use
 *           STATUS_INVALID_ARG  the address is invalid, or has more than LISTENER_MAX_SOCKETS
 *                               addresses, or is "unix:" and to be shared
 */
NODISCARD struct status *listener_open(struct listener *l, const char *address, int port,
                                       bool reuse_port);

/*
 * listener_reserve - the number of descriptors that connections should leave to the rest of the
 * process: 64, or a quarter of the process's limit.
 */
unsigned int listener_reserve(void);

/*
 * listener_serve - sets the services that get the connections. acceptor_start() on each of their
 * loops follows.
 *
 * @max_conns       the most connections at one time; 0: no limit
 * @max_per_address the most of one address (address_limit.h); 0: no limit
 * @n_reserved_fds  descriptors that connections must not use
 */
void listener_serve(struct listener *l, struct worker_service *services, unsigned int n_services,
                    unsigned int max_conns, unsigned int max_per_address,
                    unsigned int n_reserved_fds);

/*
 * listener_shut - ends listening at once: no further client can connect, even while a loop is busy.
 * The file of a "unix:" socket is removed.
 *
 * Thread: the one that stops the service, until listener_close().
 */
void listener_shut(struct listener *l);

/*
 * listener_close - closes the sockets; harmless when they are closed. Connections may be left.
 * Thread: any, when no worker accepts.
 */
void listener_close(struct listener *l);
/* listener_done - closes the sockets and frees the rest; no connection may be left. */
void listener_done(struct listener *l);

/*
 * listener_give_slot_back - uncounts a connection that is gone. Thread: any.
 *
 * @address  from listener.per_address, or NULL
 */
void listener_give_slot_back(struct listener *l, struct address_count *address);

#endif
