/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A load slot is the permit to load a model; there are --model-load-thread-count of them. A load
 * that only waits for a backend's warm-up lends its slot, so that another model is loaded
 * meanwhile.
 *
 *     the thread that loads      load_slot_set(&p), then loads, then load_slot_set(NULL)
 *     model_load()               m->load_slot = load_slot_mine()
 *     warm-ups of the model      load_slot_lend(p) … load_slot_take_back(p), on any thread
 */
#ifndef CONCH_CORE_THREADS_LOAD_SLOT_H
#define CONCH_CORE_THREADS_LOAD_SLOT_H

#include <stdatomic.h>
#include <stddef.h>

struct load_slot {
    /* Constant. Called on any thread, without locks. A take_back on one thread may be called
     * before the lend on another thread that it undoes. */
    void (*lend)(struct load_slot *p);      /* one more thread may load */
    void (*take_back)(struct load_slot *p); /* … and no more */

    /* Any thread: warm-ups of this load that have lent it. */
    atomic_uint n_lent;
};

/* load_slot_set - sets the slot with which this thread loads; NULL: it does not load any more. */
void load_slot_set(struct load_slot *p);
/* load_slot_mine - this thread's slot, or NULL. Borrowed. */
struct load_slot *load_slot_mine(void);

/*
 * load_in_parallel - as parallel_for(), on up to max_threads threads of that name. Each thread has
 * a slot while it works; when it lends its slot, another thread may work.
 */
void load_in_parallel(const char *thread_name, size_t max_threads, size_t n,
                      void (*work)(void *arg, size_t i), void *arg);

/* load_slot_lend, load_slot_take_back - called by each warm-up of a load that waits: the first
 * lends the slot, the last takes it back. NULL is fine. */
void load_slot_lend(struct load_slot *p);
void load_slot_take_back(struct load_slot *p);

#endif
