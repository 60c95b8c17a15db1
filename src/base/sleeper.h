/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lets one thread, the owner, sleep until another thread has work for it. The wake-up happens
 * outside the lock: a thread that is woken under the lock runs into that lock, which costs two more
 * context switches.
 *
 *     the owner                                  any other thread
 *     lock; nothing to do: sleeper_prepare()     lock; adds work
 *     unlock                                     asleep = sleeper_rouse()
 *     sleeper_wait()                             unlock
 *     lock; looks for work again                 sleeper_wake(asleep)
 *
 * Work is added and looked for under the same lock, so that no wake-up is lost. sleeper_wake() gets
 * only an address for the kernel and does not read it. The sleeper may be freed by then, since its
 * owner may have seen the work and ended.
 */
#ifndef CONCH_BASE_SLEEPER_H
#define CONCH_BASE_SLEEPER_H

#include <stdatomic.h>
#include <stdint.h>

struct clock;

struct sleeper {
    atomic_uint state; /* a futex; see sleeper.c */
};

void sleeper_init(struct sleeper *s);

/* sleeper_prepare - a rouse from now on ends the next wait. Thread: the owner, under the lock. */
void sleeper_prepare(struct sleeper *s);

/*
 * sleeper_wait - waits until another thread rouses the owner. It may also return without a reason,
 * after a late wake-up that was meant for an earlier object at this address. It has no deadline,
 * since the kernel's timer would make each sleep some 0.8 µs dearer.
 *
 * Thread: the owner, without the lock.
 * @poll_ns  how long it polls before it sleeps. Rousing a thread that polls costs no system call on
 *           either side
 */
void sleeper_wait(struct sleeper *s, uint64_t poll_ns);

/*
 * sleeper_wait_until - likewise, but returns at the deadline (monotonic) at the latest. Thread: the
 * owner, without the lock.
 */
void sleeper_wait_until(struct sleeper *s, uint64_t deadline_ns);
/* sleeper_wait_by_clock - the same, where deadline_ns is a time of that clock. */
void sleeper_wait_by_clock(struct sleeper *s, struct clock *clock, uint64_t deadline_ns);

/*
 * sleeper_rouse - ends the owner's wait. Thread: any, under the lock.
 *
 * Returns what to pass to sleeper_wake() after the unlock; NULL: no wake-up is needed.
 */
void *sleeper_rouse(struct sleeper *s);

/* sleeper_wake - wakes the owner, as shown above. Thread: any, without the lock. NULL is fine. */
void sleeper_wake(void *asleep);

#endif
