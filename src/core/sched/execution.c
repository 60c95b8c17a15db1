/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two conditions decide for a bounded model in mode auto: no short execution remains to be shown
 * (`to_prove`), and the estimate of how long nearly all executions take (`high_ns`) is short. A
 * long execution raises the first, and raises it further if it comes soon after another (`lapses`).
 * Large requests have a proof of their own, which begins anew when one is larger than all before.
 *
 * All words are relaxed atomics, written by all threads that execute: they are estimates, and a
 * lost update does no harm.
 */
#include "core/sched/execution.h"

#include <string.h>

#include "base/clock.h"
#include "base/status.h"
#include "core/request/request.h"

enum {
    FIRST_PROOF = 4,     /* short executions that a new model must show */
    PROOF_PER_LONG = 64, /* … for each EXECUTION_LONG_NS of a long one; doubled for each lapse */
    MAX_LAPSES = 12,
    MAX_PROOF = 1 << 24,
    BYTES_PER_NS = 6, /* of a tensor copied between caches and memory, both ways counted */
    /* The estimate rises by a 16th, and falls by a 256th: it rests where 16 of 17 are below.
     * (Many of the others are short, too, on a machine with more work than processors.) */
    UP = 16,
    DOWN = 256,
};
#define LEAST_NS   NS_PER_US /* shorter ones count as this: the way up must not be too long */
#define WAKE_UP_NS EXECUTION_SHORT_NS /* of the loop, inside a worker's execution, at most */
#define FORGET_NS  (10 * NS_PER_S)    /* a lapse is forgotten after that long without another one */

struct status *execution_init(struct execution *e, struct clock *clock, const char *parameter,
                              bool bounded)
{
    static const char *const words[] = {"auto", "inline", "thread"};

    memset(e, 0, sizeof(*e));
    e->bounded = bounded;
    e->clock = clock;
    atomic_init(&e->usual.to_prove, FIRST_PROOF);
    atomic_init(&e->large.to_prove, FIRST_PROOF);
    if (!parameter)
        return NULL;
    for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
        if (strcmp(parameter, words[i]) == 0) {
            e->mode = (enum execution_mode)i;
            return NULL;
        }
    }
    return status_new(STATUS_INVALID_ARG,
                      "parameter 'CONCH_EXECUTION' is '%s', expected 'auto', 'inline' or 'thread'",
                      parameter);
}

struct status *execution_never_inline(struct execution *e, const char *why, const char *name)
{
    if (e->mode == EXECUTION_INLINE)
        return status_new(STATUS_INVALID_ARG,
                          "parameter 'CONCH_EXECUTION' is 'inline', but %s '%s': it executes on a "
                          "thread of its own",
                          why, name);
    e->mode = EXECUTION_THREAD;
    return NULL;
}

void execution_bind(struct execution *e, bool is_bound)
{
    atomic_store_explicit(&e->is_bound, is_bound, memory_order_relaxed);
}

static bool decides_by_time(const struct execution *e)
{
    return e->mode == EXECUTION_AUTO && e->bounded &&
           LIKELY(!atomic_load_explicit(&e->is_bound, memory_order_relaxed));
}

bool execution_is_ever_inline(const struct execution *e)
{
    return e->mode == EXECUTION_INLINE || (e->mode == EXECUTION_AUTO && e->bounded);
}

static bool is_proven(const struct execution_proof *p)
{
    return atomic_load_explicit(&p->to_prove, memory_order_relaxed) == 0 &&
           atomic_load_explicit(&p->high_ns, memory_order_relaxed) < EXECUTION_SHORT_NS;
}

static bool is_proven_for(const struct execution *e, uint64_t bytes)
{
    if (LIKELY(bytes <= EXECUTION_LARGE_BYTES))
        return is_proven(&e->usual);
    return is_proven(&e->large) &&
           bytes <= atomic_load_explicit(&e->large_bytes, memory_order_relaxed);
}

static bool fits_budget(const struct execution_proof *p, const struct inline_budget *budget)
{
    return atomic_load_explicit(&p->high_ns, memory_order_relaxed) <= budget->left_ns;
}

bool execution_is_short(const struct execution *e, uint64_t bytes)
{
    return e->mode == EXECUTION_INLINE || (decides_by_time(e) && is_proven_for(e, bytes));
}

bool execution_is_in_doubt(const struct execution *e, uint64_t bytes)
{
    return decides_by_time(e) && UNLIKELY(!is_proven_for(e, bytes));
}

bool execution_may_inline(const struct execution *e, const struct inline_budget *budget)
{
    if (!budget)
        return false;
    if (!decides_by_time(e))
        return e->mode == EXECUTION_INLINE;
    return is_proven(&e->usual) && fits_budget(&e->usual, budget);
}

bool execution_may_inline_large(const struct execution *e, const struct inline_budget *budget,
                                uint64_t bytes)
{
    if (!decides_by_time(e))
        return e->mode == EXECUTION_INLINE;
    return is_proven_for(e, bytes) && fits_budget(&e->large, budget);
}

/* Several instances may update it at a time; a lost update of an estimate does no harm. */
static void update_estimate(struct execution_proof *p, uint64_t took_ns)
{
    uint64_t high_ns = atomic_load_explicit(&p->high_ns, memory_order_relaxed), before_ns = high_ns;
    took_ns = MAX(took_ns, LEAST_NS);
    if (UNLIKELY(high_ns == 0))
        high_ns = MIN(took_ns, EXECUTION_SHORT_NS); /* the first one runs with cold caches */
    else if (took_ns > high_ns)
        high_ns = MIN(took_ns, high_ns + high_ns / UP);
    else
        high_ns -= MIN(high_ns - took_ns, high_ns / DOWN);
    if (high_ns != before_ns)
        atomic_store_explicit(&p->high_ns, high_ns, memory_order_relaxed);
}

/* Demands n short executions, if fewer are demanded now. */
static void demand_proof(struct execution_proof *p, uint64_t n)
{
    uint64_t wanted = atomic_load_explicit(&p->to_prove, memory_order_relaxed);
    wanted = MAX(wanted, n);
    wanted = MIN(wanted, (uint64_t)MAX_PROOF);
    atomic_store_explicit(&p->to_prove, (unsigned int)wanted, memory_order_relaxed);
}

/* One that was wanted has been short, or was not wanted. */
static void count_short(struct execution_proof *p)
{
    unsigned int to_prove = atomic_load_explicit(&p->to_prove, memory_order_relaxed);
    if (UNLIKELY(to_prove))
        atomic_store_explicit(&p->to_prove, to_prove - 1, memory_order_relaxed);
}

/* Notes that the model has held up its loop. */
static void note_lapse(struct execution *e, uint64_t took_ns)
{
    uint64_t now_ns = clock_now_ns(e->clock);
    uint64_t last_ns = atomic_load_explicit(&e->lapse_ns, memory_order_relaxed);
    uint64_t lapses = atomic_load_explicit(&e->lapses, memory_order_relaxed);
    uint64_t n_forgotten = now_ns > last_ns ? (now_ns - last_ns) / FORGET_NS : 0;
    lapses -= MIN(lapses, n_forgotten);
    uint64_t n_long = MIN(took_ns / EXECUTION_LONG_NS, (uint64_t)MAX_PROOF);
    demand_proof(&e->usual, (PROOF_PER_LONG * n_long) << lapses);
    lapses = MIN(lapses + 1, (uint64_t)MAX_LAPSES);
    atomic_store_explicit(&e->lapses, (unsigned int)lapses, memory_order_relaxed);
    atomic_store_explicit(&e->lapse_ns, now_ns, memory_order_relaxed);
}

void execution_measured_large(struct execution *e, uint64_t took_ns, uint64_t bytes)
{
    if (!decides_by_time(e))
        return;
    update_estimate(&e->large, took_ns);
    if (took_ns >= EXECUTION_LONG_NS) {
        demand_proof(&e->large, PROOF_PER_LONG);
    } else if (took_ns < EXECUTION_SHORT_NS) {
        if (bytes > atomic_load_explicit(&e->large_bytes, memory_order_relaxed)) {
            atomic_store_explicit(&e->large_bytes, bytes, memory_order_relaxed);
            demand_proof(&e->large, FIRST_PROOF);
        }
        count_short(&e->large);
    }
}

void execution_measured(struct execution *e, uint64_t took_ns, uint64_t bytes, bool inlined)
{
    if (!decides_by_time(e))
        return;
    if (!inlined)
        took_ns -= MIN(took_ns, WAKE_UP_NS);
    if (UNLIKELY(bytes > EXECUTION_LARGE_BYTES) && !inlined) {
        execution_measured_large(e, took_ns, bytes);
        return;
    }
    uint64_t moving_ns = MIN(bytes, EXECUTION_LARGE_BYTES) / BYTES_PER_NS;
    took_ns -= MIN(took_ns, moving_ns);
    update_estimate(&e->usual, took_ns);
    if (UNLIKELY(took_ns >= EXECUTION_LONG_NS)) {
        if (inlined)
            note_lapse(e, took_ns);
        else
            demand_proof(&e->usual, PROOF_PER_LONG);
        return;
    }
    if (took_ns < EXECUTION_SHORT_NS)
        count_short(&e->usual);
}

bool execution_overdue(struct execution *e, uint64_t took_ns)
{
    if (!decides_by_time(e))
        return false;
    uint64_t n = PROOF_PER_LONG * (took_ns / EXECUTION_LONG_NS + 1);
    demand_proof(&e->usual, n);
    demand_proof(&e->large, n);
    return true;
}
