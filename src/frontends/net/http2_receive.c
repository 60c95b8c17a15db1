/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Receiving. nghttp2 calls back for each frame, header and piece of a body. The callbacks note the
 * event in the stream, and http2_deliver() calls the handler when nghttp2 has returned. Bodies are
 * noted as segments of the received bytes, which stay in place until then. nghttp2 pauses when all
 * segments are used.
 *
 * The handler never sees a stream that the client begins and resets within one portion.
 *
 * Thread: the loop's.
 */
#include <stddef.h>
#include <string.h>

#include "base/pool.h"
#include "frontends/net/http2_priv.h"

enum { TOO_MANY_HEADERS = 4 }; /* times max_header_bytes; larger heads cost too much work */

static struct http2_stream *find_stream(nghttp2_session *ng, int32_t id)
{
    return nghttp2_session_get_stream_user_data(ng, id);
}

void http2_note(struct http2_stream *s, uint8_t note)
{
    s->notes |= note;
    if (list_empty(&s->noted))
        list_push(&s->http2->noted, &s->noted);
}

/* ---- Streams -------------------------------------------------------------------------------- */

/* No more than the part needs: a stream with its call fits into a block of 896 bytes. */
static size_t get_part_offset(void)
{
    enum { ALIGNMENT = _Alignof(max_align_t) };
    return (sizeof(struct http2_stream) + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1);
}

void *http2_stream_part(struct http2_stream *s)
{
    return (char *)s + get_part_offset();
}

struct http2_stream *http2_stream_of_part(void *part)
{
    return (struct http2_stream *)(void *)((char *)part - get_part_offset());
}

struct http2_env *http2_stream_env(const struct http2_stream *s)
{
    return s->env;
}

struct tls *http2_stream_peer(const struct http2_stream *s)
{
    return s->http2->session.tls;
}

int32_t http2_stream_id(const struct http2_stream *s)
{
    return s->id;
}

bool http2_stream_is_open(const struct http2_stream *s)
{
    return s->http2 && !s->closed && !s->reset && !s->ended && !s->http2->failed;
}

void http2_stream_ref(struct http2_stream *s)
{
    s->refs++;
}

void http2_stream_unref(struct http2_stream *s)
{
    if (--s->refs > 0)
        return;
    struct http2_env *env = s->env;
    http2_stream_weigh(s, 0);
    if (s->http2)
        s->http2->n_streams--;
    list_remove(&s->link);
    head_memo_unref(s->memo);
    head_done(&s->head);
    pool_release(s);
    env->net.n_used--;
    net_env_left(&env->net);
}

void http2_stream_weigh(struct http2_stream *s, size_t n_bytes)
{
    if (s->http2)
        s->http2->weight_bytes += n_bytes - s->weight_bytes;
    s->weight_bytes = n_bytes;
}

static struct http2_stream *make_stream(struct http2 *h, int32_t id)
{
    struct http2_env *env = h->env;
    struct http2_stream *s =
        pool_alloc(env->net.pool, get_part_offset() + env->handler->part_bytes, NULL);
    if (!s)
        return NULL;
    *s = (struct http2_stream){.http2 = h,
                               .env = env,
                               .refs = 1,
                               .id = id,
                               .first_segment = -1,
                               .last_segment = -1,
                               .length_left = -1};
    list_init(&s->noted);
    list_init(&s->turn);
    list_init(&s->room);
    list_push(&h->streams, &s->link);
    h->n_streams++;
    h->n_open++;
    env->net.n_used++;
    http2_begin_stream_window(s);
    return s;
}

/* ---- Callbacks ------------------------------------------------------------------------------ */

/*
 * Whether another stream may begin. Cancelled streams count, too, until the handler drops its
 * references.
 */
static bool may_begin(const struct http2 *h)
{
    return h->n_streams < 2 * h->env->limits->max_streams;
}

static int on_begin_headers(nghttp2_session *ng, const nghttp2_frame *frame, void *arg)
{
    struct http2 *h = arg;
    h->head_bytes = 0;
    coming_head_reset(&h->coming);
    if (frame->headers.cat != NGHTTP2_HCAT_REQUEST)
        return 0;
    h->coming.repeats = h->memo != NULL;
    struct http2_stream *s = may_begin(h) ? make_stream(h, frame->hd.stream_id) : NULL;
    if (!s) {
        net_count(&h->env->net.counts, NET_REFUSED_STREAMS, 1);
        /* Further frames of the stream find no struct http2_stream, and are ignored. */
        if (!http2_count_waste(h, HTTP2_WASTE_RESET))
            return NGHTTP2_ERR_CALLBACK_FAILURE;
        return nghttp2_submit_rst_stream(ng, NGHTTP2_FLAG_NONE, frame->hd.stream_id,
                                         NGHTTP2_REFUSED_STREAM);
    }
    return nghttp2_session_set_stream_user_data(ng, s->id, s);
}

static struct span get_span(nghttp2_rcbuf *buf)
{
    nghttp2_vec v = nghttp2_rcbuf_get_buf(buf);
    return (struct span){(const char *)v.base, v.len};
}

/* Keeps a reference to the field, for a head that is to be remembered. */
static void keep_field(struct coming_head *coming, struct memo_field field)
{
    if (coming->n_fields < MEMO_FIELDS) {
        nghttp2_rcbuf_incref(field.name);
        nghttp2_rcbuf_incref(field.value);
        coming->fields[coming->n_fields] = field;
    }
    coming->n_fields++;
}

/* Checks a field, and copies one of a request's head. s is NULL for a stream that was refused. */
static int take_field(struct http2 *h, struct http2_stream *s, bool in_trailers,
                      struct memo_field field)
{
    struct span name = get_span(field.name), value = get_span(field.value);
    size_t max_bytes = h->env->limits->max_header_bytes;
    h->head_bytes += name.length + value.length + 32;
    if (UNLIKELY(h->head_bytes > TOO_MANY_HEADERS * max_bytes)) {
        h->calm = true;
        http2_note_fault(h, HTTP2_ENHANCE_YOUR_CALM, "the header block is too large");
        return NGHTTP2_ERR_CALLBACK_FAILURE;
    }
    if (!s || h->coming.is_bad)
        return 0;
    h->coming.is_bad = !head_rules_add(&h->coming.rules, name, value, in_trailers);
    if (in_trailers || h->coming.is_bad) /* trailers themselves are ignored */
        return 0;
    keep_field(&h->coming, field);
    return head_add(&s->head, h->env->net.pool, max_bytes, name, value) ? 0 : NGHTTP2_ERR_NOMEM;
}

/* The head is not the memo's: takes the fields that are. */
static int take_repeated(struct http2 *h, struct http2_stream *s)
{
    unsigned int n = h->coming.n_fields;
    int error = 0;
    h->coming.repeats = false;
    h->coming.n_fields = 0;
    for (unsigned int i = 0; i < n && !error; i++)
        error = take_field(h, s, false, h->memo->fields[i]);
    return error;
}

/* Whether the next field is that of the memo. */
static bool is_repeated(const struct http2 *h, nghttp2_rcbuf *name, nghttp2_rcbuf *value)
{
    const struct memo_field *next = &h->memo->fields[h->coming.n_fields];
    return h->coming.n_fields < h->memo->n_fields && next->name == name && next->value == value;
}

static int on_header(nghttp2_session *ng, const nghttp2_frame *frame, nghttp2_rcbuf *name,
                     nghttp2_rcbuf *value, uint8_t flags, void *arg)
{
    struct http2 *h = arg;
    if (h->coming.repeats && is_repeated(h, name, value)) {
        h->coming.n_fields++;
        return 0;
    }
    struct http2_stream *s = find_stream(ng, frame->hd.stream_id);
    int error = h->coming.repeats ? take_repeated(h, s) : 0;
    if (error)
        return error;
    return take_field(h, s, frame->headers.cat != NGHTTP2_HCAT_REQUEST,
                      (struct memo_field){name, value});
}

/* Resets a stream whose client has broken a rule of HTTP (RFC 9113, 8.1.1). */
static int reset_broken(struct http2_stream *s)
{
    struct http2 *h = s->http2;
    if (s->broken)
        return 0;
    s->broken = true;
    if (!http2_count_waste(h, HTTP2_WASTE_RESET))
        return NGHTTP2_ERR_CALLBACK_FAILURE;
    return nghttp2_submit_rst_stream(h->ng, NGHTTP2_FLAG_NONE, s->id, NGHTTP2_PROTOCOL_ERROR);
}

/* The head of a request is complete. */
static int end_head(struct http2 *h, struct http2_stream *s)
{
    struct coming_head *coming = &h->coming;
    int error = 0;
    if (coming->repeats && coming->n_fields < h->memo->n_fields)
        error = take_repeated(h, s);
    if (error)
        return error;
    if (!coming->repeats) {
        if (coming->is_bad || !head_rules_end(&coming->rules))
            return reset_broken(s);
        if (coming->rules.has_length && !coming->rules.is_connect)
            s->length_left = coming->rules.length;
        struct head_memo *made = head_memo_make(coming, &s->head, h->env->net.pool);
        head_memo_unref(h->memo);
        h->memo = made;
    }
    http2_note(s, NOTE_BEGIN);
    s->memo = h->memo;
    if (s->memo)
        s->memo->refs++;
    return 0;
}

void http2_forget_heads(struct http2 *h)
{
    coming_head_reset(&h->coming);
    head_memo_unref(TAKE(h->memo));
    LIST_FOR_EACH (link, &h->streams)
        head_memo_unref(TAKE(LIST_ENTRY(link, struct http2_stream, link)->memo));
}

/* Appends a segment to the stream's list. */
static void add_segment(struct http2_shared *shared, struct http2_stream *s, const char *bytes,
                        size_t n_bytes)
{
    int i = shared->n_segments++;
    shared->segments[i] = (struct http2_segment){bytes, n_bytes, -1};
    if (s->last_segment >= 0)
        shared->segments[s->last_segment].next = i;
    else
        s->first_segment = i;
    s->last_segment = i;
}

static int on_data_chunk(nghttp2_session *ng, uint8_t flags, int32_t id, const uint8_t *bytes,
                         size_t n_bytes, void *arg)
{
    struct http2 *h = arg;
    struct http2_shared *shared = h->env->shared;
    struct http2_stream *s = find_stream(ng, id);
    if (!s || s->reset || s->broken)
        return 0;
    s->credit_bytes -= (int64_t)n_bytes;
    if (UNLIKELY(s->length_left >= 0)) {
        s->length_left -= (int64_t)MIN(n_bytes, (size_t)INT64_MAX);
        if (s->length_left < 0)
            return reset_broken(s);
    }
    add_segment(shared, s, (const char *)bytes, n_bytes);
    http2_note(s, 0);
    /* Each segment may complete a request. */
    unsigned int max = MIN(http2_requests_left(h), (unsigned int)SEGMENTS);
    h->segments_full = (unsigned int)shared->n_segments >= max;
    return h->segments_full ? NGHTTP2_ERR_PAUSE : 0;
}

static int note_input_over(struct http2_stream *s)
{
    if (s->input_over || s->broken)
        return 0;
    if (UNLIKELY(s->length_left > 0))
        return reset_broken(s); /* the body is shorter than content-length says */
    s->input_over = true;
    http2_note(s, NOTE_HALF_CLOSE);
    return 0;
}

static int take_headers(struct http2 *h, const nghttp2_frame *frame, struct http2_stream *s)
{
    bool ends = frame->hd.flags & NGHTTP2_FLAG_END_STREAM;
    int error = 0;
    if (frame->headers.cat == NGHTTP2_HCAT_REQUEST)
        error = end_head(h, s);
    else if (h->coming.is_bad || !ends) /* trailers end the stream (RFC 9113, 8.1) */
        error = reset_broken(s);
    return error || !ends ? error : note_input_over(s);
}

/* Counts DATA that has only padding as empty. */
static bool count_padding(struct http2 *h, const nghttp2_frame *frame)
{
    return frame->data.padlen < frame->hd.length || frame->hd.flags & NGHTTP2_FLAG_END_STREAM ||
           http2_count_waste(h, HTTP2_WASTE_EMPTY);
}

static int on_frame_recv(nghttp2_session *ng, const nghttp2_frame *frame, void *arg)
{
    struct http2 *h = arg;
    struct http2_stream *s;

    switch (frame->hd.type) {
    case NGHTTP2_HEADERS:
        s = find_stream(ng, frame->hd.stream_id);
        return s ? take_headers(h, frame, s) : 0;
    case NGHTTP2_DATA:
        s = find_stream(ng, frame->hd.stream_id);
        if (!s)
            break;
        s->credit_bytes -= (int64_t)frame->data.padlen;
        if (UNLIKELY(frame->data.padlen > 0) && !count_padding(h, frame))
            return NGHTTP2_ERR_CALLBACK_FAILURE;
        return frame->hd.flags & NGHTTP2_FLAG_END_STREAM ? note_input_over(s) : 0;
    case NGHTTP2_SETTINGS:
        if (frame->hd.flags & NGHTTP2_FLAG_ACK)
            h->settings_acked = true;
        else
            h->settings_received = true;
        break;
    case NGHTTP2_PING:
        if (frame->hd.flags & NGHTTP2_FLAG_ACK)
            http2_ping_acked(h, frame->ping.opaque_data);
        else if (!http2_ping_came(h))
            return NGHTTP2_ERR_CALLBACK_FAILURE;
        break;
    default:
        break;
    }
    return 0;
}

/* nghttp2 resets the stream, or ends the connection, because the client has broken a rule. */
static int on_invalid_frame(nghttp2_session *ng, const nghttp2_frame *frame, int error, void *arg)
{
    struct http2 *h = arg;
    return http2_count_waste(h, HTTP2_WASTE_RESET) ? 0 : NGHTTP2_ERR_CALLBACK_FAILURE;
}

static int on_stream_close(nghttp2_session *ng, int32_t id, uint32_t code, void *arg)
{
    struct http2_stream *s = find_stream(ng, id);
    if (!s)
        return 0;
    s->close_code = code;
    http2_note(s, NOTE_CLOSED);
    return 0;
}

void http2_set_receive_callbacks(nghttp2_session_callbacks *callbacks)
{
    nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, on_begin_headers);
    nghttp2_session_callbacks_set_on_header_callback2(callbacks, on_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data_chunk);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame_recv);
    nghttp2_session_callbacks_set_on_invalid_frame_recv_callback(callbacks, on_invalid_frame);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_stream_close);
}

/* ---- Delivery ------------------------------------------------------------------------------- */

static void deliver_begin(struct http2_stream *s)
{
    struct http2_env *env = s->env;
    s->begun = true;
    s->http2->n_begun++;
    struct head_memo *memo = TAKE(s->memo);
    struct http2_head *head = memo ? &memo->head : &s->head->head;
    head->ends = s->input_over && s->first_segment < 0;
    env->handler->on_begin(s, head);
    head_memo_unref(memo);
    head_done(&s->head);
}

/*
 * Delivers the stream's segments. Bytes for a stream that was reset or closed are dropped without a
 * count, so that the window is refilled for them.
 */
static void deliver_segments(struct http2_stream *s)
{
    while (s->first_segment >= 0) {
        struct http2_segment g = s->env->shared->segments[s->first_segment];
        s->first_segment = g.next;
        if (!s->begun || s->reset || s->closed)
            continue;
        http2_data_came(s, g.n_bytes);
        s->env->handler->on_data(s, g.bytes, g.n_bytes);
    }
    s->last_segment = -1;
}

size_t http2_stream_at_hand(const struct http2_stream *s)
{
    const struct http2_segment *segments = s->env->shared->segments;
    size_t n_bytes = 0;
    for (int i = s->first_segment; i >= 0; i = segments[i].next)
        n_bytes += segments[i].n_bytes;
    return n_bytes;
}

static void close_stream(struct http2_stream *s)
{
    if (s->closed)
        return;
    bool is_regular = s->reset || s->end_sent;
    s->closed = true;
    s->http2->n_open--;
    http2_forget_window(s);
    list_remove(&s->turn);
    list_remove(&s->room);
    http2_drop_output(s);
    if (s->begun && !is_regular)
        s->env->handler->on_cancel(s, (enum http2_error)s->close_code);
}

/*
 * Ends the connection's use of the stream, once it is closed and none of its slices is in the
 * out-queue.
 */
static void end_stream(struct http2_stream *s)
{
    if (!s->closed || s->n_committed > 0 || s->over)
        return;
    s->over = true;
    if (s->begun)
        s->env->handler->on_end(s);
    http2_stream_unref(s);
}

static void deliver_stream(struct http2_stream *s)
{
    uint8_t notes = s->notes;
    s->notes = 0;
    http2_stream_ref(s);
    if (notes & NOTE_BEGIN && !(notes & NOTE_CLOSED))
        deliver_begin(s);
    deliver_segments(s);
    if (notes & NOTE_HALF_CLOSE && s->begun && !s->reset && !s->closed)
        s->env->handler->on_half_close(s);
    if (notes & NOTE_ROOM && !s->reset && !s->closed)
        s->env->handler->on_room(s);
    if (notes & NOTE_STOP && s->begun && !s->reset && !s->closed)
        s->env->handler->on_stop(s);
    if (notes & NOTE_CLOSED)
        close_stream(s);
    end_stream(s);
    http2_stream_unref(s);
}

void http2_deliver(struct http2 *h)
{
    if (h->delivering)
        return;
    struct list *link;
    h->delivering = true;
    while ((link = list_pop(&h->noted)))
        deliver_stream(LIST_ENTRY(link, struct http2_stream, noted));
    h->delivering = false;
}

void http2_cancel_all(struct http2 *h, enum http2_error why)
{
    LIST_FOR_EACH (link, &h->streams) {
        struct http2_stream *s = LIST_ENTRY(link, struct http2_stream, link);
        if (s->closed || s->notes & NOTE_CLOSED)
            continue;
        s->close_code = why;
        http2_note(s, NOTE_CLOSED);
    }
    http2_deliver(h);
}
