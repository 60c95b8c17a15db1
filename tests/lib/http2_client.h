/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An HTTP/2 client in memory: a client session of nghttp2 against a session of http2_driver.h.
 * h2c_pump() carries bytes both ways until neither side has more.
 */
#ifndef CONCH_TESTS_LIB_HTTP2_CLIENT_H
#define CONCH_TESTS_LIB_HTTP2_CLIENT_H

#include <nghttp2/nghttp2.h>

#include "lib/http2_driver.h"

enum { H2C_MAX_STREAMS = 4096 };

struct h2c_stream {
    int32_t id;
    /* The request. */
    const char *body;
    size_t n_body, n_sent;
    size_t n_allowed; /* of the body; the rest waits for h2c_allow() */
    /* The answer. */
    char status[4];
    char head[1024]; /* its fields without the status, and those of trailers: "name=value;…" */
    char trailers[1024];
    char *data;
    size_t n_data, capacity;
    bool head_came, ended, closed;
    uint32_t close_code;
};

struct h2_client {
    struct h2_driver *d;
    nghttp2_session *ng;
    struct h2c_stream streams[H2C_MAX_STREAMS];
    unsigned int n_streams;
    char *wire; /* the bytes sent so far, for tests that send them again */
    size_t n_wire, wire_capacity;
    size_t n_unfed; /* at the end of `wire`, not fed yet */
    size_t portion; /* bytes per feed; 0: all */
    unsigned int n_goaways, n_pings, n_acks, n_settings;
    uint32_t goaway_code;
    int32_t goaway_last;
    char goaway_text[128];
    uint8_t ping[8];
    int error; /* an error of nghttp2 in the server's bytes */
};

static inline struct h2c_stream *h2c_find(struct h2_client *c, int32_t id)
{
    return nghttp2_session_get_stream_user_data(c->ng, id);
}

static inline int h2c_on_header(nghttp2_session *ng, const nghttp2_frame *frame,
                                const uint8_t *name, size_t n_name, const uint8_t *value,
                                size_t n_value, uint8_t flags, void *arg)
{
    struct h2c_stream *s = h2c_find(arg, frame->hd.stream_id);
    (void)ng, (void)flags;
    if (!s)
        return 0;
    if (n_name == 7 && memcmp(name, ":status", 7) == 0)
        snprintf(s->status, sizeof(s->status), "%.*s", (int)n_value, (const char *)value);
    if (n_name != 7 || memcmp(name, ":status", 7) != 0) {
        bool is_head = frame->headers.cat != NGHTTP2_HCAT_HEADERS;
        char *fields = is_head ? s->head : s->trailers;
        size_t used = strlen(fields);
        snprintf(fields + used, sizeof(s->trailers) - used, "%.*s=%.*s;", (int)n_name,
                 (const char *)name, (int)n_value, (const char *)value);
    }
    return 0;
}

static inline int h2c_on_data(nghttp2_session *ng, uint8_t flags, int32_t id, const uint8_t *bytes,
                              size_t n_bytes, void *arg)
{
    struct h2c_stream *s = h2c_find(arg, id);
    (void)ng, (void)flags;
    if (s->n_data + n_bytes > s->capacity) {
        s->capacity = (s->n_data + n_bytes) * 2;
        s->data = realloc(s->data, s->capacity);
    }
    memcpy(s->data + s->n_data, bytes, n_bytes);
    s->n_data += n_bytes;
    return 0;
}

static inline int h2c_on_frame(nghttp2_session *ng, const nghttp2_frame *frame, void *arg)
{
    struct h2_client *c = arg;
    struct h2c_stream *s = h2c_find(c, frame->hd.stream_id);
    (void)ng;
    switch (frame->hd.type) {
    case NGHTTP2_HEADERS:
        s->head_came = true;
        s->ended |= (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0;
        break;
    case NGHTTP2_DATA:
        s->ended |= (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0;
        break;
    case NGHTTP2_SETTINGS:
        c->n_settings++;
        break;
    case NGHTTP2_PING:
        if (frame->hd.flags & NGHTTP2_FLAG_ACK)
            c->n_acks++;
        else
            c->n_pings++;
        break;
    case NGHTTP2_GOAWAY:
        c->n_goaways++;
        c->goaway_code = frame->goaway.error_code;
        c->goaway_last = frame->goaway.last_stream_id;
        snprintf(c->goaway_text, sizeof(c->goaway_text), "%.*s", (int)frame->goaway.opaque_data_len,
                 (const char *)frame->goaway.opaque_data);
        break;
    default:
        break;
    }
    return 0;
}

static inline int h2c_on_close(nghttp2_session *ng, int32_t id, uint32_t code, void *arg)
{
    struct h2c_stream *s = h2c_find(arg, id);
    (void)ng;
    s->closed = true;
    s->close_code = code;
    return 0;
}

static inline ssize_t h2c_read_body(nghttp2_session *ng, int32_t id, uint8_t *buffer, size_t max,
                                    uint32_t *flags, nghttp2_data_source *source, void *arg)
{
    struct h2c_stream *s = h2c_find(arg, id);
    (void)ng, (void)source;
    size_t left = (s->n_allowed < s->n_body ? s->n_allowed : s->n_body) - s->n_sent;
    size_t n = left < max ? left : max;
    memcpy(buffer, s->body + s->n_sent, n);
    s->n_sent += n;
    if (s->n_sent == s->n_body && s->n_allowed > s->n_body)
        *flags |= NGHTTP2_DATA_FLAG_EOF;
    else if (n == 0)
        return NGHTTP2_ERR_DEFERRED;
    return (ssize_t)n;
}

enum { H2C_NO_WINDOW = 1 }; /* streams that get a window only by WINDOW_UPDATEs of the test */

/* h2c_init - makes a client whose streams have that window; 0: the default. */
static inline void h2c_init(struct h2_client *c, struct h2_driver *d, uint32_t window)
{
    memset(c, 0, sizeof(*c));
    c->d = d;
    nghttp2_session_callbacks *callbacks;
    nghttp2_option *option;
    nghttp2_session_callbacks_new(&callbacks);
    nghttp2_option_new(&option);
    nghttp2_option_set_peer_max_concurrent_streams(option, 100000);
    nghttp2_option_set_no_auto_window_update(option, window == H2C_NO_WINDOW);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, h2c_on_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, h2c_on_data);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, h2c_on_frame);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, h2c_on_close);
    nghttp2_session_client_new2(&c->ng, callbacks, c, option);
    nghttp2_session_callbacks_del(callbacks);
    nghttp2_option_del(option);
    nghttp2_settings_entry entry = {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE,
                                    window == H2C_NO_WINDOW ? 0 : window};
    nghttp2_submit_settings(c->ng, 0, &entry, window ? 1 : 0);
}

static inline void h2c_done(struct h2_client *c)
{
    for (unsigned int i = 0; i < H2C_MAX_STREAMS; i++)
        free(c->streams[i].data);
    free(c->wire);
    nghttp2_session_del(c->ng);
}

/* h2c_collect - appends the client's output to c->wire. Returns the number of bytes. */
static inline size_t h2c_collect(struct h2_client *c)
{
    const uint8_t *bytes;
    ssize_t n;
    size_t all = 0;
    while ((n = nghttp2_session_mem_send(c->ng, &bytes)) > 0) {
        if (c->n_wire + (size_t)n > c->wire_capacity) {
            c->wire_capacity = (c->n_wire + (size_t)n) * 2;
            c->wire = realloc(c->wire, c->wire_capacity);
        }
        memcpy(c->wire + c->n_wire, bytes, (size_t)n);
        c->n_wire += (size_t)n;
        all += (size_t)n;
    }
    c->n_unfed += all;
    return all;
}

/* h2c_read - gives the server's output to the client. */
static inline void h2c_read(struct h2_client *c)
{
    struct h2_driver *d = c->d;
    if (d->n_out > 0 && c->error == 0) {
        ssize_t n = nghttp2_session_mem_recv(c->ng, (const uint8_t *)d->out, d->n_out);
        if (n < 0)
            c->error = (int)n;
    }
    d->n_out = 0;
}

/* h2c_pump - carries bytes both ways until neither side has more. */
static inline void h2c_pump(struct h2_client *c)
{
    bool moves = true;
    while (moves) {
        moves = h2c_collect(c) > 0;
        while (c->n_unfed > 0) {
            size_t n = c->portion && c->portion < c->n_unfed ? c->portion : c->n_unfed;
            size_t fed = h2_feed(c->d, c->wire + c->n_wire - c->n_unfed, n);
            c->n_unfed -= fed;
            if (fed == 0)
                break;
            if (c->portion)
                h2_flush(c->d);
        }
        moves |= h2_flush(c->d) > 0 || c->d->n_out > 0;
        h2c_read(c);
    }
}

static inline nghttp2_nv h2c_nv(const char *name, const char *value)
{
    return (nghttp2_nv){(uint8_t *)(uintptr_t)name, (uint8_t *)(uintptr_t)value, strlen(name),
                        strlen(value), 0};
}

/*
 * h2c_request - sends a request with n_extra further headers and the first n_allowed bytes of the
 * body. SIZE_MAX: sends all and the end.
 */
static inline struct h2c_stream *h2c_request(struct h2_client *c, const char *path,
                                             const char *body, size_t n_body, size_t n_allowed,
                                             const nghttp2_nv *extra, size_t n_extra)
{
    nghttp2_nv nvs[64] = {h2c_nv(":method", "POST"), h2c_nv(":scheme", "http"),
                          h2c_nv(":authority", "test"), h2c_nv(":path", path)};
    memcpy(nvs + 4, extra, n_extra * sizeof(*extra));
    nghttp2_data_provider provider = {.read_callback = h2c_read_body};
    struct h2c_stream *s = &c->streams[c->n_streams];
    free(s->data); /* of an earlier request in the same place */
    *s = (struct h2c_stream){.body = body, .n_body = n_body, .n_allowed = n_allowed};
    s->id = nghttp2_submit_request(c->ng, NULL, nvs, 4 + n_extra,
                                   n_body == 0 && n_allowed > 0 ? NULL : &provider, s);
    c->n_streams++;
    return s;
}

/* h2c_post - the same without further headers, and all of the body. */
static inline struct h2c_stream *h2c_post(struct h2_client *c, const char *path, const char *body,
                                          size_t n_body)
{
    static const nghttp2_nv none[1];
    return h2c_request(c, path, body, n_body, SIZE_MAX, none, 0);
}

/* h2c_allow - allows more of a body to be sent. SIZE_MAX: all and the end. With n_body the client
 * sends all of the body and not the end, so that the server goes on waiting. */
static inline void h2c_allow(struct h2_client *c, struct h2c_stream *s, size_t n_allowed)
{
    s->n_allowed = n_allowed;
    nghttp2_session_resume_data(c->ng, s->id);
}

static inline void h2c_reset(struct h2_client *c, struct h2c_stream *s, uint32_t code)
{
    nghttp2_submit_rst_stream(c->ng, 0, s->id, code);
}

#endif
