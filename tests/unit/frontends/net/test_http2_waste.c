/* SPDX-License-Identifier: Apache-2.0 */
/* Clients that waste our work: each kind of flood ends in GOAWAY, and memory stays bounded. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "lib/http2_pair.h"

static const nghttp2_nv none[1];

/* The session's output, parsed without the client, which has not sent those frames. */
static struct h2_goaway goaway;

static void look_for_goaway(struct pair *p)
{
    h2_flush(&p->d);
    (void)h2_scan(&p->d, 0, &goaway);
    p->d.n_out = 0;
}

static struct pair *begin_attack(void)
{
    memset(&goaway, 0, sizeof(goaway));
    return begin_pair();
}

/* Feeds the frame until the session has failed. Returns the number of times. */
static unsigned int flood(struct pair *p, const char *frame, size_t n, unsigned int max)
{
    unsigned int i = 0;
    while (i < max && h2_feed(&p->d, frame, n) == n)
        i++;
    look_for_goaway(p);
    return i;
}

static void check_calm(struct pair *p, const char *text)
{
    assert_int_equal(goaway.n, 1);
    assert_int_equal(goaway.code, HTTP2_ENHANCE_YOUR_CALM);
    assert_string_equal(goaway.text, text);
    assert_true(http2_protocol.is_over(p->d.session));
    assert_int_equal(p->d.n_begun, p->d.n_ended);
}

static void floods_end_the_connection(void **state)
{
    (void)state;
    static const struct {
        const char *frame;
        size_t n;
        enum http2_waste waste;
        const char *text;
    } floods[] = {
        {"\0\0\x8\6\0\0\0\0\0pingpong", 17, HTTP2_WASTE_PING, "too many PING frames"},
        {"\0\0\x8\6\1\0\0\0\0pingpong", 17, HTTP2_WASTE_PING, "too many PING frames"},
        {"\0\0\0\4\0\0\0\0\0", 9, HTTP2_WASTE_SETTINGS, "too many SETTINGS frames"},
        {"\0\0\4\x8\0\0\0\0\0\0\0\0\1", 13, HTTP2_WASTE_WINDOW, "too many WINDOW_UPDATE frames"},
        {"\0\0\4\x8\0\0\0\0\1\0\0\0\1", 13, HTTP2_WASTE_WINDOW, "too many WINDOW_UPDATE frames"},
        {"\0\0\0\0\0\0\0\0\1", 9, HTTP2_WASTE_EMPTY, "too many empty frames"},
        {"\0\0\1\0\x8\0\0\0\1\0", 10, HTTP2_WASTE_EMPTY, "too many empty frames"},
        {"\0\0\5\2\0\0\0\0\1\0\0\0\0\5", 14, HTTP2_WASTE_OTHER, "too many frames without use"},
        {"\0\0\0\xee\0\0\0\0\0", 9, HTTP2_WASTE_OTHER, "too many frames without use"},
        {"\0\0\x8\7\0\0\0\0\0\0\0\0\0\0\0\0\0", 17, HTTP2_WASTE_OTHER,
         "too many frames without use"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(floods); i++) {
        for (int rest = 0; rest < 2; rest++) {
            struct pair *p = begin_attack();
            p->d.settings.times.max_ping_strikes = 0;
            const struct http2_rate *rate = &p->d.settings.limits.wastes[floods[i].waste];
            (void)h2c_request(&p->c, "/hold", "x", 1, 1, none, 0);
            h2c_pump(&p->c);
            unsigned int n = flood(p, floods[i].frame, floods[i].n, rate->burst / 2);
            assert_int_equal(n, rate->burst / 2);
            assert_int_equal(goaway.n, 0);
            p->d.now_ns += (uint64_t)rest * 3 * NS_PER_S; /* its share comes back with time */
            n += flood(p, floods[i].frame, floods[i].n, 1000000);
            check_calm(p, floods[i].text);
            unsigned int more = (unsigned int)rest * MIN(3 * rate->per_s, rate->burst / 2);
            assert_in_range(n, rate->burst + more - 10, rate->burst + more + 1);
            assert_in_range(h2_used_bytes(&p->d), 1, 4 << 20);
            end_pair(p);
        }
    }
}

/* Streams that are reset in the portion in which they begin, or after the handler has seen them. */
static void rapid_resets_end_the_connection(void **state)
{
    (void)state;
    for (int seen = 0; seen < 2; seen++) {
        struct pair *p = begin_attack();
        h2c_pump(&p->c);
        size_t most = 0;
        unsigned int n = 0;
        while (goaway.n == 0 && n < 10000) {
            p->c.n_streams = n % (H2C_MAX_STREAMS - 1);
            int32_t id = h2c_request(&p->c, "/later", "x", 1, 1, none, 0)->id;
            h2c_collect(&p->c);
            if (seen)
                h2_feed(&p->d, p->c.wire + p->c.n_wire - p->c.n_unfed, p->c.n_unfed);
            p->c.n_unfed = seen ? 0 : p->c.n_unfed;
            nghttp2_submit_rst_stream(p->c.ng, 0, id, HTTP2_CANCEL);
            h2c_collect(&p->c);
            (void)h2_feed(&p->d, p->c.wire + p->c.n_wire - p->c.n_unfed, p->c.n_unfed);
            p->c.n_unfed = 0;
            look_for_goaway(p);
            most = MAX(most, h2_used_bytes(&p->d));
            n++;
        }
        check_calm(p, "too many streams were reset");
        assert_int_equal(p->d.n_begun, seen ? 2049 : 0);
        assert_in_range(n, 2049, 2049);
        assert_in_range(most, 1, 200000);
        end_pair(p);
    }
}

/* The client breaks rules, so that we reset its streams. */
static void resets_for_faults_end_the_connection(void **state)
{
    (void)state;
    struct pair *p = begin_attack();
    h2c_pump(&p->c);
    unsigned int n = 0;
    while (goaway.n == 0 && n < 10000) {
        uint32_t id = 2 * n++ + 1;
        char frames[] = "\0\0\4\1\4\0\0\0\0\x83\x86\x84\x41"   /* POST without an authority … */
                        "\0\0\4\x8\0\0\0\0\0\x7f\xff\xff\xff"; /* … and its window: too large */
        frames[12] = '\x87';
        for (int i = 0; i < 4; i++)
            frames[5 + i] = frames[18 + i] = (char)(id >> (24 - 8 * i));
        (void)h2_feed(&p->d, frames, 26);
        look_for_goaway(p);
    }
    check_calm(p, "too many streams were reset");
    assert_in_range(n, 1000, 2200);
    end_pair(p);
}

static void a_client_that_uses_what_it_asks_for_is_no_flood(void **state)
{
    (void)state;
    struct pair *p = begin_attack();
    h2c_pump(&p->c);
    p->c.n_wire = 0;
    for (int i = 0; i < 30000; i++) {
        p->c.n_streams = (unsigned int)i % 1000;
        (void)h2c_post(&p->c, "/echo", "hello", 5);
        (void)nghttp2_submit_ping(p->c.ng, 0, NULL);
        (void)nghttp2_submit_window_update(p->c.ng, 0, 0, 5);
        h2c_collect(&p->c);
        (void)h2_feed(&p->d, p->c.wire, p->c.n_wire);
        p->c.n_wire = p->c.n_unfed = 0;
        h2_flush(&p->d);
        h2c_read(&p->c);
        assert_string_equal(p->c.goaway_text, "");
        assert_false(http2_protocol.is_over(p->d.session));
    }
    assert_int_equal(p->d.n_ended, 30000);
    end_pair(p);
}

/* A head in more frames than the limit. */
static void too_many_continuations_end_the_connection(void **state)
{
    (void)state;
    static const char head[] = "\0\0\1\1\0\0\0\0\3\x83", more[] = "\0\0\1\x9\0\0\0\0\3\x83",
                      empty[] = "\0\0\0\x9\0\0\0\0\3";
    for (int i = 0; i < 2; i++) {
        struct pair *p = begin_attack();
        (void)h2c_post(&p->c, "/echo", "x", 1);
        h2c_pump(&p->c);
        (void)h2_feed(&p->d, head, 10);
        unsigned int n = i ? flood(p, empty, 9, 100) : flood(p, more, 10, 100);
        assert_in_range(n, 8, 10);
        check_calm(p, "too many CONTINUATION frames");
        end_pair(p);
    }
}

/* One byte stands for a header of 4000 bytes, sixteen thousand times. */
static void header_bombs_end_the_connection(void **state)
{
    (void)state;
    struct pair *p = begin_attack();
    h2c_pump(&p->c);
    char *frame = malloc(9 + 16384);
    /* A literal that is indexed: x: 4000 letters; then its index again and again. */
    static const char begin[] = "\0\x40\0\1\0\0\0\0\1\x83\x86\x84\x40\1x\x7f\xa1\x1e";
    memset(frame, 0xbe, 9 + 16384);
    memcpy(frame, begin, sizeof(begin) - 1);
    memset(frame + sizeof(begin) - 1, 'l', 4000);
    (void)h2_feed(&p->d, frame, 9 + 16384);
    look_for_goaway(p);
    check_calm(p, "the header block is too large");
    assert_in_range(h2_used_bytes(&p->d), 1, 100000);
    free(frame);
    end_pair(p);
}

/* Many headers of many streams: the memory of an incomplete head is limited. */
static void incomplete_heads_have_a_maximum(void **state)
{
    (void)state;
    struct pair *p = begin_attack();
    h2c_pump(&p->c);
    char *frame = malloc(9 + 16384);
    memcpy(frame, "\0\x40\0\1\0\0\0\0\1\x83\x86\x84", 12);
    for (size_t at = 12; at + 17 <= 9 + 16384; at += 17) /* x-name: 8 letters, not indexed */
        memcpy(frame + at, "\x00\x06x-name\x08letters!", 17);
    memset(frame + 9 + 16384 - 13, 0x84, 13);
    (void)h2_feed(&p->d, frame, 9 + 16384);
    look_for_goaway(p);
    assert_in_range(h2_used_bytes(&p->d), 1, 100000);
    struct session_input input;
    http2_protocol.get_input(p->d.session, &input);
    assert_true(input.kind == INPUT_HEAD || http2_protocol.is_over(p->d.session));
    free(frame);
    end_pair(p);
}

/* PINGs that the client does not need: gRPC's rule. */
static void needless_pings_are_strikes(void **state)
{
    (void)state;
    static const char ping[] = "\0\0\x8\6\0\0\0\0\0pingpong";
    struct pair *p = begin_attack();
    (void)h2c_request(&p->c, "/hold", "x", 1, 1, none, 0);
    h2c_pump(&p->c);
    assert_int_equal(flood(p, ping, 17, 3), 3); /* the first is allowed, two are strikes */
    assert_int_equal(goaway.n, 0);
    assert_int_equal(flood(p, ping, 17, 1), 1);
    check_calm(p, "too_many_pings");
    end_pair(p);

    /* Sending data clears the strikes, and a PING after a pause is no strike. */
    p = begin_attack();
    (void)h2c_request(&p->c, "/hold", "x", 1, 1, none, 0);
    h2c_pump(&p->c);
    for (int i = 0; i < 20; i++) {
        (void)flood(p, ping, 17, 2);
        if (i % 2 == 0) {
            (void)h2c_post(&p->c, "/echo", "x", 1);
            h2c_pump(&p->c);
        } else {
            p->d.now_ns += 301 * NS_PER_S;
            (void)flood(p, ping, 17, 1);
            (void)h2c_post(&p->c, "/echo", "x", 1);
            h2c_pump(&p->c);
        }
    }
    assert_int_equal(goaway.n, 0);
    end_pair(p);

    /* Without a stream the interval is longer; without a maximum there are no strikes. */
    p = begin_attack();
    h2c_pump(&p->c);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(flood(p, ping, 17, 1), 1);
        p->d.now_ns += 400 * NS_PER_S;
    }
    assert_int_equal(goaway.n, 0);
    (void)flood(p, ping, 17, 1);
    check_calm(p, "too_many_pings");
    end_pair(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(floods_end_the_connection),
        cmocka_unit_test(rapid_resets_end_the_connection),
        cmocka_unit_test(resets_for_faults_end_the_connection),
        cmocka_unit_test(a_client_that_uses_what_it_asks_for_is_no_flood),
        cmocka_unit_test(too_many_continuations_end_the_connection),
        cmocka_unit_test(header_bombs_end_the_connection),
        cmocka_unit_test(incomplete_heads_have_a_maximum),
        cmocka_unit_test(needless_pings_are_strikes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
