/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A set of timers on its own. test_loop.c tests how a loop runs it.
 */
#include "base/timer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { N = 200, N_STEPS = 20000 };

struct test_timer {
    struct timer t;
    bool should_fire; /* the model: the timer is set, and due in this run */
    int n_fired;
};

static struct timers set;
static struct test_timer test_timers[N];
static uint64_t last_deadline_ns;
static uint64_t seed = 4711;

static unsigned int draw(unsigned int below)
{
    seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
    return (unsigned int)(seed >> 33) % below;
}

static void on_fire(struct timer *t)
{
    struct test_timer *a = CONTAINER_OF(t, struct test_timer, t);
    assert_false(t->is_set);
    assert_true(a->should_fire);
    assert_true(t->deadline_ns >= last_deadline_ns); /* earliest first */
    last_deadline_ns = t->deadline_ns;
    a->should_fire = false;
    a->n_fired++;
}

/* Timers are set, set again and cleared at random while time passes. A plain search is the
 * model. */
static void each_timer_fires_once_in_order(void **state)
{
    (void)state;
    uint64_t now_ns = 0;
    timers_init(&set);
    assert_true(timers_next_ns(&set) == UINT64_MAX);
    for (int i = 0; i < N; i++)
        timer_init(&test_timers[i].t, on_fire);

    for (int step = 0; step < N_STEPS; step++) {
        struct test_timer *a = &test_timers[draw(N)];
        if (draw(4) == 0)
            timers_clear(&set, &a->t);
        else
            timers_set(&set, &a->t, now_ns + draw(500));
        if (step % 10 != 0)
            continue;

        now_ns += draw(100);
        unsigned int n_due = 0;
        uint64_t next_ns = UINT64_MAX;
        for (int i = 0; i < N; i++) {
            test_timers[i].should_fire =
                test_timers[i].t.is_set && test_timers[i].t.deadline_ns <= now_ns;
            n_due += test_timers[i].should_fire;
            if (test_timers[i].t.is_set && test_timers[i].t.deadline_ns < next_ns)
                next_ns = test_timers[i].t.deadline_ns;
        }
        assert_true(timers_next_ns(&set) == next_ns);
        last_deadline_ns = 0;
        assert_int_equal(timers_run(&set, now_ns), n_due);
        for (int i = 0; i < N; i++)
            assert_false(test_timers[i].should_fire);
    }
}

static void fire_again(struct timer *t)
{
    struct test_timer *a = CONTAINER_OF(t, struct test_timer, t);
    a->n_fired++;
    timers_set(&set, t, 0);
}

static void a_timer_that_is_always_due_does_not_hold_up_the_others(void **state)
{
    (void)state;
    timers_init(&set);
    for (int i = 0; i < 2; i++) {
        timer_init(&test_timers[i].t, fire_again);
        test_timers[i].n_fired = 0;
        timers_set(&set, &test_timers[i].t, (uint64_t)i);
    }
    timer_init(&test_timers[2].t, on_fire);
    test_timers[2].should_fire = true;
    test_timers[2].n_fired = 0;
    last_deadline_ns = 0;
    timers_set(&set, &test_timers[2].t, 0);
    assert_int_equal(timers_run(&set, 10), 3);
    assert_int_equal(timers_run(&set, 10), 2); /* these two again; the third has fired before */
    for (int i = 0; i < 3; i++)
        assert_int_equal(test_timers[i].n_fired, i < 2 ? 2 : 1);
    timers_clear(&set, &test_timers[0].t);
    assert_int_equal(timers_run(&set, 10), 1);
    timers_clear(&set, &test_timers[1].t);
    assert_true(timers_next_ns(&set) == UINT64_MAX);
}

static struct test_timer *other;

static void set_and_clear_other(struct timer *t)
{
    CONTAINER_OF(t, struct test_timer, t)->n_fired++;
    timers_set(&set, &other->t, 0); /* for the next run … */
    timers_set(&set, &other->t, 0);
    assert_true(other->t.is_set);
    timers_clear(&set, &other->t); /* … or not */
}

static void a_timer_set_for_the_next_run_can_be_cleared(void **state)
{
    (void)state;
    timers_init(&set);
    other = &test_timers[1];
    timer_init(&test_timers[0].t, set_and_clear_other);
    timer_init(&other->t, on_fire);
    test_timers[0].n_fired = other->n_fired = 0;
    timers_set(&set, &test_timers[0].t, 5);
    timers_set(&set, &other->t, 7);
    assert_int_equal(timers_run(&set, 10), 1);
    assert_int_equal(timers_run(&set, UINT64_MAX), 0);
    assert_int_equal(other->n_fired, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_timer_fires_once_in_order),
        cmocka_unit_test(a_timer_that_is_always_due_does_not_hold_up_the_others),
        cmocka_unit_test(a_timer_set_for_the_next_run_can_be_cleared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
