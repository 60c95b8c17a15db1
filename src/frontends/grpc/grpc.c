/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Start and stop of the gRPC service, and the context of each of its loops. Thread: any but a
 * loop's.
 */
#include "conch/conch.h"

#include <strings.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/regex.h"
#include "base/status.h"
#include "core/server/server.h"
#include "frontends/grpc/call.h"
#include "frontends/ops/errors.h"
#include "frontends/serve/server_loops.h"
#include "frontends/serve/service_metrics.h"
#include "frontends/serve/service_options.h"
#include "frontends/serve/service_tls.h"

struct conch_grpc {
    struct grpc_settings settings;
    struct service_metrics metrics;
    struct http2_settings http2;
    struct net_server *net;
};

static void *grpc_ctx_new(void *arg, struct net_env *env)
{
    struct conch_grpc *grpc = arg;
    struct grpc_ctx *ctx = mem_zalloc(sizeof(*ctx));
    grpc_ctx_init(ctx, &grpc->settings, CONTAINER_OF(env, struct http2_env, net));
    return ctx;
}

static void grpc_ctx_free(void *arg)
{
    struct grpc_ctx *ctx = arg;
    if (!ctx)
        return;
    grpc_ctx_done(ctx);
    mem_free(ctx);
}

/* While the server stops, sequences that have begun may go on to their end, on their streams. */
static bool calls_go_on(void *arg)
{
    const struct conch_grpc *grpc = arg;
    return server_has_open_sequences(grpc->settings.server);
}

/* ---- Metrics -------------------------------------------------------------------------------- */

/* The names of gRPC's codes, in their order. */
static const char *const code_names[] = {
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
};

static void show_calls(struct conch_grpc *grpc)
{
    grpc->metrics = (struct service_metrics){
        .server = grpc->settings.server,
        .protocol = "grpc",
        .net = grpc->net,
        .regions = grpc->settings.regions,
        .statuses = code_names,
        .n_statuses = ARRAY_SIZE(code_names),
        .expired = (unsigned int)ops_error_of(STATUS_TIMED_OUT)->grpc_status};
    service_metrics_add(&grpc->metrics);
}

static void hide_calls(void *arg)
{
    struct conch_grpc *grpc = arg;
    service_metrics_remove(&grpc->metrics);
}

/* ---- Options -------------------------------------------------------------------------------- */

void conch_grpc_options_init(struct conch_grpc_options *o)
{
    *o = (struct conch_grpc_options){.size = sizeof(*o)};
#define GRPC(member, factor) o->member = (__typeof__(o->member))option_default(text, factor);
#define GRPC_TEXT(member)    o->member = text;
#define OPTION(group, id, flag, kind, argument, initial, check, effect, keeper, help)              \
    text = initial;                                                                                \
    keeper
    const char *text;
#include "options.def"
    (void)text;
}

/* Reads the name of a level. False: there is no such level. */
static bool read_compression(const char *name, enum grpc_compression *ret)
{
    static const char *const names[] = {
        [GRPC_COMPRESSION_NONE] = "none",
        [GRPC_COMPRESSION_LOW] = "low",
        [GRPC_COMPRESSION_MEDIUM] = "medium",
        [GRPC_COMPRESSION_HIGH] = "high",
    };
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        if (strcasecmp(name, names[i]) == 0) {
            *ret = (enum grpc_compression)i;
            return true;
        }
    }
    return false;
}

static struct status *read_restrictions(const struct conch_grpc_options *o,
                                        struct restrictions *ret)
{
    struct status *st = NULL;
    for (size_t i = 0; i < o->n_restricted_protocols && !st; i++)
        st = restrictions_add(ret, "protocol", "triton-grpc-protocol-", o->restricted_protocols[i]);
    return st;
}

static struct status *read_pattern(const char *pattern, const struct regex **ret)
{
    struct regex *made = NULL;
    /* Letters of either case match, as in the reference. */
    struct status *st = *pattern ? regex_new(pattern, true, &made) : NULL;
    *ret = made;
    return st;
}

static struct status *read_call_settings(const struct conch_grpc_options *o,
                                         struct grpc_settings *ret)
{
    if (!read_compression(o->compression_level, &ret->compression))
        return status_new(STATUS_INVALID_ARG, "conch_grpc_start: invalid compression level '%s'",
                          o->compression_level);
    ret->methods.has_reflection = o->reflection;
    ret->max_message_bytes = MIN(o->max_message_bytes, (size_t)INT32_MAX);
    ret->flow = (struct stream_flow_limits){.max_responses = o->max_responses,
                                            .max_bytes = o->max_response_bytes,
                                            .stall_ns = o->stall_timeout_ms * NS_PER_MS};
    struct status *st = read_restrictions(o, &ret->restrictions);
    if (!st && o->access_rules && o->access_rules[0])
        st = access_start(o->access_rules, 0, &ret->access);
    if (!st)
        st = read_pattern(o->header_forward_pattern, &ret->forward_pattern);
    ret->reads_more |= ret->forward_pattern != NULL;
    return st;
}

static void read_limits(const struct conch_grpc_options *o, struct http2_limits *ret)
{
    enum { FRAME_BYTES = 16384, SMALLEST_FRAMES = 7 }; /* a client may send smaller ones, too */
    http2_limits_init(ret);
    ret->max_streams = MAX(o->max_streams, 1u);
    ret->max_header_bytes = o->max_header_bytes;
    ret->max_continuations = (unsigned int)(SMALLEST_FRAMES + o->max_header_bytes / FRAME_BYTES);
    ret->wastes[HTTP2_WASTE_RESET] =
        (struct http2_rate){.per_s = o->max_resets_per_s, .burst = 2 * o->max_resets_per_s};
}

/* Milliseconds as nanoseconds; gRPC's word for "never" is INT32_MAX, ours is 0. */
static uint64_t read_time(uint64_t ms)
{
    return ms >= INT32_MAX ? 0 : ms * NS_PER_MS;
}

static void read_times(const struct conch_grpc_options *o, struct http2_times *ret)
{
    http2_times_init(ret);
    ret->stall_ns = o->stall_timeout_ms * NS_PER_MS;
    ret->min_rate = o->min_rate;
    ret->rate_ns = o->min_rate_ms * NS_PER_MS;
    ret->keepalive_ns = read_time(o->keepalive_ms);
    ret->keepalive_timeout_ns = read_time(o->keepalive_timeout_ms);
    ret->keepalive_without_streams = o->keepalive_without_calls;
    ret->max_pings_without_data = o->max_pings_without_data;
    ret->min_ping_interval_ns = o->min_ping_interval_ms * NS_PER_MS;
    if (o->keepalive_without_calls) /* otherwise the default, which is longer */
        ret->min_idle_ping_interval_ns = ret->min_ping_interval_ns;
    ret->max_ping_strikes = o->max_ping_strikes;
    ret->max_age_ns = read_time(o->max_connection_age_ms);
    ret->age_grace_ns = read_time(o->max_connection_age_grace_ms);
}

static void read_net_options(const struct conch_grpc_options *o, struct net_options *ret)
{
    /* 8 calls are what a loop keeps without gRPC, too. 128 keep up to 27 MB in each loop. */
    enum { BLOCKS_OF_CALL = 8, MAX_KEPT_CALLS = 128 };
    net_options_init(ret);
    ret->address = o->address;
    ret->port = o->port;
    ret->reuse_port = o->reuse_port;
    ret->n_threads = server_loops_count(o->n_threads);
    ret->max_conns = o->max_connections;
    ret->max_conns_per_address = o->max_connections_per_address;
    ret->n_near_blocks = BLOCKS_OF_CALL * MIN(o->n_kept_calls, (unsigned int)MAX_KEPT_CALLS);
    ret->n_reserved_fds = listener_reserve();
    ret->timeouts.body_ns = o->stall_timeout_ms * NS_PER_MS;
    ret->timeouts.write_ns = o->stall_timeout_ms * NS_PER_MS;
    ret->timeouts.idle_ns = o->idle_timeout_ms * NS_PER_MS;
    ret->timeouts.min_rate = o->min_rate;
    ret->timeouts.rate_ns = o->min_rate_ms * NS_PER_MS;
}

/* ---- Start and stop ------------------------------------------------------------------------- */

static void free_grpc(struct conch_grpc *grpc)
{
    restrictions_done(&grpc->settings.restrictions);
    access_stop(grpc->settings.access);
    tracer_put(grpc->settings.tracer);
    regex_free((struct regex *)(uintptr_t)grpc->settings.forward_pattern);
    mem_free(grpc);
}

static struct status *start_calls(struct conch_grpc *grpc, const struct conch_grpc_options *o)
{
    struct server *server = grpc->settings.server;
    struct net_options net;
    struct tls_options tls = {.alpn = "h2"};
    read_net_options(o, &net);
    struct status *st = read_call_settings(o, &grpc->settings);
    if (!st)
        st = service_tls_read(&SERVICE_TLS(o, "gRPC", "grpc"), &tls, &net.tls);
    if (st)
        return st;
    read_limits(o, &grpc->http2.limits);
    read_times(o, &grpc->http2.times);
    grpc->http2.handler = &grpc_handler;
    net.protocol = &http2_protocol;
    net.settings = &grpc->http2;
    net.handler_arg = grpc;
    net.ctx_new = grpc_ctx_new;
    net.ctx_free = grpc_ctx_free;
    net.goes_on = calls_go_on;
    net.on_free = hide_calls;
    st = server_loops_get(server, net.n_threads, &net.loops);
    if (st)
        return st;
    grpc->settings.regions = server_loops_regions(server);
    st = net_server_start(&net, &grpc->net);
    if (st)
        server_loops_put(server, NET_FREED);
    return st;
}

TRITONSERVER_Error *conch_grpc_start(TRITONSERVER_Server *server,
                                     const struct conch_grpc_options *options,
                                     struct conch_grpc **ret_grpc)
{
    struct conch_grpc_options o;
    conch_grpc_options_init(&o);
    struct status *st = service_options_take("conch_grpc_start",
                                             server && ret_grpc ? options : NULL, &o, sizeof(o));
    if (st)
        return (TRITONSERVER_Error *)st;

    struct conch_grpc *grpc = mem_zalloc(sizeof(*grpc));
    grpc->settings.server = (struct server *)server;
    grpc->settings.tracer = tracer_get(grpc->settings.server);
    grpc->settings.reads_more = tracer_reads_heads(grpc->settings.tracer);
    st = start_calls(grpc, &o);
    if (st) {
        free_grpc(grpc);
        return (TRITONSERVER_Error *)st;
    }
    show_calls(grpc);
    log_info("Started GRPCInferenceService at %s", net_server_place(grpc->net));
    *ret_grpc = grpc;
    return NULL;
}

int conch_grpc_port(const struct conch_grpc *grpc)
{
    return net_server_port(grpc->net);
}

void conch_grpc_begin_stop(struct conch_grpc *grpc)
{
    if (grpc)
        net_server_begin_stop(grpc->net);
}

static void on_stop_tick(unsigned int seconds_left, unsigned int n_conns)
{
    log_info("Timeout %u: Found %u gRPC service connections and inference handlers", seconds_left,
             n_conns);
}

unsigned int conch_grpc_stop(struct conch_grpc *grpc, uint64_t timeout_ms)
{
    if (!grpc)
        return 0;
    enum net_end end;
    struct server *server = grpc->settings.server;
    unsigned int n =
        net_server_stop(grpc->net, monotonic_ns() + timeout_ms * NS_PER_MS, on_stop_tick, &end);
    if (end != NET_FREED)
        hide_calls(grpc);
    server_loops_put(server, end);
    if (end == NET_FREED)
        free_grpc(grpc);
    if (end == NET_STUCK)
        server_keep(server);
    return n;
}
