/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Several requests in a row to the endpoints beside …/infer, with each allocation failing: regions
 * of shared memory, access by rules and by a header, SageMaker, Vertex AI. Each reply is exactly
 * the one with enough memory, or an error that says "out of memory", or the connection closes
 * without a reply; what follows it is not asked. No right is given for want of memory, and a region
 * has the right bytes when its client is told so.
 *
 * The service is started for each run, with its loops and the table of regions.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/compiler.h"
#include "base/log.h"
#include "base/status.h"
#include "conch/conch.h"
#include "lib/fault.h"
#include "lib/ok.h"
#include "lib/repository.h"

enum { MOST_BYTES = 1 << 16, WAIT_S = 60, N_VALUES = 1000, REGION_BYTES = 4000, MAX_STEPS = 8 };

static struct test_repository repository;
static TRITONSERVER_Server *server;
static char region_name[64], rules_file[200];
static int region = -1; /* N_VALUES inputs, then as many outputs; what is mapped here is refused */

static void make_region(void)
{
    snprintf(region_name, sizeof(region_name), "/conch-fault-%d", getpid());
    region = shm_open(region_name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    assert_true(region >= 0);
    assert_int_equal(ftruncate(region, 2 * REGION_BYTES), 0);
}

static int start(void **state)
{
    (void)state;
    static const char rules[] = "allow header X-Key=right to all\nallow anyone to health\n";
    TRITONSERVER_ServerOptions *options;
    repository_make(&repository);
    repository_add(
        &repository, "floats",
        "backend: 'identity'\ninput { name: 'INPUT0' data_type: TYPE_FP32 dims: [ -1 ] }\n"
        "output { name: 'OUTPUT0' data_type: TYPE_FP32 dims: [ -1 ] }\n",
        1);
    repository_add_file(&repository, "rules", rules, sizeof(rules) - 1);
    snprintf(rules_file, sizeof(rules_file), "%s/rules", repository.path);
    make_region();
    OK(TRITONSERVER_ServerOptionsNew(&options));
    OK(TRITONSERVER_ServerOptionsSetModelRepositoryPath(options, repository.path));
    OK(TRITONSERVER_ServerOptionsSetBackendDirectory(options, CONCH_BUILD_DIR "/backends"));
    OK(TRITONSERVER_ServerOptionsSetLogInfo(options, false));
    OK(conch_server_options_set(options, "allow-client-shm", "true"));
    OK(TRITONSERVER_ServerNew(&server, options));
    OK(TRITONSERVER_ServerOptionsDelete(options));
    return 0;
}

static int stop(void **state)
{
    (void)state;
    OK(TRITONSERVER_ServerStop(server));
    OK(TRITONSERVER_ServerDelete(server));
    close(region);
    shm_unlink(region_name);
    repository_remove(&repository);
    return 0;
}

/* ---- Runs ------------------------------------------------------------------------------------ */

/* A request, and the beginning of its reply when nothing fails. */
struct step {
    const char *method, *path, *headers, *body;
    const char *begins, *part; /* of the reply */
    void (*before)(void);
    void (*after)(void); /* the reply was that one */
};

struct script {
    TRITONSERVER_Error *(*serve)(const struct conch_http_options *http, struct conch_http **ret);
    struct step steps[MAX_STEPS]; /* ends with one without a method */
    const char *restricted;       /* NULL: by the rules */
    void (*refused)(void);        /* NULL, or after a reply that says that there was no memory */
};

static TRITONSERVER_Error *serve_http(const struct conch_http_options *http,
                                      struct conch_http **ret)
{
    return conch_http_start(server, http, ret);
}

static TRITONSERVER_Error *serve_sagemaker(const struct conch_http_options *http,
                                           struct conch_http **ret)
{
    struct conch_sagemaker_options o;
    conch_sagemaker_options_init(&o);
    o.http = http;
    o.default_model = "floats";
    return conch_sagemaker_start(server, &o, ret);
}

static TRITONSERVER_Error *serve_vertex_ai(const struct conch_http_options *http,
                                           struct conch_http **ret)
{
    struct conch_vertex_ai_options o;
    conch_vertex_ai_options_init(&o);
    o.http = http;
    o.predict_route = "/predict";
    o.health_route = "/health";
    o.default_model = "floats";
    return conch_vertex_ai_start(server, &o, ret);
}

static char received[MOST_BYTES + 1];

/* Returns the bytes of the reply; the server closes behind it. */
static size_t ask_step(int port, const struct step *step)
{
    char request[4096];
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct timeval patience = {.tv_sec = WAIT_S};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    size_t size = 0;
    int length = snprintf(request, sizeof(request),
                          "%s %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n%s"
                          "Content-Length: %zu\r\n\r\n%s",
                          step->method, step->path, step->headers, strlen(step->body), step->body);
    assert_in_range(length, 1, sizeof(request) - 1);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    (void)send(fd, request, (size_t)length, MSG_NOSIGNAL);
    for (;;) {
        ssize_t n = recv(fd, received + size, MOST_BYTES - size, 0);
        if (n < 0 && errno == EAGAIN)
            fail_msg("no reply to %s within %d s", step->path, WAIT_S);
        if (n <= 0)
            break;
        size += (size_t)n;
    }
    close(fd);
    received[size] = '\0';
    return size;
}

/* NULL: it was answered as it is with enough memory. */
static struct status *run_step(int port, const struct script *script, const struct step *step)
{
    if (step->before)
        step->before();
    size_t size = ask_step(port, step);
    if (strncmp(received, step->begins, strlen(step->begins)) == 0 &&
        strstr(received, step->part)) {
        if (step->after)
            step->after();
        return NULL;
    }
    if (size > 0 && !strstr(received, "out of memory"))
        fail_msg("%s %s: a wrong answer: %.600s", step->method, step->path, received);
    if (size > 0 && script->refused)
        script->refused();
    return status_no_memory();
}

static struct status *run(void *arg)
{
    const struct script *script = arg;
    const char *restricted[] = {script->restricted};
    struct conch_http_options o;
    struct conch_http *service = NULL;
    struct status *st = NULL;
    conch_http_options_init(&o);
    o.address = "127.0.0.1";
    o.port = 0;
    o.n_threads = 1;
    if (script->restricted) {
        o.restricted_apis = restricted;
        o.n_restricted_apis = 1;
    } else {
        o.access_rules = rules_file;
    }
    TRITONSERVER_Error *error = script->serve(&o, &service);
    if (error) {
        if (!strstr(TRITONSERVER_ErrorMessage(error), "out of memory"))
            fail_msg("%s", TRITONSERVER_ErrorMessage(error));
        TRITONSERVER_ErrorDelete(error);
        return status_no_memory();
    }
    for (const struct step *s = script->steps; s->method && !st; s++)
        st = run_step(conch_http_port(service), script, s);
    assert_int_equal(conch_http_stop(service, WAIT_S * 1000), 0);
    return st;
}

/* ---- Scripts --------------------------------------------------------------------------------- */

#define KEY   "X-Key: right\r\n"
#define INFER "/v2/models/floats/infer"
#define FOUR                                                                                       \
    "{\"inputs\":[{\"name\":\"INPUT0\",\"datatype\":\"FP32\",\"shape\":[4],\"data\":[1,2,3,4]}]}"
#define FOUND "HTTP/1.1 200 OK\r\n"

static float values[N_VALUES];

static void write_region(void)
{
    for (int i = 0; i < N_VALUES; i++)
        values[i] = (float)i;
    assert_int_equal(pwrite(region, values, REGION_BYTES, 0), REGION_BYTES);
    memset(values, 0xff, sizeof(values));
    assert_int_equal(pwrite(region, values, REGION_BYTES, REGION_BYTES), REGION_BYTES);
}

static void check_region(void)
{
    assert_int_equal(pread(region, values, REGION_BYTES, REGION_BYTES), REGION_BYTES);
    for (int i = 0; i < N_VALUES; i++)
        assert_true(values[i] == (float)i);
}

static void regions_survive_lack_of_memory(void **state)
{
    (void)state;
    static char body[300];
    snprintf(body, sizeof(body), "{\"key\":\"%s\",\"offset\":0,\"byte_size\":8000}", region_name);
    struct script script = {
        .serve = serve_http,
        .steps = {
            {"POST", "/v2/systemsharedmemory/region/both/register", KEY, body, FOUND, "", NULL,
             NULL},
            {"GET", "/v2/systemsharedmemory/region/both/status", KEY, "", FOUND,
             "\"byte_size\":8000", NULL, NULL},
            {"POST", INFER, KEY,
             "{\"inputs\":[{\"name\":\"INPUT0\",\"datatype\":\"FP32\",\"shape\":[1000],\"parameters\":"
             "{\"shared_memory_region\":\"both\",\"shared_memory_byte_size\":4000}}],"
             "\"outputs\":[{\"name\":\"OUTPUT0\",\"parameters\":{\"shared_memory_region\":\"both\","
             "\"shared_memory_offset\":4000,\"shared_memory_byte_size\":4000}}]}",
             FOUND, "\"shape\":[1000]}", write_region, check_region},
            {"POST", "/v2/systemsharedmemory/region/both/unregister", KEY, "", FOUND, "", NULL,
             NULL},
            {"GET", "/v2/systemsharedmemory/status", KEY, "", FOUND, "[]", NULL, NULL},
        }};
    assert_true(fault_each_allocation(run, &script) > 10);
}

static char log_body[64];
static bool wants_warnings;

static void change_warnings(void)
{
    wants_warnings = !log_is_on(LOG_WARN, 0);
    snprintf(log_body, sizeof(log_body), "{\"log_warning\":%s}", wants_warnings ? "true" : "false");
}

static void check_that_the_log_has_changed(void)
{
    assert_int_equal(log_is_on(LOG_WARN, 0), wants_warnings);
}

static void check_that_the_log_is_the_same(void)
{
    assert_int_equal(log_is_on(LOG_WARN, 0), !wants_warnings);
}

static void settings_of_the_log_survive_lack_of_memory(void **state)
{
    (void)state;
    struct script script = {
        .serve = serve_http,
        .steps =
            {
                {"POST", "/v2/logging", KEY, log_body, FOUND, "\"log_warning\":", change_warnings,
                 check_that_the_log_has_changed},
            },
        .refused = check_that_the_log_is_the_same};
    assert_true(fault_each_allocation(run, &script) > 10);
}

static void rules_survive_lack_of_memory(void **state)
{
    (void)state;
    struct script script = {
        .serve = serve_http,
        .steps = {
            {"POST", INFER, "X-Key: wrong\r\n", FOUR, "HTTP/1.1 403 ", "", NULL, NULL},
            {"POST", INFER, "", FOUR, "HTTP/1.1 403 ", "", NULL, NULL},
            {"POST", INFER, KEY, FOUR, FOUND, "\"data\":[1.0,2.0,3.0,4.0]", NULL, NULL},
            {"GET", "/v2/models/floats", "", "", "HTTP/1.1 403 ", "", NULL, NULL},
            {"GET", "/v2/health/live", "", "", FOUND, "", NULL, NULL},
        }};
    assert_true(fault_each_allocation(run, &script) > 10);
}

static void a_restricted_api_survives_lack_of_memory(void **state)
{
    (void)state;
    struct script script = {
        .serve = serve_http,
        .restricted = "inference:x-key=right",
        .steps = {
            {"POST", INFER, "X-Key: wrong\r\n", FOUR, "HTTP/1.1 403 ", "", NULL, NULL},
            {"POST", INFER, KEY, FOUR, FOUND, "\"data\":[1.0,2.0,3.0,4.0]", NULL, NULL},
        }};
    assert_true(fault_each_allocation(run, &script) > 5);
}

static void sagemaker_survives_lack_of_memory(void **state)
{
    (void)state;
    struct script script = {
        .serve = serve_sagemaker,
        .steps = {
            {"GET", "/ping", "", "", FOUND, "", NULL, NULL},
            {"POST", "/invocations", "", FOUR, "HTTP/1.1 403 ", "", NULL, NULL},
            {"POST", "/invocations", KEY, FOUR, FOUND, "\"data\":[1.0,2.0,3.0,4.0]", NULL, NULL},
        }};
    assert_true(fault_each_allocation(run, &script) > 5);
}

static void vertex_ai_survives_lack_of_memory(void **state)
{
    (void)state;
    struct script script = {
        .serve = serve_vertex_ai,
        .steps = {
            {"GET", "/health", "", "", FOUND, "", NULL, NULL},
            {"POST", "/predict", "", FOUR, "HTTP/1.1 403 ", "", NULL, NULL},
            {"POST", "/predict", KEY, FOUR, FOUND, "\"data\":[1.0,2.0,3.0,4.0]", NULL, NULL},
        }};
    assert_true(fault_each_allocation(run, &script) > 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(regions_survive_lack_of_memory),
        cmocka_unit_test(settings_of_the_log_survive_lack_of_memory),
        cmocka_unit_test(rules_survive_lack_of_memory),
        cmocka_unit_test(a_restricted_api_survives_lack_of_memory),
        cmocka_unit_test(sagemaker_survives_lack_of_memory),
        cmocka_unit_test(vertex_ai_survives_lack_of_memory),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
