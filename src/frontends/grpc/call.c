/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The life of a call between HTTP/2 and its kind: its begin, messages out of bytes, the deadline,
 * its ends. Read on_begin() first. call_head.c reads the head, call_answer.c sends.
 *
 * Invariants: each call gets exactly one status, unless the client is gone. After has_ended the
 * kind gets no message, and cancel() at most once. Thread: the loop's.
 */
#include "frontends/grpc/call_priv.h"

#include <string.h>

#include "base/compress.h"
#include "base/loop.h"
#include "base/mem.h"
#include "base/pool.h"
#include "base/status.h"
#include "frontends/grpc/unary.h"
#include "frontends/ops/errors.h"
#include "frontends/ops/loop_share.h"

/* A connection with more unsent bytes of answers begins no inference. */
#define MAX_UNSENT_BYTES ((size_t)64 << 20)

static struct grpc_call *call_of(struct http2_stream *s)
{
    return http2_stream_part(s);
}

void grpc_ctx_init(struct grpc_ctx *ctx, const struct grpc_settings *settings,
                   struct http2_env *env)
{
    *ctx = (struct grpc_ctx){
        .settings = settings, .env = env, .loop = env->net.loop, .compress = compress_new()};
    ctx->share = env->net.loop_ctx;
    ctx->packing = ctx->share ? ctx->share->packing : NULL;
    access_view_init(&ctx->access, settings->access);
    trace_sampler_init(&ctx->sampler, settings->tracer, env->net.pool);
    list_init(&ctx->watched);
    timer_init(&ctx->watch_timer, NULL);
}

void grpc_ctx_done(struct grpc_ctx *ctx)
{
    BUG_ON(!list_empty(&ctx->watched) || ctx->watch_timer.is_set || ctx->changes);
    access_view_done(&ctx->access);
    compress_free(ctx->compress);
    trace_sampler_done(&ctx->sampler);
}

struct inline_budget *grpc_inline_budget(const struct grpc_ctx *ctx)
{
    return ctx->share ? loop_share_budget(ctx->share) : NULL;
}

void call_ignore_input(struct grpc_call *c)
{
    c->is_deaf = true;
    incoming_done(&c->incoming);
    if (c->has_pending)
        pool_release(c->pending.block);
    c->has_pending = false;
    buf_done(&c->held);
}

void call_mark_ended(struct grpc_call *c)
{
    c->has_ended = true;
    call_ignore_input(c);
    if (c->deadline.is_set)
        timers_clear(&c->ctx->loop->timers, &c->deadline);
}

void call_ref(struct grpc_call *c)
{
    c->refs++;
}

void call_unref(struct grpc_call *c)
{
    if (--c->refs > 0)
        return;
    if (c->has_begun && c->kind->end)
        c->kind->end(c);
    arena_reset(&c->arena);
    access_rights_free(c->rights);
    if (c->part)
        pool_release((char *)c->part - offsetof(struct grpc_part, bytes));
    http2_stream_unref(c->stream);
}

/* ---- The begin ------------------------------------------------------------------------------ */

static void on_deadline(struct timer *t)
{
    struct grpc_call *c = CONTAINER_OF(t, struct grpc_call, deadline);
    call_send_status(c, ops_error_of(STATUS_TIMED_OUT)->grpc_status, CALL_DEADLINE_TEXT);
    if (c->has_begun && c->kind->cancel)
        c->kind->cancel(c);
}

/* Takes memory for the kind's part and for answers. */
static struct status *make_kinds_part(struct grpc_call *c)
{
    const struct grpc_kind *kind = c->kind;
    struct pool *pool = c->ctx->env->net.pool;
    size_t part_bytes = (kind->part_bytes + 15) & ~(size_t)15;
    struct grpc_part *p = pool_alloc(pool, sizeof(*p) + part_bytes + kind->memory_bytes, NULL);
    if (!p)
        return status_no_memory();
    p->call = c;
    c->part = p->bytes;
    arena_init(&c->arena, p->bytes + part_bytes, kind->memory_bytes, GRPC_ARENA_BYTES, pool, NULL);
    return NULL;
}

/* Tells the kind that the service stops. */
static void stop_call(struct grpc_call *c)
{
    if (c->has_begun && !c->has_ended && c->kind->on_stop)
        c->kind->on_stop(c);
}

/* The longest message that the call takes, packed or not. */
static size_t get_max_message(const struct grpc_call *c)
{
    size_t of_service = c->ctx->settings->max_message_bytes, of_kind = c->kind->max_message_bytes;
    if (c->unary && !c->unary->carries_files)
        of_kind = UNARY_MESSAGE_BYTES;
    return of_kind > 0 ? MIN(of_kind, of_service) : of_service;
}

static void on_begin(struct http2_stream *s, const struct http2_head *head)
{
    struct grpc_call *c = call_of(s);
    struct grpc_ctx *ctx = http2_stream_env(s)->net.handler_ctx;
    struct status *st;

    memset(c, 0, sizeof(*c));
    c->stream = s;
    c->ctx = ctx;
    c->refs = 1;
    c->sent_status = -1;
    http2_stream_ref(s);
    timer_init(&c->deadline, on_deadline);
    arena_init(&c->arena, NULL, 0, GRPC_ARENA_BYTES, ctx->env->net.pool, NULL);
    if (!call_read_head(c, head, &st))
        return;
    if (!st)
        st = make_kinds_part(c);
    if (!st && UNLIKELY(ctx->settings->reads_more) && c->kind->has_tensors)
        st = call_read_more(c, head);
    if (st) {
        call_fail(c, st);
        return;
    }
    if (!c->kind->takes_many)
        http2_stream_sends_one(s);
    /* The bytes of a window, and no more of used ones: keep_held_bytes(). */
    buf_init_pooled(&c->held, 2 * http2_stream_window(s), ctx->env->net.pool);
    incoming_init(&c->incoming, s, ctx->env->net.pool, get_max_message(c), c->kind->has_tensors);
    c->has_begun = true;
    c->head = head;
    c->kind->begin(c);
    c->head = NULL;
    if (UNLIKELY(ctx->env->net.draining))
        stop_call(c); /* on_stop() was called for the others */
}

/* ---- Messages ------------------------------------------------------------------------------- */

/* Fails the call, since its message could not be unpacked. Takes the error. */
static void fail_unpacking(struct grpc_call *c, struct status *st)
{
    enum status_code code =
        status_code(st) == STATUS_INVALID_ARG ? STATUS_INTERNAL : STATUS_EXHAUSTED;
    call_fail(c, status_new(code, "%s", status_message(st)));
    status_free(st);
}

static void on_unpack_done(struct packing_job *job)
{
    struct call_job *j = CONTAINER_OF(job, struct call_job, job);
    struct grpc_call *c = j->call;
    pool_release(j->block);
    if (c->has_ended) {
        status_free(job->error);
        pool_release(job->block);
    } else if (job->error) {
        fail_unpacking(c, job->error);
    } else {
        c->kind->on_message(c, job->block, job->block, job->n_bytes);
    }
    c->unpacking = NULL;
    pool_release(j);
    if (c->is_resuming) /* without a helper: call_resume() goes on itself */
        c->is_held = false;
    call_resume(c);
    call_unref(c);
}

/* Has a helper unpack the message. The call is held meanwhile. */
static void unpack_elsewhere(struct grpc_call *c, const struct incoming_message *m)
{
    struct call_job *j = call_make_job(c, c->encoding);
    if (!j) {
        pool_release(m->block);
        call_fail(c, status_no_memory());
        return;
    }
    c->unpacking = j;
    c->is_held = true;
    j->block = m->block;
    j->piece = (struct iovec){(void *)(uintptr_t)m->bytes, m->n_bytes};
    j->job.unpacks = true;
    j->job.pieces = &j->piece;
    j->job.n_pieces = 1;
    j->job.max_bytes = c->incoming.max_bytes;
    j->job.on_done = on_unpack_done;
    packing_begin(c->ctx->packing, &j->job);
}

/*
 * Unpacks a compressed message for the kind. What is, or becomes, larger than PACKING_HERE_BYTES is
 * left to a helper. The message needs no job as long as it is small.
 */
static void unpack_message(struct grpc_call *c, const struct incoming_message *m)
{
    size_t most = c->incoming.max_bytes;
    size_t here = c->ctx->packing ? MIN(most, (size_t)PACKING_HERE_BYTES) : most;
    struct compress_target target = {.pool = c->ctx->env->net.pool, .max_bytes = here};
    enum compress_format format = c->encoding == GRPC_GZIP ? COMPRESS_GZIP : COMPRESS_ZLIB;
    char *block;
    size_t n;
    if (m->n_bytes > here) {
        unpack_elsewhere(c, m);
        return;
    }
    struct status *st =
        compress_unpack(c->ctx->compress, format, m->bytes, m->n_bytes, &target, &block, &n);
    if (st && status_code(st) == STATUS_UNSUPPORTED && here < most) {
        status_free(st);
        unpack_elsewhere(c, m);
        return;
    }
    pool_release(m->block);
    if (st)
        fail_unpacking(c, st);
    else
        c->kind->on_message(c, block, block, n);
}

/* Takes one of the requests that may begin in this iteration of the loop. */
static void count_request(struct grpc_call *c)
{
    unsigned int *left = c->ctx->env->net.requests_left;
    if (left && *left > 0)
        (*left)--;
}

/*
 * Whether a message of the call may begin a request now. If not, holds the call until call_resume()
 * finds that one may. The bytes of a method that takes one message were counted by the session; a
 * few bytes of a stream may have many messages.
 */
static bool may_begin_request(struct grpc_call *c)
{
    const unsigned int *left = c->ctx->env->net.requests_left;
    bool may = false;
    if (!c->kind->has_tensors)
        may = !c->kind->may_begin || c->kind->may_begin(c);
    else if (UNLIKELY(c->kind->takes_many && left && *left == 0))
        http2_stream_await_iteration(c->stream);
    else if (UNLIKELY(http2_connection_unsent(c->stream) >= MAX_UNSENT_BYTES))
        http2_stream_await_room(c->stream);
    else
        may = !c->kind->may_begin || c->kind->may_begin(c);
    c->is_held = !may;
    return may;
}

static void handle_message(struct grpc_call *c, struct incoming_message *m)
{
    const char *fault = NULL;
    count_request(c);
    if (c->has_message && !c->kind->takes_many)
        fault = "more than one message for a method that takes one";
    else if (m->compressed && c->encoding == GRPC_IDENTITY)
        fault = "a compressed message without grpc-encoding";
    c->has_message = true;
    if (fault) {
        pool_release(m->block);
        call_fail(c, status_new(STATUS_INTERNAL, "%s", fault));
    } else if (UNLIKELY(m->compressed)) {
        unpack_message(c, m);
    } else {
        c->kind->on_message(c, m->block, m->bytes, m->n_bytes);
    }
}

static bool takes_input(const struct grpc_call *c)
{
    return !c->has_ended && !c->is_deaf;
}

/* Handles a complete message, or keeps it while no request may begin. */
static void take_message(struct grpc_call *c, struct incoming_message *m)
{
    if (LIKELY(may_begin_request(c))) {
        handle_message(c, m);
        return;
    }
    c->pending = *m;
    c->has_pending = true;
}

/*
 * Cuts the stream's bytes into messages for the kind, until the call is held: of no message another
 * one begins. Returns the number of bytes used.
 */
static size_t take_bytes_of_messages(struct grpc_call *c, const char *bytes, size_t n_bytes)
{
    const char *at = bytes, *end = bytes + n_bytes;
    while (at < end && takes_input(c) && !c->is_held) {
        struct incoming_message message;
        bool complete;
        size_t used;
        if (!incoming_is_within(&c->incoming) && !may_begin_request(c))
            break;
        struct status *st =
            incoming_add(&c->incoming, at, (size_t)(end - at), &used, &complete, &message);
        at += used;
        if (st)
            call_fail(c, st);
        else if (complete)
            take_message(c, &message);
    }
    return (size_t)(at - bytes);
}

/* Drops bytes that nobody reads; those that were expected count as taken. */
static void drop_bytes(struct grpc_call *c, size_t n_bytes)
{
    size_t expected = MIN(n_bytes, c->incoming.n_expected);
    c->incoming.n_expected -= expected;
    http2_stream_take(c->stream, n_bytes - expected);
}

/* Keeps bytes that come while the call is held. */
static void keep_held_bytes(struct grpc_call *c, const char *bytes, size_t n_bytes)
{
    size_t left = c->held.size - c->held_at;
    if (c->held_at > left) {
        memmove(c->held.data, c->held.data + c->held_at, left);
        c->held.size = left;
        c->held_at = 0;
    }
    buf_add(&c->held, bytes, n_bytes);
    if (c->held.failed)
        call_fail(c, status_new(STATUS_EXHAUSTED, "no memory for messages that wait"));
}

static void on_data(struct http2_stream *s, const char *bytes, size_t n_bytes)
{
    struct grpc_call *c = call_of(s);
    size_t used = take_bytes_of_messages(c, bytes, n_bytes);
    if (used == n_bytes)
        return;
    if (takes_input(c))
        keep_held_bytes(c, bytes + used, n_bytes - used);
    else
        drop_bytes(c, n_bytes - used);
}

/* Handles the client's half-close, after all its messages were handled. */
static void half_close(struct grpc_call *c)
{
    bool within = incoming_is_within(&c->incoming);
    if (within || (!c->has_message && !c->kind->takes_many))
        call_fail(c, status_new(STATUS_INTERNAL, "the client ended the call %s a message",
                                within ? "within" : "without"));
    else if (c->kind->on_half_close)
        c->kind->on_half_close(c);
}

static void on_half_close(struct http2_stream *s)
{
    struct grpc_call *c = call_of(s);
    c->is_half_closed = true;
    if (takes_input(c) && !c->is_held)
        half_close(c);
}

/* Handles the bytes that have come while the call was held. */
static void handle_held_bytes(struct grpc_call *c)
{
    size_t left = c->held.size - c->held_at;
    size_t used = take_bytes_of_messages(c, buf_text(&c->held) + c->held_at, left);
    if (!takes_input(c)) { /* they are freed */
        drop_bytes(c, left - used);
        return;
    }
    c->held_at += used;
    if (used == left) {
        size_t max = c->held.max;
        struct pool *pool = c->held.pool;
        buf_done(&c->held);
        buf_init_pooled(&c->held, max, pool);
        c->held_at = 0;
    }
}

/* Continues with what has come while the call was held. */
static void handle_held(struct grpc_call *c)
{
    c->is_resuming = true;
    if (c->has_pending) {
        c->has_pending = false;
        handle_message(c, &c->pending);
    }
    if (c->held.size > c->held_at && takes_input(c))
        handle_held_bytes(c);
    c->is_resuming = false;
    if (c->is_half_closed && takes_input(c) && !c->is_held)
        half_close(c);
}

void call_resume(struct grpc_call *c)
{
    if (c->is_held && !c->unpacking && !c->is_resuming && takes_input(c) && may_begin_request(c))
        handle_held(c);
}

static void on_room(struct http2_stream *s)
{
    call_resume(call_of(s));
}

static void on_stop(struct http2_stream *s)
{
    stop_call(call_of(s));
}

static bool on_turn(struct http2_stream *s, bool is_last)
{
    struct grpc_call *c = call_of(s);
    if (c->has_ended || incoming_on_turn(&c->incoming))
        return true;
    if (is_last) {
        net_count(&c->ctx->env->net.counts, NET_REFUSED_MEMORY, 1);
        call_fail(c, status_new(STATUS_EXHAUSTED, "no memory for a message of %zu bytes",
                                c->incoming.n_bytes));
    }
    return is_last;
}

/* ---- Ends ----------------------------------------------------------------------------------- */

static void on_cancel(struct http2_stream *s, enum http2_error why)
{
    struct grpc_call *c = call_of(s);
    bool was_wanted = c->has_begun && !c->has_ended;
    (void)why;
    net_count(&c->ctx->env->net.counts, NET_CANCELLED, !c->has_ended);
    if (!c->has_ended)
        call_mark_ended(c);
    if (was_wanted && c->kind->cancel)
        c->kind->cancel(c);
}

static void on_stream_end(struct http2_stream *s)
{
    struct grpc_call *c = call_of(s);
    if (!c->has_ended)
        call_mark_ended(c);
    bool has_close = c->has_begun && c->kind->close;
    if (has_close && c->packing)
        c->is_close_due = true;
    else if (has_close)
        c->kind->close(c);
    call_unref(c);
}

const struct http2_handler grpc_handler = {
    .part_bytes = sizeof(struct grpc_call),
    .on_begin = on_begin,
    .on_data = on_data,
    .on_half_close = on_half_close,
    .on_cancel = on_cancel,
    .on_turn = on_turn,
    .on_room = on_room,
    .on_stop = on_stop,
    .on_end = on_stream_end,
};
