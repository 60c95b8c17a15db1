/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A loan: an instance is lent to a thread that executes inline. The thread takes it and gives it
 * back without the scheduler's lock, by a compare-and-swap on a word of the instance. No other
 * thread writes that word while each thread has an instance of its own. A thread that has the lock
 * may call the instance back.
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
 * No wake-up is lost. A thread that has work under the lock calls instances back until it has one
 * for the work, or none is FREE. A thread that uses an instance then finds it WANTED when it gives
 * it back, since both change the same word; it takes the lock instead, and finds the work there.
 * No thread takes an instance ahead of waiting requests: an instance becomes FREE only by being
 * lent again, which is done under the same lock, and only when nothing waits. No more memory
 * ordering than this is needed: give_back releases, and take acquires, the instance's data.
 *
 * After give_back the thread touches neither the instance nor its scheduler: a stop may call the
 * instance back, find it FREE, and free both.
 */
#ifndef CONCH_CORE_SCHED_LOAN_H
#define CONCH_CORE_SCHED_LOAN_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"
#include "base/stripe.h"

struct instance;

/*
 * Lending pays when the same thread uses the instance again; a call-back costs more than a loan
 * saves. So an instance is lent after one thread had it LOAN_AFTER times in a row, with no other
 * work for it in between.
 */
enum { LOAN_AFTER = 8 };

/* A scheduler's. */
struct loans {
    /* By threads: read by each inline request, written under the lock. */
    _Atomic(struct instance *) slots[STRIPES_MAX];
    /* Under the lock. */
    unsigned int n;
};

/* loan_take - takes the instance that is lent to this thread: FREE → USED. NULL: there is none, or
 * it is not FREE. */
struct instance *loan_take(struct loans *l);

/* loan_give_back - USED → FREE. False: the instance is WANTED, and the caller ends the loan with
 * loan_end_locked(). */
NODISCARD bool loan_give_back(struct instance *in);

/* loan_note_locked - notes that this thread has executed on the instance. @quiet  no other work
 * came for it meanwhile */
void loan_note_locked(struct instance *in, bool quiet);

/* loan_lend_locked - lends the instance to this thread, if that pays. The thread has executed on
 * it, and no request waits. Returns whether it is lent. */
bool loan_lend_locked(struct loans *l, struct instance *in);

/* loan_call_back_locked - calls back a FREE instance, and returns it. NULL: none is FREE; all that
 * are USED are WANTED now. */
struct instance *loan_call_back_locked(struct loans *l);

/* loan_end_locked - ends the loan of a WANTED instance: WANTED → NONE. Thread: the one that has
 * used it. */
void loan_end_locked(struct loans *l, struct instance *in);

#endif
