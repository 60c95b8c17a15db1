/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The machine's clock, and the tests' own (lib/fake_clock.h): who waits for its time goes on then,
 * and not before.
 */
#include "base/clock.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/sleeper.h"
#include "lib/fake_clock.h"

static void the_real_clock_runs_forward(void **state)
{
    (void)state;
    struct clock *c = clock_real();
    uint64_t first_ns = clock_now_ns(c), last_ns = first_ns;
    while (last_ns == first_ns) {
        uint64_t now_ns = clock_now_ns(c);
        assert_true(now_ns >= last_ns);
        last_ns = now_ns;
    }
    uint64_t direct_ns = monotonic_ns(); /* the same clock */
    assert_true(direct_ns >= last_ns);
    assert_true(direct_ns - last_ns < 10 * NS_PER_S);
}

static void a_fake_clock_stands_still(void **state)
{
    (void)state;
    struct clock_fake fake;
    clock_fake_init(&fake, 500);
    assert_int_equal(clock_now_ns(&fake.clock), 500);
    assert_int_equal(clock_now_ns(&fake.clock), 500);
    clock_fake_advance(&fake, NS_PER_MS);
    assert_int_equal(clock_now_ns(&fake.clock), 500 + NS_PER_MS);
}

static void the_real_clock_ends_a_wait(void **state)
{
    (void)state;
    struct mutex mu;
    struct cond cond;
    struct sleeper s;
    mutex_init(&mu, 1, "test");
    cond_init(&cond);
    sleeper_init(&s);
    uint64_t until_ns = monotonic_ns() + NS_PER_MS;
    mutex_lock(&mu);
    while (cond_wait_by_clock(&cond, &mu, clock_real(), until_ns))
        assert_true(monotonic_ns() < until_ns + 100 * NS_PER_S);
    mutex_unlock(&mu);
    assert_true(monotonic_ns() >= until_ns);
    until_ns = monotonic_ns() + NS_PER_MS;
    while (monotonic_ns() < until_ns) { /* it may come back without a reason */
        sleeper_prepare(&s);
        sleeper_wait_by_clock(&s, clock_real(), until_ns);
    }
    cond_done(&cond);
    mutex_done(&mu);
}

/* ---- Threads that wait for a fake clock ------------------------------------------------------ */

static struct clock_fake fake;

struct dozer {
    pthread_t thread;
    struct mutex mu;
    struct cond cond;
    struct sleeper sleeper; /* used instead of the condition if `sleeps` */
    bool sleeps;
    uint64_t until_ns, woke_ns;
};

static void *doze(void *arg)
{
    struct dozer *d = arg;
    mutex_lock(&d->mu);
    while (clock_now_ns(&fake.clock) < d->until_ns) {
        if (!d->sleeps) {
            (void)cond_wait_by_clock(&d->cond, &d->mu, &fake.clock, d->until_ns);
            continue;
        }
        sleeper_prepare(&d->sleeper);
        mutex_unlock(&d->mu);
        sleeper_wait_by_clock(&d->sleeper, &fake.clock, d->until_ns);
        mutex_lock(&d->mu);
    }
    d->woke_ns = clock_now_ns(&fake.clock);
    mutex_unlock(&d->mu);
    return NULL;
}

static void start_dozer(struct dozer *d, bool sleeps, uint64_t by_ns)
{
    *d = (struct dozer){.sleeps = sleeps, .until_ns = clock_now_ns(&fake.clock) + by_ns};
    mutex_init(&d->mu, 1, "dozer");
    cond_init(&d->cond);
    sleeper_init(&d->sleeper);
    assert_int_equal(pthread_create(&d->thread, NULL, doze, d), 0);
}

static void join_dozer(struct dozer *d)
{
    pthread_join(d->thread, NULL);
    assert_true(d->woke_ns >= d->until_ns);
    cond_done(&d->cond);
    mutex_done(&d->mu);
}

static void whoever_waits_is_woken_in_time(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct dozer soon, late;
        clock_fake_init(&fake, NS_PER_S);
        start_dozer(&late, i, NS_PER_S);
        clock_fake_await(&fake, NS_PER_S);
        start_dozer(&soon, i, 5 * NS_PER_MS);
        clock_fake_await(&fake, 5 * NS_PER_MS);
        clock_fake_advance(&fake, 5 * NS_PER_MS - 1);
        clock_fake_await(&fake, 1); /* it waits on */
        clock_fake_advance(&fake, 1);
        join_dozer(&soon);
        assert_int_equal(soon.woke_ns, soon.until_ns);
        clock_fake_await(&fake, NS_PER_S - 5 * NS_PER_MS);
        clock_fake_advance(&fake, 3600 * NS_PER_S);
        join_dozer(&late);
        start_dozer(&late, i, 0); /* it need not wait */
        join_dozer(&late);
    }
}

static void a_wait_may_end_before_its_time(void **state)
{
    (void)state;
    struct mutex mu;
    struct cond cond;
    mutex_init(&mu, 1, "test");
    cond_init(&cond);
    clock_fake_init(&fake, NS_PER_S);
    mutex_lock(&mu);
    assert_false(cond_wait_by_clock(&cond, &mu, &fake.clock, NS_PER_S));
    assert_false(cond_wait_by_clock(&cond, &mu, &fake.clock, 0));
    mutex_unlock(&mu);
    struct dozer d;
    start_dozer(&d, false, NS_PER_S);
    clock_fake_await(&fake, NS_PER_S);
    mutex_lock(&d.mu);
    d.until_ns = 0;
    cond_broadcast(&d.cond);
    mutex_unlock(&d.mu);
    join_dozer(&d);
    cond_done(&cond);
    mutex_done(&mu);
}

/* The time moves while they are about to wait, are woken, and wait again. */
static void no_move_is_missed(void **state)
{
    (void)state;
    enum { N = 4, ROUNDS = 500 };
    clock_fake_init(&fake, NS_PER_S);
    for (int round = 0; round < ROUNDS; round++) {
        struct dozer dozers[N];
        for (int i = 0; i < N; i++)
            start_dozer(&dozers[i], i % 2, (uint64_t)(i + round) % 3 + 1);
        for (int i = 0; i < 3; i++)
            clock_fake_advance(&fake, 1);
        for (int i = 0; i < N; i++)
            join_dozer(&dozers[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_real_clock_runs_forward),
        cmocka_unit_test(a_fake_clock_stands_still),
        cmocka_unit_test(the_real_clock_ends_a_wait),
        cmocka_unit_test(whoever_waits_is_woken_in_time),
        cmocka_unit_test(a_wait_may_end_before_its_time),
        cmocka_unit_test(no_move_is_missed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
