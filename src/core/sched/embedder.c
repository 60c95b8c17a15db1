/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each thread tries its own place first, so that threads share no cache line as long as they are
 * fewer than places.
 */
#include "core/sched/embedder.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/compiler.h"
#include "base/mem.h"
#include "core/request.h"
#include "core/sched/execution.h"

enum { N_PLACES = 64, N_TRIES = 4 };

struct place_of_turn {
    _Alignas(MEM_ALIGNMENT) atomic_bool taken;
    struct turn turn;
};

struct embedder_turns {
    struct place_of_turn places[N_PLACES];
};

/* This thread's: its number, from 1; and the turn that it is in. */
static THREAD_WORD unsigned int number;
static THREAD_WORD pid_t own_tid;
static THREAD_WORD bool has_turn;

static atomic_uint n_threads;

struct embedder_turns *embedder_turns_new(struct watchdog *d)
{
    struct embedder_turns *set = mem_try_alloc_aligned(sizeof(*set));
    if (!set)
        return NULL;
    for (unsigned int i = 0; i < N_PLACES; i++) {
        struct place_of_turn *p = &set->places[i];
        atomic_init(&p->taken, false);
        p->turn = (struct turn){.is_embedders = true};
        inline_watch_open(&p->turn.watch, d);
    }
    return set;
}

void embedder_turns_free(struct embedder_turns *set)
{
    if (!set)
        return;
    for (unsigned int i = 0; i < N_PLACES; i++)
        inline_watch_close(&set->places[i].turn.watch);
    mem_free_aligned(set);
}

static void know_thread(void)
{
    number = 1 + atomic_fetch_add_explicit(&n_threads, 1, memory_order_relaxed);
    own_tid = gettid();
}

struct turn *embedder_turn_begin(struct embedder_turns *set)
{
    if (LIKELY(!set) || has_turn)
        return NULL;
    if (UNLIKELY(number == 0))
        know_thread();
    for (unsigned int i = 0; i < N_TRIES; i++) {
        struct place_of_turn *p = &set->places[(number + i) % N_PLACES];
        if (atomic_exchange_explicit(&p->taken, true, memory_order_acquire))
            continue;
        has_turn = true;
        p->turn.left_ns = EXECUTION_BUDGET_NS;
        atomic_store_explicit(&p->turn.watch.tid, own_tid, memory_order_relaxed);
        return &p->turn;
    }
    return NULL;
}

void embedder_turn_end(struct turn *turn)
{
    if (!turn)
        return;
    has_turn = false;
    atomic_store_explicit(&CONTAINER_OF(turn, struct place_of_turn, turn)->taken, false,
                          memory_order_release);
}
