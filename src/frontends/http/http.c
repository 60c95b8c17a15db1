/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The HTTP frontend: its routes, the parts that it reads of a request's head, start and stop.
 */
#include "conch/conch.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/regex.h"
#include "base/status.h"
#include "base/thread.h"
#include "core/server/server.h"
#include "frontends/http/accept.h"
#include "frontends/http/call.h"
#include "frontends/http/client.h"
#include "frontends/http/cors.h"
#include "frontends/http/deadline.h"
#include "frontends/http/dialect.h"
#include "frontends/http/handlers.h"
#include "frontends/http/head_reading.h"
#include "frontends/http/infer.h"
#include "frontends/http/load_metrics.h"
#include "frontends/http/reply.h"
#include "frontends/http/route.h"
#include "frontends/net/server.h"
#include "frontends/serve/server_loops.h"
#include "frontends/serve/service_metrics.h"
#include "frontends/serve/service_options.h"
#include "frontends/serve/service_tls.h"

enum { MAX_JSON_REPLY = INT32_MAX };

/* ---- Functions for the connection ------------------------------------------------------------ */

static void read_client_timeout(struct head_reading *r, const struct http_head *head)
{
    static const char name[] = "conch-timeout-ms";
    struct span value = head_find(head, name, sizeof(name) - 1);
    if (LIKELY(!value.at))
        return;
    r->facts.has_timeout = true;
    r->bad_timeout = !deadline_parse(value.at, value.length, &r->timeout_ms);
    value.length = MIN(value.length, (size_t)256);
    r->timeout_text = head_range_of(head, value);
}

static void read_infer_headers(void *note, const struct http_head *head)
{
    struct head_reading *r = note;
    static const char length_name[] = "inference-header-content-length";
    static const char encoding_name[] = "content-encoding";
    static const char accepted_name[] = "accept-encoding";

    struct span length = head_find(head, length_name, sizeof(length_name) - 1);
    if (length.at) {
        r->facts.header_length_kind = (uint8_t)header_length_parse(length, &r->facts.header_length);
        length.length = MIN(length.length, (size_t)256);
        r->header_length_text = head_range_of(head, length);
    }
    struct span encoding = head_find(head, encoding_name, sizeof(encoding_name) - 1);
    struct span accepted = head_find(head, accepted_name, sizeof(accepted_name) - 1);
    r->facts.body_coding = (uint8_t)coding_of_body(encoding);
    r->facts.reply_coding = (uint8_t)coding_of_reply(accepted);
    read_client_timeout(r, head);
}

static void read_generate_headers(void *note, const struct http_head *head)
{
    static const char name[] = "endpoint-load-metrics-format";
    struct head_reading *r = note;
    read_infer_headers(note, head);
    r->facts.header_length_kind = HEADER_LENGTH_NONE; /* the body is JSON alone */
    struct span form = head_find(head, name, sizeof(name) - 1);
    if (LIKELY(!form.at))
        return;
    r->facts.load_metrics = load_metrics_form_of(form.at, form.length);
}

void read_binary_type(void *note, const struct http_head *head, const char *binary_type)
{
    struct head_reading *r = note;
    static const char type_name[] = "content-type";
    struct span text;
    struct span type = head_find(head, type_name, sizeof(type_name) - 1);
    enum header_length kind =
        header_length_of_type(type, binary_type, &text, &r->facts.header_length);
    read_client_timeout(r, head);
    r->facts.header_length_kind = (uint8_t)kind;
    if (kind == HEADER_LENGTH_NONE)
        return;
    text.length = MIN(text.length, (size_t)256);
    r->header_length_text = head_range_of(head, text);
}

static void read_accept(struct head_reading *r, const struct http_head *head)
{
    struct accepted accepted = accept_read(head_accept(head));
    r->facts.wants_json = accepted.json;
    r->facts.wants_html = accepted.html;
    r->facts.shortest_floats = accepted.shortest_floats;
}

static const struct route routes[] = {
#define ROUTE(method, pattern, handle, api, error_type, takes_body, read_head)                     \
    {METHOD_##method, pattern, handle, OPS_API_##api, error_type, takes_body, read_head},
#include "frontends/http/routes.def"
};

const struct route *http_routes(size_t *ret_n)
{
    *ret_n = ARRAY_SIZE(routes);
    return routes;
}

static struct route_match find_http_route(const struct http_settings *settings,
                                          const struct http_head *head)
{
    (void)settings;
    return route_find(routes, ARRAY_SIZE(routes), head->method, head_path(head));
}

/* Whether the request belongs to a trace, of which client_find_trace() reads more. */
static bool find_traceparent(const struct http_settings *settings, const struct route *route,
                             const struct http_head *head)
{
    static const char name[] = "traceparent";
    return route->api == OPS_API_INFERENCE && tracer_reads_heads(settings->tracer) &&
           head_find(head, name, sizeof(name) - 1).at;
}

/* Whether the client lacks the header that this part of the protocol needs. */
static bool find_restricted(const struct restrictions *restrictions, enum ops_api api,
                            const struct http_head *head)
{
    const struct restriction *r = restrictions_find(restrictions, api);
    if (LIKELY(!r))
        return false;
    struct span value = head_find(head, r->wire_name, r->name_length);
    return !restriction_admits(r, value.at, value.length);
}

static void read_origin(const struct cors *cors, struct head_facts *facts,
                        const struct http_head *head)
{
    facts->origin = cors_find_origin(cors, head);
    facts->is_preflight = cors_is_preflight(head, facts->origin);
}

static void read_route(const struct http_settings *settings, struct head_reading *r,
                       const struct http_head *head)
{
    if (UNLIKELY(settings->cors != NULL)) {
        read_origin(settings->cors, &r->facts, head);
        if (r->facts.is_preflight)
            return;
    }
    struct route_match m = settings->dialect->find_route(settings, head);
    struct head_facts *facts = &r->facts;
    facts->route = m.route;
    facts->is_restricted = m.route && find_restricted(&settings->restrictions, m.route->api, head);
    facts->wrong_method = m.route && m.route->method != head->method;
    r->model = head_range_of(head, m.model);
    if (!m.route || facts->is_restricted || facts->wrong_method)
        return;
    r->version = head_range_of(head, m.version);
    r->region = head_range_of(head, m.region);
    facts->names_repository = m.repository.at != NULL;
    read_accept(r, head);
    if (UNLIKELY(settings->reads_more))
        facts->has_trace = find_traceparent(settings, m.route, head);
    if (m.route->read_head)
        m.route->read_head(r, head);
}

static __attribute__((noinline)) void read_head(const struct http_settings *settings,
                                                struct head_reading *r,
                                                const struct http_head *head)
{
    struct head_facts *facts = &r->facts;
    r->done = true;
    read_route(settings, r, head);
    if (facts->header_length_kind != HEADER_LENGTH_FINE)
        facts->header_length = 0;
    r->discard =
        !facts->route || facts->is_restricted || facts->wrong_method || !facts->route->takes_body;
    r->is_unusual = facts->is_preflight || facts->has_timeout || r->region.length > 0 ||
                    r->target.length > 0 || facts->header_length_kind > HEADER_LENGTH_FINE;
}

/* A copy, because the head's bytes are freed when the body is complete. NULL is noted and the
 * request is refused: without its name or version another model would answer. */
static const char *keep_head_text(struct exchange *x, const struct http_head *head,
                                  struct head_range range)
{
    struct http_call *call = exchange_part(x);
    const char *kept = arena_strndup(&x->arena, head->base + range.at, range.length);
    call->no_memory |= !kept;
    return kept;
}

static void keep_model(struct exchange *x, const struct http_head *head,
                       const struct head_reading *r)
{
    struct http_call *call = exchange_part(x);
    if (r->model.length == 0)
        return;
    call->model.name = keep_head_text(x, head, r->model);
    call->model.name_length = r->model.length;
    if (r->version.length == 0)
        return;
    call->model.version = keep_head_text(x, head, r->version);
    call->model.version_length = r->version.length;
}

static void keep_timeout(struct exchange *x, const struct http_head *head,
                         const struct head_reading *r)
{
    struct http_call *call = exchange_part(x);
    call->timeout_text = r->bad_timeout ? keep_head_text(x, head, r->timeout_text) : NULL;
    call->deadline_ns = loop_now_ns(x->env->net.loop) + r->timeout_ms * NS_PER_MS;
}

/* Whether no access rule allows the request; it is asked each time, since the rules may change. */
static __attribute__((noinline)) bool is_refused(struct exchange *x, const struct http_head *head,
                                                 const struct head_reading *r)
{
    const struct http_dialect *dialect = call_ctx(x)->settings->dialect;
    struct span model = {r->model.length > 0 ? head->base + r->model.at : NULL, r->model.length};
    if (dialect->find_model && r->facts.route) {
        struct span target = {head->base + r->target.at, r->target.length};
        model = dialect->find_model(x, r->facts.route, model, target);
    }
    return r->facts.route && !client_is_allowed(x, head, r->facts.route->api, model);
}

static void keep_target(struct exchange *x, const struct http_head *head, struct head_range target)
{
    struct http_call *call = exchange_part(x);
    call->target.name = keep_head_text(x, head, target);
    call->target.name_length = target.length;
}

/* What few requests have. */
static __attribute__((noinline)) void keep_unusual(struct exchange *x, const struct http_head *head,
                                                   const struct head_reading *r)
{
    struct http_call *call = exchange_part(x);
    if (r->facts.is_preflight)
        call->asked_headers = cors_keep_asked(x, head);
    if (r->facts.has_timeout)
        keep_timeout(x, head, r);
    if (r->region.length > 0)
        call->region = keep_head_text(x, head, r->region);
    if (r->target.length > 0)
        keep_target(x, head, r->target);
    if (r->facts.header_length_kind > HEADER_LENGTH_FINE)
        call->header_length_text = keep_head_text(x, head, r->header_length_text);
}

/* What only some servers read. */
static __attribute__((noinline)) void keep_more(struct exchange *x, const struct http_head *head)
{
    const struct http_settings *settings = call_ctx(x)->settings;
    struct http_call *call = exchange_part(x);
    call->trace_parent = NULL;
    if (x->discard)
        return;
    if (settings->forward_pattern && call->facts.route->handle == infer_handle)
        client_find_forwarded(x, head);
    if (call->facts.has_trace)
        client_find_trace(x, head);
}

static void clear_call(struct http_call *call)
{
    call->text_taken = call->json_taken = call->packed_reply = NULL;
    call->region = NULL;
    call->forwarded = NULL;
    call->target = call->model = (struct ops_model_ref){0};
    call->begun = call->with_core = call->no_memory = call->is_gone = call->is_refused = false;
}

static void on_http_head(struct exchange *x, const struct http_head *head)
{
    struct http_call *call = exchange_part(x);
    const struct http_ctx *ctx = call_ctx(x);
    struct head_reading *r = (struct head_reading *)(void *)head->note;
    if (UNLIKELY(!r->done))
        read_head(ctx->settings, r, head);

    clear_call(call);
    call->facts = r->facts;
    call->head_ns = x->env->net.loop->now_ns;
    x->discard = r->discard;
    if (UNLIKELY(ctx->access.source != NULL) && is_refused(x, head, r))
        call->is_refused = x->discard = true;
    keep_model(x, head, r);
    if (r->facts.header_length > 0)
        x->aligned_at = (size_t)r->facts.header_length;
    if (UNLIKELY(r->is_unusual))
        keep_unusual(x, head, r);
    if (UNLIKELY(ctx->settings->reads_more))
        keep_more(x, head);
}

static void refuse_restricted(struct exchange *x)
{
    const struct http_call *call = exchange_part(x);
    const struct restriction *r =
        restrictions_find(&call_ctx(x)->settings->restrictions, call->facts.route->api);
    AUTO(buf) text = BUF_INIT(4096);
    buf_addf(&text, "This API is restricted, expecting header '%s'", r->name);
    reply_error(x, 403, content_text, buf_text(&text));
}

void http_reply_bare(struct exchange *x, int status)
{
    exchange_reply_text(x, status, content_text, "", 0);
}

static void refuse_http_path(struct exchange *x)
{
    reply_error(x, 404, content_text, "Not Found");
}

static void reply_without_route(struct exchange *x)
{
    const struct http_call *call = exchange_part(x);
    if (call->facts.is_preflight)
        cors_reply_preflight(x, call->asked_headers);
    else
        call_ctx(x)->settings->dialect->refuse_path(x);
}

static void on_http_request(struct exchange *x)
{
    struct http_call *call = exchange_part(x);
    if (UNLIKELY(!call->facts.route))
        reply_without_route(x);
    else if (UNLIKELY(call->facts.is_restricted))
        refuse_restricted(x);
    else if (UNLIKELY(call->is_refused))
        reply_error(x, 403, content_text, "This API is " ACCESS_TEXT);
    else if (UNLIKELY(call->facts.wrong_method))
        reply_error(x, 405, call->facts.route->error_type, "Method Not Allowed");
    else if (UNLIKELY(call->no_memory))
        reply_status(x, status_no_memory(), call->facts.route->error_type);
    else
        call->facts.route->handle(x);
}

static struct span find_cors_headers(struct exchange *x)
{
    const struct http_call *call = exchange_part(x);
    return cors_headers(call_ctx(x)->settings->cors, x->headed ? call->facts.origin : 0);
}

#define HANDLER(headers)                                                                           \
    {                                                                                              \
        .part_bytes = sizeof(struct http_call), .on_head = on_http_head,                           \
        .on_request = on_http_request, .on_cancel = infer_cancel, .on_end = infer_end,             \
        .find_headers = (headers),                                                                 \
    }

static const struct http_handler handler = HANDLER(NULL);
static const struct http_handler handler_with_cors = HANDLER(find_cors_headers);

/* ---- Start and stop ------------------------------------------------------------------------- */

struct conch_http {
    struct http_settings settings;
    struct service_metrics metrics;
    struct net_server *net;
};

static void *http_ctx_new(void *arg, struct net_env *env)
{
    struct conch_http *http = arg;
    struct http_ctx *ctx = mem_zalloc(sizeof(*ctx));
    ctx->settings = &http->settings;
    ctx->share = env->loop_ctx;
    access_view_init(&ctx->access, http->settings.access);
    trace_sampler_init(&ctx->sampler, http->settings.tracer, env->pool);
    buf_init_pooled(&ctx->json, MAX_JSON_REPLY, env->pool);
    return ctx;
}

static void http_ctx_free(void *arg)
{
    struct http_ctx *ctx = arg;
    if (!ctx)
        return;
    access_view_done(&ctx->access);
    buf_done(&ctx->json);
    trace_sampler_done(&ctx->sampler);
    mem_free(ctx);
}

/* Sequences in progress may go on to their end, on their own connections. */
static bool goes_on(void *arg)
{
    const struct conch_http *http = arg;
    return server_has_open_sequences(http->settings.server);
}

void conch_http_options_init(struct conch_http_options *o)
{
    *o = (struct conch_http_options){
        .size = sizeof(*o),
        .max_head_bytes = 16 << 10,
        .max_pipeline = 64,
        .head_timeout_ms = 30000,
    };
#define HTTP(member, factor) o->member = (__typeof__(o->member))option_default(text, factor);
#define HTTP_TEXT(member)    o->member = text;
#define OPTION(group, id, flag, kind, argument, initial, check, effect, keeper, help)              \
    text = initial;                                                                                \
    keeper
    const char *text;
#include "options.def"
    (void)text;
    o->n_threads = 0; /* a loop for each CPU */
    o->write_timeout_ms = o->body_timeout_ms;
}

static void hide_http(void *arg)
{
    struct conch_http *http = arg;
    service_metrics_remove(&http->metrics);
}

/* Reads who may use what, which pages may read replies, and which headers models get. */
static struct status *read_client_settings(const struct conch_http_options *o,
                                           struct http_settings *ret)
{
    struct status *st = NULL;
    for (size_t i = 0; i < o->n_restricted_apis && !st; i++)
        st = restrictions_add(&ret->restrictions, "api", "", o->restricted_apis[i]);
    if (!st && o->access_rules && o->access_rules[0])
        st = access_start(o->access_rules, 0, &ret->access);
    if (!st && o->cors_origins)
        st = cors_new(o->cors_origins, &ret->cors);
    struct regex *pattern = NULL;
    if (!st && o->header_forward_pattern && o->header_forward_pattern[0])
        st =
            regex_new(o->header_forward_pattern, true, &pattern); /* letters of either case match */
    ret->forward_pattern = pattern;
    return st;
}

static void free_http(struct conch_http *http)
{
    const struct http_settings *settings = &http->settings;
    if (settings->dialect->free_data)
        settings->dialect->free_data(settings->dialect_data);
    restrictions_done(&http->settings.restrictions);
    access_stop(http->settings.access);
    cors_free(http->settings.cors);
    regex_free((struct regex *)(uintptr_t)http->settings.forward_pattern);
    tracer_put(http->settings.tracer);
    mem_free(http);
}

struct status *http_options_read(const struct conch_http_options *given,
                                 struct conch_http_options *ret)
{
    conch_http_options_init(ret);
    return service_options_take("conch_http_start", given, ret, sizeof(*ret));
}

struct status *http_start(struct server *server, const struct conch_http_options *options,
                          const struct http_dialect *dialect, void *data,
                          struct conch_http **ret_http)
{
    struct conch_http_options o = *options;
    struct net_options net;
    struct tls_options tls = HTTP1_TLS;
    net_options_init(&net);
    net.address = o.address;
    net.port = o.port;
    net.reuse_port = o.reuse_port;
    net.n_threads = server_loops_count(o.n_threads);
    net.max_conns = o.max_connections;
    net.max_conns_per_address = o.max_connections_per_address;
    net.n_reserved_fds = listener_reserve();
    net.http1.limits.max_head_bytes = o.max_head_bytes;
    net.http1.limits.max_body_bytes = o.max_body_bytes;
    net.http1.limits.max_pipeline = o.max_pipeline > 0 ? o.max_pipeline : 1;
    net.timeouts.head_ns = o.head_timeout_ms * NS_PER_MS;
    net.timeouts.body_ns = o.body_timeout_ms * NS_PER_MS;
    net.timeouts.write_ns = o.write_timeout_ms * NS_PER_MS;
    net.timeouts.idle_ns = o.idle_timeout_ms * NS_PER_MS;
    net.timeouts.min_rate = o.min_rate;
    net.timeouts.rate_ns = o.min_rate_ms * NS_PER_MS;
    net.ctx_new = http_ctx_new;
    net.ctx_free = http_ctx_free;
    net.goes_on = goes_on;
    net.on_free = hide_http;

    struct conch_http *http = mem_zalloc(sizeof(*http));
    http->settings.server = server;
    http->settings.dialect = dialect;
    http->settings.dialect_data = data;
    http->settings.max_input_bytes = o.max_input_bytes;
    http->settings.tracer = tracer_get(http->settings.server);
    net.handler_arg = http;
    struct status *st = read_client_settings(&o, &http->settings);
    net.http1.handler = http->settings.cors ? &handler_with_cors : &handler;
    http->settings.reads_more =
        http->settings.forward_pattern || tracer_reads_heads(http->settings.tracer);
    if (!st)
        st = service_tls_read(&SERVICE_TLS(&o, "HTTP", "http"), &tls, &net.tls);
    if (!st)
        st = server_loops_get(http->settings.server, net.n_threads, &net.loops);
    if (!st) {
        http->settings.regions = server_loops_regions(http->settings.server);
        st = net_server_start(&net, &http->net);
        if (st)
            server_loops_put(http->settings.server, NET_FREED);
    }
    if (st) {
        free_http(http);
        return st;
    }
    service_metrics_add_http(&http->metrics, server, dialect->protocol, http->net,
                             http->settings.regions);
    log_info("Started %s at %s", dialect->service, net_server_place(http->net));
    *ret_http = http;
    return NULL;
}

const struct http_dialect http_kserve = {
    .service = "HTTPService",
    .protocol = "http",
    .find_route = find_http_route,
    .refuse_path = refuse_http_path,
};

TRITONSERVER_Error *conch_http_start(TRITONSERVER_Server *server,
                                     const struct conch_http_options *options,
                                     struct conch_http **ret_http)
{
    struct conch_http_options o;
    struct status *st = http_options_read(server && ret_http ? options : NULL, &o);
    if (!st)
        st = http_start((struct server *)server, &o, &http_kserve, NULL, ret_http);
    return (TRITONSERVER_Error *)st;
}

int conch_http_port(const struct conch_http *http)
{
    return net_server_port(http->net);
}

void conch_http_begin_stop(struct conch_http *http)
{
    if (http)
        net_server_begin_stop(http->net);
}

static void on_tick(unsigned int seconds_left, unsigned int n_conns)
{
    log_info("Timeout %u: Found %u HTTP service connections", seconds_left, n_conns);
}

unsigned int conch_http_stop(struct conch_http *http, uint64_t timeout_ms)
{
    if (!http)
        return 0;
    enum net_end end;
    struct server *server = http->settings.server;
    unsigned int n =
        net_server_stop(http->net, monotonic_ns() + timeout_ms * NS_PER_MS, on_tick, &end);
    if (end != NET_FREED)
        hide_http(http);
    server_loops_put(server, end);
    if (end == NET_FREED)
        free_http(http);
    if (end == NET_STUCK)
        server_keep(server);
    return n;
}
