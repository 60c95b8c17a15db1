/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each bucket counts its own values only; printing adds them up, since Prometheus' buckets are
 * cumulative. All atomics are relaxed: the printed count is the sum of the buckets that were read.
 */
#include "core/metrics/histogram.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "base/mem.h"
#include "base/status.h"
#include "core/metrics/exposition.h"

struct status *histogram_init(struct histogram *h, const double *bounds, size_t n_bounds)
{
    for (size_t i = 0; i < n_bounds; i++) {
        if (isnan(bounds[i]) || (i && bounds[i] <= bounds[i - 1]))
            return status_new(STATUS_INVALID_ARG, "Bucket Boundaries must be strictly sorted");
    }
    *h = (struct histogram){.n_bounds = n_bounds};
    /* The caller chooses their number, and had memory for as many itself. */
    h->bounds = mem_try_alloc((n_bounds + 1) * sizeof(*h->bounds));
    h->counts = mem_try_alloc((n_bounds + 1) * sizeof(*h->counts));
    if (!h->bounds || !h->counts) {
        histogram_done(h);
        return status_no_memory();
    }
    if (n_bounds)
        memcpy(h->bounds, bounds, n_bounds * sizeof(*h->bounds));
    for (size_t i = 0; i <= n_bounds; i++)
        atomic_init(&h->counts[i], 0);
    return NULL;
}

void histogram_done(struct histogram *h)
{
    mem_free(TAKE(h->counts));
    mem_free(TAKE(h->bounds));
}

void histogram_observe(struct histogram *h, double value)
{
    size_t i = 0;
    while (i < h->n_bounds && !(value <= h->bounds[i]))
        i++;
    atomic_fetch_add_explicit(&h->counts[i], 1, memory_order_relaxed);
    double sum = atomic_load_explicit(&h->sum, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&h->sum, &sum, sum + value, memory_order_relaxed,
                                                  memory_order_relaxed))
        ;
}

void histogram_print(const struct histogram *h, const char *name, const char *labels,
                     struct buf *out)
{
    static const double above_all = (double)INFINITY;
    /* Each is read once: the reader adds up the buckets, which gives the count. */
    uint64_t *counts = mem_alloc((h->n_bounds + 1) * sizeof(*counts)), count = 0;
    for (size_t i = 0; i <= h->n_bounds; i++)
        count += counts[i] = atomic_load_explicit(&h->counts[i], memory_order_relaxed);
    exposition_line(out, name, "_count", labels, NULL, (double)count);
    exposition_line(out, name, "_sum", labels, NULL,
                    atomic_load_explicit(&h->sum, memory_order_relaxed));
    count = 0;
    for (size_t i = 0; i <= h->n_bounds; i++) {
        const double *le = i < h->n_bounds ? &h->bounds[i] : &above_all;
        count += counts[i];
        exposition_line(out, name, "_bucket", labels, le, (double)count);
    }
    mem_free(counts);
}
