/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The jobs of an exchange (ops/packing.h): at most one at a time, first for its body, then for its
 * reply. A job lies in the exchange's arena. Its result is a block: the body's, which the exchange
 * releases, or the reply's, which is call->packed_reply until the exchange ends.
 *
 * Thread: the loop's. While a helper works, nobody touches the job, or the bytes that it reads.
 */
#include "frontends/http/packed.h"

#include "base/mem.h"
#include "base/pool.h"
#include "base/status.h"
#include "frontends/http/call.h"
#include "frontends/http/reply.h"
#include "frontends/ops/loop_share.h"
#include "frontends/ops/packing.h"

struct body_job {
    struct packing_job job;
    struct exchange *x;
    struct model *model;
    unpacked_fn on_unpacked;
    struct iovec piece; /* the packed body */
};

struct reply_job {
    struct packing_job job;
    struct exchange *x;
    struct http_reply reply; /* its body is job.pieces */
    void (*on_packed)(struct exchange *x);
};

/* ---- Bodies --------------------------------------------------------------------------------- */

static struct status *refuse_unpacked(size_t max_bytes)
{
    return status_new(STATUS_INVALID_ARG,
                      "Decompressed data size exceeds the maximum allowed value of %zu bytes. Use "
                      "--http-max-input-size to increase the limit.",
                      max_bytes);
}

/* The most packed bytes that max_bytes make, of any packer. Empty blocks could go on for ever. */
static size_t most_packed(size_t max_bytes)
{
    enum { HEADS = 1024, SHARE = 1024 };
    size_t most;
    return __builtin_add_overflow(max_bytes, max_bytes / SHARE + HEADS, &most) ? SIZE_MAX : most;
}

/* The error of a body that was not unpacked, for its client. Takes st. */
static struct status *explain_error(struct status *st, size_t max_bytes)
{
    if (status_code(st) == STATUS_INVALID_ARG)
        return status_prefix(st, "failed to decompress the request body: ");
    if (status_code(st) != STATUS_UNSUPPORTED)
        return st;
    status_free(st);
    return refuse_unpacked(max_bytes);
}

static void finish_body(struct packing_job *job)
{
    struct body_job *j = CONTAINER_OF(job, struct body_job, job);
    struct exchange *x = j->x;
    struct http_call *call = exchange_part(x);
    if (!job->error && call->is_gone) {
        pool_release(TAKE(job->block));
        job->error = status_new(STATUS_CANCELLED, "the request is over");
    }
    if (job->error)
        job->error = explain_error(job->error, job->max_bytes);
    else
        exchange_body_replace(x, TAKE(job->block), job->lead_bytes, job->n_bytes);
    j->on_unpacked(x, j->model, job->error);
}

void unpack_body(struct exchange *x, struct model *model, unpacked_fn on_unpacked)
{
    struct http_ctx *ctx = call_ctx(x);
    size_t max_bytes = ctx->settings->max_input_bytes;
    struct body_job *j = NULL;
    struct status *st = NULL;
    if (x->body_size == 0)
        st = status_new(STATUS_INVALID_ARG, "nothing to be decompressed");
    else if (x->body_size > most_packed(max_bytes))
        st = refuse_unpacked(max_bytes);
    else if (!(j = arena_alloc(&x->arena, sizeof(*j))))
        st = status_no_memory();
    if (st) {
        on_unpacked(x, model, st);
        return;
    }
    *j = (struct body_job){.x = x, .model = model, .on_unpacked = on_unpacked};
    j->piece = (struct iovec){x->body, x->body_size};
    j->job.unpacks = true;
    j->job.format = COMPRESS_DETECT;
    j->job.pieces = &j->piece;
    j->job.n_pieces = 1;
    j->job.lead_bytes = exchange_body_lead(x);
    j->job.max_bytes = max_bytes;
    j->job.pool = x->env->net.pool;
    j->job.is_over = &((struct http_call *)exchange_part(x))->is_gone;
    j->job.on_done = finish_body;
    packing_run(ctx->share->packing, &j->job);
}

/* ---- Replies -------------------------------------------------------------------------------- */

/* Replies with the packed bytes, or as it is when there are none. */
static void finish_reply(struct packing_job *job)
{
    struct reply_job *j = CONTAINER_OF(job, struct reply_job, job);
    struct exchange *x = j->x;
    struct http_call *call = exchange_part(x);
    if (job->error) {
        status_free(TAKE(job->error));
        reply_traced(x, &j->reply);
        return;
    }
    struct span header = coding_header((enum http_coding)call->facts.reply_coding);
    struct iovec body = {job->block, job->n_bytes};
    call->packed_reply = TAKE(job->block);
    j->reply.body = &body;
    j->reply.n_body = 1;
    j->reply.headers = header.at;
    j->reply.headers_length = header.length;
    exchange_ref(x); /* the reply may end the exchange */
    reply_traced(x, &j->reply);
    j->on_packed(x);
    exchange_unref(x);
}

void reply_packed(struct exchange *x, const struct http_reply *reply,
                  void (*on_packed)(struct exchange *x))
{
    struct http_call *call = exchange_part(x);
    struct reply_job *j = arena_alloc(&x->arena, sizeof(*j));
    struct iovec *pieces =
        arena_dup(&x->arena, reply->body, (size_t)reply->n_body * sizeof(*pieces));
    if (!j || !pieces) {
        reply_traced(x, reply);
        return;
    }
    *j = (struct reply_job){.x = x, .reply = *reply, .on_packed = on_packed};
    j->reply.body = pieces;
    j->job.format = coding_format((enum http_coding)call->facts.reply_coding);
    j->job.pieces = pieces;
    j->job.n_pieces = (uint32_t)reply->n_body;
    j->job.pool = x->env->net.pool;
    j->job.is_over = &call->is_gone;
    j->job.on_done = finish_reply;
    packing_run(call_ctx(x)->share->packing, &j->job);
}
