/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls by a client in memory, against a server with an identity model: their answers, their
 * statuses, and that all memory is released. The model runs on its own thread, so that answers come
 * to the loop as messages.
 */
#include "frontends/grpc/call.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/compress.h"
#include "base/loop.h"
#include "base/pbwire.h"
#include "base/status.h"
#include "core/server/server.h"
#include "core/threads/changes.h"
#include "core/threads/control.h"
#include "lib/fake_clock.h"
#include "lib/grpc_driver.h"
#include "lib/server_driver.h"
#include "lib/thread_fault.h"
#include "proto/inference.pb-c.h"

#define CONFIG                                                                                     \
    "backend: 'identity' "                                                                         \
    "input { name: 'I' data_type: TYPE_UINT8 dims: [ -1 ] } "                                      \
    "output { name: 'O' data_type: TYPE_UINT8 dims: [ -1 ] }"
#define REPEAT                                                                                     \
    "backend: 'repeat' model_transaction_policy { decoupled: true } "                              \
    "input [ { name: 'IN' data_type: TYPE_INT32 dims: -1 }, "                                      \
    "        { name: 'DELAY' data_type: TYPE_UINT32 dims: -1 }, "                                  \
    "        { name: 'WAIT' data_type: TYPE_UINT32 dims: 1 } ] "                                   \
    "output [ { name: 'OUT' data_type: TYPE_INT32 dims: 1 }, "                                     \
    "         { name: 'IDX' data_type: TYPE_UINT32 dims: 1 } ]"

#define REFLECTION "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"

/* ---- The server and its client -------------------------------------------------------------- */

static int start_server(void **state)
{
    (void)state;
    struct server_options *o = prepare_server("/backends");
    repository_add(&repository, "a", CONFIG, 1);
    repository_add(&repository, "b", CONFIG, 1);
    repository_add(&repository, "repeat", REPEAT, 1);
    repository_add(&repository, "broken", "backend: 'none'", 1);
    start_prepared_server(o);
    assert_null(server_load_model(server, "a", NULL, 0));
    assert_null(server_load_model(server, "repeat", NULL, 0));
    return 0;
}

static int connect_client(void **state)
{
    (void)state;
    grpc_connect(server, 0, 0);
    return 0;
}

/* Checks that calls, blocks and requests of the core are released. */
static int disconnect_client(void **state)
{
    (void)state;
    grpc_disconnect();
    return 0;
}

/* ---- Messages ------------------------------------------------------------------------------- */

/* Adds a ModelInferRequest for the model, with n bytes as its tensor. */
static void add_infer(struct buf *b, const char *model, uint8_t *bytes, size_t n)
{
    char id[] = "id";
    struct infer_message m;
    infer_message_init(&m, model, "I", "UINT8", (int64_t)n, bytes, n);
    m.request.id = id;
    add_infer_message(b, &m);
}

/* Checks that the answer of an inference has the bytes. */
static void expect_output(const struct h2c_stream *s, const uint8_t *bytes, size_t n)
{
    expect_status(s, "0");
    assert_true(s->n_data >= 5 && s->data[0] == 0);
    Inference__ModelInferResponse *r =
        inference__model_infer_response__unpack(NULL, s->n_data - 5, (const uint8_t *)s->data + 5);
    assert_non_null(r);
    assert_string_equal(r->id, "id");
    assert_int_equal(r->n_raw_output_contents, 1);
    assert_int_equal(r->raw_output_contents[0].len, n);
    assert_memory_equal(r->raw_output_contents[0].data, bytes, n);
    inference__model_infer_response__free_unpacked(r, NULL);
}

static char model_a[] = "a";

/* ---- The tests ------------------------------------------------------------------------------ */

static void a_unary_call_has_one_message_and_a_status(void **state)
{
    (void)state;
    AUTO(buf) body = BUF_INIT(100);
    add_prefixed(&body, false, "", 0);
    struct h2c_stream *s = post("/inference.GRPCInferenceService/ServerLive", &body, nothing, 0);
    await_end(s);
    expect_status(s, "0");
    assert_int_equal(s->n_data, 7);
    assert_memory_equal(s->data, "\0\0\0\0\2\x08\1", 7);
    assert_non_null(strstr(s->head, "content-type=application/grpc;"));
    assert_non_null(strstr(s->head, "grpc-accept-encoding=identity,deflate,gzip;"));
    assert_int_equal(s->close_code, NGHTTP2_NO_ERROR);
}

static void an_inference_comes_back_whatever_its_size(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 1, 64, 5000, 70000, (1 << 20) - 60, 1 << 20, 5 << 20};
    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
        AUTO(buf) body = BUF_INIT(16 << 20);
        uint8_t *bytes = malloc(sizes[i] + 1);
        assert_non_null(bytes);
        for (size_t k = 0; k < sizes[i]; k++)
            bytes[k] = (uint8_t)(k * k >> 3);
        add_infer(&body, model_a, bytes, sizes[i]);
        client.portion = sizes[i] > 100000 ? 0 : 77; /* frames cut anywhere */
        struct h2c_stream *s = post(INFER, &body, nothing, 0);
        await_end(s);
        expect_output(s, bytes, sizes[i]);
        free(bytes);
    }
}

static void many_calls_share_a_connection(void **state)
{
    (void)state;
    enum { CALLS = 100 };
    AUTO(buf) body = BUF_INIT(1000);
    uint8_t bytes[100] = "abc";
    add_infer(&body, model_a, bytes, sizeof(bytes));
    for (int i = 0; i < CALLS; i++)
        post(INFER, &body, nothing, 0);
    for (unsigned int i = 0; i < CALLS; i++) {
        await_end(&client.streams[i]);
        expect_output(&client.streams[i], bytes, sizeof(bytes));
    }
}

static void errors_have_a_status_and_a_message(void **state)
{
    (void)state;
    AUTO(buf) body = BUF_INIT(1000);
    AUTO(buf) two = BUF_INIT(1000);
    AUTO(buf) empty = BUF_INIT(10);
    char unknown[] = "caf\xc3\xa9";
    uint8_t bytes[4] = "abc";
    struct h2c_stream *s;

    add_infer(&body, unknown, bytes, 4);
    s = post(INFER, &body, nothing, 0);
    await_end(s);
    expect_failure(s, "5", "Request for unknown model: 'caf%C3%A9' is not found");

    s = post("/inference.GRPCInferenceService/None", &body, nothing, 0);
    await_end(s);
    expect_failure(s, "12", "unknown method '/inference.GRPCInferenceService/None'");

    const nghttp2_nv brotli[] = {h2c_nv("grpc-encoding", "br")};
    s = post(INFER, &body, brotli, 1);
    await_end(s);
    expect_failure(s, "12", "Compression algorithm 'br' is not supported");
    assert_non_null(strstr(s->head, "grpc-accept-encoding=identity,deflate,gzip;"));

    add_prefixed(&two, false, "", 0);
    add_prefixed(&two, false, "", 0);
    s = post("/inference.GRPCInferenceService/RepositoryIndex", &two, nothing, 0);
    await_end(s);
    expect_failure(s, "13", "more than one message for a method that takes one");

    s = post(INFER, &empty, nothing, 0);
    await_end(s);
    expect_failure(s, "13", "the client ended the call without a message");

    buf_add(&empty, "\0\0\0\0\5ab", 7);
    s = post(INFER, &empty, nothing, 0);
    await_end(s);
    expect_failure(s, "13", "the client ended the call within a message");

    buf_reset(&empty);
    buf_add(&empty, "\2\0\0\0\0", 5);
    s = post(INFER, &empty, nothing, 0);
    await_end(s);
    expect_failure(s, "13", "invalid gRPC frame type 2");

    buf_reset(&empty);
    buf_add(&empty, "\0\x7f\xff\xff\xff", 5);
    s = post(INFER, &empty, nothing, 0);
    await_end(s);
    expect_failure(s, "8", "Received message larger than max (2147483647 vs. 8388608)");

    buf_reset(&empty);
    add_prefixed(&empty, false, "\x0a\x05x", 3);
    s = post(INFER, &empty, nothing, 0);
    await_end(s);
    expect_failure(s, "13", "Unable to parse request");
}

static void requests_that_are_no_calls_get_an_http_status(void **state)
{
    (void)state;
    const nghttp2_nv json[] = {h2c_nv("content-type", "application/json")};
    struct h2c_stream *s = h2c_request(&client, INFER, "", 0, SIZE_MAX, json, 1);
    await_end(s);
    assert_string_equal(s->status, "415");
}

static void messages_are_unpacked_and_answers_packed(void **state)
{
    (void)state;
    static const struct {
        enum grpc_compression level;
        const char *accepted, *chosen;
    } rows[] = {
        {GRPC_COMPRESSION_LOW, "gzip, deflate", "gzip"},
        {GRPC_COMPRESSION_LOW, "deflate", "deflate"},
        {GRPC_COMPRESSION_MEDIUM, "deflate,gzip", "deflate"},
        {GRPC_COMPRESSION_MEDIUM, "gzip", "gzip"},
        {GRPC_COMPRESSION_HIGH, "identity,gzip,deflate", "deflate"},
        {GRPC_COMPRESSION_HIGH, "identity,gzip", "gzip"},
    };
    uint8_t zeros[20000] = {0};
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        AUTO(buf) plain = BUF_INIT(1 << 20);
        AUTO(buf) body = BUF_INIT(1 << 20);
        const nghttp2_nv fields[] = {h2c_nv("grpc-encoding", rows[i].chosen),
                                     h2c_nv("grpc-accept-encoding", rows[i].accepted)};
        enum compress_format format = rows[i].chosen[0] == 'g' ? COMPRESS_GZIP : COMPRESS_ZLIB;
        char *packed, *unpacked;
        size_t n_packed, n_unpacked;
        settings.compression = rows[i].level;
        add_infer(&plain, model_a, zeros, sizeof(zeros));
        struct iovec message = {plain.data + 5, plain.size - 5};
        assert_null(compress_pack(ctx.compress, format, &message, 1, driver.pool, NULL, &packed,
                                  &n_packed));
        add_prefixed(&body, true, packed, n_packed);
        pool_release(packed);
        struct h2c_stream *s = post(INFER, &body, fields, 2);
        await_end(s);
        expect_status(s, "0");
        char wanted[64];
        snprintf(wanted, sizeof(wanted), "grpc-encoding=%s;", rows[i].chosen);
        assert_non_null(strstr(s->head, wanted));
        assert_int_equal(s->data[0], 1);
        assert_true(s->n_data < 1000);
        struct compress_target target = {.pool = driver.pool, .max_bytes = 1 << 20};
        assert_null(compress_unpack(ctx.compress, format, s->data + 5, s->n_data - 5, &target,
                                    &unpacked, &n_unpacked));
        assert_true(n_unpacked > sizeof(zeros));
        pool_release(unpacked);
    }
    AUTO(buf) body = BUF_INIT(1000);
    const nghttp2_nv gzip[] = {h2c_nv("grpc-encoding", "gzip")};
    add_prefixed(&body, true, "no gzip", 7);
    struct h2c_stream *s = post(INFER, &body, gzip, 1);
    await_end(s);
    expect_failure(s, "13", "7 bytes are not valid gzip");
    s = post(INFER, &body, nothing, 0);
    await_end(s);
    expect_failure(s, "13", "a compressed message without grpc-encoding");
}

static void a_deadline_ends_the_call(void **state)
{
    (void)state;
    AUTO(buf) body = BUF_INIT(1000);
    uint8_t bytes[4] = "abc";
    const nghttp2_nv timeout[] = {h2c_nv("content-type", "application/grpc"),
                                  h2c_nv("grpc-timeout", "100m")};
    add_infer(&body, model_a, bytes, 4);
    struct h2c_stream *s = h2c_request(&client, INFER, buf_text(&body), body.size, 20, timeout, 2);
    h2c_pump(&client);
    assert_int_equal(timers_run(&loop.timers, driver.now_ns + 99 * NS_PER_MS), 0);
    assert_int_equal(timers_run(&loop.timers, driver.now_ns + 100 * NS_PER_MS), 1);
    h2c_pump(&client);
    expect_failure(s, "4", "Deadline Exceeded");
    h2c_allow(&client, s, SIZE_MAX); /* the rest comes after the deadline, and is dropped */
    await_end(s);

    /* One that is in time leaves no timer behind. */
    const nghttp2_nv years[] = {h2c_nv("content-type", "application/grpc"),
                                h2c_nv("grpc-timeout", "99999999S")};
    struct h2c_stream *quick =
        h2c_request(&client, INFER, buf_text(&body), body.size, SIZE_MAX, years, 2);
    await_end(quick);
    expect_status(quick, "0");
    assert_true(timers_next_ns(&loop.timers) == UINT64_MAX);

    /* gRPC's own library resets the stream of an invalid one. */
    const nghttp2_nv wrong[] = {h2c_nv("grpc-timeout", "soon")};
    s = post(INFER, &body, wrong, 1);
    await_end(s);
    assert_int_equal(s->close_code, NGHTTP2_INTERNAL_ERROR);
    assert_string_equal(s->status, "");
}

static void clients_that_leave_leak_nothing(void **state)
{
    (void)state;
    AUTO(buf) body = BUF_INIT(1 << 20);
    static uint8_t bytes[100000];
    add_infer(&body, model_a, bytes, sizeof(bytes));
    for (int i = 0; i < 40; i++) {
        struct h2c_stream *s = h2c_request(
            &client, INFER, buf_text(&body), body.size, i % 4 == 0 ? (size_t)i * 1000 : SIZE_MAX,
            (const nghttp2_nv[]){h2c_nv("content-type", "application/grpc")}, 1);
        h2c_pump(&client);
        if (i % 3 == 0)
            h2c_reset(&client, s, NGHTTP2_CANCEL);
        h2c_pump(&client);
        loop_iterate(&loop, 0);
    }
}

static void repository_calls_run_on_a_control_thread(void **state)
{
    (void)state;
    AUTO(buf) body = BUF_INIT(1000);
    AUTO(buf) empty = BUF_INIT(1000);
    add_prefixed(&body, false, "\x12\1b", 3); /* model_name: "b" */
    struct h2c_stream *s =
        post("/inference.GRPCInferenceService/RepositoryModelLoad", &body, nothing, 0);
    await_end(s);
    expect_status(s, "0");
    bool ready = false;
    assert_null(server_model_is_ready(server, "b", 1, CONCH_VERSION_LATEST, &ready));
    assert_true(ready);
    add_prefixed(&empty, false, "", 0);
    s = post("/inference.GRPCInferenceService/RepositoryIndex", &empty, nothing, 0);
    await_end(s);
    expect_status(s, "0");
    assert_true(s->n_data > 20);
    s = post("/inference.GRPCInferenceService/RepositoryModelUnload", &body, nothing, 0);
    await_end(s);
    expect_status(s, "0");
    /* A client that leaves during the call. */
    post("/inference.GRPCInferenceService/RepositoryIndex", &empty, nothing, 0);
    h2c_pump(&client);
}

/* ---- Streams -------------------------------------------------------------------------------- */

typedef Inference__ModelStreamInferResponse stream_response;
typedef Inference__ModelInferRequest infer_request;
typedef Inference__ModelInferRequest__InferInputTensor infer_input;

/* Adds a request for the model `repeat`: n elements 0, 1, …, and n_delays equal delays. */
static void add_repeat(struct buf *b, uint32_t n, uint32_t n_delays, uint32_t delay_ms,
                       bool wants_empty)
{
    static const char *const names[] = {"IN", "DELAY", "WAIT"};
    static const char *const types[] = {"INT32", "UINT32", "UINT32"};
    char name[3][8], type[3][8], model[] = "repeat", id[] = "id",
                                 key[] = "triton_enable_empty_final_response";
    int64_t shapes[3] = {n, n_delays, 1};
    uint32_t *values[3] = {calloc(n + 1, 4), calloc(n_delays + 1, 4), calloc(1, 4)};
    infer_input inputs[3], *list[3];
    ProtobufCBinaryData raw[3];
    Inference__InferParameter value;
    Inference__ModelInferRequest__ParametersEntry entry, *entries[] = {&entry};
    infer_request m;

    inference__model_infer_request__init(&m);
    for (uint32_t i = 0; i < n; i++)
        values[0][i] = i;
    for (uint32_t i = 0; i < n_delays; i++)
        values[1][i] = delay_ms;
    for (int i = 0; i < 3; i++) {
        inference__model_infer_request__infer_input_tensor__init(&inputs[i]);
        inputs[i].name = strcpy(name[i], names[i]);
        inputs[i].datatype = strcpy(type[i], types[i]);
        inputs[i].n_shape = 1;
        inputs[i].shape = &shapes[i];
        raw[i] = (ProtobufCBinaryData){(size_t)shapes[i] * 4, (uint8_t *)values[i]};
        list[i] = &inputs[i];
    }
    inference__infer_parameter__init(&value);
    inference__model_infer_request__parameters_entry__init(&entry);
    value.parameter_choice_case = INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_BOOL_PARAM;
    value.bool_param = wants_empty;
    entry.key = key;
    entry.value = &value;
    m.model_name = model;
    m.id = id;
    m.n_parameters = 1;
    m.parameters = entries;
    m.n_inputs = 3;
    m.inputs = list;
    m.n_raw_input_contents = 3;
    m.raw_input_contents = raw;
    size_t size = inference__model_infer_request__get_packed_size(&m);
    uint8_t *packed = malloc(size);
    assert_non_null(packed);
    inference__model_infer_request__pack(&m, packed);
    add_prefixed(b, false, packed, size);
    free(packed);
    for (int i = 0; i < 3; i++)
        free(values[i]);
}

/*
 * Reads the message at *at of the answer; the caller frees it. NULL: there is no complete message.
 */
static stream_response *next_message(const struct h2c_stream *s, size_t *at)
{
    const unsigned char *p = (const unsigned char *)s->data + *at;
    if (s->n_data < *at + 5)
        return NULL;
    size_t n = (size_t)p[1] << 24 | (size_t)p[2] << 16 | (size_t)p[3] << 8 | p[4];
    if (s->n_data < *at + 5 + n)
        return NULL;
    stream_response *r = inference__model_stream_infer_response__unpack(NULL, n, p + 5);
    assert_non_null(r);
    *at += 5 + n;
    return r;
}

static void free_message(stream_response *r)
{
    inference__model_stream_infer_response__free_unpacked(r, NULL);
}

static size_t count_messages(const struct h2c_stream *s)
{
    size_t at = 0, n = 0;
    stream_response *r;
    while ((r = next_message(s, &at))) {
        n++;
        free_message(r);
    }
    return n;
}

static bool is_marked_final(const stream_response *r)
{
    const Inference__ModelInferResponse *in = r->infer_response;
    for (size_t i = 0; i < in->n_parameters; i++) {
        if (strcmp(in->parameters[i]->key, "triton_final_response") == 0)
            return in->parameters[i]->value->bool_param;
    }
    fail_msg("no triton_final_response");
    return false;
}

/* Many messages in one frame begin no more requests than an iteration of the loop may. */
static void calls_take_from_the_requests_of_the_iteration(void **state)
{
    (void)state;
    enum { REQUESTS = 10 };
    AUTO(buf) body = BUF_INIT(4000);
    AUTO(buf) empty = BUF_INIT(10);
    uint8_t bytes[4] = "abc";
    add_prefixed(&empty, false, "", 0);
    driver.requests_left = 5;
    await_end(post("/inference.GRPCInferenceService/ServerLive", &empty, nothing, 0));
    assert_int_equal(driver.requests_left, 4);
    add_infer(&body, model_a, bytes, 4);
    await_end(post(INFER, &body, nothing, 0));
    assert_int_equal(driver.requests_left, 3);
    for (int i = 1; i < REQUESTS; i++)
        add_infer(&body, model_a, bytes, 4);
    struct h2c_stream *s = post(STREAM, &body, nothing, 0);
    for (size_t n = 3; n < REQUESTS; n += 3) {
        h2c_pump(&client);
        assert_int_equal(driver.requests_left, 0);
        while (count_messages(s) < n) {
            loop_iterate(&loop, 100 * NS_PER_MS);
            h2c_pump(&client);
        }
        assert_int_equal(count_messages(s), n);
        driver.requests_left = 3;
        http2_protocol.resume(driver.session);
    }
    await_end(s);
    expect_status(s, "0");
    assert_int_equal(count_messages(s), REQUESTS);
    assert_int_equal(driver.requests_left, 2);
}

/* Counts the messages that came so far, whatever they are. */
static size_t count_prefixes(const struct h2c_stream *s)
{
    size_t n = 0;
    for (size_t at = 0; at + 5 <= s->n_data; n++) {
        const uint8_t *p = (const uint8_t *)s->data + at;
        at += 5 + ((size_t)p[3] << 8 | p[4]);
    }
    return n;
}

static void reflection_takes_from_the_requests_of_the_iteration(void **state)
{
    (void)state;
    enum { REQUESTS = 10 };
    AUTO(buf) body = BUF_INIT(4000);
    for (int i = 0; i < REQUESTS; i++)
        add_prefixed(&body, false, "\x22\1x", 3); /* a symbol that there is not */
    driver.requests_left = 3;
    struct h2c_stream *s = post(REFLECTION, &body, nothing, 0);
    for (size_t n = 3; n < REQUESTS; n += 3) {
        h2c_pump(&client);
        assert_int_equal(driver.requests_left, 0);
        assert_int_equal(count_prefixes(s), n);
        driver.requests_left = 3;
        http2_protocol.resume(driver.session);
    }
    await_end(s);
    expect_status(s, "0");
    assert_int_equal(count_prefixes(s), REQUESTS);
    assert_int_equal(driver.requests_left, 2);
}

/* Answers that their client does not read hold up further requests. */
static void a_connection_with_unsent_answers_begins_no_inference(void **state)
{
    (void)state;
    enum { CALLS = 24, BEGUN = 11, BYTES = 6 << 20 };
    AUTO(buf) body = BUF_INIT(16 << 20);
    uint8_t *bytes = calloc(1, BYTES);
    assert_non_null(bytes);
    add_infer(&body, model_a, bytes, BYTES);
    h2c_done(&client);
    h2c_init(&client, &driver, H2C_NO_WINDOW);
    for (int i = 0; i < CALLS; i++) {
        struct h2c_stream *s = post(INFER, &body, nothing, 0);
        h2c_pump(&client);
        while (i < BEGUN && !s->head_came) {
            loop_iterate(&loop, 10 * NS_PER_MS);
            h2c_pump(&client);
        }
    }
    for (int i = 0; i < 5; i++) {
        loop_iterate(&loop, NS_PER_MS);
        h2c_pump(&client);
    }
    /* The answers, two inputs that are about to be released, and a window of all others. */
    size_t used = h2_used_bytes(&driver);
    assert_true(used > (size_t)64 << 20 && used < (size_t)(BEGUN * 6 + 2 * 7 + 16 + 4) << 20);
    for (int i = 0; i < CALLS; i++)
        assert_int_equal(client.streams[i].head_came, i < BEGUN);
    for (int i = 0; i < CALLS; i++) {
        struct h2c_stream *s = &client.streams[i];
        while (!s->closed) {
            nghttp2_submit_window_update(client.ng, 0, s->id, 1 << 20);
            nghttp2_submit_window_update(client.ng, 0, 0, 1 << 20);
            loop_iterate(&loop, NS_PER_MS);
            h2c_pump(&client);
        }
        expect_status(s, "0");
        assert_true(s->n_data > BYTES);
    }
    free(bytes);
}

static void a_stream_answers_in_the_order_of_its_requests(void **state)
{
    (void)state;
    enum { REQUESTS = 3000 };
    AUTO(buf) body = BUF_INIT(4 << 20);
    for (uint32_t i = 0; i < REQUESTS; i++)
        add_infer(&body, model_a, (uint8_t *)&i, sizeof(i));
    struct h2c_stream *s = post(STREAM, &body, nothing, 0);
    await_end(s);
    expect_status(s, "0");
    size_t at = 0;
    for (uint32_t i = 0; i < REQUESTS; i++) {
        stream_response *r = next_message(s, &at);
        assert_non_null(r);
        assert_string_equal(r->error_message, "");
        assert_string_equal(r->infer_response->model_version, "1");
        assert_true(is_marked_final(r));
        assert_memory_equal(r->infer_response->raw_output_contents[0].data, &i, sizeof(i));
        free_message(r);
    }
    assert_int_equal(at, s->n_data);
}

static void a_decoupled_model_sends_any_number_of_responses(void **state)
{
    (void)state;
    for (int wants_empty = 0; wants_empty < 2; wants_empty++) {
        AUTO(buf) body = BUF_INIT(10000);
        add_repeat(&body, 5, 5, 1, wants_empty);
        struct h2c_stream *s = post(STREAM, &body, nothing, 0);
        await_end(s);
        expect_status(s, "0");
        size_t at = 0, n = 0, n_final = 0;
        stream_response *r;
        while ((r = next_message(s, &at))) {
            n_final += is_marked_final(r);
            assert_string_equal(r->infer_response->id, "id");
            assert_string_equal(r->infer_response->model_name, "repeat");
            if (r->infer_response->n_outputs > 0)
                assert_int_equal(*r->infer_response->raw_output_contents[0].data, n++);
            free_message(r);
        }
        assert_int_equal(n, 5);
        assert_int_equal(n_final, wants_empty);
    }
}

static void an_error_is_a_message_and_the_stream_goes_on(void **state)
{
    (void)state;
    AUTO(buf) body = BUF_INIT(10000);
    char none[] = "none";
    uint8_t bytes[4] = "abc";
    add_infer(&body, none, bytes, 4);  /* an error before the core has the request: no such model */
    add_repeat(&body, 2, 3, 0, false); /* an error after that: the backend refuses the request */
    add_infer(&body, model_a, bytes, 4);
    struct h2c_stream *s = post(STREAM, &body, nothing, 0);
    await_end(s);
    expect_status(s, "0");
    size_t at = 0;
    bool early = false, late = false, fine = false;
    stream_response *r;
    while ((r = next_message(s, &at))) {
        if (strstr(r->error_message, "Request for unknown model: 'none' is not found")) {
            early = true;
            assert_string_equal(r->infer_response->id, "id");
            assert_string_equal(r->infer_response->model_name, "");
            assert_int_equal(r->infer_response->n_parameters, 0);
        } else if (r->error_message[0]) {
            late = true;
            assert_string_equal(r->infer_response->model_name, "repeat");
            assert_true(is_marked_final(r));
        } else {
            fine = true;
        }
        free_message(r);
    }
    assert_true(early && late && fine);

    const nghttp2_nv strict[] = {h2c_nv("triton_grpc_error", "true")};
    s = post(STREAM, &body, strict, 1);
    await_end(s);
    assert_null(strstr(s->trailers, "grpc-status=0;"));
    assert_non_null(strstr(s->trailers, "grpc-message="));
}

static void a_backend_waits_for_a_slow_client(void **state)
{
    (void)state;
    enum { RESPONSES = 20000 };
    AUTO(buf) body = BUF_INIT(1 << 20);
    settings.flow.max_responses = 16;
    add_repeat(&body, RESPONSES, RESPONSES, 0, false);
    /* The client reads nothing. */
    struct h2c_stream *s = post(STREAM, &body, nothing, 0);
    h2c_collect(&client);
    while (client.n_unfed > 0)
        client.n_unfed -=
            h2_feed(&driver, client.wire + client.n_wire - client.n_unfed, client.n_unfed);
    size_t most = 0;
    for (int i = 0; i < 50; i++) {
        loop_iterate(&loop, 10 * NS_PER_MS);
        size_t used = h2_used_bytes(&driver);
        most = used > most ? used : most;
    }
    assert_true(most < (1 << 20)); /* of 20000 responses of more than a KiB each */
    await_end(s);
    assert_int_equal(count_messages(s), RESPONSES);
}

/* Adds a packed ModelInferRequest whose tensor has n zeros. */
static void add_packed(struct buf *body, char *model, size_t n)
{
    AUTO(buf) plain = BUF_INIT(16 << 20);
    char *packed;
    size_t n_packed;
    uint8_t *zeros = calloc(1, n + 1);
    assert_non_null(zeros);
    add_infer(&plain, model, zeros, n);
    struct iovec message = {plain.data + 5, plain.size - 5};
    assert_null(compress_pack(ctx.compress, COMPRESS_GZIP, &message, 1, driver.pool, NULL, &packed,
                              &n_packed));
    add_prefixed(body, true, packed, n_packed);
    pool_release(packed);
    free(zeros);
}

static const nghttp2_nv gzip_fields[] = {
    {(uint8_t *)(uintptr_t) "grpc-encoding", (uint8_t *)(uintptr_t) "gzip", 13, 4, 0},
    {(uint8_t *)(uintptr_t) "grpc-accept-encoding", (uint8_t *)(uintptr_t) "gzip", 20, 4, 0}};

/*
 * Large messages are packed and unpacked by helpers, both of one call and of many; each stream
 * keeps its order, with small messages in between.
 */
static void large_messages_are_packed_by_helpers(void **state)
{
    (void)state;
    enum { CALLS = 12, REQUESTS = 30 };
    static const size_t sizes[] = {4 << 20, 10, 100000, 40000, 0, 300000};
    AUTO(buf) body = BUF_INIT(1 << 20);
    AUTO(buf) unary = BUF_INIT(1 << 20);
    settings.compression = GRPC_COMPRESSION_LOW;
    add_packed(&unary, model_a, 1 << 20);
    for (int i = 0; i < REQUESTS; i++)
        add_packed(&body, model_a, sizes[i % ARRAY_SIZE(sizes)] + (size_t)i);
    for (int i = 0; i < CALLS; i++)
        post(i % 2 ? STREAM : INFER, i % 2 ? &body : &unary, gzip_fields, 2);
    h2c_pump(&client);
    assert_int_equal(client.streams[0].n_data, 0); /* the loop has not done it itself */
    for (int i = 0; i < CALLS; i++) {
        struct h2c_stream *s = &client.streams[i];
        await_end(s);
        expect_status(s, "0");
        if (i % 2 == 0)
            continue;
        size_t at = 0;
        for (int k = 0; k < REQUESTS; k++) {
            const unsigned char *p = (const unsigned char *)s->data + at;
            size_t n = (size_t)p[1] << 24 | (size_t)p[2] << 16 | (size_t)p[3] << 8 | p[4];
            char *unpacked = NULL;
            size_t n_unpacked = n;
            struct compress_target target = {.pool = driver.pool, .max_bytes = 16 << 20};
            if (p[0])
                assert_null(compress_unpack(ctx.compress, COMPRESS_GZIP, p + 5, n, &target,
                                            &unpacked, &n_unpacked));
            stream_response *r = inference__model_stream_infer_response__unpack(
                NULL, n_unpacked, unpacked ? (uint8_t *)unpacked : p + 5);
            assert_non_null(r);
            assert_int_equal(r->infer_response->raw_output_contents[0].len,
                             sizes[k % (int)ARRAY_SIZE(sizes)] + (size_t)k);
            free_message(r);
            pool_release(unpacked);
            at += 5 + n;
        }
        assert_int_equal(at, s->n_data);
    }
}

/* A job of somebody else that keeps the only helper. */
static struct {
    struct control_job job;
    atomic_bool runs, may_end;
} busy;

static void keep_helper(struct control_job *job)
{
    (void)job;
    atomic_store(&busy.runs, true);
    while (!atomic_load(&busy.may_end))
        usleep(100);
}

/* Whether one helper exists, and is idle. */
static bool is_one_idle(struct control *helpers)
{
    bool one = true;
    mutex_lock(&helpers->mu);
    LIST_FOR_EACH (link, &helpers->threads) {
        const struct control_thread *t = LIST_ENTRY(link, struct control_thread, link);
        one &= t->number == 0 || t->stage != CONTROL_THREAD;
    }
    one &= helpers->n_idle == 1;
    mutex_unlock(&helpers->mu);
    return one;
}

/* No helper is idle and none can be started: the loop packs and unpacks itself. */
static void large_messages_do_not_wait_for_a_helper_that_never_comes(void **state)
{
    (void)state;
    AUTO(buf) body = BUF_INIT(1 << 20);
    settings.compression = GRPC_COMPRESSION_LOW;
    add_packed(&body, model_a, 1 << 20);
    await_end(post(INFER, &body, gzip_fields, 2)); /* the threads that it needs exist */
    struct control *helpers = server_helpers(server);
    control_keep(helpers, 1);
    while (!is_one_idle(helpers))
        usleep(100);
    busy.job.run = keep_helper;
    control_post(helpers, &busy.job);
    while (!atomic_load(&busy.runs))
        usleep(100);
    fail_threads(true);
    struct h2c_stream *s = post(INFER, &body, gzip_fields, 2);
    await_end(s);
    expect_status(s, "0");
    fail_threads(false);
    atomic_store(&busy.may_end, true);
}

/* A long message comes while a helper unpacks the one before it. Its turn is asked for when the
 * helper has done, outside of a call of the connection. */
static void a_long_message_comes_while_the_one_before_is_unpacked(void **state)
{
    (void)state;
    enum { LONG = 3 << 20, PACKED = 1 << 20 };
    AUTO(buf) body = BUF_INIT(16 << 20);
    uint8_t *bytes = calloc(1, LONG);
    assert_non_null(bytes);
    add_packed(&body, model_a, PACKED);
    size_t n_first = body.size;
    add_infer(&body, model_a, bytes, LONG);
    nghttp2_nv fields[] = {h2c_nv("content-type", "application/grpc"), gzip_fields[0]};
    /* All of a window has come when the helper has done. */
    struct h2c_stream *s =
        h2c_request(&client, STREAM, buf_text(&body), body.size, n_first + (200 << 10), fields, 2);
    h2c_pump(&client);
    size_t used = h2_used_bytes(&driver);
    while (s->n_data < PACKED || h2_used_bytes(&driver) < LONG) {
        loop_iterate(&loop, 10 * NS_PER_MS);
        h2_flush(&driver); /* as the connection does that is told of output */
        h2c_read(&client);
        h2c_collect(&client);
        client.n_unfed -=
            h2_feed(&driver, client.wire + client.n_wire - client.n_unfed, client.n_unfed);
    }
    assert_true(used < LONG);
    h2c_allow(&client, s, SIZE_MAX);
    await_end(s);
    expect_status(s, "0");
    assert_int_equal(count_messages(s), 2);
    free(bytes);
}

static void calls_end_while_a_helper_has_their_messages(void **state)
{
    (void)state;
    AUTO(buf) body = BUF_INIT(1 << 20);
    settings.compression = GRPC_COMPRESSION_HIGH;
    for (int i = 0; i < 3; i++)
        add_packed(&body, model_a, 2 << 20);
    for (int i = 0; i < 30; i++) {
        AUTO(buf) unary = BUF_INIT(1 << 20);
        add_packed(&unary, model_a, 2 << 20);
        struct h2c_stream *s = post(i % 2 ? STREAM : INFER, i % 2 ? &body : &unary, gzip_fields, 2);
        h2c_pump(&client);
        for (int k = 0; k < i % 7; k++)
            loop_iterate(&loop, NS_PER_MS);
        h2c_reset(&client, s, NGHTTP2_CANCEL);
        h2c_pump(&client);
    }
    /* Lies about what is packed, found by a helper. */
    AUTO(buf) bad = BUF_INIT(1 << 20);
    static char junk[50000];
    add_prefixed(&bad, true, junk, sizeof(junk));
    struct h2c_stream *s = post(STREAM, &bad, gzip_fields, 1);
    await_end(s);
    expect_failure(s, "13", "50000 bytes are not valid gzip");
    /* The connection is lost while helpers are at work (disconnect_client()). */
    post(STREAM, &body, gzip_fields, 2);
    h2c_pump(&client);
}

/* An error of a stream with true status codes follows the answers that helpers still pack. */
static void an_error_follows_the_answers_that_are_packed(void **state)
{
    (void)state;
    AUTO(buf) body = BUF_INIT(1 << 20);
    const nghttp2_nv fields[] = {gzip_fields[0], gzip_fields[1],
                                 h2c_nv("triton_grpc_error", "true")};
    settings.compression = GRPC_COMPRESSION_LOW;
    for (int i = 0; i < 3; i++)
        add_packed(&body, model_a, 1 << 20);
    add_repeat(&body, 2, 3, 0, false); /* refused by its backend */
    struct h2c_stream *s = post(STREAM, &body, fields, 3);
    await_end(s);
    const char *fields_at_end = s->n_data ? s->trailers : s->head;
    assert_null(strstr(fields_at_end, "grpc-status=0;"));
    assert_non_null(strstr(fields_at_end, "grpc-message="));
}

static void a_cancelled_stream_cancels_its_requests(void **state)
{
    (void)state;
    settings.flow.max_responses = 4; /* before a thread of a backend reads it */
    for (int i = 0; i < 20; i++) {
        AUTO(buf) body = BUF_INIT(1 << 20);
        uint8_t bytes[4] = "abc";
        add_repeat(&body, 1000, 1000, i % 2, true);
        add_infer(&body, model_a, bytes, 4);
        struct h2c_stream *s = post(STREAM, &body, nothing, 0);
        h2c_pump(&client);
        loop_iterate(&loop, (uint64_t)(i % 5) * NS_PER_MS);
        if (i % 4 < 2)
            h2c_pump(&client);
        h2c_reset(&client, s, NGHTTP2_CANCEL);
        h2c_pump(&client);
    }
}

/* It has the effect of a half-close, as in the reference: what came before is answered. */
static void a_malformed_message_ends_the_requests(void **state)
{
    (void)state;
    AUTO(buf) body = BUF_INIT(1000);
    uint8_t bytes[4] = "abc";
    const nghttp2_nv fields[] = {h2c_nv("content-type", "application/grpc")};
    add_infer(&body, model_a, bytes, 4);
    add_prefixed(&body, false, "\x0a\x05x", 3);
    add_infer(&body, model_a, bytes, 4);
    struct h2c_stream *s = post(STREAM, &body, nothing, 0);
    await_end(s);
    expect_status(s, "0");
    assert_int_equal(count_messages(s), 1);
    /* The client has not closed its side. */
    s = h2c_request(&client, STREAM, buf_text(&body), body.size, body.size, fields, 1);
    await_end(s);
    expect_status(s, "0");
    assert_int_equal(count_messages(s), 1);
    AUTO(buf) empty = BUF_INIT(10);
    s = post(STREAM, &empty, nothing, 0); /* a stream without a request ends with OK */
    await_end(s);
    expect_status(s, "0");
}

/* With the 5 bytes of its prefix a message may have as many bytes as the window, or some more; its
 * first tensor makes it about 40 bytes longer than the tensor. */
static void messages_around_the_window_come_whole(void **state)
{
    (void)state;
    static const size_t windows[] = {1 << 20, 65535};
    for (size_t w = 0; w < ARRAY_SIZE(windows); w++) {
        for (size_t n = windows[w] - 80; n < windows[w] + 10; n += 1) {
            AUTO(buf) body = BUF_INIT(16 << 20);
            uint8_t *bytes = calloc(1, n);
            assert_non_null(bytes);
            add_infer(&body, model_a, bytes, n);
            if (body.size >= windows[w] - 8 && body.size <= windows[w] + 12) {
                struct h2c_stream *s = post(INFER, &body, nothing, 0);
                await_end(s);
                expect_output(s, bytes, n);
            }
            free(bytes);
        }
    }
}

/* The window of a connection that began while memory was short. */
static int connect_with_short_windows(void **state)
{
    (void)state;
    grpc_connect(server, 65535, 65535);
    return 0;
}

static void long_messages_come_through_short_windows(void **state)
{
    (void)state;
    static const size_t sizes[] = {60000, 65500, 70000, 1 << 20, 3 << 20};
    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
        AUTO(buf) body = BUF_INIT(16 << 20);
        uint8_t *bytes = calloc(1, sizes[i]);
        assert_non_null(bytes);
        add_infer(&body, model_a, bytes, sizes[i]);
        struct h2c_stream *s = post(INFER, &body, nothing, 0);
        await_end(s);
        expect_output(s, bytes, sizes[i]);
        s = post(STREAM, &body, nothing, 0);
        await_end(s);
        expect_status(s, "0");
        free(bytes);
    }
    messages_around_the_window_come_whole(state);
}

/* What was granted still comes after the deadline, while the status waits for the client's window.
 */
static void bytes_that_come_after_the_deadline_are_dropped(void **state)
{
    (void)state;
    AUTO(buf) body = BUF_INIT(16 << 20);
    uint8_t *bytes = calloc(1, 2 << 20);
    assert_non_null(bytes);
    const nghttp2_nv timeout[] = {h2c_nv("content-type", "application/grpc"),
                                  h2c_nv("grpc-timeout", "100m")};
    h2c_done(&client);
    h2c_init(&client, &driver, H2C_NO_WINDOW);
    add_prefixed(&body, false, "", 0); /* an error, whose message waits for a window */
    add_infer(&body, model_a, bytes, 2 << 20);
    struct h2c_stream *s =
        h2c_request(&client, STREAM, buf_text(&body), body.size, 100000, timeout, 2);
    h2c_pump(&client);
    http2_env_give_turns(driver.env);
    h2c_pump(&client);
    assert_int_equal(timers_run(&loop.timers, driver.now_ns + 100 * NS_PER_MS), 1);
    h2c_allow(&client, s, SIZE_MAX);
    h2c_pump(&client);
    h2c_reset(&client, s, NGHTTP2_CANCEL);
    h2c_pump(&client);
    free(bytes);
}

/* A malformed prefix ends the stream; the generator before it must not go on for ever. */
static void an_error_of_the_stream_cancels_its_requests(void **state)
{
    (void)state;
    AUTO(buf) body = BUF_INIT(1 << 20);
    add_repeat(&body, 10000, 10000, 10, false); /* 100 seconds */
    buf_add(&body, "\2\0\0\0\0", 5);
    struct h2c_stream *s = post(STREAM, &body, nothing, 0);
    await_end(s);
    uint64_t from_ns = monotonic_ns();
    while (driver.env->net.n_used > 0)
        loop_iterate(&loop, 100 * NS_PER_MS);
    assert_true(monotonic_ns() - from_ns < 60 * NS_PER_S);
}

static void an_early_error_waits_for_earlier_answers(void **state)
{
    (void)state;
    AUTO(buf) body = BUF_INIT(10000);
    char none[] = "none";
    uint8_t bytes[4] = "abc";
    for (int i = 0; i < 20; i++)
        add_infer(&body, i % 2 ? none : model_a, bytes, 4);
    struct h2c_stream *s = post(STREAM, &body, nothing, 0);
    await_end(s);
    expect_status(s, "0");
    size_t at = 0;
    for (int i = 0; i < 20; i++) {
        stream_response *r = next_message(s, &at);
        assert_non_null(r);
        assert_int_equal(r->error_message[0] != 0, i % 2);
        free_message(r);
    }
}

/* ---- Memory --------------------------------------------------------------------------------- */

/* A call without a message costs its stream, here and in nghttp2. */
static void idle_streams_are_small(void **state)
{
    enum { N = 200, LEAST = 512, GOAL = 1600 };
    (void)state;
    nghttp2_nv fields[] = {h2c_nv("te", "trailers"), h2c_nv("content-type", "application/grpc"),
                           h2c_nv("user-agent", "grpc-python/1.60.0 grpc-c/37.0.0 (linux; chttp2)"),
                           h2c_nv("grpc-accept-encoding", "identity, deflate, gzip")};
    h2c_pump(&client);
    size_t before = h2_used_bytes(&driver);
    for (int i = 0; i < N; i++)
        (void)h2c_request(&client, STREAM, "x", 1, 0, fields, 4);
    h2c_pump(&client);
    size_t per_stream = (h2_used_bytes(&driver) - before) / N;
    print_message("an idle stream has %zu bytes\n", per_stream);
    assert_in_range(per_stream, LEAST, GOAL);
}

/* Messages that wait have room, whatever the window of a stream is. */
static void as_much_waits_as_the_window_allows(void **state)
{
    enum { N = 4500, TENSOR = 1500 };
    (void)state;
    static uint8_t bytes[TENSOR];
    char model[] = "a";
    struct buf body;
    buf_init(&body, SIZE_MAX);
    for (int i = 0; i < N; i++)
        add_infer(&body, model, bytes, TENSOR);
    const struct h2c_stream *s = post(STREAM, &body, nothing, 0);
    await_end(s);
    expect_status(s, "0");
    size_t at = 0;
    for (int i = 0; i < N; i++) {
        stream_response *r = next_message(s, &at);
        assert_non_null(r);
        assert_string_equal(r->error_message, "");
        free_message(r);
    }
    buf_done(&body);
}

static int connect_with_large_windows(void **state)
{
    (void)state;
    grpc_connect(server, 8 << 20, 0);
    return 0;
}

/* ---- Health/Watch --------------------------------------------------------------------------- */

static struct h2c_stream *watch(const char *service)
{
    AUTO(buf) body = BUF_INIT(256);
    char request[64];
    size_t n = strlen(service);
    request[0] = 0x0a;
    request[1] = (char)n;
    memcpy(request + 2, service, n);
    add_prefixed(&body, false, request, n ? n + 2 : 0);
    struct h2c_stream *s = post("/grpc.health.v1.Health/Watch", &body, nothing, 0);
    h2c_pump(&client);
    return s;
}

static struct clock_fake loop_time;

static int connect_with_fake_clock(void **state)
{
    clock_fake_init(&loop_time, 1000 * NS_PER_S);
    loop_clock = &loop_time.clock;
    return connect_client(state);
}

static int disconnect_with_fake_clock(void **state)
{
    loop_clock = NULL;
    return disconnect_client(state);
}

/* Runs the loop for so long by its clock, if that is fake. */
static void pass_time(uint64_t ns)
{
    for (uint64_t ms = 0; ms < ns / NS_PER_MS; ms++) {
        clock_fake_advance(&loop_time, NS_PER_MS);
        loop_iterate(&loop, NS_PER_MS);
    }
}

/*
 * Waits for the n-th message of a watch, which has that state. The time that passes is a tenth of
 * that after which names are looked at without a change.
 */
static void await_state(const struct h2c_stream *s, size_t n, char state)
{
    enum { BYTES = 7 };
    for (int i = 0; i < 1000 && s->n_data < n * BYTES; i++) {
        pass_time(NS_PER_MS);
        h2c_pump(&client);
    }
    const char message[BYTES] = {0, 0, 0, 0, 2, 8, state};
    assert_int_equal(s->n_data, n * BYTES);
    assert_memory_equal(s->data + (n - 1) * BYTES, message, BYTES);
    assert_false(s->ended);
}

static void a_watch_tells_each_change(void **state)
{
    (void)state;
    struct h2c_stream *of_server = watch(""), *of_service = watch("inference.GRPCInferenceService");
    struct h2c_stream *of_a = watch("a"), *of_b = watch("b"), *of_none = watch("none");
    await_state(of_server, 1, 1);
    await_state(of_service, 1, 1);
    await_state(of_a, 1, 1);
    await_state(of_b, 1, 3);
    await_state(of_none, 1, 3);
    assert_null(server_load_model(server, "b", NULL, 0));
    await_state(of_b, 2, 1);
    assert_null(server_unload_model(server, "b", false));
    await_state(of_b, 3, 3);
    /* The others have got nothing since. */
    await_state(of_server, 1, 1);
    await_state(of_a, 1, 1);
    await_state(of_none, 1, 3);
    /* So does the server: a model that cannot be loaded keeps it from being ready. */
    struct status *st = server_load_model(server, "broken", NULL, 0);
    assert_non_null(st);
    status_free(st);
    await_state(of_server, 2, 2);
    repository_add_file(&repository, "broken/config.pbtxt", CONFIG, strlen(CONFIG));
    assert_null(server_load_model(server, "broken", NULL, 0));
    await_state(of_server, 3, 1);
    assert_null(server_unload_model(server, "broken", false));

    /* The last watch that leaves clears the timer, and a new one sets it. */
    struct h2c_stream *all[] = {of_server, of_service, of_a, of_b, of_none};
    for (size_t i = 0; i < ARRAY_SIZE(all); i++)
        nghttp2_submit_rst_stream(client.ng, 0, all[i]->id, NGHTTP2_CANCEL);
    h2c_pump(&client);
    assert_true(list_empty(&ctx.watched));
    assert_false(ctx.watch_timer.is_set);
    assert_null(ctx.changes);
    await_state(watch("a"), 1, 1);
    assert_true(ctx.watch_timer.is_set);
    assert_non_null(ctx.changes);
}

/* Without a change nothing is looked at, but for the renewal of what backends are asked. */
static void only_a_change_wakes_watches(void **state)
{
    (void)state;
    await_state(watch("a"), 1, 1);
    uint64_t begun_ns = ctx.round_ns;
    pass_time(200 * NS_PER_MS);
    assert_int_equal(ctx.round_ns, begun_ns);
    assert_int_equal(timers_next_ns(&loop.timers), begun_ns + 10 * NS_PER_S);
    changes_announce(server_changes(server));
    loop_iterate(&loop, NS_PER_MS);
    assert_int_equal(ctx.round_ns, loop.now_ns);
    begun_ns = ctx.round_ns;
    /* Changes that follow soon are looked at together. */
    for (int i = 0; i < 19; i++) {
        changes_announce(server_changes(server));
        pass_time(NS_PER_MS);
        assert_int_equal(ctx.round_ns, begun_ns);
    }
    pass_time(NS_PER_MS);
    assert_int_equal(ctx.round_ns, begun_ns + 20 * NS_PER_MS);
    assert_false(ctx.has_changed);
}

/* What changes while a message is under way is told behind it, and only the newest state. */
static void a_slow_watch_gets_the_newest_state(void **state)
{
    (void)state;
    struct h2c_stream *s = watch("b");
    await_state(s, 1, 3);
    assert_null(server_load_model(server, "b", NULL, 0));
    pass_time(50 * NS_PER_MS); /* the message is not taken yet */
    assert_null(server_unload_model(server, "b", false));
    pass_time(50 * NS_PER_MS);
    assert_int_equal(s->n_data, 7);
    await_state(s, 2, 1);
    await_state(s, 3, 3);
}

/* Calls share the state of a name, and an iteration looks at some names only. */
static void names_are_looked_at_once_and_in_portions(void **state)
{
    enum { SAME = 20, OTHERS = 150, PORTION = 64, NAMES = 1 + OTHERS };
    (void)state;
    struct h2c_stream *of_b[SAME];
    for (int i = 0; i < SAME; i++)
        of_b[i] = watch("b");
    assert_int_equal(ctx.n_watched, 1);
    for (int i = 0; i < OTHERS; i++) {
        char name[16];
        snprintf(name, sizeof(name), "none%d", i);
        await_state(watch(name), 1, 3);
    }
    assert_int_equal(ctx.n_watched, NAMES);
    assert_int_equal(ctx.n_unseen, 0);
    changes_announce(server_changes(server));
    clock_fake_advance(&loop_time, 20 * NS_PER_MS);
    loop_iterate(&loop, NS_PER_MS);
    assert_int_equal(ctx.n_unseen, NAMES - PORTION);
    assert_int_equal(timers_next_ns(&loop.timers), loop.now_ns + NS_PER_MS);
    assert_null(server_load_model(server, "b", NULL, 0));
    for (int i = 0; i < SAME; i++)
        await_state(of_b[i], 2, 1);
    assert_null(server_unload_model(server, "b", false));
    for (int i = 0; i < SAME; i++)
        await_state(of_b[i], 3, 3);
    for (int i = 0; i + 1 < SAME; i++)
        h2c_reset(&client, of_b[i], NGHTTP2_CANCEL);
    h2c_pump(&client);
    assert_int_equal(ctx.n_watched, NAMES);
    h2c_reset(&client, of_b[SAME - 1], NGHTTP2_CANCEL);
    h2c_pump(&client);
    assert_int_equal(ctx.n_watched, OTHERS);
}

/* Begins a call of reflection that lacks its last byte, so that the client keeps it open. */
static struct h2c_stream *open_reflection(void)
{
    AUTO(buf) body = BUF_INIT(256);
    add_prefixed(&body, false, "\x3a\0", 2);
    nghttp2_nv fields[] = {h2c_nv("content-type", "application/grpc"), h2c_nv("te", "trailers")};
    struct h2c_stream *s =
        h2c_request(&client, REFLECTION, buf_text(&body), body.size, body.size - 1, fields, 2);
    h2c_pump(&client);
    return s;
}

static void a_stop_ends_watches_and_reflection(void **state)
{
    (void)state;
    struct h2c_stream *of_server = watch(""), *of_none = watch("none");
    await_state(of_server, 1, 1);
    struct h2c_stream *reflection = open_reflection();
    driver.env->net.draining = true;
    http2_protocol.drain(driver.session);
    struct h2c_stream *late = open_reflection(); /* before the client knows of the stop */
    await_end(late);
    expect_status(late, "14");
    await_end(of_server);
    await_end(of_none);
    await_end(reflection);
    assert_memory_equal(of_server->data + 7, "\0\0\0\0\2\x08\2", 7); /* NOT_SERVING */
    assert_int_equal(of_server->n_data, 14);
    expect_status(of_server, "14");
    expect_status(of_none, "14");
    expect_status(reflection, "14");
    driver.env->net.draining = false;
}

/* ---- Limits of a kind ----------------------------------------------------------------------- */

/* Begins a call of which the client has sent no more than the prefix of a message of n bytes. */
static struct h2c_stream *announce(const char *path, size_t n)
{
    AUTO(buf) body = BUF_INIT(1 << 20);
    static char zeros[128 << 10];
    nghttp2_nv fields[] = {h2c_nv("content-type", "application/grpc"), h2c_nv("te", "trailers")};
    add_prefixed(&body, false, zeros, n);
    struct h2c_stream *s = h2c_request(&client, path, buf_text(&body), body.size, 5, fields, 2);
    h2c_pump(&client);
    return s;
}

static void a_kind_refuses_long_messages_at_their_prefix(void **state)
{
    static const struct {
        const char *path;
        size_t most;
    } rows[] = {
        {"/grpc.health.v1.Health/Watch", 4096},
        {REFLECTION, 64 << 10},
        {"/grpc.health.v1.Health/Check", 64 << 10},
        {"/inference.GRPCInferenceService/ServerLive", 64 << 10},
        {"/inference.GRPCInferenceService/LogSettings", 64 << 10},
        {"/inference.GRPCInferenceService/RepositoryModelUnload", 64 << 10},
    };
    (void)state;
    /* Files of a model are as long as they are. */
    assert_false(announce("/inference.GRPCInferenceService/RepositoryModelLoad", 100 << 10)->ended);
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        const struct h2c_stream *fits = announce(rows[i].path, rows[i].most);
        const struct h2c_stream *s = announce(rows[i].path, rows[i].most + 1);
        char wanted[100];
        snprintf(wanted, sizeof(wanted), "Received message larger than max (%zu vs. %zu)",
                 rows[i].most + 1, rows[i].most);
        assert_true(s->ended);
        expect_failure(s, "8", wanted);
        assert_false(fits->ended);
    }
}

/* A message that is short while it is packed. */
static void a_kind_refuses_messages_that_unpack_long(void **state)
{
    static uint8_t zeros[(64 << 10) + 1];
    AUTO(buf) body = BUF_INIT(1 << 20);
    struct iovec message = {zeros, sizeof(zeros)};
    const nghttp2_nv gzip[] = {h2c_nv("grpc-encoding", "gzip")};
    char *packed, wanted[100];
    size_t n_packed;
    (void)state;
    assert_null(compress_pack(ctx.compress, COMPRESS_GZIP, &message, 1, driver.pool, NULL, &packed,
                              &n_packed));
    add_prefixed(&body, true, packed, n_packed);
    pool_release(packed);
    struct h2c_stream *s = post(REFLECTION, &body, gzip, 1);
    await_end(s);
    snprintf(wanted, sizeof(wanted), "%zu bytes unpack to more than 65536 bytes", n_packed);
    expect_failure(s, "8", wanted);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, connect_client, disconnect_client)
#define TEST_BY_FAKE_CLOCK(f)                                                                      \
    cmocka_unit_test_setup_teardown(f, connect_with_fake_clock, disconnect_with_fake_clock)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_unary_call_has_one_message_and_a_status),
        TEST(an_inference_comes_back_whatever_its_size),
        TEST(calls_take_from_the_requests_of_the_iteration),
        TEST(reflection_takes_from_the_requests_of_the_iteration),
        TEST(a_connection_with_unsent_answers_begins_no_inference),
        TEST(many_calls_share_a_connection),
        TEST(errors_have_a_status_and_a_message),
        TEST(requests_that_are_no_calls_get_an_http_status),
        TEST(messages_are_unpacked_and_answers_packed),
        TEST(large_messages_are_packed_by_helpers),
        TEST(large_messages_do_not_wait_for_a_helper_that_never_comes),
        TEST(a_long_message_comes_while_the_one_before_is_unpacked),
        TEST(calls_end_while_a_helper_has_their_messages),
        TEST(an_error_follows_the_answers_that_are_packed),
        TEST(a_deadline_ends_the_call),
        TEST(clients_that_leave_leak_nothing),
        TEST(repository_calls_run_on_a_control_thread),
        TEST(a_stream_answers_in_the_order_of_its_requests),
        TEST(a_decoupled_model_sends_any_number_of_responses),
        TEST(an_error_is_a_message_and_the_stream_goes_on),
        TEST(a_backend_waits_for_a_slow_client),
        TEST(a_cancelled_stream_cancels_its_requests),
        TEST(a_malformed_message_ends_the_requests),
        TEST(messages_around_the_window_come_whole),
        cmocka_unit_test_setup_teardown(long_messages_come_through_short_windows,
                                        connect_with_short_windows, disconnect_client),
        TEST(bytes_that_come_after_the_deadline_are_dropped),
        TEST(an_error_of_the_stream_cancels_its_requests),
        TEST(an_early_error_waits_for_earlier_answers),
        TEST_BY_FAKE_CLOCK(a_watch_tells_each_change),
        TEST_BY_FAKE_CLOCK(only_a_change_wakes_watches),
        TEST_BY_FAKE_CLOCK(a_slow_watch_gets_the_newest_state),
        TEST_BY_FAKE_CLOCK(names_are_looked_at_once_and_in_portions),
        TEST(a_kind_refuses_long_messages_at_their_prefix),
        TEST(a_kind_refuses_messages_that_unpack_long),
        TEST(a_stop_ends_watches_and_reflection),
        TEST(idle_streams_are_small),
        cmocka_unit_test_setup_teardown(as_much_waits_as_the_window_allows,
                                        connect_with_large_windows, disconnect_client),
    };
    return cmocka_run_group_tests(tests, start_server, stop_server);
}
