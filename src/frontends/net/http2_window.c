/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Windows, as promises of memory. A client is to be allowed to send
 *
 *      of a stream:  its window, less what came unexpected and is not taken, and all expected bytes
 *      at all:       the same of the connection, with the sums over its streams
 *
 * Both include the expected bytes, so one message never waits for another that is incomplete.
 * nghttp2 knows how many bytes the client may send at present. `credit_bytes` is at most that
 * number, and saves a question to nghttp2 for each frame. A WINDOW_UPDATE is sent before the window
 * holds the client up: a small request causes none, and that of the connection comes every 8 MiB.
 *
 * nghttp2 itself refills the window for padding and for DATA of streams that are gone, but late.
 * Increments are computed from nghttp2's window, so they are right in either case.
 *
 * Thread: the loop's.
 */
#include "frontends/net/http2_priv.h"

enum { FIRST_WINDOW_BYTES = 65535 }; /* RFC 9113, 6.9.2 */

#define MAX_WINDOW_BYTES INT32_MAX

bool http2_begin_windows(struct http2 *h)
{
    h->credit_bytes = (int64_t)h->window_bytes;
    if (h->window_bytes <= FIRST_WINDOW_BYTES)
        return true;
    int32_t more = (int32_t)h->window_bytes - FIRST_WINDOW_BYTES;
    return nghttp2_submit_window_update(h->ng, NGHTTP2_FLAG_NONE, 0, more) == 0;
}

void http2_begin_stream_window(struct http2_stream *s)
{
    s->credit_bytes = (int64_t)s->http2->stream_window_bytes;
}

void http2_data_came(struct http2_stream *s, size_t n_bytes)
{
    uint64_t expected = MIN((uint64_t)n_bytes, s->expected_bytes);
    s->expected_bytes -= expected;
    s->http2->expected_bytes -= expected;
    s->untaken_bytes += n_bytes - expected;
    s->http2->untaken_bytes += n_bytes - expected;
    s->in.n_bytes += n_bytes;
}

/* The number of bytes that the client is to be allowed to send. */
static int64_t get_due(size_t window_bytes, uint64_t untaken_bytes, uint64_t expected_bytes)
{
    uint64_t due = window_bytes - MIN((uint64_t)window_bytes, untaken_bytes) + expected_bytes;
    return (int64_t)MIN(due, (uint64_t)MAX_WINDOW_BYTES);
}

void http2_refill(struct http2 *h)
{
    int64_t low = (int64_t)MIN(h->expected_bytes + h->window_bytes / 2, (uint64_t)MAX_WINDOW_BYTES);
    if (LIKELY(h->credit_bytes >= low) || h->failed)
        return;
    int64_t due = get_due(h->window_bytes, h->untaken_bytes, h->expected_bytes);
    h->credit_bytes = nghttp2_session_get_local_window_size(h->ng);
    if (h->credit_bytes >= low || due <= h->credit_bytes)
        return;
    http2_check_submit(h, nghttp2_submit_window_update(h->ng, NGHTTP2_FLAG_NONE, 0,
                                                       (int32_t)(due - h->credit_bytes)));
    h->credit_bytes = due;
}

/*
 * The stream's window as nghttp2 has it. Before the client has acknowledged our SETTINGS, it still
 * has to learn of the larger window of its streams.
 */
static int64_t ask_stream_credit(const struct http2_stream *s)
{
    const struct http2 *h = s->http2;
    int64_t credit = nghttp2_session_get_stream_local_window_size(h->ng, s->id);
    if (!h->settings_acked)
        credit += (int64_t)h->stream_window_bytes - FIRST_WINDOW_BYTES;
    return credit;
}

void http2_refill_stream(struct http2_stream *s)
{
    struct http2 *h = s->http2;
    if (!h || s->closed || s->reset || s->input_over || h->failed)
        return;
    size_t window_bytes = s->sends_one ? 0 : h->stream_window_bytes;
    int64_t low = (int64_t)MIN(s->expected_bytes + window_bytes / 4, (uint64_t)MAX_WINDOW_BYTES);
    if (LIKELY(s->credit_bytes >= low))
        return;
    int64_t due = get_due(window_bytes, s->untaken_bytes, s->expected_bytes);
    s->credit_bytes = ask_stream_credit(s);
    if (s->credit_bytes >= low || due <= s->credit_bytes)
        return;
    http2_check_submit(h, nghttp2_submit_window_update(h->ng, NGHTTP2_FLAG_NONE, s->id,
                                                       (int32_t)(due - s->credit_bytes)));
    s->credit_bytes = due;
}

void http2_forget_window(struct http2_stream *s)
{
    s->http2->expected_bytes -= s->expected_bytes;
    s->http2->untaken_bytes -= s->untaken_bytes;
    s->expected_bytes = s->untaken_bytes = 0;
}

/* ---- For handlers --------------------------------------------------------------------------- */

void http2_stream_sends_one(struct http2_stream *s)
{
    s->sends_one = true;
}

void http2_stream_set_incomplete(struct http2_stream *s, bool is_incomplete)
{
    s->is_incomplete = is_incomplete;
}

void http2_stream_expect(struct http2_stream *s, uint64_t n_bytes)
{
    if (!s->http2 || s->closed || s->reset)
        return;
    s->expected_bytes += n_bytes;
    s->http2->expected_bytes += n_bytes;
    http2_refill_stream(s);
    http2_refill(s->http2);
}

uint64_t http2_stream_expected(const struct http2_stream *s)
{
    return s->expected_bytes;
}

size_t http2_stream_window(const struct http2_stream *s)
{
    return s->http2 ? s->http2->stream_window_bytes : 0;
}

void http2_stream_take(struct http2_stream *s, size_t n_bytes)
{
    if (!s->http2 || s->closed || s->reset)
        return;
    BUG_ON(n_bytes > s->untaken_bytes);
    s->untaken_bytes -= n_bytes;
    s->http2->untaken_bytes -= n_bytes;
    http2_refill_stream(s);
    http2_refill(s->http2);
}

void http2_stream_await_turn(struct http2_stream *s)
{
    if (!s->http2 || s->closed || s->reset || !list_empty(&s->turn))
        return;
    s->turn_ns = http2_now_ns(s->http2);
    struct http2_shared *shared = s->env->shared;
    shared->turns_due |= list_empty(&shared->turns);
    list_push(&shared->turns, &s->turn);
    /* The turn may be given at the end of the connection's call; outside of one, before its next
     * write. */
    if (shared->turns_due)
        s->http2->session.on_output(&s->http2->session);
}

/*
 * Gives the first stream its turn. The stream leaves the line when it got memory or its time is
 * over.
 */
static bool give_turn(struct http2_stream *s, uint64_t now_ns)
{
    uint64_t limit_ns = s->env->times->turn_ns;
    bool is_last = limit_ns > 0 && now_ns - s->turn_ns >= limit_ns;
    bool has_memory = s->env->handler->on_turn(s, is_last);
    if (has_memory || is_last)
        list_remove(&s->turn);
    return has_memory || is_last;
}

void http2_env_give_turns(struct http2_env *env)
{
    struct list *turns = &env->shared->turns;
    env->shared->turns_due = false;
    while (!list_empty(turns) &&
           give_turn(LIST_ENTRY(turns->next, struct http2_stream, turn), *env->now_ns)) {
    }
}
