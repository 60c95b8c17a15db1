/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The functions that the connection calls: bytes in, bytes out, states, ends. Read process_input()
 * first. http2_priv.h says what the other files do.
 *
 * nghttp2 parses and makes frames. It answers a broken rule with a GOAWAY of its own. Faults that
 * we find (floods, no memory, a time that is over) and faults that leave nghttp2 unusable end in a
 * GOAWAY that http2_fail() writes by hand, into memory that the session has for it. After that
 * nothing is read and all streams are cancelled.
 *
 * Thread: the loop's. Handlers call back into the session from inside http2_deliver(). A failure
 * there is noted (http2_note_fault()), and fails the session at the end of the connection's call.
 */
#include "frontends/net/http2.h"

#include <string.h>

#include "base/budget.h"
#include "base/log.h"
#include "base/loop.h"
#include "base/mem.h"
#include "base/pool.h"
#include "frontends/net/http2_priv.h"

/* The first member is the session. */
static struct http2 *get_http2(struct session *session)
{
    return (struct http2 *)(void *)session;
}

static const struct http2 *get_const(const struct session *session)
{
    return (const struct http2 *)(const void *)session;
}

/* ---- Limits --------------------------------------------------------------------------------- */

void http2_limits_init(struct http2_limits *limits)
{
    *limits = (struct http2_limits){
        .max_streams = 1024,
        .max_header_bytes = 16 << 10,
        .max_continuations = 8,
        .header_table_bytes = 4096,
        .max_state_bytes = 4 << 20,
        .stream_window_bytes = 1 << 20,
        .connection_window_bytes = 16 << 20,
        .short_window_bytes = 65535,
        .commit_bytes = 1 << 20,
        .room_bytes = 32 << 20,
        .wastes =
            {
                [HTTP2_WASTE_RESET] = {1000, 2048}, /* a client may give up all its calls at once */
                [HTTP2_WASTE_PING] = {100, 200},
                [HTTP2_WASTE_WINDOW] = {10000, 20000},
                [HTTP2_WASTE_SETTINGS] = {10, 50},
                [HTTP2_WASTE_EMPTY] = {100, 1000},
                [HTTP2_WASTE_OTHER] = {1000, 2000},
            },
    };
}

void http2_times_init(struct http2_times *times)
{
    *times = (struct http2_times){
        .settings_ns = 60 * NS_PER_S,
        .stall_ns = 60 * NS_PER_S,
        .min_rate = 1024,
        .rate_ns = 30 * NS_PER_S,
        .turn_ns = 60 * NS_PER_S,
        .keepalive_ns = 7200 * NS_PER_S,
        .keepalive_timeout_ns = 20 * NS_PER_S,
        .max_pings_without_data = 2,
        .min_ping_interval_ns = 300 * NS_PER_S,
        .min_idle_ping_interval_ns = 7200 * NS_PER_S,
        .max_ping_strikes = 2,
        .notice_ns = NS_PER_S,
    };
}

/* ---- The environment of a loop's sessions --------------------------------------------------- */

static bool fill_shared(struct http2_shared *shared, const struct http2_limits *limits)
{
    if (nghttp2_session_callbacks_new(&shared->callbacks) != 0 ||
        nghttp2_option_new(&shared->options) != 0)
        return false;
    http2_set_receive_callbacks(shared->callbacks);
    http2_set_send_callbacks(shared->callbacks);

    nghttp2_option *o = shared->options;
    nghttp2_option_set_no_auto_window_update(o, 1);
    nghttp2_option_set_no_closed_streams(o, 1);
    nghttp2_option_set_no_http_messaging(o, 1); /* ours: http2_rules.c */
    nghttp2_option_set_max_deflate_dynamic_table_size(o, limits->header_table_bytes);
    nghttp2_option_set_max_continuations(o, limits->max_continuations);
    nghttp2_option_set_stream_reset_rate_limit(o, 1u << 30, 1u << 30); /* ours: http2_waste.c */
    return true;
}

static void free_shared(struct http2_shared *shared)
{
    nghttp2_session_callbacks_del(shared->callbacks);
    nghttp2_option_del(shared->options);
    http2_slab_done(&shared->slab);
    mem_free(shared);
}

static void free_http2_env(struct net_env *net)
{
    struct http2_env *env = (struct http2_env *)(void *)net;
    free_shared(env->shared);
    mem_free(env);
}

static struct net_env *new_http2_env(const struct net_env *members, const void *settings)
{
    const struct http2_settings *given = settings;
    struct http2_env *env = mem_alloc(sizeof(*env));
    *env = (struct http2_env){
        .net = *members,
        .handler = given->handler,
        .limits = &given->limits,
        .times = &given->times,
        .now_ns = given->now_ns ? given->now_ns : &members->loop->now_ns,
        .shared = mem_zalloc(sizeof(*env->shared)),
    };
    http2_slab_init(&env->shared->slab, members->pool);
    list_init(&env->shared->turns);
    /* Not the loop's time: the loop may be running, for another service. */
    env->shared->seed = given->now_ns ? *given->now_ns : monotonic_ns();
    if (fill_shared(env->shared, env->limits))
        return &env->net;
    free_http2_env(&env->net);
    return NULL;
}

static void trim_shared(struct net_env *net)
{
    http2_slab_trim(&((struct http2_env *)(void *)net)->shared->slab);
}

static bool settle_shared(struct net_env *net)
{
    trim_shared(net);
    return true;
}

/* ---- Faults --------------------------------------------------------------------------------- */

static void put_goaway_number(char *at, uint32_t n)
{
    for (int i = 0; i < 4; i++)
        at[i] = (char)(n >> (24 - 8 * i));
}

/* Queues a GOAWAY that nghttp2 does not make (RFC 9113, 6.8). */
static void add_goaway(struct http2 *h, enum http2_error code, const char *text)
{
    size_t length = MIN(strlen(text), (size_t)GOAWAY_TEXT);
    int32_t last = h->ng ? nghttp2_session_get_last_proc_stream_id(h->ng) : 0;
    memset(h->goaway, 0, FRAME_HEAD);
    h->goaway[2] = (char)(8 + length);
    h->goaway[3] = NGHTTP2_GOAWAY;
    put_goaway_number(h->goaway + FRAME_HEAD, (uint32_t)last);
    put_goaway_number(h->goaway + FRAME_HEAD + 4, (uint32_t)code);
    memcpy(h->goaway + FRAME_HEAD + 8, text, length);
    h->goaway_piece = (struct out_piece){.bytes = h->goaway, .n_bytes = FRAME_HEAD + 8 + length};
    http2_add_raw(h, &h->goaway_piece);
}

static void drop_held_input(struct http2 *h)
{
    pool_release(TAKE(h->held));
    h->n_held = 0;
}

void http2_fail(struct http2 *h, enum http2_error code, const char *text)
{
    if (h->failed)
        return;
    if (h->calm) {
        net_count(&h->env->net.counts, NET_REFUSED_WASTE, 1);
        log_warn("connection of a client closed, HTTP/2: %s", text);
    }
    h->failed = true;
    h->session.discards = true;
    http2_commit(h); /* frames made so far, at least our SETTINGS, go first */
    if (!h->broke_off)
        add_goaway(h, code, text);
    drop_held_input(h);
    http2_cancel_all(h, code == HTTP2_NO_ERROR ? HTTP2_CANCEL : code);
    h->session.on_output(&h->session);
}

void http2_fail_by(struct http2 *h, int error)
{
    switch (error) {
    case NGHTTP2_ERR_BAD_CLIENT_MAGIC:
        http2_fail(h, HTTP2_PROTOCOL_ERROR, "this is not HTTP/2");
        break;
    case NGHTTP2_ERR_FLOODED:
        h->calm = true;
        http2_fail(h, HTTP2_ENHANCE_YOUR_CALM, "too many frames to acknowledge");
        break;
    case NGHTTP2_ERR_NOMEM:
        http2_fail(h, HTTP2_INTERNAL_ERROR, "out of memory");
        break;
    case NGHTTP2_ERR_TOO_MANY_CONTINUATIONS:
        h->calm = true;
        http2_fail(h, HTTP2_ENHANCE_YOUR_CALM, "too many CONTINUATION frames");
        break;
    default:
        http2_fail(h, HTTP2_INTERNAL_ERROR, "internal error");
        break;
    }
}

void http2_note_fault(struct http2 *h, enum http2_error code, const char *text)
{
    if (h->fault_text)
        return;
    h->fault = code;
    h->fault_text = text;
}

/*
 * Ends each call of the connection: delivers the notes, and fails the session when a fault was
 * noted.
 */
static void finish_call(struct http2 *h)
{
    do {
        http2_deliver(h);
        if (UNLIKELY(h->env->shared->turns_due))
            http2_env_give_turns(h->env);
        if (h->fault_text && !h->failed)
            http2_fail(h, h->fault, h->fault_text);
    } while (!list_empty(&h->noted));
}

/* ---- Begin and end -------------------------------------------------------------------------- */

static bool submit_settings(struct http2 *h)
{
    const struct http2_limits *l = h->env->limits;
    nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, l->max_streams},
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, (uint32_t)h->stream_window_bytes},
        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, (uint32_t)l->max_header_bytes},
        {NGHTTP2_SETTINGS_HEADER_TABLE_SIZE, (uint32_t)l->header_table_bytes},
    };
    return nghttp2_submit_settings(h->ng, NGHTTP2_FLAG_NONE, settings, ARRAY_SIZE(settings)) == 0;
}

static void begin_http2(struct session *session, struct net_env *net)
{
    struct http2 *h = get_http2(session);
    struct http2_env *env = (struct http2_env *)(void *)net;
    const struct http2_limits *l = env->limits;
    bool is_short = net->budget && budget_lacks(net->budget, *env->now_ns);

    h->env = env;
    list_init(&h->streams);
    list_init(&h->noted);
    list_init(&h->awaits_room);
    list_init(&h->awaits_iteration);
    h->stream_window_bytes = is_short ? l->short_window_bytes : l->stream_window_bytes;
    h->window_bytes = is_short ? l->short_window_bytes : l->connection_window_bytes;
    http2_begin_walk(h);
    http2_begin_times(h);
    http2_memory_init(&h->memory, &env->shared->slab, l->max_state_bytes);
    int error = nghttp2_session_server_new3(&h->ng, env->shared->callbacks, h, env->shared->options,
                                            &h->memory.functions);
    /* Nothing is sent before the client's first bytes have come, so that one write carries our
     * SETTINGS and the first answers. A session that got no memory is over. */
    h->failed = error != 0 || !submit_settings(h) || !http2_begin_windows(h);
    if (h->failed)
        session->on_output(session); /* so that the connection sees it */
}

static void abort_http2(struct session *session)
{
    struct http2 *h = get_http2(session);
    struct list *link;
    h->failed = true;
    http2_cancel_all(h, HTTP2_CANCEL);
    out_queue_drop(&session->out);
    http2_deliver(h);
    http2_forget_heads(h);
    while ((link = list_pop(&h->streams)))
        LIST_ENTRY(link, struct http2_stream, link)->http2 = NULL;
    drop_held_input(h);
    nghttp2_session_del(TAKE(h->ng));
}

/* ---- Reading -------------------------------------------------------------------------------- */

static bool wants_http2_input(const struct session *session)
{
    const struct http2 *h = get_const(session);
    return !h->failed && !h->held;
}

static int get_http2_space(struct session *session, struct iovec space[2])
{
    const struct http2 *h = get_http2(session);
    if (!wants_http2_input(session))
        return 0;
    space[0] = (struct iovec){h->env->net.scratch, h->env->net.scratch_bytes};
    return 1;
}

/* Keeps bytes for a later iteration, which may begin more requests. */
static void hold_input(struct http2 *h, const char *bytes, size_t n_bytes)
{
    char *held = pool_alloc(h->env->net.pool, n_bytes, NULL);
    if (!held) {
        http2_note_fault(h, HTTP2_INTERNAL_ERROR, "out of memory");
        return;
    }
    memcpy(held, bytes, n_bytes); /* other connections use the scratch buffer meanwhile */
    h->held = held;
    h->n_held = n_bytes;
    h->session.paused = true;
}

/*
 * Resets a stream that got DATA after its end. nghttp2 would ignore such DATA, since it has
 * forgotten the stream.
 */
static void answer_late_frame(struct http2 *h)
{
    int32_t id = (int32_t)h->walk.late_id;
    h->walk.late_id = 0;
    if (id > 0)
        http2_check_submit(
            h, nghttp2_submit_rst_stream(h->ng, NGHTTP2_FLAG_NONE, id, NGHTTP2_STREAM_CLOSED));
}

/*
 * Has nghttp2 read up to its next pause, and delivers the events. Returns the number of bytes read.
 */
static size_t process_portion(struct http2 *h, const char *bytes, size_t n_bytes)
{
    h->segments_full = false;
    ssize_t n = nghttp2_session_mem_recv(h->ng, (const uint8_t *)bytes, n_bytes);
    http2_deliver(h);
    h->env->shared->n_segments = 0;
    if (n < 0 && !h->fault_text)
        http2_fail_by(h, (int)n);
    return n < 0 ? n_bytes : (size_t)n;
}

static void process_input(struct http2 *h, const char *bytes, size_t n_bytes)
{
    while (!h->failed && !h->fault_text) {
        if (UNLIKELY(http2_requests_left(h) == 0)) {
            hold_input(h, bytes, n_bytes);
            return;
        }
        size_t n = process_portion(h, bytes, n_bytes);
        bytes += n;
        n_bytes -= n;
        if (n_bytes == 0 && !h->segments_full)
            break;
    }
    if (!h->failed && h->walk.late_id != 0)
        answer_late_frame(h);
    http2_refill(h);
}

/*
 * Calls on_output() when there are frames to send. Calls it also when the session is over without
 * further output, as after the client's GOAWAY, so that the connection sees that.
 */
static void want_output(struct http2 *h)
{
    if (!h->failed && (nghttp2_session_want_write(h->ng) || !nghttp2_session_want_read(h->ng)))
        h->session.on_output(&h->session);
}

static void take_http2_input(struct session *session, size_t n_bytes)
{
    struct http2 *h = get_http2(session);
    const char *bytes = h->env->net.scratch;
    if (h->failed) {
        session->on_output(session); /* so that the connection sees that the session is over */
        return;
    }
    h->has_input = true;
    h->read_ns = http2_now_ns(h);
    h->ping_ns = 0;
    if (http2_walk_frames(h, bytes, n_bytes))
        process_input(h, bytes, n_bytes);
    finish_call(h);
    want_output(h);
}

/* Tells streams that a new iteration may begin requests. */
static void tell_iteration(struct http2 *h)
{
    struct list *link;
    while ((link = list_pop(&h->awaits_iteration)))
        http2_note(LIST_ENTRY(link, struct http2_stream, room), NOTE_ROOM);
}

static void resume_http2(struct session *session)
{
    struct http2 *h = get_http2(session);
    char *held = TAKE(h->held);
    size_t n_held = h->n_held;
    session->paused = false;
    if (LIKELY(!held && list_empty(&h->awaits_iteration)))
        return;
    tell_iteration(h);
    http2_deliver(h); /* what came earlier is handled first */
    if (held)
        process_input(h, held, n_held);
    finish_call(h);
    pool_release(held);
    want_output(h);
}

/*
 * A client that closed its sending side gives no window and acknowledges nothing, so it counts as
 * gone.
 */
static void end_http2_input(struct session *session)
{
    struct http2 *h = get_http2(session);
    h->failed = true;
    http2_cancel_all(h, HTTP2_CANCEL);
    out_queue_drop(&session->out);
    http2_deliver(h);
}

static uint64_t get_body_left(const struct session *session)
{
    return 0; /* frames stand in between */
}

/* ---- Writing -------------------------------------------------------------------------------- */

static void tell_room(struct http2 *h)
{
    struct list *link;
    if (LIKELY(list_empty(&h->awaits_room)) || http2_unsent(h) > h->env->limits->room_bytes)
        return;
    while ((link = list_pop(&h->awaits_room)))
        http2_note(LIST_ENTRY(link, struct http2_stream, room), NOTE_ROOM);
}

static void queue_http2_output(struct session *session)
{
    struct http2 *h = get_http2(session);
    if (!h->failed) {
        http2_commit(h);
        tell_room(h);
    }
    finish_call(h);
}

/* ---- States --------------------------------------------------------------------------------- */

static bool is_http2_over(const struct session *session)
{
    const struct http2 *h = get_const(session);
    if (session->out.first || h->held)
        return false;
    return h->failed || (!nghttp2_session_want_read(h->ng) && !nghttp2_session_want_write(h->ng));
}

static bool is_http2_idle(const struct session *session)
{
    const struct http2 *h = get_const(session);
    return h->n_open == 0 && !session->out.first && !h->held && !h->walk.in_head;
}

/*
 * Never reports INPUT_BODY: the session itself checks and weighs its streams' messages
 * (http2_pace.c).
 */
static void tell_input(const struct session *session, struct session_input *ret_input)
{
    const struct http2 *h = get_const(session);
    bool in_preface = h->has_input && !h->settings_received;
    *ret_input = (struct session_input){
        .kind = !h->failed && (h->walk.in_head || in_preface) ? INPUT_HEAD : INPUT_NONE,
        .number = h->n_begun,
        .awaits_us = h->held != NULL,
        .is_only_one = h->n_open <= 1,
    };
}

static size_t weigh_http2(const struct session *session)
{
    const struct http2 *h = get_const(session);
    return h->weight_bytes + h->n_held + h->memory.used_bytes + http2_unsent(h);
}

/* ---- Ends ----------------------------------------------------------------------------------- */

static void refuse_http2(struct session *session, enum session_refusal why)
{
    struct http2 *h = get_http2(session);
    switch (why) {
    case REFUSAL_HEAD_TIME:
    case REFUSAL_BODY_TIME:
        http2_fail(h, HTTP2_ENHANCE_YOUR_CALM, "the request took too long");
        break;
    case REFUSAL_STOPPING:
        http2_fail(h, HTTP2_NO_ERROR, "the server is stopping");
        break;
    case REFUSAL_MEMORY:
        if (!h->failed)
            http2_relieve(h);
        break;
    }
    finish_call(h);
}

/* Has on_stop() called for the streams that are open. */
static void tell_stop(struct http2 *h)
{
    if (!h->env->handler->on_stop)
        return;
    LIST_FOR_EACH (link, &h->streams) {
        struct http2_stream *s = LIST_ENTRY(link, struct http2_stream, link);
        if (s->begun && !s->closed && !s->over)
            http2_note(s, NOTE_STOP);
    }
}

static void drain_http2(struct session *session)
{
    struct http2 *h = get_http2(session);
    if (!h->env->net.draining)
        return;
    http2_begin_drain(h, "the server is stopping");
    tell_stop(h);
    finish_call(h);
    want_output(h);
}

static void end_idle_http2(struct session *session)
{
    struct http2 *h = get_http2(session);
    http2_begin_drain(h, "max_idle");
    finish_call(h);
    want_output(h);
}

static void check_http2_time(struct session *session, uint64_t now_ns)
{
    struct http2 *h = get_http2(session);
    http2_check_time(h, now_ns);
    http2_env_give_turns(h->env);
    finish_call(h);
    want_output(h);
}

const struct protocol http2_protocol = {
    .session_bytes = sizeof(struct http2),
    .begin = begin_http2,
    .abort = abort_http2,
    .wants_input = wants_http2_input,
    .read_space = get_http2_space,
    .received = take_http2_input,
    .resume = resume_http2,
    .end_input = end_http2_input,
    .body_left = get_body_left,
    .queue_output = queue_http2_output,
    .is_over = is_http2_over,
    .is_idle = is_http2_idle,
    .get_input = tell_input,
    .weigh = weigh_http2,
    .get_burden = http2_get_burden,
    .refuse = refuse_http2,
    .drain = drain_http2,
    .end_idle = end_idle_http2,
    .check_time = check_http2_time,
    .get_next_ns = http2_get_next_ns,
    .env_new = new_http2_env,
    .env_free = free_http2_env,
    .settle = settle_shared,
    .trim = trim_shared,
};
