/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A service: what listens at one port and speaks one protocol, on loops that it may share with
 * other services (loops.h). A service that is given none has loops of its own.
 */
#ifndef CONCH_FRONTENDS_NET_SERVER_H
#define CONCH_FRONTENDS_NET_SERVER_H

#include <stdbool.h>

#include "frontends/net/http1.h"
#include "frontends/net/listener.h"
#include "frontends/net/loops.h"
#include "frontends/net/tls_files.h"
#include "frontends/net/worker.h"

struct net_options {
    const char *name; /* of its loops, if they are its own */
    const char *address;
    int port;
    bool reuse_port;
    struct loops *loops;                /* loops to share; NULL: the service has its own */
    unsigned int n_threads;             /* at least 1; of shared loops, the first ones */
    unsigned int max_conns;             /* 0: limited by descriptors only */
    unsigned int max_conns_per_address; /* 0: no limit; see address_limit.h */
    unsigned int n_reserved_fds;        /* descriptors for other uses: listener_reserve() */
    struct net_timeouts timeouts;
    struct budget *budget;         /* of its own loops: see struct loops_options */
    unsigned int n_near_blocks;    /* for pool_keep_near() of each of the loops; 0: its default */
    const struct tls_options *tls; /* NULL: without TLS. Copied */

    const struct protocol *protocol; /* NULL: HTTP/1.1 */
    const void *settings;            /* for protocol->env_new(); must outlive the service */
    struct http1_settings http1;     /* those of HTTP/1.1 */

    void *handler_arg;
    /* The handler's data of a loop; made before the first connection, freed after the last. */
    void *(*ctx_new)(void *handler_arg, struct net_env *env);
    void (*ctx_free)(void *handler_ctx);
    /*
     * While the service stops: whether clients may have begun something that they should end on
     * their present connections (exchange_goes_on()). Called repeatedly. Thread: that of
     * net_server_begin_stop() and net_server_stop(). Optional.
     */
    bool (*goes_on)(void *handler_arg);
    /*
     * The service is about to be freed. Thread: that of net_server_stop(). Optional.
     */
    void (*on_free)(void *handler_arg);
};

struct net_server;

/*
 * net_options_init - sets the defaults. The caller must set the members that are then NULL, unless
 * they are optional.
 */
void net_options_init(struct net_options *o);

/*
 * net_server_start - listens and serves. The caller ends the server with net_server_stop().
 *
 * Errors: as tls_files_start(), listener_open(), loops_new() and acceptor_start();
 *         STATUS_UNAVAILABLE  memory is exhausted, or a shared loop does not answer
 */
NODISCARD struct status *net_server_start(const struct net_options *o, struct net_server **ret);

/*
 * net_server_port, net_server_place - where the service listens: the port, 0 for "unix:"; and the
 * address with the port as text, which lives as long as the service.
 */
int net_server_port(const struct net_server *s);
const char *net_server_place(const struct net_server *s);

/*
 * net_server_add_totals - adds what the service's loops have counted to the totals.
 * net_server_loop - the i-th loop of the service; NULL: it has no more.
 * net_server_certificate_s - the time that the server's certificate has left, in seconds; false:
 * the service does not speak TLS.
 *
 * Thread: any, while the service lives.
 */
void net_server_add_totals(const struct net_server *s, struct net_totals *totals);
const struct worker *net_server_loop(const struct net_server *s, unsigned int i);
bool net_server_certificate_s(const struct net_server *s, double *ret_left_s);

typedef void net_tick_fn(unsigned int seconds_left, unsigned int n_conns);

enum net_end {
    NET_FREED, /* the server is freed */
    NET_KEPT,  /* the handler still has requests, so the server is not freed */
    NET_STUCK, /* a loop does not answer, since a call on it has not returned; the log names the
                  loop */
};

/*
 * net_server_begin_stop - stops accepting, and has all loops close the connections on which nothing
 * is in progress. Does not wait. Several services that stop together first all begin to stop; then
 * net_server_stop() waits for each.
 *
 * Thread: any but a worker's.
 */
void net_server_begin_stop(struct net_server *s);

/*
 * net_server_stop - stops accepting, lets requests in progress end, and closes the connections.
 * Ends the service's own loops, too. Connections of which exchange_goes_on() was called stay while
 * net_options.goes_on() returns true.
 *
 * Thread: any but a worker's. Blocks at most until the deadline (monotonic), and then for some
 * tenths of a second, in which the loops close the connections that are left.
 * @on_tick  called at once and then every second, as long as connections are left; optional
 * @ret_end  whether s was freed
 * Returns the number of connections that were cut off, or that are on a loop that does not answer
 */
unsigned int net_server_stop(struct net_server *s, uint64_t deadline_ns, net_tick_fn *on_tick,
                             enum net_end *ret_end);

#endif
