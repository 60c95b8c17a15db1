/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls of the methods in unary.c: the message is read on the loop; the method runs there, or on a
 * control thread if it may block, and then a message brings its result back:
 *
 *     take_unary_message ──► control_call_begin ─► work_unary ──► on_unary_done ─► call_reply
 *
 * A large message, such as the files of a model, is read by a control thread before that, since
 * reading copies it.
 *
 * Cancelling the call does not stop its method. A reference keeps the call while a control thread
 * has it. Threads: the loop's; work_unary() runs on a control thread.
 */
#include <string.h>

#include "base/buf.h"
#include "base/loop.h"
#include "base/mem.h"
#include "base/pool.h"
#include "base/status.h"
#include "core/request/life.h"
#include "core/server/server.h"
#include "frontends/grpc/call.h"
#include "frontends/grpc/infer_encode.h"
#include "frontends/grpc/unary.h"
#include "frontends/ops/control_call.h"
#include "frontends/ops/ops.h"

/* The most memory of an answer, besides that of its request. */
#define ANSWER_BYTES ((size_t)256 << 20)

enum { READ_HERE_BYTES = 32 << 10 }; /* messages up to this size are read on the loop */

struct unary_part {
    char *block; /* of the message, while a control thread reads it */
    const char *bytes;
    size_t n_bytes;
    const ProtobufCMessage *request;
    struct arena arena; /* of request and answer */
    struct buf out;
    struct status *st;
    struct control_call call;
};

static struct unary_part *unary_part_of(struct grpc_call *c)
{
    return c->part;
}

static void begin_unary(struct grpc_call *c)
{
    struct unary_part *p = unary_part_of(c);
    p->request = NULL;
    p->st = NULL;
    buf_init_pooled(&p->out, INFER_MAX_MESSAGE_BYTES, c->ctx->env->net.pool);
}

/* ---- The result ----------------------------------------------------------------------------- */

static void reply(struct grpc_call *c)
{
    struct unary_part *p = unary_part_of(c);
    struct iovec piece = {(void *)(uintptr_t)buf_text(&p->out), p->out.size};
    if (p->st)
        call_fail(c, TAKE(p->st));
    else
        call_reply(c, &piece, 1);
}

static void on_unary_done(struct control_call *call)
{
    struct grpc_call *c = grpc_call_of(CONTAINER_OF(call, struct unary_part, call));
    reply(c);
    call_unref(c);
}

/* ---- The method ----------------------------------------------------------------------------- */

static void run_method(struct grpc_call *c)
{
    struct unary_part *p = unary_part_of(c);
    p->st = unary_run(c->unary, c->ctx->settings->server, c->ctx->settings->regions, p->request,
                      &p->arena, &p->out);
}

static void work_unary(struct control_call *call)
{
    run_method(grpc_call_of(CONTAINER_OF(call, struct unary_part, call)));
}

/* The threads that the method is to run on. */
static struct control *find_threads(struct grpc_call *c, enum unary_thread thread)
{
    struct server *server = c->ctx->settings->server;
    return thread == UNARY_HELPER ? server_helpers(server) : ops_control(server);
}

static void start_method(struct grpc_call *c)
{
    struct unary_part *p = unary_part_of(c);
    enum unary_thread thread = unary_thread(c->unary, p->request);
    if (thread == UNARY_LOOP) {
        run_method(c);
        reply(c);
        return;
    }
    p->call.work = work_unary;
    p->call.on_done = on_unary_done;
    call_ref(c);
    control_call_begin(&p->call, find_threads(c, thread), c->ctx->loop,
                       c->unary->model ? c->unary->model(p->request) : NULL, thread == UNARY_LOAD);
}

static void read_unary_message(struct grpc_call *c)
{
    struct unary_part *p = unary_part_of(c);
    p->st = unary_read(c->unary, p->bytes, p->n_bytes, &p->arena, &p->request);
    pool_release(TAKE(p->block));
}

/* Whether the client may ask about the model that its message names. */
static struct status *check_subject(const struct grpc_call *c, const ProtobufCMessage *request)
{
    const char *name = c->unary->subject ? c->unary->subject(request) : "";
    return call_check_model(c, name[0] ? name : NULL, strlen(name));
}

/* Goes on when the message is read. */
static void use_message(struct grpc_call *c)
{
    struct unary_part *p = unary_part_of(c);
    if (!p->st)
        p->st = check_subject(c, p->request);
    if (p->st || c->has_ended) {
        arena_reset(&p->arena);
        p->request = NULL;
        call_fail(c, p->st ? TAKE(p->st) : status_cancelled());
        return;
    }
    start_method(c);
}

static void work_read(struct control_call *call)
{
    read_unary_message(grpc_call_of(CONTAINER_OF(call, struct unary_part, call)));
}

static void on_message_read(struct control_call *call)
{
    struct grpc_call *c = grpc_call_of(CONTAINER_OF(call, struct unary_part, call));
    use_message(c);
    call_unref(c);
}

static void take_unary_message(struct grpc_call *c, char *block, const char *bytes, size_t n_bytes)
{
    struct unary_part *p = unary_part_of(c);
    arena_init(&p->arena, NULL, 0, 2 * n_bytes + ANSWER_BYTES, c->ctx->env->net.pool, NULL);
    p->block = block;
    p->bytes = bytes;
    p->n_bytes = n_bytes;
    if (n_bytes <= READ_HERE_BYTES) {
        read_unary_message(c);
        use_message(c);
        return;
    }
    p->call.work = work_read;
    p->call.on_done = on_message_read;
    call_ref(c);
    control_call_begin(&p->call, server_helpers(c->ctx->settings->server), c->ctx->loop, NULL,
                       false);
}

static void end_unary(struct grpc_call *c)
{
    struct unary_part *p = unary_part_of(c);
    if (p->request)
        arena_reset(&p->arena);
    buf_done(&p->out);
    status_free(p->st);
}

const struct grpc_kind grpc_unary_kind = {
    .part_bytes = sizeof(struct unary_part),
    .memory_bytes = GRPC_CALL_MEMORY,
    .begin = begin_unary,
    .on_message = take_unary_message,
    .end = end_unary,
};
