/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Deadline timers fire in time, on the thread that they share, and never after
 * deadline_timer_done(). The time is that of a fake clock. Meant to run under tsan.
 */
#include "core/threads/deadline_timer.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/status.h"
#include "lib/fake_clock.h"

static struct clock_fake fake;

struct bell {
    struct deadline_timer deadline_timer;
    pthread_mutex_t mu;
    pthread_cond_t fired;
    int n_fired, n_again;
    uint64_t fired_ns;
    bool ended;
};

static void on_fire(struct deadline_timer *t)
{
    struct bell *b = CONTAINER_OF(t, struct bell, deadline_timer);
    pthread_mutex_lock(&b->mu);
    assert_false(b->ended);
    b->n_fired++;
    b->fired_ns = clock_now_ns(&fake.clock);
    if (b->n_again-- > 0)
        deadline_timer_fire_by(t, b->fired_ns); /* at once */
    pthread_cond_broadcast(&b->fired);
    pthread_mutex_unlock(&b->mu);
}

static void make_set(struct deadline_timers *set)
{
    clock_fake_init(&fake, 1000 * NS_PER_S);
    deadline_timers_init(set, &fake.clock);
}

static void make(struct bell *b, struct deadline_timers *set)
{
    *b = (struct bell){0};
    pthread_mutex_init(&b->mu, NULL);
    pthread_cond_init(&b->fired, NULL);
    assert_null(deadline_timer_init(&b->deadline_timer, set, on_fire));
}

static void wait_for(struct bell *b, int n)
{
    pthread_mutex_lock(&b->mu);
    while (b->n_fired < n)
        pthread_cond_wait(&b->fired, &b->mu);
    pthread_mutex_unlock(&b->mu);
}

static void set_by(struct bell *b, uint64_t at_ns)
{
    pthread_mutex_lock(&b->mu); /* as the contract demands: on_timer() is called with this lock */
    deadline_timer_fire_by(&b->deadline_timer, at_ns);
    pthread_mutex_unlock(&b->mu);
}

static void end(struct bell *b)
{
    deadline_timer_done(&b->deadline_timer);
    pthread_mutex_lock(&b->mu);
    b->ended = true;
    pthread_mutex_unlock(&b->mu);
}

static void a_timer_fires_at_its_time(void **state)
{
    (void)state;
    struct deadline_timers set;
    struct bell b;
    make_set(&set);
    make(&b, &set);
    uint64_t at_ns = clock_now_ns(&fake.clock) + 3 * NS_PER_MS;
    set_by(&b, at_ns);
    clock_fake_await(&fake, 3 * NS_PER_MS);
    clock_fake_advance(&fake, 3 * NS_PER_MS - 1);
    clock_fake_await(&fake, 1); /* the thread still waits */
    assert_int_equal(b.n_fired, 0);
    clock_fake_advance(&fake, 1);
    wait_for(&b, 1);
    assert_int_equal(b.fired_ns, at_ns);
    set_by(&b, 0); /* a time in the past fires at once */
    wait_for(&b, 2);
    end(&b);
    deadline_timers_done(&set);
}

static void a_timer_fires_at_the_earliest_time_set(void **state)
{
    (void)state;
    struct deadline_timers set;
    struct bell b, other;
    make_set(&set);
    make(&b, &set);
    make(&other, &set);
    uint64_t now_ns = clock_now_ns(&fake.clock);
    set_by(&other, now_ns + 3600 * NS_PER_S);
    set_by(&b, now_ns + 3600 * NS_PER_S); /* the thread waits for an hour … */
    clock_fake_await(&fake, 3600 * NS_PER_S);
    set_by(&b, now_ns + NS_PER_MS);       /* … and must be woken for an earlier time */
    set_by(&b, now_ns + 7200 * NS_PER_S); /* a later time does not postpone the timer */
    clock_fake_await(&fake, NS_PER_MS);
    clock_fake_advance(&fake, NS_PER_MS);
    wait_for(&b, 1);
    end(&b);
    assert_int_equal(other.n_fired, 0);
    end(&other);
    deadline_timers_done(&set);
}

static void a_timer_may_set_itself(void **state)
{
    (void)state;
    struct deadline_timers set;
    struct bell b;
    make_set(&set);
    make(&b, &set);
    b.n_again = 100;
    set_by(&b, 0);
    wait_for(&b, 101);
    end(&b);
    deadline_timers_done(&set);
}

/* Several threads set the timer while time passes. It is ended while it fires again and again. */
static void *set_often(void *arg)
{
    struct bell *bells = arg;
    for (int i = 0; i < 2000; i++) {
        set_by(&bells[i % 4], clock_now_ns(&fake.clock) + (uint64_t)(i % 7) * NS_PER_US);
        clock_fake_advance(&fake, NS_PER_US / 2);
    }
    return NULL;
}

static void no_timer_fires_after_its_end(void **state)
{
    (void)state;
    for (int round = 0; round < 20; round++) {
        struct deadline_timers set;
        struct bell bells[4];
        pthread_t threads[2];
        make_set(&set);
        for (int i = 0; i < 4; i++)
            make(&bells[i], &set);
        bells[3].n_again = 1 << 30; /* sets itself for ever */
        for (int i = 0; i < 2; i++)
            pthread_create(&threads[i], NULL, set_often, bells);
        for (int i = 0; i < 2; i++)
            pthread_join(threads[i], NULL);
        clock_fake_advance(&fake, 7 * NS_PER_US);
        for (int i = 0; i < 4; i++)
            wait_for(&bells[i], 1);
        for (int i = 0; i < 4; i++)
            end(&bells[i]);
        deadline_timers_done(&set);
    }
}

static void ending_a_timer_that_was_not_made_succeeds(void **state)
{
    (void)state;
    struct deadline_timers set;
    struct deadline_timer never = {.set = NULL};
    make_set(&set);
    assert_false(set.has_thread);
    deadline_timer_done(&never);
    deadline_timers_done(&set);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_timer_fires_at_its_time),
        cmocka_unit_test(a_timer_fires_at_the_earliest_time_set),
        cmocka_unit_test(a_timer_may_set_itself),
        cmocka_unit_test(no_timer_fires_after_its_end),
        cmocka_unit_test(ending_a_timer_that_was_not_made_succeeds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
