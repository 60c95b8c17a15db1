/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prometheus' text format 0.0.4, line by line:
 *
 *     # HELP name what it is
 *     # TYPE name counter
 *     name{label="value",…} 12
 *
 * The text is UTF-8. A byte that is not valid UTF-8 is written as \xHH, so that different names
 * stay different. Source: reference/behaviours §16.13
 */
#ifndef CONCH_CORE_METRICS_EXPOSITION_H
#define CONCH_CORE_METRICS_EXPOSITION_H

#include <stdbool.h>

struct buf;

/* The values are those of TRITONSERVER_MetricKind. */
enum metric_kind { METRIC_COUNTER, METRIC_GAUGE, METRIC_HISTOGRAM };

/* exposition_family - prints the two lines in front of the metrics of a family. */
void exposition_family(struct buf *out, const char *name, const char *help, enum metric_kind kind);

/* exposition_label - prints name="value", escaped, after a comma unless it is the first. */
void exposition_label(struct buf *out, bool first, const char *name, const char *value);

/*
 * exposition_line - prints a line: name, suffix, labels, value.
 *
 * @labels  as exposition_label() writes them, "" for none
 * @le      one more label: the upper bound of a bucket; NULL for none
 */
void exposition_line(struct buf *out, const char *name, const char *suffix, const char *labels,
                     const double *le, double value);

/* exposition_number - prints an integer if that is exact, else as many digits as are needed. */
void exposition_number(struct buf *out, double value);

#endif
