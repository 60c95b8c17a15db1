/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A sleeper with its lock, as its header says: no piece of work is lost, whether the owner is up,
 * looks or sleeps. Meant to run under tsan.
 */
#include "base/sleeper.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/clock.h"

enum { N_PIECES = 20000 };

struct desk {
    pthread_mutex_t mu;
    struct sleeper sleeper;
    int n_waiting, n_done; /* under mu */
    bool over;             /* under mu */
    uint64_t poll_ns;
};

static void *work(void *arg)
{
    struct desk *d = arg;
    pthread_mutex_lock(&d->mu);
    while (!d->over || d->n_waiting) {
        if (d->n_waiting) {
            d->n_waiting--;
            d->n_done++;
            continue;
        }
        sleeper_prepare(&d->sleeper);
        pthread_mutex_unlock(&d->mu);
        sleeper_wait(&d->sleeper, d->poll_ns);
        pthread_mutex_lock(&d->mu);
    }
    pthread_mutex_unlock(&d->mu);
    return NULL;
}

static void bring(struct desk *d, bool over)
{
    pthread_mutex_lock(&d->mu);
    d->n_waiting += !over;
    d->over = over;
    void *asleep = sleeper_rouse(&d->sleeper);
    pthread_mutex_unlock(&d->mu);
    sleeper_wake(asleep);
}

static int n_done(struct desk *d)
{
    pthread_mutex_lock(&d->mu);
    int n = d->n_done;
    pthread_mutex_unlock(&d->mu);
    return n;
}

static void no_work_is_lost(uint64_t poll_ns)
{
    struct desk *d = calloc(1, sizeof(*d)); /* freed at once: who wakes late must not mind */
    pthread_t thread;
    pthread_mutex_init(&d->mu, NULL);
    sleeper_init(&d->sleeper);
    d->poll_ns = poll_ns;
    pthread_create(&thread, NULL, work, d);
    for (int i = 0; i < N_PIECES; i++) {
        bring(d, false);
        if (i % 16 == 0) { /* the owner has nothing to do now and then */
            while (n_done(d) <= i)
                sched_yield();
        }
    }
    bring(d, true);
    pthread_join(thread, NULL);
    assert_int_equal(d->n_done, N_PIECES);
    pthread_mutex_destroy(&d->mu);
    free(d);
}

static void who_sleeps_is_woken(void **state)
{
    (void)state;
    no_work_is_lost(0);
}

static void who_looks_sees_it(void **state)
{
    (void)state;
    no_work_is_lost(20 * NS_PER_US);
}

static void *lie_down(void *arg)
{
    sleeper_wait(arg, 0);
    return NULL;
}

static void only_who_sleeps_needs_waking(void **state)
{
    (void)state;
    struct sleeper s;
    void *asleep = NULL;
    sleeper_init(&s);
    assert_null(sleeper_rouse(&s));
    sleeper_prepare(&s);
    assert_null(sleeper_rouse(&s)); /* it has not lain down yet, and will not */
    sleeper_wait(&s, 0);
    sleeper_wake(NULL);
    while (!asleep) { /* until the thread lies before it is roused */
        pthread_t thread;
        sleeper_prepare(&s);
        pthread_create(&thread, NULL, lie_down, &s);
        sched_yield();
        asleep = sleeper_rouse(&s);
        assert_null(sleeper_rouse(&s));
        sleeper_wake(asleep);
        pthread_join(thread, NULL);
    }
    assert_ptr_equal(asleep, &s.state);
}

static void a_deadline_ends_the_wait_and_so_does_rousing(void **state)
{
    (void)state;
    struct sleeper s;
    sleeper_init(&s);
    uint64_t deadline_ns = monotonic_ns() + 2 * NS_PER_MS;
    while (monotonic_ns() < deadline_ns) { /* it may come back without a reason */
        sleeper_prepare(&s);
        sleeper_wait_until(&s, deadline_ns);
    }
    sleeper_prepare(&s);
    assert_null(sleeper_rouse(&s));
    sleeper_wait_until(&s, monotonic_ns() + 3600 * NS_PER_S);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_sleeps_is_woken),
        cmocka_unit_test(who_looks_sees_it),
        cmocka_unit_test(only_who_sleeps_needs_waking),
        cmocka_unit_test(a_deadline_ends_the_wait_and_so_does_rousing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
