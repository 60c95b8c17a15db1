/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Instances that are lent to a thread which executes inline, so that it takes and gives them back
 * without the scheduler's lock: by a compare-and-swap on a word of the instance, which no other
 * thread writes as long as each has one of its own. Who holds the lock calls them back.
 *
 *                   lend                    take
 *          NONE ───────────► FREE ───────────────────► USED
 *            ▲                │ ▲        give_back       │
 *            │    call_back   │ └────────────────────────┤
 *            ├────────────────┘                          │ call_back
 *            │                     end                   ▼
 *            └──────────────────────────────────────── WANTED
 *
 * lend, call_back and end are made under the scheduler's lock; take and give_back without it.
 *
 * No wake-up is lost. Who has work under the lock calls back until there is an instance for it or
 * none is FREE. Whoever uses one then finds it WANTED when it wants to give it back, since both
 * change the same word, and takes the lock instead: there it finds the work. And nobody takes one
 * meanwhile, past those who wait: none is FREE before it is lent again, which is done only when
 * nothing waits, under the same lock. That is all of the order that is needed: giving back
 * releases, and taking acquires, what belongs to the instance.
 *
 * After give_back the thread touches neither the instance nor its scheduler: a stop that calls it
 * back finds it FREE, and may take both down.
 */
#ifndef CONCH_CORE_SCHED_LOAN_H
#define CONCH_CORE_SCHED_LOAN_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"
#include "base/stripe.h"

struct instance;

enum loan_state { LOAN_NONE, LOAN_FREE, LOAN_USED, LOAN_WANTED };

/*
 * Lending pays when the same thread comes again; calling back costs more than was saved. So an
 * instance is lent when its thread had it that often, one time after the other, and nothing came
 * for it meanwhile.
 */
enum { LOAN_AFTER = 8 };

/* An instance's part. */
struct loan {
    atomic_int state; /* enum loan_state */
    /* Under the scheduler's lock. */
    unsigned int slot;    /* where it is in the table, unless NONE */
    unsigned int thread;  /* who had it last, by its number … */
    unsigned int n_quiet; /* … and how often, nothing in between */
};

/* A scheduler's. */
struct loans {
    /* By threads: read by each inline request, written under the lock. */
    _Atomic(struct instance *) slots[STRIPES_MAX];
    /* Under the lock. */
    unsigned int n;
};

/* loan_take - the one that is lent to this thread, now USED; NULL: there is none, or it is not
 * FREE. */
struct instance *loan_take(struct loans *l);

/* loan_give_back - false: it is wanted, and the caller ends the loan, under the lock. */
NODISCARD bool loan_give_back(struct instance *in);

/* loan_note_locked - this thread has executed on it; `quiet`: nothing came for it meanwhile. */
void loan_note_locked(struct instance *in, bool quiet);

/* loan_lend_locked - to this thread, if that pays. It has run it, and nothing waits. */
bool loan_lend_locked(struct loans *l, struct instance *in);

/* loan_call_back_locked - one that was FREE; NULL: none is, and those that are USED are WANTED. */
struct instance *loan_call_back_locked(struct loans *l);

/* loan_end_locked - of one that is WANTED, by who has used it. */
void loan_end_locked(struct loans *l, struct instance *in);

#endif
