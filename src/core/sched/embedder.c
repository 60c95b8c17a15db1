/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each thread tries its own slot first, so that threads share no cache line while they are fewer
 * than slots.
 */
#include "core/sched/embedder.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/compiler.h"
#include "base/mem.h"
#include "core/request/request.h"
#include "core/sched/execution.h"

enum { N_SLOTS = 64, N_TRIES = 4 };

struct budget_slot {
    _Alignas(MEM_ALIGNMENT) atomic_bool taken;
    struct inline_budget inline_budget;
};

struct embedder_budgets {
    struct budget_slot slots[N_SLOTS];
};

/* Of this thread: its number, from 1, and whether it has a budget. */
static THREAD_WORD unsigned int number;
static THREAD_WORD pid_t own_tid;
static THREAD_WORD bool has_budget;

static atomic_uint n_threads;

struct embedder_budgets *embedder_budgets_new(struct watchdog *d)
{
    struct embedder_budgets *set = mem_try_alloc_aligned(sizeof(*set));
    if (!set)
        return NULL;
    for (unsigned int i = 0; i < N_SLOTS; i++) {
        struct budget_slot *p = &set->slots[i];
        atomic_init(&p->taken, false);
        p->inline_budget = (struct inline_budget){.is_embedders = true};
        inline_watch_open(&p->inline_budget.watch, d);
    }
    return set;
}

void embedder_budgets_free(struct embedder_budgets *set)
{
    if (!set)
        return;
    for (unsigned int i = 0; i < N_SLOTS; i++)
        inline_watch_close(&set->slots[i].inline_budget.watch);
    mem_free_aligned(set);
}

static void know_thread(void)
{
    number = 1 + atomic_fetch_add_explicit(&n_threads, 1, memory_order_relaxed);
    own_tid = gettid();
}

struct inline_budget *embedder_budget_begin(struct embedder_budgets *set)
{
    if (LIKELY(!set) || has_budget)
        return NULL;
    if (UNLIKELY(number == 0))
        know_thread();
    for (unsigned int i = 0; i < N_TRIES; i++) {
        struct budget_slot *p = &set->slots[(number + i) % N_SLOTS];
        if (atomic_exchange_explicit(&p->taken, true, memory_order_acquire))
            continue;
        has_budget = true;
        p->inline_budget.left_ns = EXECUTION_BUDGET_NS;
        atomic_store_explicit(&p->inline_budget.watch.tid, own_tid, memory_order_relaxed);
        return &p->inline_budget;
    }
    return NULL;
}

void embedder_budget_end(struct inline_budget *budget)
{
    if (!budget)
        return;
    has_budget = false;
    atomic_store_explicit(&CONTAINER_OF(budget, struct budget_slot, inline_budget)->taken, false,
                          memory_order_release);
}
