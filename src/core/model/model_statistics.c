/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The list of instances' counters only grows while any thread has a reference to the model, so such
 * a thread reads it without a lock.
 */
#include "core/model/model_statistics.h"

#include "base/mem_owner.h"
#include "core/model/model.h"

void model_count_failure(struct model *m, enum failure_reason reason, uint64_t took_ns)
{
    /* Relaxed: no thread relies on the order of the two. */
    atomic_fetch_add_explicit(&m->failures.ns, took_ns, memory_order_relaxed);
    atomic_fetch_add_explicit(&m->failures.counts[reason], 1, memory_order_relaxed);
}

void model_count_ensemble(struct model *m, const struct request_ns *ns, uint32_t batch_size)
{
    MEM_CHARGE(m->owner, MEM_CONFIG);
    instance_stats_ensemble(thread_stats_part(&m->thread_stats, &m->statistics), ns, batch_size);
}

void model_totals(const struct model *m, struct statistics *ret)
{
    instance_stats_totals(atomic_load_explicit(&m->statistics, memory_order_acquire), &m->failures,
                          ret);
}

struct status *model_statistics(const struct model *m, struct statistics *ret)
{
    return instance_stats_sums(atomic_load_explicit(&m->statistics, memory_order_acquire),
                               &m->failures, ret);
}
