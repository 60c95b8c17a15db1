/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each thread that loads keeps a pointer to its slot. Several warm-ups of one load may wait at a
 * time, on any thread: the first of them lends the slot, and the last one takes it back.
 */
#include "core/threads/load_slot.h"

#include "base/compiler.h"
#include "base/parallel_for.h"

static _Thread_local struct load_slot *mine;

void load_slot_set(struct load_slot *p)
{
    mine = p;
}

struct load_slot *load_slot_mine(void)
{
    return mine;
}

void load_slot_lend(struct load_slot *p)
{
    if (p && atomic_fetch_add(&p->n_lent, 1) == 0)
        p->lend(p);
}

void load_slot_take_back(struct load_slot *p)
{
    if (p && atomic_fetch_sub(&p->n_lent, 1) == 1)
        p->take_back(p);
}

/* ---- Many loads at a time -------------------------------------------------------------------- */

struct slot_of_worker {
    struct load_slot slot;
    struct parallel_worker *worker;
};

struct many_loads {
    void (*work)(void *arg, size_t i);
    void *arg;
};

static void lend_worker(struct load_slot *p)
{
    parallel_worker_lend(CONTAINER_OF(p, struct slot_of_worker, slot)->worker);
}

static void take_worker_back(struct load_slot *p)
{
    parallel_worker_take_back(CONTAINER_OF(p, struct slot_of_worker, slot)->worker);
}

static void work_with_slot(void *arg, size_t i)
{
    const struct many_loads *loads = arg;
    struct load_slot *outer = mine; /* of a control thread that runs all the loads */
    struct slot_of_worker own = {.slot = {.lend = lend_worker, .take_back = take_worker_back},
                                 .worker = parallel_worker_mine()};
    mine = &own.slot;
    loads->work(loads->arg, i);
    mine = outer;
}

void load_in_parallel(const char *thread_name, size_t max_threads, size_t n,
                      void (*work)(void *arg, size_t i), void *arg)
{
    const struct parallel_options options = {thread_name, max_threads,
                                             "fewer threads load or unload models"};
    struct many_loads loads = {work, arg};
    parallel_for(&options, n, work_with_slot, &loads);
}
