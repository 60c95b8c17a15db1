/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tritonbackend.h: statistics of single responses.
 */
#include "api/handles.h"
#include "base/mem.h"
#include "base/status.h"
#include "core/backend/response_stats.h"

/* The values that a backend sets before it reports. */
struct api_response_stats {
    struct instance *instance;
    struct response_factory *factory;
    struct response_report report;
    bool has_start, has_end;
};

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceResponseStatisticsNew(
    TRITONBACKEND_ModelInstanceResponseStatistics **response_statistics)
{
    NEED(response_statistics);
    *response_statistics = as_response_stats(mem_zalloc(sizeof(struct api_response_stats)));
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceResponseStatisticsDelete(
    TRITONBACKEND_ModelInstanceResponseStatistics *response_statistics)
{
    mem_free(response_statistics);
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceResponseStatisticsSetModelInstance(
    TRITONBACKEND_ModelInstanceResponseStatistics *response_statistics,
    TRITONBACKEND_ModelInstance *model_instance)
{
    NEED(response_statistics);
    to_response_stats(response_statistics)->instance = to_instance(model_instance);
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseFactory(
    TRITONBACKEND_ModelInstanceResponseStatistics *response_statistics,
    TRITONBACKEND_ResponseFactory *response_factory)
{
    NEED(response_statistics);
    to_response_stats(response_statistics)->factory = to_factory(response_factory);
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseStart(
    TRITONBACKEND_ModelInstanceResponseStatistics *response_statistics, uint64_t response_start)
{
    NEED(response_statistics);
    to_response_stats(response_statistics)->report.start_ns = response_start;
    to_response_stats(response_statistics)->has_start = true;
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceResponseStatisticsSetComputeOutputStart(
    TRITONBACKEND_ModelInstanceResponseStatistics *response_statistics,
    uint64_t compute_output_start)
{
    NEED(response_statistics);
    to_response_stats(response_statistics)->report.compute_output_start_ns = compute_output_start;
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseEnd(
    TRITONBACKEND_ModelInstanceResponseStatistics *response_statistics, uint64_t response_end)
{
    NEED(response_statistics);
    to_response_stats(response_statistics)->report.end_ns = response_end;
    to_response_stats(response_statistics)->has_end = true;
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceResponseStatisticsSetError(
    TRITONBACKEND_ModelInstanceResponseStatistics *response_statistics, TRITONSERVER_Error *error)
{
    NEED(response_statistics);
    to_response_stats(response_statistics)->report.outcome =
        !error                                                          ? RESPONSE_SUCCESS
        : TRITONSERVER_ErrorCode(error) == TRITONSERVER_ERROR_CANCELLED ? RESPONSE_CANCEL
                                                                        : RESPONSE_FAIL;
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceReportResponseStatistics(
    TRITONBACKEND_ModelInstanceResponseStatistics *response_statistics)
{
    NEED(response_statistics);
    const struct api_response_stats *s = to_response_stats(response_statistics);
    const char *missing = !s->instance    ? "model instance"
                          : !s->factory   ? "response factory"
                          : !s->has_start ? "response start"
                          : !s->has_end   ? "response end"
                                          : NULL;
    if (missing)
        return as_status(
            status_new(STATUS_INVALID_ARG, "response statistics lack the %s", missing));
    return as_status(instance_report_response(s->instance, s->factory->request, &s->report));
}
