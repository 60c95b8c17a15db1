/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whole requests, from the socket through frontend, core and backend and back, with each allocation
 * failing. The reply is exactly the one with enough memory, or 503 with "out of memory", or the
 * connection closes without a reply. A reply that cannot be packed may come as it is. Never a wrong
 * answer, never a request that hangs.
 *
 * The frontend is started for each run, so that its pools are empty and must allocate.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/compiler.h"
#include "base/compress.h"
#include "base/pool.h"
#include "base/status.h"
#include "conch/conch.h"
#include "lib/fault.h"
#include "lib/ok.h"
#include "lib/repository.h"

enum { MOST_BYTES = 4 << 20, WAIT_S = 60 };

static struct test_repository repository;
static TRITONSERVER_Server *server;
static struct conch_trace *trace;
static char trace_file[200];

static void add_identity(const char *name, const char *type, const char *more)
{
    char config[600];
    snprintf(config, sizeof(config),
             "backend: 'identity'\ninput { name: 'INPUT0' data_type: %s dims: [ -1 ] }\n"
             "output { name: 'OUTPUT0' data_type: %s dims: [ -1 ] }\n%s",
             type, type, more);
    repository_add(&repository, name, config, 1);
}

static int start(void **state)
{
    (void)state;
    TRITONSERVER_ServerOptions *options;
    repository_make(&repository);
    add_identity("floats", "TYPE_FP32", "");
    add_identity("texts", "TYPE_STRING", "");
    add_identity("aside", "TYPE_FP32",
                 "parameters { key: 'CONCH_EXECUTION' value { string_value: 'thread' } }");
    repository_add(&repository, "several",
                   "backend: 'repeat'\nmodel_transaction_policy { decoupled: true }\n"
                   "input [ { name: 'IN' data_type: TYPE_INT32 dims: [ -1 ] },\n"
                   "  { name: 'DELAY' data_type: TYPE_UINT32 dims: [ -1 ] },\n"
                   "  { name: 'WAIT' data_type: TYPE_UINT32 dims: [ 1 ] } ]\n"
                   "output [ { name: 'OUT' data_type: TYPE_INT32 dims: [ 1 ] },\n"
                   "  { name: 'IDX' data_type: TYPE_UINT32 dims: [ 1 ] } ]\n",
                   1);
    OK(TRITONSERVER_ServerOptionsNew(&options));
    OK(TRITONSERVER_ServerOptionsSetModelRepositoryPath(options, repository.path));
    OK(TRITONSERVER_ServerOptionsSetBackendDirectory(options, CONCH_BUILD_DIR "/backends"));
    OK(TRITONSERVER_ServerOptionsSetLogInfo(options, false));
    OK(TRITONSERVER_ServerNew(&server, options));
    OK(TRITONSERVER_ServerOptionsDelete(options));
    struct conch_trace_options traces;
    conch_trace_options_init(&traces);
    snprintf(trace_file, sizeof(trace_file), "%s/traces", repository.path);
    traces.file = trace_file;
    OK(conch_trace_start(server, &traces, &trace));
    return 0;
}

static int stop(void **state)
{
    (void)state;
    OK(TRITONSERVER_ServerStop(server));
    conch_trace_stop(trace);
    OK(TRITONSERVER_ServerDelete(server));
    repository_remove(&repository);
    return 0;
}

/* One request, and its reply when nothing fails. */
struct asked {
    char *request;
    size_t request_size;
    char *expected; /* NULL until the first run */
    size_t expected_size;
    const char *unpacked; /* the reply that is not packed, which is right, too; NULL: none is */
    size_t unpacked_size;
    size_t head_size; /* of the expected reply */
    bool is_stream;   /* of events, until the close: it may end early, at an event's end */
};

static char received[MOST_BYTES + 1];

static int connect_to(int port)
{
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct timeval patience = {.tv_sec = WAIT_S};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
    return fd;
}

/* Sends as much as the server reads, then reads until the server closes; each request demands
 * that it closes. */
static size_t exchange_bytes(int fd, const struct asked *a)
{
    size_t sent = 0, size = 0;
    while (sent < a->request_size) {
        ssize_t n = send(fd, a->request + sent, a->request_size - sent, MSG_NOSIGNAL);
        if (n <= 0)
            break; /* the server refuses before the end: the reply has the reason */
        sent += (size_t)n;
    }
    for (;;) {
        assert_true(size < MOST_BYTES);
        ssize_t n = recv(fd, received + size, MOST_BYTES - size, 0);
        if (n < 0 && errno == EAGAIN)
            fail_msg("no reply within %d s", WAIT_S);
        if (n <= 0)
            break;
        size += (size_t)n;
    }
    received[size] = '\0';
    return size;
}

/* Whether these are the first events of the stream, and behind them nothing or why it ends. */
static bool is_begun(const struct asked *a, size_t size)
{
    static const char failed[] = "data: {\"error\":";
    size_t same = 0;
    while (same < size && same < a->expected_size && received[same] == a->expected[same])
        same++;
    while (same > 0 && (received[same - 1] != '\n' || same < 2 || received[same - 2] != '\n'))
        same--;    /* two events begin alike */
    if (same == 0) /* the head ends in \r\n\r\n */
        same = a->head_size <= size && memcmp(received, a->expected, a->head_size) == 0
                   ? a->head_size
                   : 0;
    const char *rest = received + same;
    return same > 0 && (!rest[0] || (strncmp(rest, failed, sizeof(failed) - 1) == 0 &&
                                     strstr(rest, "out of memory")));
}

static struct status *ask(void *arg)
{
    struct asked *a = arg;
    struct conch_http_options o;
    struct conch_http *http = NULL;
    conch_http_options_init(&o);
    o.address = "127.0.0.1";
    o.port = 0;
    o.n_threads = 1;
    OK(conch_http_start(server, &o, &http));
    int fd = connect_to(conch_http_port(http));
    size_t size = exchange_bytes(fd, a);
    close(fd);
    assert_int_equal(conch_http_stop(http, WAIT_S * 1000), 0);

    if (!a->expected) {
        a->expected = memcpy(malloc(size + 1), received, size + 1);
        a->expected_size = size;
        const char *body = memmem(received, size, "\r\n\r\n", 4);
        a->head_size = body ? (size_t)(body + 4 - received) : size;
    }
    if (size == a->expected_size && memcmp(received, a->expected, size) == 0)
        return NULL;
    if (a->unpacked && size == a->unpacked_size && memcmp(received, a->unpacked, size) == 0)
        return NULL;
    if (a->is_stream && is_begun(a, size))
        return status_no_memory();
    if (size > 0 &&
        (strncmp(received, "HTTP/1.1 503 ", 13) != 0 || !strstr(received, "out of memory")))
        fail_msg("a wrong answer: %.300s\ninstead of: %.300s", received, a->expected);
    return status_no_memory();
}

static void ask_each(struct asked *a, const char *expected_start, const char *expected_part)
{
    struct status *st = ask(a); /* the first run, without faults */
    assert_null(st);
    if (strncmp(a->expected, expected_start, strlen(expected_start)) != 0 ||
        !memmem(a->expected, a->expected_size, expected_part, strlen(expected_part)))
        fail_msg("%.500s", a->expected);
    fault_each_allocation(ask, a);
    free(a->expected);
    free(a->request);
}

static void add(struct asked *a, const void *bytes, size_t size)
{
    a->request = realloc(a->request, a->request_size + size);
    memcpy(a->request + a->request_size, bytes, size);
    a->request_size += size;
}

static void adds(struct asked *a, const char *text)
{
    add(a, text, strlen(text));
}

static void add_head_with(struct asked *a, const char *method, const char *path, size_t json_size,
                          size_t body_size, const char *headers)
{
    char line[200];
    adds(a, method);
    adds(a, " ");
    adds(a, path);
    snprintf(line, sizeof(line),
             " HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %zu\r\n", body_size);
    adds(a, line);
    if (json_size) {
        snprintf(line, sizeof(line), "Inference-Header-Content-Length: %zu\r\n", json_size);
        adds(a, line);
    }
    adds(a, headers);
    adds(a, "\r\n");
}

static void add_head(struct asked *a, const char *method, const char *path, size_t json_size,
                     size_t body_size)
{
    add_head_with(a, method, path, json_size, body_size, "");
}

/* Makes a body of one input with n values, each printed by `value`. */
static char *json_body(const char *type, int n, const char *value)
{
    char *json = malloc((size_t)n * (strlen(value) + 1) + 300);
    int at = snprintf(json, 300,
                      "{\"id\":\"the id\",\"inputs\":[{\"name\":\"INPUT0\",\"datatype\":\"%s\","
                      "\"shape\":[%d],\"data\":[",
                      type, n);
    for (int i = 0; i < n; i++)
        at += snprintf(json + at, strlen(value) + 2, "%s%s", i ? "," : "", value);
    memcpy(json + at, "]}]}", 5);
    return json;
}

static void post_json(const char *model, const char *type, int n, const char *value)
{
    char path[100];
    struct asked a = {0};
    char *json = json_body(type, n, value);
    snprintf(path, sizeof(path), "/v2/models/%s/infer", model);
    add_head(&a, "POST", path, 0, strlen(json));
    adds(&a, json);
    free(json);
    ask_each(&a, "HTTP/1.1 200 OK\r\n", "\"id\":\"the id\"");
}

static void small_json_survives_lack_of_memory(void **state)
{
    (void)state;
    post_json("floats", "FP32", 4, "0.1");
    post_json("aside", "FP32", 4, "0.1");
}

static void large_json_survives_lack_of_memory(void **state)
{
    (void)state;
    post_json("floats", "FP32", 30000, "0.12345");
    post_json("aside", "FP32", 30000, "0.12345");
}

/* The best classes of a small output, and so many that their order takes memory. */
static void classes_survive_lack_of_memory(void **state)
{
    (void)state;
    for (int n = 4; n <= 4000; n *= 1000) {
        struct asked a = {0};
        char wanted[200], *json = json_body("FP32", n, "0.12345");
        size_t length = strlen(json) - 1; /* without the last bracket */
        snprintf(wanted, sizeof(wanted),
                 ",\"outputs\":[{\"name\":\"OUTPUT0\",\"parameters\":{\"classification\":%d}}]}",
                 n / 2);
        add_head(&a, "POST", "/v2/models/aside/infer", 0, length + strlen(wanted));
        add(&a, json, length);
        adds(&a, wanted);
        free(json);
        ask_each(&a, "HTTP/1.1 200 OK\r\n", "[\"0.123450:0\",\"0.123450:1\"");
    }
}

/* generate has one answer. Without memory for the second response it must not answer with the
 * first. */
static void several_responses_survive_lack_of_memory(void **state)
{
    (void)state;
    static const char body[] = "{\"IN\":[1,2,3],\"DELAY\":[0,0,0],\"WAIT\":[0]}";
    struct asked a = {0};
    add_head(&a, "POST", "/v2/models/several/generate", 0, sizeof(body) - 1);
    adds(&a, body);
    ask_each(&a, "HTTP/1.1 500 ", "exactly 1 response");
}

static void generate_survives_lack_of_memory(void **state)
{
    (void)state;
    static const char body[] = "{\"INPUT0\":[0.5,1.5],\"id\":\"the id\",\"parameters\":{\"a\":1}}";
    static const char *const paths[] = {"/v2/models/floats/generate", "/v2/models/aside/generate"};
    for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
        struct asked a = {0};
        add_head(&a, "POST", paths[i], 0, sizeof(body) - 1);
        adds(&a, body);
        ask_each(&a, "HTTP/1.1 200 OK\r\n", "\"OUTPUT0\":[0.5,1.5]");
    }
}

static void streams_of_events_survive_lack_of_memory(void **state)
{
    (void)state;
    static const char body[] = "{\"IN\":[10,20,30],\"DELAY\":[0,0,0],\"WAIT\":[0]}";
    char head[200];
    struct asked a = {.is_stream = true};
    snprintf(head, sizeof(head),
             "POST /v2/models/several/generate_stream HTTP/1.0\r\nContent-Length: %zu\r\n\r\n",
             sizeof(body) - 1);
    adds(&a, head);
    adds(&a, body);
    ask_each(&a, "HTTP/1.1 200 OK\r\n", "\"OUT\":30");
}

static void settings_survive_lack_of_memory(void **state)
{
    (void)state;
    static const struct {
        const char *path, *body, *expected;
    } cases[] = {
        {"/v2/logging", "{\"log_verbose_level\":0,\"log_\\u0069nfo\":false}", "\"log_info\":false"},
        {"/v2/trace/setting", "{\"trace_rate\":\"10\"}", "\"trace_rate\":\"10\""},
        {"/v2/models/floats/trace/setting", "{\"trace_level\":[\"TIMESTAMPS\"]}", "TIMESTAMPS"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct asked a = {0};
        add_head(&a, "POST", cases[i].path, 0, strlen(cases[i].body));
        adds(&a, cases[i].body);
        ask_each(&a, "HTTP/1.1 200 OK\r\n", cases[i].expected);
    }
}

static void strings_in_json_survive_lack_of_memory(void **state)
{
    (void)state;
    post_json("texts", "BYTES", 3000, "\"some \\\"text\\\" \\u00e9\"");
}

/* Makes a body with one tensor of that many bytes. Returns the length of its JSON. */
static size_t binary_body(struct asked *body, size_t payload)
{
    char json[300];
    int json_size = snprintf(
        json, sizeof(json),
        "{\"id\":\"the id\",\"inputs\":[{\"name\":\"INPUT0\",\"datatype\":\"FP32\",\"shape\":[%zu],"
        "\"parameters\":{\"binary_data_size\":%zu}}],\"outputs\":[{\"name\":\"OUTPUT0\","
        "\"parameters\":{\"binary_data\":true}}]}",
        payload / 4, payload);
    adds(body, json);
    char *bytes = malloc(payload);
    for (size_t i = 0; i < payload; i++)
        bytes[i] = (char)(i * 31 >> 3);
    add(body, bytes, payload);
    free(bytes);
    return (size_t)json_size;
}

static void post_binary(const char *model, size_t payload)
{
    char path[100];
    struct asked a = {0}, body = {0};
    size_t json_size = binary_body(&body, payload);
    snprintf(path, sizeof(path), "/v2/models/%s/infer", model);
    add_head(&a, "POST", path, json_size, body.request_size);
    add(&a, body.request, body.request_size);
    free(body.request);
    ask_each(&a, "HTTP/1.1 200 OK\r\n", "\"id\":\"the id\"");
}

/* A packed body, and if `accepts` a packed reply. */
static void post_packed(size_t payload, bool accepts)
{
    static const char path[] = "/v2/models/floats/infer";
    struct asked a = {0}, plain = {0}, body = {0};
    struct pool *pool = pool_new("test", 0, 0);
    struct compress *c = compress_new();
    size_t n_packed, json_size = binary_body(&body, payload);
    struct iovec piece = {body.request, body.request_size};
    char *packed;
    assert_null(compress_pack(c, COMPRESS_GZIP, &piece, 1, pool, NULL, &packed, &n_packed));
    add_head(&plain, "POST", path, json_size, body.request_size);
    add(&plain, body.request, body.request_size);
    assert_null(ask(&plain));
    add_head_with(&a, "POST", path, json_size, n_packed,
                  accepts ? "Content-Encoding: gzip\r\nAccept-Encoding: gzip\r\n"
                          : "Content-Encoding: gzip\r\n");
    add(&a, packed, n_packed);
    a.unpacked = plain.expected;
    a.unpacked_size = plain.expected_size;
    ask_each(&a, "HTTP/1.1 200 OK\r\n", accepts ? "Content-Encoding: gzip" : "\"id\":\"the id\"");
    free(plain.request);
    free(plain.expected);
    free(body.request);
    pool_release(packed);
    compress_free(c);
    pool_free(pool);
}

static void packed_bodies_and_replies_survive_lack_of_memory(void **state)
{
    (void)state;
    post_packed(64, false);
    post_packed(64, true);
    post_packed(602112, false);
    post_packed(602112, true);
}

static void binary_tensors_survive_lack_of_memory(void **state)
{
    (void)state;
    post_binary("floats", 64);
    post_binary("floats", 602112);
    post_binary("aside", 602112);
}

static void chunked_bodies_survive_lack_of_memory(void **state)
{
    (void)state;
    struct asked a = {0};
    char line[40];
    char *json = json_body("FP32", 5000, "0.5");
    adds(&a, "POST /v2/models/floats/infer HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
             "Transfer-Encoding: chunked\r\n\r\n");
    size_t size = strlen(json);
    for (size_t at = 0; at < size; at += 1000) {
        size_t n = size - at < 1000 ? size - at : 1000;
        snprintf(line, sizeof(line), "%zx\r\n", n);
        adds(&a, line);
        add(&a, json + at, n);
        adds(&a, "\r\n");
    }
    adds(&a, "0\r\n\r\n");
    free(json);
    ask_each(&a, "HTTP/1.1 200 OK\r\n", "\"id\":\"the id\"");
}

static void get(const char *path, const char *expected_start, const char *expected_part)
{
    struct asked a = {0};
    add_head(&a, "GET", path, 0, 0);
    ask_each(&a, expected_start, expected_part);
}

static void metadata_survives_lack_of_memory(void **state)
{
    (void)state;
    get("/v2", "HTTP/1.1 200 OK\r\n", "\"extensions\"");
    get("/v2/health/ready", "HTTP/1.1 200 OK\r\n", "");
    get("/v2/models/floats", "HTTP/1.1 200 OK\r\n", "\"INPUT0\"");
    get("/v2/models/floats/config", "HTTP/1.1 200 OK\r\n", "\"backend\":\"identity\"");
    get("/v2/models/floats/versions/1/ready", "HTTP/1.1 200 OK\r\n", "");
}

static void the_index_survives_lack_of_memory(void **state)
{
    (void)state;
    /* The escape takes memory. Without its name decoded another list would be sent. */
    static const char body[] = "{\"no\":[1,{\"x\":2}],\"r\\u0065ady\":true}";
    struct asked a = {0};
    add_head(&a, "POST", "/v2/repository/index", 0, sizeof(body) - 1);
    adds(&a, body);
    ask_each(&a, "HTTP/1.1 200 OK\r\n",
             "[{\"name\":\"aside\",\"version\":\"1\",\"state\":\"READY\"},");
}

static void the_filtered_index_survives_lack_of_memory(void **state)
{
    (void)state;
    struct asked a = {0};
    adds(&a, "GET /v2/health/ready HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
             "Accept: application/json\r\n\r\n");
    ask_each(&a, "HTTP/1.1 200 OK\r\n", "{\"ready\":true,\"state\":\"running\",");
}

/* Every part of a long path counts: without it another model or version would answer. */
static void long_paths_survive_lack_of_memory(void **state)
{
    (void)state;
    char path[12000];
    memcpy(path, "/v2/models/", 11);
    memset(path + 11, 'm', 9000);
    memcpy(path + 9011, "", 1);
    get(path, "HTTP/1.1 404 Not Found\r\n", "unknown model");
    /* A version with so many zeros that the path does not fit into the reserved memory. */
    size_t n = (size_t)snprintf(path, sizeof(path), "/v2/models/floats/versions/");
    memset(path + n, '0', 9000);
    memcpy(path + n + 9000, "7", 2);
    get(path, "HTTP/1.1 4", "error");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_json_survives_lack_of_memory),
        cmocka_unit_test(large_json_survives_lack_of_memory),
        cmocka_unit_test(classes_survive_lack_of_memory),
        cmocka_unit_test(several_responses_survive_lack_of_memory),
        cmocka_unit_test(generate_survives_lack_of_memory),
        cmocka_unit_test(streams_of_events_survive_lack_of_memory),
        cmocka_unit_test(settings_survive_lack_of_memory),
        cmocka_unit_test(strings_in_json_survive_lack_of_memory),
        cmocka_unit_test(binary_tensors_survive_lack_of_memory),
        cmocka_unit_test(packed_bodies_and_replies_survive_lack_of_memory),
        cmocka_unit_test(chunked_bodies_survive_lack_of_memory),
        cmocka_unit_test(metadata_survives_lack_of_memory),
        cmocka_unit_test(long_paths_survive_lack_of_memory),
        cmocka_unit_test(the_index_survives_lack_of_memory),
        cmocka_unit_test(the_filtered_index_survives_lack_of_memory),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
