/* SPDX-License-Identifier: Apache-2.0 */
/*
 *          prepare                    poll over
 *    UP ───────────► LOOKING ─────────────────────► ASLEEP
 *    ▲                  │ rouse: changes the state     │ rouse: then also wakes
 *    └──────────────────┴──────────────────────────────┘
 *
 * The lock orders the work that is handed over. Release and acquire are for threads that look
 * without it.
 */
#include "base/sleeper.h"

#include <linux/futex.h>
#include <stdbool.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/compiler.h"

enum { UP, LOOKING, ASLEEP };

enum { LOOKS_PER_TIME = 8 }; /* between two readings of the clock, some 0.3 µs */

void sleeper_init(struct sleeper *s)
{
    atomic_init(&s->state, UP);
}

void sleeper_prepare(struct sleeper *s)
{
    atomic_store_explicit(&s->state, LOOKING, memory_order_relaxed);
}

static bool is_up(struct sleeper *s)
{
    return atomic_load_explicit(&s->state, memory_order_acquire) == UP;
}

static void pause_cpu(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static bool poll_until(struct sleeper *s, uint64_t end_ns)
{
    do {
        for (int i = 0; i < LOOKS_PER_TIME; i++) {
            if (is_up(s))
                return true;
            pause_cpu();
        }
    } while (monotonic_ns() < end_ns);
    return false;
}

/* False: it was roused in time. */
static bool fall_asleep(struct sleeper *s)
{
    unsigned int expected = LOOKING;
    return atomic_compare_exchange_strong_explicit(&s->state, &expected, ASLEEP,
                                                   memory_order_acquire, memory_order_acquire);
}

void sleeper_wait(struct sleeper *s, uint64_t poll_ns)
{
    if (poll_ns && poll_until(s, monotonic_ns() + poll_ns))
        return;
    if (fall_asleep(s))
        syscall(SYS_futex, &s->state, FUTEX_WAIT_PRIVATE, ASLEEP, NULL, NULL, 0);
}

void sleeper_wait_until(struct sleeper *s, uint64_t deadline_ns)
{
    const struct timespec deadline = {.tv_sec = (time_t)(deadline_ns / NS_PER_S),
                                      .tv_nsec = (long)(deadline_ns % NS_PER_S)};
    /* The futex call whose timeout is a point in time and not a length; on CLOCK_MONOTONIC. */
    if (fall_asleep(s))
        syscall(SYS_futex, &s->state, FUTEX_WAIT_BITSET_PRIVATE, ASLEEP, &deadline, NULL,
                FUTEX_BITSET_MATCH_ANY);
}

void sleeper_wait_by_clock(struct sleeper *s, struct clock *clock, uint64_t deadline_ns)
{
    if (clock == clock_real())
        sleeper_wait_until(s, deadline_ns);
    else
        clock->wait_sleeper(clock, s, deadline_ns);
}

void *sleeper_rouse(struct sleeper *s)
{
    unsigned int before = atomic_exchange_explicit(&s->state, UP, memory_order_release);
    return before == ASLEEP ? &s->state : NULL;
}

void sleeper_wake(void *asleep)
{
    if (asleep)
        syscall(SYS_futex, asleep, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}
