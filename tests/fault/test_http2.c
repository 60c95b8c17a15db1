/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An HTTP/2 connection with each allocation failing: requests are answered right, are refused, or
 * end with the connection; and all memory comes back.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "lib/fault.h"
#include "lib/http2_client.h"

enum { LARGE_BYTES = 100000, MOST_HEADERS = 40 };

struct way {
    size_t portion; /* bytes per read */
    bool later;     /* answers are given when all requests are in */
};

static char body[LARGE_BYTES];

static void check_answer(const struct h2c_stream *s, bool *ret_good)
{
    if (s->closed && s->close_code == HTTP2_NO_ERROR && strcmp(s->status, "200") == 0 &&
        s->n_data == s->n_body) {
        assert_true(s->n_data == 0 || memcmp(s->data, s->body, s->n_data) == 0);
        return;
    }
    *ret_good = false;
}

static struct status *serve(void *arg)
{
    const struct way *way = arg;
    struct h2_driver *d = malloc(sizeof(*d));
    struct h2_client *c = malloc(sizeof(*c));
    nghttp2_nv extra[MOST_HEADERS];
    static const char long_value[600] = {[0 ... 598] = 'v'};
    h2_init(d);
    pool_free(d->pool);
    d->pool = pool_new("test", 0, 0); /* keeps nothing: each block is an allocation that may fail */
    h2_begin(d);
    h2c_init(c, d, 0);
    c->portion = way->portion;
    for (int i = 0; i < MOST_HEADERS; i++)
        extra[i] = h2c_nv("x-header", i == 0 ? long_value : "value");
    const char *path = way->later ? "/later" : "/echo";
    (void)h2c_post(c, path, body, 0);
    (void)h2c_post(c, path, body, LARGE_BYTES);
    (void)h2c_request(c, path, body, 1000, SIZE_MAX, extra, MOST_HEADERS);
    h2c_pump(c);
    (void)h2c_post(c, path, body, 20);
    h2c_pump(c);
    while (d->n_waiting > 0)
        h2_answer(d, d->n_waiting - 1);
    h2c_pump(c);

    bool good = true;
    for (unsigned int i = 0; i < c->n_streams; i++)
        check_answer(&c->streams[i], &good);
    /* A connection that goes on has left no stream open. */
    if (!http2_protocol.is_over(d->session)) {
        assert_int_equal(c->n_goaways, 0);
        for (unsigned int i = 0; i < c->n_streams; i++)
            assert_true(c->streams[i].closed);
    }
    assert_int_equal(c->error, 0);
    h2c_done(c);
    assert_true(h2_done(d));
    free(c);
    free(d);
    return good ? NULL : status_no_memory();
}

static void at_once(void **state)
{
    (void)state;
    struct way way = {0};
    assert_true(fault_each_allocation(serve, &way) >= 60);
}

static void in_portions(void **state)
{
    (void)state;
    struct way way = {.portion = 3001};
    assert_true(fault_each_allocation(serve, &way) >= 60);
}

static void answered_later(void **state)
{
    (void)state;
    struct way way = {.later = true};
    assert_true(fault_each_allocation(serve, &way) >= 60);
}

static int fill_body(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(body); i++)
        body[i] = (char)('a' + i % 26);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(at_once),
        cmocka_unit_test(in_portions),
        cmocka_unit_test(answered_later),
    };
    return cmocka_run_group_tests(tests, fill_body, NULL);
}
