/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The place of a thread among those that load models, of which there are only so many
 * (--model-load-thread-count). A load that does nothing but wait for a backend's warm-up lends its
 * place, so that other models come up meanwhile.
 *
 *     the thread that loads      load_place_set(&p), then loads, then load_place_set(NULL)
 *     model_load()               m->load_place = load_place_mine()
 *     warm-ups of the model      load_place_lend(p) … load_place_take_back(p), on any thread
 */
#ifndef CONCH_CORE_LOAD_PLACE_H
#define CONCH_CORE_LOAD_PLACE_H

#include <stdatomic.h>

struct load_place {
    /* Constant. Any thread, without locks; a lend and a take_back may change places. */
    void (*lend)(struct load_place *p);      /* one more thread may load */
    void (*take_back)(struct load_place *p); /* … and no more */

    /* Any thread: warm-ups of this load that have lent it. */
    atomic_uint n_lent;
};

/* load_place_set - what this thread loads with from now on; NULL: not one of those threads. */
void load_place_set(struct load_place *p);
struct load_place *load_place_mine(void);

/* load_place_lend, load_place_take_back - for one of perhaps several who wait; NULL is fine. */
void load_place_lend(struct load_place *p);
void load_place_take_back(struct load_place *p);

#endif
