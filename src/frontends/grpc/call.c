/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The life of a call between HTTP/2 and its kind: checks of the head, messages out of bytes, the
 * deadline, answers and statuses. Read on_begin() first.
 *
 * Invariants: each call gets exactly one status, unless the client is gone. After has_ended the
 * kind gets no message, and cancel() at most once. Thread: the loop's.
 */
#include "frontends/grpc/call.h"

#include <assert.h>
#include <string.h>

#include "base/base64.h"
#include "base/compress.h"
#include "base/loop.h"
#include "base/mem.h"
#include "base/pool.h"
#include "base/status.h"
#include "frontends/grpc/packing.h"
#include "frontends/ops/errors.h"
#include "frontends/ops/forwarding.h"
#include "frontends/ops/loop_share.h"

/* A connection with more unsent bytes of answers begins no inference. */
#define MAX_UNSENT_BYTES ((size_t)64 << 20)

#define DEADLINE_TEXT "Deadline Exceeded"

static const struct http2_field content_type = HTTP2_FIELD("content-type", "application/grpc");
static const struct http2_field accept_encoding =
    HTTP2_FIELD("grpc-accept-encoding", GRPC_ACCEPT_ENCODING);

static struct grpc_call *call_of(struct http2_stream *s)
{
    return http2_stream_part(s);
}

void grpc_ctx_init(struct grpc_ctx *ctx, const struct grpc_settings *settings,
                   struct http2_env *env)
{
    *ctx = (struct grpc_ctx){
        .settings = settings, .env = env, .loop = env->net.loop, .compress = compress_new()};
    if (settings->server)
        ctx->packing = packing_new(settings->server, env->net.loop);
    list_init(&ctx->watches);
    timer_init(&ctx->watch_timer, NULL);
}

void grpc_ctx_done(struct grpc_ctx *ctx)
{
    BUG_ON(!list_empty(&ctx->watches) || ctx->watch_timer.is_set);
    compress_free(ctx->compress);
    packing_free(ctx->packing);
}

struct inline_budget *grpc_inline_budget(const struct grpc_ctx *ctx)
{
    return ctx->share ? loop_share_budget(ctx->share) : NULL;
}

/* ---- Statuses and answers ------------------------------------------------------------------- */

void call_ignore_input(struct grpc_call *c)
{
    c->is_deaf = true;
    incoming_done(&c->incoming);
    if (c->has_pending)
        pool_release(c->pending.block);
    c->has_pending = false;
    buf_done(&c->held);
}

/* Ends the call: its input, and its deadline. */
static void mark_ended(struct grpc_call *c)
{
    c->has_ended = true;
    call_ignore_input(c);
    if (c->deadline.is_set)
        timers_clear(&c->ctx->loop->timers, &c->deadline);
}

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

/* Sends the status: as trailers, or, when no message was sent, as a head that ends the stream. */
static void send_status(struct grpc_call *c, int code, const char *message)
{
    struct http2_field fields[4] = {content_type, accept_encoding};
    const struct http2_field *trailers = c->trailers;
    uint32_t n = set_trailers(c, code, message);
    mark_ended(c);
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
        send_status(c, ops_error_of(status_code(st))->grpc_status, status_message(st));
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

/* A job of a call, which has a reference to the call. */
struct call_job {
    struct packing_job job;
    struct grpc_call *call;
    grpc_packed_fn on_packed;
    char *block;        /* of a message to be unpacked */
    struct iovec piece; /* … its bytes */
};

/* Makes a job without its task; NULL: no memory. */
static struct call_job *make_job(struct grpc_call *c, unsigned int encoding)
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
    struct call_job *j = make_job(c, choose_encoding(c));
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
        send_status(c, 0, "");
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
    if (c->part)
        pool_release((char *)c->part - offsetof(struct grpc_part, bytes));
    http2_stream_unref(c->stream);
}

/* ---- The head ------------------------------------------------------------------------------- */

static struct span find_header(const struct http2_head *head, const char *name)
{
    return http2_head_find(head, name, strlen(name));
}

/* Refuses with a status of HTTP a request that is no gRPC call. Returns whether it did. */
static bool refuse_http(struct grpc_call *c, const struct http2_head *head)
{
    const char *status = NULL;
    if (head->is_too_large)
        status = "431";
    else if (!span_is(head->method, "POST"))
        status = "405";
    else if (!grpc_is_content_type(find_header(head, "content-type")))
        status = "415";
    if (!status)
        return false;
    c->has_ended = true;
    http2_stream_respond(c->stream, status, NULL, 0, true);
    return true;
}

static void on_deadline(struct timer *t)
{
    struct grpc_call *c = CONTAINER_OF(t, struct grpc_call, deadline);
    send_status(c, ops_error_of(STATUS_TIMED_OUT)->grpc_status, DEADLINE_TEXT);
    if (c->has_begun && c->kind->cancel)
        c->kind->cancel(c);
}

/* False: the value is invalid. gRPC's own library resets such a stream, whatever its method. */
static bool read_timeout(struct grpc_call *c, const struct http2_head *head)
{
    struct span value = find_header(head, "grpc-timeout");
    uint64_t timeout_ns, deadline_ns;
    if (LIKELY(!value.at))
        return true;
    if (!grpc_parse_timeout(value, &timeout_ns))
        return false;
    if (__builtin_add_overflow(*c->ctx->env->now_ns, timeout_ns, &deadline_ns))
        return true; /* a time beyond the clock's range is no deadline */
    c->deadline_ns = MAX(deadline_ns, (uint64_t)1);
    timers_set(&c->ctx->loop->timers, &c->deadline, deadline_ns);
    return true;
}

static struct status *read_encodings(struct grpc_call *c, const struct http2_head *head)
{
    struct span value = find_header(head, "grpc-encoding");
    c->accepted = grpc_accepted_encodings(find_header(head, "grpc-accept-encoding"));
    c->encoding = value.at ? grpc_encoding_of(value) : GRPC_IDENTITY;
    if (c->encoding)
        return NULL;
    return status_new(STATUS_UNSUPPORTED, "Compression algorithm '%.*s' is not supported",
                      (int)MIN(value.length, (size_t)32), value.at);
}

/* Checks that the client has sent the header that this part of the protocol needs, if any. */
static struct status *check_restriction(const struct grpc_call *c, enum ops_api api,
                                        const struct http2_head *head)
{
    const struct restriction *r = restrictions_find(&c->ctx->settings->restrictions, api);
    if (LIKELY(!r))
        return NULL;
    struct span value = http2_head_find(head, r->wire_name, r->name_length);
    if (restriction_admits(r, value.at, value.length))
        return NULL;
    return status_new(STATUS_UNAVAILABLE, "This protocol is restricted, expecting header '%s'",
                      r->name);
}

static struct status *find_method(struct grpc_call *c, const struct http2_head *head)
{
    struct span path = head->path;
    struct found_method m = method_find(&c->ctx->settings->methods, path);
    c->kind = m.kind;
    c->unary = m.unary;
    if (m.kind)
        return check_restriction(c, m.api, head);
    return status_new(STATUS_UNSUPPORTED, "unknown method '%.*s'",
                      (int)MIN(path.length, (size_t)256), path.at);
}

/* What a head says, in its note: a head that the client repeats is read once (net/http2.h). */
struct head_note {
    const struct grpc_kind *kind; /* NULL: the head was not read yet */
    const struct unary_method *unary;
    unsigned int encoding, accepted;
    bool wants_true_status, has_timeout;
};

static_assert(sizeof(struct head_note) <= HTTP2_NOTE_BYTES, "a note has room");

static void take_note(struct grpc_call *c, const struct head_note *note)
{
    c->kind = note->kind;
    c->unary = note->unary;
    c->encoding = note->encoding;
    c->accepted = note->accepted;
    c->wants_true_status = note->wants_true_status;
}

static struct status *read_call_head(struct grpc_call *c, const struct http2_head *head)
{
    struct status *st = find_method(c, head);
    if (!st)
        st = read_encodings(c, head);
    if (st)
        return st;
    c->wants_true_status = span_is(find_header(head, "triton_grpc_error"), "true");
    if (head->note)
        *(struct head_note *)head->note =
            (struct head_note){c->kind,
                               c->unary,
                               c->encoding,
                               c->accepted,
                               c->wants_true_status,
                               find_header(head, "grpc-timeout").at != NULL};
    return NULL;
}

/*
 * The value of metadata as the model gets it: binary ones are base64 in a head. A copy is in the
 * arena; a value that is not base64 stays as it is.
 */
static struct span decode_metadata(struct grpc_call *c, struct span name, struct span value)
{
    static const char suffix[] = "-bin";
    size_t n = sizeof(suffix) - 1, length;
    if (name.length < n || memcmp(name.at + name.length - n, suffix, n) != 0)
        return value;
    uint8_t *bytes = arena_alloc(&c->arena, base64_room(value.length));
    if (!bytes || !base64_decode(value.at, value.length, bytes, &length))
        return value;
    return (struct span){(const char *)bytes, length};
}

/* Notes the metadata that become parameters. */
static struct status *find_forwarded(struct grpc_call *c, const struct http2_head *head)
{
    const struct regex *pattern = c->ctx->settings->forward_pattern;
    struct status *st = NULL;
    for (size_t i = 0; i < head->n_headers && !st; i++) {
        struct span name = head->headers[i].name, value = head->headers[i].value;
        if (!grpc_is_metadata(name))
            continue;
        value = decode_metadata(c, name, value);
        st = forwarding_add(pattern, name.at, name.length, value.at, value.length, &c->arena,
                            &c->forwarded);
    }
    return st;
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

static void on_begin(struct http2_stream *s, const struct http2_head *head)
{
    struct grpc_call *c = call_of(s);
    struct grpc_ctx *ctx = http2_stream_env(s)->net.handler_ctx;

    memset(c, 0, sizeof(*c));
    c->stream = s;
    c->ctx = ctx;
    c->refs = 1;
    http2_stream_ref(s);
    timer_init(&c->deadline, on_deadline);
    arena_init(&c->arena, NULL, 0, GRPC_ARENA_BYTES, ctx->env->net.pool, NULL);
    const struct head_note *note = head->note;
    bool is_read = note && note->kind;
    if (!is_read && refuse_http(c, head))
        return;
    if (!(is_read && !note->has_timeout) && !read_timeout(c, head)) {
        c->has_ended = true;
        http2_stream_reset(s, HTTP2_INTERNAL_ERROR);
        return;
    }
    struct status *st = NULL;
    if (is_read)
        take_note(c, note);
    else
        st = read_call_head(c, head);
    if (!st && UNLIKELY(c->deadline_ns > 0 && c->deadline_ns <= *ctx->env->now_ns))
        st = status_new(STATUS_TIMED_OUT, DEADLINE_TEXT); /* it has passed already */
    if (!st)
        st = make_kinds_part(c);
    if (!st && UNLIKELY(ctx->settings->forward_pattern != NULL) && c->kind->has_tensors)
        st = find_forwarded(c, head);
    if (st) {
        call_fail(c, st);
        return;
    }
    if (!c->kind->takes_many)
        http2_stream_sends_one(s);
    /* The bytes of a window, and no more of used ones: keep_held_bytes(). */
    buf_init_pooled(&c->held, 2 * http2_stream_window(s), ctx->env->net.pool);
    incoming_init(&c->incoming, s, ctx->env->net.pool, ctx->settings->max_message_bytes,
                  c->kind->has_tensors);
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
    struct call_job *j = make_job(c, c->encoding);
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
    j->job.max_bytes = c->ctx->settings->max_message_bytes;
    j->job.on_done = on_unpack_done;
    packing_begin(c->ctx->packing, &j->job);
}

/*
 * Unpacks a compressed message for the kind. What is, or becomes, larger than PACKING_HERE_BYTES is
 * left to a helper.
 */
static void unpack_message(struct grpc_call *c, const struct incoming_message *m)
{
    size_t most = c->ctx->settings->max_message_bytes;
    size_t here = c->ctx->packing ? MIN(most, (size_t)PACKING_HERE_BYTES) : most;
    enum compress_format format = c->encoding == GRPC_GZIP ? COMPRESS_GZIP : COMPRESS_ZLIB;
    char *block;
    size_t n;
    if (m->n_bytes > here) {
        unpack_elsewhere(c, m);
        return;
    }
    struct status *st = compress_unpack(c->ctx->compress, format, m->bytes, m->n_bytes, here,
                                        c->ctx->env->net.pool, NULL, &block, &n);
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
    if (is_last)
        call_fail(c, status_new(STATUS_EXHAUSTED, "no memory for a message of %zu bytes",
                                c->incoming.n_bytes));
    return is_last;
}

/* ---- Ends ----------------------------------------------------------------------------------- */

static void on_cancel(struct http2_stream *s, enum http2_error why)
{
    struct grpc_call *c = call_of(s);
    bool was_wanted = c->has_begun && !c->has_ended;
    (void)why;
    if (!c->has_ended)
        mark_ended(c);
    if (was_wanted && c->kind->cancel)
        c->kind->cancel(c);
}

static void on_stream_end(struct http2_stream *s)
{
    struct grpc_call *c = call_of(s);
    if (!c->has_ended)
        mark_ended(c);
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
