/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The metrics of a server's frontends, on its page of metrics. A service adds itself when it serves
 * and removes itself before it is freed; services of the same protocol are shown as one.
 */
#ifndef CONCH_FRONTENDS_SERVE_SERVICE_METRICS_H
#define CONCH_FRONTENDS_SERVE_SERVICE_METRICS_H

#include "base/list.h"

struct net_server;
struct regions;
struct server;

/* A service. Embedded in its frontend. */
struct service_metrics {
    /* Set by service_metrics_add(), constant while it is in the list. */
    const struct server *server;
    const char *protocol; /* the label: "http" */
    const struct net_server *net;
    const struct regions *regions; /* of clients, which all services of a server share; or NULL */
    /* The label of an answer of that number (net/counts.h); NULL: the status of HTTP. */
    const char *const *statuses;
    unsigned int n_statuses;
    unsigned int fine, expired; /* the numbers of: success; the deadline has passed */

    struct list link; /* under service_metrics.mu */
};

/*
 * service_metrics_add - shows the service on the page of its server until service_metrics_remove().
 * The members but the link are set. Thread: any but a loop's.
 */
void service_metrics_add(struct service_metrics *m);

/* service_metrics_add_http - sets the members as services have them that answer with a status of
 * HTTP, and calls service_metrics_add(). */
void service_metrics_add_http(struct service_metrics *m, const struct server *server,
                              const char *protocol, const struct net_server *net,
                              const struct regions *regions);

/* service_metrics_port - the port of the server's service of that protocol; 0: there is none.
 * Thread: any but a loop's. */
int service_metrics_port(const struct server *server, const char *protocol);

/* service_metrics_remove - when it returns, no thread reads the service; harmless when it was not
 * added, or removed before. Thread: any but a loop's. */
void service_metrics_remove(struct service_metrics *m);

#endif
