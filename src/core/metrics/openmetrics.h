/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The page of metrics in the format OpenMetrics 1.0, for scrapers that ask for it. The lines of
 * metrics are the same in both formats, so that a metric keeps its name and its labels whichever
 * format a scraper asks for. OpenMetrics wants names of counters that end with _total; a counter
 * with another name, as Triton's are, has the type `unknown`.
 */
#ifndef CONCH_CORE_METRICS_OPENMETRICS_H
#define CONCH_CORE_METRICS_OPENMETRICS_H

#include <stddef.h>

struct buf;

/* openmetrics_write - writes a page of the text format (exposition.h) in this format. */
void openmetrics_write(const char *page, size_t length, struct buf *out);

#endif
