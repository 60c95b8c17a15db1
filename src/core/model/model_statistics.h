/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a model has counted: the counters of its instances, or of the threads that end its requests
 * (statistics.h), and its failures.
 */
#ifndef CONCH_CORE_MODEL_MODEL_STATISTICS_H
#define CONCH_CORE_MODEL_MODEL_STATISTICS_H

#include <stdint.h>

#include "base/compiler.h"
#include "core/model/statistics.h"

struct model;
struct status;

/*
 * model_count_failure - counts an accepted request that ends without success after took_ns.
 * request_fail_queued() calls it for requests that no backend has.
 *
 * Thread: any. Takes no lock.
 */
void model_count_failure(struct model *m, enum failure_reason reason, uint64_t took_ns);

/* model_count_refusal - counts a request that is not accepted. Thread: any. */
void model_count_refusal(struct model *m, enum refusal_reason reason);

/*
 * model_count_ensemble - counts a request of an ensemble that has succeeded, as one request and as
 * one execution.
 *
 * @batch_size  1 for a model without batching, too
 * Thread: any that has a reference to the model. Takes a lock of this thread's own.
 */
void model_count_ensemble(struct model *m, const struct request_ns *ns, uint32_t batch_size);

/*
 * model_count_cache_hit - counts a request whose response the cache had.
 * model_count_cache_miss - counts one whose response the cache did not have, when it is kept.
 *
 * Thread: any that has a reference to the model. Takes a lock of this thread's own.
 */
void model_count_cache_hit(struct model *m, const struct request_ns *ns, uint64_t look_up_ns);
void model_count_cache_miss(struct model *m, uint64_t look_up_ns, uint64_t insert_ns);

/*
 * model_times - adds up how many successful requests are in each bucket of that time.
 *
 * Thread: any that has a reference to the model.
 */
void model_times(const struct model *m, enum counted_time which, uint64_t ret_counts[TIME_BUCKETS]);

/*
 * model_totals - adds up the counters of all instances, without the lines of batch sizes and
 * responses. So it cannot fail, and *ret needs no statistics_done().
 *
 * Thread: any that has a reference to the model.
 */
void model_totals(const struct model *m, struct statistics *ret);

/*
 * model_statistics - adds up the counters of all instances; the caller ends *ret with
 * statistics_done().
 *
 * Thread: any that has a reference to the model.
 * Errors: STATUS_UNAVAILABLE  no memory
 */
NODISCARD struct status *model_statistics(const struct model *m, struct statistics *ret);

#endif
