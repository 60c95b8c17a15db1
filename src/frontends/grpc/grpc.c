/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Start and stop of the gRPC service, and the context of each of its loops. Thread: any but a
 * loop's.
 */
#include "frontends/grpc/grpc.h"

#include "base/clock.h"
#include "base/compress.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/status.h"
#include "core/server/server.h"
#include "frontends/grpc/call.h"
#include "frontends/serve/server_loops.h"

#define MAX_FLOW_BYTES ((size_t)64 << 20)

struct grpc_service {
    struct grpc_settings settings;
    struct http2_settings http2;
    struct net_server *net;
};

static void *grpc_ctx_new(void *arg, struct net_env *env)
{
    struct grpc_service *s = arg;
    struct grpc_ctx *ctx = mem_zalloc(sizeof(*ctx));
    ctx->settings = &s->settings;
    ctx->env = CONTAINER_OF(env, struct http2_env, net);
    ctx->loop = env->loop;
    ctx->share = env->loop_ctx;
    ctx->compress = compress_new();
    return ctx;
}

static void grpc_ctx_free(void *arg)
{
    struct grpc_ctx *ctx = arg;
    if (!ctx)
        return;
    compress_free(ctx->compress);
    mem_free(ctx);
}

/* While the server stops, sequences that have begun may go on to their end, on their streams. */
static bool calls_go_on(void *arg)
{
    const struct grpc_service *s = arg;
    return server_has_open_sequences(s->settings.server);
}

void grpc_options_init(struct grpc_options *o)
{
    *o = (struct grpc_options){
        .address = "0.0.0.0",
        .port = 8001,
        .max_message_bytes = INT32_MAX,
        .reply_encodings = GRPC_IDENTITY,
        .flow = {.max_bytes = MAX_FLOW_BYTES},
    };
    http2_limits_init(&o->limits);
    http2_times_init(&o->times);
    o->flow.stall_ns = o->times.stall_ns;
}

struct status *grpc_service_start(struct server *server, const struct grpc_options *o,
                                  struct grpc_service **ret)
{
    struct grpc_service *s = mem_zalloc(sizeof(*s));
    s->settings = (struct grpc_settings){
        .server = server,
        .max_message_bytes = o->max_message_bytes,
        .flow = o->flow,
        .reply_encodings = o->reply_encodings,
    };
    s->http2 =
        (struct http2_settings){.handler = &grpc_handler, .limits = o->limits, .times = o->times};

    struct net_options net;
    net_options_init(&net);
    net.address = o->address;
    net.port = o->port;
    net.reuse_port = o->reuse_port;
    net.n_threads = server_loops_count(o->n_threads);
    net.max_conns = o->max_connections;
    net.n_reserved_fds = listener_reserve();
    net.protocol = &http2_protocol;
    net.settings = &s->http2;
    net.handler_arg = s;
    net.ctx_new = grpc_ctx_new;
    net.ctx_free = grpc_ctx_free;
    net.goes_on = calls_go_on;
    struct status *st = server_loops_get(server, net.n_threads, &net.loops);
    if (!st) {
        st = net_server_start(&net, &s->net);
        if (st)
            server_loops_put(server, NET_FREED);
    }
    if (st) {
        mem_free(s);
        return st;
    }
    log_info("Started GRPCInferenceService at %s:%d", o->address, net_server_port(s->net));
    *ret = s;
    return NULL;
}

int grpc_service_port(const struct grpc_service *s)
{
    return net_server_port(s->net);
}

static void on_stop_tick(unsigned int seconds_left, unsigned int n_conns)
{
    log_info("Timeout %u: Found %u GRPC service connections", seconds_left, n_conns);
}

unsigned int grpc_service_stop(struct grpc_service *s, uint64_t timeout_ms)
{
    if (!s)
        return 0;
    enum net_end end;
    struct server *server = s->settings.server;
    unsigned int n =
        net_server_stop(s->net, monotonic_ns() + timeout_ms * NS_PER_MS, on_stop_tick, &end);
    server_loops_put(server, end);
    if (end == NET_FREED)
        mem_free(s);
    if (end == NET_STUCK)
        server_keep(server);
    return n;
}
