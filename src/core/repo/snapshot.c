/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each reading thread has a slot in a list that only grows; a thread that ends leaves its slot for
 * another. The seq_cst store of the announcement and the second look at `current` pair with the
 * exchange and the scan in snapshot_replace(): either the reader sees the new value and tries
 * again, or the writer sees the announcement and waits.
 */
#include "core/repo/snapshot.h"

#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/mem.h"

struct slot {
    _Alignas(64) _Atomic(void *) reading; /* a cache line of its own */
    atomic_bool taken;
    struct slot *next; /* constant once published */
};

static _Atomic(struct slot *) slots;
static THREAD_WORD struct slot *my_slot;
static pthread_key_t thread_end;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void release_slot(void *arg)
{
    struct slot *slot = arg;
    atomic_store(&slot->taken, false);
}

static void create_slot_key(void)
{
    pthread_key_create(&thread_end, release_slot);
}

static struct slot *claim_slot(void)
{
    pthread_once(&once, create_slot_key);

    struct slot *slot = atomic_load(&slots);
    for (; slot; slot = slot->next) {
        bool expected = false;
        if (atomic_compare_exchange_strong(&slot->taken, &expected, true))
            break;
    }
    if (!slot) {
        slot = mem_try_alloc_aligned(sizeof(*slot));
        BUG_ON(!slot);
        atomic_init(&slot->reading, NULL);
        atomic_init(&slot->taken, true);
        slot->next = atomic_load(&slots);
        while (!atomic_compare_exchange_weak(&slots, &slot->next, slot)) {
        }
    }
    my_slot = slot;
    pthread_setspecific(thread_end, slot);
    return slot;
}

void *snapshot_enter(struct snapshot *s)
{
    struct slot *slot = my_slot ? my_slot : claim_slot();
    void *value = atomic_load(&s->current);
    for (;;) {
        atomic_store(&slot->reading, value);
        void *again = atomic_load(&s->current);
        if (LIKELY(again == value))
            return value;
        value = again;
    }
}

void snapshot_exit(void)
{
    /* Release: the reads are over before the writer may free the value. */
    atomic_store_explicit(&my_slot->reading, NULL, memory_order_release);
}

void *snapshot_replace(struct snapshot *s, void *next)
{
    void *old = atomic_exchange(&s->current, next);
    for (struct slot *slot = atomic_load(&slots); slot; slot = slot->next) {
        while (old && atomic_load(&slot->reading) == old)
            sched_yield(); /* a reader stays for nanoseconds */
    }
    return old;
}
