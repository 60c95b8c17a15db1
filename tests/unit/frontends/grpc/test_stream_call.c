/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The limits of unsent responses where the loop itself executes a decoupled model
 * (CONCH_EXECUTION=inline): it cannot wait for the client, so the call ends. tests/plugins/torrent
 * sends as much as a request asks for.
 */
#include "frontends/grpc/call.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "core/options/server_options.h"
#include "frontends/ops/loop_share.h"
#include "lib/grpc_driver.h"
#include "lib/server_driver.h"
#include "proto/inference.pb-c.h"

#define TORRENT                                                                                    \
    "backend: 'torrent' model_transaction_policy { decoupled: true } "                             \
    "input { name: 'IN' data_type: TYPE_INT32 dims: 2 } "                                          \
    "output { name: 'OUT' data_type: TYPE_UINT8 dims: -1 } "
#define INLINE "parameters { key: 'CONCH_EXECUTION' value { string_value: 'inline' } } "

static int start_server(void **state)
{
    (void)state;
    struct server_options *o = prepare_server("/tests/backends");
    repository_add(&repository, "inline", TORRENT INLINE, 1);
    repository_add(&repository, "thread", TORRENT, 1);
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

static int disconnect_client(void **state)
{
    (void)state;
    grpc_disconnect();
    loop_share_free(ctx.share);
    return 0;
}

static void add_torrent(struct buf *b, const char *model, int32_t count, int32_t n_bytes)
{
    char name[32], input[] = "IN", type[] = "INT32";
    int64_t shape[] = {2};
    int32_t wanted[] = {count, n_bytes};
    ProtobufCBinaryData raw = {sizeof(wanted), (uint8_t *)wanted};
    Inference__ModelInferRequest m;
    Inference__ModelInferRequest__InferInputTensor in, *list[] = {&in};
    uint8_t packed[500];
    inference__model_infer_request__init(&m);
    inference__model_infer_request__infer_input_tensor__init(&in);
    snprintf(name, sizeof(name), "%s", model);
    in.name = input;
    in.datatype = type;
    in.n_shape = 1;
    in.shape = shape;
    m.model_name = name;
    m.n_inputs = 1;
    m.inputs = list;
    m.n_raw_input_contents = 1;
    m.raw_input_contents = &raw;
    add_prefixed(b, false, packed, inference__model_infer_request__pack(&m, packed));
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

#define TEST(f) cmocka_unit_test_setup_teardown(f, connect_client, disconnect_client)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_loop_does_not_wait_for_its_own_client),
        TEST(a_thread_waits_for_its_client),
    };
    return cmocka_run_group_tests(tests, start_server, stop_server);
}
