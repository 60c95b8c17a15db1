/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A test may advance the fake clock while other threads read it: its time is read and set
 * atomically. Relaxed order is enough, since nothing else is published by it.
 */
#include "base/clock.h"

#include "base/compiler.h"

static uint64_t real_now(struct clock *c)
{
    (void)c;
    return monotonic_ns();
}

struct clock *clock_real(void)
{
    static struct clock real = {.now_ns = real_now};
    return &real;
}

static uint64_t fake_now(struct clock *c)
{
    struct clock_fake *fake = CONTAINER_OF(c, struct clock_fake, clock);
    return __atomic_load_n(&fake->time_ns, __ATOMIC_RELAXED);
}

void clock_fake_init(struct clock_fake *c, uint64_t time_ns)
{
    c->clock.now_ns = fake_now;
    __atomic_store_n(&c->time_ns, time_ns, __ATOMIC_RELAXED);
}

void clock_fake_advance(struct clock_fake *c, uint64_t by_ns)
{
    __atomic_fetch_add(&c->time_ns, by_ns, __ATOMIC_RELAXED);
}
