/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Metrics that backends and embedders define: a family is a name with a kind, its metrics differ in
 * their labels. They belong to the process, not to a server, as in the reference.
 *
 * What callers hold are handles. Families of one name are one, and metrics of one family with the
 * same labels are one, whoever asked for them; they go with their last handle.
 *
 * Thread: any, for all functions. One lock guards the families; values are atomic.
 * Source: TRITONSERVER_MetricFamily… and TRITONSERVER_Metric…;
 *         reference/features §7.1, reference/behaviours §16.16
 */
#ifndef CONCH_CORE_METRICS_FAMILY_H
#define CONCH_CORE_METRICS_FAMILY_H

#include <stdbool.h>
#include <stddef.h>

#include "base/compiler.h"
#include "core/metrics/exposition.h"

struct buf;
struct metric;
struct metric_family;
struct status;

struct metric_label {
    const char *name, *value;
};

/* What a metric needs besides labels: a histogram its buckets. */
struct metric_args {
    bool is_histogram; /* the buckets have been set */
    size_t n_buckets;
    double *buckets; /* upper bounds, ascending; the one above them all is not named */
};

/*
 * metric_family_new - a handle on the family of that name.
 *
 * Errors: STATUS_INVALID_ARG  no such kind; the name is none for a metric, or is that of a family
 *                             of another kind or of the server's own
 */
NODISCARD struct status *metric_family_new(enum metric_kind kind, const char *name,
                                           const char *description,
                                           struct metric_family **ret_family);

/*
 * metric_family_free - ends a handle.
 *
 * Errors: STATUS_INTERNAL  metrics were made by it that are still there; nothing is ended
 */
NODISCARD struct status *metric_family_free(struct metric_family *family);

enum metric_kind metric_family_kind(const struct metric_family *family);

/*
 * metric_new - a handle on the metric with these labels.
 *
 * @labels  copied; their order does not matter
 * @args    of a histogram, copied; NULL for other kinds
 * Errors: STATUS_INVALID_ARG  a label's name is none, or comes twice; a histogram without buckets,
 *                             or buckets that do not ascend; buckets for another kind
 */
NODISCARD struct status *metric_new(struct metric_family *family, const struct metric_label *labels,
                                    size_t n_labels, const struct metric_args *args,
                                    struct metric **ret_metric);
void metric_free(struct metric *metric);

enum metric_kind metric_kind(const struct metric *metric);

/*
 * metric_value, metric_increment, metric_set, metric_observe
 *
 * Errors: STATUS_UNSUPPORTED  the kind has no such thing
 *         STATUS_INVALID_ARG  less than 0 to a counter
 */
NODISCARD struct status *metric_value(const struct metric *metric, double *ret_value);
NODISCARD struct status *metric_increment(struct metric *metric, double value);
NODISCARD struct status *metric_set(struct metric *metric, double value);
NODISCARD struct status *metric_observe(struct metric *metric, double value);

/* metric_families_print - all of them in Prometheus' text format, sorted by name and labels. */
void metric_families_print(struct buf *out);

/* metric_families_sort_steps - how often two names or labels were compared for their order so far.
 * For tests. */
size_t metric_families_sort_steps(void);

#endif
