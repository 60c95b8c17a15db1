/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A histogram counts values by buckets. It takes no lock: an observing thread adds to one counter
 * and to the sum; a printing thread reads them one by one. So the printed buckets and the printed
 * count always agree; the sum may already have further values.
 *
 * Thread: any, for observing and printing.
 */
#ifndef CONCH_CORE_METRICS_HISTOGRAM_H
#define CONCH_CORE_METRICS_HISTOGRAM_H

#include <stdatomic.h>
#include <stddef.h>

#include "base/compiler.h"

struct buf;
struct status;

struct histogram {
    /* Set by histogram_init(), constant afterwards. */
    size_t n_bounds;
    double *bounds; /* upper ones, ascending; the bucket above them all has none */

    atomic_uint_fast64_t *counts; /* n_bounds + 1 */
    _Atomic double sum;
};

/* Errors: STATUS_INVALID_ARG  bounds that do not ascend; STATUS_UNAVAILABLE  no memory */
NODISCARD struct status *histogram_init(struct histogram *h, const double *bounds, size_t n_bounds);
/* histogram_done - frees the content. A histogram of zeros is fine. */
void histogram_done(struct histogram *h);

void histogram_observe(struct histogram *h, double value);

/* histogram_print - prints its lines, without those of the family. */
void histogram_print(const struct histogram *h, const char *name, const char *labels,
                     struct buf *out);

#endif
