/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A bit for each instance. The hints are kept by stripe (base/stripe.h), so two threads may share
 * one. They are only hints: its bit says whether an instance is idle.
 */
#include "core/sched/idle.h"

#include "base/mem.h"
#include "base/stripe.h"

enum { WORD_BITS = 64 };

void idle_init(struct idle *i, uint32_t n)
{
    *i = (struct idle){.n_words = 1, .words = &i->few};
    if (n <= WORD_BITS)
        return;
    i->n_words = (n + WORD_BITS - 1) / WORD_BITS;
    i->words = mem_zalloc(i->n_words * sizeof(*i->words));
}

void idle_done(struct idle *i)
{
    if (i->words != &i->few)
        mem_free(i->words);
    i->words = NULL;
}

bool idle_has(const struct idle *i, uint32_t number)
{
    return i->words[number / WORD_BITS] >> number % WORD_BITS & 1;
}

void idle_add(struct idle *i, uint32_t number)
{
    i->words[number / WORD_BITS] |= (uint64_t)1 << number % WORD_BITS;
    i->last = number;
}

void idle_remove(struct idle *i, uint32_t number)
{
    i->words[number / WORD_BITS] &= ~((uint64_t)1 << number % WORD_BITS);
}

uint32_t idle_next(const struct idle *i, uint32_t from)
{
    uint64_t mask = ~(uint64_t)0 << from % WORD_BITS;
    for (uint32_t w = from / WORD_BITS; w < i->n_words; w++, mask = ~(uint64_t)0) {
        uint64_t word = i->words[w] & mask;
        if (word)
            return w * WORD_BITS + (uint32_t)__builtin_ctzll(word);
    }
    return IDLE_NONE;
}

uint32_t idle_best(const struct idle *i)
{
    uint32_t mine = i->hints[stripe_here() % IDLE_HINTS];
    if (mine && idle_has(i, mine - 1))
        return mine - 1;
    uint64_t others = i->few & ~i->hinted;
    if (i->hinted && others)
        return (uint32_t)__builtin_ctzll(others);
    return idle_has(i, i->last) ? i->last : idle_next(i, 0);
}

void idle_note_inline(struct idle *i, uint32_t number)
{
    uint32_t *hint = &i->hints[stripe_here() % IDLE_HINTS];
    if (LIKELY(*hint == number + 1))
        return;
    *hint = number + 1;
    i->hinted = 0;
    for (size_t h = 0; h < IDLE_HINTS; h++) {
        if (i->hints[h] && i->hints[h] <= WORD_BITS)
            i->hinted |= (uint64_t)1 << (i->hints[h] - 1);
    }
}
