/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tokens - a backend that has the metric by which a language model's backend tells how full its
 * cache is: 10 of at most 40 blocks are used, of 64 tokens each. It answers each request by an
 * error.
 */
#include <stdlib.h>

#include "triton/core/tritonbackend.h"

enum { N_METRICS = 3 };

struct tokens {
    TRITONSERVER_MetricFamily *family;
    TRITONSERVER_Metric *metrics[N_METRICS];
};

static void must(TRITONSERVER_Error *err)
{
    if (err)
        abort();
}

static TRITONSERVER_Metric *new_metric(TRITONSERVER_MetricFamily *family, const char *type,
                                       double value)
{
    TRITONSERVER_Metric *metric;
    TRITONSERVER_Parameter *labels[] = {
        TRITONSERVER_ParameterNew("model", TRITONSERVER_PARAMETER_STRING, "tokens"),
        TRITONSERVER_ParameterNew("kv_cache_block_type", TRITONSERVER_PARAMETER_STRING, type)};
    const TRITONSERVER_Parameter *given[] = {labels[0], labels[1]};
    must(TRITONSERVER_MetricNew(&metric, family, given, 2));
    must(TRITONSERVER_MetricSet(metric, value));
    TRITONSERVER_ParameterDelete(labels[0]);
    TRITONSERVER_ParameterDelete(labels[1]);
    return metric;
}

TRITONSERVER_Error *TRITONBACKEND_ModelInitialize(TRITONBACKEND_Model *model)
{
    struct tokens *t = calloc(1, sizeof(*t));
    must(TRITONSERVER_MetricFamilyNew(&t->family, TRITONSERVER_METRIC_KIND_GAUGE,
                                      "nv_trt_llm_kv_cache_block_metrics", "blocks of a cache"));
    t->metrics[0] = new_metric(t->family, "tokens_per", 64);
    t->metrics[1] = new_metric(t->family, "used", 10);
    t->metrics[2] = new_metric(t->family, "max", 40);
    must(TRITONBACKEND_ModelSetState(model, t));
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelFinalize(TRITONBACKEND_Model *model)
{
    void *state;
    must(TRITONBACKEND_ModelState(model, &state));
    struct tokens *t = state;
    for (int i = 0; i < N_METRICS; i++)
        must(TRITONSERVER_MetricDelete(t->metrics[i]));
    must(TRITONSERVER_MetricFamilyDelete(t->family));
    free(t);
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceExecute(TRITONBACKEND_ModelInstance *instance,
                                                       TRITONBACKEND_Request **requests,
                                                       const uint32_t request_count)
{
    return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_UNSUPPORTED, "has metrics only");
}
