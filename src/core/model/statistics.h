/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Statistics of what models have executed. Each instance has counters of its own, so that instances
 * do not wait for each other; a reader adds them up. An ensemble has no instances: the threads that
 * end its requests have counters instead.
 *
 * The counters belong to the model, and outlive their instance: a reader only needs a reference to
 * the model.
 *
 * Source: reference/behaviours §16
 */
#ifndef CONCH_CORE_MODEL_STATISTICS_H
#define CONCH_CORE_MODEL_STATISTICS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"
#include "base/mutex.h"
#include "base/stripe.h"
#include "core/model/time_counts.h"

struct status;

enum {
    /* Responses with a higher index than this are counted with it, so that memory stays bounded. */
    MAX_RESPONSE_INDEX = 4095,
    /* Batches of further sizes are counted as executions only: clients choose the sizes. */
    MAX_BATCH_SIZES = 4096,
};

struct duration {
    uint64_t count, ns;
};

/* Why an accepted request has no result; each reason is a metric. */
enum failure_reason {
    FAILURE_REJECTED, /* the request waited too long in the queue */
    FAILURE_CANCELED, /* it was cancelled before it was executed */
    FAILURE_BACKEND,  /* the backend reports the failure */
    FAILURE_OTHER,
    N_FAILURE_REASONS,
};

/* The failures of a model. Any thread that ends a request counts here, without a lock. */
struct failures {
    atomic_uint_fast64_t counts[N_FAILURE_REASONS];
    atomic_uint_fast64_t ns;
};

/* Why a request was not accepted. */
enum refusal_reason {
    REFUSED_INVALID,    /* it does not fit the model, or its sequence */
    REFUSED_QUEUE_FULL, /* as many requests wait as may wait */
    REFUSED_STOPPING,   /* the model is being unloaded, or the server stops */
    REFUSED_OTHER,
    N_REFUSAL_REASONS,
};

/* Executions of batches of one size. */
struct batch_stats {
    uint64_t batch_size, count;
    uint64_t compute_input_ns, compute_infer_ns, compute_output_ns;
};

/* The responses of one index within their requests, as far as the backend reports them. */
struct response_stats {
    struct duration compute_infer, compute_output, success, fail, empty_response, cancel;
};

/* response_stats_reported - has the backend reported anything for that index? */
static inline bool response_stats_reported(const struct response_stats *r)
{
    return r->success.count || r->fail.count || r->empty_response.count || r->cancel.count;
}

struct statistics {
    struct duration success, fail;
    struct duration cache_hit; /* of success: those whose response the cache had */
    struct duration cache_miss;
    uint64_t failures[N_FAILURE_REASONS]; /* fail.count by reason */
    uint64_t queue_ns;                    /* this and the next three: of successful requests */
    uint64_t compute_input_ns, compute_infer_ns, compute_output_ns;
    uint64_t inference_count, execution_count;
    uint64_t last_inference_ms; /* since the epoch; 0 = never */
    uint32_t n_batches, batch_capacity;
    struct batch_stats *batches; /* by size, ascending */
    uint32_t n_responses;
    struct response_stats *responses; /* by index; zeros where the backend has reported nothing */
};

/* statistics_done - frees the lists that statistics_add() and the functions below allocate. */
void statistics_done(struct statistics *s);

/* duration_add - counts one more duration. */
static inline void duration_add(struct duration *d, uint64_t ns)
{
    d->count++;
    d->ns += ns;
}

/*
 * statistics_batch - the line of a batch size, added when there is none. Borrowed.
 *
 * Returns NULL when there are too many sizes, or no memory.
 */
struct batch_stats *statistics_batch(struct statistics *s, uint64_t batch_size);

/* statistics_response - the line of an index up to MAX_RESPONSE_INDEX; NULL: no memory. */
struct response_stats *statistics_response(struct statistics *s, uint32_t index);

/*
 * statistics_add - adds all of `from`.
 *
 * Errors: STATUS_UNAVAILABLE  no memory; `to` is then of use for statistics_done() only
 */
NODISCARD struct status *statistics_add(struct statistics *to, const struct statistics *from);

/* The parts of an execution. */
struct compute_ns {
    uint64_t input, infer, output;
};

/* The time of a request that has succeeded: all of it, and in the queue. */
struct request_ns {
    uint64_t all, queue;
    struct compute_ns compute;
};

/* What the thread that executes an instance counts: of requests, and of batches of one size. */
enum executor_count {
    EXECUTOR_SUCCESSES,
    EXECUTOR_SUCCESS_NS,
    EXECUTOR_QUEUE_NS,
    EXECUTOR_INPUT_NS,
    EXECUTOR_INFER_NS,
    EXECUTOR_OUTPUT_NS,
    EXECUTOR_INFERENCES,
    EXECUTOR_LAST_MS,
    EXECUTOR_BATCH_SIZE,
    EXECUTOR_BATCHES,
    EXECUTOR_BATCH_INPUT_NS,
    EXECUTOR_BATCH_INFER_NS,
    EXECUTOR_BATCH_OUTPUT_NS,
    EXECUTOR_COUNTS
};

/*
 * The counters of one instance. One thread at a time executes it, and counts in `counts` without a
 * lock and without a read-modify-write. A reader reads them again when n_changes shows a change
 * meanwhile. Other threads that report count in `sums`. Counts of all batch sizes but the latest
 * are in `sums`, too.
 */
struct instance_stats {
    /* On cache lines of its own, since each request writes here (mem_zalloc_on_line()). Written by
     * the thread that executes; under mu, too, when the batch size changes. */
    _Alignas(64) atomic_uint_least64_t n_changes; /* odd while `counts` changes */
    atomic_uint_least64_t counts[EXECUTOR_COUNTS];
    char pad_between[64];
    struct time_counts *times; /* of the thread that executes; constant; NULL: none are counted */
    struct mutex mu;           /* level 800 in core/README.md */
    struct statistics sums;    /* under mu */
    struct time_counts *times_of_others; /* under mu; NULL if times is */
    struct instance_stats *next;         /* constant: the next one of the same model */
    atomic_bool is_unused; /* its instance is gone: another one of the model may count in it */
    char pad_after[64];
};

/* executor_counts_begin, executor_counts_end - around executor_add(). Thread: the one that executes
 * the instance. */
static inline void executor_counts_begin(struct instance_stats *part)
{
    uint64_t n = atomic_load_explicit(&part->n_changes, memory_order_relaxed);
    atomic_store_explicit(&part->n_changes, n + 1, memory_order_relaxed);
}

static inline void executor_counts_end(struct instance_stats *part)
{
    uint64_t n = atomic_load_explicit(&part->n_changes, memory_order_relaxed);
    atomic_store_explicit(&part->n_changes, n + 1, memory_order_release);
}

static inline void executor_set(struct instance_stats *part, enum executor_count what, uint64_t n)
{
    /* release: a reader that sees this value then reads n_changes as odd, or changed again. */
    atomic_store_explicit(&part->counts[what], n, memory_order_release);
}

static inline void executor_add(struct instance_stats *part, enum executor_count what, uint64_t n)
{
    executor_set(part, what, n + atomic_load_explicit(&part->counts[what], memory_order_relaxed));
}

/* request_times_add - counts the times of a request by their buckets. @c  NULL: nothing is counted
 */
static inline void request_times_add(struct time_counts *c, const struct request_ns *ns)
{
    if (!c)
        return;
    time_counts_add(c, TIME_OF_REQUEST, ns->all);
    time_counts_add(c, TIME_IN_QUEUE, ns->queue);
    time_counts_add(c, TIME_OF_COMPUTE, ns->compute.input + ns->compute.infer + ns->compute.output);
}

/*
 * executor_batch_size - the batches counted from now on have that size; the counts of the last size
 * are added to the sums. Thread: the one that executes the instance. Takes mu.
 */
void executor_batch_size(struct instance_stats *part, uint64_t batch_size);

/*
 * instance_stats_add - makes the counters of an instance, and puts them into the list; or takes
 * those of an instance that is gone (instance_stats_release()), which go on. The caller says whom
 * their memory is charged to.
 *
 * @counts_times  times are counted by buckets, too
 * Thread: any; instances may be made in parallel.
 */
struct instance_stats *instance_stats_add(_Atomic(struct instance_stats *) *list,
                                          bool counts_times);

/* instance_stats_release - the instance is gone; what it has counted stays in the sums. Thread: the
 * one that has ended the instance. */
void instance_stats_release(struct instance_stats *part);

/*
 * instance_stats_request - counts a request that has succeeded.
 * instance_stats_batch - counts an executed batch that has ended now.
 * instance_stats_ensemble - counts both, of a request of that batch size.
 *
 * Thread: any. Each takes mu.
 */
void instance_stats_request(struct instance_stats *part, const struct request_ns *ns,
                            uint32_t n_inferences);
void instance_stats_batch(struct instance_stats *part, uint64_t batch_size,
                          const struct compute_ns *ns);
void instance_stats_ensemble(struct instance_stats *part, const struct request_ns *ns,
                             uint32_t batch_size);

/*
 * instance_stats_hit - counts a request whose response was found, by a look-up of hit_ns.
 * instance_stats_miss - counts one that was not found, look-up and insertion taking miss_ns. The
 * request itself counts as any other; more_ns is added to its time.
 *
 * Thread: any. Each takes mu.
 */
void instance_stats_hit(struct instance_stats *part, const struct request_ns *ns, uint64_t hit_ns);
void instance_stats_miss(struct instance_stats *part, uint64_t miss_ns, uint64_t more_ns);

/* statistics_now_ms - the wall time for last_inference_ms. Thread: any. */
uint64_t statistics_now_ms(void);

/*
 * Counters of a model without instances: threads that end its requests have one each, as far as
 * their stripes differ (base/stripe.h). They are parts of the model's list, as those of instances.
 */
struct thread_stats {
    _Atomic(struct instance_stats *) parts[STRIPES_MAX]; /* NULL: no thread of it has counted */
};

/*
 * thread_stats_part - this thread's counters, made at its first call. The caller says whom their
 * memory is charged to.
 *
 * @stats  NULL until the first call; the caller frees it with mem_free()
 * @list   of the model
 * @counts_times  as of instance_stats_add()
 * Thread: any.
 */
struct instance_stats *thread_stats_part(_Atomic(struct thread_stats *) *stats,
                                         _Atomic(struct instance_stats *) *list, bool counts_times);

/* instance_stats_free_all - frees the counters of all instances in the list. No instance is left.
 */
void instance_stats_free_all(struct instance_stats *list);

/*
 * instance_stats_totals - sums of the failures and of all in the list, without the lines of batch
 * sizes and responses. So it cannot fail, and *ret needs no statistics_done(). Thread: any.
 */
void instance_stats_totals(struct instance_stats *list, const struct failures *failures,
                           struct statistics *ret);

/*
 * instance_stats_sums - sums with all lines; the caller ends *ret with statistics_done(). Thread:
 * any.
 *
 * Errors: STATUS_UNAVAILABLE  no memory
 */
NODISCARD struct status *instance_stats_sums(struct instance_stats *list,
                                             const struct failures *failures,
                                             struct statistics *ret);

/*
 * instance_stats_times - adds up how many requests are in each bucket of that time. Thread: any.
 */
void instance_stats_times(struct instance_stats *list, enum counted_time which,
                          uint64_t ret_counts[TIME_BUCKETS]);

#endif
