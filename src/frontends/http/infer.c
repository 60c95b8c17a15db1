/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The life of an inference between HTTP and the core.
 *
 * The exchange, its body and the request's memory are one block. It is in use until the reply has
 * been sent (on_end) and the core has released the request (on_destroy). Each of the two has a
 * reference to the exchange.
 *
 *      infer_handle ─► server_infer ─► on_respond ─► reply ─► infer_end ─► response_free,
 *                                                                          request_unref
 *                                         on_destroy ◄──────────────────────────┘ (or later,
 *                                              └► exchange_unref                   when the backend
 *                                                                                  releases it)
 *
 * on_respond and on_destroy may be called on any thread. On the loop's own thread (a model that is
 * executed inline) they act at once; on another one they post a message to the loop.
 */
#include "frontends/http/deadline.h"
#include "frontends/http/infer.h"
#include "frontends/http/handlers.h"
#include "frontends/http/packed.h"
#include "frontends/http/reply.h"
#include "frontends/http/route.h"

#include "base/loop.h"
#include "base/mem.h"
#include "base/pool.h"
#include "base/status.h"
#include "core/model/model.h"
#include "core/request/life.h"
#include "core/request/response.h"
#include "core/server/server.h"
#include "frontends/ops/loop_share.h"
#include "frontends/ops/region_copy.h"
#include "frontends/ops/region_delivery.h"

static struct exchange *exchange_of(struct request *r)
{
    return exchange_of_part(CONTAINER_OF(r, struct http_call, request));
}

/* ---- Functions for the core ------------------------------------------------------------------ */

/* The request is answered, and released by the core and its backend, while the reply waits for
 * its client: its inputs are not read any more. The caller has a reference to the exchange. */
static void release_inputs(struct exchange *x)
{
    struct http_call *call = exchange_part(x);
    if (x->stage != EXCHANGE_REPLIED || !call->blocks.first)
        return;
    int ours = atomic_load(&call->answer.response) ? 2 : 1; /* a response has a reference */
    if (atomic_load_explicit(&call->request.life.refs, memory_order_acquire) == ours)
        tensor_blocks_release(&call->blocks);
}

static void drop_request(struct http_call *call)
{
    answer_drop(&call->answer);
    request_unref(&call->request);
}

/* Only for a request that is traced. */
static void stamp_now(struct exchange *x, enum trace_stamp stamp)
{
    struct http_call *call = exchange_part(x);
    traced_stamp(call->traced, stamp, clock_now_ns(x->env->net.loop->clock));
}

/* The final response has arrived: the loop's thread goes on. */
static void reply_with_response(struct exchange *x)
{
    struct http_call *call = exchange_part(x);
    struct response *resp;
    call->is_answered = true;
    if (UNLIKELY(x->stage != EXCHANGE_HANDLING)) { /* the deadline has passed */
        if (call->is_closed)
            drop_request(call);
        return;
    }
    if (UNLIKELY(call->traced != NULL))
        stamp_now(x, STAMP_RESPONSE_COMPLETE);
    if (UNLIKELY(call->kind != NULL)) {
        call->kind->reply(x);
        return;
    }
    struct status *st = answer_read(&call->answer, &resp);
    if (!st)
        st = tensor_regions_finish(&call->regions, resp);
    if (UNLIKELY(st != NULL)) {
        traced_failed(call->traced, st);
        reply_stamp(x);
        reply_status(x, st, content_text);
    } else {
        infer_print(x, resp);
    }
}

static void on_answered(struct message *m)
{
    struct exchange *x = exchange_of_part(CONTAINER_OF(m, struct http_call, answer.answered));
    exchange_ref(x);
    reply_with_response(x);
    release_inputs(x);
    exchange_unref(x);
}

static void take_http_answer(struct request *r, struct response *resp, uint32_t flags)
{
    struct http_call *call = CONTAINER_OF(r, struct http_call, request);
    struct exchange *x = exchange_of(r);
    if (answer_take(&call->answer, x->env->net.loop, resp, flags))
        reply_with_response(x);
}

static void on_respond(struct request *r, struct response *resp, uint32_t flags)
{
    struct http_call *call = CONTAINER_OF(r, struct http_call, request);
    classification_apply(&call->classes, resp);
    take_http_answer(r, resp, flags);
}

static void on_http_region_respond(struct request *r, struct response *resp, uint32_t flags)
{
    struct http_call *call = CONTAINER_OF(r, struct http_call, request);
    classification_apply(&call->classes, resp);
    if (region_delivery_take(call->regions.delivery, resp, flags, take_http_answer))
        take_http_answer(r, resp, flags);
}

static void release_request_blocks(struct exchange *x)
{
    struct http_call *call = exchange_part(x);
    if (UNLIKELY(call->events != NULL))
        call->kind->destroy(x);
    tensor_blocks_release(&call->blocks);
    tensor_regions_release(&call->regions);
    exchange_unref(x);
}

static void on_destroyed(struct message *m)
{
    release_request_blocks(exchange_of_part(CONTAINER_OF(m, struct http_call, answer.destroyed)));
}

static void on_destroy(struct request *r)
{
    struct http_call *call = CONTAINER_OF(r, struct http_call, request);
    struct exchange *x = exchange_of(r);
    if (answer_destroyed(&call->answer, x->env->net.loop))
        release_request_blocks(x);
}

static const struct request_ops ops = {
    .alloc_output = response_alloc_pooled,
    .free_output = response_free_pooled,
    .respond = on_respond,
    .destroy = on_destroy,
};

static struct status *alloc_requested_output(struct request *r, struct output *out,
                                             size_t size_bytes)
{
    struct http_call *call = CONTAINER_OF(r, struct http_call, request);
    return tensor_regions_alloc(&call->regions, r, out, size_bytes);
}

/* Of requests with outputs in shared memory. */
static const struct request_ops region_ops = {
    .alloc_output = alloc_requested_output,
    .free_output = tensor_regions_free,
    .respond = on_http_region_respond,
    .destroy = on_destroy,
};

/* The client is answered in time. What the core and its backend still have ends later. */
static void answer_late(struct exchange *x)
{
    const struct http_call *call = exchange_part(x);
    if (x->stage != EXCHANGE_HANDLING || call->is_answered) /* the reply may be at a helper */
        return;
    exchange_ref(x);
    reply_status(x, deadline_status(), call->kind ? content_json : content_text);
    infer_cancel(x);
    exchange_unref(x);
}

/* ---- Events of the exchange ------------------------------------------------------------------ */

/* A coding of the body that is not known: the reply names those that are. */
static void reply_encoding(struct exchange *x)
{
    static const char accept[] = "Accept-Encoding: gzip, deflate\r\n";
    static const char text[] = "{\"error\":\"Unsupported compression type\"}";
    struct iovec body = {(void *)(uintptr_t)text, sizeof(text) - 1};
    exchange_reply(x, &(struct http_reply){
                          .status = 501,
                          .content_type = content_text,
                          .headers = accept,
                          .headers_length = sizeof(accept) - 1,
                          .body = &body,
                          .n_body = 1,
                      });
}

static void pass_response(struct request *r, struct response *resp, uint32_t flags)
{
    CONTAINER_OF(r, struct http_call, request)->kind->respond(r, resp, flags);
}

static const struct request_ops stream_ops = {
    .alloc_output = response_alloc_pooled,
    .free_output = response_free_pooled,
    .respond = pass_response,
    .destroy = on_destroy,
};

void infer_begin(struct exchange *x, struct model *model, const struct infer_kind *kind)
{
    struct http_ctx *ctx = call_ctx(x);
    struct http_call *call = exchange_part(x);

    call->kind = kind;
    call->begun = true;
    call->with_core = call->is_copying = call->is_answered = call->is_closed = false;
    call->binary_default = false;
    call->traced = NULL;
    call->n_requested_outputs = call->requested_capacity = 0;
    call->requested_outputs = NULL;
    call->classes = (struct classification){0};
    call->blocks = (struct tensor_blocks){NULL};
    tensor_regions_init(&call->regions, ctx->settings->regions);
    answer_init(&call->answer, on_answered, on_destroyed);
    call->events = NULL;
    request_init(&call->request, kind && kind->respond ? &stream_ops : &ops, model,
                 call->request_memory, sizeof(call->request_memory), x->env->net.pool);
    exchange_ref(x); /* on_destroy's */

    if (LIKELY(ctx->share != NULL))
        call->request.maker.inline_budget = loop_share_budget(ctx->share);
}

static void begin_trace(struct exchange *x, struct traced *t)
{
    struct http_call *call = exchange_part(x);
    call->traced = t;
    call->request.maker.trace = traced_trace(t);
    t->span.name = call->facts.route->pattern;
    traced_stamp(t, STAMP_HTTP_RECV_START, call->head_ns);
    stamp_now(x, STAMP_HTTP_RECV_END);
}

/* The core has not taken the request. */
static void refuse_trace(struct http_call *call)
{
    call->request.maker.trace = NULL;
    traced_refused(call->traced);
}

/* The core owns it afterwards: `x` may be freed. */
static struct status *start_inference(struct exchange *x)
{
    struct http_call *call = exchange_part(x);
    struct server *server = call_ctx(x)->settings->server;
    const struct http_ctx *ctx = call_ctx(x);
    struct traced *t = trace_sample(&call_ctx(x)->sampler, call->request.model->name,
                                    ctx->settings->reads_more ? call->trace_parent : NULL);
    if (UNLIKELY(t != NULL))
        begin_trace(x, t);
    if (!call->blocks.first)
        return server_infer(server, &call->request);
    exchange_ref(x);
    struct status *st = server_infer(server, &call->request);
    release_inputs(x);
    exchange_unref(x);
    return st;
}

static struct status *parse_body(struct exchange *x, const char **ret_type)
{
    struct http_call *call = exchange_part(x);
    const struct infer_kind *kind = call->kind;
    struct status *st = NULL;
    if (UNLIKELY(call->facts.has_timeout))
        st = deadline_begin(x, kind && kind->give_up ? kind->give_up : answer_late);
    if (st)
        return st;
    if (UNLIKELY(kind != NULL))
        return kind->parse(x);
    st = infer_parse(x, ret_type);
    if (!st && UNLIKELY(call->forwarded != NULL))
        st = forwarding_apply(call->forwarded, &call->request);
    return st;
}

/* Hands the request, whose inputs are complete, to the core. st: the error of the copies, taken. */
static void give_to_core(struct exchange *x, struct status *st)
{
    struct http_call *call = exchange_part(x);
    if (!st) {
        if (UNLIKELY(request_names_sequence(&call->request)))
            exchange_goes_on(x);
        if (UNLIKELY(call->regions.has_outputs))
            call->request.ops = &region_ops;
        call->with_core = true; /* first: the reply may be sent when it returns */
        st = start_inference(x);
        if (!st)
            return;
        call->with_core = false;
        refuse_trace(call);
    }
    reply_status(x, st, content_json);
}

/* A helper has copied the tensors. Meanwhile the client may have gone, or have been answered. */
static void on_copied(struct tensor_regions *t, struct status *st)
{
    struct http_call *call = CONTAINER_OF(t, struct http_call, regions);
    struct exchange *x = exchange_of_part(call);
    call->is_copying = false;
    if (UNLIKELY(x->stage != EXCHANGE_HANDLING)) { /* the deadline has passed */
        status_free(st);
        if (call->is_closed)
            drop_request(call);
        return;
    }
    if (!st && call->is_gone)
        st = status_new(STATUS_CANCELLED, "the request is over");
    give_to_core(x, st);
}

void infer_start(struct exchange *x, struct model *model, const struct infer_kind *kind)
{
    struct http_call *call = exchange_part(x);
    const char *type = content_json;

    infer_begin(x, model, kind);
    struct status *st = parse_body(x, &type);
    if (st)
        reply_status(x, st, type);
    else if (UNLIKELY(!region_copy_begin(&call->regions, &call->request,
                                         call_ctx(x)->settings->server, x->env->net.loop, on_copied,
                                         &st)))
        call->is_copying = true;
    else
        give_to_core(x, st);
}

static void on_body_unpacked(struct exchange *x, struct model *model, struct status *st)
{
    if (st) {
        model_unref(model);
        reply_status(x, st, content_text);
    } else {
        infer_start(x, model, NULL);
    }
}

void infer_handle(struct exchange *x)
{
    struct http_call *call = exchange_part(x);
    struct model *model;

    struct status *st = ops_infer_model(call_ctx(x)->settings->server, &call->model,
                                        &call_ctx(x)->access, "HTTP end point", &model);
    if (st) {
        reply_status(x, st, content_text);
    } else if (LIKELY(call->facts.body_coding == CODING_IDENTITY)) {
        infer_start(x, model, NULL);
    } else if (call->facts.body_coding == CODING_UNKNOWN) {
        model_unref(model);
        reply_encoding(x);
    } else {
        unpack_body(x, model, on_body_unpacked);
    }
}

void infer_cancel(struct exchange *x)
{
    struct http_call *call = exchange_part(x);
    call->is_gone = true;
    if (!call->begun)
        return;
    if (UNLIKELY(call->events != NULL))
        call->kind->cancel(x);
    if (call->with_core)
        request_cancel(&call->request);
}

void infer_end(struct exchange *x)
{
    struct http_call *call = exchange_part(x);
    if (!call->begun) {
        pool_release(TAKE(call->text_taken));
        return;
    }
    if (UNLIKELY(call->traced != NULL)) {
        stamp_now(x, STAMP_HTTP_SEND_END);
        if (x->status)
            call->traced->span.reply_status = x->status;
        traced_end(TAKE(call->traced));
    }
    pool_release(TAKE(call->json_taken));
    pool_release(TAKE(call->packed_reply));
    deadline_end(x);
    if (UNLIKELY(call->events != NULL))
        call->kind->end(x);
    if (UNLIKELY(call->is_copying || (call->with_core && !call->is_answered)))
        call->is_closed = true; /* on_copied() or reply_with_response() follows */
    else
        drop_request(call);
}

void *infer_block(struct exchange *x, size_t size_bytes)
{
    enum { SMALL_BYTES = 1024 };
    struct http_call *call = exchange_part(x);

    if (size_bytes <= SMALL_BYTES) {
        char *p = arena_alloc(&x->arena, size_bytes + MEM_ALIGNMENT);
        return p ? p + (MEM_ALIGNMENT - (uintptr_t)p % MEM_ALIGNMENT) % MEM_ALIGNMENT : NULL;
    }
    return tensor_blocks_add(&call->blocks, x->env->net.pool, size_bytes,
                             call->request.model->owner);
}
