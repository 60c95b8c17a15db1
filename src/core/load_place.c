/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each thread that loads keeps a pointer to its place. Several warm-ups of one load may wait at a
 * time, on any thread: the first of them lends the place, and the last one takes it back.
 */
#include "core/load_place.h"

#include <stddef.h>

static _Thread_local struct load_place *mine;

void load_place_set(struct load_place *p)
{
    mine = p;
}

struct load_place *load_place_mine(void)
{
    return mine;
}

void load_place_lend(struct load_place *p)
{
    if (p && atomic_fetch_add(&p->n_lent, 1) == 0)
        p->lend(p);
}

void load_place_take_back(struct load_place *p)
{
    if (p && atomic_fetch_sub(&p->n_lent, 1) == 1)
        p->take_back(p);
}
