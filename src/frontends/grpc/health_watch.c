/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Health/Watch: a call that gets the state of a service at once, and again at each change.
 *
 *      take_watch_message ─► join_watches ─► send_state ◄── look_at ◄── look_at_some (timer)
 *      stop_watch ─► NOT_SERVING and the status UNAVAILABLE                  ▲
 *      the core announces a change (core/threads/changes.h) ─► note_change ──┘
 *
 * Calls that watch the same name share one state of it. After a change a round looks at all names.
 * It goes in portions, so that many names keep no other client of the loop waiting; and rounds
 * begin with a pause between them, so that many changes do not, either.
 *
 * The core asks backends whether they are ready only for as long as clients want to know. So a
 * round begins without a change, too, after RENEW_NS.
 *
 * The empty name and the names of our services mean the whole server. Any other name means the
 * model of that name; SERVICE_UNKNOWN is sent while there is none, and the call goes on, since the
 * model may be loaded later. (Check answers for the server whatever the name is, as the reference
 * does; reference/behaviours §6.10.)
 *
 * Invariants: the timer is set, and the loop subscribed, only while a call watches. A name has at
 * least one watch. At most one message of a call is under way. A client that does not read gets the
 * newest state later and costs no memory. Thread: the loop's.
 */
#include <string.h>

#include "base/clock.h"
#include "base/loop.h"
#include "base/pbwire.h"
#include "base/pool.h"
#include "base/status.h"
#include "core/server/server.h"
#include "core/threads/changes.h"
#include "frontends/grpc/call.h"
#include "frontends/ops/ops.h"

#define PORTION_NS NS_PER_MS        /* between portions of the names */
#define PAUSE_NS   (20 * NS_PER_MS) /* from the begin of a round to the next, at least, */
#define RENEW_NS   (10 * NS_PER_S)  /* … and at most; a third of what readiness.c waits */

enum {
    MAX_NAME = 1024,
    LOOKS_AT_ONCE = 64, /* names, each of which costs a look-up of its model */
    MAX_REQUEST = 4096, /* a name, and fields of later versions */
};

/* The values are those of HealthCheckResponse.ServingStatus. */
enum state { STATE_NONE = 0, STATE_SERVING = 1, STATE_NOT_SERVING = 2, STATE_UNKNOWN_SERVICE = 3 };

/* A name, and the calls that watch it. */
struct watched {
    struct list link;    /* in grpc_ctx.watched; the name that was looked at last is the last */
    struct list watches; /* struct watch */
    enum state state;    /* when it was last looked at */
    bool is_behind;      /* a call has not been sent this state, since it is sending another */
    size_t name_length;  /* of the model; 0: the server */
    char name[];
};

struct watch {
    struct list link;        /* in watched->watches */
    struct watched *watched; /* from the message to the end of the call; else NULL */
    enum state sent;         /* the last state that was sent */
    bool is_sending;         /* … and has not left */
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

static enum state get_model_state(struct server *s, const struct watched *n)
{
    struct ops_model_ref ref = {n->name, n->name_length, "", 0};
    bool ready = false;
    struct status *st = ops_model_ready(s, &ref, &ready);
    bool is_unknown = st && status_code(st) == STATUS_NOT_FOUND;
    status_free(st);
    return is_unknown ? STATE_UNKNOWN_SERVICE : ready ? STATE_SERVING : STATE_NOT_SERVING;
}

static enum state get_state(struct server *s, const struct watched *n)
{
    return n->name_length > 0 ? get_model_state(s, n) : get_server_state(s);
}

/* ---- Sending -------------------------------------------------------------------------------- */

static void note_change(void *arg);

static void release_state(void *owner)
{
    struct watch *w = owner;
    struct grpc_call *c = grpc_call_of(w);
    w->is_sending = false;
    if (w->watched && w->watched->is_behind)
        note_change(c->ctx);
    call_unref(c);
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

/* ---- Names ---------------------------------------------------------------------------------- */

static void look_at(struct grpc_ctx *ctx, struct watched *n)
{
    enum state state = get_state(ctx->settings->server, n);
    if (state == n->state && !n->is_behind)
        return;
    n->state = state;
    n->is_behind = false;
    LIST_FOR_EACH (link, &n->watches) {
        struct watch *w = LIST_ENTRY(link, struct watch, link);
        send_state(grpc_call_of(w), state);
        n->is_behind |= w->sent != state;
    }
}

/* Has the next portion, or round, begin when it is due. */
static void set_watch_timer(struct grpc_ctx *ctx)
{
    uint64_t next_ns = ctx->round_ns + RENEW_NS;
    if (ctx->n_unseen > 0)
        next_ns = ctx->loop->now_ns + PORTION_NS;
    else if (ctx->has_changed)
        next_ns = ctx->round_ns + PAUSE_NS;
    timers_set(&ctx->loop->timers, &ctx->watch_timer, next_ns);
}

/* Looks at a portion of the names. */
static void look_at_some(struct timer *t)
{
    struct grpc_ctx *ctx = CONTAINER_OF(t, struct grpc_ctx, watch_timer);
    if (ctx->n_unseen == 0) {
        ctx->round_ns = ctx->loop->now_ns;
        ctx->n_unseen = ctx->n_watched;
        ctx->has_changed = false;
    }
    for (int i = 0; i < LOOKS_AT_ONCE && ctx->n_unseen > 0; i++, ctx->n_unseen--) {
        struct list *link = list_pop(&ctx->watched);
        list_push(&ctx->watched, link);
        look_at(ctx, LIST_ENTRY(link, struct watched, link));
    }
    set_watch_timer(ctx);
}

/* Something has changed, or a call can be sent a state that it has not been sent. */
static void note_change(void *arg)
{
    struct grpc_ctx *ctx = arg;
    ctx->has_changed = true;
    if (ctx->n_unseen == 0)
        set_watch_timer(ctx);
}

/* The loop hears of changes while calls watch. False: no memory. */
static bool begin_to_listen(struct grpc_ctx *ctx)
{
    if (ctx->changes)
        return true;
    ctx->changes =
        changes_subscribe(server_changes(ctx->settings->server), ctx->loop, note_change, ctx);
    if (!ctx->changes)
        return false;
    ctx->round_ns = ctx->loop->now_ns;
    ctx->has_changed = false;
    timer_init(&ctx->watch_timer, look_at_some);
    set_watch_timer(ctx);
    return true;
}

static void listen_no_more(struct grpc_ctx *ctx)
{
    changes_unsubscribe(TAKE(ctx->changes));
    timers_clear(&ctx->loop->timers, &ctx->watch_timer);
}

static struct watched *find_watched(struct grpc_ctx *ctx, struct pbwire_bytes name)
{
    LIST_FOR_EACH (link, &ctx->watched) {
        struct watched *n = LIST_ENTRY(link, struct watched, link);
        if (n->name_length == name.length && memcmp(n->name, name.at, name.length) == 0)
            return n;
    }
    return NULL;
}

static struct watched *add_watched(struct grpc_ctx *ctx, struct pbwire_bytes name)
{
    struct watched *n = pool_alloc(ctx->env->net.pool, sizeof(*n) + name.length, NULL);
    if (!n)
        return NULL;
    *n = (struct watched){.name_length = name.length};
    memcpy(n->name, name.at, name.length);
    list_init(&n->watches);
    list_push(&ctx->watched, &n->link);
    ctx->n_watched++;
    n->state = get_state(ctx->settings->server, n);
    return n;
}

/* The call gets the state, and its changes from now on. False: no memory. */
static bool join_watches(struct grpc_call *c, struct pbwire_bytes name)
{
    struct grpc_ctx *ctx = c->ctx;
    struct watch *w = health_watch_of(c);
    if (!begin_to_listen(ctx)) /* before the first look, so that no change is missed */
        return false;
    w->watched = find_watched(ctx, name);
    if (w->watched)
        look_at(ctx, w->watched); /* the state of this moment, for all of its watches */
    else
        w->watched = add_watched(ctx, name);
    if (!w->watched) {
        if (ctx->n_watched == 0)
            listen_no_more(ctx);
        return false;
    }
    list_push(&w->watched->watches, &w->link);
    send_state(c, w->watched->state);
    return true;
}

/* The call has its status: nothing more is sent. */
static void leave_watches(struct grpc_call *c)
{
    struct grpc_ctx *ctx = c->ctx;
    struct watch *w = health_watch_of(c);
    struct watched *n = TAKE(w->watched);
    if (!n)
        return;
    list_remove(&w->link);
    if (!list_empty(&n->watches))
        return;
    list_remove(&n->link);
    pool_release(n);
    ctx->n_watched--;
    ctx->n_unseen = MIN(ctx->n_unseen, ctx->n_watched);
    if (ctx->n_watched == 0)
        listen_no_more(ctx);
}

/* ---- The call's events ---------------------------------------------------------------------- */

static void begin_health_watch(struct grpc_call *c)
{
    struct watch *w = health_watch_of(c);
    list_init(&w->link);
    w->watched = NULL;
    w->sent = STATE_NONE;
    w->is_sending = false;
}

/* Reads the name of the service from a HealthCheckRequest; empty: the server. */
static struct status *read_service(const char *bytes, size_t n_bytes, struct pbwire_bytes *ret_name)
{
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
    *ret_name = names_server(name) ? (struct pbwire_bytes){"", 0} : name;
    return NULL;
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
    struct pbwire_bytes name = {"", 0};
    struct status *st = read_service(bytes, n_bytes, &name);
    bool draining = c->ctx->env->net.draining;
    if (!st)
        st = call_check_model(c, name.length > 0 ? name.at : NULL, name.length);
    if (!st && !draining && !join_watches(c, name))
        st = status_no_memory();
    pool_release(block);
    if (st)
        call_fail(c, st);
    else if (draining)
        stop_watch(c);
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
