/* SPDX-License-Identifier: Apache-2.0 */
/* Clients that are slow or gone, PINGs of ours, the age of a connection, orderly ends. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "lib/http2_pair.h"

static const nghttp2_nv none[1];

/* Time passes, second by second, as the connection's timer sees it. */
static void pass_seconds(struct pair *p, unsigned int seconds)
{
    while (seconds-- > 0 && p->d.session) {
        p->d.now_ns += NS_PER_S;
        http2_protocol.check_time(p->d.session, p->d.now_ns);
        h2c_pump(&p->c);
    }
}

static void a_stalled_message_is_reset(void **state)
{
    (void)state;
    struct pair *p = begin_pair();
    char *body = make_letters(10000);
    memcpy(body, "\0\0\x27\x10", 4);
    struct h2c_stream *s = h2c_request(&p->c, "/sized", body, 10000, 100, none, 0);
    struct h2c_stream *other = h2c_post(&p->c, "/later", "x", 1);
    h2c_pump(&p->c);
    for (int i = 1; i < 5; i++) { /* a byte in 50 seconds is enough without a least rate */
        pass_seconds(p, 50);
        assert_false(s->closed);
        h2c_allow(&p->c, s, 100 + (size_t)i);
        h2c_pump(&p->c);
    }
    pass_seconds(p, 58);
    assert_false(s->closed);
    pass_seconds(p, 5);
    assert_true(s->closed);
    assert_int_equal(s->close_code, HTTP2_CANCEL);
    assert_int_equal(p->d.n_cancelled, 1);
    /* A client that waits for us is not slow. */
    assert_false(other->closed);
    h2_answer(&p->d, 0);
    h2c_pump(&p->c);
    assert_true(other->ended);
    free(body);
    end_pair(p);
}

/* A client that goes on with its request is waited for. */
static void a_stop_waits_a_second_for_half_a_request(void **state)
{
    (void)state;
    struct pair *p = begin_pair();
    char *body = make_letters(10000);
    memcpy(body, "\0\0\x27\x10", 4);
    struct h2c_stream *silent = h2c_request(&p->c, "/sized", body, 10000, 100, none, 0);
    struct h2c_stream *slow = h2c_request(&p->c, "/sized", body, 10000, 100, none, 0);
    h2c_pump(&p->c);
    pass_seconds(p, 2);
    assert_false(silent->closed);
    p->d.env->net.draining = true;
    http2_protocol.drain(p->d.session);
    for (int i = 1; i < 5; i++) {
        h2c_allow(&p->c, slow, 100 + (size_t)i);
        h2c_pump(&p->c);
        pass_seconds(p, 1);
    }
    assert_true(silent->closed);
    assert_int_equal(silent->close_code, HTTP2_REFUSED_STREAM);
    assert_false(slow->closed);
    assert_int_equal(p->d.n_cancelled, 1);
    assert_false(http2_protocol.is_over(p->d.session));
    h2c_allow(&p->c, slow, SIZE_MAX);
    h2c_pump(&p->c);
    char hash[9];
    snprintf(hash, sizeof(hash), "%08x", h2_hash(body, 10000));
    assert_int_equal(slow->n_data, 8);
    assert_memory_equal(slow->data, hash, 8);
    assert_true(slow->ended);
    assert_int_equal(slow->close_code, HTTP2_NO_ERROR);
    assert_true(http2_protocol.is_over(p->d.session));
    free(body);
    end_pair(p);
}

static void a_request_without_a_body_is_reset(void **state)
{
    (void)state;
    struct pair *p = begin_pair();
    struct h2c_stream *one = h2c_request(&p->c, "/sized", "x", 1, 0, none, 0);
    struct h2c_stream *many = h2c_request(&p->c, "/echo", "x", 1, 0, none, 0);
    h2c_pump(&p->c);
    pass_seconds(p, 65);
    assert_true(one->closed);
    assert_false(many->closed); /* a stream of messages may be silent */
    end_pair(p);
}

static void use_a_least_rate(struct h2_driver *d)
{
    d->settings.times.min_rate = 100;
    d->settings.times.rate_ns = 20 * NS_PER_S;
}

static void a_message_below_the_least_rate_is_reset(void **state)
{
    (void)state;
    struct pair *p = begin_pair_with(use_a_least_rate, 0);
    char *body = make_letters(100000);
    memcpy(body, "\0\1\x86\xa0", 4);
    struct h2c_stream *slow = h2c_request(&p->c, "/sized", body, 100000, 100, none, 0);
    struct h2c_stream *fast = h2c_request(&p->c, "/sized", body, 100000, 100, none, 0);
    h2c_pump(&p->c);
    for (size_t i = 1; i <= 45; i++) {
        h2c_allow(&p->c, slow, 100 + i * 50);
        h2c_allow(&p->c, fast, 100 + i * 150);
        h2c_pump(&p->c);
        pass_seconds(p, 1);
    }
    assert_true(slow->closed);
    assert_false(fast->closed);
    free(body);
    end_pair(p);
}

static void an_answer_without_a_window_is_reset(void **state)
{
    (void)state;
    struct pair *p = begin_pair_with(NULL, H2C_NO_WINDOW);
    char *body = make_letters(10000);
    struct h2c_stream *s = h2c_post(&p->c, "/echo", body, 10000);
    h2c_pump(&p->c);
    pass_seconds(p, 55);
    assert_false(s->closed);
    nghttp2_submit_window_update(p->c.ng, 0, s->id, 1); /* one byte more may be sent: progress */
    h2c_pump(&p->c);
    assert_int_equal(s->n_data, 1);
    pass_seconds(p, 58);
    assert_false(s->closed);
    pass_seconds(p, 5);
    assert_true(s->closed);
    assert_int_equal(p->d.n_cancelled, 1);
    assert_int_equal(p->d.n_pieces, p->d.n_released);
    free(body);
    end_pair(p);
}

/* An attacker's windows of one byte. */
static void an_answer_with_tiny_windows_is_reset(void **state)
{
    (void)state;
    struct pair *p = begin_pair_with(use_a_least_rate, H2C_NO_WINDOW);
    char *body = make_letters(100000);
    for (int i = 0; i < 20; i++)
        (void)h2c_post(&p->c, "/echo", body, 100000);
    h2c_pump(&p->c);
    for (int i = 0; i < 45; i++) {
        for (int k = 0; k < 20; k++)
            nghttp2_submit_window_update(p->c.ng, 0, 2 * k + 1, 1);
        pass_seconds(p, 1);
    }
    assert_int_equal(p->d.n_cancelled, 20);
    assert_int_equal(p->d.n_ended, 20);
    free(body);
    end_pair(p);
}

/* A stream of messages: half a message must go on, nothing at all need not. */
static void half_a_message_is_reset(void **state)
{
    (void)state;
    struct pair *p = begin_pair();
    char *body = make_letters(10000);
    memcpy(body, "\0\0\x27\x10", 4);
    struct h2c_stream *half = h2c_request(&p->c, "/part", body, 10000, 100, none, 0);
    struct h2c_stream *silent = h2c_request(&p->c, "/part", body, 10000, 0, none, 0);
    h2c_pump(&p->c);
    pass_seconds(p, 58);
    assert_false(half->closed);
    pass_seconds(p, 5);
    assert_true(half->closed);
    assert_int_equal(half->close_code, HTTP2_CANCEL);
    assert_int_equal(p->d.n_cancelled, 1);
    assert_false(silent->closed);
    h2c_allow(&p->c, silent, SIZE_MAX); /* complete: the client may be silent from here on */
    h2c_pump(&p->c);
    assert_int_equal(silent->n_data, 10000);
    free(body);
    end_pair(p);
}

/* A client that goes on sending has to read its answer all the same. */
static void an_answer_without_a_window_is_reset_while_bytes_come(void **state)
{
    (void)state;
    struct pair *p = begin_pair_with(NULL, H2C_NO_WINDOW);
    char *body = make_letters(100000);
    struct h2c_stream *s = h2c_request(&p->c, "/stream", body, 100000, 5000, none, 0);
    h2c_pump(&p->c);
    for (size_t i = 1; i < 65 && !s->closed; i++) {
        h2c_allow(&p->c, s, 5000 + 1000 * i);
        h2c_pump(&p->c);
        pass_seconds(p, 1);
        assert_true(i >= 58 || !s->closed);
    }
    assert_true(s->closed);
    assert_int_equal(p->d.n_cancelled, 1);
    free(body);
    end_pair(p);
}

/* Other answers that flow do not hide that one stream has no window. */
static void an_answer_without_a_window_is_reset_beside_others(void **state)
{
    (void)state;
    struct pair *p = begin_pair_with(NULL, H2C_NO_WINDOW);
    char *body = make_letters(10000);
    struct h2c_stream *s = h2c_post(&p->c, "/echo", body, 10000);
    h2c_pump(&p->c);
    for (int i = 0; i < 65 && !s->closed; i++) {
        p->d.now_ns += NS_PER_S;
        struct h2c_stream *other = h2c_post(&p->c, "/echo", body, 100);
        h2c_collect(&p->c);
        p->c.n_unfed -= h2_feed(&p->d, p->c.wire + p->c.n_wire - p->c.n_unfed, p->c.n_unfed);
        http2_protocol.queue_output(p->d.session); /* its head is on its way at the check */
        http2_protocol.check_time(p->d.session, p->d.now_ns);
        h2c_pump(&p->c);
        nghttp2_submit_window_update(p->c.ng, 0, other->id, 100);
        h2c_pump(&p->c);
        assert_true(other->ended);
    }
    assert_true(s->closed);
    free(body);
    end_pair(p);
}

/* A loop that stood still reads what has come meanwhile before it judges the client. */
static void a_client_held_up_by_the_loop_is_not_slow(void **state)
{
    (void)state;
    struct pair *p = begin_pair();
    char *body = make_letters(10000);
    memcpy(body, "\0\0\x27\x10", 4);
    struct h2c_stream *s = h2c_request(&p->c, "/sized", body, 10000, 100, none, 0);
    h2c_pump(&p->c);
    pass_seconds(p, 2);
    p->d.now_ns += 100 * NS_PER_S;
    pass_seconds(p, 1);
    assert_false(s->closed);
    pass_seconds(p, 65);
    assert_true(s->closed);
    free(body);
    end_pair(p);
}

/* ---- When memory is short ------------------------------------------------------------------- */

static uint64_t get_burden(const struct pair *p, bool *ret_stalled)
{
    return http2_protocol.get_burden(p->d.session, ret_stalled);
}

/* Of three messages on one connection one moves, one has stalled for a while, one has just begun.
 */
static void stalled_messages_are_given_up_for_memory(void **state)
{
    (void)state;
    bool has_stalled;
    struct pair *p = begin_pair();
    char *body = make_letters(100000);
    memcpy(body, "\0\1\x86\xa0", 4);
    assert_int_equal(get_burden(p, &has_stalled), 0);
    struct h2c_stream *stalled = h2c_request(&p->c, "/part", body, 100000, 50000, none, 0);
    struct h2c_stream *moving = h2c_request(&p->c, "/part", body, 100000, 20000, none, 0);
    h2c_pump(&p->c);
    for (size_t i = 1; i <= 8; i++) {
        h2c_allow(&p->c, moving, 20000 + 4000 * i);
        h2c_pump(&p->c);
        pass_seconds(p, 1);
        assert_true(get_burden(p, &has_stalled) > 0);
        assert_int_equal(has_stalled, i >= 7); /* five seconds after the first look at its pace */
    }
    struct h2c_stream *fresh = h2c_request(&p->c, "/part", body, 100000, 80000, none, 0);
    h2c_pump(&p->c);
    size_t used = p->d.kept_bytes;
    http2_protocol.refuse(p->d.session, REFUSAL_MEMORY);
    assert_true(p->d.kept_bytes <= used - 50000); /* before anything is sent */
    h2c_pump(&p->c);
    assert_true(stalled->closed && !moving->closed && !fresh->closed);
    assert_int_equal(stalled->close_code, HTTP2_ENHANCE_YOUR_CALM);
    assert_int_equal(p->d.n_cancelled, 1);

    /* None has stalled now: the heaviest goes. */
    for (size_t i = 1; i <= 2; i++) {
        h2c_allow(&p->c, moving, 52000 + 10000 * i);
        h2c_pump(&p->c);
        pass_seconds(p, 1);
    }
    assert_true(get_burden(p, &has_stalled) > 0 && !has_stalled);
    http2_protocol.refuse(p->d.session, REFUSAL_MEMORY);
    h2c_pump(&p->c);
    assert_true(fresh->closed && !moving->closed);
    http2_protocol.refuse(p->d.session, REFUSAL_MEMORY);
    h2c_pump(&p->c);
    assert_true(moving->closed);
    assert_int_equal(get_burden(p, &has_stalled), 0);
    http2_protocol.refuse(p->d.session, REFUSAL_MEMORY); /* nothing is left to give up */
    h2c_pump(&p->c);
    assert_int_equal(p->c.n_goaways, 0);
    struct h2c_stream *next = h2c_post(&p->c, "/echo", "hello", 5);
    h2c_pump(&p->c);
    assert_int_equal(next->n_data, 5); /* the connection goes on */
    free(body);
    end_pair(p);
}

/* An answer without a window keeps memory, too. */
static void stalled_answers_are_given_up_for_memory(void **state)
{
    (void)state;
    bool has_stalled;
    struct pair *p = begin_pair_with(NULL, H2C_NO_WINDOW);
    char *body = make_letters(50000);
    struct h2c_stream *s = h2c_post(&p->c, "/echo", body, 50000);
    struct h2c_stream *small = h2c_post(&p->c, "/echo", body, 10);
    h2c_pump(&p->c);
    pass_seconds(p, 8);
    assert_true(get_burden(p, &has_stalled) >= 50000 && has_stalled);
    http2_protocol.refuse(p->d.session, REFUSAL_MEMORY);
    assert_int_equal(p->d.n_pieces, p->d.n_released);
    h2c_pump(&p->c);
    assert_true(s->closed && small->closed);
    assert_int_equal(get_burden(p, &has_stalled), 0);
    assert_int_equal(p->c.n_goaways, 0);
    free(body);
    end_pair(p);
}

/* A loop that lacks memory would try to relieve it for ever. */
static void a_connection_that_has_failed_is_no_burden(void **state)
{
    (void)state;
    bool has_stalled;
    struct pair *p = begin_pair_with(NULL, H2C_NO_WINDOW);
    char *body = make_letters(50000);
    (void)h2c_post(&p->c, "/echo", body, 50000);
    h2c_pump(&p->c);
    pass_seconds(p, 8);
    assert_true(get_burden(p, &has_stalled) >= 50000 && has_stalled);
    http2_protocol.refuse(p->d.session, REFUSAL_STOPPING);
    assert_int_equal(get_burden(p, &has_stalled), 0); /* before its GOAWAY is sent */
    assert_false(has_stalled);
    free(body);
    end_pair(p);
}

/* Waiting for us is no burden: neither an answer that is made nor a turn for memory. */
static void what_waits_for_us_is_no_burden(void **state)
{
    (void)state;
    bool has_stalled;
    struct pair *p = begin_pair();
    char *body = make_letters(200000);
    memcpy(body, "\0\3\x0d\x40", 4);
    p->d.memory_left = 0;
    (void)h2c_post(&p->c, "/later", body, 50000);
    (void)h2c_request(&p->c, "/sized", body, 200000, 100000, none, 0);
    h2c_pump(&p->c);
    pass_seconds(p, 20);
    assert_int_equal(get_burden(p, &has_stalled), 0);
    assert_false(has_stalled);
    assert_int_equal(p->d.n_cancelled, 0);
    free(body);
    end_pair(p);
}

static void settings_must_be_acknowledged(void **state)
{
    (void)state;
    struct pair *p = begin_pair();
    (void)h2_feed(&p->d, NGHTTP2_CLIENT_MAGIC "\0\0\0\4\0\0\0\0\0", 33);
    for (int i = 0; i < 61 && !p->d.session->out.first; i++) {
        h2_flush(&p->d);
        p->d.n_out = 0;
        p->d.now_ns += NS_PER_S;
        http2_protocol.check_time(p->d.session, p->d.now_ns);
    }
    struct h2_goaway goaway = {0};
    h2_flush(&p->d);
    (void)h2_scan(&p->d, 0, &goaway);
    assert_int_equal(goaway.n, 1);
    assert_int_equal(goaway.code, HTTP2_SETTINGS_TIMEOUT);
    p->d.n_out = 0;
    end_pair(p);
}

static void use_keepalive(struct h2_driver *d)
{
    d->settings.times.keepalive_ns = 10 * NS_PER_S;
    d->settings.times.keepalive_timeout_ns = 5 * NS_PER_S;
    d->settings.times.max_pings_without_data = 0;
}

static void our_pings_find_clients_that_are_gone(void **state)
{
    (void)state;
    struct pair *p = begin_pair_with(use_keepalive, 0);
    h2c_pump(&p->c);
    pass_seconds(p, 30); /* no stream: nothing to keep alive */
    assert_int_equal(p->c.n_pings, 0);
    assert_int_equal(http2_get_next_ns(p->d.session), UINT64_MAX);
    (void)h2c_post(&p->c, "/later", "x", 1);
    h2c_pump(&p->c);
    assert_int_equal(http2_get_next_ns(p->d.session), p->d.now_ns + 10 * NS_PER_S);
    pass_seconds(p, 35);
    assert_int_equal(p->c.n_pings, 3);
    assert_int_equal(p->c.n_goaways, 0);
    /* From here on the client is silent. */
    for (int i = 0; i < 16; i++) {
        p->d.now_ns += NS_PER_S;
        http2_protocol.check_time(p->d.session, p->d.now_ns);
        h2_flush(&p->d);
    }
    assert_int_equal(p->d.n_cancelled, 1);
    assert_true(http2_protocol.is_over(p->d.session));
    h2c_read(&p->c);
    assert_int_equal(p->c.n_goaways, 1);
    assert_int_equal(p->c.goaway_code, HTTP2_NO_ERROR);
    end_pair(p);
}

static void use_keepalive_without_an_end(struct h2_driver *d)
{
    use_keepalive(d);
    d->settings.times.keepalive_timeout_ns = 0;
    d->settings.times.notice_ns = 0;
}

/* Times that are no limit are no reason to look again, least of all at once. */
static void times_without_a_limit_are_never_over(void **state)
{
    (void)state;
    struct pair *p = begin_pair_with(use_keepalive_without_an_end, 0);
    (void)h2c_post(&p->c, "/later", "x", 1);
    h2c_pump(&p->c);
    p->d.now_ns += 11 * NS_PER_S;
    http2_protocol.check_time(p->d.session, p->d.now_ns);
    assert_true(h2_flush(&p->d) > 0); /* the PING, which stays without an answer */
    assert_int_equal(http2_get_next_ns(p->d.session), UINT64_MAX);
    p->d.now_ns += 100000 * NS_PER_S;
    http2_protocol.check_time(p->d.session, p->d.now_ns);
    assert_int_equal(p->d.n_cancelled, 0);
    p->d.env->net.draining = true;
    http2_protocol.drain(p->d.session);
    assert_int_equal(http2_get_next_ns(p->d.session), UINT64_MAX);
    h2_answer(&p->d, 0);
    h2c_pump(&p->c);
    end_pair(p);
}

static void use_keepalive_without_streams(struct h2_driver *d)
{
    use_keepalive(d);
    d->settings.times.keepalive_without_streams = true;
    d->settings.times.max_pings_without_data = 2;
}

static void pings_without_streams_and_without_data(void **state)
{
    (void)state;
    struct pair *p = begin_pair_with(use_keepalive_without_streams, 0);
    h2c_pump(&p->c);
    pass_seconds(p, 100);
    assert_int_equal(p->c.n_pings, 2);
    (void)h2c_post(&p->c, "/echo", "x", 1); /* data is sent, which allows two more PINGs */
    h2c_pump(&p->c);
    pass_seconds(p, 100);
    assert_int_equal(p->c.n_pings, 4);
    end_pair(p);
}

static void use_an_age(struct h2_driver *d)
{
    d->settings.times.max_age_ns = 100 * NS_PER_S;
    d->settings.times.age_grace_ns = 30 * NS_PER_S;
}

static void an_old_connection_ends_in_order(void **state)
{
    (void)state;
    struct pair *p = begin_pair_with(use_an_age, 0);
    (void)h2c_post(&p->c, "/later", "x", 1);
    h2c_pump(&p->c);
    uint64_t next_ns = http2_get_next_ns(p->d.session), began_ns = p->d.now_ns;
    assert_in_range(next_ns - began_ns, 90 * NS_PER_S, 110 * NS_PER_S + 1);
    pass_seconds(p, 89);
    assert_int_equal(p->c.n_goaways, 0);
    while (p->c.n_goaways == 0) {
        assert_true(p->d.now_ns < next_ns + 2 * NS_PER_S);
        pass_seconds(p, 1);
    }
    /* The PING came back, so the client has seen the first GOAWAY, and the second one follows. */
    assert_int_equal(p->c.n_goaways, 2);
    assert_int_equal(p->c.goaway_last, 1);
    assert_string_equal(p->c.goaway_text, "max_age");
    assert_int_equal(p->c.goaway_code, HTTP2_NO_ERROR);
    assert_false(http2_protocol.is_over(p->d.session));
    h2_answer(&p->d, 0);
    h2c_pump(&p->c);
    assert_true(p->c.streams[0].ended);
    assert_string_equal(p->c.streams[0].status, "200");
    assert_true(http2_protocol.is_over(p->d.session));
    end_pair(p);
}

static void after_the_grace_streams_are_reset(void **state)
{
    (void)state;
    struct pair *p = begin_pair_with(use_an_age, 0);
    (void)h2c_post(&p->c, "/later", "x", 1);
    h2c_pump(&p->c);
    pass_seconds(p, 119);
    assert_int_equal(p->c.n_goaways, 2);
    assert_int_equal(p->d.n_cancelled, 0);
    pass_seconds(p, 23);
    assert_int_equal(p->d.n_cancelled, 1);
    assert_true(http2_protocol.is_over(p->d.session));
    end_pair(p);
}

/* Between the two GOAWAYs the client's streams are served, after the second one they are not. */
static void streams_under_way_are_served(void **state)
{
    (void)state;
    struct pair *p = begin_pair();
    (void)h2c_post(&p->c, "/later", "x", 1);
    h2c_pump(&p->c);
    p->d.env->net.draining = true;
    http2_protocol.drain(p->d.session);
    h2_flush(&p->d);
    (void)h2c_post(&p->c, "/echo", "hello", 5); /* before it has read the GOAWAY */
    h2c_collect(&p->c);
    h2c_read(&p->c);
    assert_int_equal(p->c.n_goaways, 1);
    assert_int_equal(p->c.goaway_last, INT32_MAX);
    h2c_pump(&p->c);
    assert_int_equal(p->c.n_goaways, 2);
    assert_int_equal(p->c.goaway_last, 3);
    assert_int_equal(p->c.streams[1].n_data, 5);
    http2_protocol.drain(p->d.session); /* a second call has no effect */
    h2c_pump(&p->c);
    assert_int_equal(p->c.n_goaways, 2);
    assert_false(http2_protocol.is_over(p->d.session));
    h2_answer(&p->d, 0);
    h2c_pump(&p->c);
    assert_true(http2_protocol.is_over(p->d.session));
    end_pair(p);
}

/* A call that the client begins while the connection ends for idleness is served. */
static void an_idle_connection_ends_in_order(void **state)
{
    (void)state;
    struct pair *p = begin_pair();
    h2c_pump(&p->c);
    http2_protocol.end_idle(p->d.session);
    h2_flush(&p->d);
    (void)h2c_post(&p->c, "/echo", "hello", 5); /* before it has read the GOAWAY */
    h2c_collect(&p->c);
    h2c_read(&p->c);
    assert_int_equal(p->c.n_goaways, 1);
    assert_string_equal(p->c.goaway_text, "");
    h2c_pump(&p->c);
    assert_int_equal(p->c.streams[0].n_data, 5);
    assert_int_equal(p->c.n_goaways, 2);
    assert_int_equal(p->c.goaway_last, 1);
    assert_string_equal(p->c.goaway_text, "max_idle");
    http2_protocol.end_idle(p->d.session); /* a second call has no effect */
    h2c_pump(&p->c);
    assert_int_equal(p->c.n_goaways, 2);
    assert_true(http2_protocol.is_over(p->d.session));
    end_pair(p);
}

/* A client that does not answer the PING gets the second GOAWAY after a second. */
static void a_silent_client_does_not_keep_the_server(void **state)
{
    (void)state;
    struct pair *p = begin_pair();
    (void)h2c_post(&p->c, "/echo", "x", 1);
    h2c_pump(&p->c);
    p->d.env->net.draining = true;
    http2_protocol.drain(p->d.session);
    h2_flush(&p->d);
    assert_false(http2_protocol.is_over(p->d.session));
    p->d.now_ns += NS_PER_S;
    http2_protocol.check_time(p->d.session, p->d.now_ns);
    h2_flush(&p->d);
    assert_true(http2_protocol.is_over(p->d.session));
    end_pair(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stalled_message_is_reset),
        cmocka_unit_test(a_request_without_a_body_is_reset),
        cmocka_unit_test(a_stop_waits_a_second_for_half_a_request),
        cmocka_unit_test(a_message_below_the_least_rate_is_reset),
        cmocka_unit_test(an_answer_without_a_window_is_reset),
        cmocka_unit_test(an_answer_with_tiny_windows_is_reset),
        cmocka_unit_test(half_a_message_is_reset),
        cmocka_unit_test(an_answer_without_a_window_is_reset_while_bytes_come),
        cmocka_unit_test(an_answer_without_a_window_is_reset_beside_others),
        cmocka_unit_test(a_client_held_up_by_the_loop_is_not_slow),
        cmocka_unit_test(stalled_messages_are_given_up_for_memory),
        cmocka_unit_test(stalled_answers_are_given_up_for_memory),
        cmocka_unit_test(a_connection_that_has_failed_is_no_burden),
        cmocka_unit_test(what_waits_for_us_is_no_burden),
        cmocka_unit_test(settings_must_be_acknowledged),
        cmocka_unit_test(our_pings_find_clients_that_are_gone),
        cmocka_unit_test(times_without_a_limit_are_never_over),
        cmocka_unit_test(pings_without_streams_and_without_data),
        cmocka_unit_test(an_old_connection_ends_in_order),
        cmocka_unit_test(after_the_grace_streams_are_reset),
        cmocka_unit_test(streams_under_way_are_served),
        cmocka_unit_test(an_idle_connection_ends_in_order),
        cmocka_unit_test(a_silent_client_does_not_keep_the_server),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
