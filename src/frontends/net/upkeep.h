/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The upkeep of a worker's connections, apart from their own events: time limits, memory, the
 * portions of a loop iteration, descriptors.
 */
#ifndef CONCH_FRONTENDS_NET_UPKEEP_H
#define CONCH_FRONTENDS_NET_UPKEEP_H

#include <stdint.h>

struct listener;
struct net_env;
struct net_timeouts;
struct worker;
struct worker_service;

/* upkeep_begin - starts the upkeep of a worker that has no connection yet. Thread: any. */
void upkeep_begin(struct worker *w);

/*
 * upkeep_serve - makes the worker ready for connections of a service; their env gets its callbacks.
 * upkeep_serve_no_more - closes the connections of the service; it must not accept any more, and
 * every connection that was given to it must have arrived. Its listener, timeouts and env may be
 * freed afterwards.
 *
 * Thread: the worker's, or any while the worker does not run.
 */
void upkeep_serve(struct worker *w, struct worker_service *s, struct listener *listener,
                  const struct net_timeouts *timeouts, struct net_env *env);
void upkeep_serve_no_more(struct worker_service *s);

/*
 * upkeep_close_idle - closes up to n connections that have been idle since before_ns or earlier,
 * those that have been idle for longest. Updates idle_since_ns.
 *
 * Thread: the worker's.
 * Returns the number of closed connections. If that is less than n, another worker may have
 * connections that were idle for longer
 */
unsigned int upkeep_close_idle(struct worker *w, unsigned int n, uint64_t before_ns);

/*
 * upkeep_ask_close_idle - has the worker's thread call upkeep_close_idle() soon. A second request
 * before that call is ignored. Thread: any.
 */
void upkeep_ask_close_idle(struct worker *w, unsigned int n, uint64_t before_ns);

#endif
