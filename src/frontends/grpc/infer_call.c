/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ModelInfer: makes a request of the core from the message of a call, and the call's answer from
 * its response.
 *
 *      take_infer_message ─► server_infer ─► on_infer_respond ─► call_reply ─► close_infer ─►
 *      response_free, request_unref ─► on_infer_destroy (later, if a backend has the request)
 *
 * on_infer_respond and on_infer_destroy may come on any thread. On the loop's own thread (a model
 * that is executed inline) they act at once; on another one they post a message to the loop. Three
 * references keep the call: the stream's, one until the final response, one until on_infer_destroy.
 *
 * Inputs are views of the message, whose block is released with the request, or earlier when it is
 * large. Outputs are sent from where the backend wrote them. A call that is over before its final
 * response waits for that before it drops request and response. Threads: as said.
 */

#include "base/loop.h"
#include "base/mem.h"
#include "base/pool.h"
#include "base/status.h"
#include "core/model/model.h"
#include "core/request/request.h"
#include "core/request/life.h"
#include "core/request/response.h"
#include "frontends/grpc/call.h"
#include "frontends/grpc/infer_decode.h"
#include "frontends/grpc/infer_encode.h"
#include "frontends/grpc/infer_message.h"
#include "core/server/server.h"
#include "frontends/ops/answer.h"
#include "frontends/ops/forwarding.h"
#include "frontends/ops/ops.h"
#include "frontends/ops/region_copy.h"
#include "frontends/ops/region_delivery.h"
#include "frontends/ops/tensor_blocks.h"
#include "frontends/ops/tensor_regions.h"

struct infer_part {
    bool has_request;      /* `request` is initialised */
    bool with_core;        /* server_infer() took it */
    bool is_copying;       /* a helper copies its tensors, before that */
    bool is_finished;      /* … and its final response has come to the loop */
    bool is_closed;        /* the answer was sent or dropped */
    char *block;           /* of the client's message */
    size_t n_bytes;        /* of that message */
    uint64_t begun_ns;     /* the start of the loop's iteration */
    struct traced *traced; /* NULL: the request is not traced */
    struct tensor_blocks blocks;
    struct tensor_regions regions;
    struct classification classes;
    struct answer answer;
    struct request request;
    _Alignas(16) char request_memory[GRPC_REQUEST_BYTES];
};

static struct infer_part *infer_part_of(struct grpc_call *c)
{
    return c->part;
}

static struct infer_part *part_of_request(struct request *r)
{
    return CONTAINER_OF(r, struct infer_part, request);
}

/* Only for a request that is traced. */
static void stamp_infer(struct grpc_call *c, enum trace_stamp stamp)
{
    traced_stamp(infer_part_of(c)->traced, stamp, clock_now_ns(c->ctx->loop->clock));
}

/* ---- What the core calls -------------------------------------------------------------------- */

static void reply_with_outputs(struct grpc_call *c, struct response *resp)
{
    const struct model *m = resp->request->model;
    struct infer_identity identity = {m->name, m->version_text, resp->id};
    struct infer_pieces pieces;
    struct status *st = infer_encode(resp, &identity, INFER_UNARY, &c->arena, &pieces);
    if (UNLIKELY(infer_part_of(c)->traced != NULL))
        stamp_infer(c, STAMP_GRPC_SEND_START);
    if (st)
        call_fail(c, st);
    else
        call_reply(c, pieces.items, pieces.count);
}

static void reply_to_infer(struct grpc_call *c)
{
    struct response *resp;
    if (c->has_ended) /* the deadline has passed, or the call was cancelled */
        return;
    struct status *st = answer_read(&infer_part_of(c)->answer, &resp);
    if (UNLIKELY(infer_part_of(c)->traced != NULL))
        stamp_infer(c, STAMP_RESPONSE_COMPLETE);
    if (!st)
        st = tensor_regions_finish(&infer_part_of(c)->regions, resp);
    if (UNLIKELY(st != NULL)) {
        traced_failed(infer_part_of(c)->traced, st);
        call_fail(c, st);
    } else {
        reply_with_outputs(c, resp);
    }
}

/* Releases the request and its response. */
static void drop_answer(struct infer_part *p)
{
    answer_drop(&p->answer);
    if (p->has_request)
        request_unref(&p->request);
}

/* Answers the call, on the loop's thread, once the final response has come. */
static void finish_infer(struct grpc_call *c)
{
    struct infer_part *p = infer_part_of(c);
    p->is_finished = true;
    reply_to_infer(c);
    if (p->is_closed)
        drop_answer(p);
    call_unref(c);
}

static void on_infer_answered(struct message *m)
{
    finish_infer(grpc_call_of(CONTAINER_OF(m, struct infer_part, answer.answered)));
}

static void take_infer_answer(struct request *r, struct response *resp, uint32_t flags)
{
    struct infer_part *p = part_of_request(r);
    struct grpc_call *c = grpc_call_of(p);
    if (answer_take(&p->answer, c->ctx->loop, resp, flags))
        finish_infer(c);
}

static void on_infer_respond(struct request *r, struct response *resp, uint32_t flags)
{
    classification_apply(&part_of_request(r)->classes, resp);
    take_infer_answer(r, resp, flags);
}

static void on_infer_region_respond(struct request *r, struct response *resp, uint32_t flags)
{
    struct infer_part *p = part_of_request(r);
    classification_apply(&p->classes, resp);
    if (region_delivery_take(p->regions.delivery, resp, flags, take_infer_answer))
        take_infer_answer(r, resp, flags);
}

/*
 * Neither core nor backend reads the inputs any more. Those of a large message are released here
 * rather than with the request, which lives until its answer has left.
 */
static void on_infer_release(struct request *r, uint32_t flags)
{
    struct infer_part *p = part_of_request(r);
    if (p->n_bytes < GRPC_EARLY_BYTES)
        return;
    tensor_blocks_release(&p->blocks);
    pool_release(TAKE(p->block));
}

static void release_message(struct grpc_call *c)
{
    struct infer_part *p = infer_part_of(c);
    p->has_request = false;
    tensor_blocks_release(&p->blocks);
    tensor_regions_release(&p->regions);
    pool_release(TAKE(p->block));
    call_unref(c);
}

static void on_infer_destroyed(struct message *m)
{
    release_message(grpc_call_of(CONTAINER_OF(m, struct infer_part, answer.destroyed)));
}

static void on_infer_destroy(struct request *r)
{
    struct infer_part *p = part_of_request(r);
    struct grpc_call *c = grpc_call_of(p);
    if (answer_destroyed(&p->answer, c->ctx->loop))
        release_message(c);
}

static const struct request_ops request_ops = {
    .alloc_output = response_alloc_pooled,
    .free_output = response_free_pooled,
    .respond = on_infer_respond,
    .release = on_infer_release,
    .destroy = on_infer_destroy,
};

static struct status *alloc_infer_output(struct request *r, struct output *out, size_t size_bytes)
{
    return tensor_regions_alloc(&part_of_request(r)->regions, r, out, size_bytes);
}

/* Of requests with outputs in shared memory. */
static const struct request_ops region_ops = {
    .alloc_output = alloc_infer_output,
    .free_output = tensor_regions_free,
    .respond = on_infer_region_respond,
    .release = on_infer_release,
    .destroy = on_infer_destroy,
};

/* ---- The call's events ---------------------------------------------------------------------- */

static void begin_infer(struct grpc_call *c)
{
    struct infer_part *p = infer_part_of(c);
    p->has_request = p->with_core = p->is_copying = p->is_finished = p->is_closed = false;
    p->block = NULL;
    p->begun_ns = c->ctx->loop->now_ns;
    p->traced = NULL;
    p->blocks = (struct tensor_blocks){NULL};
    tensor_regions_init(&p->regions, c->ctx->settings->regions);
    answer_init(&p->answer, on_infer_answered, on_infer_destroyed);
}

/*
 * Makes an empty request. Its reference to the call is dropped by on_infer_destroy(); the reference
 * to the model is taken.
 */
static void make_request(struct grpc_call *c, struct model *model)
{
    struct infer_part *p = infer_part_of(c);
    request_init(&p->request, &request_ops, model, p->request_memory, sizeof(p->request_memory),
                 c->ctx->env->net.pool);
    p->request.maker.deadline_ns = c->deadline_ns;
    p->request.maker.inline_budget = grpc_inline_budget(c->ctx);
    p->has_request = true;
    call_ref(c);
}

static struct status *decode_message(struct grpc_call *c, const char *bytes, size_t n_bytes,
                                     struct arena *arena)
{
    struct infer_part *p = infer_part_of(c);
    struct infer_message m;
    struct infer_asks asks;
    struct model *model;
    struct status *st = infer_message_read(&m, bytes, n_bytes, arena);
    if (st)
        return st;
    struct ops_model_ref ref = {m.model_name.at, m.model_name.length, m.model_version.at,
                                m.model_version.length};
    st = call_check_model(c, ref.name, ref.name_length);
    if (!st)
        st = ops_infer_model(c->ctx->settings->server, &ref, &c->ctx->access, "ModelInfer RPC",
                             &model);
    if (st)
        return st;
    make_request(c, model);
    st = infer_decode(&m, &p->request, &p->blocks, &p->regions, &asks);
    p->classes = asks.classes; /* all its answers are final */
    if (UNLIKELY(p->regions.has_outputs))
        p->request.ops = &region_ops;
    if (!st && UNLIKELY(c->forwarded != NULL))
        st = forwarding_apply(c->forwarded, &p->request);
    if (!st && c->ctx->env->net.draining && !request_names_sequence(&p->request))
        st = status_new(STATUS_UNAVAILABLE, GRPC_STOPPING_TEXT);
    return st;
}

static struct status *start_infer(struct grpc_call *c)
{
    struct infer_part *p = infer_part_of(c);
    struct traced *t = trace_sample(&c->ctx->sampler, p->request.model->name, c->trace_parent);
    if (UNLIKELY(t != NULL)) {
        p->traced = t;
        t->span.name = "ModelInfer";
        p->request.maker.trace = traced_trace(t);
        traced_stamp(t, STAMP_GRPC_WAITREAD_START, p->begun_ns);
        stamp_infer(c, STAMP_GRPC_WAITREAD_END);
    }
    struct status *st = server_infer(c->ctx->settings->server, &p->request);
    if (st) {
        p->request.maker.trace = NULL;
        traced_refused(t);
    }
    return st;
}

/* Hands the request, whose inputs are complete, to the core. */
static void give_to_core(struct grpc_call *c)
{
    struct infer_part *p = infer_part_of(c);
    call_ref(c);         /* the final response's */
    p->with_core = true; /* set before the call, which may answer before it returns */
    struct status *st = start_infer(c);
    if (!st)
        return;
    p->with_core = false;
    call_unref(c);
    call_fail(c, st);
}

/* A helper has copied the tensors. The call may be over. */
static void on_infer_copied(struct tensor_regions *t, struct status *st)
{
    struct infer_part *p = CONTAINER_OF(t, struct infer_part, regions);
    struct grpc_call *c = grpc_call_of(p);
    bool was_closed = p->is_closed;
    p->is_copying = false;
    if (c->has_ended)
        status_free(st);
    else if (st)
        call_fail(c, st);
    else
        give_to_core(c);
    if (was_closed)
        drop_answer(p);
    call_unref(c);
}

static void take_infer_message(struct grpc_call *c, char *block, const char *bytes, size_t n_bytes)
{
    struct infer_part *p = infer_part_of(c);
    char memory[GRPC_MESSAGE_BYTES];
    struct arena arena;

    p->block = block;
    p->n_bytes = n_bytes;
    arena_init(&arena, memory, sizeof(memory), GRPC_VIEW_BYTES, c->ctx->env->net.pool, NULL);
    struct status *st = decode_message(c, bytes, n_bytes, &arena);
    arena_reset(&arena);
    if (!st && UNLIKELY(!region_copy_begin(&p->regions, &p->request, c->ctx->settings->server,
                                           c->ctx->loop, on_infer_copied, &st))) {
        p->is_copying = true;
        call_ref(c); /* on_infer_copied()'s */
    } else if (st) {
        call_fail(c, st);
    } else {
        give_to_core(c);
    }
}

static void cancel_infer(struct grpc_call *c)
{
    struct infer_part *p = infer_part_of(c);
    if (p->with_core && !p->is_finished)
        request_cancel(&p->request);
}

static void close_infer(struct grpc_call *c)
{
    struct infer_part *p = infer_part_of(c);
    p->is_closed = true;
    if (UNLIKELY(p->traced != NULL)) {
        stamp_infer(c, STAMP_GRPC_SEND_END);
        p->traced->span.reply_status = c->sent_status;
        traced_end(TAKE(p->traced));
    }
    if (!p->is_copying && (!p->with_core || p->is_finished))
        drop_answer(p);
}

static void end_infer(struct grpc_call *c)
{
    pool_release(TAKE(infer_part_of(c)->block)); /* the block of a message that became no request */
}

const struct grpc_kind grpc_infer_kind = {
    .part_bytes = sizeof(struct infer_part),
    .memory_bytes = GRPC_CALL_MEMORY,
    .has_tensors = true,
    .begin = begin_infer,
    .on_message = take_infer_message,
    .cancel = cancel_infer,
    .close = close_infer,
    .end = end_infer,
};
