/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Workers are started one after the other and ended together. The array has room for max_threads
 * from the start, so that a worker keeps its address.
 *
 * Thread: those that start and stop services, one at a time.
 */
#include "frontends/net/loops.h"

#include <stdio.h>

#include "base/mem.h"
#include "base/memory_limit.h"
#include "base/status.h"
#include "frontends/net/upkeep.h"

static void note_turn(struct message *m)
{
    struct worker *w = CONTAINER_OF(m, struct worker, turn);
    atomic_store(&w->turn_posted, false);
}

bool loops_turned(struct loops *l)
{
    bool all = true;
    for (unsigned int i = 0; i < l->n_workers; i++) {
        struct worker *w = &l->workers[i];
        if (atomic_exchange(&w->turn_posted, true)) {
            all = false; /* the last message is still on its way */
            continue;
        }
        w->turn.deliver = note_turn;
        loop_post(&w->loop, &w->turn);
    }
    return all;
}

static void end_worker(struct loops *l, struct worker *w)
{
    void *ctx = w->ctx;
    if (l->ctx_stop)
        l->ctx_stop(ctx);
    worker_done(w);
    if (l->ctx_free)
        l->ctx_free(ctx);
}

static void free_loops(struct loops *l)
{
    for (unsigned int i = 0; i < l->n_workers; i++)
        worker_stop(&l->workers[i]);
    for (unsigned int i = 0; i < l->n_workers; i++) {
        end_worker(l, &l->workers[i]);
    }
    mem_free(l->workers);
    if (l->budget) {
        budget_stop(l->budget);
        budget_unref(l->budget);
    }
    mem_free(l);
}

static struct status *start_one(struct loops *l)
{
    struct worker *w = &l->workers[l->n_workers];
    char name[16];
    struct status *st = worker_init(w, l->budget);
    if (st)
        return st;
    if (l->ctx_new)
        w->ctx = l->ctx_new(l->ctx_arg, &w->loop);
    upkeep_begin(w);
    snprintf(name, sizeof(name), "%.8s-%u", l->name, l->n_workers % 1000);
    st = worker_start(w, name);
    if (st) {
        end_worker(l, w);
        return st;
    }
    l->n_workers++;
    return NULL;
}

struct status *loops_grow(struct loops *l, unsigned int n_threads)
{
    struct status *st = NULL;
    while (!st && l->n_workers < MIN(n_threads, l->max_threads))
        st = start_one(l);
    return st;
}

struct status *loops_new(const struct loops_options *o, struct loops **ret)
{
    struct loops *l = mem_zalloc(sizeof(*l));
    snprintf(l->name, sizeof(l->name), "%.8s", o->name);
    l->refs = 1;
    l->max_threads = MAX(o->max_threads, o->n_threads);
    l->ctx_new = o->ctx_new;
    l->ctx_stop = o->ctx_stop;
    l->ctx_free = o->ctx_free;
    l->ctx_arg = o->ctx_arg;
    l->workers = mem_zalloc(sizeof(*l->workers) * l->max_threads);
    struct budget *budget =
        o->budget ? budget_ref(o->budget) : budget_new(memory_limit_bytes() / 4);
    struct status *st = budget_start(budget);
    if (st)
        budget_unref(budget);
    else
        l->budget = budget;
    if (!st)
        st = loops_grow(l, o->n_threads);
    if (st)
        free_loops(l);
    else
        *ret = l;
    return st;
}

struct loops *loops_ref(struct loops *l)
{
    l->refs++;
    return l;
}

void loops_unref(struct loops *l)
{
    if (l && --l->refs == 0)
        free_loops(l);
}
