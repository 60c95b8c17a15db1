/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A sleeper with its lock, used as its header demands. No piece of work is lost, whether the owner
 * runs, looks or sleeps. Meant to run under tsan.
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
    struct desk *d = calloc(1, sizeof(*d)); /* freed at once, although a thread may wake late */
    pthread_t thread;
    pthread_mutex_init(&d->mu, NULL);
    sleeper_init(&d->sleeper);
    d->poll_ns = poll_ns;
    pthread_create(&thread, NULL, work, d);
    for (int i = 0; i < N_PIECES; i++) {
        bring(d, false);
        if (i % 16 == 0) { /* now and then the owner finds nothing to do */
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

static void a_sleeping_owner_is_woken(void **state)
{
    (void)state;
    no_work_is_lost(0);
}

static void an_owner_that_looks_sees_the_work(void **state)
{
    (void)state;
    no_work_is_lost(20 * NS_PER_US);
}

static void *lie_down(void *arg)
{
    sleeper_wait(arg, 0);
    return NULL;
}

static void only_a_sleeping_owner_needs_a_wake_up(void **state)
{
    (void)state;
    struct sleeper s;
    void *asleep = NULL;
    sleeper_init(&s);
    assert_null(sleeper_rouse(&s));
    sleeper_prepare(&s);
    assert_null(sleeper_rouse(&s)); /* it has not slept yet, and will not */
    sleeper_wait(&s, 0);
    sleeper_wake(NULL);
    while (!asleep) { /* until the thread sleeps */
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

static void a_deadline_or_rousing_ends_the_wait(void **state)
{
    (void)state;
    struct sleeper s;
    sleeper_init(&s);
    uint64_t deadline_ns = monotonic_ns() + 2 * NS_PER_MS;
    while (monotonic_ns() < deadline_ns) { /* the wait may end spuriously */
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
        cmocka_unit_test(a_sleeping_owner_is_woken),
        cmocka_unit_test(an_owner_that_looks_sees_the_work),
        cmocka_unit_test(only_a_sleeping_owner_needs_a_wake_up),
        cmocka_unit_test(a_deadline_or_rousing_ends_the_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
