/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tritonserver.h: the page of metrics, and metrics that backends and embedders define.
 */
#include <string.h>

#include "api/handles.h"
#include "base/buf.h"
#include "base/mem.h"
#include "base/status.h"
#include "core/metrics/family.h"
#include "core/request/request.h"
#include "core/server/server.h"

enum { MAX_PAGE_BYTES = INT32_MAX };

/* This is TRITONSERVER_Metrics: the server, and its last page. */
struct metrics_page {
    struct server *server;
    struct buf text;
};

HANDLE(TRITONSERVER_Metrics, struct metrics_page, page)
HANDLE(TRITONSERVER_MetricFamily, struct metric_family, family)
HANDLE(TRITONSERVER_Metric, struct metric, metric)
HANDLE(TRITONSERVER_MetricArgs, struct metric_args, args)

_Static_assert((int)METRIC_HISTOGRAM == (int)TRITONSERVER_METRIC_KIND_HISTOGRAM, "kinds");

TRITONSERVER_Error *TRITONSERVER_ServerMetrics(TRITONSERVER_Server *server,
                                               TRITONSERVER_Metrics **metrics)
{
    NEED(server);
    NEED(metrics);
    struct metrics_page *page = mem_zalloc(sizeof(*page));
    page->server = to_server(server);
    buf_init(&page->text, MAX_PAGE_BYTES);
    *metrics = as_page(page);
    return NULL;
}

TRITONSERVER_Error *TRITONSERVER_MetricsDelete(TRITONSERVER_Metrics *metrics)
{
    if (metrics)
        buf_done(&to_page(metrics)->text);
    mem_free(metrics);
    return NULL;
}

TRITONSERVER_Error *TRITONSERVER_MetricsFormatted(TRITONSERVER_Metrics *metrics,
                                                  TRITONSERVER_MetricFormat format,
                                                  const char **base, size_t *byte_size)
{
    NEED(metrics);
    NEED(base);
    NEED(byte_size);
    struct metrics_page *page = to_page(metrics);
    if (format != TRITONSERVER_METRIC_PROMETHEUS)
        return as_status(
            status_new(STATUS_INVALID_ARG, "unknown metrics format '%d'", (int)format));
    buf_reset(&page->text);
    struct status *st = server_metrics(page->server, &page->text);
    if (!st) {
        *base = buf_text(&page->text);
        *byte_size = page->text.size;
    }
    return as_status(st);
}

TRITONSERVER_Error *TRITONSERVER_MetricFamilyNew(TRITONSERVER_MetricFamily **family,
                                                 const TRITONSERVER_MetricKind kind,
                                                 const char *name, const char *description)
{
    struct metric_family *f;
    NEED(family);
    NEED(name);
    NEED(description);
    struct status *st = metric_family_new((enum metric_kind)kind, name, description, &f);
    if (!st)
        *family = as_family(f);
    return as_status(st);
}

TRITONSERVER_Error *TRITONSERVER_MetricFamilyDelete(TRITONSERVER_MetricFamily *family)
{
    NEED(family);
    return as_status(metric_family_free(to_family(family)));
}

TRITONSERVER_Error *TRITONSERVER_GetMetricFamilyKind(TRITONSERVER_MetricFamily *family,
                                                     TRITONSERVER_MetricKind *kind)
{
    NEED(family);
    NEED(kind);
    *kind = (TRITONSERVER_MetricKind)metric_family_kind(to_family(family));
    return NULL;
}

TRITONSERVER_Error *TRITONSERVER_MetricArgsNew(TRITONSERVER_MetricArgs **args)
{
    NEED(args);
    *args = as_args(mem_zalloc(sizeof(struct metric_args)));
    return NULL;
}

TRITONSERVER_Error *TRITONSERVER_MetricArgsSetHistogram(TRITONSERVER_MetricArgs *args,
                                                        const double *buckets,
                                                        const uint64_t buckets_count)
{
    NEED(args);
    if (buckets_count)
        NEED(buckets);
    size_t size_bytes;
    double *copy = NULL;
    if (!__builtin_mul_overflow(buckets_count, sizeof(*buckets), &size_bytes))
        copy = mem_try_alloc(MAX(size_bytes, sizeof(*buckets)));
    if (!copy)
        return as_status(status_no_memory());
    if (size_bytes)
        memcpy(copy, buckets, size_bytes);
    mem_free(to_args(args)->buckets);
    *to_args(args) = (struct metric_args){
        .is_histogram = true, .n_buckets = (size_t)buckets_count, .buckets = copy};
    return NULL;
}

TRITONSERVER_Error *TRITONSERVER_MetricArgsDelete(TRITONSERVER_MetricArgs *args)
{
    if (args)
        mem_free(to_args(args)->buckets);
    mem_free(args);
    return NULL;
}

TRITONSERVER_Error *TRITONSERVER_MetricNewWithArgs(TRITONSERVER_Metric **metric,
                                                   TRITONSERVER_MetricFamily *family,
                                                   const TRITONSERVER_Parameter **labels,
                                                   const uint64_t label_count,
                                                   const TRITONSERVER_MetricArgs *args)
{
    struct metric *m;
    size_t size_bytes;
    NEED(metric);
    NEED(family);
    if (label_count)
        NEED(labels);
    struct metric_label *list = NULL;
    if (!__builtin_mul_overflow(label_count, sizeof(*list), &size_bytes))
        list = mem_try_alloc(MAX(size_bytes, sizeof(*list)));
    if (!list)
        return as_status(status_no_memory());

    struct status *st = NULL;
    for (uint64_t i = 0; i < label_count && !st; i++) {
        const struct parameter *p = parameter_of(labels[i]);
        if (p->type != PARAMETER_STRING)
            st =
                status_new(STATUS_INVALID_ARG,
                           "Parameter [%s] must have a type of TRITONSERVER_PARAMETER_STRING to be "
                           "added as a label.",
                           p->name);
        else
            list[i] = (struct metric_label){.name = p->name, .value = p->string};
    }
    if (!st)
        st = metric_new(to_family(family), list, (size_t)label_count,
                        (const struct metric_args *)args, &m);
    mem_free(list);
    if (!st)
        *metric = as_metric(m);
    return as_status(st);
}

TRITONSERVER_Error *TRITONSERVER_MetricNew(TRITONSERVER_Metric **metric,
                                           TRITONSERVER_MetricFamily *family,
                                           const TRITONSERVER_Parameter **labels,
                                           const uint64_t label_count)
{
    return TRITONSERVER_MetricNewWithArgs(metric, family, labels, label_count, NULL);
}

TRITONSERVER_Error *TRITONSERVER_MetricDelete(TRITONSERVER_Metric *metric)
{
    NEED(metric);
    metric_free(to_metric(metric));
    return NULL;
}

TRITONSERVER_Error *TRITONSERVER_MetricValue(TRITONSERVER_Metric *metric, double *value)
{
    NEED(metric);
    NEED(value);
    return as_status(metric_value(to_metric(metric), value));
}

TRITONSERVER_Error *TRITONSERVER_MetricIncrement(TRITONSERVER_Metric *metric, double value)
{
    NEED(metric);
    return as_status(metric_increment(to_metric(metric), value));
}

TRITONSERVER_Error *TRITONSERVER_MetricSet(TRITONSERVER_Metric *metric, double value)
{
    NEED(metric);
    return as_status(metric_set(to_metric(metric), value));
}

TRITONSERVER_Error *TRITONSERVER_MetricObserve(TRITONSERVER_Metric *metric, double value)
{
    NEED(metric);
    return as_status(metric_observe(to_metric(metric), value));
}

TRITONSERVER_Error *TRITONSERVER_GetMetricKind(TRITONSERVER_Metric *metric,
                                               TRITONSERVER_MetricKind *kind)
{
    NEED(metric);
    NEED(kind);
    *kind = (TRITONSERVER_MetricKind)metric_kind(to_metric(metric));
    return NULL;
}
