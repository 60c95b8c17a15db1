/* SPDX-License-Identifier: Apache-2.0 */
/* How the programs of tests/tools serve HTTP/2 over real sockets. */
#ifndef CONCH_TESTS_LIB_HTTP2_SERVICE_H
#define CONCH_TESTS_LIB_HTTP2_SERVICE_H

#include "frontends/net/http2.h"
#include "frontends/net/server.h"

/* http2_service_options - on a free port of this machine, by one loop, with the default limits; the
 * handler and the maker of contexts are the caller's. */
static inline void http2_service_options(struct net_options *o, struct http2_settings *settings,
                                         const char *name)
{
    http2_limits_init(&settings->limits);
    http2_times_init(&settings->times);
    net_options_init(o);
    o->name = name;
    o->address = "127.0.0.1";
    o->port = 0;
    o->n_threads = 1;
    o->protocol = &http2_protocol;
    o->settings = settings;
}

#endif
