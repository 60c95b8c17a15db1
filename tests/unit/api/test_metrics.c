/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Metrics by way of the public ABI. The texts are those of the genuine 2.51 for the same calls.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "triton/core/tritonserver.h"

static void ok(TRITONSERVER_Error *error)
{
    if (error)
        fail_msg("%s", TRITONSERVER_ErrorMessage(error));
}

/* The error's text begins with this. Where the reference names nothing, our text continues with
 * the name. */
static void refused(TRITONSERVER_Error *error, TRITONSERVER_Error_Code code, const char *text)
{
    assert_non_null(error);
    if (strncmp(TRITONSERVER_ErrorMessage(error), text, strlen(text)) != 0)
        fail_msg("'%s' does not begin with '%s'", TRITONSERVER_ErrorMessage(error), text);
    assert_int_equal(TRITONSERVER_ErrorCode(error), code);
    TRITONSERVER_ErrorDelete(error);
}

struct fixture {
    TRITONSERVER_MetricFamily *counter, *gauge, *histogram;
    TRITONSERVER_Parameter *label;
    const TRITONSERVER_Parameter *labels[2];
};

static int open_fixture(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    if (!f)
        return -1;
    ok(TRITONSERVER_MetricFamilyNew(&f->counter, TRITONSERVER_METRIC_KIND_COUNTER, "count", "c"));
    ok(TRITONSERVER_MetricFamilyNew(&f->gauge, TRITONSERVER_METRIC_KIND_GAUGE, "gauge", "g"));
    ok(TRITONSERVER_MetricFamilyNew(&f->histogram, TRITONSERVER_METRIC_KIND_HISTOGRAM, "histogram",
                                    "h"));
    f->label = TRITONSERVER_ParameterNew("x", TRITONSERVER_PARAMETER_STRING, "1");
    f->labels[0] = f->labels[1] = f->label;
    *state = f;
    return 0;
}

static int close_fixture(void **state)
{
    struct fixture *f = *state;
    ok(TRITONSERVER_MetricFamilyDelete(f->counter));
    ok(TRITONSERVER_MetricFamilyDelete(f->gauge));
    ok(TRITONSERVER_MetricFamilyDelete(f->histogram));
    TRITONSERVER_ParameterDelete(f->label);
    free(f);
    return 0;
}

static void wrong_families_are_refused(void **state)
{
    struct fixture *f = *state;
    TRITONSERVER_MetricFamily *family;
    TRITONSERVER_MetricKind kind;
    refused(TRITONSERVER_MetricFamilyNew(&family, (TRITONSERVER_MetricKind)7, "a", ""),
            TRITONSERVER_ERROR_INVALID_ARG, "Unsupported kind passed to MetricFamily constructor.");
    static const char *const wrong[] = {"", "1a", "a b", "a\xc3\xa4", "a-b"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        refused(TRITONSERVER_MetricFamilyNew(&family, TRITONSERVER_METRIC_KIND_GAUGE, wrong[i], ""),
                TRITONSERVER_ERROR_INVALID_ARG, "Invalid metric name");
    refused(TRITONSERVER_MetricFamilyNew(&family, TRITONSERVER_METRIC_KIND_GAUGE, "count", ""),
            TRITONSERVER_ERROR_INVALID_ARG, "Family name already exists with different type");
    refused(TRITONSERVER_MetricFamilyNew(&family, TRITONSERVER_METRIC_KIND_GAUGE, NULL, ""),
            TRITONSERVER_ERROR_INVALID_ARG, "TRITONSERVER_MetricFamilyNew: 'name' was nullptr");
    ok(TRITONSERVER_GetMetricFamilyKind(f->histogram, &kind));
    assert_int_equal(kind, TRITONSERVER_METRIC_KIND_HISTOGRAM);
}

static void labels_are_validated(void **state)
{
    struct fixture *f = *state;
    TRITONSERVER_Metric *m;
    int64_t number = 3;
    TRITONSERVER_Parameter *integer =
        TRITONSERVER_ParameterNew("y", TRITONSERVER_PARAMETER_INT, &number);
    const TRITONSERVER_Parameter *list[] = {f->label, integer};
    refused(TRITONSERVER_MetricNew(&m, f->counter, list, 2), TRITONSERVER_ERROR_INVALID_ARG,
            "Parameter [y] must have a type of TRITONSERVER_PARAMETER_STRING to be added as a "
            "label.");
    TRITONSERVER_ParameterDelete(integer);

    static const char *const wrong[] = {"", "1a", "a b", "a:b", "__reserved"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        TRITONSERVER_Parameter *p =
            TRITONSERVER_ParameterNew(wrong[i], TRITONSERVER_PARAMETER_STRING, "1");
        const TRITONSERVER_Parameter *one[] = {p};
        refused(TRITONSERVER_MetricNew(&m, f->counter, one, 1), TRITONSERVER_ERROR_INVALID_ARG,
                "Invalid label name");
        TRITONSERVER_ParameterDelete(p);
    }
    refused(TRITONSERVER_MetricNew(&m, f->counter, f->labels, 2), TRITONSERVER_ERROR_INVALID_ARG,
            "Duplicate label name 'x'");
}

static void wrong_arguments_are_refused(void **state)
{
    struct fixture *f = *state;
    TRITONSERVER_Metric *m;
    TRITONSERVER_MetricArgs *args;
    ok(TRITONSERVER_MetricArgsNew(&args));
    refused(TRITONSERVER_MetricNew(&m, f->histogram, f->labels, 1), TRITONSERVER_ERROR_INVALID_ARG,
            "Bucket boundaries not found in Metric args.");
    refused(TRITONSERVER_MetricNewWithArgs(&m, f->histogram, f->labels, 1, args),
            TRITONSERVER_ERROR_INVALID_ARG, "Metric args not set to histogram kind.");
    refused(TRITONSERVER_MetricNewWithArgs(&m, f->counter, f->labels, 1, args),
            TRITONSERVER_ERROR_INVALID_ARG, "Unexpected args found in counter Metric constructor.");
    static const double wrong[][2] = {{2, 1}, {1, 1}};
    for (size_t i = 0; i < 2; i++) {
        ok(TRITONSERVER_MetricArgsSetHistogram(args, wrong[i], 2));
        refused(TRITONSERVER_MetricNewWithArgs(&m, f->histogram, f->labels, 1, args),
                TRITONSERVER_ERROR_INVALID_ARG, "Bucket Boundaries must be strictly sorted");
    }
    refused(TRITONSERVER_MetricArgsSetHistogram(args, wrong[0], UINT64_MAX),
            TRITONSERVER_ERROR_UNAVAILABLE, "out of memory");
    ok(TRITONSERVER_MetricArgsDelete(args));
}

static void metrics_take_and_give_values(void **state)
{
    struct fixture *f = *state;
    TRITONSERVER_Metric *counter, *gauge, *histogram;
    TRITONSERVER_MetricArgs *args;
    TRITONSERVER_MetricKind kind;
    const double buckets[] = {1, 2};
    double value = 0;

    ok(TRITONSERVER_MetricNew(&counter, f->counter, f->labels, 1));
    refused(TRITONSERVER_MetricIncrement(counter, -1), TRITONSERVER_ERROR_INVALID_ARG,
            "TRITONSERVER_METRIC_KIND_COUNTER can only be incremented monotonically by "
            "non-negative values.");
    refused(TRITONSERVER_MetricSet(counter, 1), TRITONSERVER_ERROR_UNSUPPORTED,
            "TRITONSERVER_METRIC_KIND_COUNTER does not support Set");
    refused(TRITONSERVER_MetricObserve(counter, 1), TRITONSERVER_ERROR_UNSUPPORTED,
            "TRITONSERVER_METRIC_KIND_COUNTER does not support Observe");
    ok(TRITONSERVER_MetricIncrement(counter, 1.5));
    ok(TRITONSERVER_MetricValue(counter, &value));
    assert_true(value == 1.5);

    ok(TRITONSERVER_MetricNew(&gauge, f->gauge, NULL, 0));
    ok(TRITONSERVER_MetricSet(gauge, 5));
    ok(TRITONSERVER_MetricIncrement(gauge, -7));
    ok(TRITONSERVER_MetricValue(gauge, &value));
    assert_true(value == -2);

    ok(TRITONSERVER_MetricArgsNew(&args));
    ok(TRITONSERVER_MetricArgsSetHistogram(args, buckets, 2));
    ok(TRITONSERVER_MetricNewWithArgs(&histogram, f->histogram, f->labels, 1, args));
    ok(TRITONSERVER_MetricArgsDelete(args));
    ok(TRITONSERVER_MetricObserve(histogram, 1.5));
    refused(TRITONSERVER_MetricValue(histogram, &value), TRITONSERVER_ERROR_UNSUPPORTED,
            "TRITONSERVER_METRIC_KIND_HISTOGRAM does not support Value");
    refused(TRITONSERVER_MetricIncrement(histogram, 1), TRITONSERVER_ERROR_UNSUPPORTED,
            "TRITONSERVER_METRIC_KIND_HISTOGRAM does not support Increment");
    refused(TRITONSERVER_MetricSet(histogram, 1), TRITONSERVER_ERROR_UNSUPPORTED,
            "TRITONSERVER_METRIC_KIND_HISTOGRAM does not support Set");
    ok(TRITONSERVER_GetMetricKind(histogram, &kind));
    assert_int_equal(kind, TRITONSERVER_METRIC_KIND_HISTOGRAM);

    refused(TRITONSERVER_MetricFamilyDelete(f->counter), TRITONSERVER_ERROR_INTERNAL,
            "Must call MetricDelete on all dependent metrics before calling MetricFamilyDelete.");
    ok(TRITONSERVER_MetricDelete(counter));
    ok(TRITONSERVER_MetricDelete(gauge));
    ok(TRITONSERVER_MetricDelete(histogram));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(wrong_families_are_refused, open_fixture, close_fixture),
        cmocka_unit_test_setup_teardown(labels_are_validated, open_fixture, close_fixture),
        cmocka_unit_test_setup_teardown(wrong_arguments_are_refused, open_fixture, close_fixture),
        cmocka_unit_test_setup_teardown(metrics_take_and_give_values, open_fixture, close_fixture),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
