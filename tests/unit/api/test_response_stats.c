/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A backend's reports of single responses.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "api/handles.h"
#include "core/backend/response_stats.h"
#include "core/model/statistics.h"
#include "lib/fake_model.h"
#include "triton/core/tritonbackend.h"

static const char config[] = "input { name: \"A\" data_type: TYPE_FP32 dims: [ 1 ] }\n"
                             "output { name: \"X\" data_type: TYPE_FP32 dims: [ 1 ] }\n";

static void ok(TRITONSERVER_Error *error)
{
    if (error)
        fail_msg("%s", TRITONSERVER_ErrorMessage(error));
}

static void refused(TRITONSERVER_Error *error, const char *text)
{
    assert_non_null(error);
    assert_int_equal(TRITONSERVER_ErrorCode(error), TRITONSERVER_ERROR_INVALID_ARG);
    assert_string_equal(TRITONSERVER_ErrorMessage(error), text);
    TRITONSERVER_ErrorDelete(error);
}

static TRITONBACKEND_ModelInstanceResponseStatistics *stats;
static struct instance *instance;

static void report(uint64_t start, uint64_t output_start, uint64_t end, TRITONSERVER_Error *error,
                   const char *expected)
{
    ok(TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseStart(stats, start));
    ok(TRITONBACKEND_ModelInstanceResponseStatisticsSetComputeOutputStart(stats, output_start));
    ok(TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseEnd(stats, end));
    ok(TRITONBACKEND_ModelInstanceResponseStatisticsSetError(stats, error));
    TRITONSERVER_Error *told = TRITONBACKEND_ModelInstanceReportResponseStatistics(stats);
    if (expected)
        refused(told, expected);
    else
        ok(told);
}

static void is(const struct duration *d, uint64_t count, uint64_t ns)
{
    assert_int_equal(d->count, count);
    assert_int_equal(d->ns, ns);
}

static struct status *execute(struct instance *in, struct request **requests, uint32_t n)
{
    instance = in;
    assert_int_equal(n, 1);
    TRITONBACKEND_ResponseFactory *factory, *other;
    TRITONBACKEND_Request *request = as_request(requests[0]);
    TRITONSERVER_Error *failed = TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INTERNAL, "x");
    TRITONSERVER_Error *cancelled = TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_CANCELLED, "x");

    refused(TRITONBACKEND_ModelInstanceReportResponseStatistics(stats),
            "response statistics lack the model instance");
    ok(TRITONBACKEND_ModelInstanceResponseStatisticsSetModelInstance(stats, as_instance(in)));
    refused(TRITONBACKEND_ModelInstanceReportResponseStatistics(stats),
            "response statistics lack the response factory");
    ok(TRITONBACKEND_ResponseFactoryNew(&factory, request));
    ok(TRITONBACKEND_ResponseFactoryNew(&other, request));
    ok(TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseFactory(stats, factory));
    refused(TRITONBACKEND_ModelInstanceReportResponseStatistics(stats),
            "response statistics lack the response start");
    ok(TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseStart(stats, 1));
    refused(TRITONBACKEND_ModelInstanceReportResponseStatistics(stats),
            "response statistics lack the response end");

    report(100, 130, 150, NULL, NULL); /* index 0 */
    report(100, 0, 105, NULL, NULL);   /* 1: empty */
    report(100, 110, 120, failed, NULL);
    ok(TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseFactory(stats, other));
    report(100, 0, 109, failed, NULL);    /* 3: all factories of a request share one count */
    report(100, 0, 107, cancelled, NULL); /* 4 */
    report(131, 130, 150, NULL, "Response start cannot happen after compute output start");
    report(100, 151, 150, NULL, "Compute output start cannot happen after response end");
    report(151, 0, 150, NULL, "Response start cannot happen after response end");
    /* What is refused has taken the indices 5 to 7. */
    report(100, 150, 150, failed, NULL);              /* 8: outputs without a time */
    report(100, 99, 103, cancelled, NULL);            /* 9: its outputs are not looked at */
    for (int i = 10; i < MAX_RESPONSE_INDEX + 3; i++) /* the last three share one count */
        report(100, 0, 101, NULL, NULL);

    TRITONBACKEND_State *state;
    int64_t shape = 1;
    refused(TRITONBACKEND_StateNew(&state, request, "S", TRITONSERVER_TYPE_FP32, &shape, 1),
            "unable to add state 'S'. State configuration is missing for model 'm'.");
    refused(TRITONBACKEND_StateUpdate(NULL), "TRITONBACKEND_StateUpdate: 'state' was nullptr");

    TRITONSERVER_ErrorDelete(failed);
    TRITONSERVER_ErrorDelete(cancelled);
    ok(TRITONBACKEND_ResponseFactoryDelete(other));
    ok(TRITONBACKEND_ResponseFactoryDelete(factory));
    fake_answer(requests[0]);
    return NULL;
}

static void responses_are_counted_by_their_index(void **state)
{
    (void)state;
    struct fake_model f;
    struct fake_request fr;
    struct input *in;
    int64_t one = 1;
    static const float value = 1;
    struct tensor_buffer data = {.base = &value, .size_bytes = sizeof(value)};
    fake_model_make(&f, config, 1, execute);
    ok(TRITONBACKEND_ModelInstanceResponseStatisticsNew(&stats));
    fake_request_make(&fr, &f);
    assert_null(request_add_input(&fr.request, "A", 1, DTYPE_FP32, &one, 1, &in));
    assert_null(request_add_data(&fr.request, in, &data));
    assert_null(server_infer(&f.server, &fr.request));
    fake_request_wait(&fr);

    const struct response_stats *s = instance->stats->sums.responses;
    assert_int_equal(instance->stats->sums.n_responses, MAX_RESPONSE_INDEX + 1);
    is(&s[0].success, 1, 50);
    is(&s[0].compute_infer, 1, 30);
    is(&s[0].compute_output, 1, 20);
    is(&s[0].empty_response, 0, 0);
    is(&s[1].empty_response, 1, 5);
    is(&s[1].compute_infer, 1, 5);
    is(&s[1].compute_output, 0, 0);
    is(&s[1].success, 0, 0);
    is(&s[2].fail, 1, 20);
    is(&s[2].compute_infer, 1, 10);
    is(&s[2].compute_output, 1, 10);
    is(&s[3].fail, 1, 9);
    is(&s[3].compute_infer, 1, 9);
    is(&s[3].compute_output, 0, 0);
    is(&s[4].cancel, 1, 7);
    is(&s[4].compute_infer, 0, 0);
    for (int i = 5; i < 8; i++)
        assert_false(response_stats_reported(&s[i]));
    is(&s[8].fail, 1, 50);
    is(&s[8].compute_infer, 1, 50);
    is(&s[8].compute_output, 0, 0);
    is(&s[9].cancel, 1, 3);
    is(&s[MAX_RESPONSE_INDEX - 1].empty_response, 1, 1);
    is(&s[MAX_RESPONSE_INDEX].empty_response, 3, 3);

    fake_model_end(&f);
    fake_request_end(&fr);
    ok(TRITONBACKEND_ModelInstanceResponseStatisticsDelete(stats));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(responses_are_counted_by_their_index)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
