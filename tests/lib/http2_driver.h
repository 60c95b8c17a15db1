/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Drives an HTTP/2 session without a socket: bytes in, in any portions; frames out, in any
 * portions. The handler acts by the path of a stream:
 *
 *      /echo    the body comes back when it is complete, with the trailer n-bytes
 *      /later   the same, when the test calls h2_answer()
 *      /hold    the same, but the body is not taken: the window becomes smaller
 *      /sized   the first four bytes say how long the body is; it is expected, from 64 KiB on after
 *               a turn for h2_driver.memory_left; the answer is its hash
 *      /part    the first four bytes say how long a message is; more may follow, and all of them
 * are the answer /stream  what has come by then is the answer to the first bytes; the stream stays
 * open /big     the answer has h2_driver.big_bytes of zeros /early   the answer comes with the head
 * of the request /short   the answer is a head alone /reset   the stream is reset at once
 *
 * Shared by unit tests, fault tests and the fuzz target.
 */
#ifndef CONCH_TESTS_LIB_HTTP2_DRIVER_H
#define CONCH_TESTS_LIB_HTTP2_DRIVER_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/pool.h"
#include "base/status.h"
#include "frontends/net/http2.h"

enum { H2_MAX_WAITING = 4096, H2_TURN_BYTES = 64 << 10 };

struct h2_driver {
    struct http2_settings settings;
    struct http2_env *env;
    struct pool *pool;
    unsigned int requests_left;
    uint64_t now_ns;
    char scratch[256 << 10];
    struct session *session;

    char *big; /* zeros */
    size_t big_bytes;
    size_t memory_left;                           /* for /sized */
    size_t kept_bytes;                            /* of bodies */
    struct http2_stream *waiting[H2_MAX_WAITING]; /* of /later */
    unsigned int n_waiting;
    bool keeps; /* streams stay referenced until h2_let_go() */
    struct http2_stream *kept[H2_MAX_WAITING];
    unsigned int n_kept;

    unsigned int n_begun, n_complete, n_cancelled, n_ended, n_pieces, n_released, n_rooms,
        n_outputs;
    bool too_large;          /* the last head was */
    unsigned int n_repeated; /* heads that had a note of the handler's */
    enum http2_error cancel_code;
    char last_headers[1024];
    size_t max_pieces_at_once, n_writes;

    size_t max_send; /* bytes per write; 0: all */
    char *out;       /* the bytes that the session has sent */
    size_t n_out, out_capacity;
};

struct h2_part {
    struct h2_driver *d;
    char path[32];
    char *first; /* of /stream */
    char *body;  /* from malloc, so that sanitizers find a read beyond it */
    size_t n_body, capacity;
    size_t n_held;    /* of it not taken */
    uint32_t n_sized; /* 0: not known */
    bool granted, cancelled, ended;
    char text[64];
    struct http2_field trailer;
    struct out_piece pieces[3];
};

static inline uint32_t h2_hash(const char *bytes, size_t n_bytes)
{
    uint32_t hash = 2166136261u;
    for (size_t i = 0; i < n_bytes; i++)
        hash = (hash ^ (unsigned char)bytes[i]) * 16777619u;
    return hash;
}

static inline uint32_t h2_number(const char *at)
{
    const unsigned char *b = (const unsigned char *)at;
    return (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];
}

static inline struct h2_driver *h2_of(struct http2_stream *s)
{
    return http2_stream_env(s)->net.handler_ctx;
}

/* Checks that pieces are released before the stream ends. */
static inline void h2_release_piece(void *owner)
{
    struct h2_part *part = owner;
    if (part->ended)
        abort();
    part->d->n_released++;
}

static inline void h2_send(struct http2_stream *s, unsigned int i, const char *bytes,
                           size_t n_bytes)
{
    struct h2_part *part = http2_stream_part(s);
    if (n_bytes == 0)
        return;
    part->pieces[i] = (struct out_piece){
        .bytes = bytes, .n_bytes = n_bytes, .release = h2_release_piece, .owner = part};
    part->d->n_pieces++;
    http2_stream_send(s, &part->pieces[i]);
}

static inline void h2_respond(struct http2_stream *s)
{
    static const struct http2_field fields[] = {HTTP2_FIELD("content-type", "application/test")};
    http2_stream_respond(s, "200", fields, 1, false);
}

static inline void h2_end(struct http2_stream *s)
{
    struct h2_part *part = http2_stream_part(s);
    int n = snprintf(part->text, sizeof(part->text), "%zu", part->n_body);
    part->trailer = (struct http2_field){"n-bytes", part->text, 7, (size_t)n, true};
    http2_stream_end(s, &part->trailer, 1);
}

/* Sends the body in three pieces, a small one first. */
static inline void h2_echo(struct http2_stream *s)
{
    struct h2_part *part = http2_stream_part(s);
    const char *body = part->body ? part->body : "";
    size_t first = part->n_body < 5 ? part->n_body : 5, second = (part->n_body - first) / 2;
    h2_respond(s);
    h2_send(s, 0, body, first);
    h2_send(s, 1, body + first, second);
    h2_send(s, 2, body + first + second, part->n_body - first - second);
    h2_end(s);
}

static inline void h2_answer(struct h2_driver *d, unsigned int i)
{
    struct http2_stream *s = d->waiting[i];
    memmove(d->waiting + i, d->waiting + i + 1, (--d->n_waiting - i) * sizeof(s));
    h2_echo(s);
    http2_stream_unref(s);
}

static inline void h2_let_go(struct h2_driver *d)
{
    while (d->n_kept > 0)
        http2_stream_unref(d->kept[--d->n_kept]);
}

static inline void h2_on_begin(struct http2_stream *s, const struct http2_head *head)
{
    struct h2_driver *d = h2_of(s);
    struct h2_part *part = http2_stream_part(s);
    memset(part, 0, sizeof(*part));
    part->d = d;
    snprintf(part->path, sizeof(part->path), "%.*s", (int)head->path.length, head->path.at);
    d->n_begun++;
    d->too_large = head->is_too_large;
    if (head->note) { /* the hash of the path is the note */
        uint32_t hash = h2_hash(head->path.at, head->path.length) | 1, *note = head->note;
        if (*note != 0 && *note != hash)
            abort();
        d->n_repeated += *note != 0;
        *note = hash;
    }
    size_t at = 0;
    d->last_headers[0] = 0;
    for (size_t i = 0; i < head->n_headers && at < sizeof(d->last_headers); i++) {
        const struct http2_header *h = &head->headers[i];
        at += (size_t)snprintf(d->last_headers + at, sizeof(d->last_headers) - at, "%.*s=%.*s;",
                               (int)h->name.length, h->name.at, (int)h->value.length, h->value.at);
    }
    if (d->keeps && d->n_kept < H2_MAX_WAITING) {
        http2_stream_ref(s);
        d->kept[d->n_kept++] = s;
    }
    if (strcmp(part->path, "/short") == 0)
        http2_stream_respond(s, "404", NULL, 0, true);
    else if (strcmp(part->path, "/reset") == 0)
        http2_stream_reset(s, HTTP2_INTERNAL_ERROR);
    else if (strcmp(part->path, "/sized") == 0)
        http2_stream_sends_one(s);
    if (strcmp(part->path, "/early") == 0) {
        h2_respond(s);
        h2_end(s);
    }
}

static inline void h2_keep(struct h2_part *part, const char *bytes, size_t n_bytes)
{
    if (part->n_body + n_bytes > part->capacity) {
        part->capacity = (part->n_body + n_bytes) * 2;
        part->body = realloc(part->body, part->capacity);
    }
    memcpy(part->body + part->n_body, bytes, n_bytes);
    part->n_body += n_bytes;
    part->d->kept_bytes += n_bytes;
}

static inline void h2_drop_body(struct h2_part *part)
{
    part->d->kept_bytes -= part->n_body;
    free(part->body);
    part->body = NULL;
    part->n_body = 0;
}

static inline void h2_grant(struct http2_stream *s)
{
    struct h2_part *part = http2_stream_part(s);
    part->granted = true;
    http2_stream_take(s, part->n_held);
    part->n_held = 0;
    http2_stream_expect(s, part->n_sized - part->n_body);
}

static inline bool h2_on_turn(struct http2_stream *s, bool is_last)
{
    struct h2_driver *d = h2_of(s);
    struct h2_part *part = http2_stream_part(s);
    if (d->memory_left < part->n_sized) {
        if (is_last)
            http2_stream_respond(s, "503", NULL, 0, true);
        return false;
    }
    d->memory_left -= part->n_sized;
    h2_grant(s);
    return true;
}

static inline void h2_on_sized(struct http2_stream *s, struct h2_part *part)
{
    if (part->n_sized == 0 && part->n_body >= 4) {
        const unsigned char *b = (const unsigned char *)part->body;
        part->n_sized = (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];
        if (part->n_sized < part->n_body)
            part->n_sized = (uint32_t)part->n_body;
        if (part->n_sized <= H2_TURN_BYTES)
            h2_grant(s);
        else
            http2_stream_await_turn(s);
    }
}

/* A message that the client has to complete. */
static inline void h2_on_part(struct http2_stream *s, struct h2_part *part)
{
    http2_stream_set_incomplete(s, part->n_body < 4 || part->n_body < h2_number(part->body));
    http2_stream_weigh(s, part->n_body < 4 ? 0 : part->n_body);
}

static inline void h2_on_data(struct http2_stream *s, const char *bytes, size_t n_bytes)
{
    struct h2_part *part = http2_stream_part(s);
    if (!http2_stream_is_open(s) || n_bytes == 0)
        return;
    /* An exact copy, so that sanitizers find a read beyond it. */
    h2_keep(part, bytes, n_bytes);
    if (strcmp(part->path, "/sized") == 0) {
        part->n_held += part->granted ? 0 : n_bytes;
        h2_on_sized(s, part);
    } else if (strcmp(part->path, "/stream") == 0) {
        http2_stream_take(s, n_bytes);
        if (part->n_body == n_bytes) { /* the first bytes; a copy, since the body grows */
            part->first = malloc(n_bytes);
            memcpy(part->first, bytes, n_bytes);
            h2_respond(s);
            h2_send(s, 0, part->first, n_bytes);
        }
    } else if (strcmp(part->path, "/hold") != 0) {
        http2_stream_take(s, n_bytes);
        if (strcmp(part->path, "/part") == 0)
            h2_on_part(s, part);
    }
}

static inline void h2_on_half_close(struct http2_stream *s)
{
    struct h2_driver *d = h2_of(s);
    struct h2_part *part = http2_stream_part(s);
    d->n_complete++;
    d->requests_left -= d->requests_left > 0;
    if (!http2_stream_is_open(s))
        return;
    if (strcmp(part->path, "/stream") == 0) {
        h2_end(s);
        return;
    }
    if (strcmp(part->path, "/later") == 0 && d->n_waiting < H2_MAX_WAITING) {
        http2_stream_ref(s);
        d->waiting[d->n_waiting++] = s;
    } else if (strcmp(part->path, "/big") == 0) {
        h2_respond(s);
        h2_send(s, 0, d->big, d->big_bytes);
        h2_end(s);
    } else if (strcmp(part->path, "/sized") == 0) {
        int n = snprintf(part->text, sizeof(part->text), "%08x", h2_hash(part->body, part->n_body));
        h2_respond(s);
        h2_send(s, 0, part->text, (size_t)n);
        http2_stream_end(s, NULL, 0);
    } else {
        h2_echo(s);
    }
}

static inline void h2_on_cancel(struct http2_stream *s, enum http2_error why)
{
    struct h2_driver *d = h2_of(s);
    struct h2_part *part = http2_stream_part(s);
    if (part->cancelled || part->ended)
        abort();
    part->cancelled = true;
    if (strcmp(part->path, "/part") == 0)
        h2_drop_body(part);
    d->cancel_code = why;
    d->n_cancelled++;
}

static inline void h2_on_room(struct http2_stream *s)
{
    h2_of(s)->n_rooms++;
}

static inline void h2_on_end(struct http2_stream *s)
{
    struct h2_part *part = http2_stream_part(s);
    if (part->ended)
        abort();
    part->d->n_ended++;
    if (part->n_sized > H2_TURN_BYTES && part->granted)
        part->d->memory_left += part->n_sized;
    part->ended = true;
    free(part->first);
    h2_drop_body(part);
}

static const struct http2_handler h2_handler = {
    .part_bytes = sizeof(struct h2_part),
    .on_begin = h2_on_begin,
    .on_data = h2_on_data,
    .on_half_close = h2_on_half_close,
    .on_cancel = h2_on_cancel,
    .on_turn = h2_on_turn,
    .on_room = h2_on_room,
    .on_end = h2_on_end,
};

static inline void h2_on_output(struct session *s)
{
    struct http2_env *env =
        *(struct http2_env **)(void *)((char *)s + http2_protocol.session_bytes);
    ((struct h2_driver *)env->net.handler_ctx)->n_outputs++;
}

/* h2_init - sets the limits; h2_begin() makes a session with them, or with changed ones. */
static inline void h2_init(struct h2_driver *d)
{
    memset(d, 0, offsetof(struct h2_driver, scratch));
    memset((char *)d + offsetof(struct h2_driver, session), 0,
           sizeof(*d) - offsetof(struct h2_driver, session));
    d->now_ns = 1000 * NS_PER_S;
    http2_limits_init(&d->settings.limits);
    http2_times_init(&d->settings.times);
    d->settings.times.min_rate = 0; /* tests of the rate set it */
    d->memory_left = SIZE_MAX / 2;
    d->pool = pool_new("test", 64 << 20, 0);
}

/* The environment's address lies behind the session, for h2_on_output(). */
static inline void h2_begin_session(struct h2_driver *d)
{
    size_t bytes = http2_protocol.session_bytes;
    d->session = calloc(1, bytes + sizeof(struct http2_env *));
    *(struct http2_env **)(void *)((char *)d->session + bytes) = d->env;
    d->session->protocol = &http2_protocol;
    d->session->on_output = h2_on_output;
    http2_protocol.begin(d->session, &d->env->net);
}

static inline void h2_begin(struct h2_driver *d)
{
    struct net_env members = {.protocol = &http2_protocol,
                              .handler_ctx = d,
                              .pool = d->pool,
                              .scratch = d->scratch,
                              .scratch_bytes = sizeof(d->scratch),
                              .requests_left = &d->requests_left};
    d->settings.handler = &h2_handler;
    d->settings.now_ns = &d->now_ns;
    d->requests_left = UINT32_MAX;
    struct net_env *env = http2_protocol.env_new(&members, &d->settings);
    if (!env)
        abort();
    d->env = CONTAINER_OF(env, struct http2_env, net);
    h2_begin_session(d);
}

/* h2_flush - sends the output, at most max_bytes. Returns the number of bytes. */
static inline size_t h2_flush_some(struct h2_driver *d, size_t max_bytes)
{
    struct iovec pieces[512];
    size_t asked, all = 0;
    int n;
    http2_protocol.queue_output(d->session);
    while (all < max_bytes && (n = out_queue_gather(&d->session->out, pieces, 512, &asked)) > 0) {
        size_t room = max_bytes - all, sent = 0;
        if (d->max_send > 0 && d->max_send < room)
            room = d->max_send;
        if ((size_t)n > d->max_pieces_at_once)
            d->max_pieces_at_once = (size_t)n;
        d->n_writes++;
        for (int i = 0; i < n && room > 0; i++) {
            size_t k = pieces[i].iov_len < room ? pieces[i].iov_len : room;
            if (d->n_out + k > d->out_capacity) {
                d->out_capacity = (d->n_out + k) * 2;
                d->out = realloc(d->out, d->out_capacity);
            }
            memcpy(d->out + d->n_out, pieces[i].iov_base, k);
            d->n_out += k;
            sent += k;
            room -= k;
        }
        all += sent;
        out_queue_sent(&d->session->out, sent);
        http2_protocol.queue_output(d->session);
    }
    return all;
}

static inline size_t h2_flush(struct h2_driver *d)
{
    return h2_flush_some(d, SIZE_MAX);
}

struct h2_goaway {
    unsigned int n;
    uint32_t code;
    char text[128];
};

/* h2_scan - counts the frames of a type in the sent bytes, which begin with a frame. */
static inline unsigned int h2_scan(const struct h2_driver *d, char type, struct h2_goaway *goaway)
{
    unsigned int n = 0;
    for (size_t at = 0; at + 9 <= d->n_out;) {
        const char *f = d->out + at;
        size_t length = h2_number(f) >> 8;
        n += f[3] == type;
        if (f[3] == 7 && goaway) {
            goaway->n++;
            goaway->code = h2_number(f + 13);
            snprintf(goaway->text, sizeof(goaway->text), "%.*s", (int)length - 8, f + 17);
        }
        at += 9 + length;
    }
    return n;
}

/* h2_feed - gives bytes to the session while it wants input. Returns the number of bytes given. */
static inline size_t h2_feed(struct h2_driver *d, const void *bytes, size_t n_bytes)
{
    size_t fed = 0;
    struct iovec space[2];
    while (fed < n_bytes && http2_protocol.wants_input(d->session)) {
        if (http2_protocol.read_space(d->session, space) != 1)
            abort();
        size_t k = n_bytes - fed < space[0].iov_len ? n_bytes - fed : space[0].iov_len;
        memcpy(space[0].iov_base, (const char *)bytes + fed, k);
        http2_protocol.received(d->session, k);
        fed += k;
    }
    return fed;
}

static inline size_t h2_used_bytes(struct h2_driver *d)
{
    struct pool_stats stats;
    pool_stats(d->pool, &stats);
    return stats.used_bytes;
}

/* h2_end_session - ends the session as if its connection were gone. */
static inline void h2_end_session(struct h2_driver *d)
{
    http2_protocol.abort(d->session);
    free(d->session);
    d->session = NULL;
}

/* h2_done - ends everything. False: a stream or memory was not released. */
static inline bool h2_done(struct h2_driver *d)
{
    if (d->session)
        h2_end_session(d);
    while (d->n_waiting > 0)
        h2_answer(d, d->n_waiting - 1);
    h2_let_go(d);
    bool fine = d->n_begun == d->n_ended && d->n_pieces == d->n_released;
    unsigned int n_used = d->env->net.n_used;
    http2_protocol.env_free(&d->env->net);
    fine = fine && n_used == 0 && h2_used_bytes(d) == 0;
    if (!fine)
        fprintf(stderr, "begun %u, ended %u, pieces %u, released %u, used %u, %zu bytes\n",
                d->n_begun, d->n_ended, d->n_pieces, d->n_released, n_used, h2_used_bytes(d));
    pool_free(d->pool);
    free(d->out);
    free(d->big);
    return fine;
}

#endif
