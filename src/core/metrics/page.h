/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The page of metrics: those of the server's models and of the machine, then those that backends
 * and embedders have defined. Only model_metrics.h has measurements for the page alone; all else is
 * read from the statistics when the page is printed.
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

/* page_has_family - is the name one of the server's own, which backends and embedders must not
 * define? */
bool page_has_family(const char *name);

#endif
