/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each function is one transition of the drawing in loan.h. The comments say what each acquire and
 * release carries from one thread to the next.
 */
#include "core/sched/loan.h"

#include "core/backend/instance.h"

struct instance *loan_take(struct loans *l)
{
    /* Acquire: pairs with the store in loan_lend_locked(). */
    struct instance *in = atomic_load_explicit(&l->slots[stripe_here()], memory_order_acquire);
    int state = LOAN_FREE;
    /* Acquire: sees what its last user did with it; the release is in giving back and lending. */
    if (LIKELY(in != NULL) &&
        LIKELY(atomic_compare_exchange_strong_explicit(&in->loan.state, &state, LOAN_USED,
                                                       memory_order_acquire, memory_order_relaxed)))
        return in;
    return NULL;
}

bool loan_give_back(struct instance *in)
{
    int state = LOAN_USED;
    return LIKELY(atomic_compare_exchange_strong_explicit(
        &in->loan.state, &state, LOAN_FREE, memory_order_release, memory_order_relaxed));
}

void loan_note_locked(struct instance *in, bool quiet)
{
    unsigned int here = stripe_here();
    in->loan.n_quiet = quiet && in->loan.thread == here ? in->loan.n_quiet + 1 : 0;
    in->loan.thread = here;
}

bool loan_lend_locked(struct loans *l, struct instance *in)
{
    unsigned int here = stripe_here();
    if (in->loan.n_quiet < LOAN_AFTER ||
        atomic_load_explicit(&l->slots[here], memory_order_relaxed))
        return false;
    in->loan.slot = here;
    l->n++;
    atomic_store_explicit(&in->loan.state, LOAN_FREE, memory_order_release);
    atomic_store_explicit(&l->slots[here], in, memory_order_release);
    return true;
}

static void clear_loan(struct loans *l, struct instance *in)
{
    in->loan.n_quiet = 0;
    l->n--;
    atomic_store_explicit(&l->slots[in->loan.slot], NULL, memory_order_relaxed);
}

/* It is FREE no more: taken back, or wanted. */
static bool call_loan_back(struct instance *in)
{
    for (;;) {
        int state = LOAN_FREE;
        /* Acquire: sees what its user did with it. */
        if (atomic_compare_exchange_strong_explicit(&in->loan.state, &state, LOAN_NONE,
                                                    memory_order_acquire, memory_order_relaxed))
            return true;
        if (state == LOAN_WANTED ||
            atomic_compare_exchange_strong_explicit(&in->loan.state, &state, LOAN_WANTED,
                                                    memory_order_relaxed, memory_order_relaxed))
            return false;
        /* Given back in between, and perhaps taken again: it tries again. */
    }
}

struct instance *loan_call_back_locked(struct loans *l)
{
    /* l->n of the slots are taken, and that changes under this lock only: so the walk ends. */
    for (unsigned int i = 0, n_seen = 0; n_seen < l->n; i++) {
        struct instance *in = atomic_load_explicit(&l->slots[i], memory_order_relaxed);
        if (!in)
            continue;
        if (call_loan_back(in)) {
            clear_loan(l, in);
            return in;
        }
        n_seen++;
    }
    return NULL;
}

void loan_end_locked(struct loans *l, struct instance *in)
{
    clear_loan(l, in);
    atomic_store_explicit(&in->loan.state, LOAN_NONE, memory_order_relaxed);
}
