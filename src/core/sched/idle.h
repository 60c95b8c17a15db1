/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The instances of a scheduler that have no runner, by their numbers. A thread that executes inline
 * gets the instance that it had last, so that where there are enough of them each loop keeps its
 * own, with all that belongs to it in its core's cache; if that is busy, one that no thread had
 * inline; anybody else gets the one that became idle last. Coming and going writes one word, and
 * nothing of another instance.
 *
 * What is lent (loan.h) is not here.
 *
 * Thread: everything under the scheduler's lock.
 */
#ifndef CONCH_CORE_SCHED_IDLE_H
#define CONCH_CORE_SCHED_IDLE_H

#include <stdbool.h>
#include <stdint.h>

enum { IDLE_NONE = UINT32_MAX / 2, IDLE_HINTS = 16 };

struct idle {
    /* Seldom written. */
    uint32_t hints[IDLE_HINTS]; /* by threads: which one it had, plus one */
    uint64_t hinted;            /* those of the first word that some thread had */
    uint32_t n_words;
    uint64_t *words; /* a bit for each instance: `few`, or more */
    /* Written by each request. */
    uint64_t few;
    uint32_t last; /* the one that became idle last */
};

/* idle_init - room for that many; none is idle. Charged to who pays. */
void idle_init(struct idle *i, uint32_t n);
void idle_done(struct idle *i);

void idle_add(struct idle *i, uint32_t number);
void idle_remove(struct idle *i, uint32_t number);

/* idle_best - the one for this thread, or IDLE_NONE. */
uint32_t idle_best(const struct idle *i);

/* idle_next - the first from that number on, or IDLE_NONE. */
uint32_t idle_next(const struct idle *i, uint32_t from);

/* idle_note_inline - this thread executes on it. */
void idle_note_inline(struct idle *i, uint32_t number);

#endif
