/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lines of a start that a person reads. In a pipe or a file they are ASCII.
 */
#include "announce.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/compiler.h"
#include "conch/conch.h"
#include "options.h"
#include "program_log.h"

enum {
    LOOK_MS = 1000,       /* between two looks at what is being loaded */
    MOST_LINE_MS = 60000, /* between two lines about it */
};

/* ---- Places ---------------------------------------------------------------------------------- */

/* Prints address:port as URLs have it; an address of unix: has no port. */
static void print_place(char *out, size_t size, const char *address, int port)
{
    if (strncmp(address, "unix:", 5) == 0) {
        snprintf(out, size, "%s", address);
        return;
    }
    if (strncmp(address, "ipv4:", 5) == 0 || strncmp(address, "ipv6:", 5) == 0)
        address += 5;
    bool v6 = strchr(address, ':') != NULL;
    snprintf(out, size, "%s%s%s:%d", v6 ? "[" : "", address, v6 ? "]" : "", port);
}

static bool speaks_tls(const struct options *o)
{
    return option_bool(o, OPT_HTTP_USE_SSL) || option_bool(o, OPT_HTTP_USE_SSL_MUTUAL);
}

void announce_services(const struct options *o, const struct open_ports *ports)
{
    char http[512] = "", grpc[512] = "";
    if (ports->has_http)
        print_place(http, sizeof(http), option_text(o, OPT_HTTP_ADDRESS), ports->http);
    if (ports->has_grpc)
        print_place(grpc, sizeof(grpc), option_text(o, OPT_GRPC_ADDRESS), ports->grpc);
    if (ports->has_http && strncmp(http, "unix:", 5) == 0)
        log_info("Serving HTTP at %s%s%s", http, ports->has_grpc ? ", gRPC at " : "", grpc);
    else if (ports->has_http)
        log_info("Serving HTTP at %s://%s/v2%s%s", speaks_tls(o) ? "https" : "http", http,
                 ports->has_grpc ? ", gRPC at " : "", grpc);
    else if (ports->has_grpc)
        log_info("Serving gRPC at %s", grpc);
    else if (!ports->has_sagemaker && !option_bool(o, OPT_ALLOW_VERTEX_AI))
        log_warn("Nothing is served: HTTP and gRPC are switched off");
}

/* ---- While models load ------------------------------------------------------------------------
 */

void announce_loading(struct TRITONSERVER_Server *server, struct loading_watch *w,
                      uint64_t since_ms)
{
    bool may_log = since_ms >= w->line_ms;
    conch_server_show_loading(server, may_log);
    if (may_log) /* ever more rarely */
        w->line_ms = since_ms + MIN(since_ms, (uint64_t)MOST_LINE_MS);
    w->look_ms = since_ms + LOOK_MS;
}

/* ---- The last line ----------------------------------------------------------------------------
 */

/* A part of the line; the separator in front of it is a dot on a terminal. */
static void add_part(char *line, size_t size, const struct options *o, const char *what,
                     const char *place, const char *path)
{
    size_t used = strlen(line);
    bool is_seen = isatty(STDOUT_FILENO) && !*option_text(o, OPT_LOG_FILE);
    const char *between = is_seen ? " · " : ", ";
    snprintf(line + used, size - used, "%s%s%s%s", *line ? between : "", what, place, path);
}

static void add_places(char *line, size_t size, const struct options *o,
                       const struct open_ports *ports)
{
    char place[512];
    if (ports->has_http) {
        print_place(place, sizeof(place), option_text(o, OPT_HTTP_ADDRESS), ports->http);
        bool is_file = strncmp(place, "unix:", 5) == 0;
        const char *scheme = is_file ? "HTTP at " : speaks_tls(o) ? "https://" : "http://";
        add_part(line, size, o, scheme, place, "");
    }
    if (ports->has_grpc) {
        print_place(place, sizeof(place), option_text(o, OPT_GRPC_ADDRESS), ports->grpc);
        add_part(line, size, o, "gRPC ", place, "");
    }
    if (ports->has_metrics) {
        bool tls =
            option_bool(o, OPT_METRICS_USE_SSL) || option_bool(o, OPT_METRICS_USE_SSL_MUTUAL);
        const char *address = option_text(o, OPT_METRICS_ADDRESS);
        print_place(place, sizeof(place), address ? address : option_text(o, OPT_HTTP_ADDRESS),
                    ports->metrics);
        add_part(line, size, o, tls ? "metrics https://" : "metrics http://", place, "/metrics");
    }
}

void announce_ready(struct TRITONSERVER_Server *server, const struct options *o,
                    const struct open_ports *ports, uint64_t since_ms)
{
    char line[2048] = "", counts[128], batched[64] = "";
    size_t n = 0, n_batched = 0;
    bool ready = false;
    TRITONSERVER_ErrorDelete(TRITONSERVER_ServerIsReady(server, &ready));
    conch_server_count_models(server, &n, &n_batched);
    add_places(line, sizeof(line), o, ports);
    if (n_batched)
        snprintf(batched, sizeof(batched), " (%zu batched)", n_batched);
    snprintf(counts, sizeof(counts), "%zu model%s%s in %.2f s", n, n == 1 ? "" : "s", batched,
             (double)since_ms / 1000);
    if (*line) {
        add_part(line, sizeof(line), o, counts, "", "");
        log_info("%s: %s", ready ? "Ready" : "Serving, but not ready", line);
    }
}
