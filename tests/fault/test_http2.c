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

static void pass_seconds(struct h2_client *c, unsigned int seconds)
{
    while (seconds-- > 0 && !http2_protocol.is_over(c->d->session)) {
        c->d->now_ns += NS_PER_S;
        http2_protocol.check_time(c->d->session, c->d->now_ns);
        h2c_pump(c);
    }
}

/* Messages that stop halfway: one is given up for memory, one for its time; PINGs; an old age. */
static struct status *keep_times(void *arg)
{
    struct h2_driver *d = malloc(sizeof(*d));
    struct h2_client *c = malloc(sizeof(*c));
    static const nghttp2_nv none[1];
    (void)arg;
    h2_init(d);
    pool_free(d->pool);
    d->pool = pool_new("test", 0, 0);
    d->settings.times.keepalive_ns = 2 * NS_PER_S;
    d->settings.times.max_pings_without_data = 0;
    d->settings.times.max_age_ns = 80 * NS_PER_S;
    d->settings.times.age_grace_ns = 5 * NS_PER_S;
    h2_begin(d);
    h2c_init(c, d, 0);
    const struct h2c_stream *heavy = h2c_request(c, "/part", body, LARGE_BYTES, 50000, none, 0);
    const struct h2c_stream *light = h2c_request(c, "/part", body, LARGE_BYTES, 2, none, 0);
    (void)h2c_post(c, "/later", body, 10);
    h2c_pump(c);
    pass_seconds(c, 4);
    http2_protocol.refuse(d->session, REFUSAL_MEMORY);
    pass_seconds(c, 100);

    bool over = http2_protocol.is_over(d->session);
    bool good = heavy->close_code == HTTP2_ENHANCE_YOUR_CALM && light->close_code == HTTP2_CANCEL &&
                c->n_pings > 10 && c->n_goaways == 3 &&
                strcmp(c->goaway_text, "max_age_grace") == 0;
    assert_true(over);
    assert_int_equal(d->kept_bytes, 0);
    h2c_done(c);
    assert_true(h2_done(d));
    free(c);
    free(d);
    return good ? NULL : status_no_memory();
}

static void times_are_kept(void **state)
{
    (void)state;
    assert_true(fault_each_allocation(keep_times, NULL) >= 20);
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
        cmocka_unit_test(times_are_kept),
    };
    return cmocka_run_group_tests(tests, fill_body, NULL);
}
