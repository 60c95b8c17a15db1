/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The slot of a thread among those that load models, of which there are only so many
 * (--model-load-thread-count). A load that does nothing but wait for a backend's warm-up lends its
 * slot, so that other models come up meanwhile.
 *
 *     the thread that loads      load_slot_set(&p), then loads, then load_slot_set(NULL)
 *     model_load()               m->load_slot = load_slot_mine()
 *     warm-ups of the model      load_slot_lend(p) … load_slot_take_back(p), on any thread
 */
#ifndef CONCH_CORE_LOAD_SLOT_H
#define CONCH_CORE_LOAD_SLOT_H

#include <stdatomic.h>
#include <stddef.h>

struct load_slot {
    /* Constant. Any thread, without locks; a lend and a take_back may change slots. */
    void (*lend)(struct load_slot *p);      /* one more thread may load */
    void (*take_back)(struct load_slot *p); /* … and no more */

    /* Any thread: warm-ups of this load that have lent it. */
    atomic_uint n_lent;
};

/* load_slot_set - what this thread loads with from now on; NULL: not one of those threads. */
void load_slot_set(struct load_slot *p);
struct load_slot *load_slot_mine(void);

/*
 * load_in_parallel - as parallel_for(), on up to max_threads threads of that name; each has a slot
 * while it works, and one that lends it lets another thread work.
 */
void load_in_parallel(const char *thread_name, size_t max_threads, size_t n,
                      void (*work)(void *arg, size_t i), void *arg);

/* load_slot_lend, load_slot_take_back - for one of perhaps several who wait; NULL is fine. */
void load_slot_lend(struct load_slot *p);
void load_slot_take_back(struct load_slot *p);

#endif
