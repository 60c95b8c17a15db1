/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Exclusion and conditions in every build, and the checks of levels in builds that have them.
 */
#include "base/mutex.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/status.h"
#include "base/thread.h"
#include "lib/death.h"

static struct mutex low, high;

static int start(void **state)
{
    (void)state;
    mutex_init(&low, 10, "low.mu");
    mutex_init(&high, 20, "high.mu");
    return 0;
}

static int stop(void **state)
{
    (void)state;
    mutex_done(&low);
    mutex_done(&high);
    return 0;
}

static long sum;

static void add_many(void *arg)
{
    (void)arg;
    for (int i = 0; i < 20000; i++) {
        mutex_lock(&low);
        mutex_lock(&high);
        mutex_assert_held(&low);
        mutex_assert_held(&high);
        sum++;
        mutex_unlock(&low); /* in any order */
        mutex_unlock(&high);
        mutex_assert_none_held();
    }
}

static void a_mutex_excludes_other_threads(void **state)
{
    (void)state;
    struct thread threads[4];
    for (int i = 0; i < 4; i++)
        assert_null(thread_start(&threads[i], "adder", add_many, NULL));
    for (int i = 0; i < 4; i++)
        thread_join(&threads[i]);
    assert_int_equal(sum, 4 * 20000);
}

struct meeting {
    struct cond cond;
    int turn; /* under low */
};

static void answer(void *arg)
{
    struct meeting *m = arg;
    mutex_lock(&low);
    for (int i = 0; i < 1000; i++) {
        while (m->turn != 1)
            cond_wait(&m->cond, &low);
        m->turn = 0;
        cond_broadcast(&m->cond);
    }
    mutex_unlock(&low);
}

static void a_condition_wakes_its_waiter(void **state)
{
    (void)state;
    struct meeting m = {.turn = 0};
    struct thread t;
    cond_init(&m.cond);
    assert_null(thread_start(&t, "answer", answer, &m));
    mutex_lock(&low);
    for (int i = 0; i < 1000; i++) {
        m.turn = 1;
        cond_signal(&m.cond);
        while (m.turn != 0)
            assert_true(cond_wait_until(&m.cond, &low,
                                        i % 2 ? UINT64_MAX : monotonic_ns() + 100 * NS_PER_S));
    }
    mutex_assert_held(&low);
    mutex_unlock(&low);
    thread_join(&t);
    cond_done(&m.cond);
}

static void a_wait_ends_at_its_deadline(void **state)
{
    (void)state;
    struct cond c;
    cond_init(&c);
    mutex_lock(&low);
    uint64_t deadline_ns = monotonic_ns() + 2 * NS_PER_MS;
    while (cond_wait_until(&c, &low, deadline_ns)) {
        /* a spurious wake-up before the deadline */
        assert_true(monotonic_ns() < deadline_ns + 100 * NS_PER_S);
    }
    assert_true(monotonic_ns() >= deadline_ns);
    assert_false(cond_wait_until(&c, &low, 0)); /* a deadline in the past */
    mutex_assert_held(&low);
    mutex_unlock(&low);
    cond_done(&c);
}

#ifdef CONCH_DEBUG

static void lock_high_then_low(void *arg)
{
    (void)arg;
    mutex_lock(&high);
    mutex_lock(&low);
}

static void lock_twice(void *arg)
{
    (void)arg;
    mutex_lock(&low);
    mutex_lock(&low);
}

static void lock_another_of_the_same_level(void *arg)
{
    (void)arg;
    struct mutex same;
    mutex_init(&same, 10, "same.mu");
    mutex_lock(&low);
    mutex_lock(&same);
}

static void unlock_what_is_not_held(void *arg)
{
    (void)arg;
    mutex_unlock(&low);
}

static void wait_without_the_lock(void *arg)
{
    (void)arg;
    struct cond c;
    cond_init(&c);
    (void)cond_wait_until(&c, &low, 0);
}

static void claim_to_hold(void *arg)
{
    (void)arg;
    mutex_lock(&high);
    mutex_assert_held(&low);
}

static void call_out_with_a_lock(void *arg)
{
    (void)arg;
    mutex_lock(&low);
    mutex_assert_none_held();
}

static void misuse_aborts(void **state)
{
    (void)state;
    assert_aborts(lock_high_then_low, NULL,
                  "mutex 'low.mu' (level 10) is locked out of order; this thread holds: 'high.mu' "
                  "(level 20)");
    assert_aborts(lock_twice, NULL, "'low.mu' (level 10) is locked out of order");
    assert_aborts(lock_another_of_the_same_level, NULL,
                  "'same.mu' (level 10) is locked out of order");
    assert_aborts(unlock_what_is_not_held, NULL, "'low.mu' (level 10) is unlocked, but not held");
    assert_aborts(wait_without_the_lock, NULL, "'low.mu' (level 10) is unlocked, but not held");
    assert_aborts(claim_to_hold, NULL, "'low.mu' (level 10) should be held");
    assert_aborts(call_out_with_a_lock, NULL, "'low.mu' (level 10) is held across a call out");
}

#else

/* A release build promises instead that the checks cost nothing, not even a call. */
static void checks_are_not_built_in(void **state)
{
    (void)state;
    mutex_assert_held(&low);
    mutex_lock(&low);
    mutex_assert_none_held();
    mutex_unlock(&low);
}
#define misuse_aborts checks_are_not_built_in

#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_mutex_excludes_other_threads, start, stop),
        cmocka_unit_test_setup_teardown(a_condition_wakes_its_waiter, start, stop),
        cmocka_unit_test_setup_teardown(a_wait_ends_at_its_deadline, start, stop),
        cmocka_unit_test_setup_teardown(misuse_aborts, start, stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
