/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All services of the process are in one list. The page of a server asks for the metrics of its
 * services (page_add_part()): their counts are added up by protocol, into rows, and printed family
 * by family, as the format demands.
 *
 * Threads: any; mu guards the list, and what it holds lives while it is in it. Loops are never
 * asked and never wait.
 */
#include "frontends/serve/service_metrics.h"

#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/compiler.h"
#include "base/mem.h"
#include "base/mutex.h"
#include "core/metrics/exposition.h"
#include "core/server/page.h"
#include "frontends/net/server.h"
#include "frontends/shm/regions.h"

enum {
    LEVEL = 848,        /* in the table of core/README.md */
    FIRST_STATUS = 100, /* HTTP's status of the number 0 */
    MAX_LABELS = 128,
};

/* The services of one protocol. */
struct row {
    const struct service_metrics *first;
    struct net_totals totals;
    bool has_tls;
    double certificate_s; /* the least time that a certificate has left */
};

struct rows {
    size_t n;
    struct row *rows;
};

static struct mutex mu;
static struct list services; /* under mu */

__attribute__((constructor)) static void init_services(void)
{
    mutex_init(&mu, LEVEL, "service_metrics.mu");
    list_init(&services);
}

void service_metrics_add(struct service_metrics *m)
{
    mutex_lock(&mu);
    list_push(&services, &m->link);
    mutex_unlock(&mu);
}

void service_metrics_add_http(struct service_metrics *m, const struct server *server,
                              const char *protocol, const struct net_server *net,
                              const struct regions *regions)
{
    enum { OK = 200, GATEWAY_TIMEOUT = 504 };
    *m = (struct service_metrics){.server = server,
                                  .protocol = protocol,
                                  .net = net,
                                  .regions = regions,
                                  .fine = OK - FIRST_STATUS,
                                  .expired = GATEWAY_TIMEOUT - FIRST_STATUS};
    service_metrics_add(m);
}

int service_metrics_port(const struct server *server, const char *protocol)
{
    int port = 0;
    mutex_lock(&mu);
    LIST_FOR_EACH (link, &services) {
        const struct service_metrics *m = LIST_ENTRY(link, struct service_metrics, link);
        if (m->server == server && strcmp(m->protocol, protocol) == 0)
            port = net_server_port(m->net);
    }
    mutex_unlock(&mu);
    return port;
}

void service_metrics_remove(struct service_metrics *m)
{
    mutex_lock(&mu);
    if (m->link.next)
        list_remove(&m->link);
    mutex_unlock(&mu);
}

/* ---- Rows ----------------------------------------------------------------------------------- */

static struct row *get_row(struct rows *rows, const struct service_metrics *m)
{
    for (size_t i = 0; i < rows->n; i++) {
        if (strcmp(rows->rows[i].first->protocol, m->protocol) == 0)
            return &rows->rows[i];
    }
    struct row *row = &rows->rows[rows->n++];
    row->first = m;
    return row;
}

static void read_service_counts(struct rows *rows, const struct service_metrics *m)
{
    struct row *row = get_row(rows, m);
    double left_s;
    net_server_add_totals(m->net, &row->totals);
    if (!net_server_certificate_s(m->net, &left_s))
        return;
    row->certificate_s = row->has_tls ? MIN(row->certificate_s, left_s) : left_s;
    row->has_tls = true;
}

static void read_rows_locked(struct rows *rows, const struct server *server)
{
    size_t n = 0;
    mutex_assert_held(&mu);
    LIST_FOR_EACH (link, &services)
        n++;
    rows->rows = mem_zalloc((n + 1) * sizeof(*rows->rows));
    LIST_FOR_EACH (link, &services) {
        const struct service_metrics *m = LIST_ENTRY(link, struct service_metrics, link);
        if (m->server == server)
            read_service_counts(rows, m);
    }
}

/* ---- Lines ---------------------------------------------------------------------------------- */

/* Prints a line with the label of the protocol, and another one unless `name` is NULL. Labels are
 * sorted by name. */
static void print_line(struct buf *out, const char *family, const struct row *row, const char *name,
                       const char *value, double number)
{
    char labels[MAX_LABELS];
    const char *protocol = row->first->protocol;
    if (!name)
        snprintf(labels, sizeof(labels), "protocol=\"%s\"", protocol);
    else if (strcmp(name, "protocol") < 0)
        snprintf(labels, sizeof(labels), "%s=\"%s\",protocol=\"%s\"", name, value, protocol);
    else
        snprintf(labels, sizeof(labels), "protocol=\"%s\",%s=\"%s\"", protocol, name, value);
    exposition_line(out, family, "", labels, NULL, number);
}

/* A family that has one number of each protocol. */
static void print_protocol_counts(struct buf *out, const struct rows *rows, const char *family,
                                  const char *help, enum net_count which)
{
    exposition_family(out, family, help, METRIC_COUNTER);
    for (size_t i = 0; i < rows->n; i++)
        print_line(out, family, &rows->rows[i], NULL, NULL, (double)rows->rows[i].totals.of[which]);
}

static void print_open(struct buf *out, const struct rows *rows)
{
    static const char family[] = "conch_frontend_connections";
    exposition_family(out, family, "Number of connections that are open", METRIC_GAUGE);
    for (size_t i = 0; i < rows->n; i++) {
        const uint64_t *of = rows->rows[i].totals.of;
        /* An end may be read that came after the count of begins was read. */
        uint64_t open = of[NET_CONNS_BEGUN] - MIN(of[NET_CONNS_BEGUN], of[NET_CONNS_ENDED]);
        print_line(out, family, &rows->rows[i], NULL, NULL, (double)open);
    }
}

static void print_answers(struct buf *out, const struct rows *rows)
{
    static const char family[] = "conch_frontend_requests";
    exposition_family(out, family, "Number of requests that were answered, by status",
                      METRIC_COUNTER);
    for (size_t i = 0; i < rows->n; i++) {
        const struct row *row = &rows->rows[i];
        for (unsigned int number = 0; number < NET_N_ANSWERS; number++) {
            char text[16];
            uint64_t n = row->totals.answers[number];
            bool is_named = row->first->statuses && number < row->first->n_statuses;
            snprintf(text, sizeof(text), "%u", number + FIRST_STATUS);
            if (n > 0 || number == row->first->fine)
                print_line(out, family, row, "status",
                           is_named ? row->first->statuses[number] : text, (double)n);
        }
    }
}

static void print_expired(struct buf *out, const struct rows *rows)
{
    static const char family[] = "conch_frontend_requests_expired";
    exposition_family(out, family,
                      "Number of requests that were answered with the end of their time",
                      METRIC_COUNTER);
    for (size_t i = 0; i < rows->n; i++) {
        const struct row *row = &rows->rows[i];
        print_line(out, family, row, NULL, NULL, (double)row->totals.answers[row->first->expired]);
    }
}

/* A count and its value of a label. */
struct labelled {
    enum net_count which;
    const char *value;
};

static void print_labelled(struct buf *out, const struct rows *rows, const char *family,
                           const char *help, const char *label, const struct labelled *all,
                           size_t n_all)
{
    exposition_family(out, family, help, METRIC_COUNTER);
    for (size_t i = 0; i < rows->n; i++) {
        for (size_t k = 0; k < n_all; k++)
            print_line(out, family, &rows->rows[i], label, all[k].value,
                       (double)rows->rows[i].totals.of[all[k].which]);
    }
}

static void print_limits(struct buf *out, const struct rows *rows)
{
    static const struct labelled stalls[] = {
        {NET_STALLED_ANSWER, "answer"}, {NET_STALLED_BODY, "body"}, {NET_STALLED_HEAD, "head"}};
    static const struct labelled refusals[] = {
        {NET_REFUSED_ADDRESS, "address"},   {NET_REFUSED_BODY, "body"},
        {NET_REFUSED_CONNS, "connections"}, {NET_REFUSED_HEAD, "head"},
        {NET_REFUSED_MEMORY, "memory"},     {NET_REFUSED_STREAMS, "streams"},
        {NET_REFUSED_WASTE, "waste"}};
    print_labelled(out, rows, "conch_frontend_stalled",
                   "Number of times that a client was too slow, by what it held up", "part", stalls,
                   ARRAY_SIZE(stalls));
    print_labelled(out, rows, "conch_frontend_refused",
                   "Number of times that a limit refused, cut off or held back, by limit", "limit",
                   refusals, ARRAY_SIZE(refusals));
}

static bool has_tls(const struct rows *rows)
{
    bool any = false;
    for (size_t i = 0; i < rows->n; i++)
        any |= rows->rows[i].has_tls;
    return any;
}

static void print_tls(struct buf *out, const struct rows *rows)
{
    static const char days[] = "conch_frontend_certificate_days";
    static const struct labelled handshakes[] = {{NET_HANDSHAKES_FAILED, "failed"},
                                                 {NET_HANDSHAKES, "succeeded"}};
    if (!has_tls(rows))
        return;
    print_labelled(out, rows, "conch_frontend_handshakes", "Number of handshakes of TLS, by result",
                   "result", handshakes, ARRAY_SIZE(handshakes));
    exposition_family(out, days, "Days that the server's certificate has left", METRIC_GAUGE);
    for (size_t i = 0; i < rows->n; i++) {
        if (rows->rows[i].has_tls)
            print_line(out, days, &rows->rows[i], NULL, NULL,
                       rows->rows[i].certificate_s / (24 * 3600));
    }
}

/* ---- Loops ---------------------------------------------------------------------------------- */

/* Whether a service before this one has the loop, too. */
static bool came_before_locked(const struct service_metrics *m, const struct worker *w)
{
    LIST_FOR_EACH (link, &services) {
        const struct service_metrics *other = LIST_ENTRY(link, struct service_metrics, link);
        if (other == m)
            return false;
        for (unsigned int i = 0; other->server == m->server && net_server_loop(other->net, i);
             i++) {
            if (net_server_loop(other->net, i) == w)
                return true;
        }
    }
    return false;
}

static void print_turns_locked(struct buf *out, const struct server *server)
{
    static const char family[] = "conch_frontend_longest_turn_seconds";
    uint64_t now_ns = monotonic_ns();
    exposition_family(out, family,
                      "Longest iteration of an event loop in the last one to two minutes",
                      METRIC_GAUGE);
    LIST_FOR_EACH (link, &services) {
        const struct service_metrics *m = LIST_ENTRY(link, struct service_metrics, link);
        const struct worker *w;
        for (unsigned int i = 0; m->server == server && (w = net_server_loop(m->net, i)); i++) {
            char labels[MAX_LABELS];
            if (came_before_locked(m, w))
                continue;
            snprintf(labels, sizeof(labels), "loop=\"%s\"", w->thread.name);
            exposition_line(out, family, "", labels, NULL,
                            (double)loop_get_longest_ns(&w->loop, now_ns) / NS_PER_S);
        }
    }
}

/* ---- Regions -------------------------------------------------------------------------------- */

/* The regions of shared memory of the server's clients; NULL: clients may have none. */
static const struct regions *find_regions_locked(const struct server *server)
{
    mutex_assert_held(&mu);
    LIST_FOR_EACH (link, &services) {
        const struct service_metrics *m = LIST_ENTRY(link, struct service_metrics, link);
        if (m->server == server && m->regions && regions_are_allowed(m->regions))
            return m->regions;
    }
    return NULL;
}

static void print_regions_locked(struct buf *out, const struct server *server)
{
    static const char count[] = "conch_frontend_regions", size[] = "conch_frontend_region_bytes";
    static const char *const labels[REGION_KINDS] = {"kind=\"system\"", "kind=\"cuda\""};
    struct region_total of[REGION_KINDS];
    const struct regions *regions = find_regions_locked(server);
    if (!regions)
        return;
    for (int kind = 0; kind < REGION_KINDS; kind++)
        of[kind] = regions_count(regions, (enum region_kind)kind);
    exposition_family(out, count, "Number of regions of shared memory that clients have registered",
                      METRIC_GAUGE);
    for (int kind = 0; kind < REGION_KINDS; kind++)
        exposition_line(out, count, "", labels[kind], NULL, of[kind].n_regions);
    exposition_family(out, size, "Bytes of these regions", METRIC_GAUGE);
    for (int kind = 0; kind < REGION_KINDS; kind++)
        exposition_line(out, size, "", labels[kind], NULL, (double)of[kind].n_bytes);
}

/* ---- The part of the page -------------------------------------------------------------------- */

static void print_services(const struct server *server, struct buf *out)
{
    struct rows rows = {0};
    mutex_lock(&mu);
    read_rows_locked(&rows, server);
    if (rows.n > 0) {
        print_open(out, &rows);
        print_protocol_counts(out, &rows, "conch_frontend_connections_begun",
                              "Number of connections so far", NET_CONNS_BEGUN);
        print_answers(out, &rows);
        print_protocol_counts(
            out, &rows, "conch_frontend_requests_cancelled",
            "Number of requests that ended before they had an answer, since the client or "
            "its connection was gone",
            NET_CANCELLED);
        print_expired(out, &rows);
        print_protocol_counts(out, &rows, "conch_frontend_received_bytes",
                              "Bytes that clients have sent", NET_RECEIVED_BYTES);
        print_protocol_counts(out, &rows, "conch_frontend_sent_bytes", "Bytes sent to clients",
                              NET_SENT_BYTES);
        print_limits(out, &rows);
        print_tls(out, &rows);
        print_turns_locked(out, server);
        print_regions_locked(out, server);
    }
    mutex_unlock(&mu);
    mem_free(rows.rows);
}

__attribute__((constructor)) static void add_part(void)
{
    page_add_part(print_services);
}
