/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gRPC frontend: a service on the server's loops. Neither the program nor the public API starts
 * it yet.
 */
#ifndef CONCH_FRONTENDS_GRPC_GRPC_H
#define CONCH_FRONTENDS_GRPC_GRPC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"
#include "frontends/grpc/stream_flow.h"
#include "frontends/net/http2.h"

struct grpc_service;
struct server;
struct status;

/* Set by grpc_options_init(), then by the caller. */
struct grpc_options {
    const char *address; /* a numeric address or a host name */
    int port;            /* 0: any free port; grpc_service_port() returns it */
    bool reuse_port;
    int n_threads;                /* event loops; 0: one for each CPU */
    unsigned int max_connections; /* 0: as many as the system allows */
    size_t max_message_bytes;     /* of a request, unpacked */
    unsigned int reply_encodings; /* set of GRPC_IDENTITY, GRPC_GZIP, GRPC_DEFLATE, for answers to
                                     inferences */
    struct stream_flow_limits flow;
    struct http2_limits limits;
    struct http2_times times;
};

/* grpc_options_init - the defaults: 0.0.0.0:8001, messages up to 2^31 - 1 bytes. */
void grpc_options_init(struct grpc_options *o);

/*
 * grpc_service_start - serves gRPC for a server, which must live until grpc_service_stop().
 *
 * Errors: STATUS_UNAVAILABLE  Socket 'a:p' already in use
 *         STATUS_INVALID_ARG  the address is invalid
 */
NODISCARD struct status *grpc_service_start(struct server *server, const struct grpc_options *o,
                                            struct grpc_service **ret);

int grpc_service_port(const struct grpc_service *s);

/*
 * grpc_service_stop - accepts no new connections and no new calls, and waits up to timeout_ms for
 * calls in progress. Then closes all connections and frees the service, unless a handler still has
 * requests.
 *
 * Returns the number of connections that were cut off or could not be closed.
 */
unsigned int grpc_service_stop(struct grpc_service *s, uint64_t timeout_ms);

#endif
