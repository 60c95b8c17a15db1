/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A server of one protocol: a listening socket and the workers that serve its connections.
 */
#ifndef CONCH_FRONTENDS_NET_SERVER_H
#define CONCH_FRONTENDS_NET_SERVER_H

#include <stdbool.h>

#include "frontends/net/exchange.h"
#include "frontends/net/listener.h"
#include "frontends/net/worker.h"

struct net_options {
    const char *name; /* of the threads: "http" gives http-0, http-1, … */
    const char *address;
    int port;
    bool reuse_port;
    unsigned int n_threads;      /* at least 1 */
    unsigned int max_conns;      /* 0 = as many as descriptors */
    unsigned int n_reserved_fds; /* descriptors that connections should leave: listener_reserve() */
    struct http_limits limits;
    struct net_timeouts timeouts;
    struct budget *budget; /* for all that connections keep; NULL: one of its own */
    const struct http_handler *handler;
    void *handler_arg;
    /* What the handler keeps per loop; called before the threads run, and after their end. */
    void *(*ctx_new)(void *handler_arg, struct http_env *env);
    void (*ctx_free)(void *handler_ctx);
    /*
     * While the server stops: may clients have begun something that they should end on the
     * connections that they have? Asked again and again. Thread: the stop's. Optional.
     */
    bool (*goes_on)(void *handler_arg);
};

struct net_server;

/* net_options_init - the defaults; what is NULL must be filled in. */
void net_options_init(struct net_options *o);

/*
 * net_server_start - listens and serves.
 *
 * Errors: as listener_open() and worker_start()
 */
NODISCARD struct status *net_server_start(const struct net_options *o, struct net_server **ret);

int net_server_port(const struct net_server *s);

typedef void net_tick_fn(unsigned int seconds_left, unsigned int n_conns);

enum net_end {
    NET_FREED, /* s is gone */
    NET_KEPT,  /* the handler still has requests, which keep their worker */
    NET_STUCK, /* a loop does not answer: what it has called has not come back; the log names it */
};

/*
 * net_server_stop - accepts no more, lets what is under way end, closes. Connections of which
 * exchange_goes_on() was said stay for as long as net_options.goes_on() says so.
 *
 * Thread: any but a worker's. Blocks, at most until the deadline and some tenths of a second more,
 * in which loops are told that it is over.
 * @on_tick  told at once and then every second, as long as connections are left; optional
 * Returns   how many connections were cut off, or could not even be
 */
unsigned int net_server_stop(struct net_server *s, uint64_t deadline_ns, net_tick_fn *on_tick,
                             enum net_end *ret_end);

#endif
