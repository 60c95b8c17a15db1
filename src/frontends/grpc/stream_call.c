/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ModelStreamInfer: a call with any number of requests, of any models, and of responses
 * (reference/behaviours §6.20 to §6.26).
 *
 *      take_stream_message ─► struct streamed ─► server_infer ─► response_inbox ─► send_responses
 * ─► client
 *
 * Each message becomes a struct streamed, which has the request. Its responses come to the loop by
 * an inbox. Those of decoupled models leave at once. Those of other models leave in the order of
 * the requests: the responses of the first request that is not complete leave, those of later ones
 * wait in their streamed.
 *
 * A response that leaves becomes a struct sent: the frame around it, and the response, whose
 * outputs are pieces of the frame. Both are released when the last piece has left, or never will.
 *
 * Invariants: a streamed ends when its final flag has come to the loop and, if it has to wait, its
 * turn in the order has; the call ends with OK when the client has sent all and no streamed is
 * left. A streamed has a reference to the call, and a sent has one to its streamed.
 *
 * Threads: the loop's, but for on_streamed_respond() and on_streamed_destroy(): any.
 */
#include <assert.h>
#include <pthread.h>
#include <string.h>

#include "base/loop.h"
#include "base/mem.h"
#include "base/pool.h"
#include "base/status.h"
#include "core/model/model.h"
#include "core/request/life.h"
#include "core/request/request.h"
#include "core/server/server.h"
#include "frontends/grpc/call.h"
#include "frontends/grpc/infer_decode.h"
#include "frontends/grpc/infer_encode.h"
#include "frontends/grpc/infer_message.h"
#include "frontends/ops/ops.h"
#include "frontends/ops/response_inbox.h"
#include "frontends/ops/tensor_blocks.h"

enum {
    MAX_REQUESTS = 1024,       /* of a stream at one time */
    REQUEST_BYTES = 1536,      /* names and shapes of the usual request */
    MESSAGE_BYTES = 2048,      /* the views of the usual message */
    MAX_VIEW_BYTES = 64 << 20, /* … of any */
    FRAME_BYTES = 1024,        /* the frame around the usual response */
};

/* Beyond so many bytes that have not left a connection begins no request. */
#define MAX_UNSENT_BYTES ((size_t)64 << 20)

struct stream_part {
    struct list order;   /* of requests of other than decoupled models, as they came */
    struct list all;     /* of all requests */
    unsigned int n_open; /* requests that have not ended */
    bool is_half_closed; /* the client has sent all its requests */
    bool ends_at_error;  /* the metadata triton_grpc_error */
};

static_assert(sizeof(struct stream_part) <= GRPC_PART_BYTES, "a part has room");

/* A request of the stream. */
struct streamed {
    struct grpc_call *call; /* a reference */
    struct list link;       /* in stream_part.all, while open */
    struct list order_link; /* in stream_part.order, while open; of decoupled models in none */
    unsigned int refs;      /* while open; on_streamed_destroy's; each sent's. The loop's */
    bool is_decoupled, is_complete, wants_empty_final;
    struct list kept; /* responses that wait for those of earlier requests */
    char *block;      /* of the client's message */
    struct tensor_blocks blocks;
    struct response_inbox inbox;
    struct stream_flow flow; /* of a decoupled model's */
    struct message destroyed;
    struct request request;
    _Alignas(16) char memory[REQUEST_BYTES];
};

/* A message that leaves. */
struct sent {
    struct streamed *streamed; /* a reference; NULL: the message is about no request of the core */
    struct response *response; /* whose outputs are in the message; or NULL */
    struct pool *pool;
    size_t n_bytes;
    char *packed;
    struct arena arena;
    _Alignas(16) char memory[FRAME_BYTES];
};

static struct stream_part *stream_part_of(struct grpc_call *c)
{
    return (struct stream_part *)(void *)c->part;
}

/* ---- Requests ------------------------------------------------------------------------------- */

static void unref_streamed(struct streamed *r)
{
    struct grpc_call *c = r->call;
    if (--r->refs > 0)
        return;
    stream_flow_done(&r->flow);
    pool_release(r);
    call_unref(c);
}

/* The core has let go of the request: nobody reads its inputs. */
static void release_request(struct streamed *r)
{
    tensor_blocks_release(&r->blocks);
    pool_release(TAKE(r->block));
    unref_streamed(r);
}

static void on_streamed_destroyed(struct message *m)
{
    release_request(CONTAINER_OF(m, struct streamed, destroyed));
}

static bool runs_on_loop(const struct streamed *r)
{
    return pthread_equal(r->inbox.loop->owner, pthread_self());
}

static void on_streamed_destroy(struct request *request)
{
    struct streamed *r = CONTAINER_OF(request, struct streamed, request);
    if (runs_on_loop(r))
        release_request(r);
    else
        loop_post(r->inbox.loop, &r->destroyed);
}

/* Does the response count in the flow of its request? */
static bool is_in_flow(const struct streamed *r, const struct response *resp)
{
    return r->is_decoupled && resp && !resp->error;
}

static size_t count_bytes(const struct response *resp)
{
    size_t n = 0;
    for (uint32_t i = 0; i < resp->n_outputs; i++)
        n += resp->outputs[i]->size_bytes;
    return n;
}

/* A backend that is faster than the client waits here. What nobody wants any more is dropped. */
static void on_streamed_respond(struct request *request, struct response *resp, uint32_t flags)
{
    struct streamed *r = CONTAINER_OF(request, struct streamed, request);
    if (is_in_flow(r, resp)) {
        struct status *st = runs_on_loop(r) ? NULL : stream_flow_await(&r->flow);
        if (!st) {
            stream_flow_add(&r->flow, count_bytes(resp));
        } else {
            status_free(st);
            response_free(TAKE(resp));
        }
    }
    if (resp || flags & RESPONSE_FINAL)
        response_inbox_put(&r->inbox, resp, flags);
}

static const struct request_ops request_ops = {
    .alloc_output = response_alloc_pooled,
    .free_output = response_free_pooled,
    .respond = on_streamed_respond,
    .destroy = on_streamed_destroy,
};

/* ---- Messages that leave -------------------------------------------------------------------- */

/* Frees a response that has left, or never will. */
static void drop_response(struct streamed *r, struct response *resp)
{
    if (is_in_flow(r, resp))
        stream_flow_drop(&r->flow, count_bytes(resp));
    response_free(resp);
}

static void release_sent(void *owner)
{
    struct sent *s = owner;
    struct streamed *r = s->streamed;
    pool_release(s->packed);
    if (s->response)
        drop_response(r, s->response);
    arena_reset(&s->arena);
    pool_release(s);
    if (r)
        unref_streamed(r);
}

/* Memory for a message; NULL: none. Takes a reference to the request. */
static struct sent *sent_new(struct grpc_call *c, struct streamed *r, struct response *resp)
{
    struct pool *pool = c->ctx->env->net.pool;
    struct sent *s = pool_alloc(pool, sizeof(*s), NULL);
    if (!s)
        return NULL;
    s->streamed = r;
    s->response = resp;
    s->packed = NULL;
    arena_init(&s->arena, s->memory, sizeof(s->memory), GRPC_ARENA_BYTES, pool, NULL);
    if (r)
        r->refs++;
    return s;
}

/* Sends what was encoded, or gives it up with the error. */
static void send_encoded(struct grpc_call *c, struct sent *s, const struct infer_pieces *pieces,
                         struct status *st)
{
    struct grpc_framed framed;
    if (!st)
        st = call_frame(c, &s->arena, pieces->items, pieces->count, &framed);
    if (st) {
        release_sent(s);
        call_fail(c, st);
        return;
    }
    s->packed = framed.packed;
    framed.pieces[framed.count - 1].release = release_sent;
    framed.pieces[framed.count - 1].owner = s;
    call_send(c, &framed);
}

static struct infer_identity identify(const struct streamed *r)
{
    const struct model *m = r->request.model;
    return (struct infer_identity){m->name, m->version_text, r->request.maker.id};
}

/* One response to the client; resp may be NULL: a final flag alone. */
static void send_response(struct streamed *r, struct response *resp, bool is_final)
{
    struct grpc_call *c = r->call;
    struct infer_identity identity = identify(r);
    enum infer_form form = is_final ? INFER_STREAM_LAST : INFER_STREAM;
    struct infer_pieces pieces;
    struct status *st;

    if (c->has_ended || (!resp && !r->wants_empty_final)) {
        if (resp)
            drop_response(r, resp);
        return;
    }
    if (resp && resp->error && stream_part_of(c)->ends_at_error) {
        st = status_ref(resp->error);
        drop_response(r, resp);
        call_fail(c, st);
        return;
    }
    struct sent *s = sent_new(c, r, resp);
    if (!s) {
        if (resp)
            drop_response(r, resp);
        call_fail(c, status_no_memory());
        return;
    }
    if (resp && resp->error)
        st = infer_encode_error(status_message(resp->error), &identity, INFER_STREAM_LAST,
                                &s->arena, &pieces);
    else
        st = infer_encode(resp, &identity, form, &s->arena, &pieces);
    send_encoded(c, s, &pieces, st);
}

/* An error before the core had the request: the stream goes on. */
static void send_early_error(struct grpc_call *c, const char *id, struct status *error)
{
    struct infer_identity identity = {"", "", id};
    struct infer_pieces pieces;
    struct sent *s = c->has_ended ? NULL : sent_new(c, NULL, NULL);
    if (s) {
        struct status *st =
            infer_encode_error(status_message(error), &identity, INFER_STREAM, &s->arena, &pieces);
        send_encoded(c, s, &pieces, st);
    } else if (!c->has_ended) {
        call_fail(c, status_no_memory());
    }
    status_free(error);
}

/* ---- The order of responses, and ends ------------------------------------------------------- */

/* The client has sent all, and everything is answered. */
static void finish_if_over(struct grpc_call *c)
{
    struct stream_part *p = stream_part_of(c);
    if (p->is_half_closed && p->n_open == 0)
        call_finish(c);
}

/* The request has had its final response, and nothing of it is kept back. */
static void end_streamed(struct streamed *r)
{
    struct grpc_call *c = r->call;
    struct stream_part *p = stream_part_of(c);
    list_remove(&r->link);
    list_remove(&r->order_link);
    p->n_open--;
    request_unref(&r->request);
    unref_streamed(r);
}

static bool is_first(const struct streamed *r)
{
    const struct list *order = &stream_part_of(r->call)->order;
    return r->is_decoupled || order->next == &r->order_link;
}

/* Sends what the first requests in the order have kept, and ends those that are complete. */
static void send_kept(struct grpc_call *c)
{
    struct stream_part *p = stream_part_of(c);
    struct list *link;
    while (!list_empty(&p->order)) {
        struct streamed *r = LIST_ENTRY(p->order.next, struct streamed, order_link);
        while ((link = list_pop(&r->kept)))
            send_response(r, LIST_ENTRY(link, struct response, link), true);
        if (!r->is_complete)
            return;
        end_streamed(r);
    }
}

/* Room for further requests, in their number and in what has not left. */
static bool has_room(struct grpc_call *c)
{
    return stream_part_of(c)->n_open < MAX_REQUESTS &&
           http2_connection_unsent(c->stream) < MAX_UNSENT_BYTES;
}

static void resume_if_room(struct grpc_call *c)
{
    if (!c->is_held || c->has_ended)
        return;
    if (has_room(c))
        call_resume(c);
    else if (stream_part_of(c)->n_open < MAX_REQUESTS)
        http2_stream_await_room(c->stream);
}

/* Responses of a request have come to the loop. */
static void send_responses(struct response_inbox *in)
{
    struct streamed *r = CONTAINER_OF(in, struct streamed, inbox);
    struct grpc_call *c = r->call;
    struct response *resp;
    uint32_t flags = 0;

    call_ref(c);
    while (!(flags & RESPONSE_FINAL) && response_inbox_next(in, &resp, &flags)) {
        if (r->is_decoupled)
            send_response(r, resp, flags & RESPONSE_FINAL);
        else if (resp && is_first(r))
            send_response(r, resp, true);
        else if (resp)
            list_push(&r->kept, &resp->link);
    }
    if (flags & RESPONSE_FINAL) {
        r->is_complete = true;
        if (r->is_decoupled)
            end_streamed(r);
        else if (is_first(r))
            send_kept(c);
        finish_if_over(c);
        resume_if_room(c);
    }
    call_unref(c);
}

/* ---- The call's events ---------------------------------------------------------------------- */

static void begin_stream(struct grpc_call *c)
{
    struct stream_part *p = stream_part_of(c);
    *p = (struct stream_part){.ends_at_error = c->wants_true_status};
    list_init(&p->order);
    list_init(&p->all);
}

/* A request of the stream that is not with the core yet; NULL: no memory. Block and model are taken
 * on success. */
static struct streamed *streamed_new(struct grpc_call *c, char *block, struct model *model)
{
    struct stream_part *p = stream_part_of(c);
    struct pool *pool = c->ctx->env->net.pool;
    struct streamed *r = pool_alloc(pool, sizeof(*r), model->owner);
    if (!r)
        return NULL;
    memset(r, 0, offsetof(struct streamed, request));
    r->call = c;
    r->block = block;
    r->is_decoupled = model->decoupled;
    r->refs = 2; /* open, and on_streamed_destroy's */
    r->destroyed.deliver = on_streamed_destroyed;
    list_init(&r->kept);
    list_init(&r->order_link);
    list_push(&p->all, &r->link);
    if (!r->is_decoupled)
        list_push(&p->order, &r->order_link);
    p->n_open++;
    response_inbox_init(&r->inbox, c->ctx->loop, send_responses);
    stream_flow_init(&r->flow, &c->ctx->settings->flow, c->ctx->loop->clock);
    request_init(&r->request, &request_ops, model, r->memory, sizeof(r->memory), pool);
    /* A decoupled model might wait for its client, which a loop must not. */
    r->request.maker.inline_budget = r->is_decoupled ? NULL : grpc_inline_budget(c->ctx);
    call_ref(c);
    return r;
}

/* The request of a message; on error nothing of it is left but perhaps its block. */
static struct status *read_request(struct grpc_call *c, const struct infer_message *m, char **block,
                                   struct streamed **ret)
{
    struct ops_model_ref ref = {m->model_name.at, m->model_name.length, m->model_version.at,
                                m->model_version.length};
    struct infer_asks asks;
    struct model *model;
    if (c->ctx->env->net.draining)
        return status_new(STATUS_UNAVAILABLE, "GRPC server is shutting down and has stopped "
                                              "accepting new requests.");
    struct status *st = ops_model_find(c->ctx->settings->server, &ref, &model);
    if (st)
        return st;
    struct streamed *r = streamed_new(c, *block, model);
    if (!r) {
        model_unref(model);
        return status_no_memory();
    }
    *block = NULL;
    st = infer_decode(m, &r->request, &r->blocks, &asks);
    r->wants_empty_final = asks.empty_final;
    if (st)
        end_streamed(r);
    else
        *ret = r;
    return st;
}

/* The id of a message, for errors; "" without memory. */
static const char *copy_id(const struct infer_message *m, struct arena *arena)
{
    const char *id = arena_strndup(arena, m->id.at, strnlen(m->id.at, m->id.length));
    return id ? id : "";
}

static void start_request(struct grpc_call *c, char **block, const char *bytes, size_t n_bytes)
{
    struct streamed *r = NULL;
    char memory[MESSAGE_BYTES];
    struct infer_message m;
    struct arena arena;

    arena_init(&arena, memory, sizeof(memory), MAX_VIEW_BYTES, c->ctx->env->net.pool, NULL);
    struct status *st = infer_message_read(&m, bytes, n_bytes, &arena);
    if (st) { /* no message at all ends the stream */
        call_fail(c, st);
        arena_reset(&arena);
        return;
    }
    const char *id = copy_id(&m, &arena);
    st = read_request(c, &m, block, &r);
    if (!st) {
        st = server_infer(c->ctx->settings->server, &r->request);
        if (st)
            end_streamed(r);
    }
    if (st) {
        send_early_error(c, id, st);
        send_kept(c);
    }
    arena_reset(&arena);
}

static void take_stream_message(struct grpc_call *c, char *block, const char *bytes, size_t n_bytes)
{
    start_request(c, &block, bytes, n_bytes);
    pool_release(block); /* of a message that became no request */
    if (!c->has_ended && !has_room(c)) {
        call_hold(c);
        if (stream_part_of(c)->n_open < MAX_REQUESTS)
            http2_stream_await_room(c->stream);
    }
}

static void end_input(struct grpc_call *c)
{
    stream_part_of(c)->is_half_closed = true;
    finish_if_over(c);
}

static void cancel_stream(struct grpc_call *c)
{
    struct stream_part *p = stream_part_of(c);
    for (struct list *link = p->all.next; link != &p->all; link = link->next) {
        struct streamed *r = LIST_ENTRY(link, struct streamed, link);
        stream_flow_end(&r->flow);
        if (!r->is_complete)
            request_cancel(&r->request);
    }
}

const struct grpc_kind grpc_stream_kind = {
    .has_tensors = true,
    .takes_many = true,
    .begin = begin_stream,
    .on_message = take_stream_message,
    .on_half_close = end_input,
    .on_room = resume_if_room,
    .cancel = cancel_stream,
};
