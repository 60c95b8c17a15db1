/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The endpoint for metrics: one loop on a thread of its own, so that a scrape of thousands of
 * models holds up no inference. As in the reference, any other path at this port gives 200 and an
 * empty body, which users take for a sign of life (reference/features §1.1 row 24).
 */
#include "conch/conch.h"

#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/status.h"
#include "core/metrics/openmetrics.h"
#include "core/server/server.h"
#include "frontends/http/route.h"
#include "frontends/net/server.h"
#include "frontends/ops/errors.h"
#include "frontends/serve/service_options.h"
#include "frontends/serve/service_metrics.h"
#include "frontends/serve/service_tls.h"

enum {
    MAX_PAGE_BYTES = INT32_MAX,
    MAX_CONNECTIONS = 256, /* each may keep a page that its client does not read */
    MAX_BODY_BYTES = 1 << 20,
};

struct conch_metrics {
    struct server *server;
    struct service_metrics own; /* its own metrics, as a service */
    struct net_server *net;
};

/* The frontend's part of an exchange. */
struct metrics_call {
    const struct route *route; /* NULL: no such path */
    bool wants_openmetrics;    /* Accept names that format */
    struct buf page;           /* until the reply has been sent */
};

static const char text_format[] = "text/plain; charset=utf-8";
static const char openmetrics_format[] =
    "application/openmetrics-text; version=1.0.0; charset=utf-8";

static void reply_page(struct exchange *x, const struct buf *page, const char *format)
{
    struct iovec body = {.iov_base = page->data, .iov_len = page->size};
    exchange_reply(x, &(struct http_reply){
                          .status = 200,
                          .content_type = format,
                          .headers = "",
                          .body = &body,
                          .n_body = page->size > 0,
                      });
}

/* Writes the page in the other format. */
NODISCARD static struct status *rewrite_page(struct exchange *x, struct buf *page)
{
    struct buf text = *page;
    buf_init_pooled(page, MAX_PAGE_BYTES, x->env->net.pool);
    openmetrics_write(text.data, text.size, page);
    buf_done(&text);
    return buf_status(page);
}

static void give_page(struct exchange *x)
{
    struct metrics_call *call = exchange_part(x);
    const struct conch_metrics *metrics = x->env->net.handler_ctx;
    struct status *st = server_metrics(metrics->server, &call->page);
    if (!st && call->wants_openmetrics)
        st = rewrite_page(x, &call->page);
    if (!st) {
        reply_page(x, &call->page, call->wants_openmetrics ? openmetrics_format : text_format);
        return;
    }
    exchange_reply_text(x, ops_error_of(status_code(st))->http_status, "text/plain",
                        status_message(st), strlen(status_message(st)));
    status_free(st);
}

static const struct route routes[] = {
    {METHOD_GET, "/metrics", give_page, OPS_API_OPEN, "text/plain", false, NULL},
    {METHOD_GET, "/metrics/", give_page, OPS_API_OPEN, "text/plain", false, NULL},
};

static void on_metrics_head(struct exchange *x, const struct http_head *head)
{
    struct metrics_call *call = exchange_part(x);
    call->route = route_find(routes, ARRAY_SIZE(routes), head->method, head_path(head)).route;
    struct span accept = head_accept(head);
    call->wants_openmetrics =
        memmem(accept.at, accept.length, "application/openmetrics-text", 28) != NULL;
    buf_init_pooled(&call->page, MAX_PAGE_BYTES, x->env->net.pool);
    x->discard = true;
}

static void on_metrics_request(struct exchange *x)
{
    static const struct http_reply_fixed wrong_method =
        HTTP_REPLY_FIXED("HTTP/1.1 405 Method Not Allowed\r\nContent-Type: text/plain\r\n"
                         "Content-Length: 30\r\n",
                         "{\"error\":\"Method Not Allowed\"}");
    struct metrics_call *call = exchange_part(x);
    if (x->method != METHOD_GET)
        exchange_reply_fixed(x, &wrong_method);
    else if (call->route)
        call->route->handle(x);
    else
        reply_page(x, &call->page, text_format);
}

static void on_end(struct exchange *x)
{
    struct metrics_call *call = exchange_part(x);
    buf_done(&call->page);
}

static const struct http_handler handler = {
    .part_bytes = sizeof(struct metrics_call),
    .on_head = on_metrics_head,
    .on_request = on_metrics_request,
    .on_end = on_end,
};

/* ---- Start and stop ------------------------------------------------------------------------- */

static void *metrics_ctx_new(void *arg, struct net_env *env)
{
    (void)env;
    return arg; /* with one loop its context is the endpoint itself */
}

void conch_metrics_options_init(struct conch_metrics_options *o)
{
    struct conch_http_options http;
    conch_http_options_init(&http);
    *o = (struct conch_metrics_options){.size = sizeof(*o), .address = http.address};
#define METRICS(member, factor) o->member = (__typeof__(o->member))option_default(text, factor);
#define METRICS_TEXT(member)    o->member = text;
#define OPTION(group, id, flag, kind, argument, initial, check, effect, keeper, help)              \
    text = initial;                                                                                \
    keeper
    const char *text;
#include "options.def"
    (void)text;
}

static void hide_metrics(void *arg)
{
    struct conch_metrics *metrics = arg;
    service_metrics_remove(&metrics->own);
}

TRITONSERVER_Error *conch_metrics_start(TRITONSERVER_Server *server,
                                        const struct conch_metrics_options *options,
                                        struct conch_metrics **ret_metrics)
{
    struct conch_metrics_options o;
    conch_metrics_options_init(&o);
    struct status *st = service_options_take("conch_metrics_start",
                                             server && ret_metrics ? options : NULL, &o, sizeof(o));
    if (st)
        return (TRITONSERVER_Error *)st;

    struct net_options net;
    struct tls_options tls = HTTP1_TLS;
    net_options_init(&net);
    net.name = "metrics";
    net.address = o.address;
    net.port = o.port;
    net.max_conns = MAX_CONNECTIONS;
    net.n_reserved_fds = listener_reserve() / 2; /* reached while HTTP has all of its connections */
    net.http1.limits.max_body_bytes = MAX_BODY_BYTES;
    net.http1.limits.max_pipeline = 1;
    net.budget = server_budget((struct server *)server);
    net.http1.handler = &handler;
    net.ctx_new = metrics_ctx_new;

    struct conch_metrics *metrics = mem_zalloc(sizeof(*metrics));
    metrics->server = (struct server *)server;
    net.handler_arg = metrics;
    net.on_free = hide_metrics;
    st = service_tls_read(&SERVICE_TLS(&o, "metrics", "metrics"), &tls, &net.tls);
    if (!st)
        st = net_server_start(&net, &metrics->net);
    if (st) {
        mem_free(metrics);
        return (TRITONSERVER_Error *)st;
    }
    service_metrics_add_http(&metrics->own, metrics->server, "metrics", metrics->net, NULL);
    log_info("Started Metrics Service at %s", net_server_place(metrics->net));
    *ret_metrics = metrics;
    return NULL;
}

int conch_metrics_port(const struct conch_metrics *metrics)
{
    return net_server_port(metrics->net);
}

void conch_metrics_stop(struct conch_metrics *metrics, uint64_t timeout_ms)
{
    enum net_end end;
    if (!metrics)
        return;
    net_server_stop(metrics->net, monotonic_ns() + timeout_ms * NS_PER_MS, NULL, &end);
    /* Each request is answered before the next one is parsed. */
    BUG_ON(end == NET_KEPT);
    if (end == NET_FREED) {
        mem_free(metrics);
        return;
    }
    hide_metrics(metrics);
    server_keep(metrics->server);
}
