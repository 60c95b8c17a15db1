/* SPDX-License-Identifier: Apache-2.0 */
#include "core/sched/execution.h"

#include <string.h>

#include "base/status.h"
#include "core/request.h"

enum {
    FIRST_PROOF = 4,        /* short executions that a new model has to show */
    PROOF_AFTER_LAPSE = 64, /* … and after a lapse; doubled for each further one */
    MAX_LAPSES = 12,
    BYTES_PER_NS = 6,      /* a tensor copied between caches and memory, both ways counted */
    STRIKE = 256,          /* each long execution adds this, each other inline one takes 1 off */
    TOO_MUCH = 2 * STRIKE, /* more than this is a lapse: three long ones among a few hundred */
};

struct status *execution_init(struct execution *e, const char *parameter)
{
    static const char *const words[] = {"auto", "inline", "thread"};

    memset(e, 0, sizeof(*e));
    atomic_init(&e->to_prove, FIRST_PROOF);
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

struct status *execution_never_inline(struct execution *e, const char *why, const char *who)
{
    if (e->mode == EXECUTION_INLINE)
        return status_new(STATUS_INVALID_ARG,
                          "parameter 'CONCH_EXECUTION' is 'inline', but %s '%s': it executes on a "
                          "thread of its own",
                          why, who);
    e->mode = EXECUTION_THREAD;
    return NULL;
}

bool execution_may_inline(const struct execution *e, const struct turn *turn)
{
    if (!turn || e->mode == EXECUTION_THREAD)
        return false;
    if (e->mode == EXECUTION_INLINE)
        return true;
    if (atomic_load_explicit(&e->to_prove, memory_order_relaxed))
        return false;
    uint64_t mean_ns = atomic_load_explicit(&e->mean_ns, memory_order_relaxed);
    return mean_ns < EXECUTION_SHORT_NS && mean_ns <= turn->left_ns;
}

/* A model that holds up its loop again and again goes back to the worker. */
static void count_strike(struct execution *e, uint64_t took_ns)
{
    unsigned int strikes = atomic_load_explicit(&e->strikes, memory_order_relaxed);
    if (LIKELY(took_ns < EXECUTION_LONG_NS)) {
        if (strikes)
            atomic_store_explicit(&e->strikes, strikes - 1, memory_order_relaxed);
        return;
    }
    strikes += STRIKE;
    if (strikes > TOO_MUCH) {
        unsigned int lapses = atomic_load_explicit(&e->lapses, memory_order_relaxed);
        atomic_store_explicit(&e->to_prove, PROOF_AFTER_LAPSE << lapses, memory_order_relaxed);
        if (lapses < MAX_LAPSES)
            atomic_store_explicit(&e->lapses, lapses + 1, memory_order_relaxed);
        strikes = 0;
    }
    atomic_store_explicit(&e->strikes, strikes, memory_order_relaxed);
}

void execution_measured(struct execution *e, uint64_t took_ns, uint64_t bytes, bool inlined)
{
    if (e->mode != EXECUTION_AUTO)
        return;
    took_ns -= MIN(took_ns, bytes / BYTES_PER_NS);

    /*
     * One execution weighs no more than four short ones, so that a single outlier does not decide.
     * Several instances may meet here; a lost update of an estimate does no harm.
     */
    uint64_t weight_ns = MIN(took_ns, 4 * EXECUTION_SHORT_NS);
    uint64_t mean_ns = atomic_load_explicit(&e->mean_ns, memory_order_relaxed);
    if (mean_ns == 0)
        mean_ns = weight_ns;
    else
        mean_ns += ((int64_t)weight_ns - (int64_t)mean_ns) / 8;
    atomic_store_explicit(&e->mean_ns, MAX(mean_ns, (uint64_t)1), memory_order_relaxed);

    unsigned int to_prove = atomic_load_explicit(&e->to_prove, memory_order_relaxed);
    if (to_prove && took_ns < EXECUTION_SHORT_NS)
        atomic_store_explicit(&e->to_prove, to_prove - 1, memory_order_relaxed);
    if (inlined)
        count_strike(e, took_ns);
}
