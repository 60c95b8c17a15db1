/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gRPC calls by a client in memory (http2_client.h) against a server: the loop is the test's own
 * thread, which runs it by loop_iterate(). One connection at a time.
 */
#ifndef CONCH_TESTS_LIB_GRPC_DRIVER_H
#define CONCH_TESTS_LIB_GRPC_DRIVER_H

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/compress.h"
#include "base/loop.h"
#include "frontends/grpc/call.h"
#include "frontends/ops/packing.h"
#include "lib/http2_client.h"
#include "proto/inference.pb-c.h"

#define INFER  "/inference.GRPCInferenceService/ModelInfer"
#define STREAM "/inference.GRPCInferenceService/ModelStreamInfer"

enum { MAX_MESSAGE = 8 << 20 };

static struct loop loop;
static struct grpc_settings settings;
static struct grpc_ctx ctx;
static struct h2_driver driver;
static struct h2_client client;
static struct clock *loop_clock; /* of the loop; NULL: the machine's */

static inline void ignore_output(struct session *s)
{
    (void)s;
}

/* grpc_connect - makes a connection with those windows; 0: the default. */
static inline void grpc_connect(struct server *server, size_t stream_window, size_t window)
{
    assert_null(loop_init(&loop, loop_clock ? loop_clock : clock_real()));
    loop.owner = pthread_self();
    h2_init(&driver);
    settings = (struct grpc_settings){
        .server = server,
        .max_message_bytes = MAX_MESSAGE,
        .flow = {.max_responses = 0, .max_bytes = 1 << 20, .stall_ns = 60 * NS_PER_S},
        .compression = GRPC_COMPRESSION_NONE,
        .methods = {.has_reflection = true},
    };
    ctx = (struct grpc_ctx){.settings = &settings,
                            .loop = &loop,
                            .compress = compress_new(),
                            .packing = packing_new(server, &loop)};
    trace_sampler_init(&ctx.sampler, NULL, NULL);
    list_init(&ctx.watched);
    timer_init(&ctx.watch_timer, NULL);
    struct net_env members = {.protocol = &http2_protocol,
                              .handler_ctx = &ctx,
                              .pool = driver.pool,
                              .scratch = driver.scratch,
                              .scratch_bytes = sizeof(driver.scratch),
                              .requests_left = &driver.requests_left};
    driver.requests_left = UINT32_MAX;
    if (stream_window)
        driver.settings.limits.stream_window_bytes = stream_window;
    if (window)
        driver.settings.limits.connection_window_bytes = window;
    driver.settings.handler = &grpc_handler;
    driver.settings.now_ns = &driver.now_ns;
    struct net_env *env = http2_protocol.env_new(&members, &driver.settings);
    assert_non_null(env);
    driver.env = ctx.env = CONTAINER_OF(env, struct http2_env, net);
    driver.session = calloc(1, http2_protocol.session_bytes);
    assert_non_null(driver.session);
    driver.session->protocol = &http2_protocol;
    driver.session->on_output = ignore_output;
    http2_protocol.begin(driver.session, env);
    h2c_init(&client, &driver, 0);
}

/* grpc_disconnect - checks that calls, blocks and requests of the core are released. */
static inline void grpc_disconnect(void)
{
    h2_end_session(&driver);
    while (driver.env->net.n_used > 0)
        loop_iterate(&loop, 100 * NS_PER_MS);
    h2c_done(&client);
    assert_true(h2_done(&driver));
    trace_sampler_done(&ctx.sampler);
    compress_free(ctx.compress);
    packing_free(ctx.packing);
    loop_done(&loop);
}

/* await_end - carries bytes both ways, and messages of other threads, until the stream has ended.
 */
static inline void await_end(const struct h2c_stream *s)
{
    h2c_pump(&client);
    while (!s->closed) {
        loop_iterate(&loop, 100 * NS_PER_MS);
        h2c_pump(&client);
    }
    assert_int_equal(client.error, 0);
}

static inline void add_prefixed(struct buf *b, bool compressed, const void *bytes, size_t n)
{
    const unsigned char prefix[5] = {compressed, (unsigned char)(n >> 24), (unsigned char)(n >> 16),
                                     (unsigned char)(n >> 8), (unsigned char)n};
    buf_add(b, prefix, sizeof(prefix));
    buf_add(b, bytes, n);
}

/* A ModelInferRequest with one input of one dimension. It refers to itself: do not copy it. */
struct infer_message {
    Inference__ModelInferRequest request;
    Inference__ModelInferRequest__InferInputTensor input, *inputs[1];
    ProtobufCBinaryData raw;
    int64_t shape[1];
    char model[32], name[32], datatype[16];
};

/* infer_message_init - describes n_bytes of n elements, which stay the caller's. */
static inline void infer_message_init(struct infer_message *m, const char *model, const char *name,
                                      const char *datatype, int64_t n, void *bytes, size_t n_bytes)
{
    inference__model_infer_request__init(&m->request);
    inference__model_infer_request__infer_input_tensor__init(&m->input);
    snprintf(m->model, sizeof(m->model), "%s", model);
    snprintf(m->name, sizeof(m->name), "%s", name);
    snprintf(m->datatype, sizeof(m->datatype), "%s", datatype);
    m->shape[0] = n;
    m->raw = (ProtobufCBinaryData){n_bytes, bytes};
    m->inputs[0] = &m->input;
    m->input.name = m->name;
    m->input.datatype = m->datatype;
    m->input.n_shape = 1;
    m->input.shape = m->shape;
    m->request.model_name = m->model;
    m->request.n_inputs = 1;
    m->request.inputs = m->inputs;
    m->request.n_raw_input_contents = 1;
    m->request.raw_input_contents = &m->raw;
}

/* add_infer_message - packs it behind gRPC's prefix. */
static inline void add_infer_message(struct buf *b, const struct infer_message *m)
{
    size_t n = inference__model_infer_request__get_packed_size(&m->request);
    uint8_t *packed = malloc(n);
    assert_non_null(packed);
    inference__model_infer_request__pack(&m->request, packed);
    add_prefixed(b, false, packed, n);
    free(packed);
}

static inline struct h2c_stream *post(const char *path, const struct buf *body,
                                      const nghttp2_nv *more, size_t n_more)
{
    nghttp2_nv fields[8] = {h2c_nv("content-type", "application/grpc"), h2c_nv("te", "trailers")};
    memcpy(fields + 2, more, n_more * sizeof(*more));
    return h2c_request(&client, path, buf_text(body), body->size, SIZE_MAX, fields, 2 + n_more);
}

static const nghttp2_nv nothing[1];

static inline void expect_status(const struct h2c_stream *s, const char *status)
{
    char wanted[32];
    snprintf(wanted, sizeof(wanted), "grpc-status=%s;", status);
    assert_string_equal(s->status, "200");
    if (!strstr(s->trailers, wanted) && !strstr(s->head, wanted))
        fail_msg("no %s in '%s' or '%s'", wanted, s->head, s->trailers);
}

static inline void expect_failure(const struct h2c_stream *s, const char *status,
                                  const char *message)
{
    char wanted[512];
    expect_status(s, status);
    snprintf(wanted, sizeof(wanted), "grpc-message=%s;", message);
    if (!strstr(s->head, wanted))
        fail_msg("no '%s' in '%s'", wanted, s->head);
    assert_int_equal(s->n_data, 0);
}

#endif
