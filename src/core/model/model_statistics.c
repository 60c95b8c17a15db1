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

void model_count_refusal(struct model *m, enum refusal_reason reason)
{
    atomic_fetch_add_explicit(&m->refusals[reason], 1, memory_order_relaxed);
}

/* The counters of this thread. */
static struct instance_stats *part_of_thread(struct model *m)
{
    MEM_CHARGE(m->owner, MEM_CONFIG);
    return thread_stats_part(&m->thread_stats, &m->statistics, m->metrics.has_histograms);
}

void model_count_ensemble(struct model *m, const struct request_ns *ns, uint32_t batch_size)
{
    instance_stats_ensemble(part_of_thread(m), ns, batch_size);
}

void model_count_cache_hit(struct model *m, const struct request_ns *ns, uint64_t look_up_ns)
{
    instance_stats_hit(part_of_thread(m), ns, look_up_ns);
}

void model_count_cache_miss(struct model *m, uint64_t look_up_ns, uint64_t insert_ns)
{
    instance_stats_miss(part_of_thread(m), look_up_ns + insert_ns, insert_ns);
}

void model_times(const struct model *m, enum counted_time which, uint64_t ret_counts[TIME_BUCKETS])
{
    instance_stats_times(atomic_load_explicit(&m->statistics, memory_order_acquire), which,
                         ret_counts);
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
