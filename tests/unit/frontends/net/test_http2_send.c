/* SPDX-License-Identifier: Apache-2.0 */
/* Answers over HTTP/2: copied and uncopied pieces, windows of the client, slow clients. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "lib/http2_pair.h"

enum { TENSOR_BYTES = 602112 };

static void large_answers_are_not_copied(void **state)
{
    (void)state;
    struct pair *p = begin_pair_with(NULL, 4 << 20);
    nghttp2_session_set_local_window_size(p->c.ng, 0, 0, 4 << 20);
    (void)h2c_post(&p->c, "/later", "x", 1);
    h2c_pump(&p->c);

    struct http2_stream *s = p->d.waiting[0];
    struct h2_part *part = http2_stream_part(s);
    char *tensor = make_letters(TENSOR_BYTES);
    h2_respond(s);
    h2_send(s, 0, "prefix", 6);
    h2_send(s, 1, tensor, TENSOR_BYTES);
    assert_int_equal(http2_stream_unsent(s), TENSOR_BYTES + 6);
    assert_true(p->d.session->large_output);
    h2_end(s);

    struct iovec pieces[128];
    size_t asked, in_place = 0;
    http2_protocol.queue_output(p->d.session);
    int n = out_queue_gather(&p->d.session->out, pieces, 128, &asked);
    for (int i = 0; i < n; i++) {
        const char *at = pieces[i].iov_base;
        if (at >= tensor && at < tensor + TENSOR_BYTES)
            in_place += pieces[i].iov_len;
        else
            assert_in_range(pieces[i].iov_len, 1, 200);
    }
    assert_int_equal(in_place, TENSOR_BYTES); /* no byte is copied */
    assert_int_equal(n, 37 * 2 + 1);          /* one write: 37 frames and the trailers */
    assert_int_equal(http2_stream_unsent(s), TENSOR_BYTES);

    /* A piece is released when short writes have sent all of it, and not before. */
    p->d.max_send = 7001;
    while (p->d.n_released < 2) {
        size_t left = http2_stream_unsent(s);
        assert_true(left > 0);
        assert_true(h2_flush_some(&p->d, 1) > 0);
    }
    assert_int_equal(http2_stream_unsent(s), 0);
    part->body = NULL;
    http2_stream_unref(s);
    p->d.n_waiting = 0;
    h2c_pump(&p->c);
    struct h2c_stream *got = &p->c.streams[0];
    assert_int_equal(got->n_data, TENSOR_BYTES + 6);
    assert_memory_equal(got->data, "prefix", 6);
    assert_memory_equal(got->data + 6, tensor, TENSOR_BYTES);
    assert_true(got->closed);
    free(tensor);
    end_pair(p);
}

static void short_writes_change_nothing(void **state)
{
    (void)state;
    char *body = make_letters(40000);
    for (size_t max = 1; max < 30000; max = max * 3 + 1) {
        struct pair *p = begin_pair();
        p->d.max_send = max;
        for (size_t i = 0; i < 4; i++)
            (void)h2c_post(&p->c, "/echo", body, 10 + i * 4000);
        h2c_pump(&p->c);
        for (size_t i = 0; i < 4; i++) {
            assert_int_equal(p->c.streams[i].n_data, 10 + i * 4000);
            assert_memory_equal(p->c.streams[i].data, body, 10 + i * 4000);
            assert_true(p->c.streams[i].closed);
        }
        end_pair(p);
    }
    free(body);
}

/* Slices in the out-queue stay valid until they are sent, whatever happens to their stream. */
static void a_reset_waits_for_frames_that_are_made(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct pair *p = begin_pair_with(NULL, 0);
        (void)h2c_post(&p->c, "/later", "x", 1);
        h2c_pump(&p->c);
        struct http2_stream *s = p->d.waiting[0];
        struct h2_part *part = http2_stream_part(s);
        part->body = realloc(part->body, 200000);
        memset(part->body, 'b', 200000);
        h2_respond(s);
        for (unsigned int k = 0; k < 2; k++)
            h2_send(s, k, part->body, 100000);
        http2_protocol.queue_output(p->d.session); /* 64 KiB of the first are in frames */
        assert_in_range(http2_stream_unsent(s), 190000, 200000);
        if (i == 0) {
            http2_stream_reset(s, HTTP2_CANCEL);
        } else if (i == 1) {
            h2c_reset(&p->c, &p->c.streams[0], HTTP2_CANCEL);
            h2c_collect(&p->c);
            (void)h2_feed(&p->d, p->c.wire + p->c.n_wire - p->c.n_unfed, p->c.n_unfed);
            p->c.n_unfed = 0;
        } else {
            h2_end_session(&p->d);
        }
        if (i < 2) {
            assert_int_equal(p->d.n_released, 0);
            assert_int_equal(p->d.n_ended, 0);
            h2_send(s, 2, part->body, 10); /* after the reset: the piece is dropped, in order */
            assert_int_equal(p->d.n_released, 0);
            h2_flush(&p->d);
        }
        assert_int_equal(p->d.n_released, i < 2 ? 3 : 2);
        assert_int_equal(p->d.n_ended, 1);
        http2_stream_unref(s);
        p->d.n_waiting = 0;
        p->d.n_out = 0;
        end_pair(p);
    }
}

static void a_client_without_a_window_gets_only_heads(void **state)
{
    (void)state;
    struct pair *p = begin_pair_with(NULL, H2C_NO_WINDOW);
    char *body = make_letters(100000);
    struct h2c_stream *s = h2c_post(&p->c, "/echo", body, 100000);
    h2c_pump(&p->c);
    assert_string_equal(s->status, "200");
    assert_int_equal(s->n_data, 0);
    size_t used = h2_used_bytes(&p->d);
    for (int i = 0; i < 100; i++)
        h2_flush(&p->d);
    assert_int_equal(h2_used_bytes(&p->d), used);
    nghttp2_submit_window_update(p->c.ng, 0, s->id, 1);
    h2c_pump(&p->c);
    assert_int_equal(s->n_data, 1);
    for (int i = 0; i < 50; i++) { /* byte by byte */
        nghttp2_submit_window_update(p->c.ng, 0, s->id, 1);
        h2c_pump(&p->c);
    }
    assert_int_equal(s->n_data, 51);
    nghttp2_submit_window_update(p->c.ng, 0, s->id, 100000);
    nghttp2_submit_window_update(p->c.ng, 0, 0, 100000);
    h2c_pump(&p->c);
    assert_true(s->closed);
    assert_memory_equal(s->data, body, 100000);
    free(body);
    end_pair(p);
}

static void streams_share_the_connection(void **state)
{
    (void)state;
    struct pair *p = begin_pair_with(NULL, 8 << 20);
    nghttp2_session_set_local_window_size(p->c.ng, 0, 0, 64 << 20);
    p->d.big_bytes = 4 << 20;
    p->d.big = calloc(1, p->d.big_bytes);
    for (int i = 0; i < 3; i++)
        (void)h2c_post(&p->c, "/big", "", 0);
    (void)h2c_post(&p->c, "/echo", "hello", 5);
    h2c_collect(&p->c);
    (void)h2_feed(&p->d, p->c.wire, p->c.n_wire);
    p->c.n_unfed = 0;
    /* A short answer does not wait for long ones. */
    (void)h2_flush_some(&p->d, 1 << 20);
    h2c_read(&p->c);
    assert_true(p->c.streams[3].closed);
    for (int i = 0; i < 3; i++)
        assert_in_range(p->c.streams[i].n_data, 1, 1 << 20);
    h2c_pump(&p->c);
    for (int i = 0; i < 3; i++)
        assert_int_equal(p->c.streams[i].n_data, 4 << 20);
    end_pair(p);
}

static void use_little_room(struct h2_driver *d)
{
    d->settings.limits.room_bytes = 100000;
    d->settings.limits.commit_bytes = 50000;
}

static void room_is_reported(void **state)
{
    (void)state;
    struct pair *p = begin_pair_with(use_little_room, 8 << 20);
    nghttp2_session_set_local_window_size(p->c.ng, 0, 0, 64 << 20);
    h2c_pump(&p->c);
    (void)h2c_post(&p->c, "/later", "x", 1);
    p->d.big_bytes = 1 << 20;
    p->d.big = calloc(1, p->d.big_bytes);
    (void)h2c_post(&p->c, "/big", "", 0);
    h2c_collect(&p->c);
    (void)h2_feed(&p->d, p->c.wire + p->c.n_wire - p->c.n_unfed, p->c.n_unfed);
    p->c.n_unfed = 0;
    struct http2_stream *s = p->d.waiting[0];
    assert_in_range(http2_connection_unsent(s), 1 << 20, (1 << 20) + 1000);
    http2_stream_await_room(s);
    (void)h2_flush_some(&p->d, 800000);
    assert_int_equal(p->d.n_rooms, 0);
    (void)h2_flush_some(&p->d, 200000);
    assert_int_equal(p->d.n_rooms, 1);
    assert_in_range(http2_connection_unsent(s), 1, 100000);
    h2_flush(&p->d);
    assert_int_equal(p->d.n_rooms, 1);
    h2_answer(&p->d, 0);
    h2c_pump(&p->c);
    end_pair(p);
}

/* For a client that reads nothing, at most commit_bytes are made into frames. */
static void frames_are_made_only_so_far_ahead(void **state)
{
    (void)state;
    struct pair *p = begin_pair_with(use_little_room, 16 << 20);
    nghttp2_session_set_local_window_size(p->c.ng, 0, 0, 64 << 20);
    h2c_pump(&p->c);
    p->d.big_bytes = 8 << 20;
    p->d.big = calloc(1, p->d.big_bytes);
    for (int i = 0; i < 50; i++)
        (void)h2c_post(&p->c, "/big", "", 0);
    h2c_collect(&p->c);
    (void)h2_feed(&p->d, p->c.wire + p->c.n_wire - p->c.n_unfed, p->c.n_unfed);
    p->c.n_unfed = 0;
    http2_protocol.queue_output(p->d.session);
    assert_in_range(p->d.session->out.n_bytes, 50000, 50000 + 17000);
    assert_in_range(h2_used_bytes(&p->d), 1, 300000);
    end_pair(p);
}

static void many_and_large_trailers(void **state)
{
    (void)state;
    struct pair *p = begin_pair();
    (void)h2c_post(&p->c, "/later", "x", 1);
    (void)h2c_post(&p->c, "/later", "x", 1);
    h2c_pump(&p->c);
    enum { N = 50 };
    static struct http2_field fields[N];
    static char names[N][8];
    static char large[100000];
    for (int i = 0; i < N; i++) {
        int n = snprintf(names[i], sizeof(names[i]), "x-%02d", i);
        fields[i] = (struct http2_field){names[i], "v", (size_t)n, 1, i % 2 == 0};
    }
    http2_stream_respond(p->d.waiting[0], "200", fields, N, false);
    http2_stream_end(p->d.waiting[0], fields, N);
    /* A head that is too large for nghttp2 ends its stream, so that the client need not wait. */
    memset(large, 'l', sizeof(large));
    fields[0].value = large;
    fields[0].value_length = sizeof(large);
    struct http2_field one = fields[0];
    http2_stream_respond(p->d.waiting[1], "200", NULL, 0, false);
    http2_stream_end(p->d.waiting[1], &one, 1);
    fields[0] = fields[2];
    h2c_pump(&p->c);
    assert_true(p->c.streams[0].closed && p->c.streams[0].ended);
    assert_int_equal(p->c.streams[0].close_code, 0);
    assert_non_null(strstr(p->c.streams[0].trailers, "x-49=v;"));
    assert_true(p->c.streams[1].closed);
    assert_int_equal(p->c.streams[1].close_code, HTTP2_INTERNAL_ERROR);
    while (p->d.n_waiting > 0)
        http2_stream_unref(p->d.waiting[--p->d.n_waiting]);
    end_pair(p);
}

static void an_answer_may_end_without_trailers(void **state)
{
    (void)state;
    struct pair *p = begin_pair();
    (void)h2c_post(&p->c, "/sized", "\0\0\0\4", 4);
    (void)h2c_post(&p->c, "/later", "x", 1);
    h2c_pump(&p->c);
    assert_true(p->c.streams[0].ended && p->c.streams[0].closed);
    assert_string_equal(p->c.streams[0].trailers, "");
    assert_int_equal(p->c.streams[0].n_data, 8);
    /* The end is sent alone, after all else. */
    http2_stream_respond(p->d.waiting[0], "200", NULL, 0, false);
    h2c_pump(&p->c);
    assert_true(p->c.streams[1].head_came && !p->c.streams[1].ended);
    http2_stream_end(p->d.waiting[0], NULL, 0);
    h2c_pump(&p->c);
    assert_true(p->c.streams[1].ended && p->c.streams[1].closed);
    http2_stream_unref(p->d.waiting[--p->d.n_waiting]);
    end_pair(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(large_answers_are_not_copied),
        cmocka_unit_test(short_writes_change_nothing),
        cmocka_unit_test(a_reset_waits_for_frames_that_are_made),
        cmocka_unit_test(a_client_without_a_window_gets_only_heads),
        cmocka_unit_test(streams_share_the_connection),
        cmocka_unit_test(room_is_reported),
        cmocka_unit_test(frames_are_made_only_so_far_ahead),
        cmocka_unit_test(many_and_large_trailers),
        cmocka_unit_test(an_answer_may_end_without_trailers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
