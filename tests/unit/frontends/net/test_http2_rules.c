/* SPDX-License-Identifier: Apache-2.0 */
/* Heads that HTTP forbids; nghttp2's own check of the same heads is the oracle. */
#include "frontends/net/http2_priv.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { MAX_HEADERS = 8 };

struct header {
    const char *name, *value;
};

#define BASE                                                                                       \
    {":method", "POST"}, {":scheme", "http"}, {":authority", "a"},                                 \
    {                                                                                              \
        ":path", "/x"                                                                              \
    }

static const struct header heads[][MAX_HEADERS] = {
    {BASE},
    {BASE, {"te", "trailers"}},
    {BASE, {"te", "Trailers"}},
    {BASE, {"te", "gzip"}},
    {BASE, {"te", "trailers, gzip"}},
    {BASE, {"connection", "x"}},
    {BASE, {"keep-alive", "1"}},
    {BASE, {"proxy-connection", "1"}},
    {BASE, {"transfer-encoding", "chunked"}},
    {BASE, {"upgrade", "h2c"}},
    {BASE, {"X-Capital", "1"}},
    {BASE, {"x-space ", "1"}},
    {BASE, {"x(y", "1"}},
    {BASE, {"", "1"}},
    {BASE, {"x", " 1"}},
    {BASE, {"x", "1\t"}},
    {BASE, {"x", "a\nb"}},
    {BASE, {"x", "a\177b"}},
    {BASE, {"x", ""}},
    {BASE, {":path", "/y"}},
    {BASE, {":status", "200"}},
    {BASE, {":protocol", "websocket"}},
    {BASE, {":new", "1"}},
    {BASE, {"x", "1"}, {":authority", "b"}},
    {BASE, {"host", "a"}},
    {BASE, {"host", "a"}, {"host", "a"}},
    {BASE, {"host", "a b"}},
    {BASE, {"host", ""}},
    {{":method", "POST"}, {":scheme", "http"}, {":path", "/x"}},
    {{":method", "POST"}, {":scheme", "http"}, {":path", "/x"}, {"host", "a"}},
    {{":method", "POST"}, {":scheme", "http"}, {":authority", "a"}},
    {{":method", "POST"}, {":path", "/x"}, {":authority", "a"}},
    {{":scheme", "http"}, {":path", "/x"}, {":authority", "a"}},
    {{":method", "POST"}, {":scheme", "http"}, {":authority", "a"}, {":path", "x"}},
    {{":method", "POST"}, {":scheme", "grpc"}, {":authority", "a"}, {":path", "x"}},
    {{":method", "POST"}, {":scheme", "HTTPS"}, {":authority", "a"}, {":path", "x"}},
    {{":method", "POST"}, {":scheme", "1"}, {":authority", "a"}, {":path", "/x"}},
    {{":method", "POST"}, {":scheme", "a+b.c-1"}, {":authority", "a"}, {":path", "/x"}},
    {{":method", "POST"}, {":scheme", "http"}, {":authority", "a"}, {":path", ""}},
    {{":method", "POST"}, {":scheme", "http"}, {":authority", "a"}, {":path", "*"}},
    {{":method", "OPTIONS"}, {":scheme", "http"}, {":authority", "a"}, {":path", "*"}},
    {{":method", "P ST"}, {":scheme", "http"}, {":authority", "a"}, {":path", "/x"}},
    {{":method", "POST"}, {":scheme", "http"}, {":authority", "a\001"}, {":path", "/x"}},
    {{":method", "POST"}, {":scheme", "http"}, {":authority", "a"}, {":path", "/\001"}},
    {{":method", "CONNECT"}, {":authority", "a"}},
    {{":method", "CONNECT"}, {":authority", "a"}, {":path", "/x"}},
    {{":method", "CONNECT"}, {":scheme", "http"}, {":authority", "a"}},
    {{":method", "CONNECT"}},
    {BASE, {"content-length", "0"}},
    {BASE, {"content-length", "0"}, {"content-length", "0"}},
    {BASE, {"content-length", "1x"}},
    {BASE, {"content-length", ""}},
    {BASE, {"content-length", "9223372036854775807"}},
    {BASE, {"content-length", "9223372036854775808"}},
};

static size_t count_headers(const struct header *head)
{
    size_t n = 0;
    while (n < MAX_HEADERS && head[n].name)
        n++;
    return n;
}

static struct span span_of(const char *text)
{
    return (struct span){text, strlen(text)};
}

static bool is_well_formed(const struct header *head)
{
    struct head_rules rules = {0};
    size_t n = count_headers(head);
    for (size_t i = 0; i < n; i++) {
        if (!head_rules_add(&rules, span_of(head[i].name), span_of(head[i].value), false))
            return false;
    }
    return head_rules_end(&rules);
}

/* ---- The oracle ----------------------------------------------------------------------------- */

static int see_frame(nghttp2_session *ng, const nghttp2_frame *frame, void *arg)
{
    *(bool *)arg |= frame->hd.type == NGHTTP2_HEADERS;
    return 0;
}

/* Literals without index, so that no client is in between that might change them. */
static size_t write_head(const struct header *head, char *at)
{
    static const char begin[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0";
    size_t n = sizeof(begin) - 1, n_headers = count_headers(head);
    memcpy(at, begin, n);
    char *frame = at + n;
    n += 9;
    for (size_t i = 0; i < n_headers; i++) {
        const char *texts[] = {head[i].name, head[i].value};
        at[n++] = 0;
        for (int t = 0; t < 2; t++) {
            size_t length = strlen(texts[t]);
            at[n++] = (char)length;
            memcpy(at + n, texts[t], length);
            n += length;
        }
    }
    size_t length = n - (size_t)(frame + 9 - at);
    memcpy(frame, (char[]){0, (char)(length >> 8), (char)length, 1, 4, 0, 0, 0, 1}, 9);
    return n;
}

static bool is_well_formed_to_nghttp2(const struct header *head)
{
    nghttp2_session_callbacks *callbacks;
    nghttp2_session *ng;
    char bytes[1024];
    bool is_complete = false;
    assert_int_equal(nghttp2_session_callbacks_new(&callbacks), 0);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, see_frame);
    assert_int_equal(nghttp2_session_server_new(&ng, callbacks, &is_complete), 0);
    ssize_t n = (ssize_t)write_head(head, bytes);
    assert_int_equal(nghttp2_session_mem_recv(ng, (const uint8_t *)bytes, (size_t)n), n);
    nghttp2_session_del(ng);
    nghttp2_session_callbacks_del(callbacks);
    return is_complete;
}

static void heads_are_judged_as_nghttp2_does(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(heads); i++) {
        bool expected = is_well_formed_to_nghttp2(heads[i]);
        if (is_well_formed(heads[i]) != expected)
            fail_msg("head %zu: nghttp2 says %s", i, expected ? "fine" : "bad");
    }
}

static void trailers_have_no_pseudo_headers(void **state)
{
    (void)state;
    struct head_rules rules = {0};
    assert_true(head_rules_add(&rules, span_of("x-trailer"), span_of("1"), true));
    assert_false(head_rules_add(&rules, span_of(":path"), span_of("/x"), true));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(heads_are_judged_as_nghttp2_does),
        cmocka_unit_test(trailers_have_no_pseudo_headers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
