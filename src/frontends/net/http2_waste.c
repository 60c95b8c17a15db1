/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waste: frames that cost us work and carry nothing. Each kind has one number, the time until which
 * the client has used its share. Each event moves that time on by 1/per_s of a second. When the
 * time is more than `burst` such steps ahead of now, the client has wasted too much. (This is a
 * token bucket, without the bucket.)
 *
 * Frames are counted here, since nghttp2 calls no callback for frames that it ignores: unknown
 * frames, and DATA of streams that are gone. http2_walk_frames() reads the 9 bytes of each frame's
 * head, and remembers the last streams that the client has ended. (nghttp2 could remember such
 * streams, but would keep each as a whole.)
 *
 * A client that receives data needs PINGs and WINDOW_UPDATEs; some clients send one of each for
 * every answer. So each frame with data or headers that we send pays for two of each.
 *
 * Thread: the loop's.
 */
#include <string.h>

#include "frontends/net/http2_priv.h"

enum { PAID_PER_FRAME = 2 };

static const char *const names[HTTP2_N_WASTES] = {
    [HTTP2_WASTE_RESET] = "too many streams were reset",
    [HTTP2_WASTE_PING] = "too many PING frames",
    [HTTP2_WASTE_WINDOW] = "too many WINDOW_UPDATE frames",
    [HTTP2_WASTE_SETTINGS] = "too many SETTINGS frames",
    [HTTP2_WASTE_EMPTY] = "too many empty frames",
    [HTTP2_WASTE_OTHER] = "too many frames without use",
};

bool http2_count_waste(struct http2 *h, enum http2_waste waste)
{
    const struct http2_rate *rate = &h->env->limits->wastes[waste];
    if (rate->per_s == 0)
        return true;
    uint64_t now_ns = http2_now_ns(h), step_ns = NS_PER_S / rate->per_s;
    uint64_t *until_ns = &h->meter.paid_until_ns[waste];
    *until_ns = MAX(*until_ns, now_ns) + step_ns;
    if (LIKELY(*until_ns - now_ns <= step_ns * MAX(rate->burst, 1u)))
        return true;
    h->calm = true;
    http2_note_fault(h, HTTP2_ENHANCE_YOUR_CALM, names[waste]);
    return false;
}

void http2_pay_for_waste(struct http2 *h)
{
    static const enum http2_waste paid[] = {HTTP2_WASTE_PING, HTTP2_WASTE_WINDOW};
    for (size_t i = 0; i < ARRAY_SIZE(paid); i++) {
        const struct http2_rate *rate = &h->env->limits->wastes[paid[i]];
        uint64_t *until_ns = &h->meter.paid_until_ns[paid[i]];
        if (*until_ns > 0 && rate->per_s > 0)
            *until_ns -= MIN(*until_ns, PAID_PER_FRAME * NS_PER_S / rate->per_s);
    }
}

/* ---- Frames --------------------------------------------------------------------------------- */

enum { PREFACE_BYTES = 24 };

void http2_begin_walk(struct http2 *h)
{
    h->walk = (struct frame_walk){.left = PREFACE_BYTES};
}

/* Remembers that the client has ended its side of the stream. */
static void note_ended(struct frame_walk *w, uint32_t id)
{
    w->ended_ids[w->next_ended++ % ENDED_IDS] = id;
}

/* Number 0 is the connection's, and stands for an unused place in ended_ids. */
static bool is_ended(const struct frame_walk *w, uint32_t id)
{
    bool is = false;
    for (unsigned int i = 0; i < ENDED_IDS; i++)
        is |= w->ended_ids[i] == id;
    return is && id != 0;
}

/* Counts a DATA frame. DATA of a stream that the client has ended is answered with RST_STREAM. */
static bool count_data(struct http2 *h, uint32_t id, uint32_t length, bool ends)
{
    h->credit_bytes -= length;
    if (length == 0 && !ends && !http2_count_waste(h, HTTP2_WASTE_EMPTY))
        return false;
    if (UNLIKELY(is_ended(&h->walk, id))) {
        h->walk.late_id = id;
        return http2_count_waste(h, HTTP2_WASTE_OTHER);
    }
    if (ends)
        note_ended(&h->walk, id);
    return true;
}

/*
 * Counts a HEADERS frame. A new stream has a larger number than all before it, and the numbers that
 * the client has left out count as closed streams. nghttp2 cannot tell those from streams that
 * existed.
 */
static bool count_headers(struct http2 *h, uint32_t id, uint8_t flags)
{
    struct frame_walk *w = &h->walk;
    w->in_head = true;
    w->ends_head = flags & NGHTTP2_FLAG_END_HEADERS;
    if (UNLIKELY(is_ended(w, id))) {
        http2_note_fault(h, HTTP2_STREAM_CLOSED, "HEADERS of a stream that has ended");
        return false;
    }
    if (flags & NGHTTP2_FLAG_END_STREAM)
        note_ended(w, id);
    if (LIKELY(id > w->last_id)) {
        if (UNLIKELY(id > w->last_id + 2)) {
            w->gap_begin = w->last_id + 1;
            w->gap_end = id;
        }
        w->last_id = id;
        return true;
    }
    if (id >= w->gap_begin && id < w->gap_end) {
        http2_note_fault(h, HTTP2_PROTOCOL_ERROR, "HEADERS of a stream that was left out");
        return false;
    }
    return http2_count_waste(h, HTTP2_WASTE_OTHER); /* trailers */
}

static bool count_frame(struct http2 *h, const uint8_t head[FRAME_HEAD])
{
    uint32_t length = (uint32_t)head[0] << 16 | (uint32_t)head[1] << 8 | head[2];
    uint32_t id =
        ((uint32_t)head[5] << 24 | (uint32_t)head[6] << 16 | (uint32_t)head[7] << 8 | head[8]) &
        INT32_MAX;

    h->walk.left = length;
    switch (head[3]) {
    case NGHTTP2_DATA:
        return count_data(h, id, length, head[4] & NGHTTP2_FLAG_END_STREAM);
    case NGHTTP2_HEADERS:
        return count_headers(h, id, head[4]);
    case NGHTTP2_RST_STREAM:
        note_ended(&h->walk, id);
        return http2_count_waste(h, HTTP2_WASTE_RESET);
    case NGHTTP2_SETTINGS:
        return http2_count_waste(h, HTTP2_WASTE_SETTINGS);
    case NGHTTP2_PING:
        return http2_count_waste(h, HTTP2_WASTE_PING);
    case NGHTTP2_WINDOW_UPDATE:
        return http2_count_waste(h, HTTP2_WASTE_WINDOW);
    case NGHTTP2_CONTINUATION: /* nghttp2 limits the frames of one head */
        h->walk.ends_head = head[4] & NGHTTP2_FLAG_END_HEADERS;
        return true;
    default:
        return http2_count_waste(h, HTTP2_WASTE_OTHER);
    }
}

/* Takes bytes of the next frame's head. Returns the number of bytes used. */
static size_t take_frame_head(struct frame_walk *w, const char *bytes, size_t n_bytes)
{
    size_t n = MIN(n_bytes, (size_t)(FRAME_HEAD - w->n_head));
    memcpy(w->head + w->n_head, bytes, n);
    w->n_head = (uint8_t)(w->n_head + n);
    return n;
}

bool http2_walk_frames(struct http2 *h, const char *bytes, size_t n_bytes)
{
    struct frame_walk *w = &h->walk;
    while (n_bytes > 0) {
        size_t n = (size_t)MIN((uint64_t)n_bytes, w->left);
        if (n > 0) {
            w->left -= n;
        } else {
            n = take_frame_head(w, bytes, n_bytes);
            if (w->n_head == FRAME_HEAD) {
                w->n_head = 0;
                if (!count_frame(h, w->head))
                    return false;
            }
        }
        if (w->left == 0 && w->ends_head)
            w->in_head = w->ends_head = false;
        bytes += n;
        n_bytes -= n;
    }
    return true;
}
