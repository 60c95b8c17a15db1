/* SPDX-License-Identifier: Apache-2.0 */
/*
 * After a few requests of a kind on a connection, the next ones allocate nothing: neither in the
 * frontend, nor in the core, nor in the API; inline and on a worker, small and large, binary and
 * JSON. (Allocations of ONNX Runtime or another framework are its own.)
 */
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/mem.h"
#include "conch/conch.h"
#include "lib/ok.h"
#include "lib/repository.h"

/*
 * Sometimes a worker has not quite released its request when the next one arrives. Then two
 * requests are there at a time, and a second set of blocks is allocated, once.
 */
enum { WARM_UP = 100, COUNTED = 200, AT_MOST = 8, LARGE_FLOATS = 150000 };

static struct test_repository repository;
static TRITONSERVER_Server *server;
static struct conch_http *http;
static int fd;

static void add_model(const char *execution)
{
    char config[600];
    snprintf(config, sizeof(config),
             "backend: 'identity'\ninput { name: 'INPUT0' data_type: TYPE_FP32 dims: [ -1 ] }\n"
             "output { name: 'OUTPUT0' data_type: TYPE_FP32 dims: [ -1 ] }\n"
             "parameters { key: 'CONCH_EXECUTION' value { string_value: '%s' } }",
             execution);
    repository_add(&repository, execution, config, 1);
}

static int start(void **state)
{
    (void)state;
    TRITONSERVER_ServerOptions *options;
    struct conch_http_options o;
    repository_make(&repository);
    add_model("inline");
    add_model("thread");
    OK(TRITONSERVER_ServerOptionsNew(&options));
    OK(TRITONSERVER_ServerOptionsSetModelRepositoryPath(options, repository.path));
    OK(TRITONSERVER_ServerOptionsSetBackendDirectory(options, CONCH_BUILD_DIR "/backends"));
    OK(TRITONSERVER_ServerOptionsSetLogInfo(options, false));
    OK(TRITONSERVER_ServerNew(&server, options));
    OK(TRITONSERVER_ServerOptionsDelete(options));

    conch_http_options_init(&o);
    o.address = "127.0.0.1";
    o.port = 0;
    o.n_threads = 1;
    OK(conch_http_start(server, &o, &http));
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)conch_http_port(http)),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct timeval patience = {.tv_sec = 60};
    fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    return 0;
}

static int stop(void **state)
{
    (void)state;
    close(fd);
    assert_int_equal(conch_http_stop(http, 60000), 0);
    OK(TRITONSERVER_ServerDelete(server));
    repository_remove(&repository);
    return 0;
}

/* ------------------------------------------------------------------------------------------ */

static atomic_uint n_allocations;

static bool count(size_t size_bytes)
{
    (void)size_bytes;
    atomic_fetch_add(&n_allocations, 1);
    return true;
}

/* Sends the request, and reads its whole reply. */
static void ask(const char *request, size_t size)
{
    static char reply[4 << 20];
    size_t n = 0, wanted = SIZE_MAX;
    for (size_t sent = 0; sent < size;) {
        ssize_t done = send(fd, request + sent, size - sent, MSG_NOSIGNAL);
        assert_true(done > 0);
        sent += (size_t)done;
    }
    while (n < wanted) {
        ssize_t got = recv(fd, reply + n, sizeof(reply) - 1 - n, 0);
        assert_true(got > 0);
        n += (size_t)got;
        reply[n] = '\0';
        const char *end = wanted == SIZE_MAX ? strstr(reply, "\r\n\r\n") : NULL;
        if (end)
            wanted = (size_t)(end + 4 - reply) +
                     strtoul(strstr(reply, "\r\nContent-Length: ") + 18, NULL, 10);
    }
    assert_memory_equal(reply, "HTTP/1.1 200 OK\r\n", 17);
}

/* Makes a request of this many floats; `binary`: in the request and in the response. The caller
 * frees it. */
static char *make(const char *model, int n_floats, bool binary, size_t *ret_size)
{
    size_t capacity = 1000 + (size_t)n_floats * 4;
    char *json = malloc(capacity), *request = malloc(2 * capacity);
    int length = snprintf(json, capacity,
                          "{\"id\":\"some id\",\"inputs\":[{\"name\":\"INPUT0\",\"datatype\":"
                          "\"FP32\",\"shape\":[%d],",
                          n_floats);
    if (binary) {
        length += snprintf(json + length, capacity - (size_t)length,
                           "\"parameters\":{\"binary_data_size\":%d}}],\"outputs\":[{\"name\":"
                           "\"OUTPUT0\",\"parameters\":{\"binary_data\":true}}]}",
                           4 * n_floats);
    } else {
        length += snprintf(json + length, capacity - (size_t)length, "\"data\":[");
        for (int i = 0; i < n_floats; i++)
            length +=
                snprintf(json + length, capacity - (size_t)length, "%s%d", i ? "," : "", i % 10);
        length += snprintf(json + length, capacity - (size_t)length, "]}]}");
    }
    size_t tail = binary ? 4 * (size_t)n_floats : 0;
    int head = snprintf(request, capacity,
                        "POST /v2/models/%s/infer HTTP/1.1\r\nHost: test\r\n"
                        "Inference-Header-Content-Length: %d\r\nContent-Length: %zu\r\n\r\n",
                        model, length, (size_t)length + tail);
    memcpy(request + head, json, (size_t)length);
    memset(request + head + length, 0, tail);
    free(json);
    *ret_size = (size_t)(head + length) + tail;
    return request;
}

static void requests_allocate_nothing(void **state)
{
    (void)state;
    static const struct {
        const char *model;
        int n_floats;
        bool binary;
    } kinds[] = {
        {"inline", 16, true},    {"inline", 16, false},          {"thread", 16, true},
        {"thread", 16, false},   {"inline", LARGE_FLOATS, true}, {"thread", LARGE_FLOATS, true},
        {"inline", 3000, false}, {"thread", 3000, false},
    };
    for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++) {
        size_t size;
        char *request = make(kinds[k].model, kinds[k].n_floats, kinds[k].binary, &size);
        for (int i = 0; i < WARM_UP; i++)
            ask(request, size);
        atomic_store(&n_allocations, 0);
        mem_set_test_hook(count);
        for (int i = 0; i < COUNTED; i++)
            ask(request, size);
        mem_set_test_hook(NULL);
        if (atomic_load(&n_allocations) > AT_MOST)
            fail_msg("%u allocations in %d requests: model %s, %d floats, binary %d",
                     atomic_load(&n_allocations), COUNTED, kinds[k].model, kinds[k].n_floats,
                     kinds[k].binary);
        free(request);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(requests_allocate_nothing)};
    return cmocka_run_group_tests(tests, start, stop);
}
