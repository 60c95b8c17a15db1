/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams that wait for their client: for the rest of a message, or for a window that lets an
 * answer leave. The socket does not show the second case, since it takes bytes even then. Each
 * direction of a stream has a pace of its own, so that a client which sends without reading is
 * found.
 *
 * http2_check_streams() looks at all streams about once a second. It resets those that have not
 * moved for too long, and weighs the others (http2_get_burden()). When memory is short,
 * http2_relieve() resets the streams that weigh most, and the connection goes on.
 *
 * Thread: the loop's.
 */
#include "frontends/net/http2_priv.h"

static const uint64_t INTERVAL_NS = NS_PER_S / 4; /* between two checks, at least */
static const uint64_t LATE_NS = 3 * NS_PER_S;     /* the loop stood still, not the client */

/* ---- Progress ------------------------------------------------------------------------------- */

/* Whether the client may send more on the connection; it need not know that yet. */
static bool has_window(const struct http2 *h)
{
    return h->expected_bytes > 0 || h->untaken_bytes < h->window_bytes;
}

/* Whether the client is to send more of a message. */
static bool awaits_input(const struct http2_stream *s)
{
    if (s->input_over || !list_empty(&s->turn))
        return false;
    if (s->expected_bytes > 0)
        return true;
    bool is_due = s->is_incomplete || (s->sends_one && s->untaken_bytes == 0);
    return is_due && has_window(s->http2);
}

/* Whether the client is to open a window for the answer. */
static bool awaits_window(const struct http2_stream *s)
{
    nghttp2_session *ng = s->http2->ng;
    return s->out.n_bytes > 0 && (nghttp2_session_get_remote_window_size(ng) <= 0 ||
                                  nghttp2_session_get_stream_remote_window_size(ng, s->id) <= 0);
}

/* Notes the progress of the gap_ns since the last check. */
static void note_progress(struct http2_pace *p, bool waits, uint64_t now_ns, uint64_t gap_ns)
{
    uint64_t n_bytes = p->n_bytes;
    if (!waits) {
        *p = (struct http2_pace){0};
        return;
    }
    p->n_bytes = 0;
    p->recent_bytes = n_bytes;
    if (p->last_ns == 0) {
        p->last_ns = p->rate_ns = now_ns;
        return;
    }
    p->rate_bytes += n_bytes;
    if (n_bytes > 0)
        p->last_ns = now_ns;
    if (gap_ns > LATE_NS) {
        p->last_ns = MIN(p->last_ns + gap_ns, now_ns);
        p->rate_ns = now_ns;
        p->rate_bytes = p->slow_ns = 0;
    } else if (n_bytes * NS_PER_S >= CLIENT_SLOW_BYTES_PER_S * gap_ns) {
        p->slow_ns = 0;
    } else if (p->slow_ns == 0) {
        p->slow_ns = now_ns;
    }
}

/* Whether the direction has not moved for too long, or too slowly. */
static bool is_given_up(struct http2_pace *p, const struct http2_times *t, uint64_t now_ns)
{
    if (p->last_ns == 0)
        return false;
    if (http2_is_over(p->last_ns, t->stall_ns, now_ns))
        return true;
    if (t->min_rate == 0 || !http2_is_over(p->rate_ns, t->rate_ns, now_ns))
        return false;
    uint64_t ms = (now_ns - p->rate_ns) / NS_PER_MS, n_bytes = p->rate_bytes;
    p->rate_ns = now_ns;
    p->rate_bytes = 0;
    return n_bytes * 1000 < t->min_rate * ms;
}

/* Whether a stop no longer waits for the rest of the stream's only message. */
static bool holds_up_stop(const struct http2_stream *s, uint64_t now_ns)
{
    return s->env->net.draining && s->sends_one && s->in.last_ns > 0 &&
           http2_is_over(s->in.last_ns, CLIENT_DRAIN_PATIENCE_NS, now_ns);
}

/* ---- Weights -------------------------------------------------------------------------------- */

/* The burden of bytes that wait for the client, by the rule of conn_burden(). */
static uint64_t weigh_pace(const struct http2_pace *p, size_t n_bytes, uint64_t now_ns)
{
    if (p->last_ns == 0)
        return 0;
    uint64_t slow_ns = p->slow_ns > 0 ? now_ns - p->slow_ns : 0;
    return n_bytes / (1 + p->recent_bytes / 1024) * (1 + slow_ns / NS_PER_S);
}

static uint64_t weigh_stream(const struct http2_stream *s, uint64_t now_ns)
{
    return weigh_pace(&s->in, s->weight_bytes, now_ns) +
           weigh_pace(&s->answer, s->out.n_bytes, now_ns);
}

static bool is_slow(const struct http2_pace *p, uint64_t now_ns)
{
    return p->slow_ns > 0 && now_ns - p->slow_ns >= CLIENT_STALL_NS;
}

/* Whether the client has kept memory of the stream for five seconds without moving it. */
static bool is_stalled(const struct http2_stream *s, uint64_t now_ns)
{
    return (s->weight_bytes > 0 && is_slow(&s->in, now_ns)) ||
           (s->out.n_bytes > 0 && is_slow(&s->answer, now_ns));
}

static bool is_live(const struct http2_stream *s)
{
    return !s->closed && !s->reset;
}

/* The bytes that are kept while the stream waits for its client. */
static size_t count_kept(const struct http2_stream *s)
{
    return (s->in.last_ns > 0 ? s->weight_bytes : 0) + (s->answer.last_ns > 0 ? s->out.n_bytes : 0);
}

static void weigh_streams(struct http2 *h, uint64_t now_ns)
{
    uint64_t burden = 0;
    size_t n_bytes = 0;
    bool has_stalled = false;
    LIST_FOR_EACH (link, &h->streams) {
        const struct http2_stream *s = LIST_ENTRY(link, struct http2_stream, link);
        if (!is_live(s))
            continue;
        burden += weigh_stream(s, now_ns);
        n_bytes += count_kept(s);
        has_stalled |= is_stalled(s, now_ns);
    }
    h->burden = n_bytes >= CLIENT_LIGHT_BYTES ? burden : 0;
    h->has_stalled = n_bytes >= CLIENT_LIGHT_BYTES && has_stalled;
}

uint64_t http2_get_burden(const struct session *session, bool *ret_stalled)
{
    const struct http2 *h = (const struct http2 *)(const void *)session;
    *ret_stalled = !h->failed && h->has_stalled;
    return h->failed ? 0 : h->burden; /* http2_relieve() has nothing to give up any more */
}

/* ---- Ends ----------------------------------------------------------------------------------- */

/* Resets the stream. Its memory is released before this returns. */
static void give_stream_up(struct http2_stream *s, enum http2_error why)
{
    http2_stream_reset(s, why);
    if (s->begun)
        s->env->handler->on_cancel(s, why);
}

/* Gives up a stream that has stalled: the stall of its message counts before that of its answer. */
static void end_stalled(struct http2_stream *s, bool is_message)
{
    net_count(&s->env->net.counts, is_message ? NET_STALLED_BODY : NET_STALLED_ANSWER, 1);
    give_stream_up(s, HTTP2_CANCEL);
}

static void evict_stream(struct http2_stream *s)
{
    net_count(&s->env->net.counts, NET_REFUSED_MEMORY, 1);
    give_stream_up(s, HTTP2_ENHANCE_YOUR_CALM);
}

static struct http2_stream *find_heaviest(struct http2 *h, uint64_t now_ns)
{
    struct http2_stream *found = NULL;
    uint64_t most = 0;
    LIST_FOR_EACH (link, &h->streams) {
        struct http2_stream *s = LIST_ENTRY(link, struct http2_stream, link);
        uint64_t burden = is_live(s) ? weigh_stream(s, now_ns) : 0;
        if (burden > most) {
            most = burden;
            found = s;
        }
    }
    return found;
}

void http2_relieve(struct http2 *h)
{
    uint64_t now_ns = http2_now_ns(h);
    bool found_stalled = false;
    LIST_FOR_EACH (link, &h->streams) {
        struct http2_stream *s = LIST_ENTRY(link, struct http2_stream, link);
        if (!is_live(s) || !is_stalled(s, now_ns))
            continue;
        evict_stream(s);
        found_stalled = true;
    }
    struct http2_stream *heaviest = found_stalled ? NULL : find_heaviest(h, now_ns);
    if (heaviest)
        evict_stream(heaviest);
    weigh_streams(h, now_ns);
}

void http2_check_streams(struct http2 *h, uint64_t now_ns)
{
    const struct http2_times *t = h->env->times;
    uint64_t gap_ns = now_ns - h->checked_ns;
    if (gap_ns < INTERVAL_NS)
        return;
    h->checked_ns = now_ns;
    LIST_FOR_EACH (link, &h->streams) {
        struct http2_stream *s = LIST_ENTRY(link, struct http2_stream, link);
        if (!is_live(s))
            continue;
        note_progress(&s->in, awaits_input(s), now_ns, gap_ns);
        note_progress(&s->answer, awaits_window(s), now_ns, gap_ns);
        bool is_message = is_given_up(&s->in, t, now_ns);
        if (is_message || is_given_up(&s->answer, t, now_ns))
            end_stalled(s, is_message);
        else if (holds_up_stop(s, now_ns))
            give_stream_up(s,
                           HTTP2_REFUSED_STREAM); /* nothing of it was done: it may be sent again */
    }
    weigh_streams(h, now_ns);
}
