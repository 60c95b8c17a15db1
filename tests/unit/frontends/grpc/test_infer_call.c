/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Deadlines of calls to a busy instance: tests/plugins/gate executes when the test lets it, and
 * server and loop have a clock that the test moves. A late call ends at its time to the
 * nanosecond, and never reaches the backend.
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

#include "base/mem.h"
#include "base/status.h"
#include "core/model/model.h"
#include "core/model/model_statistics.h"
#include "core/options/server_options.h"
#include "core/server/server.h"
#include "lib/fake_clock.h"
#include "lib/grpc_driver.h"
#include "lib/server_driver.h"
#include "proto/inference.pb-c.h"

#define GATE                                                                                       \
    "backend: 'gate' instance_group { count: 1 kind: KIND_CPU } "                                  \
    "input { name: 'IN' data_type: TYPE_INT32 dims: -1 } "                                         \
    "output { name: 'OUT' data_type: TYPE_INT32 dims: -1 } "

enum { QUEUED = 20 };

static struct clock_fake fake;

/* The kinds of schedulers. */
static const struct {
    const char *name, *config;
    bool has_sequences;
} models[] = {
    {"default", GATE, false},
    {"dynamic", GATE "dynamic_batching { max_queue_delay_microseconds: 0 }", false},
    {"direct", GATE "sequence_batching { direct {} }", true},
    {"oldest", GATE "sequence_batching { oldest { max_candidate_sequences: 64 } }", true},
};

/* ---- Server, client, gates ------------------------------------------------------------------ */

static int start_server(void **state)
{
    (void)state;
    struct server_options *o = prepare_server("/tests/backends");
    clock_fake_init(&fake, 1000 * NS_PER_S);
    for (size_t i = 0; i < ARRAY_SIZE(models); i++) {
        repository_add(&repository, models[i].name, models[i].config, 1);
        server_options_add_startup_model(o, models[i].name);
    }
    o->clock = &fake.clock;
    start_prepared_server(o);
    loop_clock = &fake.clock;
    return 0;
}

static int connect_client(void **state)
{
    (void)state;
    grpc_connect(server, 0, 0);
    driver.now_ns = clock_now_ns(&fake.clock);
    return 0;
}

static int disconnect_client(void **state)
{
    (void)state;
    grpc_disconnect();
    return 0;
}

static const char *gate_path(const char *model, const char *suffix)
{
    static char path[256];
    snprintf(path, sizeof(path), "%s/%s/hold.execute%s", repository.path, model, suffix);
    return path;
}

static void close_gate(const char *model)
{
    FILE *f = fopen(gate_path(model, ""), "we");
    assert_non_null(f);
    fclose(f);
}

static void open_gate(const char *model)
{
    unlink(gate_path(model, ".reached"));
    unlink(gate_path(model, ""));
}

static void await_backend(const char *model)
{
    while (access(gate_path(model, ".reached"), F_OK) != 0)
        loop_iterate(&loop, NS_PER_MS);
}

static uint64_t count_executions(const char *name)
{
    struct model *m;
    struct statistics s;
    assert_null(server_find_model(server, name, strlen(name), CONCH_VERSION_LATEST, &m));
    model_totals(m, &s);
    model_unref(m);
    return s.execution_count;
}

/* ---- Calls ---------------------------------------------------------------------------------- */

/* Adds a request; with a sequence: one that consists of it alone. */
static void add_gate(struct buf *b, const char *model, uint64_t sequence)
{
    char keys[3][20] = {"sequence_id", "sequence_start", "sequence_end"};
    uint8_t bytes[4] = "abc";
    Inference__InferParameter values[3];
    Inference__ModelInferRequest__ParametersEntry entries[3], *pointers[3];
    struct infer_message m;
    infer_message_init(&m, model, "IN", "INT32", 1, bytes, sizeof(bytes));
    for (int i = 0; i < 3; i++) {
        inference__infer_parameter__init(&values[i]);
        inference__model_infer_request__parameters_entry__init(&entries[i]);
        values[i].parameter_choice_case =
            i == 0 ? INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_INT64_PARAM
                   : INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_BOOL_PARAM;
        values[i].bool_param = true;
        entries[i].key = keys[i];
        entries[i].value = &values[i];
        pointers[i] = &entries[i];
    }
    values[0].int64_param = (int64_t)sequence;
    m.request.n_parameters = sequence ? 3 : 0;
    m.request.parameters = pointers;
    add_infer_message(b, &m);
}

/* Calls that wait for the instance, which has one without a deadline. */
struct queued {
    struct buf bodies[QUEUED + 1];
    struct h2c_stream *first, *late[QUEUED];
    uint64_t n_executions; /* before */
};

static void queue_calls(struct queued *q, size_t model, const char *timeout)
{
    const nghttp2_nv fields[] = {h2c_nv("grpc-timeout", timeout)};
    const char *name = models[model].name;
    for (int i = 0; i <= QUEUED; i++) {
        buf_init(&q->bodies[i], 2000);
        add_gate(&q->bodies[i], name, models[model].has_sequences ? (uint64_t)i + 1 : 0);
    }
    q->n_executions = count_executions(name);
    close_gate(name);
    q->first = post(INFER, &q->bodies[0], nothing, 0);
    h2c_pump(&client);
    await_backend(name);
    for (int i = 0; i < QUEUED; i++)
        q->late[i] = post(INFER, &q->bodies[i + 1], fields, 1);
    h2c_pump(&client);
}

static unsigned int count_ended(const struct queued *q)
{
    unsigned int n = 0;
    h2c_pump(&client);
    for (int i = 0; i < QUEUED; i++)
        n += q->late[i]->closed;
    return n;
}

static void end_calls(struct queued *q, size_t model)
{
    open_gate(models[model].name);
    await_end(q->first);
    expect_status(q->first, "0");
    for (int i = 0; i < QUEUED; i++) {
        await_end(q->late[i]);
        expect_status(q->late[i], "4");
    }
    while (driver.env->net.n_used > 0) /* the core has let go of all */
        loop_iterate(&loop, 10 * NS_PER_MS);
    assert_int_equal(count_executions(models[model].name) - q->n_executions, 1);
    for (int i = 0; i <= QUEUED; i++)
        buf_done(&q->bodies[i]);
}

static void advance(uint64_t by_ns)
{
    clock_fake_advance(&fake, by_ns);
    driver.now_ns += by_ns;
}

/* ---- The tests ------------------------------------------------------------------------------ */

static void queued_calls_end_at_their_deadline(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(models); i++) {
        struct queued q;
        queue_calls(&q, i, "100m");
        advance(100 * NS_PER_MS - 1);
        loop_iterate(&loop, 0);
        assert_int_equal(count_ended(&q), 0);
        advance(1);
        loop_iterate(&loop, 0);
        assert_int_equal(count_ended(&q), QUEUED);
        end_calls(&q, i);
    }
}

/* The loop is late itself: batches are made without the requests, and answer them. */
static void late_work_is_not_executed(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(models); i++) {
        struct queued q;
        queue_calls(&q, i, "100m");
        advance(100 * NS_PER_MS);
        end_calls(&q, i);
    }
}

static void a_reset_and_a_lost_connection_cancel(void **state)
{
    (void)state;
    struct queued q;
    queue_calls(&q, 0, "100S");
    for (int i = 0; i < QUEUED; i++)
        h2c_reset(&client, q.late[i], NGHTTP2_CANCEL);
    h2c_pump(&client);
    open_gate(models[0].name);
    await_end(q.first);
    while (driver.env->net.n_used > 0)
        loop_iterate(&loop, 10 * NS_PER_MS);
    assert_int_equal(count_executions(models[0].name) - q.n_executions, 1);
    for (int i = 0; i <= QUEUED; i++)
        buf_done(&q.bodies[i]);

    queue_calls(&q, 0, "100S");
    h2_end_session(&driver);
    open_gate(models[0].name);
    while (driver.env->net.n_used > 0)
        loop_iterate(&loop, 10 * NS_PER_MS);
    assert_int_equal(count_executions(models[0].name) - q.n_executions, 1);
    for (int i = 0; i <= QUEUED; i++)
        buf_done(&q.bodies[i]);
    driver.session = calloc(1, http2_protocol.session_bytes);
    driver.session->protocol = &http2_protocol;
    driver.session->on_output = ignore_output;
    http2_protocol.begin(driver.session, &driver.env->net);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, connect_client, disconnect_client)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(queued_calls_end_at_their_deadline),
        TEST(late_work_is_not_executed),
        TEST(a_reset_and_a_lost_connection_cancel),
    };
    return cmocka_run_group_tests(tests, start_server, stop_server);
}
