/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How often values fell into which bucket. Takes no lock: whoever observes adds to one counter and
 * to the sum, whoever prints reads them one by one. So the buckets always agree with the count that
 * is printed with them; the sum may know of a value more.
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
/* histogram_done - one of zeros is fine. */
void histogram_done(struct histogram *h);

void histogram_observe(struct histogram *h, double value);

/* histogram_print - its lines, without those of the family. */
void histogram_print(const struct histogram *h, const char *name, const char *labels,
                     struct buf *out);

#endif
