/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ServerReflectionInfo: a call with any number of requests, each answered at once, in order
 * (reflection.h). A client that does not read its answers has no more requests taken.
 *
 * Thread: the loop's.
 */
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/pool.h"
#include "base/status.h"
#include "frontends/grpc/call.h"
#include "frontends/grpc/reflection.h"

enum {
    MAX_REQUEST = 64 << 10, /* names in a request are echoed */
    MAX_ANSWER = 1 << 20,
    MAX_UNSENT = 256 << 10, /* bytes of a call's answers beyond which no request is taken */
};

struct answer {
    struct grpc_call *call; /* a reference */
    struct out_piece piece;
    struct buf bytes; /* prefix and message */
};

static void begin_reflection(struct grpc_call *c)
{
    (void)c;
}

static void release_answer(void *owner)
{
    struct answer *a = owner;
    struct grpc_call *c = a->call;
    buf_done(&a->bytes);
    pool_release(a);
    call_unref(c);
}

/* Makes the answer with its prefix. */
static struct status *fill_answer(const char *bytes, size_t n_bytes, struct buf *out)
{
    static const char no_prefix[INCOMING_PREFIX_BYTES];
    buf_add(out, no_prefix, sizeof(no_prefix));
    struct status *st = reflection_answer(bytes, n_bytes, out);
    if (st)
        return st;
    size_t length = out->size - INCOMING_PREFIX_BYTES;
    for (int i = 1; i < INCOMING_PREFIX_BYTES; i++)
        out->data[i] = (char)(length >> (8 * (4 - i)));
    return NULL;
}

/* Answers one request. */
static struct status *answer_request(struct grpc_call *c, const char *bytes, size_t n_bytes)
{
    struct pool *pool = c->ctx->env->net.pool;
    struct answer *a = pool_alloc(pool, sizeof(*a), NULL);
    if (!a)
        return status_no_memory();
    a->call = c;
    call_ref(c);
    buf_init_pooled(&a->bytes, MAX_ANSWER, pool);
    struct status *st = fill_answer(bytes, n_bytes, &a->bytes);
    if (st) {
        release_answer(a);
        return st;
    }
    a->piece = (struct out_piece){.bytes = buf_text(&a->bytes),
                                  .n_bytes = a->bytes.size,
                                  .release = release_answer,
                                  .owner = a};
    struct grpc_framed framed = {.pieces = &a->piece, .count = 1, .n_bytes = a->bytes.size};
    call_send(c, &framed);
    return NULL;
}

/* A few bytes may have many requests, so they count like those that begin inferences. */
static bool may_answer_request(struct grpc_call *c)
{
    const unsigned int *left = c->ctx->env->net.requests_left;
    if (left && *left == 0) {
        http2_stream_await_iteration(c->stream);
        return false;
    }
    if (http2_stream_unsent(c->stream) < MAX_UNSENT)
        return true;
    http2_stream_await_room(c->stream);
    return false;
}

static void take_reflection_message(struct grpc_call *c, char *block, const char *bytes,
                                    size_t n_bytes)
{
    struct status *st = answer_request(c, bytes, n_bytes);
    pool_release(block);
    if (st)
        call_fail(c, st);
}

static void stop_reflection(struct grpc_call *c)
{
    call_fail(c, status_new(STATUS_UNAVAILABLE, GRPC_STOPPING_TEXT));
}

const struct grpc_kind grpc_reflection_kind = {
    .takes_many = true,
    .max_message_bytes = MAX_REQUEST,
    .begin = begin_reflection,
    .on_message = take_reflection_message,
    .on_half_close = call_finish,
    .may_begin = may_answer_request,
    .on_stop = stop_reflection,
};
