/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The page of a server with one model, from its start to its end. tests/system/test_metrics.py
 * compares the page after requests with the genuine Triton's.
 */
#include "core/server/page.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/status.h"
#include "core/metrics/family.h"
#include "core/model/model_metrics.h"
#include "core/options/server_options.h"
#include "core/server/server.h"
#include "lib/fault.h"
#include "lib/repository.h"
#include "triton/core/tritonserver.h"

#define CONFIG                                                                                     \
    "backend: 'identity' metric_tags { key: 'tag' value: 'it\\'s \"x\"' } "                        \
    "input { name: 'INPUT0' data_type: TYPE_FP32 dims: -1 } "                                      \
    "output { name: 'OUTPUT0' data_type: TYPE_FP32 dims: -1 }"
#define LABELS(more) "{_tag=\"it's \\\"x\\\"\",model=\"m\"," more "version=\"1\"}"

struct fixture {
    struct test_repository repo;
    struct server_options *options;
    struct server *server;
};

static void ok(struct status *st)
{
    if (st)
        fail_msg("%s", status_message(st));
}

static int open_server(void **state)
{
    static struct fixture f;
    repository_make(&f.repo);
    repository_add(&f.repo, "m", CONFIG, 1);
    f.options = server_options_new();
    server_options_add_repository(f.options, f.repo.path);
    server_options_set_string(&f.options->backend_directory, CONCH_BUILD_DIR "/backends");
    ok(server_options_set_metrics(f.options, "histogram_latencies", "true"));
    ok(server_create(f.options, &f.server));
    *state = &f;
    return 0;
}

static int close_server(void **state)
{
    struct fixture *f = *state;
    ok(server_stop(f->server));
    server_free(f->server);
    server_options_free(f->options);
    repository_remove(&f->repo);
    return 0;
}

static bool shows(struct server *s, const char *line)
{
    AUTO(buf) out = BUF_INIT(1 << 20);
    ok(server_metrics(s, &out));
    return strstr(buf_text(&out), line) != NULL;
}

/* Returns the value in the line that begins with this text. */
static double number(struct server *s, const char *line)
{
    AUTO(buf) out = BUF_INIT(1 << 20);
    ok(server_metrics(s, &out));
    const char *at = strstr(buf_text(&out), line);
    assert_non_null(at);
    return strtod(at + strlen(line), NULL);
}

static void a_model_is_on_the_page_while_it_is_loaded(void **state)
{
    struct fixture *f = *state;
    assert_false(shows(f->server, "nv_inference"));
    assert_true(shows(f->server, "\nnv_cpu_memory_total_bytes "));

    ok(server_load(f->server));
    assert_true(shows(f->server, "\nnv_inference_request_success" LABELS("") " 0\n"));
    assert_true(
        shows(f->server, "\nnv_inference_request_failure" LABELS("reason=\"REJECTED\",") " 0\n"));
    assert_true(
        shows(f->server, "\nnv_inference_first_response_histogram_ms_count" LABELS("") " 0\n"));
    double load_s = number(f->server, "\nnv_model_load_duration_secs" LABELS("") " ");
    assert_true(load_s > 0 && load_s < 300); /* in seconds */

    ok(server_stop(f->server));
    assert_false(shows(f->server, "nv_inference"));
    assert_true(shows(f->server, "\nnv_pinned_memory_pool_total_bytes 0\n"));
}

static void a_page_that_does_not_fit_is_an_error(void **state)
{
    struct fixture *f = *state;
    AUTO(buf) out = BUF_INIT(2000);
    ok(server_load(f->server));
    struct status *st = server_metrics(f->server, &out);
    assert_non_null(st);
    assert_int_equal(status_code(st), STATUS_INVALID_ARG);
    status_free(st);
}

static struct status *print_page(void *arg)
{
    AUTO(buf) out = BUF_INIT(1 << 20);
    return server_metrics(arg, &out);
}

static void a_page_survives_lack_of_memory(void **state)
{
    struct fixture *f = *state;
    ok(server_load(f->server));
    assert_true(fault_each_allocation(print_page, f->server) > 0);
    assert_true(shows(f->server, "\nnv_inference_count" LABELS("") " 0\n"));
}

static void a_backend_cannot_use_the_servers_names(void **state)
{
    (void)state;
    static const char *const names[] = {
        "nv_inference_request_success",
        "nv_inference_request_failure",
        "nv_inference_exec_count",
        "nv_inference_pending_request_count",
        "nv_model_load_duration_secs",
        "nv_cpu_utilization",
        FIRST_RESPONSE_FAMILY,
        "conch_executing_request_count",
        "conch_executing_request_oldest_secs",
    };
    struct metric_family *family;
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        struct status *st = metric_family_new(METRIC_COUNTER, names[i], "", &family);
        assert_non_null(st);
        assert_non_null(strstr(status_message(st), names[i]));
        status_free(st);
    }
    ok(metric_family_new(METRIC_COUNTER, "nv_inference_requests", "", &family));
    ok(metric_family_free(family));
}

/* ---- By way of the public ABI --------------------------------------------------------------- */

static void passed(TRITONSERVER_Error *error)
{
    if (error)
        fail_msg("%s", TRITONSERVER_ErrorMessage(error));
}

static void an_embedder_reads_the_page(void **state)
{
    struct fixture *f = *state;
    TRITONSERVER_Server *server = (TRITONSERVER_Server *)f->server;
    TRITONSERVER_Metrics *metrics;
    const char *base = NULL;
    size_t size = 0;
    passed(TRITONSERVER_ServerMetrics(server, &metrics));
    passed(TRITONSERVER_MetricsFormatted(metrics, TRITONSERVER_METRIC_PROMETHEUS, &base, &size));
    assert_int_equal(strlen(base), size);
    assert_null(strstr(base, "nv_inference_count"));

    /* The same object has the current values. */
    ok(server_load(f->server));
    passed(TRITONSERVER_MetricsFormatted(metrics, TRITONSERVER_METRIC_PROMETHEUS, &base, &size));
    assert_int_equal(strlen(base), size);
    assert_non_null(strstr(base, "nv_inference_count" LABELS("") " 0\n"));

    TRITONSERVER_Error *error =
        TRITONSERVER_MetricsFormatted(metrics, (TRITONSERVER_MetricFormat)3, &base, &size);
    assert_non_null(error);
    assert_int_equal(TRITONSERVER_ErrorCode(error), TRITONSERVER_ERROR_INVALID_ARG);
    assert_string_equal(TRITONSERVER_ErrorMessage(error), "unknown metrics format '3'");
    TRITONSERVER_ErrorDelete(error);
    passed(TRITONSERVER_MetricsDelete(metrics));
    passed(TRITONSERVER_MetricsDelete(NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_model_is_on_the_page_while_it_is_loaded, open_server,
                                        close_server),
        cmocka_unit_test_setup_teardown(a_page_that_does_not_fit_is_an_error, open_server,
                                        close_server),
        cmocka_unit_test_setup_teardown(a_page_survives_lack_of_memory, open_server, close_server),
        cmocka_unit_test_setup_teardown(an_embedder_reads_the_page, open_server, close_server),
        cmocka_unit_test(a_backend_cannot_use_the_servers_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
