/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The event loops of a server: one set, on which HTTP and whatever comes beside it listen. Metrics
 * have a loop of their own. Each loop has a struct loop_share, which is net_env.loop_ctx there.
 */
#ifndef CONCH_FRONTENDS_SERVE_SERVER_LOOPS_H
#define CONCH_FRONTENDS_SERVE_SERVER_LOOPS_H

#include "base/compiler.h"
#include "frontends/net/server.h"

struct server;

/*
 * server_loops_get - the loops of a server, of which at least n_threads run (as many as there are
 * CPUs at most). They are started by the first caller. server_loops_put() ends the use; the threads
 * end with the last one, unless a service could not be taken off them.
 *
 * Thread: any but a loop's.
 * @end    how the service on them has ended (net_server_stop())
 * Errors: as loops_new()
 */
NODISCARD struct status *server_loops_get(struct server *server, unsigned int n_threads,
                                          struct loops **ret_loops);
void server_loops_put(struct server *server, enum net_end end);

/* server_loops_count - how many loops a service has for an option; 0: one for each CPU. */
unsigned int server_loops_count(int n_threads);

#endif
