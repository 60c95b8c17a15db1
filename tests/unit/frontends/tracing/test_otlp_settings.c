/* SPDX-License-Identifier: Apache-2.0 */
/* Where the settings of a collector come from, and which of them are refused or ignored. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "base/status.h"
#include "frontends/tracing/otlp_settings.h"

/* The variables of a test: pairs of name and value. */
static const char *const *variables;

static char *find_variable(const char *name)
{
    for (const char *const *at = variables; at && *at; at += 2) {
        if (strcmp(at[0], name) == 0)
            return (char *)(uintptr_t)at[1];
    }
    return NULL;
}

static struct otlp_settings *read_settings(const char *const given[], size_t n)
{
    struct otlp_settings *s;
    assert_null(otlp_settings_new(given, n, find_variable, &s));
    return s;
}

static const char *find_pair(const struct otlp_pairs *pairs, const char *name)
{
    const char *found = NULL;
    for (size_t i = 0; i < pairs->n; i++) {
        if (strcmp(pairs->items[i].name, name) == 0)
            found = pairs->items[i].value;
    }
    return found;
}

static void defaults_are_those_of_opentelemetry(void **state)
{
    (void)state;
    variables = NULL;
    struct otlp_settings *s = read_settings(NULL, 0);
    assert_string_equal(s->url, "http://localhost:4318/v1/traces");
    assert_string_equal(find_pair(&s->resource, "service.name"), "triton-inference-server");
    assert_int_equal(s->max_queue_size, 2048);
    assert_int_equal(s->max_batch_size, 512);
    assert_int_equal(s->schedule_delay_ms, 5000);
    assert_int_equal(s->timeout_ms, 10000);
    assert_int_equal(s->export_timeout_ms, 30000);
    assert_false(s->is_json || s->is_packed);
    assert_null(find_pair(&s->shown, "url"));
    assert_string_equal(find_pair(&s->shown, "bsp_schedule_delay"), "5000");
    otlp_settings_free(s);
}

static void a_setting_wins_over_its_variable(void **state)
{
    (void)state;
    static const char *const given[] = {"url=h:1/x", "resource=a=1=2", "resource=service.name=mine",
                                        "bsp_max_queue_size=7", "bsp_schedule_delay=0"};
    static const char *const env[] = {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
                                      "http://other",
                                      "OTEL_SERVICE_NAME",
                                      "other",
                                      "OTEL_BSP_MAX_QUEUE_SIZE",
                                      "9",
                                      "OTEL_BSP_MAX_EXPORT_BATCH_SIZE",
                                      "8",
                                      NULL};
    variables = env;
    struct otlp_settings *s = read_settings(given, ARRAY_SIZE(given));
    assert_string_equal(s->url, "http://h:1/x");
    assert_string_equal(find_pair(&s->shown, "url"), "h:1/x");
    assert_string_equal(find_pair(&s->resource, "service.name"), "mine");
    assert_string_equal(find_pair(&s->resource, "a"), "1=2");
    assert_int_equal(s->max_queue_size, 7);
    assert_int_equal(s->max_batch_size, 7); /* no more than may wait */
    assert_int_equal(s->schedule_delay_ms, 0);
    otlp_settings_free(s);
}

static void variables_are_heard(void **state)
{
    (void)state;
    static const char *const env[] = {"OTEL_EXPORTER_OTLP_ENDPOINT",
                                      "https://h:1/base/",
                                      "OTEL_EXPORTER_OTLP_PROTOCOL",
                                      "http/protobuf",
                                      "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL",
                                      "http/json",
                                      "OTEL_EXPORTER_OTLP_COMPRESSION",
                                      "gzip",
                                      "OTEL_EXPORTER_OTLP_TIMEOUT",
                                      "5",
                                      "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT",
                                      "6",
                                      "OTEL_EXPORTER_OTLP_HEADERS",
                                      " a = b%20c , d=%2C,,e=",
                                      "OTEL_EXPORTER_OTLP_CERTIFICATE",
                                      "/ca",
                                      "OTEL_RESOURCE_ATTRIBUTES",
                                      "service.name=x,k%3D=v",
                                      "OTEL_SERVICE_NAME",
                                      "y",
                                      "OTEL_BSP_EXPORT_TIMEOUT",
                                      "4",
                                      NULL};
    variables = env;
    struct otlp_settings *s = read_settings(NULL, 0);
    assert_string_equal(s->url, "https://h:1/base/v1/traces");
    assert_true(s->is_json && s->is_packed);
    assert_int_equal(s->timeout_ms, 6);
    assert_int_equal(s->export_timeout_ms, 4);
    assert_string_equal(find_pair(&s->headers, "a"), "b c");
    assert_string_equal(find_pair(&s->headers, "d"), ",");
    assert_string_equal(find_pair(&s->headers, "e"), "");
    assert_string_equal(s->ca_file, "/ca");
    assert_string_equal(find_pair(&s->resource, "service.name"), "y");
    assert_string_equal(find_pair(&s->resource, "k="), "v");
    otlp_settings_free(s);
}

static void a_bad_variable_is_ignored(void **state)
{
    (void)state;
    static const char *const env[] = {"OTEL_EXPORTER_OTLP_COMPRESSION",
                                      "zip",
                                      "OTEL_EXPORTER_OTLP_TIMEOUT",
                                      "-1",
                                      "OTEL_EXPORTER_OTLP_HEADERS",
                                      "a b=c",
                                      "OTEL_RESOURCE_ATTRIBUTES",
                                      "a,=b,c=%0a,d=%4,e=1",
                                      "OTEL_BSP_MAX_QUEUE_SIZE",
                                      "x",
                                      NULL};
    variables = env;
    struct otlp_settings *s = read_settings(NULL, 0);
    assert_false(s->is_packed);
    assert_int_equal(s->timeout_ms, 10000);
    assert_int_equal(s->headers.n, 0);
    assert_int_equal(s->resource.n, 4); /* three of ours, and e */
    assert_string_equal(find_pair(&s->resource, "e"), "1");
    assert_int_equal(s->max_queue_size, 2048);
    otlp_settings_free(s);
}

static void expect_refused(const char *given, const char *protocol, const char *text)
{
    const char *const env[] = {"OTEL_EXPORTER_OTLP_PROTOCOL", protocol, NULL};
    struct otlp_settings *s;
    variables = env;
    struct status *st = otlp_settings_new(&given, 1, find_variable, &s);
    assert_non_null(st);
    assert_string_equal(status_message(st), text);
    status_free(st);
}

static void a_bad_setting_is_refused(void **state)
{
    (void)state;
    expect_refused("url=ftp://h", "", "traces are sent by http or https, got: ftp://h");
    expect_refused("resource=a", "", "trace setting 'resource' must be <key>=<value>, got: a");
    expect_refused("resource==a", "", "trace setting 'resource' must be <key>=<value>, got: =a");
    expect_refused("bsp_max_queue_size=0", "",
                   "trace setting 'bsp_max_queue_size' must be a number from 1 to 1048576, got: 0");
    expect_refused("bsp_schedule_delay=3600001", "",
                   "trace setting 'bsp_schedule_delay' must be a number from 0 to 3600000, got: "
                   "3600001");
    expect_refused("bsp_max_export_batch_size=-1", "",
                   "trace setting 'bsp_max_export_batch_size' must be a number from 1 to 1048576, "
                   "got: -1");
    expect_refused("urls=x", "", "there is no such setting of traces: urls=x");
    expect_refused("url", "", "there is no such setting of traces: url");
    expect_refused("url=h", "grpc",
                   "OTEL_EXPORTER_OTLP_PROTOCOL must be http/protobuf or http/json, got: grpc");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_are_those_of_opentelemetry),
        cmocka_unit_test(a_setting_wins_over_its_variable),
        cmocka_unit_test(variables_are_heard),
        cmocka_unit_test(a_bad_variable_is_ignored),
        cmocka_unit_test(a_bad_setting_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
