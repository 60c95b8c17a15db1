/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The idle instances of a scheduler: those without a runner, by their numbers.
 *
 * A thread that executes inline gets the instance that it had last. Where there are enough
 * instances each loop so keeps its own, with the instance's data in its core's cache. If that
 * instance is busy, the thread gets one that no thread had inline. Every other caller gets the one
 * that became idle last. Adding and removing an instance writes one word, and no data of others.
 *
 * Instances that are lent (loan.h) are not idle.
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
    uint32_t hints[IDLE_HINTS]; /* by thread: the number of the instance that it had, plus one */
    uint64_t hinted;            /* the instances of the first word that some thread had */
    uint32_t n_words;
    uint64_t *words; /* a bit for each instance: `few`, or more */
    /* Written by each request. */
    uint64_t few;
    uint32_t last; /* the one that became idle last */
};

/* idle_init - room for n instances; none is idle. The memory is on the current account. */
void idle_init(struct idle *i, uint32_t n);
void idle_done(struct idle *i);

void idle_add(struct idle *i, uint32_t number);
void idle_remove(struct idle *i, uint32_t number);

/* idle_has - is that instance idle? */
bool idle_has(const struct idle *i, uint32_t number);

/* idle_best - the idle instance for this thread, or IDLE_NONE. */
uint32_t idle_best(const struct idle *i);

/* idle_next - the first idle instance from that number on, or IDLE_NONE. */
uint32_t idle_next(const struct idle *i, uint32_t from);

/* idle_note_inline - notes that this thread executes inline on that instance. */
void idle_note_inline(struct idle *i, uint32_t number);

#endif
