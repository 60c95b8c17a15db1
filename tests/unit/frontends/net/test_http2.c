/* SPDX-License-Identifier: Apache-2.0 */
/* HTTP/2 sessions against nghttp2's client: requests, every split, resets, ends, memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "lib/http2_pair.h"

static void a_request_is_answered(void **state)
{
    (void)state;
    struct pair *p = begin_pair();
    nghttp2_nv extra[] = {h2c_nv("x-first", "1"), h2c_nv("x-empty", ""),
                          h2c_nv("x-first", "again")};
    struct h2c_stream *s = h2c_request(&p->c, "/echo", "hello", 5, SIZE_MAX, extra, 3);
    h2c_pump(&p->c);
    assert_string_equal(p->d.last_headers, "x-first=1;x-empty=;x-first=again;");
    assert_string_equal(s->status, "200");
    assert_int_equal(s->n_data, 5);
    assert_memory_equal(s->data, "hello", 5);
    assert_string_equal(s->trailers, "n-bytes=5;");
    assert_true(s->closed);
    assert_int_equal(s->close_code, HTTP2_NO_ERROR);
    assert_int_equal(p->d.n_ended, 1);
    assert_int_equal(p->d.n_cancelled, 0);
    end_pair(p);
}

/* Sends the requests of the splits; always the same bytes. */
static void send_requests(struct pair *p, const char *body, size_t n_body)
{
    nghttp2_nv extra[] = {h2c_nv("x-again", "value that is indexed"), h2c_nv("te", "trailers")};
    (void)h2c_post(&p->c, "/echo", "", 0);
    (void)h2c_post(&p->c, "/echo", body, n_body);
    for (size_t i = 0; i < 3; i++)
        (void)h2c_request(&p->c, "/echo", body, 7 + i, SIZE_MAX, extra, 2);
    (void)h2c_post(&p->c, "/short", body, 20);
    h2c_collect(&p->c);
    p->c.n_unfed = 0;
}

static void check_answers(struct pair *p, const char *body, size_t n_body)
{
    const size_t sizes[] = {0, n_body, 7, 8, 9};
    h2_flush(&p->d);
    h2c_read(&p->c);
    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
        const struct h2c_stream *s = &p->c.streams[i];
        assert_int_equal(s->n_data, sizes[i]);
        assert_memory_equal(s->data ? s->data : "", body, sizes[i]);
        assert_true(s->closed && s->close_code == 0);
    }
    assert_string_equal(p->c.streams[5].status, "404");
    assert_string_equal(p->d.last_headers, "");
    assert_int_equal(p->d.n_ended, 6);
    end_pair(p);
}

static void feed_copy(struct pair *p, size_t at, size_t n)
{
    char *copy = malloc(n + !n); /* an exact copy, so that sanitizers find a read beyond it */
    memcpy(copy, p->c.wire + at, n);
    assert_int_equal(h2_feed(&p->d, copy, n), n);
    free(copy);
}

static void every_split_of_the_input_gives_the_same_answers(void **state)
{
    (void)state;
    enum { N = 700 };
    char *body = make_letters(N);
    struct pair *p = begin_pair();
    send_requests(p, body, N);
    size_t n_sent = p->c.n_wire;
    end_pair(p);
    for (size_t portion = 1; portion < n_sent; portion += portion < 64 ? 1 : 61) {
        p = begin_pair();
        send_requests(p, body, N);
        for (size_t at = 0; at < n_sent; at += portion)
            feed_copy(p, at, n_sent - at < portion ? n_sent - at : portion);
        check_answers(p, body, N);
    }
    for (size_t at = 0; at <= n_sent; at++) {
        p = begin_pair();
        send_requests(p, body, N);
        feed_copy(p, 0, at);
        feed_copy(p, at, n_sent - at);
        check_answers(p, body, N);
    }
    free(body);
}

/* Many frames in one read: nghttp2 pauses when the segments are used up. */
static void many_streams_in_one_read_are_answered(void **state)
{
    (void)state;
    enum { N = 500 };
    struct pair *p = begin_pair();
    char *body = make_letters(N);
    for (size_t i = 0; i < N; i++)
        (void)h2c_post(&p->c, "/echo", body, i);
    h2c_pump(&p->c);
    for (size_t i = 0; i < N; i++) {
        assert_int_equal(p->c.streams[i].n_data, i);
        assert_true(p->c.streams[i].closed);
    }
    assert_int_equal(p->d.n_ended, N);
    free(body);
    end_pair(p);
}

static void a_body_in_tiny_frames_is_whole(void **state)
{
    (void)state;
    enum { N = 1000 };
    struct pair *p = begin_pair();
    char *body = make_letters(N);
    static const nghttp2_nv none[1];
    struct h2c_stream *s = h2c_request(&p->c, "/echo", body, N, 0, none, 0);
    for (size_t i = 1; i <= N; i++) { /* all in one read */
        h2c_allow(&p->c, s, i);
        h2c_collect(&p->c);
    }
    h2c_allow(&p->c, s, SIZE_MAX);
    h2c_pump(&p->c);
    assert_int_equal(s->n_data, N);
    assert_memory_equal(s->data, body, N);
    free(body);
    end_pair(p);
}

static void answers_may_come_later_in_any_order(void **state)
{
    (void)state;
    struct pair *p = begin_pair();
    for (int i = 0; i < 3; i++)
        (void)h2c_post(&p->c, "/later", "abc", (size_t)i + 1);
    h2c_pump(&p->c);
    assert_int_equal(p->d.n_waiting, 3);
    assert_false(p->c.streams[2].head_came);
    h2_answer(&p->d, 2);
    h2c_pump(&p->c);
    assert_int_equal(p->c.streams[2].n_data, 3);
    assert_false(p->c.streams[0].head_came);
    h2_answer(&p->d, 0);
    h2_answer(&p->d, 0);
    h2c_pump(&p->c);
    assert_true(p->c.streams[0].closed && p->c.streams[1].closed);
    end_pair(p);
}

static void other_answers(void **state)
{
    (void)state;
    struct pair *p = begin_pair();
    static const nghttp2_nv none[1];
    struct h2c_stream *alone = h2c_post(&p->c, "/short", "", 0);
    struct h2c_stream *early = h2c_request(&p->c, "/early", "hello", 5, 2, none, 0);
    struct h2c_stream *reset = h2c_post(&p->c, "/reset", "hello", 5);
    h2c_pump(&p->c);
    assert_string_equal(alone->status, "404");
    assert_true(alone->closed && alone->ended);
    /* The answer is complete, so RST_STREAM with NO_ERROR tells the client to stop. */
    assert_true(early->ended && early->closed);
    assert_int_equal(early->close_code, HTTP2_NO_ERROR);
    assert_true(reset->closed);
    assert_int_equal(reset->close_code, HTTP2_INTERNAL_ERROR);
    assert_int_equal(p->d.n_cancelled, 0);
    assert_int_equal(p->d.n_ended, 3);
    end_pair(p);
}

static void a_client_may_cancel_its_streams(void **state)
{
    (void)state;
    struct pair *p = begin_pair();
    static const nghttp2_nv none[1];
    struct h2c_stream *half = h2c_request(&p->c, "/echo", "hello", 5, 2, none, 0);
    struct h2c_stream *whole = h2c_post(&p->c, "/later", "hello", 5);
    h2c_pump(&p->c);
    assert_int_equal(p->d.n_begun, 2);
    h2c_reset(&p->c, half, HTTP2_CANCEL);
    h2c_pump(&p->c);
    assert_int_equal(p->d.n_cancelled, 1);
    assert_int_equal(p->d.cancel_code, HTTP2_CANCEL);
    h2c_reset(&p->c, whole, HTTP2_INTERNAL_ERROR);
    h2c_pump(&p->c);
    assert_int_equal(p->d.n_cancelled, 2);
    assert_int_equal(p->d.cancel_code, HTTP2_INTERNAL_ERROR);
    assert_int_equal(p->d.n_ended, 2);
    assert_int_equal(p->d.env->net.n_used, 1); /* the handler still has the request */
    h2_answer(&p->d, 0);                       /* the answer is dropped */
    h2c_pump(&p->c);
    assert_int_equal(p->d.env->net.n_used, 0);
    /* The connection goes on. */
    struct h2c_stream *next = h2c_post(&p->c, "/echo", "hello", 5);
    h2c_pump(&p->c);
    assert_true(next->closed && next->n_data == 5);
    end_pair(p);
}

/* The handler gets no event of a stream that is reset in the portion in which it begins. */
static void a_stream_reset_at_once_is_never_seen(void **state)
{
    (void)state;
    struct pair *p = begin_pair();
    static const nghttp2_nv none[1];
    h2c_pump(&p->c);
    struct h2c_stream *s = h2c_request(&p->c, "/later", "hello", 5, 5, none, 0);
    h2c_collect(&p->c);
    h2c_reset(&p->c, s, HTTP2_CANCEL);
    h2c_pump(&p->c);
    assert_int_equal(p->d.n_begun, 0);
    assert_int_equal(p->d.env->net.n_used, 0);
    end_pair(p);
}

/* The connection ends after 300, 1277, … bytes of the same input. */
static void a_connection_that_ends_releases_everything(void **state)
{
    (void)state;
    char *body = make_letters(50000);
    for (size_t portion = 300; portion < 60000; portion += 977) {
        struct pair *p = begin_pair();
        (void)h2c_post(&p->c, "/echo", body, 20000);
        (void)h2c_post(&p->c, "/later", body, 3000);
        (void)h2c_post(&p->c, "/echo", body, 50000);
        (void)h2c_post(&p->c, "/early", body, 10);
        h2c_collect(&p->c);
        size_t n = p->c.n_wire < portion ? p->c.n_wire : portion;
        (void)h2_feed(&p->d, p->c.wire, n);
        (void)h2_flush_some(&p->d, portion / 2);
        h2_end_session(&p->d);
        assert_int_equal(p->d.n_ended, p->d.n_begun);
        end_pair(p);
    }
    free(body);
}

static void use_few_streams(struct h2_driver *d)
{
    d->settings.limits.max_streams = 4;
}

static void too_many_streams_are_refused(void **state)
{
    (void)state;
    struct pair *p = begin_pair_with(use_few_streams, 0);
    for (int i = 0; i < 6; i++) /* the client does not know the limit yet */
        (void)h2c_post(&p->c, "/later", "x", 1);
    h2c_pump(&p->c);
    assert_int_equal(p->d.n_begun, 4);
    for (int i = 4; i < 6; i++) {
        assert_true(p->c.streams[i].closed);
        assert_int_equal(p->c.streams[i].close_code, HTTP2_REFUSED_STREAM);
    }
    end_pair(p);
}

/* Streams that the client has reset while the handler keeps its reference. */
static void cancelled_streams_count_until_they_are_released(void **state)
{
    (void)state;
    struct pair *p = begin_pair_with(use_few_streams, 0);
    p->d.keeps = true;
    h2c_pump(&p->c);
    unsigned int refused = 0;
    for (int i = 0; i < 20; i++) {
        struct h2c_stream *s = h2c_post(&p->c, "/later", "x", 1);
        h2c_pump(&p->c);
        if (s->closed) {
            assert_int_equal(s->close_code, HTTP2_REFUSED_STREAM);
            refused++;
        } else {
            h2c_reset(&p->c, s, HTTP2_CANCEL);
            h2c_pump(&p->c);
        }
    }
    assert_int_equal(p->d.n_begun, 8);
    assert_int_equal(refused, 12);
    while (p->d.n_waiting > 0)
        h2_answer(&p->d, 0);
    h2_let_go(&p->d);
    struct h2c_stream *s = h2c_post(&p->c, "/echo", "x", 1);
    h2c_pump(&p->c);
    assert_int_equal(s->n_data, 1);
    end_pair(p);
}

static void use_small_heads(struct h2_driver *d)
{
    d->settings.limits.max_header_bytes = 1000;
}

static void large_heads_are_refused(void **state)
{
    (void)state;
    struct pair *p = begin_pair_with(use_small_heads, 0);
    char value[2000];
    memset(value, 'v', sizeof(value));
    value[700] = 0;
    nghttp2_nv extra[] = {h2c_nv("x-large", value), h2c_nv("x-more", "text")};
    struct h2c_stream *s = h2c_request(&p->c, "/echo", "", 0, SIZE_MAX, extra, 2);
    h2c_pump(&p->c);
    assert_false(p->d.too_large);
    assert_non_null(strstr(p->d.last_headers, "x-more=text;"));
    assert_string_equal(s->status, "200");

    extra[0].valuelen = 950; /* beyond the limit: head.is_too_large */
    memset(value, 'v', sizeof(value));
    s = h2c_request(&p->c, "/echo", "", 0, SIZE_MAX, extra, 2);
    h2c_pump(&p->c);
    assert_true(p->d.too_large);
    assert_null(strstr(p->d.last_headers, "x-large"));
    assert_string_equal(s->status, "200");
    assert_int_equal(p->c.n_goaways, 0);
    end_pair(p);
}

/* A client that puts each field into the header table, as those of gRPC do; nghttp2's puts no path.
 */
struct indexer {
    const char *names[32], *values[32];
    unsigned int n_fields; /* in the table, the oldest first */
    uint32_t next_id;
};

static size_t put_indexed(struct indexer *x, const char *name, const char *value, char *at)
{
    for (unsigned int i = 0; i < x->n_fields; i++) {
        if (strcmp(x->names[i], name) == 0 && strcmp(x->values[i], value) == 0) {
            at[0] = (char)(0x80 | (62 + x->n_fields - 1 - i));
            return 1;
        }
    }
    x->names[x->n_fields] = name;
    x->values[x->n_fields++] = value;
    size_t n = strlen(name), m = strlen(value);
    at[0] = 0x40;
    at[1] = (char)n;
    memcpy(at + 2, name, n);
    at[2 + n] = (char)m;
    memcpy(at + 3 + n, value, m);
    return 3 + n + m;
}

/* Sends heads of streams that end with them, all in one read; each has n_extra fields. */
static void send_heads(struct h2_driver *d, struct indexer *x, unsigned int n_heads,
                       const char *path, const char *const extra[][2], size_t n_extra)
{
    const char *const base[][2] = {
        {":method", "POST"}, {":scheme", "http"}, {":path", path}, {":authority", "test"}};
    char bytes[4096];
    size_t n = 0;
    for (unsigned int i = 0; i < n_heads; i++) {
        char *frame = bytes + n;
        size_t length = 0;
        for (size_t f = 0; f < 4 + n_extra; f++) {
            const char *const *field = f < 4 ? base[f] : extra[f - 4];
            length += put_indexed(x, field[0], field[1], frame + 9 + length);
        }
        memcpy(frame, (char[]){0, 0, (char)length, 1, 5, 0, 0, 0, (char)x->next_id}, 9);
        x->next_id += 2;
        n += 9 + length;
    }
    assert_int_equal(h2_feed(d, bytes, n), n);
    h2_flush(d);
}

static void heads_that_are_repeated_are_read_once(void **state)
{
    (void)state;
    static const char begin[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0";
    static const struct {
        const char *path;
        const char *extra[3][2];
        size_t n_extra;
        const char *seen;
        unsigned int n_repeated; /* of three */
    } rows[] = {
        {"/echo", {{"te", "trailers"}, {"x-one", "1"}}, 2, "te=trailers;x-one=1;", 2},
        {"/echo", {{"te", "trailers"}, {"x-one", "1"}}, 2, "te=trailers;x-one=1;", 3},
        {"/echo", {{"te", "trailers"}}, 1, "te=trailers;", 2}, /* the beginning of the last head */
        {"/echo",
         {{"te", "trailers"}, {"x-one", "1"}, {"x", "2"}},
         3,
         "te=trailers;x-one=1;x=2;",
         2},
        {"/echo", {{"te", "trailers"}, {"x-one", "one"}}, 2, "te=trailers;x-one=one;", 2},
        {"/big", {{"te", "trailers"}, {"x-one", "one"}}, 2, "te=trailers;x-one=one;", 2},
        {"/big", {{"content-length", "0"}}, 1, "content-length=0;", 0},
        {"/echo", {{"te", "trailers"}}, 1, "te=trailers;", 2},
    };
    struct h2_driver *d = malloc(sizeof(*d));
    struct indexer x = {.next_id = 1};
    h2_init(d);
    h2_begin(d);
    (void)h2_feed(d, begin, sizeof(begin) - 1);
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        unsigned int n_before = d->n_repeated;
        send_heads(d, &x, 1, rows[i].path, rows[i].extra, rows[i].n_extra);
        assert_string_equal(d->last_headers, rows[i].seen);
        send_heads(d, &x, 2, rows[i].path, rows[i].extra, rows[i].n_extra);
        assert_string_equal(d->last_headers, rows[i].seen);
        assert_int_equal(d->n_repeated - n_before, rows[i].n_repeated);
    }
    assert_int_equal(d->n_begun, 3 * ARRAY_SIZE(rows));
    assert_int_equal(d->n_complete, d->n_begun);
    assert_true(h2_done(d));
    free(d);
}

/* What the client sends against the rules of HTTP resets the stream, and no other one. */
static void streams_that_break_rules_are_reset(void **state)
{
    (void)state;
    static const struct {
        const char *name, *value;
        bool begins; /* the handler sees the stream */
    } rows[] = {
        {"connection", "close", false},
        {"te", "gzip", false},
        {":method", "GET", false},
        {":odd", "x", false},
        {"content-length", "x", false},
        {"content-length", "-1", false},
        {"content-length", "4", true},
        {"content-length", "6", true},
        {"transfer-encoding", "chunked", false},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct pair *p = begin_pair();
        nghttp2_nv extra[] = {h2c_nv(rows[i].name, rows[i].value)};
        struct h2c_stream *fine = h2c_post(&p->c, "/later", "12345", 5);
        struct h2c_stream *s = h2c_request(&p->c, "/later", "12345", 5, SIZE_MAX, extra, 1);
        h2c_pump(&p->c);
        assert_true(s->closed);
        assert_int_equal(s->close_code, NGHTTP2_PROTOCOL_ERROR);
        assert_false(fine->closed);
        assert_in_range(p->d.n_begun, 1, 1 + rows[i].begins);
        assert_int_equal(p->d.n_cancelled, p->d.n_begun - 1);
        assert_int_equal(p->d.n_complete, 1);
        end_pair(p);
    }
}

/* An iteration of the loop begins as many requests as it may; the next ones begin the others. */
static void requests_wait_for_the_next_iteration(void **state)
{
    (void)state;
    struct pair *p = begin_pair();
    h2c_pump(&p->c);
    for (int i = 0; i < 400; i++)
        (void)h2c_post(&p->c, "/echo", "hello", 5);
    h2c_collect(&p->c);
    p->d.requests_left = 70;
    unsigned int n_iterations = 1;
    assert_int_equal(h2_feed(&p->d, p->c.wire + p->c.n_wire - p->c.n_unfed, p->c.n_unfed),
                     p->c.n_unfed);
    p->c.n_unfed = 0;
    while (p->d.session->paused) {
        struct iovec space[2];
        assert_int_equal(p->d.n_complete, 70 * n_iterations);
        assert_int_equal(http2_protocol.read_space(p->d.session, space), 0);
        p->d.requests_left = 70;
        http2_protocol.resume(p->d.session);
        n_iterations++;
    }
    assert_int_equal(n_iterations, 6);
    p->d.requests_left = UINT32_MAX;
    h2c_pump(&p->c);
    assert_int_equal(p->d.n_ended, 400);
    end_pair(p);
}

static void other_protocols_get_goaway(void **state)
{
    (void)state;
    static const char *const inputs[] = {
        "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n",
    };
    for (size_t i = 0; i < ARRAY_SIZE(inputs); i++) {
        struct pair *p = begin_pair();
        (void)h2_feed(&p->d, inputs[i], strlen(inputs[i]));
        h2_flush(&p->d);
        assert_true(p->d.n_out > 9 + 17);
        assert_int_equal(p->d.out[3], NGHTTP2_SETTINGS); /* the preface of a server */
        h2c_collect(&p->c);
        h2c_read(&p->c);
        assert_int_equal(p->c.n_goaways, 1);
        assert_int_equal(p->c.goaway_code, HTTP2_PROTOCOL_ERROR);
        assert_true(http2_protocol.is_over(p->d.session));
        end_pair(p);
    }
}

static void broken_frames_end_the_connection(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t n;
        enum http2_error code;
    } frames[] = {
        {"\0\0\1\0\0\0\0\0\0x", 10, HTTP2_PROTOCOL_ERROR},         /* DATA of stream 0 */
        {"\0\0\1\0\0\0\0\0\1x", 10, HTTP2_PROTOCOL_ERROR},         /* of an idle one */
        {"\0\0\4\x8\0\0\0\0\0\0\0\0\0", 13, HTTP2_PROTOCOL_ERROR}, /* a window by 0 */
        {"\0\0\4\x8\0\0\0\0\0\x7f\xff\xff\xff", 13, HTTP2_FLOW_CONTROL_ERROR}, /* too large */
        {"\0\0\3\4\0\0\0\0\0abc", 12, HTTP2_FRAME_SIZE_ERROR},                 /* SETTINGS */
        {"\0\x40\1\0\0\0\0\0\1", 9, HTTP2_FRAME_SIZE_ERROR},
        {"\0\0\1\1\5\0\0\0\0\x83", 10, HTTP2_PROTOCOL_ERROR},    /* HEADERS of stream 0 */
        {"\0\0\1\1\5\0\0\0\1\xff", 10, HTTP2_COMPRESSION_ERROR}, /* HEADERS that break off */
        {"\0\0\0\x9\4\0\0\0\1", 9, HTTP2_PROTOCOL_ERROR},        /* CONTINUATION of nothing */
    };
    for (size_t i = 0; i < ARRAY_SIZE(frames); i++) {
        struct pair *p = begin_pair();
        h2c_pump(&p->c);
        (void)h2_feed(&p->d, frames[i].bytes, frames[i].n);
        h2_flush(&p->d);
        h2c_read(&p->c);
        assert_int_equal(p->c.n_goaways, 1);
        assert_int_equal(p->c.goaway_code, frames[i].code);
        assert_true(http2_protocol.is_over(p->d.session));
        end_pair(p);
    }
}

/* Frames of a stream after its end are errors, although no closed stream is kept. */
static void frames_after_the_end_are_errors(void **state)
{
    (void)state;
    static const char data[] = "\0\0\1\0\0\0\0\0\1x", head[] = "\0\0\1\1\5\0\0\0\1\x88";
    for (int i = 0; i < 4; i++) {
        struct pair *p = begin_pair();
        static const nghttp2_nv none[1];
        if (i < 2) {
            (void)h2c_post(&p->c, "/echo", "x", 1);
            h2c_pump(&p->c);
        } else {
            struct h2c_stream *s = h2c_request(&p->c, "/echo", "x", 1, 1, none, 0);
            h2c_pump(&p->c);
            h2c_reset(&p->c, s, HTTP2_CANCEL);
            h2c_pump(&p->c);
        }
        p->d.n_out = 0;
        if (i % 2) {
            (void)h2_feed(&p->d, data, 10);
            h2_flush(&p->d);
            assert_int_equal(p->d.n_out, 13);
            assert_memory_equal(p->d.out, "\0\0\4\3\0\0\0\0\1\0\0\0\5", 13);
            p->d.n_out = 0;
        } else {
            (void)h2_feed(&p->d, head, 10);
            h2_flush(&p->d);
            h2c_read(&p->c);
            assert_int_equal(p->c.n_goaways, 1);
            assert_int_equal(p->c.goaway_code, HTTP2_STREAM_CLOSED);
        }
        end_pair(p);
    }
}

/* A number that the client left out can never begin a stream. */
static void streams_have_rising_numbers(void **state)
{
    (void)state;
    struct pair *p = begin_pair();
    (void)h2c_post(&p->c, "/later", "x", 1);
    nghttp2_session_set_next_stream_id(p->c.ng, 7);
    (void)h2c_post(&p->c, "/later", "x", 1);
    h2c_pump(&p->c);
    assert_int_equal(p->d.n_begun, 2);
    (void)h2_feed(&p->d, "\0\0\1\1\5\0\0\0\3\x83", 10);
    h2_flush(&p->d);
    h2c_read(&p->c);
    assert_int_equal(p->c.n_goaways, 1);
    assert_int_equal(p->c.goaway_code, HTTP2_PROTOCOL_ERROR);
    end_pair(p);
}

static void a_goaway_of_the_client_ends_the_session(void **state)
{
    (void)state;
    struct pair *p = begin_pair();
    (void)h2c_post(&p->c, "/later", "x", 1);
    h2c_pump(&p->c);
    nghttp2_submit_goaway(p->c.ng, 0, 0, 0xff, NULL, 0);
    h2c_pump(&p->c);
    assert_false(http2_protocol.is_over(p->d.session)); /* its stream goes on */
    h2_answer(&p->d, 0);
    h2c_pump(&p->c);
    assert_true(p->c.streams[0].ended);
    assert_true(http2_protocol.is_over(p->d.session));
    end_pair(p);

    p = begin_pair();
    h2c_pump(&p->c);
    p->d.n_outputs = 0;
    nghttp2_submit_goaway(p->c.ng, 0, 0, 0, NULL, 0);
    h2c_pump(&p->c);
    assert_true(http2_protocol.is_over(p->d.session));
    assert_true(p->d.n_outputs > 0); /* so that the connection calls is_over() */
    end_pair(p);
}

static void a_client_that_closes_its_side_is_gone(void **state)
{
    (void)state;
    struct pair *p = begin_pair();
    (void)h2c_post(&p->c, "/later", "x", 1);
    h2c_pump(&p->c);
    http2_protocol.end_input(p->d.session);
    assert_int_equal(p->d.n_cancelled, 1);
    assert_true(http2_protocol.is_over(p->d.session));
    end_pair(p);
}

static void refusals_say_goaway(void **state)
{
    (void)state;
    static const struct {
        enum session_refusal why;
        enum http2_error code;
    } all[] = {
        {REFUSAL_HEAD_TIME, HTTP2_ENHANCE_YOUR_CALM},
        {REFUSAL_STOPPING, HTTP2_NO_ERROR},
    };
    for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
        struct pair *p = begin_pair();
        (void)h2c_post(&p->c, "/later", "x", 1);
        h2c_pump(&p->c);
        http2_protocol.refuse(p->d.session, all[i].why);
        h2_flush(&p->d);
        h2c_read(&p->c);
        assert_int_equal(p->c.n_goaways, 1);
        assert_int_equal(p->c.goaway_code, all[i].code);
        assert_int_equal(p->c.goaway_last, 1);
        assert_int_equal(p->d.n_cancelled, 1);
        assert_true(http2_protocol.is_over(p->d.session));
        end_pair(p);
    }
}

static void states_are_reported(void **state)
{
    (void)state;
    struct pair *p = begin_pair();
    struct session_input input;
    http2_protocol.get_input(p->d.session, &input);
    assert_int_equal(input.kind, INPUT_NONE);
    assert_true(http2_protocol.is_idle(p->d.session));
    (void)h2_feed(&p->d, NGHTTP2_CLIENT_MAGIC, 10);
    http2_protocol.get_input(p->d.session, &input);
    assert_int_equal(input.kind, INPUT_HEAD);
    end_pair(p);

    p = begin_pair();
    h2c_pump(&p->c);
    (void)h2c_post(&p->c, "/later", "x", 1);
    h2c_pump(&p->c);
    assert_false(http2_protocol.is_idle(p->d.session));
    /* HEADERS without END_HEADERS: the rest must come. */
    (void)h2_feed(&p->d, "\0\0\1\1\1\0\0\0\3\x83", 10);
    http2_protocol.get_input(p->d.session, &input);
    assert_int_equal(input.kind, INPUT_HEAD);
    assert_int_equal(input.number, 1);
    end_pair(p);
}

/* ---- Memory --------------------------------------------------------------------------------- */

static unsigned int n_allocs;

static bool count_alloc(size_t size_bytes)
{
    (void)size_bytes;
    n_allocs++;
    return true;
}

static void steady_traffic_allocates_nothing(void **state)
{
    (void)state;
    struct pair *p = begin_pair();
    pool_attach(p->d.pool);
    char *body = make_letters(100000);
    for (int round = 0; round < 20; round++) {
        if (round == 5) {
            n_allocs = 0;
            mem_set_test_hook(count_alloc);
        }
        for (int i = 0; i < 20; i++)
            (void)h2c_post(&p->c, "/echo", body, i % 4 == 0 ? 100000 : 300);
        h2c_pump(&p->c);
    }
    mem_set_test_hook(NULL);
    assert_int_equal(n_allocs, 0);
    assert_int_equal(p->d.n_ended, 400);
    h2_end_session(&p->d);
    pool_detach(p->d.pool);
    h2c_done(&p->c);
    assert_true(h2_done(&p->d));
    free(body);
    free(p);
}

/* One connection stands for all, since their memory belongs to the loop. */
static void serve_one(struct pair *p, unsigned int n_open)
{
    nghttp2_nv extra[] = {h2c_nv("te", "trailers"), h2c_nv("content-type", "application/grpc"),
                          h2c_nv("user-agent", "grpc-c++/1.51.1 grpc-c/29.0.0 (linux; chttp2)"),
                          h2c_nv("grpc-accept-encoding", "identity, deflate, gzip"),
                          h2c_nv("accept-encoding", "identity")};
    h2c_init(&p->c, &p->d, 0);
    struct h2c_stream *s = h2c_request(&p->c, "/echo", "hello", 5, SIZE_MAX, extra, 5);
    for (unsigned int i = 0; i < n_open; i++)
        (void)h2c_request(&p->c, "/echo", "hello", 5, 2, extra, 5);
    h2c_pump(&p->c);
    assert_true(s->closed);
    assert_int_equal(p->c.error, 0);
    for (int i = 0; i < 2; i++)
        http2_protocol.check_time(p->d.session, p->d.now_ns);
    h2c_done(&p->c);
}

static size_t measure_connection(unsigned int n_open)
{
    enum { N = 50 };
    struct pair *p = begin_pair();
    struct session *sessions[N];
    h2c_done(&p->c);
    for (int i = 0; i < N; i++) {
        if (i > 0)
            h2_begin_session(&p->d);
        serve_one(p, n_open);
        sessions[i] = p->d.session;
    }
    size_t bytes = h2_used_bytes(&p->d) / N + http2_protocol.session_bytes;
    for (int i = 0; i < N; i++) {
        p->d.session = sessions[i];
        h2_end_session(&p->d);
    }
    assert_true(h2_done(&p->d));
    free(p);
    return bytes;
}

static void silent_connections_and_streams_are_small(void **state)
{
    (void)state;
    size_t idle = measure_connection(0), busy = measure_connection(100);
    size_t per_stream = (busy - idle) / 100;
    print_message("a connection has %zu bytes, a stream %zu, %zu of them the handler's\n", idle,
                  per_stream, h2_handler.part_bytes);
    assert_in_range(idle, 1, 32 << 10);
    assert_in_range(per_stream, 1, 1500 + h2_handler.part_bytes);
}

static bool refuse_memory(size_t size_bytes)
{
    (void)size_bytes;
    return false;
}

/* A session that gets no memory says so, so that its connection is closed at once. */
static void a_session_without_memory_is_over_at_once(void **state)
{
    (void)state;
    struct pair *p = begin_pair();
    h2c_pump(&p->c);
    h2_end_session(&p->d);
    pool_trim(p->d.pool, 0);
    p->d.n_outputs = 0;
    mem_set_test_hook(refuse_memory);
    h2_begin_session(&p->d);
    mem_set_test_hook(NULL);
    assert_int_equal(p->d.n_outputs, 1);
    assert_true(http2_protocol.is_over(p->d.session));
    http2_protocol.queue_output(p->d.session);
    end_pair(p);
}

static void the_memory_of_a_connection_has_a_maximum(void **state)
{
    (void)state;
    struct h2_driver *d = malloc(sizeof(*d));
    h2_init(d);
    d->settings.limits.max_state_bytes = 64 << 10;
    h2_begin(d);
    struct h2_client *c = malloc(sizeof(*c));
    h2c_init(c, d, 0);
    for (int i = 0; i < 1000; i++)
        (void)h2c_post(c, "/later", "x", 1);
    h2c_collect(c);
    (void)h2_feed(d, c->wire, c->n_wire);
    h2_flush(d);
    h2c_read(c);
    assert_int_equal(c->n_goaways, 1);
    assert_string_equal(c->goaway_text, "out of memory");
    assert_int_equal(d->n_begun, d->n_ended);
    h2c_done(c);
    assert_true(h2_done(d));
    free(c);
    free(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_is_answered),
        cmocka_unit_test(every_split_of_the_input_gives_the_same_answers),
        cmocka_unit_test(many_streams_in_one_read_are_answered),
        cmocka_unit_test(a_body_in_tiny_frames_is_whole),
        cmocka_unit_test(answers_may_come_later_in_any_order),
        cmocka_unit_test(other_answers),
        cmocka_unit_test(a_client_may_cancel_its_streams),
        cmocka_unit_test(a_stream_reset_at_once_is_never_seen),
        cmocka_unit_test(a_connection_that_ends_releases_everything),
        cmocka_unit_test(too_many_streams_are_refused),
        cmocka_unit_test(cancelled_streams_count_until_they_are_released),
        cmocka_unit_test(large_heads_are_refused),
        cmocka_unit_test(heads_that_are_repeated_are_read_once),
        cmocka_unit_test(streams_that_break_rules_are_reset),
        cmocka_unit_test(requests_wait_for_the_next_iteration),
        cmocka_unit_test(other_protocols_get_goaway),
        cmocka_unit_test(broken_frames_end_the_connection),
        cmocka_unit_test(frames_after_the_end_are_errors),
        cmocka_unit_test(streams_have_rising_numbers),
        cmocka_unit_test(a_goaway_of_the_client_ends_the_session),
        cmocka_unit_test(a_client_that_closes_its_side_is_gone),
        cmocka_unit_test(refusals_say_goaway),
        cmocka_unit_test(states_are_reported),
        cmocka_unit_test(steady_traffic_allocates_nothing),
        cmocka_unit_test(silent_connections_and_streams_are_small),
        cmocka_unit_test(a_session_without_memory_is_over_at_once),
        cmocka_unit_test(the_memory_of_a_connection_has_a_maximum),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
