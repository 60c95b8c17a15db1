/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How one thread sleeps until another has something for it, without a wake-up under a lock: who
 * wakes under a lock lets the woken thread run into that lock, which costs two more switches.
 *
 *     the owner                                  anybody else
 *     lock; nothing to do: sleeper_prepare()     lock; brings work
 *     unlock                                     asleep = sleeper_rouse()
 *     sleeper_wait()                             unlock
 *     lock; looks again                          sleeper_wake(asleep)
 *
 * The lock is the one under which work is brought and looked for, so that no rousing is lost. What
 * sleeper_wake() gets is an address for the kernel and no more: the sleeper may be gone by then,
 * its owner having seen the work and ended.
 */
#ifndef CONCH_BASE_SLEEPER_H
#define CONCH_BASE_SLEEPER_H

#include <stdatomic.h>
#include <stdint.h>

struct sleeper {
    atomic_uint state; /* a futex; see sleeper.c */
};

void sleeper_init(struct sleeper *s);

/* sleeper_prepare - from now on rousing ends the next wait. Thread: the owner, under the lock. */
void sleeper_prepare(struct sleeper *s);

/*
 * sleeper_wait - until somebody rouses it. May also return without a reason, after a wake-up that
 * was meant for what lay here before. It has no deadline: the kernel's timer would make each sleep
 * dearer by some 0.8 µs.
 *
 * Thread: the owner, without the lock.
 * @poll_ns  so long it looks, again and again, before it sleeps: who rouses a thread that looks
 *           makes no system call, and neither does the thread
 */
void sleeper_wait(struct sleeper *s, uint64_t poll_ns);

/* sleeper_wait_until - likewise, until the deadline (monotonic) at most, for who has something to
 * do then. Thread: the owner, without the lock. */
void sleeper_wait_until(struct sleeper *s, uint64_t deadline_ns);

/*
 * sleeper_rouse - ends the wait of the owner. Thread: any, under the lock.
 *
 * Returns what sleeper_wake() is to get when the lock is let go of; NULL: nothing more is needed.
 */
void *sleeper_rouse(struct sleeper *s);

/* sleeper_wake - see above. Thread: any. NULL is fine. */
void sleeper_wake(void *asleep);

#endif
