/* SPDX-License-Identifier: Apache-2.0 */
/* The HTTP/1.1 state without sockets: every split of the input, order of replies, limits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/budget.h"
#include "lib/http1_driver.h"

struct split_case {
    const char *name, *input, *output;
};

#define OK(n, body) "HTTP/1.1 200 OK\r\nContent-Length: " #n "\r\n\r\n" body
#define OK_CLOSE(n, body)                                                                          \
    "HTTP/1.1 200 OK\r\nContent-Length: " #n "\r\nConnection: close\r\n\r\n" body
#define BAD(status, n, text)                                                                       \
    "HTTP/1.1 " status "\r\nContent-Type: application/json\r\nContent-Length: " #n                 \
    "\r\nConnection: close\r\n\r\n{\"error\":\"" text "\"}"

static const struct split_case cases[] = {
    {"get", "GET /v2 HTTP/1.1\r\nHost: x\r\n\r\n", OK(17, "0 /v2 0 811c9dc5\n")},
    {"two in one", "GET /a HTTP/1.1\r\nHost: x\r\n\r\nGET /b?q=1#f HTTP/1.1\r\nHost: x\r\n\r\n",
     OK(16, "0 /a 0 811c9dc5\n") OK(16, "0 /b 0 811c9dc5\n")},
    {"post", "POST /p HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello",
     OK(16, "1 /p 5 4f9f2cab\n")},
    {"post and get",
     "POST /p HTTP/1.1\r\nHost: x\r\ncontent-length:5\r\n\r\nhelloGET /b HTTP/1.1\r\nHost: x\r\n\r\n",
     OK(16, "1 /p 5 4f9f2cab\n") OK(16, "0 /b 0 811c9dc5\n")},
    {"aligned part",
     "POST /p HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nInference-Header-Content-Length: 3\r\n\r\nhello",
     OK(10, "aligned 3\n")},
    {"chunked",
     "POST /c HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2;x=y\r\nhe\r\n3\r\nllo\r\n0\r\n"
     "Trailer: t\r\n\r\nGET /b HTTP/1.1\r\nHost: x\r\n\r\n",
     OK(16, "1 /c 5 4f9f2cab\n") OK(16, "0 /b 0 811c9dc5\n")},
    {"empty chunked", "POST /c HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
     OK(16, "1 /c 0 811c9dc5\n")},
    {"close",
     "GET /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\nGET /b HTTP/1.1\r\nHost: x\r\n\r\n",
     OK_CLOSE(16, "0 /a 0 811c9dc5\n")},
    {"1.0", "GET /a HTTP/1.0\r\n\r\n", OK_CLOSE(16, "0 /a 0 811c9dc5\n")},
    {"1.0 that stays", "GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
     "HTTP/1.1 200 OK\r\nContent-Length: 16\r\nConnection: keep-alive\r\n\r\n0 /a 0 811c9dc5\n"},
    {"head", "HEAD /a HTTP/1.1\r\nHost: x\r\n\r\n",
     "HTTP/1.1 200 OK\r\nContent-Length: 16\r\n\r\n"},
    {"delete", "DELETE /a HTTP/1.1\r\nHost: x\r\n\r\n", OK(16, "3 /a 0 811c9dc5\n")},
#define GET_PARTS "GET /parts HTTP/1.1\r\nHost: x\r\n\r\n"
#define PARTED    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n"
#define PARTS     "\r\n3\r\none\r\n7\r\ntwo and\r\n5\r\nthree\r\n0\r\n\r\n"
    {"in parts", GET_PARTS, PARTED PARTS},
    {"in parts, then others", GET_PARTS "GET /a HTTP/1.1\r\nHost: x\r\n\r\n" GET_PARTS,
     PARTED PARTS OK(16, "0 /a 0 811c9dc5\n") PARTED PARTS},
    {"in parts at the end", "GET /parts HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
     PARTED "Connection: close\r\n" PARTS},
    {"in parts, for a head", "HEAD /parts HTTP/1.1\r\nHost: x\r\n\r\n", PARTED "\r\n"},
    {"in parts until the close", "GET /parts HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
     "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nonetwo andthree"},
    {"empty lines first", "\r\n\r\nGET /a HTTP/1.1\r\nHost: x\r\n\r\n",
     OK(16, "0 /a 0 811c9dc5\n")},
#define GET_A  "GET /a HTTP/1.1\r\nHost: x\r\n\r\n"
#define POST_P "POST /p HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello"
#define POST_C                                                                                     \
    "POST /c HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
    {"the same again and again", GET_A GET_A GET_A,
     OK(16, "0 /a 0 811c9dc5\n") OK(16, "0 /a 0 811c9dc5\n") OK(16, "0 /a 0 811c9dc5\n")},
    {"the same but for a byte", GET_A GET_A "GET /b HTTP/1.1\r\nHost: x\r\n\r\n" GET_A,
     OK(16, "0 /a 0 811c9dc5\n") OK(16, "0 /a 0 811c9dc5\n") OK(16, "0 /b 0 811c9dc5\n")
         OK(16, "0 /a 0 811c9dc5\n")},
    {"the same with a body", POST_P POST_P GET_A POST_P,
     OK(16, "1 /p 5 4f9f2cab\n") OK(16, "1 /p 5 4f9f2cab\n") OK(16, "0 /a 0 811c9dc5\n")
         OK(16, "1 /p 5 4f9f2cab\n")},
    {"the same in chunks", POST_C POST_C GET_A GET_A POST_C,
     OK(16, "1 /c 5 4f9f2cab\n") OK(16, "1 /c 5 4f9f2cab\n") OK(16, "0 /a 0 811c9dc5\n")
         OK(16, "0 /a 0 811c9dc5\n") OK(16, "1 /c 5 4f9f2cab\n")},
    {"the same, then with a header more",
     GET_A GET_A "GET /a HTTP/1.1\r\nHost: x\r\nHost: x\r\n\r\n",
     OK(16, "0 /a 0 811c9dc5\n") OK(16, "0 /a 0 811c9dc5\n")
         BAD("400 Bad Request", 49, "malformed request: more than one Host")},
    {"the same length, then another",
     POST_P "POST /p HTTP/1.1\r\nHost: x\r\nContent-Length: 6\r\n\r\nhello\n" POST_P,
     OK(16, "1 /p 5 4f9f2cab\n") OK(16, "1 /p 6 f8934173\n") OK(16, "1 /p 5 4f9f2cab\n")},
    {"another expectation",
     "POST /p HTTP/1.1\r\nHost: x\r\nExpect: 200-ok\r\nContent-Length: 5\r\n\r\nhello",
     BAD("417 Expectation Failed", 56, "only the expectation 100-continue can be met")},
    {"two expectations",
     "POST /p HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nExpect: a=b\r\nContent-Length: 5\r\n\r\n",
     BAD("417 Expectation Failed", 56, "only the expectation 100-continue can be met")},
    {"an empty expectation", "GET /a HTTP/1.1\r\nHost: x\r\nExpect:\r\n\r\n",
     OK(16, "0 /a 0 811c9dc5\n")},
    {"an expectation of 1.0", "GET /a HTTP/1.0\r\nExpect: 200-ok\r\n\r\n",
     OK_CLOSE(16, "0 /a 0 811c9dc5\n")},
    {"method unknown", "BREW /a HTTP/1.1\r\nHost: x\r\n\r\n",
     BAD("400 Bad Request", 45, "malformed request: unknown method")},
    {"two lengths",
     "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
     BAD("400 Bad Request", 56, "malformed request: its length is given twice")},
    {"the same length twice",
     "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\na",
     BAD("400 Bad Request", 56, "malformed request: its length is given twice")},
    {"length and chunks",
     "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
     BAD("400 Bad Request", 56, "malformed request: its length is given twice")},
    {"chunks and length",
     "POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n0\r\n\r\n",
     BAD("400 Bad Request", 56, "malformed request: its length is given twice")},
    {"length no number", "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 1x\r\n\r\na",
     BAD("400 Bad Request", 53, "malformed request: invalid Content-Length")},
    {"not chunked at the end", "POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n",
     BAD("400 Bad Request", 73, "malformed request: the last Transfer-Encoding must be chunked")},
    {"folded", "GET /a HTTP/1.1\r\nHost: x\r\nA: b\r\n c\r\n\r\n", NULL},
    {"folded, empty at first", "GET /a HTTP/1.1\r\nHost: x\r\nA:\r\n c\r\n\r\n", NULL},
    {"bare LF", "GET /a HTTP/1.1\nA: b\n\n", NULL},
    {"bare LF in a header", "GET /a HTTP/1.1\r\nHost: x\r\nA: b\nB: c\r\n\r\n", NULL},
    {"no name", "GET /a HTTP/1.1\r\nHost: x\r\nA:\r\n: b\r\n\r\n", NULL},
    {"no name at first", "GET /a HTTP/1.1\r\nHost: x\r\n: b\r\n\r\n", NULL},
    {"blank before colon", "GET /a HTTP/1.1\r\nHost: x\r\nA : b\r\n\r\n", NULL},
    {"chunk size no number",
     "POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", NULL},
    {"too large", "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 1048577\r\n\r\n",
     BAD("413 Content Too Large", 133,
         "request body or request JSON size exceeds the maximum allowed input size. Use "
         "--http-max-body-size to increase the limit.")},
    {"no host", "GET /a HTTP/1.1\r\n\r\n",
     BAD("400 Bad Request", 52, "malformed request: HTTP/1.1 needs a Host")},
    {"two hosts", "GET /a HTTP/1.1\r\nHost: x\r\nhost: x\r\n\r\n",
     BAD("400 Bad Request", 49, "malformed request: more than one Host")},
    {"two hosts in 1.0", "GET /a HTTP/1.0\r\nHost: x\r\nHost: y\r\n\r\n",
     BAD("400 Bad Request", 49, "malformed request: more than one Host")},
    {"a host and a list", "GET /a HTTP/1.1\r\nHost: x, y\r\n\r\n", NULL},
    {"a host of nobody", "GET /a HTTP/1.1\r\nHost:\r\n\r\n", OK(16, "0 /a 0 811c9dc5\n")},
    {"a host with a port", "GET /a HTTP/1.1\r\nHost: [::1]:8000\r\n\r\n",
     OK(16, "0 /a 0 811c9dc5\n")},
    {"absolute, path behind", "GET http://x/a?b HTTP/1.1\r\nHost: x\r\n\r\n",
     OK(16, "0 /a 0 811c9dc5\n")},
    {"absolute, a path in the query", "GET http://x?/a HTTP/1.1\r\nHost: x\r\n\r\n",
     OK(14, "0  0 811c9dc5\n")},
    {"absolute, without a path", "GET http://x HTTP/1.1\r\nHost: x\r\n\r\n",
     OK(14, "0  0 811c9dc5\n")},
    {"chunks in 1.0",
     "POST /a HTTP/1.0\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n"
     "2\r\nhe\r\n0\r\n\r\nGET /b HTTP/1.0\r\n\r\n",
     OK_CLOSE(16, "1 /a 2 5c3ae3b6\n")},
    {"an empty coding", "POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding:\r\n\r\n", NULL},
    {"an empty coding and a length",
     "POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: \r\nContent-Length: 1\r\n\r\na", NULL},
    {"an empty coding in a list",
     "POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: ,chunked\r\n\r\n0\r\n\r\n", NULL},
    {"an unknown coding and a length",
     "POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: xchunked\r\nContent-Length: 1\r\n\r\na",
     NULL},
    {"chunked twice",
     "POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n", NULL},
    {"chunked in two headers",
     "POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
     NULL},
    {"chunked, then another",
     "POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
     NULL},
    {"gzip, chunked",
     "POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
     BAD("501 Not Implemented", 57, "no Transfer-Encoding but chunked is supported")},
#define CHUNKED "POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    {"sizes in all forms",
     CHUNKED "0000000000000002;a=\"b\";c \t\r\nhe\r\n0A\r\n0123456789\r\n000\r\n\r\n",
     OK(17, "1 /a 12 50d7ee71\n")},
    {"a size with 17 digits", CHUNKED "00000000000000002\r\nhe\r\n0\r\n\r\n", NULL},
    {"a size without digits", CHUNKED ";a\r\n0\r\n\r\n", NULL},
    {"a size with a sign", CHUNKED "+2\r\nhe\r\n0\r\n\r\n", NULL},
    {"a size in C", CHUNKED "0x2\r\nhe\r\n0\r\n\r\n", NULL},
    {"a blank before a size", CHUNKED " 2\r\nhe\r\n0\r\n\r\n", NULL},
    {"a blank behind a size", CHUNKED "2 \r\nhe\r\n0\r\n\r\n", NULL},
    {"LF behind a size", CHUNKED "2\nhe\r\n0\r\n\r\n", NULL},
    {"LF in an extension", CHUNKED "2;a\nhe\r\n0\r\n\r\n", NULL},
    {"CR in an extension", CHUNKED "2;a\rb\r\nhe\r\n0\r\n\r\n", NULL},
    {"LF behind data", CHUNKED "2\r\nhe\n0\r\n\r\n", NULL},
    {"more data than said", CHUNKED "2\r\nhell\r\n0\r\n\r\n", NULL},
    {"LF behind the last size", CHUNKED "0\n\r\n", NULL},
    {"LF at the end", CHUNKED "0\r\n\n", NULL},
    {"CR at the end, and more", CHUNKED "0\r\n\rx", NULL},
    {"LF behind a trailer", CHUNKED "0\r\nA: b\n\r\n", NULL},
    {"a folded trailer", CHUNKED "0\r\nA: b\r\n c\r\n\r\n", NULL},
    {"a trailer that begins folded", CHUNKED "0\r\n A: b\r\n\r\n", NULL},
    {"a trailer without a name", CHUNKED "0\r\n: b\r\n\r\n", NULL},
    {"a blank in a trailer's name", CHUNKED "0\r\nA : b\r\n\r\n", NULL},
    {"a trailer without a colon", CHUNKED "0\r\nA\r\n\r\n", NULL},
    {"a trailer with NUL", CHUNKED "0\r\nA: \x01\r\n\r\n", NULL},
    {"trailers", CHUNKED "0\r\nA:\r\nB-2: c \td\r\n\r\nGET /b HTTP/1.1\r\nHost: x\r\n\r\n",
     OK(16, "1 /a 0 811c9dc5\n") OK(16, "0 /b 0 811c9dc5\n")},
    {"good, then bad", "GET /a HTTP/1.1\r\nHost: x\r\n\r\nxx yy\r\n\r\n", NULL},
    {"version 2", "GET /a HTTP/2.0\r\n\r\n", NULL},
};

/* Returns the output, with one feed per piece of the input. */
static char *answer_to(const char *input, size_t length, size_t first, size_t second, size_t sends)
{
    struct driver d;
    driver_init(&d);
    d.max_send = sends;
    size_t cuts[] = {0, first, second, length};
    for (int i = 0; i < 3; i++) {
        driver_feed(&d, input + cuts[i], cuts[i + 1] - cuts[i]);
        driver_flush(&d);
    }
    char *out = calloc(1, d.out_size + 1);
    if (d.out_size)
        memcpy(out, d.out, d.out_size);
    assert_true(driver_done(&d));
    return out;
}

static char *answer_by_bytes(const char *input, size_t length)
{
    struct driver d;
    driver_init(&d);
    for (size_t i = 0; i < length; i++) {
        driver_feed(&d, input + i, 1);
        driver_flush(&d);
    }
    char *out = calloc(1, d.out_size + 1);
    if (d.out_size)
        memcpy(out, d.out, d.out_size);
    assert_true(driver_done(&d));
    return out;
}

static void every_split_of_the_input_gives_the_same_replies(void **state)
{
    (void)state;
    for (size_t c = 0; c < ARRAY_SIZE(cases); c++) {
        size_t length = strlen(cases[c].input);
        char *whole = answer_to(cases[c].input, length, 0, 0, 0);
        if (cases[c].output) {
            if (strcmp(whole, cases[c].output) != 0)
                print_error("case: %s\n", cases[c].name);
            assert_string_equal(whole, cases[c].output);
        } else {
            if (!strstr(whole, "Connection: close"))
                print_error("case: %s: %s\n", cases[c].name, whole);
            assert_non_null(strstr(whole, "Connection: close"));
            assert_non_null(strstr(whole, "{\"error\":\""));
        }
        char *by_bytes = answer_by_bytes(cases[c].input, length);
        assert_string_equal(by_bytes, whole);
        free(by_bytes);
        for (size_t first = 0; first <= length; first++) {
            for (size_t second = first; second <= length; second++) {
                char *out = answer_to(cases[c].input, length, first, second, 1 + first % 7);
                if (strcmp(out, whole) != 0)
                    print_error("case: %s, cut at %zu and %zu\n", cases[c].name, first, second);
                assert_string_equal(out, whole);
                free(out);
            }
        }
        free(whole);
    }
}

static void replies_are_sent_in_the_order_of_the_requests(void **state)
{
    (void)state;
    static const char input[] =
        "GET /a HTTP/1.1\r\nHost: x\r\n\r\nGET /b HTTP/1.1\r\nHost: x\r\n\r\nGET /c HTTP/1.1\r\nHost: x\r\n\r\n";
    static const char output[] =
        OK(16, "0 /a 0 811c9dc5\n") OK(16, "0 /b 0 811c9dc5\n") OK(16, "0 /c 0 811c9dc5\n");
    static const unsigned int orders[][3] = {{0, 0, 0}, {2, 1, 0}, {1, 1, 0},
                                             {0, 1, 0}, {2, 0, 0}, {1, 0, 0}};
    for (size_t i = 0; i < ARRAY_SIZE(orders); i++) {
        struct driver d;
        driver_init(&d);
        d.defer = true;
        driver_feed(&d, input, strlen(input));
        assert_int_equal(d.n_waiting, 3);
        for (int k = 0; k < 3; k++) {
            driver_reply(&d, orders[i][k]);
            driver_flush(&d);
        }
        assert_int_equal(d.out_size, strlen(output));
        assert_memory_equal(d.out, output, strlen(output));
        assert_true(driver_done(&d));
    }
}

static void a_full_pipeline_stops_reading(void **state)
{
    (void)state;
    static const char one[] = "GET /a HTTP/1.1\r\nHost: x\r\n\r\n";
    struct driver d;
    struct iovec space[2];
    driver_init(&d);
    d.defer = true;
    char many[1000 * (sizeof(one) - 1)];
    for (size_t i = 0; i < 1000; i++)
        memcpy(many + i * strlen(one), one, strlen(one));
    size_t fed = driver_feed(&d, many, sizeof(many));
    assert_int_equal(d.n_waiting, 4); /* max_pipeline */
    assert_true(fed <= sizeof(d.scratch));
    assert_int_equal(http1_read_space(&d.http1, space), 0);
    driver_reply(&d, 0);
    driver_flush(&d);
    assert_int_equal(d.n_waiting, 4); /* the next one moved up */
    while (d.n_waiting > 0) {
        driver_reply(&d, 0);
        driver_flush(&d);
    }
    assert_int_equal(d.n_requests, fed / strlen(one));
    assert_int_equal(http1_read_space(&d.http1, space), 1);
    driver_feed(&d, many + fed, 2 * strlen(one)); /* continues in the middle of a head */
    driver_flush(&d);
    assert_int_equal(d.n_requests, (fed + 2 * strlen(one)) / strlen(one));
    assert_true(driver_done(&d));
}

static int announce(char *head, size_t n_head, const char *path, size_t length)
{
    return snprintf(head, n_head,
                    "POST %s HTTP/1.1\r\nHost: x\r\nInference-Header-Content-Length: 77\r\n"
                    "Content-Length: %zu\r\n\r\n",
                    path, length);
}

static void large_bodies_are_read_without_a_copy(void **state)
{
    (void)state;
    struct driver d;
    char head[128];
    size_t length = 300000;
    char *body = malloc(length);
    memset(body, 'b', length);
    int n = announce(head, sizeof(head), "/big", length);
    driver_init(&d);
    assert_int_equal(driver_feed(&d, head, (size_t)n), n);
    struct iovec space[2];
    assert_int_equal(http1_read_space(&d.http1, space), 1); /* no byte yet, so no address */
    assert_int_equal(driver_feed(&d, body, 1), 1);
    assert_int_equal(http1_read_space(&d.http1, space), 2);
    assert_int_equal(space[0].iov_len, length - 1); /* no buffer in between */
    assert_int_equal(((uintptr_t)space[0].iov_base - 1 + 77) % 64, 0);
    driver_feed(&d, body, length - 1);
    driver_feed(&d, "GET /b HTTP/1.1\r\nHost: x\r\n\r\n", 28);
    driver_flush(&d);
    assert_int_equal(d.n_requests, 2);
    free(body);
    assert_true(driver_done(&d));
}

static void an_announced_body_takes_no_memory(void **state)
{
    (void)state;
    struct driver d;
    char head[128];
    driver_init(&d);
    driver_feed(&d, "GET /a HTTP/1.1\r\nHost: x\r\n\r\n", 28);
    driver_flush(&d);
    struct pool_stats before, after;
    pool_stats(d.pool, &before);
    driver_feed(&d, head, (size_t)announce(head, sizeof(head), "/a", 900000));
    pool_stats(d.pool, &after);
    assert_int_equal(after.n_allocs, before.n_allocs); /* the first exchange, used again */
    assert_true(driver_done(&d));
}

/* More than 1 MiB: 64 KiB first, and when these have arrived the rest, once. */
static void an_announced_length_is_allocated_after_its_first_bytes(void **state)
{
    (void)state;
    enum { LENGTH = 100 << 20, PIECE = 1 << 20 };
    struct driver d;
    char head[128], *piece = calloc(1, PIECE);
    struct iovec space[2];
    driver_init(&d);
    d.limits.max_body_bytes = LENGTH;
    driver_feed(&d, head, (size_t)announce(head, sizeof(head), "/big", LENGTH));
    driver_feed(&d, piece, 1000);
    assert_int_equal(d.http1.current->body_capacity, 64 << 10);
    driver_feed(&d, piece, (64 << 10) - 1000);
    assert_int_equal(d.http1.current->body_capacity, LENGTH);
    struct pool_stats before, after;
    pool_stats(d.pool, &before);
    const char *body = d.http1.current->body;
    for (size_t left = LENGTH - (64 << 10); left > PIECE; left -= PIECE) {
        assert_int_equal(http1_read_space(&d.http1, space), 2);
        assert_ptr_equal(space[0].iov_base, body + (LENGTH - left)); /* to its final address */
        assert_int_equal(space[0].iov_len, left);
        http1_received(&d.http1, PIECE); /* as if that many bytes had arrived */
        assert_ptr_equal(d.http1.current->body, body);
    }
    pool_stats(d.pool, &after);
    assert_int_equal(after.n_allocs, before.n_allocs);
    free(piece);
    assert_true(driver_done(&d));
}

/* A chunked body of 40 MiB: only the first mapping is allocated, and the bytes do not change. */
static void chunks_are_not_copied_from_1_mib_on(void **state)
{
    (void)state;
    enum { SIZE = 400, N_CHUNKS = 100000 };
    struct driver d;
    struct budget *b = budget_new(1 << 30);
    struct pool_stats stats;
    char chunk[SIZE + 16];
    driver_init(&d);
    pool_set_budget(d.pool, b);
    d.env.net.budget = b;
    d.limits.max_body_bytes = (uint64_t)1 << 30;
    d.limits.max_chunks = d.http1.parser.max_chunks = N_CHUNKS;
    static const char head[] = "POST /c HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
    driver_feed(&d, head, strlen(head));
    uint64_t n_blocks = 0;
    for (int i = 0; i < N_CHUNKS; i++) {
        int n = snprintf(chunk, sizeof(chunk), "%x\r\n%0*d\r\n", SIZE, SIZE, i);
        assert_int_equal(driver_feed(&d, chunk, (size_t)n), n);
        pool_stats(d.pool, &stats);
        if (d.http1.current->body_capacity >= 1 << 20 && n_blocks == 0)
            n_blocks = stats.n_allocs;
    }
    assert_int_equal(stats.n_allocs, n_blocks);
    struct exchange *x = d.http1.current;
    assert_int_equal(x->body_size, (size_t)SIZE * N_CHUNKS);
    for (int i = 0; i < N_CHUNKS; i++) {
        char text[SIZE + 1];
        snprintf(text, sizeof(text), "%0*d", SIZE, i);
        assert_memory_equal(x->body + (size_t)i * SIZE, text, SIZE);
    }
    driver_feed(&d, "0\r\n\r\n", 5);
    driver_flush(&d);
    assert_int_equal(d.n_requests, 1);
    assert_true(driver_done(&d));
    budget_unref(b);
}

/* The length of the pipeline depends on the size of its bodies and replies. */
static void a_heavy_pipeline_stops_reading(void **state)
{
    (void)state;
    struct driver d;
    char request[3000];
    struct iovec space[2];
    memset(request, 'x', sizeof(request));
    int n = snprintf(request, sizeof(request),
                     "POST /p HTTP/1.1\r\nHost: x\r\nContent-Length: 2000\r\n\r\n");
    request[n] = 'x';
    driver_init(&d);
    d.defer = true;
    d.limits.max_pipeline = 60;
    d.limits.max_pipeline_bytes = 5000;
    for (int i = 0; i < 3; i++)
        assert_int_equal(driver_feed(&d, request, (size_t)n + 2000), n + 2000);
    assert_int_equal(d.n_requests, 3);
    assert_int_equal(http1_read_space(&d.http1, space), 0);
    driver_reply(&d, 0);
    assert_int_equal(http1_read_space(&d.http1, space), 0); /* the reply has not been sent */
    driver_flush(&d);
    assert_int_equal(driver_feed(&d, request, (size_t)n + 2000), n + 2000);
    assert_int_equal(d.n_requests, 4);
    assert_int_equal(http1_read_space(&d.http1, space), 0);
    while (d.n_waiting > 0)
        driver_reply(&d, 0);
    driver_flush(&d);
    assert_int_equal(d.http1.weight_bytes, 0);
    assert_true(driver_done(&d));
}

static void drive_with_budget(struct driver *d, struct budget *b)
{
    driver_init(d);
    pool_set_budget(d->pool, b);
    d->env.net.budget = b;
    d->limits.max_body_bytes = 1 << 30;
}

static void a_short_budget_refuses_large_bodies(void **state)
{
    (void)state;
    enum { MIB = 1 << 20 };
    static const char refusal[] = "HTTP/1.1 503 Service Unavailable\r\n"
                                  "Content-Type: application/json\r\nRetry-After: 1\r\n";
    struct budget *b = budget_new(16 * MIB);
    struct driver d, other;
    char head[256], *bytes = calloc(1, MIB);
    drive_with_budget(&d, b);
    driver_feed(&d, head, (size_t)announce(head, sizeof(head), "/a", 10 * MIB));
    driver_feed(&d, bytes, 100 << 10);
    assert_int_equal(d.http1.current->body_capacity, 10 * MIB);

    /* A body of known length that can never fit, or does not fit now, is refused without 100
     * Continue. */
    drive_with_budget(&other, b);
    driver_feed(&other, head, (size_t)announce(head, sizeof(head), "/b", 15 * MIB));
    driver_flush(&other);
    assert_memory_equal(other.out, "HTTP/1.1 413 ", 13);
    assert_true(driver_done(&other));
    drive_with_budget(&other, b);
    int n = snprintf(
        head, sizeof(head),
        "POST /b HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n",
        5 * MIB);
    driver_feed(&other, head, (size_t)n);
    driver_flush(&other);
    assert_memory_equal(other.out, refusal, strlen(refusal));
    assert_true(driver_done(&other));

    /* A chunked body is refused when it becomes larger than the room. */
    drive_with_budget(&other, b);
    static const char chunked[] =
        "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n7ffffff\r\n";
    driver_feed(&other, chunked, strlen(chunked));
    for (int i = 0; i < 10; i++)
        driver_feed(&other, bytes, MIB);
    driver_flush(&other);
    assert_memory_equal(other.out, refusal, strlen(refusal));
    assert_true(driver_done(&other));

    /* Small bodies are served. */
    drive_with_budget(&other, b);
    driver_feed(&other, head, (size_t)announce(head, sizeof(head), "/small", 60000));
    driver_feed(&other, bytes, 60000);
    driver_flush(&other);
    assert_memory_equal(other.out, "HTTP/1.1 200 ", 13);
    assert_true(driver_done(&other));

    assert_true(driver_done(&d));
    free(bytes);
    struct budget_stats stats;
    budget_stats(b, &stats);
    assert_int_equal(stats.used_bytes, 0);
    assert_true(stats.n_refused >= 2);
    budget_unref(b);
}

static void unused_exchanges_are_freed(void **state)
{
    (void)state;
    struct driver d;
    struct pool_stats stats;
    driver_init(&d);
    d.defer = true;
    d.limits.max_pipeline = 200;
    for (int i = 0; i < 200; i++)
        driver_feed(&d, "GET /a HTTP/1.1\r\nHost: x\r\n\r\n", 28);
    while (d.n_waiting > 0)
        driver_reply(&d, 0);
    driver_flush(&d);
    assert_int_equal(d.env.n_unused, 200);
    assert_false(http_env_settle(&d.env)); /* all were in use a moment before */
    assert_int_equal(d.env.n_unused, 200);
    assert_false(http_env_settle(&d.env));
    assert_int_equal(d.env.n_unused, 100);
    for (int i = 0; i < 3; i++)
        http_env_settle(&d.env);
    assert_true(http_env_settle(&d.env));
    assert_int_equal(d.env.n_unused, 16); /* a few stay */
    http_env_trim(&d.env);
    pool_stats(d.pool, &stats);
    assert_int_equal(stats.used_bytes, 0);
    assert_true(driver_done(&d));
}

static void an_unwanted_body_is_not_kept(void **state)
{
    (void)state;
    static const char head[] = "POST /void HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n";
    static const char chunked[] =
        "POST /void HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
    static const char chunk[] = "64\r\n"
                                "0123456789012345678901234567890123456789012345678901234567890123"
                                "456789012345678901234567890123456789\r\n";
    struct pool_stats before, after;
    char some[4096] = {0};
    struct driver d;
    driver_init(&d);
    driver_feed(&d, "GET /a HTTP/1.1\r\nHost: x\r\n\r\n", 28);
    driver_flush(&d);
    pool_stats(d.pool, &before);
    driver_feed(&d, head, strlen(head));
    for (size_t left = 1000000; left > 0; left -= MIN(left, sizeof(some)))
        driver_feed(&d, some, MIN(left, sizeof(some)));
    driver_flush(&d);
    driver_feed(&d, chunked, strlen(chunked));
    for (int i = 0; i < 40; i++)
        driver_feed(&d, chunk, strlen(chunk));
    driver_feed(&d, "0\r\n\r\n", 5);
    driver_flush(&d);
    pool_stats(d.pool, &after);
    assert_int_equal(d.n_requests, 3);
    assert_int_equal(before.n_misses, after.n_misses);
    assert_non_null(memmem(d.out, d.out_size, "/void 1000000 ", 14));
    assert_non_null(memmem(d.out, d.out_size, "/void 4000 ", 11));
    assert_true(driver_done(&d));
}

static void continue_is_sent_once_and_in_order(void **state)
{
    (void)state;
    static const char head[] =
        "POST /p HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n";
    static const char output[] =
        OK(16, "0 /a 0 811c9dc5\n") "HTTP/1.1 100 Continue\r\n\r\n" OK(16, "1 /p 5 4f9f2cab\n");
    struct driver d;
    driver_init(&d);
    d.defer = true;
    d.max_send = 7;
    driver_feed(&d, "GET /a HTTP/1.1\r\nHost: x\r\n\r\n", 28);
    driver_feed(&d, head, strlen(head));
    driver_flush(&d);
    assert_int_equal(d.out_size, 0); /* the reply to /a comes first */
    driver_reply(&d, 0);
    driver_flush(&d);
    driver_feed(&d, "hello", 5);
    driver_reply(&d, 0);
    driver_flush(&d);
    assert_int_equal(d.out_size, strlen(output));
    assert_memory_equal(d.out, output, strlen(output));
    assert_true(driver_done(&d));
}

static void requests_beyond_the_limits_get_errors(void **state)
{
    (void)state;
    struct driver d;
    driver_init(&d);
    for (int i = 0; i < 2000; i++)
        driver_feed(&d, "GET /aaaaaaaa", i ? 1 : 13);
    driver_flush(&d);
    assert_non_null(memmem(d.out, d.out_size, "431 Request Header", 18));
    assert_true(driver_done(&d));

    driver_init(&d);
    driver_feed(&d, "GET / HTTP/1.1\r\nHost: x\r\n", 25);
    for (int i = 0; i < 70; i++)
        driver_feed(&d, "A:b\r\n", 5);
    driver_flush(&d);
    assert_non_null(memmem(d.out, d.out_size, "too many headers", 16));
    assert_true(driver_done(&d));

    static const char chunked[] =
        "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
    driver_init(&d);
    driver_feed(&d, chunked, strlen(chunked));
    driver_feed(&d, "1;", 2);
    for (int i = 0; i < 1025; i++)
        driver_feed(&d, "a", 1);
    driver_flush(&d);
    assert_non_null(memmem(d.out, d.out_size, "extensions are too long", 23));
    assert_true(driver_done(&d));

    driver_init(&d);
    driver_feed(&d, chunked, strlen(chunked));
    for (int i = 0; i < 17; i++) { /* each is short enough */
        driver_feed(&d, "1;", 2);
        for (int j = 0; j < 1000; j++)
            driver_feed(&d, "a", 1);
        driver_feed(&d, "\r\nx\r\n", 5);
    }
    driver_flush(&d);
    assert_non_null(memmem(d.out, d.out_size, "extensions are too long", 23));
    assert_true(driver_done(&d));

    driver_init(&d);
    driver_feed(&d, chunked, strlen(chunked));
    for (int i = 0; i < 41; i++)
        driver_feed(&d, "1\r\nx\r\n", 6);
    driver_flush(&d);
    assert_non_null(memmem(d.out, d.out_size, "exceeds maximum of 65536 non-empty chunks", 41));
    assert_true(driver_done(&d));

    driver_init(&d);
    d.limits.max_body_bytes = 10;
    driver_feed(&d, chunked, strlen(chunked));
    driver_feed(&d, "b\r\n0123456789a\r\n", 16);
    driver_flush(&d);
    assert_non_null(memmem(d.out, d.out_size, "413 Content", 11));
    assert_true(driver_done(&d));
}

static void a_client_that_leaves_cancels_its_requests(void **state)
{
    (void)state;
    struct driver d;
    driver_init(&d);
    d.defer = true;
    driver_feed(
        &d,
        "GET /a HTTP/1.1\r\nHost: x\r\n\r\nPOST /b HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nhalf",
        80);
    assert_int_equal(d.n_waiting, 1);
    http1_abort(&d.http1);
    assert_int_equal(d.n_cancelled, 1);
    assert_true(driver_done(&d));
    assert_int_equal(d.out_size, 0);
}

static bool said(const struct driver *d, const char *text)
{
    return memmem(d->out, d->out_size, text, strlen(text)) != NULL;
}

/* Whole requests are answered, a partial one is refused. */
static void a_half_closed_client_is_answered(void **state)
{
    (void)state;
    static const char *const starts[] = {
        "", "\r\n", "GET /b HT", "POST /b HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nhalf"};
    for (size_t i = 0; i < ARRAY_SIZE(starts); i++) {
        struct driver d;
        driver_init(&d);
        d.defer = true;
        driver_feed(&d, "GET /a HTTP/1.1\r\nHost: x\r\n\r\n", 28);
        driver_feed(&d, starts[i], strlen(starts[i]));
        http1_end_input(&d.http1);
        http1_end_input(&d.http1); /* a second call has no effect */
        assert_int_equal(d.n_cancelled, 0);
        assert_false(http1_is_over(&d.http1));
        driver_reply(&d, 0);
        driver_flush(&d);
        assert_true(http1_is_over(&d.http1));
        assert_true(said(&d, "0 /a 0 "));
        assert_int_equal(said(&d, "HTTP/1.1 400 "), i >= 2);
        assert_int_equal(said(&d, "the request is incomplete: the client sends no more"), i >= 2);
        assert_true(driver_done(&d));
    }
}

/* Returns the replies to two requests, sent at most max_send bytes at a time; probes whether the
 * client is there after n_before bytes were sent. */
static char *replies_probed(size_t max_send, unsigned int n_before, bool http_1_0)
{
    static const char first[] = "GET /a HTTP/1.1\r\nHost: x\r\n\r\n",
                      last[] = "GET /b HTTP/1.0\r\n\r\n";
    struct driver d;
    driver_init(&d);
    d.defer = true;
    d.max_send = max_send;
    driver_feed(&d, first, strlen(first));
    driver_feed(&d, http_1_0 ? last : first, strlen(http_1_0 ? last : first));
    assert_int_equal(d.n_waiting, 2);
    for (unsigned int i = 0; i < 2; i++) {
        if (n_before == i) {
            size_t before = d.out_size;
            http1_probe(&d.http1);
            driver_flush(&d);
            http1_probe(&d.http1); /* once is enough */
            driver_flush(&d);
            assert_int_equal(d.out_size - before, 9);
        }
        driver_reply(&d, 0);
        driver_flush(&d);
    }
    char *text = calloc(1, d.out_size + 1);
    memcpy(text, d.out, d.out_size);
    assert_true(driver_done(&d));
    return text;
}

static void a_reply_that_has_begun_is_sent_whole(void **state)
{
    (void)state;
    for (int http_1_0 = 0; http_1_0 < 2; http_1_0++) {
        char *plain = replies_probed(0, 2, http_1_0);
        for (unsigned int n_before = 0; n_before < 2; n_before++) {
            for (size_t max_send = 0; max_send < 12; max_send++) {
                char *probed = replies_probed(max_send, n_before, http_1_0);
                assert_string_equal(probed, plain);
                free(probed);
            }
        }
        free(plain);
    }
}

static void a_draining_connection_closes_with_its_last_reply(void **state)
{
    (void)state;
    static const char output[] = OK(16, "0 /a 0 811c9dc5\n") OK_CLOSE(16, "0 /b 0 811c9dc5\n");
    struct driver d;
    driver_init(&d);
    d.defer = true;
    driver_feed(&d, "GET /a HTTP/1.1\r\nHost: x\r\n\r\nGET /b HTTP/1.1\r\nHost: x\r\n\r\n", 56);
    d.env.net.draining = true;
    driver_reply(&d, 1);
    driver_reply(&d, 0);
    driver_flush(&d);
    assert_int_equal(d.out_size, strlen(output));
    assert_memory_equal(d.out, output, strlen(output));
    assert_true(http1_is_over(&d.http1));
    assert_true(driver_done(&d));
}

static void fixed_replies_may_close_the_connection(void **state)
{
    (void)state;
    static const struct http_reply_fixed fixed =
        HTTP_REPLY_FIXED("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n", "ok");
    static const struct {
        const char *input, *output;
    } rows[] = {
        {"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"},
        {"HEAD / HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n"},
        {"GET / HTTP/1.0\r\n\r\n",
         "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct driver d;
        driver_init(&d);
        d.defer = true;
        driver_feed(&d, rows[i].input, strlen(rows[i].input));
        assert_int_equal(d.n_waiting, 1);
        exchange_reply_fixed(d.waiting[--d.n_waiting], &fixed);
        driver_flush(&d);
        assert_int_equal(d.out_size, strlen(rows[i].output));
        assert_memory_equal(d.out, rows[i].output, d.out_size);
        assert_true(driver_done(&d));
    }
}

/* A client that announces no length, or a wrong one, causes no allocation in advance. */
static void memory_is_allocated_as_the_body_arrives(void **state)
{
    (void)state;
    static const struct {
        const char *input;
        size_t at_most;
    } bodies[] = {
        {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello", 5},
        {"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
         16 << 10},
    };
    for (size_t i = 0; i < ARRAY_SIZE(bodies); i++) {
        struct driver d;
        driver_init(&d);
        driver_feed(&d, bodies[i].input, strlen(bodies[i].input));
        assert_int_equal(d.n_requests, 1);
        assert_in_range(d.body_capacity, 5, bodies[i].at_most);
        driver_flush(&d);
        assert_true(driver_done(&d));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_split_of_the_input_gives_the_same_replies),
        cmocka_unit_test(replies_are_sent_in_the_order_of_the_requests),
        cmocka_unit_test(a_full_pipeline_stops_reading),
        cmocka_unit_test(large_bodies_are_read_without_a_copy),
        cmocka_unit_test(an_announced_body_takes_no_memory),
        cmocka_unit_test(an_announced_length_is_allocated_after_its_first_bytes),
        cmocka_unit_test(chunks_are_not_copied_from_1_mib_on),
        cmocka_unit_test(a_heavy_pipeline_stops_reading),
        cmocka_unit_test(a_short_budget_refuses_large_bodies),
        cmocka_unit_test(unused_exchanges_are_freed),
        cmocka_unit_test(an_unwanted_body_is_not_kept),
        cmocka_unit_test(continue_is_sent_once_and_in_order),
        cmocka_unit_test(requests_beyond_the_limits_get_errors),
        cmocka_unit_test(a_client_that_leaves_cancels_its_requests),
        cmocka_unit_test(a_half_closed_client_is_answered),
        cmocka_unit_test(a_reply_that_has_begun_is_sent_whole),
        cmocka_unit_test(a_draining_connection_closes_with_its_last_reply),
        cmocka_unit_test(fixed_replies_may_close_the_connection),
        cmocka_unit_test(memory_is_allocated_as_the_body_arrives),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
