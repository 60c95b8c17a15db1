/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Metrics that backends and embedders define: a family is a name with a kind, its metrics differ in
 * their labels. They belong to the process, not to a server, as in the reference.
 *
 * Callers hold handles. All handles on families of the same name lead to one family; all handles on
 * metrics of one family with the same labels lead to one metric. The last handle frees it.
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

/* What a metric needs besides labels: the buckets of a histogram. */
struct metric_args {
    bool is_histogram; /* the buckets have been set */
    size_t n_buckets;
    double *buckets; /* upper bounds, ascending; without the last bucket, which has no bound */
};

/*
 * metric_family_new - a handle on the family of that name, which is made if there is none. The
 * caller ends it with metric_family_free().
 *
 * Errors: STATUS_INVALID_ARG  no such kind; no metric may have that name; a family of another kind,
 *                             or one of the server's own, has it
 */
NODISCARD struct status *metric_family_new(enum metric_kind kind, const char *name,
                                           const char *description,
                                           struct metric_family **ret_family);

/*
 * metric_family_free - ends a handle.
 *
 * Errors: STATUS_INTERNAL  metrics that were made with this handle still exist; the handle stays
 */
NODISCARD struct status *metric_family_free(struct metric_family *family);

enum metric_kind metric_family_kind(const struct metric_family *family);

/*
 * metric_new - a handle on the metric with these labels, which is made if there is none. The caller
 * ends it with metric_free().
 *
 * @labels  copied; their order does not matter
 * @args    of a histogram, copied; NULL for other kinds
 * Errors: STATUS_INVALID_ARG  no label may have that name, or it comes twice; a histogram without
 *                             buckets, or buckets that do not ascend; buckets for another kind
 */
NODISCARD struct status *metric_new(struct metric_family *family, const struct metric_label *labels,
                                    size_t n_labels, const struct metric_args *args,
                                    struct metric **ret_metric);
void metric_free(struct metric *metric);

enum metric_kind metric_kind(const struct metric *metric);

/*
 * metric_value, metric_increment, metric_set, metric_observe
 *
 * Errors: STATUS_UNSUPPORTED  metrics of that kind do not have this function
 *         STATUS_INVALID_ARG  a counter is to be changed by less than 0
 */
NODISCARD struct status *metric_value(const struct metric *metric, double *ret_value);
NODISCARD struct status *metric_increment(struct metric *metric, double value);
NODISCARD struct status *metric_set(struct metric *metric, double value);
NODISCARD struct status *metric_observe(struct metric *metric, double value);

/* metric_families_print - prints all families in Prometheus' text format, sorted by name and
 * labels.
 */
void metric_families_print(struct buf *out);

/*
 * metric_family_visit - calls visit() for each counter or gauge of the family, in no order; not at
 * all when there is no such family. visit() must not call functions of this file.
 *
 * @labels  as they are printed: `a="1",b="2"`, sorted
 */
void metric_family_visit(const char *name,
                         void (*visit)(void *arg, const char *labels, double value), void *arg);

/*
 * metric_families_reserve - names for which is_reserved(name) is true are the server's own: no
 * family gets one. Thread: the one that loads the library.
 */
void metric_families_reserve(bool (*is_reserved)(const char *name));

/* metric_families_sort_steps - how many comparisons sorting has taken so far. For tests. */
size_t metric_families_sort_steps(void);

#endif
