/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a call sends: messages with their prefix, packed here or by a helper, and the status.
 * Thread: the loop's; what a helper packs comes back to it.
 */
#include "frontends/grpc/call_priv.h"

#include <string.h>

#include "base/compress.h"
#include "base/mem.h"
#include "base/pool.h"
#include "base/status.h"
#include "frontends/ops/errors.h"

static const struct http2_field content_type = HTTP2_FIELD("content-type", "application/grpc");
static const struct http2_field accept_encoding =
    HTTP2_FIELD("grpc-accept-encoding", GRPC_ACCEPT_ENCODING);

static uint32_t set_trailers(struct grpc_call *c, int code, const char *message)
{
    static const char numbers[][3] = {"0", "1",  "2",  "3",  "4",  "5",  "6",  "7", "8",
                                      "9", "10", "11", "12", "13", "14", "15", "16"};
    enum { MAX_MESSAGE = 4096 }; /* of the text; clients bound the metadata that they accept */
    size_t length = MIN(strlen(message), (size_t)MAX_MESSAGE);
    c->trailers[0] = (struct http2_field){"grpc-status", numbers[code], sizeof("grpc-status") - 1,
                                          code < 10 ? 1 : 2, false};
    char *text = length ? arena_alloc(&c->arena, 3 * length) : NULL;
    if (!text) /* without memory the status has only its number */
        return 1;
    c->trailers[1] = (struct http2_field){"grpc-message", text, sizeof("grpc-message") - 1,
                                          grpc_encode_message(message, length, text), true};
    return 2;
}

/* The fields and those of the kind's metadata behind them, in the call's arena. Without memory the
 * fields alone. */
static const struct http2_field *join_fields(struct grpc_call *c, const struct http2_field *fields,
                                             const struct http2_field *more, uint32_t n_more,
                                             uint32_t *n)
{
    struct http2_field *all = arena_alloc(&c->arena, (*n + n_more) * sizeof(*all));
    if (!all)
        return fields;
    memcpy(all, fields, *n * sizeof(*all));
    memcpy(all + *n, more, n_more * sizeof(*all));
    *n += n_more;
    return all;
}

void call_send_status(struct grpc_call *c, int code, const char *message)
{
    struct http2_field fields[4] = {content_type, accept_encoding};
    const struct http2_field *trailers = c->trailers;
    uint32_t n = set_trailers(c, code, message);
    call_mark_ended(c);
    c->sent_status = code;
    net_count_answer(&c->ctx->env->net.counts, (unsigned int)code);
    if (!c->has_answer) {
        memcpy(&fields[2], trailers, n * sizeof(*fields));
        http2_stream_respond(c->stream, "200", fields, 2 + n, true);
        return;
    }
    if (UNLIKELY(c->metadata != NULL))
        trailers = join_fields(c, trailers, c->metadata->trailers, c->metadata->n_trailers, &n);
    http2_stream_end(c->stream, trailers, n);
}

void call_fail(struct grpc_call *c, struct status *st)
{
    if (!c->has_ended) {
        call_send_status(c, ops_error_of(status_code(st))->grpc_status, status_message(st));
        if (c->has_begun && c->kind->cancel)
            c->kind->cancel(c); /* what is left of its work */
    }
    status_free(st);
}

/* Chooses the encoding that packs answers; GRPC_IDENTITY: answers are not packed. */
static unsigned int choose_encoding(const struct grpc_call *c)
{
    enum grpc_compression level = c->ctx->settings->compression;
    unsigned int usable = c->accepted & (GRPC_GZIP | GRPC_DEFLATE);
    if (level == GRPC_COMPRESSION_NONE || !usable || !c->kind->has_tensors)
        return GRPC_IDENTITY;
    unsigned int favourite = level == GRPC_COMPRESSION_LOW ? GRPC_GZIP : GRPC_DEFLATE;
    return usable & favourite ? favourite : usable;
}

/*
 * Packs the message into one piece. False: the message would not become smaller, or there is no
 * memory.
 */
static bool pack_message(struct grpc_call *c, unsigned int encoding, const struct iovec *pieces,
                         uint32_t n_pieces, size_t total, struct iovec *ret)
{
    enum compress_format format = encoding == GRPC_GZIP ? COMPRESS_GZIP : COMPRESS_ZLIB;
    char *block;
    size_t n;
    struct status *st = compress_pack(c->ctx->compress, format, pieces, n_pieces,
                                      c->ctx->env->net.pool, NULL, &block, &n);
    if (st) {
        status_free(st);
        return false;
    }
    if (n >= total) {
        pool_release(block);
        return false;
    }
    *ret = (struct iovec){block, n};
    return true;
}

/* Makes the pieces of a framed message: the prefix, then the message's own. False: no memory. */
static bool make_pieces(struct arena *arena, const struct iovec *pieces, uint32_t n, size_t total,
                        bool compressed, struct grpc_framed *ret)
{
    struct out_piece *out = arena_alloc(arena, ((size_t)n + 1) * sizeof(*out));
    unsigned char *prefix = arena_alloc(arena, INCOMING_PREFIX_BYTES);
    if (!out || !prefix)
        return false;
    prefix[0] = compressed;
    for (int i = 1; i < INCOMING_PREFIX_BYTES; i++)
        prefix[i] = (unsigned char)(total >> (8 * (4 - i)));
    out[0] = (struct out_piece){.bytes = (const char *)prefix, .n_bytes = INCOMING_PREFIX_BYTES};
    *ret =
        (struct grpc_framed){.pieces = out, .count = 1, .n_bytes = INCOMING_PREFIX_BYTES + total};
    for (uint32_t i = 0; i < n; i++) {
        if (pieces[i].iov_len > 0)
            out[ret->count++] =
                (struct out_piece){.bytes = pieces[i].iov_base, .n_bytes = pieces[i].iov_len};
    }
    return true;
}

static size_t count_pieces(const struct iovec *pieces, uint32_t n_pieces)
{
    size_t total = 0;
    for (uint32_t i = 0; i < n_pieces; i++)
        total += pieces[i].iov_len;
    return total;
}

struct status *call_frame(struct grpc_call *c, struct arena *arena, const struct iovec *pieces,
                          uint32_t n_pieces, struct grpc_framed *ret)
{
    unsigned int encoding = choose_encoding(c);
    struct iovec packed = {NULL, 0};
    size_t total = count_pieces(pieces, n_pieces);
    bool is_packed =
        encoding != GRPC_IDENTITY && pack_message(c, encoding, pieces, n_pieces, total, &packed);
    bool fine = is_packed ? make_pieces(arena, &packed, 1, packed.iov_len, true, ret)
                          : make_pieces(arena, pieces, n_pieces, total, false, ret);
    if (!fine) {
        pool_release(packed.iov_base);
        return status_no_memory();
    }
    ret->packed = packed.iov_base;
    return NULL;
}

struct status *call_frame_packed(struct arena *arena, const struct grpc_packed *packed,
                                 struct grpc_framed *ret)
{
    struct iovec whole = {packed->block, packed->n_bytes};
    size_t total = count_pieces(packed->pieces, packed->n_pieces);
    bool fine = packed->block
                    ? make_pieces(arena, &whole, 1, packed->n_bytes, true, ret)
                    : make_pieces(arena, packed->pieces, packed->n_pieces, total, false, ret);
    if (!fine)
        return status_no_memory();
    ret->packed = packed->block;
    return NULL;
}

/* ---- Packing on helper threads -------------------------------------------------------------- */

struct call_job *call_make_job(struct grpc_call *c, unsigned int encoding)
{
    struct pool *pool = c->ctx->env->net.pool;
    struct call_job *j = pool_alloc(pool, sizeof(*j), NULL);
    if (!j)
        return NULL;
    *j = (struct call_job){.call = c};
    j->job.format = encoding == GRPC_GZIP ? COMPRESS_GZIP : COMPRESS_ZLIB;
    j->job.pool = pool;
    j->job.is_over = &c->has_ended;
    call_ref(c);
    return j;
}

bool call_packs_elsewhere(const struct grpc_call *c, size_t n_bytes)
{
    return UNLIKELY(n_bytes > PACKING_HERE_BYTES) && c->ctx->packing &&
           choose_encoding(c) != GRPC_IDENTITY;
}

static void on_pack_done(struct packing_job *job)
{
    struct call_job *j = CONTAINER_OF(job, struct call_job, job);
    struct grpc_call *c = j->call;
    struct grpc_packed packed = {.pieces = job->pieces, .n_pieces = job->n_pieces};
    status_free(job->error); /* then the message is sent as it is */
    if (job->n_bytes < count_pieces(job->pieces, job->n_pieces)) {
        packed.block = job->block;
        packed.n_bytes = job->n_bytes;
    } else {
        pool_release(job->block);
    }
    c->packing = NULL;
    j->on_packed(c, &packed);
    pool_release(j);
    if (c->is_close_due && !c->packing)
        c->kind->close(c);
    call_unref(c);
}

void call_pack(struct grpc_call *c, const struct iovec *pieces, uint32_t n_pieces,
               grpc_packed_fn on_packed)
{
    struct call_job *j = call_make_job(c, choose_encoding(c));
    if (!j) {
        on_packed(c, &(struct grpc_packed){.pieces = pieces, .n_pieces = n_pieces});
        return;
    }
    c->packing = j;
    j->on_packed = on_packed;
    j->job.pieces = pieces;
    j->job.n_pieces = n_pieces;
    j->job.on_done = on_pack_done;
    packing_begin(c->ctx->packing, &j->job);
}

/* ---- Sending -------------------------------------------------------------------------------- */

static void send_head(struct grpc_call *c)
{
    struct http2_field fields[3] = {content_type, accept_encoding};
    const struct http2_field *all = fields;
    unsigned int encoding = choose_encoding(c);
    uint32_t n = 2;
    if (encoding != GRPC_IDENTITY) {
        const char *name = grpc_encoding_name(encoding);
        fields[n++] = (struct http2_field){"grpc-encoding", name, sizeof("grpc-encoding") - 1,
                                           strlen(name), false};
    }
    if (UNLIKELY(c->metadata != NULL))
        all = join_fields(c, fields, c->metadata->head, c->metadata->n_head, &n);
    c->has_answer = true;
    http2_stream_respond(c->stream, "200", all, n, false);
}

void call_send(struct grpc_call *c, const struct grpc_framed *framed)
{
    if (!c->has_answer)
        send_head(c);
    for (uint32_t i = 0; i < framed->count; i++)
        http2_stream_send(c->stream, &framed->pieces[i]);
}

void call_finish(struct grpc_call *c)
{
    if (!c->has_ended)
        call_send_status(c, 0, "");
}

static void release_packed(void *block)
{
    pool_release(block);
}

static void send_reply(struct grpc_call *c, const struct grpc_framed *framed)
{
    if (framed->packed) {
        struct out_piece *last = &framed->pieces[framed->count - 1];
        last->release = release_packed;
        last->owner = framed->packed;
    }
    call_send(c, framed);
    call_finish(c);
}

static void send_packed_reply(struct grpc_call *c, const struct grpc_packed *packed)
{
    struct grpc_framed framed;
    if (c->has_ended) {
        pool_release(packed->block);
        return;
    }
    struct status *st = call_frame_packed(&c->arena, packed, &framed);
    if (!st) {
        send_reply(c, &framed);
        return;
    }
    pool_release(packed->block);
    call_fail(c, st);
}

void call_reply(struct grpc_call *c, const struct iovec *pieces, uint32_t n_pieces)
{
    struct grpc_framed framed;
    if (c->has_ended)
        return;
    if (call_packs_elsewhere(c, count_pieces(pieces, n_pieces))) {
        call_pack(c, pieces, n_pieces, send_packed_reply);
        return;
    }
    struct status *st = call_frame(c, &c->arena, pieces, n_pieces, &framed);
    if (st)
        call_fail(c, st);
    else
        send_reply(c, &framed);
}
