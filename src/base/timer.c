/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A timer that is set lies in one of two heaps. A callback may set a timer that is due already:
 * that one goes to `next` until the run is over, so that timers_run() ends.
 */
#include "base/timer.h"

static struct timer *of_node(const struct heap_node *node)
{
    return CONTAINER_OF((uintptr_t)node, struct timer, node);
}

static bool is_earlier(const struct heap_node *a, const struct heap_node *b)
{
    return of_node(a)->deadline_ns < of_node(b)->deadline_ns;
}

void timer_init(struct timer *t, timer_fn callback)
{
    *t = (struct timer){.callback = callback};
}

void timers_init(struct timers *set)
{
    *set = (struct timers){0};
    heap_init(&set->heap, is_earlier);
    heap_init(&set->next, is_earlier);
}

void timers_set(struct timers *set, struct timer *t, uint64_t deadline_ns)
{
    timers_clear(set, t);
    t->deadline_ns = deadline_ns;
    t->is_set = true;
    t->in_next = set->running && deadline_ns <= set->run_ns;
    heap_push(t->in_next ? &set->next : &set->heap, &t->node);
}

void timers_clear(struct timers *set, struct timer *t)
{
    if (!t->is_set)
        return;
    heap_remove(t->in_next ? &set->next : &set->heap, &t->node);
    t->is_set = false;
}

uint64_t timers_next_ns(const struct timers *set)
{
    struct heap_node *top = heap_top(&set->heap);
    return top ? of_node(top)->deadline_ns : UINT64_MAX;
}

unsigned int timers_run(struct timers *set, uint64_t now_ns)
{
    unsigned int n_run = 0;
    set->running = true;
    set->run_ns = now_ns;
    while (timers_next_ns(set) <= now_ns && set->heap.count > 0) {
        struct timer *t = of_node(heap_pop(&set->heap));
        t->is_set = false;
        n_run++;
        t->callback(t);
    }
    set->running = false;

    struct heap_node *node;
    while ((node = heap_pop(&set->next))) {
        of_node(node)->in_next = false;
        heap_push(&set->heap, node);
    }
    return n_run;
}
