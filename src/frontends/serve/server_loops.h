/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The event loops of a server: one set, on which the HTTP and gRPC services listen. Metrics have a
 * loop of their own. Each loop has a struct loop_share, which is net_env.loop_ctx.
 */
#ifndef CONCH_FRONTENDS_SERVE_SERVER_LOOPS_H
#define CONCH_FRONTENDS_SERVE_SERVER_LOOPS_H

#include "base/compiler.h"
#include "frontends/net/server.h"

struct regions;
struct server;

/*
 * server_loops_get - the loops of a server. At least n_threads run, but no more than there are
 * CPUs. The first caller starts the loops. server_loops_put() ends a use. The threads end with the
 * last use, unless a service could not be freed.
 *
 * Thread: any but a loop's.
 * @end    the result of net_server_stop() for the service
 * Errors: as loops_new()
 */
NODISCARD struct status *server_loops_get(struct server *server, unsigned int n_threads,
                                          struct loops **ret_loops);
void server_loops_put(struct server *server, enum net_end end);

/*
 * server_loops_regions - the table of the regions of shared memory that clients have registered,
 * whatever the service. Borrowed, from server_loops_get() to server_loops_put().
 */
struct regions *server_loops_regions(struct server *server);

/*
 * server_loops_turned - whether each loop of the server has turned since the last call, as
 * loops_turned(). True, if there are none. Thread: one, not a loop's.
 */
bool server_loops_turned(struct server *server);

/* server_loops_count - the number of loops for an option's value; 0: one for each CPU. */
unsigned int server_loops_count(int n_threads);

#endif
