/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ModelStreamInfer: a call with any number of requests, of any models, and of responses
 * (reference/behaviours §6.20 to §6.26).
 *
 *      take_stream_message ─► struct streamed ─► server_infer ─► response_inbox ─►
 *      send_responses ─► client
 *
 * Each message becomes a struct streamed, which has the request. Its responses come to the loop by
 * an inbox. Responses of decoupled models are sent at once. Responses of other models are sent in
 * the order of their requests: those of the first incomplete request are sent, those of later
 * requests wait in their streamed.
 *
 * A response that is sent becomes a struct sent: its frame, and the response, whose outputs are
 * pieces of the frame. Both are released when the last piece is sent or dropped.
 *
 * Invariants: a streamed ends when its final flag has come to the loop and, unless its model is
 * decoupled, it is the first in the order. The call ends with OK when the client has closed its
 * sending side and no streamed is left. A streamed has a reference to the call, and a sent has one
 * to its streamed.
 *
 * Threads: the loop's; on_streamed_respond() and on_streamed_destroy() run on any.
 */
#include <string.h>

#include "base/loop.h"
#include "base/mem.h"
#include "base/pool.h"
#include "base/status.h"
#include "core/model/model.h"
#include "core/request/life.h"
#include "core/request/request.h"
#include "core/sched/pull.h"
#include "core/server/server.h"
#include "frontends/grpc/call.h"
#include "frontends/grpc/infer_decode.h"
#include "frontends/grpc/infer_encode.h"
#include "frontends/grpc/infer_message.h"
#include "frontends/ops/forwarding.h"
#include "frontends/ops/ops.h"
#include "frontends/ops/response_inbox.h"
#include "frontends/ops/tensor_blocks.h"
#include "frontends/ops/region_copy.h"
#include "frontends/ops/region_delivery.h"
#include "frontends/ops/tensor_regions.h"

enum {
    MAX_SENT = 4096,     /* messages that have not left, beyond which no request begins */
    MAX_REQUESTS = 1024, /* of a stream at one time */
    FRAME_BYTES = 1024,  /* the frame around the usual response */
};

/* Bytes of responses that wait for those of earlier requests, beyond which no request begins. */
#define MAX_KEPT_BYTES ((size_t)64 << 20)

/* A place in the order of answers: of a request, or of an error before there was one. */
struct place {
    struct list link;
    struct streamed *streamed; /* NULL: an error */
};

/* An error that waits for the answers of earlier requests. */
struct early_error {
    struct place place;
    struct status *error;
    char id[]; /* of the message */
};

struct stream_part {
    unsigned int n_sent;    /* messages that have not left */
    struct list order;      /* of requests of other than decoupled models, as they came */
    struct list all;        /* of all requests */
    unsigned int n_open;    /* requests that have not ended */
    size_t kept_bytes;      /* of responses in streamed.kept, and of messages in `unpacked` */
    struct list unpacked;   /* messages behind the one that a helper packs, the first, in order */
    struct status *failure; /* ends the call when these are sent; or NULL */
    bool is_half_closed;    /* the client has closed its sending side */
    uint64_t waits_ns;      /* since when the next message is waited for: a loop's iteration */
    bool ends_at_error;     /* the metadata triton_grpc_error */
    bool is_copying;        /* a helper copies tensors of the last request; none begins behind it */
};

/* A request of the stream. */
struct streamed {
    struct grpc_call *call; /* a reference */
    struct list link;       /* in stream_part.all, while open */
    struct place place;     /* in stream_part.order, while open; of decoupled models in none */
    unsigned int refs;      /* while open; on_streamed_destroy's; each sent's. The loop's */
    bool is_decoupled, is_complete, wants_empty_final;
    struct list kept;    /* responses that wait for those of earlier requests */
    const char *version; /* that the message asks for; "" for any */
    char *block;         /* of the client's message */
    size_t n_bytes;      /* of that message */
    struct tensor_blocks blocks;
    struct tensor_regions regions;
    struct classification classes;
    struct response_inbox inbox;
    struct stream_flow flow; /* of a decoupled model's */
    struct message destroyed;
    struct traced *traced; /* NULL: the request is not traced */
    struct request request;
    _Alignas(16) char memory[GRPC_REQUEST_BYTES];
};

/* A message that is being sent. */
struct sent {
    struct grpc_call *call;    /* a reference */
    struct streamed *streamed; /* a reference; NULL: the message is about no request of the core */
    struct response *response; /* whose outputs are in the message; or NULL */
    struct pool *pool;
    struct list link;           /* in stream_part.unpacked, while it waits to be packed */
    struct infer_pieces pieces; /* … of the message */
    char *packed;
    struct arena arena;
    _Alignas(16) char memory[FRAME_BYTES];
};

static struct stream_part *stream_part_of(struct grpc_call *c)
{
    return c->part;
}

/* ---- Requests ------------------------------------------------------------------------------- */

/* Only for a request that is traced. */
static void stamp_streamed(struct streamed *r, enum trace_stamp stamp)
{
    traced_stamp(r->traced, stamp, clock_now_ns(r->call->ctx->loop->clock));
}

static void unref_streamed(struct streamed *r)
{
    struct grpc_call *c = r->call;
    if (--r->refs > 0)
        return;
    if (UNLIKELY(r->traced != NULL)) {
        stamp_streamed(r, STAMP_GRPC_SEND_END);
        traced_end(r->traced);
    }
    stream_flow_done(&r->flow);
    pool_release(r);
    call_unref(c);
}

/* Releases the message's memory, once the core and the backend no longer use the request. */
static void release_request(struct streamed *r)
{
    tensor_blocks_release(&r->blocks);
    tensor_regions_release(&r->regions);
    pool_release(TAKE(r->block));
    unref_streamed(r);
}

static void on_streamed_destroyed(struct message *m)
{
    release_request(CONTAINER_OF(m, struct streamed, destroyed));
}

static void on_streamed_destroy(struct request *request)
{
    struct streamed *r = CONTAINER_OF(request, struct streamed, request);
    if (loop_is_on_thread(r->inbox.loop))
        release_request(r);
    else
        loop_post(r->inbox.loop, &r->destroyed);
}

/* Whether the response counts in the flow of its request. */
static bool is_in_flow(const struct streamed *r, const struct response *resp)
{
    return r->is_decoupled && resp;
}

/* What a response takes: its outputs, and what is around them. */
static size_t count_bytes(const struct response *resp)
{
    size_t n = sizeof(struct sent) + sizeof(*resp);
    for (uint32_t i = 0; i < resp->n_outputs; i++)
        n += resp->outputs[i]->size_bytes;
    return n;
}

static void put_streamed(struct request *request, struct response *resp, uint32_t flags)
{
    struct streamed *r = CONTAINER_OF(request, struct streamed, request);
    if (resp || flags & RESPONSE_FINAL)
        response_inbox_put(&r->inbox, resp, flags);
}

/* A backend that is faster than the client waits here. Returns NULL when the client has left. */
static struct response *admit_streamed(struct streamed *r, struct response *resp)
{
    classification_apply(&r->classes, resp);
    if (is_in_flow(r, resp) &&
        !stream_flow_take(&r->flow, r->inbox.loop, count_bytes(resp), resp->error))
        response_free(TAKE(resp));
    return resp;
}

static void on_streamed_respond(struct request *request, struct response *resp, uint32_t flags)
{
    struct streamed *r = CONTAINER_OF(request, struct streamed, request);
    put_streamed(request, admit_streamed(r, resp), flags);
}

static void on_streamed_region_respond(struct request *request, struct response *resp,
                                       uint32_t flags)
{
    struct streamed *r = CONTAINER_OF(request, struct streamed, request);
    resp = admit_streamed(r, resp);
    if (region_delivery_take(r->regions.delivery, resp, flags, put_streamed))
        put_streamed(request, resp, flags);
}

/* As in infer_call.c: neither core nor backend reads the inputs any more. */
static void on_streamed_release(struct request *request, uint32_t flags)
{
    struct streamed *r = CONTAINER_OF(request, struct streamed, request);
    if (r->n_bytes < GRPC_EARLY_BYTES)
        return;
    tensor_blocks_release(&r->blocks);
    pool_release(TAKE(r->block));
}

static const struct request_ops request_ops = {
    .alloc_output = response_alloc_pooled,
    .free_output = response_free_pooled,
    .respond = on_streamed_respond,
    .release = on_streamed_release,
    .destroy = on_streamed_destroy,
};

static struct status *alloc_streamed_output(struct request *r, struct output *out,
                                            size_t size_bytes)
{
    return tensor_regions_alloc(&CONTAINER_OF(r, struct streamed, request)->regions, r, out,
                                size_bytes);
}

/* Of requests with outputs in shared memory. */
static const struct request_ops region_ops = {
    .alloc_output = alloc_streamed_output,
    .free_output = tensor_regions_free,
    .respond = on_streamed_region_respond,
    .release = on_streamed_release,
    .destroy = on_streamed_destroy,
};

/* ---- Sending messages ----------------------------------------------------------------------- */

/* Frees a response that is sent or dropped. */
static void drop_response(struct streamed *r, struct response *resp)
{
    if (is_in_flow(r, resp))
        stream_flow_drop(&r->flow, 1, count_bytes(resp));
    response_free(resp);
}

static void release_sent(void *owner)
{
    struct sent *s = owner;
    struct streamed *r = s->streamed;
    struct grpc_call *c = s->call;
    stream_part_of(c)->n_sent--;
    pool_release(s->packed);
    if (s->response)
        drop_response(r, s->response);
    arena_reset(&s->arena);
    pool_release(s);
    if (r)
        unref_streamed(r);
    call_unref(c);
}

/* Makes memory for a message, with a reference to the request. NULL: no memory. */
static struct sent *sent_new(struct grpc_call *c, struct streamed *r, struct response *resp)
{
    struct pool *pool = c->ctx->env->net.pool;
    struct sent *s = pool_alloc(pool, sizeof(*s), NULL);
    if (!s)
        return NULL;
    s->call = c;
    s->streamed = r;
    s->response = resp;
    s->packed = NULL;
    arena_init(&s->arena, s->memory, sizeof(s->memory), GRPC_ARENA_BYTES, pool, NULL);
    if (r)
        r->refs++;
    call_ref(c);
    stream_part_of(c)->n_sent++;
    return s;
}

/* Frees the responses that wait for those of earlier requests, which may yet take long. */
static void drop_kept(struct streamed *r)
{
    struct list *link;
    while ((link = list_pop(&r->kept))) {
        struct response *resp = LIST_ENTRY(link, struct response, link);
        stream_part_of(r->call)->kept_bytes -= count_bytes(resp);
        drop_response(r, resp);
    }
}

static void cancel_stream(struct grpc_call *c)
{
    struct stream_part *p = stream_part_of(c);
    for (struct list *link = p->all.next; link != &p->all; link = link->next) {
        struct streamed *r = LIST_ENTRY(link, struct streamed, link);
        stream_flow_end(&r->flow);
        drop_kept(r);
        if (!r->is_complete)
            request_cancel(&r->request);
    }
}

/* Whether the service stops, the client may have nothing to go on with, and nothing has come. */
static bool is_to_stop(const struct grpc_call *c)
{
    const struct net_env *env = &c->ctx->env->net;
    return env->draining && !env->goes_on && !c->is_held && !incoming_is_within(&c->incoming);
}

/*
 * Ends the call when all requests are answered, and the client has closed its sending side or the
 * service stops. A client that keeps its stream open would hold up the stop.
 */
static void finish_if_over(struct grpc_call *c)
{
    struct stream_part *p = stream_part_of(c);
    if (c->has_ended || p->n_open > 0 || !list_empty(&p->order) || !list_empty(&p->unpacked))
        return;
    if (p->is_half_closed)
        call_finish(c);
    else if (is_to_stop(c))
        call_fail(c, status_new(STATUS_UNAVAILABLE, GRPC_STOPPING_TEXT));
}

/* Sends a framed message. When st is an error, drops the message and fails the call. */
static void send_framed(struct grpc_call *c, struct sent *s, const struct grpc_framed *framed,
                        struct status *st)
{
    if (st) {
        release_sent(s);
        call_fail(c, st);
        return;
    }
    s->packed = framed->packed;
    framed->pieces[framed->count - 1].release = release_sent;
    framed->pieces[framed->count - 1].owner = s;
    call_send(c, framed);
}

static void frame_and_send(struct grpc_call *c, struct sent *s)
{
    struct grpc_framed framed;
    struct status *st = call_frame(c, &s->arena, s->pieces.items, s->pieces.count, &framed);
    send_framed(c, s, &framed, st);
}

static struct sent *pop_unpacked(struct stream_part *p)
{
    struct sent *s = LIST_ENTRY(list_pop(&p->unpacked), struct sent, link);
    p->kept_bytes -= s->pieces.total_bytes;
    return s;
}

static void on_message_packed(struct grpc_call *c, const struct grpc_packed *packed);

/* Sends the messages that wait, up to the next one that a helper has to pack. */
static void send_unpacked(struct grpc_call *c)
{
    struct stream_part *p = stream_part_of(c);
    while (!list_empty(&p->unpacked) && !c->packing) {
        struct sent *s = LIST_ENTRY(p->unpacked.next, struct sent, link);
        if (c->has_ended)
            release_sent(pop_unpacked(p));
        else if (call_packs_elsewhere(c, s->pieces.total_bytes))
            call_pack(c, s->pieces.items, s->pieces.count, on_message_packed);
        else
            frame_and_send(c, pop_unpacked(p));
    }
}

static void on_message_packed(struct grpc_call *c, const struct grpc_packed *packed)
{
    struct stream_part *p = stream_part_of(c);
    struct sent *s = pop_unpacked(p);
    struct grpc_framed framed;
    struct status *st = NULL;
    if (c->has_ended) {
        pool_release(packed->block);
        release_sent(s);
    } else {
        st = call_frame_packed(&s->arena, packed, &framed);
        if (st)
            pool_release(packed->block);
        send_framed(c, s, &framed, st);
    }
    send_unpacked(c);
    if (p->failure && list_empty(&p->unpacked))
        call_fail(c, TAKE(p->failure));
    finish_if_over(c);
    call_resume(c);
}

/* Sends the encoded message, in order. When st is an error, drops it and fails the call. */
static void send_encoded(struct grpc_call *c, struct sent *s, const struct infer_pieces *pieces,
                         struct status *st)
{
    struct stream_part *p = stream_part_of(c);
    if (st) {
        send_framed(c, s, NULL, st);
        return;
    }
    s->pieces = *pieces;
    if (LIKELY(list_empty(&p->unpacked) && !call_packs_elsewhere(c, pieces->total_bytes))) {
        frame_and_send(c, s);
        return;
    }
    list_push(&p->unpacked, &s->link);
    p->kept_bytes += pieces->total_bytes;
    send_unpacked(c);
}

/* Fails the call once the messages before the error are sent. Takes the error. */
static void fail_in_order(struct grpc_call *c, struct status *error)
{
    struct stream_part *p = stream_part_of(c);
    if (list_empty(&p->unpacked)) {
        call_fail(c, error);
        return;
    }
    p->failure = error;
    call_ignore_input(c);
    cancel_stream(c);
}

/* Whether the client gets no further message. */
static bool is_over(struct grpc_call *c)
{
    return c->has_ended || stream_part_of(c)->failure;
}

/* What a response tells: errors and a bare final flag echo the version that was asked for, as the
 * reference does (reference/behaviours §2.5). */
static struct infer_identity make_identity(const struct streamed *r, const struct response *resp)
{
    const struct model *m = r->request.model;
    bool has_outputs = resp && !resp->error;
    return (struct infer_identity){m->name, has_outputs ? m->version_text : r->version,
                                   r->request.maker.id};
}

/* The message of a response, or of the error in its place. */
static struct status *encode_response(struct streamed *r, struct response *resp,
                                      enum infer_form form, struct sent *s,
                                      struct infer_pieces *ret_pieces)
{
    struct infer_identity identity = make_identity(r, resp);
    struct status *st =
        resp && resp->error ? status_ref(resp->error) : tensor_regions_finish(&r->regions, resp);
    if (!st)
        st = infer_encode(resp, &identity, form, &s->arena, ret_pieces);
    if (!st)
        return NULL;
    identity.model_version = r->version;
    struct status *failure =
        infer_encode_error(status_message(st), &identity, form, &s->arena, ret_pieces);
    status_free(st);
    return failure;
}

/* Sends one response to the client; resp is NULL for a bare final flag. */
static void send_response(struct streamed *r, struct response *resp, bool is_final)
{
    struct grpc_call *c = r->call;
    struct infer_pieces pieces;

    if (UNLIKELY(r->traced != NULL)) {
        stamp_streamed(r, STAMP_GRPC_SEND_START);
        if (resp && resp->error)
            traced_failed(r->traced, resp->error);
    }
    if (is_over(c) || (!resp && !r->wants_empty_final)) {
        if (resp)
            drop_response(r, resp);
        return;
    }
    struct sent *s = sent_new(c, r, resp);
    if (!s) {
        if (resp)
            drop_response(r, resp);
        call_fail(c, status_no_memory());
        return;
    }
    struct status *st =
        encode_response(r, resp, is_final ? INFER_STREAM_LAST : INFER_STREAM, s, &pieces);
    send_encoded(c, s, &pieces, st);
}

/* An error before the core had the request: the stream goes on. Takes the error. */
static void send_early_error(struct grpc_call *c, const char *id, struct status *error)
{
    struct infer_identity identity = {"", "", id};
    struct infer_pieces pieces;
    struct sent *s = is_over(c) ? NULL : sent_new(c, NULL, NULL);
    if (s) {
        struct status *st =
            infer_encode_error(status_message(error), &identity, INFER_EARLY, &s->arena, &pieces);
        send_encoded(c, s, &pieces, st);
    } else if (!is_over(c)) {
        call_fail(c, status_no_memory());
    }
    status_free(error);
}

/* ---- The order of responses, and ends ------------------------------------------------------- */

/* Ends a request whose responses are all sent or dropped. */
static void end_streamed(struct streamed *r)
{
    struct grpc_call *c = r->call;
    struct stream_part *p = stream_part_of(c);
    list_remove(&r->link);
    list_remove(&r->place.link);
    p->n_open--;
    stream_flow_end(&r->flow);
    request_unref(&r->request);
    unref_streamed(r);
}

static bool is_first(const struct streamed *r)
{
    const struct list *order = &stream_part_of(r->call)->order;
    return r->is_decoupled || order->next == &r->place.link;
}

/* Sends the error, whose turn has come or whose call has ended. */
static void end_early_error(struct grpc_call *c, struct early_error *e)
{
    list_remove(&e->place.link);
    send_early_error(c, e->id, TAKE(e->error));
    pool_release(e);
}

/* Sends what the first places in the order have, and ends those that are complete. */
static void send_kept(struct grpc_call *c)
{
    struct stream_part *p = stream_part_of(c);
    struct list *link;
    while (!list_empty(&p->order)) {
        struct place *first = LIST_ENTRY(p->order.next, struct place, link);
        struct streamed *r = first->streamed;
        if (!r) {
            end_early_error(c, CONTAINER_OF(first, struct early_error, place));
            continue;
        }
        while ((link = list_pop(&r->kept))) {
            struct response *resp = LIST_ENTRY(link, struct response, link);
            p->kept_bytes -= count_bytes(resp);
            send_response(r, resp, true);
        }
        if (!r->is_complete)
            return;
        end_streamed(r);
    }
}

/* The error takes its place in the order of answers. Takes the error. */
static void queue_early_error(struct grpc_call *c, const char *id, struct status *error)
{
    struct stream_part *p = stream_part_of(c);
    size_t n = strlen(id) + 1;
    struct early_error *e = NULL;
    if (!list_empty(&p->order))
        e = pool_alloc(c->ctx->env->net.pool, sizeof(*e) + n, NULL);
    if (!e) { /* nothing to wait for; or no memory, when an error out of order is better than none
               */
        send_early_error(c, id, error);
        return;
    }
    e->place.streamed = NULL;
    e->error = error;
    memcpy(e->id, id, n);
    list_push(&p->order, &e->place.link);
}

/*
 * Whether the stream has room for another request, in their number, in what has not left, and in
 * what waits for earlier answers.
 */
static bool may_begin_streamed(struct grpc_call *c)
{
    const struct stream_part *p = stream_part_of(c);
    if (p->n_open >= MAX_REQUESTS || p->kept_bytes >= MAX_KEPT_BYTES || p->is_copying)
        return false; /* until a request ends, or its tensors are there */
    if (p->n_sent < MAX_SENT)
        return true;
    http2_stream_await_room(c->stream);
    return false;
}

/* A response of a request that is not complete. */
static void take_response(struct streamed *r, struct response *resp, bool is_final)
{
    struct grpc_call *c = r->call;
    if (resp && resp->error && stream_part_of(c)->ends_at_error && !is_over(c)) {
        traced_failed(r->traced, resp->error);
        fail_in_order(c, status_ref(resp->error));
        drop_response(r, resp);
    } else if (r->is_decoupled) {
        send_response(r, resp, is_final);
    } else if (resp && (is_first(r) || is_over(c))) {
        send_response(r, resp, true);
    } else if (resp) {
        list_push(&r->kept, &resp->link);
        stream_part_of(c)->kept_bytes += count_bytes(resp);
    }
}

/* Responses of a request have come to the loop. A backend's thread that had to wait may come with
 * one when the request has been answered by an error: nobody wants that. */
static void send_responses(struct response_inbox *in)
{
    struct streamed *r = CONTAINER_OF(in, struct streamed, inbox);
    struct grpc_call *c = r->call;
    bool was_complete = r->is_complete;
    struct response *resp;
    uint32_t flags;

    call_ref(c);
    if (UNLIKELY(r->traced != NULL))
        stamp_streamed(r, STAMP_RESPONSE_COMPLETE);
    if (atomic_load(&r->flow.has_stalled))
        call_fail(c, status_new(STATUS_EXHAUSTED, "the client has not read its responses"));
    while (response_inbox_next(in, &resp, &flags)) {
        if (!r->is_complete)
            take_response(r, resp, flags & RESPONSE_FINAL);
        else if (resp)
            drop_response(r, resp);
        r->is_complete |= (flags & RESPONSE_FINAL) != 0;
    }
    if (r->is_complete && !was_complete) {
        if (r->is_decoupled)
            end_streamed(r);
        else if (is_first(r))
            send_kept(c);
        finish_if_over(c);
        call_resume(c);
    }
    call_unref(c);
}

/* ---- The call's events ---------------------------------------------------------------------- */

static void begin_stream(struct grpc_call *c)
{
    struct stream_part *p = stream_part_of(c);
    *p = (struct stream_part){.ends_at_error = c->wants_true_status,
                              .waits_ns = c->ctx->loop->now_ns};
    list_init(&p->order);
    list_init(&p->all);
    list_init(&p->unpacked);
}

static void end_stream_call(struct grpc_call *c)
{
    status_free(stream_part_of(c)->failure);
}

/*
 * Makes a request of the stream for server_infer(). NULL: no memory. Block and model are taken on
 * success.
 */
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
    r->version = "";
    tensor_regions_init(&r->regions, c->ctx->settings->regions);
    r->place.streamed = r;
    list_init(&r->place.link);
    list_push(&p->all, &r->link);
    if (!r->is_decoupled)
        list_push(&p->order, &r->place.link);
    p->n_open++;
    response_inbox_init(&r->inbox, c->ctx->loop, send_responses);
    stream_flow_init(&r->flow, &c->ctx->settings->flow, c->ctx->loop->clock);
    request_init(&r->request, &request_ops, model, r->memory, sizeof(r->memory), pool);
    r->request.maker.deadline_ns = c->deadline_ns;
    /* A decoupled model may wait for its client in on_streamed_respond(), so a loop must not
     * execute it, unless its configuration demands that. */
    if (!r->is_decoupled || pull_is_always_inline(model))
        r->request.maker.inline_budget = grpc_inline_budget(c->ctx);
    call_ref(c);
    return r;
}

/* A message, and what becomes of it. */
struct taken {
    struct infer_message message;
    char *block; /* NULL: the request has it */
    size_t n_bytes;
    bool at_once; /* an error of it need not wait for earlier answers */
};

static struct status *start_streamed(struct grpc_call *c, struct streamed *r)
{
    struct traced *t = trace_sample(&c->ctx->sampler, r->request.model->name, c->trace_parent);
    if (UNLIKELY(t != NULL)) {
        r->traced = t;
        t->span.name = "ModelStreamInfer";
        r->request.maker.trace = traced_trace(t);
        traced_stamp(t, STAMP_GRPC_WAITREAD_START, stream_part_of(c)->waits_ns);
        stamp_streamed(r, STAMP_GRPC_WAITREAD_END);
    }
    struct status *st = server_infer(c->ctx->settings->server, &r->request);
    if (st) {
        r->request.maker.trace = NULL;
        traced_refused(t);
    }
    return st;
}

/* Answers a request, the last one, which the core has not taken. The error is taken. */
static void refuse_streamed(struct grpc_call *c, struct streamed *r, struct status *st)
{
    AUTO(buf) id = BUF_INIT(SIZE_MAX);
    bool at_once = r->is_decoupled;
    buf_adds(&id, r->request.maker.id);
    end_streamed(r);
    if (at_once)
        send_early_error(c, buf_text(&id), st);
    else
        queue_early_error(c, buf_text(&id), st);
}

/* A helper has copied the tensors of the last request. The call may be over. */
static void on_streamed_copied(struct tensor_regions *t, struct status *st)
{
    struct streamed *r = CONTAINER_OF(t, struct streamed, regions);
    struct grpc_call *c = r->call;
    stream_part_of(c)->is_copying = false;
    if (is_over(c)) {
        status_free(st);
        end_streamed(r);
    } else {
        if (!st)
            st = start_streamed(c, r);
        if (st)
            refuse_streamed(c, r, st);
    }
    finish_if_over(c);
    call_resume(c);
    call_unref(c);
}

/* The message as a request. While the service stops only sequences that have begun go on. */
static struct status *fill_streamed(struct grpc_call *c, const struct infer_message *m,
                                    struct streamed *r)
{
    struct pbwire_bytes version = m->model_version;
    struct infer_asks asks;
    struct status *st = infer_decode(m, &r->request, &r->blocks, &r->regions, &asks);
    if (UNLIKELY(r->regions.has_outputs))
        r->request.ops = &region_ops;
    if (!st && UNLIKELY(c->forwarded != NULL))
        st = forwarding_apply(c->forwarded, &r->request);
    if (st)
        return st;
    r->wants_empty_final = asks.empty_final;
    r->classes = asks.classes;
    r->version = arena_strndup(&r->request.arena, version.at, version.length);
    if (!r->version)
        return status_no_memory();
    if (c->ctx->env->net.draining && !request_names_sequence(&r->request))
        return status_new(STATUS_UNAVAILABLE, GRPC_STOPPING_TEXT);
    if (UNLIKELY(!region_copy_begin(&r->regions, &r->request, c->ctx->settings->server,
                                    c->ctx->loop, on_streamed_copied, &st))) {
        stream_part_of(c)->is_copying = true;
        call_ref(c); /* on_streamed_copied()'s */
        return NULL;
    }
    return st ? st : start_streamed(c, r);
}

static struct status *submit_message(struct grpc_call *c, struct taken *t)
{
    const struct infer_message *m = &t->message;
    struct ops_model_ref ref = {m->model_name.at, m->model_name.length, m->model_version.at,
                                m->model_version.length};
    struct model *model;
    struct status *st = call_check_model(c, ref.name, ref.name_length);
    if (!st)
        st = ops_model_to_infer(c->ctx->settings->server, &ref, &c->ctx->access, &model);
    if (st)
        return st;
    t->at_once = model->decoupled;
    struct streamed *r = streamed_new(c, t->block, model);
    if (!r) {
        model_unref(model);
        return status_no_memory();
    }
    t->block = NULL;
    r->n_bytes = t->n_bytes;
    st = fill_streamed(c, m, r);
    if (st)
        end_streamed(r);
    return st;
}

/* Copies the id of a message for errors; "" without memory. */
static const char *copy_id(const struct infer_message *m, struct arena *arena)
{
    const char *id = arena_strndup(arena, m->id.at, strnlen(m->id.at, m->id.length));
    return id ? id : "";
}

static void end_input(struct grpc_call *c)
{
    stream_part_of(c)->is_half_closed = true;
    finish_if_over(c);
}

static void start_request(struct grpc_call *c, struct taken *t, const char *bytes, size_t n_bytes)
{
    char memory[GRPC_MESSAGE_BYTES];
    struct arena arena;

    arena_init(&arena, memory, sizeof(memory), GRPC_VIEW_BYTES, c->ctx->env->net.pool, NULL);
    struct status *st = infer_message_read(&t->message, bytes, n_bytes, &arena);
    if (st && status_code(st) != STATUS_INTERNAL) {
        call_fail(c, st);
    } else if (st) { /* no message at all: as in the reference, it ends the input like a half-close
                      */
        status_free(st);
        call_ignore_input(c);
        end_input(c);
    } else {
        const char *id = copy_id(&t->message, &arena); /* before the message's block may go */
        st = submit_message(c, t);
        if (st && t->at_once)
            send_early_error(c, id, st);
        else if (st)
            queue_early_error(c, id, st);
    }
    arena_reset(&arena);
}

static void take_stream_message(struct grpc_call *c, char *block, const char *bytes, size_t n_bytes)
{
    struct taken t = {.block = block, .n_bytes = n_bytes};
    start_request(c, &t, bytes, n_bytes);
    pool_release(t.block); /* of a message that became no request */
    stream_part_of(c)->waits_ns = c->ctx->loop->now_ns;
    finish_if_over(c);
}

const struct grpc_kind grpc_stream_kind = {
    .part_bytes = sizeof(struct stream_part),
    .has_tensors = true,
    .takes_many = true,
    .begin = begin_stream,
    .on_message = take_stream_message,
    .on_half_close = end_input,
    .on_stop = finish_if_over,
    .may_begin = may_begin_streamed,
    .cancel = cancel_stream,
    .end = end_stream_call,
};
