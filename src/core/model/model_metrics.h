/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a model has for the page of metrics besides its statistics: its labels, and what is measured
 * for the page alone.
 */
#ifndef CONCH_CORE_MODEL_MODEL_METRICS_H
#define CONCH_CORE_MODEL_MODEL_METRICS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"
#include "core/metrics/histogram.h"
#include "proto/model_config.pb-c.h"

struct status;

#define FIRST_RESPONSE_FAMILY "nv_inference_first_response_histogram_ms"

struct model_metrics {
    /* Set while the model loads, constant afterwards. */
    char *labels; /* _<tag>="…",model="…",namespace="…",version="…", as they are printed */
    size_t head_length; /* of the part in front of version, after which more labels fit in */
    size_t length;
    bool has_histograms;              /* of times and batch sizes */
    uint64_t load_ns;                 /* how long loading took */
    struct histogram *first_response; /* ms from request to first response; NULL: not asked for */
};

/* What they are made of. */
struct model_metrics_facts {
    const char *name, *version_text;
    const char *repository; /* the value of the label `namespace`; NULL: there is no such label */
    const Inference__ModelConfig *config; /* the finished configuration */
    bool histogram;                       /* first responses are measured */
    bool times;                           /* histograms of times and batch sizes */
};

/*
 * model_metrics_init - once; the caller says whom the memory is charged to.
 *
 * Errors: STATUS_INVALID_ARG  buckets that do not ascend
 */
NODISCARD struct status *model_metrics_init(struct model_metrics *metrics,
                                            const struct model_metrics_facts *facts);
/* model_metrics_done - a model whose metrics were never initialised is fine. */
void model_metrics_done(struct model_metrics *metrics);

#endif
