/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sending. A handler's pieces wait in the out-queue of their stream. http2_commit() has nghttp2
 * make frames as the windows allow, and puts them into the out-queue of the connection, as text and
 * slices. Text is copied together: heads of frames, HEADERS, control frames and small pieces.
 * Slices of large pieces are not copied. One block has some text and the slice behind it (struct
 * frame).
 *
 *      block:  [ HEADERS, head of DATA, small piece, head of DATA ] slice ──► 16 KiB of a tensor
 *      block:  [ head of DATA ] slice ──► the next 16 KiB
 *
 * Frames must leave in the order in which they were made. So only commit_bytes are made ahead, and
 * a reset or an acknowledgement waits behind no more than that.
 *
 * A piece is released when its last slice has left, but not before the earlier pieces of its
 * stream.
 *
 * Thread: the loop's.
 */
#include <string.h>

#include "base/pool.h"
#include "frontends/net/http2_priv.h"

enum {
    FRAME_BYTES = 1024,
    COPIED_BYTES = 512,      /* pieces up to this size are copied into the text */
    FIELDS = 32,             /* of a head that needs no block of its own */
    LARGE_BYTES = 128 << 10, /* answers from this size on leave at once (conn.c) */
};

struct frame {
    struct out_piece text, slice; /* either may be unused, not both */
    struct http2_stream *stream;  /* the slice's */
    size_t slice_bytes;
    struct out_queue done; /* pieces that are released when the slice has left */
    size_t n_text;
    char bytes[];
};

enum { TEXT_BYTES = FRAME_BYTES - sizeof(struct frame) };

/* ---- Frames in the out-queue ---------------------------------------------------------------- */

static void release_frame(void *owner)
{
    pool_release(owner);
}

static void on_slice_sent(void *owner)
{
    struct frame *f = owner;
    struct http2_stream *s = f->stream;
    s->committed_bytes -= f->slice_bytes;
    if (s->last_frame == f)
        s->last_frame = NULL;
    if (--s->n_committed == 0 && s->closed)
        http2_note(s, NOTE_SENT); /* the stream stays until the note is delivered */
    out_queue_drop(&f->done);
    pool_release(f);
}

static struct frame *open_frame(struct http2 *h)
{
    if (h->open)
        return h->open;
    struct frame *f = pool_alloc(h->env->net.pool, FRAME_BYTES, NULL);
    if (!f) {
        http2_note_fault(h, HTTP2_INTERNAL_ERROR, "out of memory");
        return NULL;
    }
    f->n_text = 0;
    f->done = (struct out_queue){0};
    h->open = f;
    return f;
}

/* Queues the complete text. has_slice: the block stays until the slice behind the text has left. */
static void queue_text(struct http2 *h, bool has_slice)
{
    struct frame *f = h->open;
    if (f->n_text == 0)
        return;
    f->text = (struct out_piece){.bytes = f->bytes,
                                 .n_bytes = f->n_text,
                                 .release = has_slice ? NULL : release_frame,
                                 .owner = f};
    out_queue_add(&h->session.out, &f->text);
}

static void close_frame(struct http2 *h)
{
    if (!h->open)
        return;
    if (h->open->n_text > 0)
        queue_text(h, false);
    else
        pool_release(h->open);
    h->open = NULL;
}

static bool add_frame_text(struct http2 *h, const void *bytes, size_t n_bytes)
{
    while (n_bytes > 0) {
        struct frame *f = open_frame(h);
        if (!f)
            return false;
        size_t n = MIN(n_bytes, TEXT_BYTES - f->n_text);
        memcpy(f->bytes + f->n_text, bytes, n);
        f->n_text += n;
        bytes = (const char *)bytes + n;
        n_bytes -= n;
        if (f->n_text == TEXT_BYTES)
            close_frame(h);
    }
    return true;
}

static bool add_slice(struct http2_stream *s, const char *bytes, size_t n_bytes)
{
    struct http2 *h = s->http2;
    struct frame *f = open_frame(h);
    if (!f)
        return false;
    queue_text(h, true);
    f->slice = (struct out_piece){
        .bytes = bytes, .n_bytes = n_bytes, .release = on_slice_sent, .owner = f};
    f->stream = s;
    f->slice_bytes = n_bytes;
    out_queue_add(&h->session.out, &f->slice);
    s->last_frame = f;
    s->n_committed++;
    s->committed_bytes += n_bytes;
    h->open = NULL;
    return true;
}

void http2_add_raw(struct http2 *h, struct out_piece *piece)
{
    close_frame(h);
    out_queue_add(&h->session.out, piece);
}

/* ---- Pieces --------------------------------------------------------------------------------- */

/*
 * Removes the stream's first piece, which is in frames as a whole or dropped, and has it released
 * in order.
 */
static void pass_first_on(struct http2_stream *s)
{
    struct out_piece *p = s->out.first;
    s->http2->waiting_bytes -= p->n_bytes;
    out_queue_take_back(&s->out, p);
    if (s->last_frame) {
        p->n_bytes = 0;
        out_queue_add(&s->last_frame->done, p);
    } else if (p->release) {
        p->release(p->owner);
    }
}

void http2_drop_output(struct http2_stream *s)
{
    while (s->out.first)
        pass_first_on(s);
}

/* Makes the next n_bytes of the stream's pieces the content of a frame. */
static bool add_pieces(struct http2_stream *s, size_t n_bytes)
{
    while (n_bytes > 0) {
        struct out_piece *p = s->out.first;
        size_t n = MIN(n_bytes, p->n_bytes);
        if (!(n <= COPIED_BYTES ? add_frame_text(s->http2, p->bytes, n)
                                : add_slice(s, p->bytes, n)))
            return false;
        n_bytes -= n;
        p->bytes += n;
        p->n_bytes -= n;
        s->out.n_bytes -= n;
        s->http2->waiting_bytes -= n;
        if (p->n_bytes == 0)
            pass_first_on(s);
    }
    return true;
}

/* ---- Callbacks ------------------------------------------------------------------------------ */

static size_t get_committed(const struct http2 *h)
{
    return h->session.out.n_bytes + (h->open ? h->open->n_text : 0);
}

static nghttp2_nv get_nv(const struct http2_field *f)
{
    enum { IN_PLACE = NGHTTP2_NV_FLAG_NO_COPY_NAME | NGHTTP2_NV_FLAG_NO_COPY_VALUE };
    return (nghttp2_nv){(uint8_t *)(uintptr_t)f->name, (uint8_t *)(uintptr_t)f->value,
                        f->name_length, f->value_length,
                        f->is_single ? IN_PLACE | NGHTTP2_NV_FLAG_NO_INDEX : IN_PLACE};
}

/*
 * Appends the fields to first[0..n_before), in nghttp2's form, or to a copy of it in a block. The
 * caller releases *ret_block. NULL: no memory.
 */
static nghttp2_nv *get_nvs(struct http2 *h, nghttp2_nv first[FIELDS], size_t n_before,
                           const struct http2_field *fields, size_t n_fields, void **ret_block)
{
    nghttp2_nv *nvs = first;
    *ret_block = NULL;
    if (n_before + n_fields > FIELDS) {
        nvs = pool_alloc(h->env->net.pool, (n_before + n_fields) * sizeof(*nvs), NULL);
        if (!nvs)
            return NULL;
        memcpy(nvs, first, n_before * sizeof(*nvs));
        *ret_block = nvs;
    }
    for (size_t i = 0; i < n_fields; i++)
        nvs[n_before + i] = get_nv(&fields[i]);
    return nvs;
}

static int submit_trailers(struct http2_stream *s)
{
    nghttp2_nv first[FIELDS];
    void *block;
    nghttp2_nv *nvs = get_nvs(s->http2, first, 0, s->trailers, s->n_trailers, &block);
    if (!nvs)
        return NGHTTP2_ERR_NOMEM;
    int error = nghttp2_submit_trailer(s->http2->ng, s->id, nvs, s->n_trailers);
    pool_release(block);
    return error;
}

/*
 * Tells nghttp2 how many bytes of the stream go into the next frame. send_content() then adds the
 * bytes.
 */
static ssize_t measure_content(nghttp2_session *ng, int32_t id, uint8_t *buffer, size_t max_bytes,
                               uint32_t *flags, nghttp2_data_source *source, void *arg)
{
    struct http2_stream *s = source->ptr;
    size_t n = MIN(max_bytes, s->out.n_bytes);
    bool is_end = s->ended && n == s->out.n_bytes;
    if (n == 0 && !is_end) {
        s->deferred = true;
        return NGHTTP2_ERR_DEFERRED;
    }
    if (n > 0)
        *flags |= NGHTTP2_DATA_FLAG_NO_COPY;
    if (is_end)
        *flags |= NGHTTP2_DATA_FLAG_EOF;
    if (is_end && s->n_trailers > 0) {
        *flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
        int error = submit_trailers(s);
        if (nghttp2_is_fatal(error))
            return NGHTTP2_ERR_CALLBACK_FAILURE;
    }
    s->answer.n_bytes += n;
    return (ssize_t)n;
}

static int send_content(nghttp2_session *ng, nghttp2_frame *frame, const uint8_t *head,
                        size_t n_bytes, nghttp2_data_source *source, void *arg)
{
    struct http2 *h = arg;
    struct http2_stream *s = source->ptr;
    if (!add_frame_text(h, head, FRAME_HEAD) || !add_pieces(s, n_bytes))
        return NGHTTP2_ERR_CALLBACK_FAILURE;
    return get_committed(h) >= h->env->limits->commit_bytes ? NGHTTP2_ERR_PAUSE : 0;
}

/*
 * The last frame of an answer is made. If the request is incomplete, a reset tells the client not
 * to send the rest (RFC 9113, 8.1).
 */
static int on_end_made(struct http2 *h, int32_t id)
{
    struct http2_stream *s = nghttp2_session_get_stream_user_data(h->ng, id);
    if (!s)
        return 0;
    s->end_sent = true;
    if (s->input_over)
        return 0;
    return nghttp2_submit_rst_stream(h->ng, NGHTTP2_FLAG_NONE, id, NGHTTP2_NO_ERROR);
}

static int on_frame_made(nghttp2_session *ng, const nghttp2_frame *frame, void *arg)
{
    struct http2 *h = arg;
    if (frame->hd.type != NGHTTP2_DATA && frame->hd.type != NGHTTP2_HEADERS)
        return 0;
    http2_pay_for_waste(h);
    h->pinged_ns = 0;
    h->n_strikes = 0;
    h->n_pings = 0;
    if (!(frame->hd.flags & NGHTTP2_FLAG_END_STREAM))
        return 0;
    int error = on_end_made(h, frame->hd.stream_id);
    return nghttp2_is_fatal(error) ? NGHTTP2_ERR_CALLBACK_FAILURE : 0;
}

/*
 * Resets a stream whose head is too large for nghttp2. The client would wait for the head
 * otherwise.
 */
static int on_frame_not_made(nghttp2_session *ng, const nghttp2_frame *frame, int error, void *arg)
{
    if (frame->hd.type != NGHTTP2_HEADERS || error == NGHTTP2_ERR_STREAM_CLOSED ||
        error == NGHTTP2_ERR_STREAM_CLOSING || error == NGHTTP2_ERR_SESSION_CLOSING)
        return 0;
    error = nghttp2_submit_rst_stream(ng, NGHTTP2_FLAG_NONE, frame->hd.stream_id,
                                      NGHTTP2_INTERNAL_ERROR);
    return nghttp2_is_fatal(error) ? NGHTTP2_ERR_CALLBACK_FAILURE : 0;
}

void http2_set_send_callbacks(nghttp2_session_callbacks *callbacks)
{
    nghttp2_session_callbacks_set_send_data_callback(callbacks, send_content);
    nghttp2_session_callbacks_set_on_frame_send_callback(callbacks, on_frame_made);
    nghttp2_session_callbacks_set_on_frame_not_send_callback(callbacks, on_frame_not_made);
}

/* ---- The session ---------------------------------------------------------------------------- */

void http2_check_submit(struct http2 *h, int error)
{
    if (nghttp2_is_fatal(error))
        http2_note_fault(h, HTTP2_INTERNAL_ERROR,
                         error == NGHTTP2_ERR_NOMEM ? "out of memory" : "internal error");
    h->session.on_output(&h->session);
}

void http2_commit(struct http2 *h)
{
    size_t max_bytes = h->env->limits->commit_bytes;
    while (!h->broke_off && get_committed(h) < max_bytes) {
        const uint8_t *bytes;
        ssize_t n = nghttp2_session_mem_send(h->ng, &bytes);
        if (n == 0)
            break;
        h->broke_off = n < 0 || !add_frame_text(h, bytes, (size_t)n);
        if (n < 0)
            http2_check_submit(h, (int)n);
    }
    close_frame(h);
}

/* ---- For handlers --------------------------------------------------------------------------- */

/* Whether nghttp2 may still accept frames of the stream. */
static bool can_submit(const struct http2_stream *s)
{
    return s->http2 && !s->closed && !s->reset && !s->http2->failed;
}

void http2_stream_respond(struct http2_stream *s, const char *status,
                          const struct http2_field *fields, size_t n_fields, bool ends)
{
    BUG_ON(s->answered);
    s->answered = true;
    s->ended = ends;
    if (!can_submit(s))
        return;
    struct http2 *h = s->http2;
    struct http2_field first_field = {":status", status, 7, 3, false};
    nghttp2_nv first[FIELDS]; /* not cleared: it is large */
    first[0] = get_nv(&first_field);
    void *block;
    nghttp2_nv *nvs = get_nvs(h, first, 1, fields, n_fields, &block);
    if (!nvs) {
        http2_check_submit(h, NGHTTP2_ERR_NOMEM);
        return;
    }
    nghttp2_data_provider content = {.source = {.ptr = s}, .read_callback = measure_content};
    http2_check_submit(
        h, nghttp2_submit_response(h->ng, s->id, nvs, n_fields + 1, ends ? NULL : &content));
    pool_release(block);
}

/* Has nghttp2 ask for the stream's content again. */
static void resume_stream(struct http2_stream *s)
{
    int error = 0;
    if (s->deferred) {
        s->deferred = false;
        error = nghttp2_session_resume_data(s->http2->ng, s->id);
    }
    http2_check_submit(s->http2, error);
}

void http2_stream_send(struct http2_stream *s, struct out_piece *piece)
{
    BUG_ON(!s->answered || s->ended);
    if (!can_submit(s)) {
        if (s->last_frame) {
            piece->n_bytes = 0;
            out_queue_add(&s->last_frame->done, piece);
        } else if (piece->release) {
            piece->release(piece->owner);
        }
        return;
    }
    out_queue_add(&s->out, piece);
    s->http2->waiting_bytes += piece->n_bytes;
    if (s->http2->waiting_bytes >= LARGE_BYTES)
        s->http2->session.large_output = true;
    resume_stream(s);
}

void http2_stream_end(struct http2_stream *s, const struct http2_field *fields, size_t n_fields)
{
    BUG_ON(!s->answered || s->ended);
    s->ended = true;
    s->trailers = fields;
    s->n_trailers = n_fields;
    if (can_submit(s))
        resume_stream(s);
}

void http2_stream_reset(struct http2_stream *s, enum http2_error why)
{
    if (!can_submit(s))
        return;
    s->reset = true;
    list_remove(&s->turn);
    list_remove(&s->room);
    http2_forget_window(s);
    http2_drop_output(s);
    http2_check_submit(
        s->http2, nghttp2_submit_rst_stream(s->http2->ng, NGHTTP2_FLAG_NONE, s->id, (uint32_t)why));
}

size_t http2_stream_unsent(const struct http2_stream *s)
{
    return s->out.n_bytes + s->committed_bytes;
}

size_t http2_connection_unsent(const struct http2_stream *s)
{
    return s->http2 ? http2_unsent(s->http2) : 0;
}

void http2_stream_await_room(struct http2_stream *s)
{
    if (can_submit(s) && list_empty(&s->room))
        list_push(&s->http2->awaits_room, &s->room);
}

void http2_stream_await_iteration(struct http2_stream *s)
{
    if (!can_submit(s))
        return;
    struct http2 *h = s->http2;
    list_remove(&s->room);
    list_push(&h->awaits_iteration, &s->room);
    if (h->env->net.on_space)
        h->env->net.on_space(&h->session);
}
