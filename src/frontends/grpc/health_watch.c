/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Health/Watch: a call that gets the state of a service at once, and again at each change.
 *
 *      take_watch_message ─► send_state ◄── look_at_all (timer) ◄─┐ every LOOK_NS
 *      stop_watch ─► NOT_SERVING and the status UNAVAILABLE       └─┘
 *
 * The empty name and the names of our services mean the whole server. Any other name means the
 * model of that name; SERVICE_UNKNOWN is sent while there is none, and the call goes on, since the
 * model may be loaded later. (Check answers for the server whatever the name is, as the reference
 * does; reference/behaviours §6.10.)
 *
 * Invariants: the timer is set only while a call watches. At most one message of a call is under
 * way. A client that does not read gets the newest state later and costs no memory. Thread: the
 * loop's.
 */
#include <string.h>

#include "base/clock.h"
#include "base/loop.h"
#include "base/pbwire.h"
#include "base/pool.h"
#include "base/status.h"
#include "core/server/server.h"
#include "frontends/grpc/call.h"
#include "frontends/ops/ops.h"

#define LOOK_NS (200 * NS_PER_MS)

enum {
    MAX_NAME = 1024,
    MAX_REQUEST = 4096, /* a name, and fields of later versions */
};

/* The values are those of HealthCheckResponse.ServingStatus. */
enum state { STATE_NONE = 0, STATE_SERVING = 1, STATE_NOT_SERVING = 2, STATE_UNKNOWN_SERVICE = 3 };

struct watch {
    struct list link;   /* in grpc_ctx.watches, from the message to the end of the call */
    const char *name;   /* of a model, in the call's arena; */
    size_t name_length; /* 0: the server */
    enum state sent;    /* the last state that was sent */
    bool is_sending;    /* … and has not left */
    struct out_piece piece;
};

static struct watch *health_watch_of(struct grpc_call *c)
{
    return c->part;
}

/* ---- States --------------------------------------------------------------------------------- */

static bool names_server(struct pbwire_bytes name)
{
    static const char *const services[] = {
        "",
        "inference.GRPCInferenceService",
        "grpc.health.v1.Health",
        "grpc.reflection.v1.ServerReflection",
        "grpc.reflection.v1alpha.ServerReflection",
    };
    for (size_t i = 0; i < ARRAY_SIZE(services); i++) {
        if (strlen(services[i]) == name.length && memcmp(services[i], name.at, name.length) == 0)
            return true;
    }
    return false;
}

static enum state get_server_state(struct server *s)
{
    bool ready = false;
    status_free(server_is_ready(s, &ready)); /* an error: it is about to exit */
    return ready ? STATE_SERVING : STATE_NOT_SERVING;
}

static enum state get_model_state(struct server *s, const struct watch *w)
{
    struct ops_model_ref ref = {w->name, w->name_length, "", 0};
    bool ready = false;
    struct status *st = ops_model_ready(s, &ref, &ready);
    bool is_unknown = st && status_code(st) == STATUS_NOT_FOUND;
    status_free(st);
    return is_unknown ? STATE_UNKNOWN_SERVICE : ready ? STATE_SERVING : STATE_NOT_SERVING;
}

/* ---- Sending -------------------------------------------------------------------------------- */

static void release_state(void *owner)
{
    struct watch *w = owner;
    w->is_sending = false;
    call_unref(grpc_call_of(w));
}

static void send_state(struct grpc_call *c, enum state state)
{
    /* Each with its prefix: 2 bytes, field 1, the number. */
    static const char messages[][INCOMING_PREFIX_BYTES + 2] = {
        [STATE_SERVING] = {0, 0, 0, 0, 2, 8, STATE_SERVING},
        [STATE_NOT_SERVING] = {0, 0, 0, 0, 2, 8, STATE_NOT_SERVING},
        [STATE_UNKNOWN_SERVICE] = {0, 0, 0, 0, 2, 8, STATE_UNKNOWN_SERVICE},
    };
    struct watch *w = health_watch_of(c);
    if (w->is_sending || w->sent == state)
        return;
    w->sent = state;
    w->is_sending = true;
    w->piece = (struct out_piece){.bytes = messages[state],
                                  .n_bytes = sizeof(messages[state]),
                                  .release = release_state,
                                  .owner = w};
    struct grpc_framed framed = {.pieces = &w->piece, .count = 1, .n_bytes = w->piece.n_bytes};
    call_ref(c);
    call_send(c, &framed);
}

static void look_at_all(struct timer *t)
{
    struct grpc_ctx *ctx = CONTAINER_OF(t, struct grpc_ctx, watch_timer);
    struct server *server = ctx->settings->server;
    enum state of_server = STATE_NONE; /* found once for all calls: there may be many models */
    LIST_FOR_EACH (link, &ctx->watches) {
        struct watch *w = LIST_ENTRY(link, struct watch, link);
        if (w->name_length == 0 && of_server == STATE_NONE)
            of_server = get_server_state(server);
        send_state(grpc_call_of(w), w->name_length > 0 ? get_model_state(server, w) : of_server);
    }
    timers_set(&ctx->loop->timers, t, ctx->loop->now_ns + LOOK_NS);
}

/* The call gets the changes from now on. */
static void join_watches(struct grpc_call *c)
{
    struct grpc_ctx *ctx = c->ctx;
    list_push(&ctx->watches, &health_watch_of(c)->link);
    if (ctx->watch_timer.is_set)
        return;
    timer_init(&ctx->watch_timer, look_at_all);
    timers_set(&ctx->loop->timers, &ctx->watch_timer, ctx->loop->now_ns + LOOK_NS);
}

/* The call has its status: nothing more is sent. */
static void leave_watches(struct grpc_call *c)
{
    struct grpc_ctx *ctx = c->ctx;
    list_remove(&health_watch_of(c)->link);
    if (list_empty(&ctx->watches))
        timers_clear(&ctx->loop->timers, &ctx->watch_timer);
}

/* ---- The call's events ---------------------------------------------------------------------- */

static void begin_health_watch(struct grpc_call *c)
{
    struct watch *w = health_watch_of(c);
    list_init(&w->link);
    w->name_length = 0;
    w->sent = STATE_NONE;
    w->is_sending = false;
}

/* Reads the name of the service from a HealthCheckRequest. */
static struct status *read_service(struct grpc_call *c, const char *bytes, size_t n_bytes)
{
    struct watch *w = health_watch_of(c);
    struct pbwire in = pbwire_of(bytes, n_bytes);
    struct pbwire_bytes name = {"", 0};
    struct pbwire_field f;
    while (pbwire_next(&in, &f)) {
        if (pbwire_is(&f, 1, PBWIRE_BYTES))
            name = f.bytes;
    }
    if (in.bad)
        return status_new(STATUS_INTERNAL, "Unable to parse request");
    if (name.length > MAX_NAME)
        return status_new(STATUS_INVALID_ARG, "the service's name has %zu bytes, the limit is %d",
                          name.length, MAX_NAME);
    if (names_server(name))
        return NULL;
    w->name = arena_strndup(&c->arena, name.at, name.length);
    w->name_length = name.length;
    return w->name ? NULL : status_no_memory();
}

/* Ends a call when the service stops. */
static void stop_watch(struct grpc_call *c)
{
    if (c->has_ended)
        return;
    send_state(c, STATE_NOT_SERVING);
    call_fail(c, status_new(STATUS_UNAVAILABLE, GRPC_STOPPING_TEXT));
}

static void take_watch_message(struct grpc_call *c, char *block, const char *bytes, size_t n_bytes)
{
    struct watch *w = health_watch_of(c);
    struct server *server = c->ctx->settings->server;
    struct status *st = read_service(c, bytes, n_bytes);
    pool_release(block);
    if (st) {
        call_fail(c, st);
        return;
    }
    if (c->ctx->env->net.draining) {
        stop_watch(c);
        return;
    }
    join_watches(c);
    send_state(c, w->name_length > 0 ? get_model_state(server, w) : get_server_state(server));
}

const struct grpc_kind grpc_watch_kind = {
    .part_bytes = sizeof(struct watch),
    .max_message_bytes = MAX_REQUEST,
    .begin = begin_health_watch,
    .on_message = take_watch_message,
    .on_stop = stop_watch,
    .cancel = leave_watches,
    .close = leave_watches,
};
