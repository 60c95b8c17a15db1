/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Alarms ring in time, by the thread that they share, and never after their end. Meant to run under
 * tsan.
 */
#include "core/sched/alarm.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/status.h"

struct bell {
    struct alarm alarm;
    pthread_mutex_t mu;
    pthread_cond_t rung;
    int n_rung, n_again;
    uint64_t rung_ns;
    bool ended;
};

static void on_ring(struct alarm *a)
{
    struct bell *b = CONTAINER_OF(a, struct bell, alarm);
    pthread_mutex_lock(&b->mu);
    assert_false(b->ended);
    b->n_rung++;
    b->rung_ns = monotonic_ns();
    if (b->n_again-- > 0)
        alarm_ring_by(a, b->rung_ns); /* at once */
    pthread_cond_broadcast(&b->rung);
    pthread_mutex_unlock(&b->mu);
}

static void make(struct bell *b, struct alarms *set)
{
    *b = (struct bell){0};
    pthread_mutex_init(&b->mu, NULL);
    pthread_cond_init(&b->rung, NULL);
    assert_null(alarm_init(&b->alarm, set, on_ring));
}

static void wait_for(struct bell *b, int n)
{
    pthread_mutex_lock(&b->mu);
    while (b->n_rung < n)
        pthread_cond_wait(&b->rung, &b->mu);
    pthread_mutex_unlock(&b->mu);
}

static void set_by(struct bell *b, uint64_t at_ns)
{
    pthread_mutex_lock(&b->mu); /* as the contract wants it: the lock of what ring() looks at */
    alarm_ring_by(&b->alarm, at_ns);
    pthread_mutex_unlock(&b->mu);
}

static void end(struct bell *b)
{
    alarm_done(&b->alarm);
    pthread_mutex_lock(&b->mu);
    b->ended = true;
    pthread_mutex_unlock(&b->mu);
}

static void an_alarm_rings_when_it_is_time(void **state)
{
    (void)state;
    struct alarms set;
    struct bell b;
    alarms_init(&set);
    make(&b, &set);
    uint64_t at_ns = monotonic_ns() + 3 * NS_PER_MS;
    set_by(&b, at_ns);
    wait_for(&b, 1);
    assert_true(b.rung_ns >= at_ns);
    set_by(&b, 0); /* long ago */
    wait_for(&b, 2);
    end(&b);
    alarms_done(&set);
}

static void the_earliest_time_counts(void **state)
{
    (void)state;
    struct alarms set;
    struct bell b, other;
    alarms_init(&set);
    make(&b, &set);
    make(&other, &set);
    uint64_t now_ns = monotonic_ns();
    set_by(&other, now_ns + 3600 * NS_PER_S);
    set_by(&b, now_ns + 3600 * NS_PER_S); /* the thread waits for an hour … */
    set_by(&b, now_ns + NS_PER_MS);       /* … and has to be told */
    set_by(&b, now_ns + 7200 * NS_PER_S); /* … which a later time does not take back */
    wait_for(&b, 1);
    end(&b);
    assert_int_equal(other.n_rung, 0);
    end(&other);
    alarms_done(&set);
}

static void an_alarm_may_set_itself(void **state)
{
    (void)state;
    struct alarms set;
    struct bell b;
    alarms_init(&set);
    make(&b, &set);
    b.n_again = 100;
    set_by(&b, 0);
    wait_for(&b, 101);
    end(&b);
    alarms_done(&set);
}

/* Set by many, and ended while it rings again and again. */
static void *set_often(void *arg)
{
    struct bell *bells = arg;
    for (int i = 0; i < 2000; i++)
        set_by(&bells[i % 4], monotonic_ns() + (uint64_t)(i % 7) * NS_PER_US);
    return NULL;
}

static void nothing_rings_after_the_end(void **state)
{
    (void)state;
    for (int round = 0; round < 20; round++) {
        struct alarms set;
        struct bell bells[4];
        pthread_t threads[2];
        alarms_init(&set);
        for (int i = 0; i < 4; i++)
            make(&bells[i], &set);
        bells[3].n_again = 1 << 30; /* rings for ever */
        for (int i = 0; i < 2; i++)
            pthread_create(&threads[i], NULL, set_often, bells);
        for (int i = 0; i < 2; i++)
            pthread_join(threads[i], NULL);
        for (int i = 0; i < 4; i++)
            wait_for(&bells[i], 1);
        for (int i = 0; i < 4; i++)
            end(&bells[i]);
        alarms_done(&set);
    }
}

static void alarms_that_nobody_made(void **state)
{
    (void)state;
    struct alarms set;
    struct alarm never = {.set = NULL};
    alarms_init(&set);
    assert_false(set.has_thread);
    alarm_done(&never);
    alarms_done(&set);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_alarm_rings_when_it_is_time),
        cmocka_unit_test(the_earliest_time_counts),
        cmocka_unit_test(an_alarm_may_set_itself),
        cmocka_unit_test(nothing_rings_after_the_end),
        cmocka_unit_test(alarms_that_nobody_made),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
