/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A step is cancelled without mu, since it may have steps of its own, whose mu has the same level.
 * A reference keeps it meanwhile, and the list stays whole: steps that have been told are in a list
 * of the canceller, which steps_remove_locked() takes them out of just as well.
 */
#include "core/request/steps.h"

#include "core/request/request.h"

enum { STEPS_LEVEL = 480 };

void steps_init(struct steps *s, void (*free)(struct steps *s))
{
    mutex_init(&s->mu, STEPS_LEVEL, "steps.mu");
    list_init(&s->running);
    s->free = free;
    s->is_cancelled = false;
    atomic_init(&s->refs, 1);
}

void steps_ref(struct steps *s)
{
    atomic_fetch_add_explicit(&s->refs, 1, memory_order_relaxed);
}

/* Drops the last n references, or n of more. */
static void drop_refs(struct steps *s, int n)
{
    /* The holder of all references needs no read-modify-write, because no thread can take another
     * one. Acquire: it sees the writes of those that had some. */
    if (atomic_load_explicit(&s->refs, memory_order_acquire) != n &&
        atomic_fetch_sub_explicit(&s->refs, n, memory_order_acq_rel) != n)
        return;
    mutex_done(&s->mu);
    s->free(s);
}

void steps_unref(struct steps *s)
{
    drop_refs(s, 1);
}

void steps_begin(struct steps *s, struct request *parent, void (*free)(struct steps *s))
{
    steps_init(s, free);
    atomic_init(&s->refs, 2); /* and the parent's */
    /* seq_cst: request_cancel() stores `cancelled`, and then loads this pointer. One of the two
     * threads sees what the other one has stored. */
    atomic_store(&parent->life.steps, s);
    if (UNLIKELY(atomic_load(&parent->life.cancelled))) {
        mutex_lock(&s->mu);
        s->is_cancelled = true;
        mutex_unlock(&s->mu);
    }
}

void steps_end(struct steps *s, struct request *parent)
{
    bool is_parents =
        LIKELY(atomic_exchange_explicit(&parent->life.steps, NULL, memory_order_acq_rel) != NULL);
    drop_refs(s, 1 + is_parents);
}

bool steps_add_locked(struct steps *s, struct step *step)
{
    mutex_assert_held(&s->mu);
    if (UNLIKELY(s->is_cancelled))
        return false;
    list_push(&s->running, &step->link);
    return true;
}

void steps_remove_locked(struct steps *s, struct step *step)
{
    mutex_assert_held(&s->mu);
    list_remove(&step->link);
}

void steps_cancel(struct steps *s)
{
    struct list told = LIST_INIT(told), *link;
    mutex_lock(&s->mu);
    s->is_cancelled = true;
    while ((link = list_pop(&s->running))) {
        struct request *r = LIST_ENTRY(link, struct step, link)->request;
        list_push(&told, link);
        request_ref(r);
        mutex_unlock(&s->mu);
        request_cancel(r);
        request_unref(r);
        mutex_lock(&s->mu);
    }
    list_move_all(&s->running, &told);
    mutex_unlock(&s->mu);
}

void steps_cancel_of(struct request *parent)
{
    struct steps *s = atomic_exchange_explicit(&parent->life.steps, NULL, memory_order_acq_rel);
    if (!s)
        return; /* it has ended, or another thread cancels them */
    steps_cancel(s);
    steps_unref(s);
}
