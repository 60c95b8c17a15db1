/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each thread that loads keeps a pointer to its slot. Several warm-ups of one load may wait at a
 * time, on any thread: the first of them lends the slot, and the last one takes it back.
 */
#include "core/load_slot.h"

#include <stddef.h>

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
