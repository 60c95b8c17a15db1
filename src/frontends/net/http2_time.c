/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Times. The connection calls http2_check_time() about once a second, and at http2_get_next_ns().
 * That
 *
 *  - resets streams that the client holds up (http2_pace.c);
 *  - sends PINGs, to find out whether the client is there;
 *  - ends connections that have reached their age.
 *
 * An orderly end takes two GOAWAYs. The first one allows all streams, since the client may have
 * begun streams whose frames are still under way. A PING behind the first GOAWAY shows when the
 * client has seen it. Then the second GOAWAY names the last stream that is served.
 *
 * Thread: the loop's.
 */
#include <string.h>

#include "frontends/net/http2_priv.h"

static const uint8_t keepalive_opaque[8] = "conchpin", drain_opaque[8] = "conchend";

/* Chooses 90 to 110 % of the age, so that connections that began together do not end together. */
static uint64_t spread_age(struct http2_shared *shared, uint64_t age_ns)
{
    shared->seed = shared->seed * 6364136223846793005u + 1442695040888963407u;
    uint64_t permille = 900 + (shared->seed >> 33) % 201;
    return age_ns / 1000 * permille;
}

void http2_begin_times(struct http2 *h)
{
    h->began_ns = h->read_ns = h->checked_ns = http2_now_ns(h);
    if (h->env->times->max_age_ns > 0)
        h->max_age_ns = spread_age(h->env->shared, h->env->times->max_age_ns);
}

/* ---- PINGs of ours -------------------------------------------------------------------------- */

static void send_ping(struct http2 *h, const uint8_t opaque[8])
{
    http2_check_submit(h, nghttp2_submit_ping(h->ng, NGHTTP2_FLAG_NONE, opaque));
}

static bool needs_keepalive(const struct http2 *h)
{
    const struct http2_times *t = h->env->times;
    return t->keepalive_ns > 0 && (h->n_open > 0 || t->keepalive_without_streams) &&
           (t->max_pings_without_data == 0 || h->n_pings < t->max_pings_without_data);
}

static void check_keepalive(struct http2 *h, uint64_t now_ns)
{
    const struct http2_times *t = h->env->times;
    if (h->ping_ns > 0) {
        if (http2_is_over(h->ping_ns, t->keepalive_timeout_ns, now_ns))
            http2_fail(h, HTTP2_NO_ERROR, "keepalive watchdog timeout");
        return;
    }
    if (!needs_keepalive(h) || !http2_is_over(h->read_ns, t->keepalive_ns, now_ns))
        return;
    h->ping_ns = now_ns;
    h->n_pings++;
    send_ping(h, keepalive_opaque);
}

/* ---- PINGs of the client -------------------------------------------------------------------- */

bool http2_ping_came(struct http2 *h)
{
    const struct http2_times *t = h->env->times;
    uint64_t now_ns = http2_now_ns(h), last_ns = h->pinged_ns;
    bool is_idle = h->n_open == 0 && !t->keepalive_without_streams;
    uint64_t interval_ns = is_idle ? t->min_idle_ping_interval_ns : t->min_ping_interval_ns;
    h->pinged_ns = now_ns;
    if (last_ns == 0 || now_ns - last_ns >= interval_ns || t->max_ping_strikes == 0)
        return true;
    if (++h->n_strikes <= t->max_ping_strikes)
        return true;
    h->calm = true;
    http2_note_fault(h, HTTP2_ENHANCE_YOUR_CALM, "too_many_pings");
    return false;
}

/* ---- The orderly end ------------------------------------------------------------------------ */

void http2_begin_drain(struct http2 *h, const char *text)
{
    if (h->drain != DRAIN_NONE || h->failed)
        return;
    h->drain_ns = http2_now_ns(h);
    h->drain = DRAIN_NOTICED;
    h->drain_text = text;
    http2_check_submit(h, nghttp2_submit_shutdown_notice(h->ng));
    send_ping(h, drain_opaque);
}

static void end_drain(struct http2 *h)
{
    h->drain = DRAIN_LAST;
    h->drain_ns = http2_now_ns(h);
    int32_t last = nghttp2_session_get_last_proc_stream_id(h->ng);
    http2_check_submit(h, nghttp2_submit_goaway(h->ng, NGHTTP2_FLAG_NONE, last, NGHTTP2_NO_ERROR,
                                                (const uint8_t *)h->drain_text,
                                                strlen(h->drain_text)));
}

void http2_ping_acked(struct http2 *h, const uint8_t opaque[8])
{
    if (h->drain == DRAIN_NOTICED && memcmp(opaque, drain_opaque, sizeof(drain_opaque)) == 0)
        end_drain(h);
}

static void check_age(struct http2 *h, uint64_t now_ns)
{
    const struct http2_times *t = h->env->times;
    if (h->drain == DRAIN_NONE && http2_is_over(h->began_ns, h->max_age_ns, now_ns)) {
        h->aged = true;
        http2_begin_drain(h, "max_age");
    }
    if (h->drain == DRAIN_NOTICED && http2_is_over(h->drain_ns, t->notice_ns, now_ns))
        end_drain(h);
    if (h->aged && http2_is_over(h->began_ns, h->max_age_ns + t->age_grace_ns, now_ns) &&
        t->age_grace_ns > 0)
        http2_fail(h, HTTP2_NO_ERROR, "max_age_grace");
}

/* Forgets the head of a client that sent none since the last look: an idle connection is small. */
static void forget_old_head(struct http2 *h)
{
    if (h->n_open == 0 && h->n_begun == h->n_begun_before && !h->walk.in_head)
        http2_forget_heads(h);
    h->n_begun_before = h->n_begun;
}

void http2_check_time(struct http2 *h, uint64_t now_ns)
{
    if (h->failed)
        return;
    forget_old_head(h);
    if (!h->settings_acked && h->settings_received &&
        http2_is_over(h->began_ns, h->env->times->settings_ns, now_ns)) {
        http2_fail(h, HTTP2_SETTINGS_TIMEOUT, "SETTINGS were not acknowledged");
        return;
    }
    http2_check_streams(h, now_ns);
    check_keepalive(h, now_ns);
    if (!h->failed)
        check_age(h, now_ns);
}

/* The time at which the limit is over; UINT64_MAX: never. */
static uint64_t find_end(uint64_t since_ns, uint64_t limit_ns)
{
    if (limit_ns == 0 || limit_ns > UINT64_MAX - since_ns)
        return UINT64_MAX;
    return since_ns + limit_ns;
}

uint64_t http2_get_next_ns(const struct session *session)
{
    const struct http2 *h = (const struct http2 *)(const void *)session;
    const struct http2_times *t = h->env->times;
    uint64_t next_ns = UINT64_MAX;
    if (h->failed)
        return next_ns;
    if (h->ping_ns > 0)
        next_ns = find_end(h->ping_ns, t->keepalive_timeout_ns);
    else if (needs_keepalive(h))
        next_ns = find_end(h->read_ns, t->keepalive_ns);
    if (h->drain == DRAIN_NONE)
        next_ns = MIN(next_ns, find_end(h->began_ns, h->max_age_ns));
    if (h->drain == DRAIN_NOTICED)
        next_ns = MIN(next_ns, find_end(h->drain_ns, t->notice_ns));
    if (h->aged && t->age_grace_ns > 0)
        next_ns = MIN(next_ns, find_end(h->began_ns, h->max_age_ns + t->age_grace_ns));
    return next_ns;
}
