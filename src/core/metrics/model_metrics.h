/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a model has for the page of metrics besides its statistics: its labels, and what is measured
 * for the page alone.
 */
#ifndef CONCH_CORE_METRICS_MODEL_METRICS_H
#define CONCH_CORE_METRICS_MODEL_METRICS_H

#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"
#include "core/metrics/histogram.h"

struct model;
struct status;

struct model_metrics {
    /* Set while the model loads, constant afterwards. */
    char *labels; /* _<tag>="…",model="…",namespace="…",version="…", as they are printed */
    size_t head_length; /* of the part in front of version, after which more labels fit in */
    size_t length;
    uint64_t load_ns;                 /* how long loading took */
    struct histogram *first_response; /* ms from request to first response; NULL: not asked for */
};

/*
 * model_metrics_init - sets m->metrics from the finished configuration and the server's options.
 * Once.
 *
 * Errors: STATUS_INVALID_ARG  buckets that do not ascend
 */
NODISCARD struct status *model_metrics_init(struct model *m);
/* model_metrics_done - a model whose metrics were never initialised is fine. */
void model_metrics_done(struct model *m);

#endif
