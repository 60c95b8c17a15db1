/* SPDX-License-Identifier: Apache-2.0 */
/*
 * http2_server: serves HTTP/2 by prior knowledge over real sockets, without gRPC, for tests with
 * programs that only know HTTP/2. Each answer is "hello" and the request's body, so that each
 * answer has DATA. Prints the port, and ends when stdin ends.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/pool.h"
#include "base/status.h"
#include "frontends/net/http2.h"
#include "frontends/net/server.h"
#include "lib/http2_service.h"

struct echo {
    char *body;
    size_t n_body, capacity;
    struct out_piece greeting, content;
};

static void on_begin(struct http2_stream *s, const struct http2_head *head)
{
    struct echo *e = http2_stream_part(s);
    (void)head;
    memset(e, 0, sizeof(*e));
}

static void on_data(struct http2_stream *s, const char *bytes, size_t n_bytes)
{
    struct echo *e = http2_stream_part(s);
    if (e->n_body + n_bytes > e->capacity) {
        e->capacity = (e->n_body + n_bytes) * 2;
        e->body = realloc(e->body, e->capacity);
    }
    memcpy(e->body + e->n_body, bytes, n_bytes);
    e->n_body += n_bytes;
    http2_stream_take(s, n_bytes);
}

static void on_half_close(struct http2_stream *s)
{
    static const struct http2_field fields[] = {HTTP2_FIELD("content-type", "text/plain")};
    struct echo *e = http2_stream_part(s);
    http2_stream_respond(s, "200", fields, ARRAY_SIZE(fields), false);
    e->greeting = (struct out_piece){.bytes = "hello", .n_bytes = 5};
    http2_stream_send(s, &e->greeting);
    if (e->n_body > 0) {
        e->content = (struct out_piece){.bytes = e->body, .n_bytes = e->n_body};
        http2_stream_send(s, &e->content);
    }
    http2_stream_end(s, NULL, 0);
}

static void on_cancel(struct http2_stream *s, enum http2_error why)
{
    (void)s, (void)why;
}

static void on_end(struct http2_stream *s)
{
    struct echo *e = http2_stream_part(s);
    free(e->body);
}

static const struct http2_handler handler = {
    .part_bytes = sizeof(struct echo),
    .on_begin = on_begin,
    .on_data = on_data,
    .on_half_close = on_half_close,
    .on_cancel = on_cancel,
    .on_end = on_end,
};

static void *make_ctx(void *arg, struct net_env *env)
{
    (void)arg;
    return env;
}

static void free_ctx(void *ctx)
{
    (void)ctx;
}

int main(void)
{
    struct http2_settings settings = {.handler = &handler};
    struct net_server *server;
    struct net_options o;
    char byte;

    http2_service_options(&o, &settings, "http2");
    o.ctx_new = make_ctx;
    o.ctx_free = free_ctx;
    struct status *st = net_server_start(&o, &server);
    if (st) {
        fprintf(stderr, "%s\n", status_message(st));
        return 1;
    }
    printf("%d\n", net_server_port(server));
    fflush(stdout);
    while (read(0, &byte, 1) > 0) {
    }
    enum net_end end;
    unsigned int n_cut = net_server_stop(server, monotonic_ns() + 10 * NS_PER_S, NULL, &end);
    printf("stopped, %u cut off\n", n_cut);
    return end == NET_FREED ? 0 : 1;
}
