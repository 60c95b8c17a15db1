/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The page of metrics: what a server knows of its models and of the machine, then what backends and
 * embedders have defined. Nothing is counted for it alone but what model_metrics.h has; the rest
 * are the statistics, read when somebody asks.
 *
 * Source: reference/features §5, reference/behaviours §16
 */
#ifndef CONCH_CORE_METRICS_PAGE_H
#define CONCH_CORE_METRICS_PAGE_H

#include <stdbool.h>

#include "base/compiler.h"

struct buf;
struct server;
struct status;

#define FIRST_RESPONSE_FAMILY "nv_inference_first_response_histogram_ms"

/*
 * page_print - the whole page; see server_metrics().
 *
 * Thread: any. Takes instance.stats.mu of one instance after the other, each for a few additions.
 */
NODISCARD struct status *page_print(struct server *s, struct buf *out);

/* page_has_family - is the name one of the server's own, which nobody else may define? */
bool page_has_family(const char *name);

#endif
