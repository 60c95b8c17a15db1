/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the options of a service say of TLS: --<service>-use-ssl, --<service>-use-ssl-mutual and the
 * three files. HTTP, gRPC and metrics have the same five options.
 *
 * Thread: the one that starts the service.
 */
#ifndef CONCH_FRONTENDS_SERVE_SERVICE_TLS_H
#define CONCH_FRONTENDS_SERVE_SERVICE_TLS_H

#include <stdbool.h>

#include "base/compiler.h"
#include "frontends/net/tls_files.h"

/* The options; the paths are borrowed, "" or NULL means none. */
struct service_tls {
    const char *name; /* of the service, for messages: "gRPC" */
    const char *flag; /* how its options begin: "grpc" */
    bool use_ssl;
    bool use_ssl_mutual; /* implies use_ssl */
    const char *server_cert, *server_key, *root_cert;
};

/* SERVICE_TLS - those of a structure of conch.h, to which o points. */
#define SERVICE_TLS(o, service, flag_begin)                                                        \
    ((struct service_tls){.name = (service),                                                       \
                          .flag = (flag_begin),                                                    \
                          .use_ssl = (o)->use_ssl,                                                 \
                          .use_ssl_mutual = (o)->use_ssl_mutual,                                   \
                          .server_cert = (o)->server_cert,                                         \
                          .server_key = (o)->server_key,                                           \
                          .root_cert = (o)->root_cert})

/* What a service that speaks HTTP/1 begins with. */
#define HTTP1_TLS ((struct tls_options){.alpn = "http/1.1,http/1.0", .alpn_is_optional = true})

/*
 * service_tls_read - sets the files' paths in *tls, whose other members are the caller's. Files
 * that are named although nothing uses them make a warning in the log.
 *
 * @ret     tls; NULL: the service speaks no TLS
 * Errors:  STATUS_INVALID_ARG  a file that is needed is not named
 */
NODISCARD struct status *service_tls_read(const struct service_tls *o, struct tls_options *tls,
                                          const struct tls_options **ret);

#endif
