/* SPDX-License-Identifier: Apache-2.0 */
/* Replies in parts, without sockets: their order, what is released when, clients that leave. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "lib/http1_driver.h"

#define HEAD      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
#define FIRST     "3\r\none\r\n"
#define REST      "7\r\ntwo and\r\n5\r\nthree\r\n0\r\n\r\n"
#define GET_PARTS "GET /parts HTTP/1.1\r\nHost: x\r\n\r\n"
#define GET_A     "GET /a HTTP/1.1\r\nHost: x\r\n\r\n"
#define REPLY_A   "HTTP/1.1 200 OK\r\nContent-Length: 16\r\n\r\n0 /a 0 811c9dc5\n"

static void begin_driver(struct driver *d, const char *input)
{
    driver_init(d);
    d->defer = true;
    assert_int_equal(driver_feed(d, input, strlen(input)), strlen(input));
    driver_flush(d);
}

static void go_on(struct driver *d, unsigned int i, unsigned int n_steps)
{
    while (n_steps-- > 0) {
        driver_reply(d, i);
        driver_flush(d);
    }
}

static void assert_sent(const struct driver *d, const char *text)
{
    assert_int_equal(d->out_size, strlen(text));
    assert_memory_equal(d->out, text, strlen(text));
}

static void parts_leave_as_they_come(void **state)
{
    (void)state;
    struct driver d;
    begin_driver(&d, GET_PARTS);
    go_on(&d, 0, 1);
    assert_sent(&d, HEAD);
    go_on(&d, 0, 1);
    assert_sent(&d, HEAD FIRST);
    assert_int_equal(d.n_parts_left, 1);
    assert_int_equal(d.n_ends, 0);
    go_on(&d, 0, 3);
    assert_sent(&d, HEAD FIRST REST);
    assert_int_equal(d.n_ends, 1);
    assert_true(http1_is_idle(&d.http1));
    assert_true(driver_done(&d));
}

static void parts_wait_for_the_replies_of_earlier_requests(void **state)
{
    (void)state;
    struct driver d;
    begin_driver(&d, GET_A GET_PARTS GET_A);
    go_on(&d, 1, 2);
    assert_int_equal(d.out_size, 0);
    assert_int_equal(d.n_parts_left, 0);
    go_on(&d, 2, 1); /* the reply of the third request waits for the second one's end */
    go_on(&d, 0, 1);
    assert_sent(&d, REPLY_A HEAD FIRST);
    go_on(&d, 0, 3);
    assert_sent(&d, REPLY_A HEAD FIRST REST REPLY_A);
    assert_true(driver_done(&d));
}

static void parts_that_wait_for_the_reader_have_weight(void **state)
{
    (void)state;
    struct driver d;
    begin_driver(&d, GET_PARTS);
    size_t before = http1_weight(&d.http1);
    for (int i = 0; i < 3; i++)
        driver_reply(&d, 0);
    assert_int_equal(http1_weight(&d.http1), before + strlen(FIRST) + strlen("7\r\ntwo and\r\n"));
    driver_flush(&d);
    assert_int_equal(http1_weight(&d.http1), before);
    go_on(&d, 0, 2);
    assert_int_equal(http1_weight(&d.http1), 0);
    assert_true(driver_done(&d));
}

/* Whatever has come of the reply, and whether or not it has left: a client that is gone cancels the
 * request, unless its reply is complete, and all parts are released. */
static void a_client_that_leaves_cancels_at_any_stage(void **state)
{
    (void)state;
    for (unsigned int n_steps = 0; n_steps <= 5; n_steps++) {
        for (int flushed = 0; flushed < 2; flushed++) {
            struct driver d;
            begin_driver(&d, GET_A GET_PARTS);
            if (flushed)
                driver_reply(&d, 0); /* so that the parts may leave */
            for (unsigned int i = 0; i < n_steps; i++)
                driver_reply(&d, flushed ? 0 : 1);
            http1_queue_output(&d.http1);
            d.max_send = 7;
            http1_abort(&d.http1);
            unsigned int n_open = (n_steps < 5) + (flushed ? 0 : 1);
            assert_int_equal(d.n_cancelled, n_open);
            assert_int_equal(d.n_ends, 2 - n_open);
            assert_int_equal(d.n_parts_left, MIN(n_steps - (n_steps > 0), 3u));
            while (d.n_waiting > 0)
                driver_reply(&d, 0);
            assert_int_equal(d.n_ends, 2);
            assert_true(driver_done(&d));
        }
    }
}

/* A client that has closed its sending side may have left: a digit of the next chunk's size is sent
 * to find out. The chunks stay the same numbers. */
static void a_silent_reply_is_probed_by_a_digit(void **state)
{
    (void)state;
    struct driver d;
    begin_driver(&d, GET_PARTS);
    go_on(&d, 0, 2);
    http1_end_input(&d.http1);
    http1_probe(&d.http1);
    driver_flush(&d);
    assert_sent(&d, HEAD FIRST "0");
    driver_flush(&d);
    assert_sent(&d, HEAD FIRST "0"); /* once */
    go_on(&d, 0, 3);
    assert_sent(&d, HEAD FIRST "0" REST);
    assert_true(http1_is_over(&d.http1));
    assert_true(driver_done(&d));
}

static void a_probe_may_precede_head_and_end(void **state)
{
    (void)state;
    struct driver d;
    begin_driver(&d, GET_PARTS);
    http1_end_input(&d.http1);
    http1_probe(&d.http1);
    driver_flush(&d);
    assert_sent(&d, "HTTP/1.1 ");
    go_on(&d, 0, 1);
    assert_sent(&d, HEAD "0");
    go_on(&d, 0, 4);
    assert_sent(&d, HEAD "0" FIRST REST);
    assert_true(driver_done(&d));

    begin_driver(&d, GET_PARTS);
    go_on(&d, 0, 4);
    http1_end_input(&d.http1);
    http1_probe(&d.http1);
    driver_flush(&d);
    go_on(&d, 0, 1);
    assert_sent(&d, HEAD FIRST "7\r\ntwo and\r\n5\r\nthree\r\n"
                               "0"
                               "0\r\n\r\n");
    assert_true(driver_done(&d));
}

static void without_chunks_the_close_ends_the_reply(void **state)
{
    (void)state;
    struct driver d;
    begin_driver(&d, "GET /parts HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    go_on(&d, 0, 4);
    assert_sent(&d, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nonetwo andthree");
    assert_false(http1_wants_input(&d.http1));
    assert_int_equal(d.n_parts_left, 3);
    assert_false(http1_is_over(&d.http1)); /* more may come */
    go_on(&d, 0, 1);
    assert_int_equal(d.n_ends, 1);
    assert_true(http1_is_over(&d.http1));
    assert_true(driver_done(&d));
}

/* Without chunks the byte is what the handler names. */
static void a_silent_reply_without_chunks_is_probed_by_its_filler(void **state)
{
    (void)state;
    struct driver d;
    begin_driver(&d, "GET /parts HTTP/1.0\r\n\r\n");
    go_on(&d, 0, 2);
    http1_probe(&d.http1);
    driver_flush(&d);
    driver_flush(&d);
    assert_sent(&d, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\none\n");
    go_on(&d, 0, 3);
    assert_sent(&d, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\none\ntwo andthree");
    assert_true(http1_is_over(&d.http1));
    assert_true(driver_done(&d));
}

static void without_memory_the_reply_is_an_error(void **state)
{
    (void)state;
    struct driver d;
    begin_driver(&d, GET_A);
    char *headers = calloc(1, 65 << 20); /* more than an exchange may have */
    memset(headers, 'x', (65 << 20) - 1);
    struct http_reply reply = {.status = 200, .headers = headers, .headers_length = (65 << 20) - 1};
    assert_false(exchange_reply_begin(d.waiting[0], &reply));
    d.n_waiting = 0;
    driver_flush(&d);
    assert_non_null(memmem(d.out, d.out_size, "503 Service Unavailable", 23));
    free(headers);
    assert_true(driver_done(&d));
}

static void statuses_have_their_names(void **state)
{
    (void)state;
    static const struct {
        int status;
        const char *text;
    } expected[] = {
        {409, "409 Conflict"},
        {415, "415 Unsupported Media Type"},
        {417, "417 Expectation Failed"},
        {504, "504 Gateway Timeout"},
        {507, "507 Insufficient Storage"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(expected); i++)
        assert_string_equal(http_status_text(expected[i].status), expected[i].text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_leave_as_they_come),
        cmocka_unit_test(parts_wait_for_the_replies_of_earlier_requests),
        cmocka_unit_test(parts_that_wait_for_the_reader_have_weight),
        cmocka_unit_test(a_client_that_leaves_cancels_at_any_stage),
        cmocka_unit_test(a_silent_reply_is_probed_by_a_digit),
        cmocka_unit_test(a_probe_may_precede_head_and_end),
        cmocka_unit_test(without_chunks_the_close_ends_the_reply),
        cmocka_unit_test(a_silent_reply_without_chunks_is_probed_by_its_filler),
        cmocka_unit_test(without_memory_the_reply_is_an_error),
        cmocka_unit_test(statuses_have_their_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
