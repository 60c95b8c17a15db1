/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Three layers, each built on the one before. `struct statistics` is plain arithmetic of one
 * thread: lines by batch size and by response, and sums. `struct instance_stats` is what one
 * instance counts. The sums over the instances of a model, plus its failures, are made anew for
 * each question.
 *
 * The thread that executes an instance writes `counts` without a lock; `n_changes` is odd
 * meanwhile, and a reader that sees it odd, or changed, reads again. All other threads write
 * `sums` under the mutex. The list of a model's parts only grows, so readers walk it without a
 * lock.
 */
#include "core/model/statistics.h"

#include <sched.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/search.h"
#include "base/status.h"

enum { STATS_LEVEL = 800, FIRST_BATCHES = 4 };

void statistics_done(struct statistics *s)
{
    mem_free(TAKE(s->batches));
    mem_free(TAKE(s->responses));
    s->n_batches = s->batch_capacity = s->n_responses = 0;
}

/* ---- Lines ---------------------------------------------------------------------------------- */

static bool is_smaller_batch(const void *line, const void *batch_size)
{
    return ((const struct batch_stats *)line)->batch_size < *(const uint64_t *)batch_size;
}

/* Returns the position of the size, or where it belongs. */
static uint32_t find_batch_position(const struct statistics *s, uint64_t batch_size)
{
    return (uint32_t)lower_bound(s->batches, s->n_batches, sizeof(s->batches[0]), is_smaller_batch,
                                 &batch_size);
}

static bool grow_batches(struct statistics *s)
{
    if (s->n_batches < s->batch_capacity)
        return true;
    uint32_t capacity =
        MIN(MAX(2 * s->batch_capacity, (uint32_t)FIRST_BATCHES), (uint32_t)MAX_BATCH_SIZES);
    if (capacity == s->batch_capacity)
        return false;
    struct batch_stats *grown = mem_try_realloc(s->batches, capacity * sizeof(*grown));
    if (!grown)
        return false;
    s->batches = grown;
    s->batch_capacity = capacity;
    return true;
}

struct batch_stats *statistics_batch(struct statistics *s, uint64_t batch_size)
{
    uint32_t i = find_batch_position(s, batch_size);
    if (LIKELY(i < s->n_batches && s->batches[i].batch_size == batch_size))
        return &s->batches[i];
    if (!grow_batches(s))
        return NULL;
    memmove(&s->batches[i + 1], &s->batches[i], (s->n_batches - i) * sizeof(s->batches[0]));
    s->batches[i] = (struct batch_stats){.batch_size = batch_size};
    s->n_batches++;
    return &s->batches[i];
}

struct response_stats *statistics_response(struct statistics *s, uint32_t index)
{
    BUG_ON(index > MAX_RESPONSE_INDEX);
    if (index >= s->n_responses) {
        uint32_t wanted = MIN(MAX(index + 1, 2 * s->n_responses), (uint32_t)MAX_RESPONSE_INDEX + 1);
        struct response_stats *grown = mem_try_realloc(s->responses, wanted * sizeof(*grown));
        if (!grown)
            return NULL;
        memset(grown + s->n_responses, 0, (wanted - s->n_responses) * sizeof(*grown));
        s->responses = grown;
        s->n_responses = wanted;
    }
    return &s->responses[index];
}

/* ---- Sums ----------------------------------------------------------------------------------- */

static void add_duration(struct duration *to, const struct duration *from)
{
    to->count += from->count;
    to->ns += from->ns;
}

static void add_batch(struct batch_stats *to, const struct batch_stats *from)
{
    to->count += from->count;
    to->compute_input_ns += from->compute_input_ns;
    to->compute_infer_ns += from->compute_infer_ns;
    to->compute_output_ns += from->compute_output_ns;
}

static void add_response(struct response_stats *to, const struct response_stats *from)
{
    add_duration(&to->compute_infer, &from->compute_infer);
    add_duration(&to->compute_output, &from->compute_output);
    add_duration(&to->success, &from->success);
    add_duration(&to->fail, &from->fail);
    add_duration(&to->empty_response, &from->empty_response);
    add_duration(&to->cancel, &from->cancel);
}

static void add_totals(struct statistics *to, const struct statistics *from)
{
    add_duration(&to->success, &from->success);
    add_duration(&to->fail, &from->fail);
    add_duration(&to->cache_hit, &from->cache_hit);
    add_duration(&to->cache_miss, &from->cache_miss);
    for (size_t i = 0; i < N_FAILURE_REASONS; i++)
        to->failures[i] += from->failures[i];
    to->queue_ns += from->queue_ns;
    to->compute_input_ns += from->compute_input_ns;
    to->compute_infer_ns += from->compute_infer_ns;
    to->compute_output_ns += from->compute_output_ns;
    to->inference_count += from->inference_count;
    to->execution_count += from->execution_count;
    to->last_inference_ms = MAX(to->last_inference_ms, from->last_inference_ms);
}

struct status *statistics_add(struct statistics *to, const struct statistics *from)
{
    add_totals(to, from);
    for (uint32_t i = 0; i < from->n_batches; i++) {
        struct batch_stats *b = statistics_batch(to, from->batches[i].batch_size);
        if (b)
            add_batch(b, &from->batches[i]);
        else if (to->n_batches < MAX_BATCH_SIZES)
            return status_no_memory();
    }
    if (from->n_responses && !statistics_response(to, from->n_responses - 1))
        return status_no_memory();
    for (uint32_t i = 0; i < from->n_responses; i++)
        add_response(&to->responses[i], &from->responses[i]);
    return NULL;
}

/* ---- Of instances --------------------------------------------------------------------------- */

/* Returns counters that have no instance any more; NULL: there are none. */
static struct instance_stats *take_unused_stats(struct instance_stats *list)
{
    for (struct instance_stats *part = list; part; part = part->next) {
        bool is_unused = true;
        /* Acquire: what the thread of the last instance has counted. */
        if (atomic_load_explicit(&part->is_unused, memory_order_relaxed) &&
            atomic_compare_exchange_strong_explicit(&part->is_unused, &is_unused, false,
                                                    memory_order_acquire, memory_order_relaxed))
            return part;
    }
    return NULL;
}

void instance_stats_release(struct instance_stats *part)
{
    atomic_store_explicit(&part->is_unused, true, memory_order_release);
}

struct instance_stats *instance_stats_add(_Atomic(struct instance_stats *) *list, bool counts_times)
{
    struct instance_stats *part =
        take_unused_stats(atomic_load_explicit(list, memory_order_acquire));
    if (part)
        return part;
    part = mem_zalloc_on_line(sizeof(*part));
    if (counts_times) {
        part->times = mem_zalloc_on_line(sizeof(*part->times));
        part->times_of_others = mem_zalloc(sizeof(*part->times_of_others));
    }
    mutex_init(&part->mu, STATS_LEVEL, "instance.stats.mu");
    /* Here the owner is charged; blocks that grow later keep their owner. */
    grow_batches(&part->sums);
    struct instance_stats *first = atomic_load_explicit(list, memory_order_relaxed);
    do {
        part->next = first;
        /* Release: readers on any thread see the initialised counters. */
    } while (!atomic_compare_exchange_weak_explicit(list, &first, part, memory_order_release,
                                                    memory_order_relaxed));
    return part;
}

uint64_t statistics_now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME_COARSE, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / NS_PER_MS;
}

static void add_request_locked(struct instance_stats *part, const struct request_ns *ns,
                               uint32_t n_inferences)
{
    struct statistics *s = &part->sums;
    duration_add(&s->success, ns->all);
    s->queue_ns += ns->queue;
    s->compute_input_ns += ns->compute.input;
    s->compute_infer_ns += ns->compute.infer;
    s->compute_output_ns += ns->compute.output;
    s->inference_count += n_inferences;
    request_times_add(part->times_of_others, ns);
}

static void add_batch_locked(struct instance_stats *part, uint64_t batch_size,
                             const struct compute_ns *ns)
{
    struct statistics *s = &part->sums;
    s->execution_count++;
    s->last_inference_ms = statistics_now_ms();
    struct batch_stats *b = statistics_batch(s, batch_size);
    if (UNLIKELY(!b))
        return; /* too many sizes, or no memory: it counts as an execution only */
    b->count++;
    b->compute_input_ns += ns->input;
    b->compute_infer_ns += ns->infer;
    b->compute_output_ns += ns->output;
}

void instance_stats_request(struct instance_stats *part, const struct request_ns *ns,
                            uint32_t n_inferences)
{
    mutex_lock(&part->mu);
    add_request_locked(part, ns, n_inferences);
    mutex_unlock(&part->mu);
}

void instance_stats_batch(struct instance_stats *part, uint64_t batch_size,
                          const struct compute_ns *ns)
{
    mutex_lock(&part->mu);
    add_batch_locked(part, batch_size, ns);
    mutex_unlock(&part->mu);
}

void instance_stats_ensemble(struct instance_stats *part, const struct request_ns *ns,
                             uint32_t batch_size)
{
    mutex_lock(&part->mu);
    add_request_locked(part, ns, batch_size);
    add_batch_locked(part, batch_size, &ns->compute);
    mutex_unlock(&part->mu);
}

void instance_stats_hit(struct instance_stats *part, const struct request_ns *ns, uint64_t hit_ns)
{
    mutex_lock(&part->mu);
    add_request_locked(part, ns, 0);
    duration_add(&part->sums.cache_hit, hit_ns);
    mutex_unlock(&part->mu);
}

void instance_stats_miss(struct instance_stats *part, uint64_t miss_ns, uint64_t more_ns)
{
    mutex_lock(&part->mu);
    duration_add(&part->sums.cache_miss, miss_ns);
    part->sums.success.ns += more_ns;
    mutex_unlock(&part->mu);
}

static struct thread_stats *make_thread_stats(_Atomic(struct thread_stats *) *stats)
{
    struct thread_stats *before = NULL, *made = mem_zalloc(sizeof(*made));
    if (atomic_compare_exchange_strong_explicit(stats, &before, made, memory_order_acq_rel,
                                                memory_order_acquire))
        return made;
    mem_free(made);
    return before;
}

struct instance_stats *thread_stats_part(_Atomic(struct thread_stats *) *stats,
                                         _Atomic(struct instance_stats *) *list, bool counts_times)
{
    /* Acquire, here and below: pairs with the release of the thread that has made it. */
    struct thread_stats *all = atomic_load_explicit(stats, memory_order_acquire);
    if (UNLIKELY(!all))
        all = make_thread_stats(stats);
    _Atomic(struct instance_stats *) *mine = &all->parts[stripe_here()];
    struct instance_stats *part = atomic_load_explicit(mine, memory_order_acquire);
    if (LIKELY(part != NULL))
        return part;
    /* Two threads of one stripe may each make one. The list has both. */
    part = instance_stats_add(list, counts_times);
    atomic_store_explicit(mine, part, memory_order_release);
    return part;
}

void instance_stats_free_all(struct instance_stats *list)
{
    while (list) {
        struct instance_stats *part = list;
        list = part->next;
        statistics_done(&part->sums);
        mutex_done(&part->mu);
        mem_free_on_line(part->times);
        mem_free(part->times_of_others);
        mem_free_on_line(part);
    }
}

static void read_failures(const struct failures *f, struct statistics *ret)
{
    ret->fail.ns = atomic_load_explicit(&f->ns, memory_order_relaxed);
    for (size_t i = 0; i < N_FAILURE_REASONS; i++) {
        ret->failures[i] = atomic_load_explicit(&f->counts[i], memory_order_relaxed);
        ret->fail.count += ret->failures[i];
    }
}

struct executor_counts {
    uint64_t n[EXECUTOR_COUNTS];
};

/* Acquire: pairs with executor_set(). None of these loads happens after the second look. */
static void read_counts(const struct instance_stats *part, struct executor_counts *ret)
{
    for (;;) {
        uint64_t before = atomic_load_explicit(&part->n_changes, memory_order_acquire);
        for (size_t i = 0; i < EXECUTOR_COUNTS; i++)
            ret->n[i] = atomic_load_explicit(&part->counts[i], memory_order_acquire);
        if (before % 2 == 0 &&
            atomic_load_explicit(&part->n_changes, memory_order_relaxed) == before)
            return;
        sched_yield(); /* a change takes nanoseconds, unless its thread has no CPU */
    }
}

static void add_counts(struct statistics *to, const struct executor_counts *c)
{
    to->success.count += c->n[EXECUTOR_SUCCESSES];
    to->success.ns += c->n[EXECUTOR_SUCCESS_NS];
    to->queue_ns += c->n[EXECUTOR_QUEUE_NS];
    to->compute_input_ns += c->n[EXECUTOR_INPUT_NS];
    to->compute_infer_ns += c->n[EXECUTOR_INFER_NS];
    to->compute_output_ns += c->n[EXECUTOR_OUTPUT_NS];
    to->inference_count += c->n[EXECUTOR_INFERENCES];
    to->execution_count += c->n[EXECUTOR_BATCHES];
    to->last_inference_ms = MAX(to->last_inference_ms, c->n[EXECUTOR_LAST_MS]);
}

/* Returns false when there is no memory for another line. */
static bool add_batch_counts(struct statistics *to, const struct executor_counts *c)
{
    if (c->n[EXECUTOR_BATCHES] == 0)
        return true;
    struct batch_stats *b = statistics_batch(to, c->n[EXECUTOR_BATCH_SIZE]);
    if (!b)
        return to->n_batches >= MAX_BATCH_SIZES;
    b->count += c->n[EXECUTOR_BATCHES];
    b->compute_input_ns += c->n[EXECUTOR_BATCH_INPUT_NS];
    b->compute_infer_ns += c->n[EXECUTOR_BATCH_INFER_NS];
    b->compute_output_ns += c->n[EXECUTOR_BATCH_OUTPUT_NS];
    return true;
}

void executor_batch_size(struct instance_stats *part, uint64_t batch_size)
{
    struct executor_counts c;
    mutex_lock(&part->mu); /* readers hold it, and see the counts exactly once */
    read_counts(part, &c);
    (void)add_batch_counts(&part->sums, &c); /* without memory they count only as executions */
    part->sums.execution_count += c.n[EXECUTOR_BATCHES];
    executor_counts_begin(part);
    executor_set(part, EXECUTOR_BATCH_SIZE, batch_size);
    for (int i = EXECUTOR_BATCHES; i < EXECUTOR_COUNTS; i++)
        executor_set(part, (enum executor_count)i, 0);
    executor_counts_end(part);
    mutex_unlock(&part->mu);
}

static void add_totals_of(struct statistics *to, struct instance_stats *part)
{
    struct executor_counts c;
    mutex_lock(&part->mu);
    add_totals(to, &part->sums);
    read_counts(part, &c);
    mutex_unlock(&part->mu);
    add_counts(to, &c);
}

NODISCARD static struct status *add_all_of(struct statistics *to, struct instance_stats *part)
{
    struct executor_counts c;
    mutex_lock(&part->mu);
    struct status *st = statistics_add(to, &part->sums);
    read_counts(part, &c);
    mutex_unlock(&part->mu);
    if (st)
        return st;
    add_counts(to, &c);
    return add_batch_counts(to, &c) ? NULL : status_no_memory();
}

void instance_stats_totals(struct instance_stats *list, const struct failures *failures,
                           struct statistics *ret)
{
    *ret = (struct statistics){0};
    read_failures(failures, ret);
    for (struct instance_stats *part = list; part; part = part->next)
        add_totals_of(ret, part);
}

struct status *instance_stats_sums(struct instance_stats *list, const struct failures *failures,
                                   struct statistics *ret)
{
    struct statistics sums = {0};
    read_failures(failures, &sums);
    struct status *st = NULL;
    for (struct instance_stats *part = list; part && !st; part = part->next)
        st = add_all_of(&sums, part);
    if (st)
        statistics_done(&sums);
    else
        *ret = sums;
    return st;
}

static void add_times(const struct time_counts *c, enum counted_time which,
                      uint64_t counts[TIME_BUCKETS])
{
    for (unsigned int i = 0; c && i < TIME_BUCKETS; i++)
        counts[i] += atomic_load_explicit(&c->of[which][i], memory_order_relaxed);
}

void instance_stats_times(struct instance_stats *list, enum counted_time which,
                          uint64_t ret_counts[TIME_BUCKETS])
{
    memset(ret_counts, 0, TIME_BUCKETS * sizeof(*ret_counts));
    for (struct instance_stats *part = list; part; part = part->next) {
        add_times(part->times, which, ret_counts);
        add_times(part->times_of_others, which, ret_counts);
    }
}
