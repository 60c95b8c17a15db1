/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Responses that cannot leave yet. Where the loop itself executes a decoupled model
 * (CONCH_EXECUTION=inline) it cannot wait for the client, so the call ends; tests/plugins/torrent
 * sends as much as a request asks for. Responses of other models wait for a window, or for those of
 * earlier requests, which tests/plugins/gate answers when the test lets it; each way in which the
 * call may end frees them.
 */
#include "frontends/grpc/call.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/mem.h"
#include "core/model/model.h"
#include "core/model/model_statistics.h"
#include "core/options/server_options.h"
#include "frontends/ops/loop_share.h"
#include "lib/grpc_driver.h"
#include "lib/server_driver.h"

#define TORRENT                                                                                    \
    "backend: 'torrent' model_transaction_policy { decoupled: true } "                             \
    "input { name: 'IN' data_type: TYPE_INT32 dims: 2 } "                                          \
    "output { name: 'OUT' data_type: TYPE_UINT8 dims: -1 } "
#define GATE                                                                                       \
    "backend: 'gate' instance_group { count: 1 kind: KIND_CPU } "                                  \
    "input { name: 'IN' data_type: TYPE_INT32 dims: -1 } "                                         \
    "output { name: 'OUT' data_type: TYPE_INT32 dims: -1 } "
#define INLINE "parameters { key: 'CONCH_EXECUTION' value { string_value: 'inline' } } "

static int start_server(void **state)
{
    (void)state;
    struct server_options *o = prepare_server("/tests/backends");
    repository_add(&repository, "inline", TORRENT INLINE, 1);
    repository_add(&repository, "thread", TORRENT, 1);
    repository_add(&repository, "held", GATE, 1);
    repository_add(&repository, "free", GATE, 1);
    server_options_add_startup_model(o, "*");
    start_prepared_server(o);
    return 0;
}

static int connect_client(void **state)
{
    (void)state;
    grpc_connect(server, 0, 0);
    ctx.share = loop_share_new(server, &loop);
    return 0;
}

static const char *gate_path(const char *suffix)
{
    static char path[256];
    snprintf(path, sizeof(path), "%s/held/hold.execute%s", repository.path, suffix);
    return path;
}

/* From now on the model `held` answers when the gate is opened. */
static void close_gate(void)
{
    FILE *f = fopen(gate_path(""), "we");
    assert_non_null(f);
    fclose(f);
}

static void open_gate(void)
{
    unlink(gate_path(""));
    unlink(gate_path(".reached"));
}

static int disconnect_client(void **state)
{
    (void)state;
    open_gate(); /* of a test that has failed */
    grpc_disconnect();
    loop_share_free(ctx.share);
    return 0;
}

static void add_torrent(struct buf *b, const char *model, int32_t count, int32_t n_bytes)
{
    int32_t wanted[] = {count, n_bytes};
    struct infer_message m;
    infer_message_init(&m, model, "IN", "INT32", 2, wanted, sizeof(wanted));
    add_infer_message(b, &m);
}

static void a_loop_does_not_wait_for_its_own_client(void **state)
{
    (void)state;
    AUTO(buf) few = BUF_INIT(1000);
    AUTO(buf) many = BUF_INIT(1000);
    add_torrent(&few, "inline", 50, 1000);
    struct h2c_stream *s = post(STREAM, &few, nothing, 0);
    h2c_pump(&client);
    assert_true(s->closed); /* no other thread took part */
    expect_status(s, "0");
    assert_true(s->n_data > (size_t)50 * 1000);

    settings.flow.max_responses = 100;
    add_torrent(&many, "inline", 100000, 1000);
    s = post(STREAM, &many, nothing, 0);
    await_end(s);
    expect_status(s, "8");
    assert_true(s->n_data < (size_t)110 * 1100);
}

static void a_thread_waits_for_its_client(void **state)
{
    (void)state;
    AUTO(buf) many = BUF_INIT(1000);
    settings.flow.max_responses = 100;
    add_torrent(&many, "thread", 1000, 1000);
    struct h2c_stream *s = post(STREAM, &many, nothing, 0);
    await_end(s);
    expect_status(s, "0");
    assert_true(s->n_data > (size_t)1000 * 1000);
}

/* ---- Responses that wait -------------------------------------------------------------------- */

enum { N_LATER = 8, N_VALUES = 60000, SLACK_BYTES = 200 << 10 };

#define RESPONSE_BYTES ((size_t)N_VALUES * 4)

/* Adds a request for n_values zeros. */
static void add_gate(struct buf *b, const char *model, size_t n_values)
{
    struct infer_message m;
    uint8_t *zeros = calloc(n_values, 4);
    assert_non_null(zeros);
    infer_message_init(&m, model, "IN", "INT32", (int64_t)n_values, zeros, n_values * 4);
    add_infer_message(b, &m);
    free(zeros);
}

static uint64_t count_answered(const char *name)
{
    struct model *m;
    struct statistics s;
    assert_null(server_find_model(server, name, strlen(name), CONCH_VERSION_LATEST, &m));
    model_totals(m, &s);
    model_unref(m);
    return s.execution_count;
}

static void pump(void)
{
    loop_iterate(&loop, NS_PER_MS);
    if (driver.session) /* else the connection is lost */
        h2c_pump(&client);
}

static void await_used(size_t least, size_t most)
{
    while (h2_used_bytes(&driver) < least || h2_used_bytes(&driver) > most)
        pump();
}

static size_t count_frames(const struct h2c_stream *s)
{
    size_t n = 0;
    for (size_t at = 0; at + 5 <= s->n_data; n++)
        at += 5 + h2_number(s->data + at + 1);
    return n;
}

/* What ends a call whose responses wait. */
enum end { END_RESET, END_DEADLINE, END_ERROR, END_CONNECTION, N_ENDS };

#define YEARS "99999999S"
static const uint64_t YEARS_NS = 99999999 * NS_PER_S;
static const char malformed[] = "\2\0\0\0"; /* the prefix of a message: no such flag */

static struct h2c_stream *post_open(const char *path, struct buf *body)
{
    const nghttp2_nv fields[] = {h2c_nv("content-type", "application/grpc"),
                                 h2c_nv("grpc-timeout", YEARS)};
    size_t n = body->size;
    buf_add(body, malformed, sizeof(malformed));
    return h2c_request(&client, path, buf_text(body), body->size, n, fields, 2);
}

static void end_call(struct h2c_stream *s, enum end end)
{
    if (end == END_CONNECTION) {
        h2_end_session(&driver);
        return;
    }
    if (end == END_RESET)
        h2c_reset(&client, s, NGHTTP2_CANCEL);
    else if (end == END_DEADLINE)
        assert_int_equal(timers_run(&loop.timers, driver.now_ns + YEARS_NS), 1);
    else
        h2c_allow(&client, s, SIZE_MAX);
    h2c_pump(&client);
}

/* A connection in the place of one that was lost. */
static void connect_again(void)
{
    h2c_done(&client);
    driver.session = calloc(1, http2_protocol.session_bytes);
    assert_non_null(driver.session);
    driver.session->protocol = &http2_protocol;
    driver.session->on_output = ignore_output;
    http2_protocol.begin(driver.session, &driver.env->net);
    h2c_init(&client, &driver, 0);
}

/* The first request executes; those behind it are answered, and their responses wait for it. */
static struct h2c_stream *begin_kept(struct buf *body, size_t *ret_before)
{
    uint64_t n_before = count_answered("free");
    h2c_pump(&client);
    *ret_before = h2_used_bytes(&driver);
    close_gate();
    add_gate(body, "held", 1);
    for (int i = 0; i < N_LATER; i++)
        add_gate(body, "free", N_VALUES);
    struct h2c_stream *s = post_open(STREAM, body);
    while (access(gate_path(".reached"), F_OK) != 0 || count_answered("free") < n_before + N_LATER)
        pump();
    await_used(*ret_before + N_LATER * RESPONSE_BYTES,
               *ret_before + N_LATER * (RESPONSE_BYTES + 4096) + SLACK_BYTES);
    assert_int_equal(s->n_data, 0);
    return s;
}

static void kept_responses_follow_the_first(void **state)
{
    (void)state;
    AUTO(buf) body = BUF_INIT(8 << 20);
    size_t before;
    struct h2c_stream *s = begin_kept(&body, &before);
    open_gate();
    while (s->n_data < N_LATER * RESPONSE_BYTES)
        pump();
    /* The first is the short one, and all memory is free while the stream is still open. */
    const unsigned char *prefix = (const unsigned char *)s->data;
    assert_int_equal(prefix[1] | prefix[2], 0);
    assert_int_equal(count_frames(s), 1 + N_LATER);
    await_used(0, before + SLACK_BYTES);
    assert_false(s->closed);
    h2c_reset(&client, s, NGHTTP2_CANCEL);
    h2c_pump(&client);
}

/* While the backend still has the first request. */
static void kept_responses_end_with_their_call(void **state)
{
    (void)state;
    for (enum end end = 0; end < N_ENDS; end++) {
        AUTO(buf) body = BUF_INIT(8 << 20);
        size_t before;
        struct h2c_stream *s = begin_kept(&body, &before);
        end_call(s, end);
        await_used(0, before + SLACK_BYTES);
        assert_int_equal(s->n_data, 0);
        if (end == END_CONNECTION)
            connect_again();
        open_gate();
        while (driver.env->net.n_used > 0)
            loop_iterate(&loop, NS_PER_MS);
    }
}

enum window_end { WINDOW_OPENS, WINDOW_RESET, WINDOW_STALLS, WINDOW_CONNECTION, N_WINDOW_ENDS };

static void open_window(const struct h2c_stream *s, size_t n_bytes)
{
    nghttp2_submit_window_update(client.ng, 0, 0, 16 << 20);
    nghttp2_submit_window_update(client.ng, 0, s->id, 16 << 20);
    while (s->n_data < n_bytes)
        pump();
}

static void end_wait(struct h2c_stream *s, enum window_end end, size_t n_responses)
{
    switch (end) {
    case WINDOW_OPENS:
        open_window(s, n_responses * RESPONSE_BYTES);
        assert_int_equal(count_frames(s), n_responses);
        break;
    case WINDOW_RESET:
        h2c_reset(&client, s, NGHTTP2_CANCEL);
        h2c_pump(&client);
        break;
    case WINDOW_STALLS:
        for (int i = 0; i < 55; i++) {
            driver.now_ns += NS_PER_S;
            http2_protocol.check_time(driver.session, driver.now_ns);
            h2c_pump(&client);
        }
        assert_false(s->closed);
        assert_true(h2_used_bytes(&driver) >= n_responses * RESPONSE_BYTES);
        for (int i = 0; i < 10; i++) {
            driver.now_ns += NS_PER_S;
            http2_protocol.check_time(driver.session, driver.now_ns);
            h2c_pump(&client);
        }
        assert_true(s->closed);
        break;
    default:
        h2_end_session(&driver);
    }
}

/* An answer waits whole, in the memory into which the backend wrote it, for a client that gives no
 * window. */
static void answers_wait_for_a_window(void **state)
{
    (void)state;
    for (int is_stream = 0; is_stream < 2; is_stream++) {
        for (enum window_end end = 0; end < N_WINDOW_ENDS; end++) {
            AUTO(buf) body = BUF_INIT(8 << 20);
            size_t n = is_stream ? N_LATER : 1;
            h2c_done(&client);
            h2c_init(&client, &driver, H2C_NO_WINDOW);
            h2c_pump(&client);
            size_t before = h2_used_bytes(&driver);
            for (size_t i = 0; i < n; i++)
                add_gate(&body, "free", N_VALUES);
            struct h2c_stream *s =
                is_stream ? post_open(STREAM, &body) : post(INFER, &body, nothing, 0);
            while (!s->head_came)
                pump();
            await_used(before + n * RESPONSE_BYTES,
                       before + n * (RESPONSE_BYTES + 4096) + SLACK_BYTES);
            assert_int_equal(s->n_data, 0);
            end_wait(s, end, n);
            await_used(0, before + SLACK_BYTES);
            if (end != WINDOW_CONNECTION)
                h2_end_session(&driver);
            connect_again();
        }
    }
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, connect_client, disconnect_client)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_loop_does_not_wait_for_its_own_client),
        TEST(a_thread_waits_for_its_client),
        TEST(kept_responses_follow_the_first),
        TEST(kept_responses_end_with_their_call),
        TEST(answers_wait_for_a_window),
    };
    return cmocka_run_group_tests(tests, start_server, stop_server);
}
