/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A set of timers on its own; how a loop runs them is in test_loop.c.
 */
#include "base/timer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { N = 200, N_STEPS = 20000 };

struct alarm {
    struct timer t;
    bool should_ring; /* the model: it is set, and due in this run */
    int n_rings;
};

static struct timers set;
static struct alarm alarms[N];
static uint64_t last_deadline_ns;
static uint64_t seed = 4711;

static unsigned int draw(unsigned int below)
{
    seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
    return (unsigned int)(seed >> 33) % below;
}

static void on_ring(struct timer *t)
{
    struct alarm *a = CONTAINER_OF(t, struct alarm, t);
    assert_false(t->is_set);
    assert_true(a->should_ring);
    assert_true(t->deadline_ns >= last_deadline_ns); /* earliest first */
    last_deadline_ns = t->deadline_ns;
    a->should_ring = false;
    a->n_rings++;
}

/* Timers are set, set anew and cleared at random while time goes on; a plain search is the model.
 */
static void each_rings_once_in_its_order(void **state)
{
    (void)state;
    uint64_t now_ns = 0;
    timers_init(&set);
    assert_true(timers_next_ns(&set) == UINT64_MAX);
    for (int i = 0; i < N; i++)
        timer_init(&alarms[i].t, on_ring);

    for (int step = 0; step < N_STEPS; step++) {
        struct alarm *a = &alarms[draw(N)];
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
            alarms[i].should_ring = alarms[i].t.is_set && alarms[i].t.deadline_ns <= now_ns;
            n_due += alarms[i].should_ring;
            if (alarms[i].t.is_set && alarms[i].t.deadline_ns < next_ns)
                next_ns = alarms[i].t.deadline_ns;
        }
        assert_true(timers_next_ns(&set) == next_ns);
        last_deadline_ns = 0;
        assert_int_equal(timers_run(&set, now_ns), n_due);
        for (int i = 0; i < N; i++)
            assert_false(alarms[i].should_ring);
    }
}

static void ring_again(struct timer *t)
{
    struct alarm *a = CONTAINER_OF(t, struct alarm, t);
    a->n_rings++;
    timers_set(&set, t, 0);
}

static void one_that_is_always_due_does_not_hold_up_the_rest(void **state)
{
    (void)state;
    timers_init(&set);
    for (int i = 0; i < 2; i++) {
        timer_init(&alarms[i].t, ring_again);
        alarms[i].n_rings = 0;
        timers_set(&set, &alarms[i].t, (uint64_t)i);
    }
    timer_init(&alarms[2].t, on_ring);
    alarms[2].should_ring = true;
    alarms[2].n_rings = 0;
    last_deadline_ns = 0;
    timers_set(&set, &alarms[2].t, 0);
    assert_int_equal(timers_run(&set, 10), 3);
    assert_int_equal(timers_run(&set, 10), 2); /* the two again, the third rang once */
    for (int i = 0; i < 3; i++)
        assert_int_equal(alarms[i].n_rings, i < 2 ? 2 : 1);
    timers_clear(&set, &alarms[0].t);
    assert_int_equal(timers_run(&set, 10), 1);
    timers_clear(&set, &alarms[1].t);
    assert_true(timers_next_ns(&set) == UINT64_MAX);
}

static struct alarm *other;

static void set_and_clear_other(struct timer *t)
{
    CONTAINER_OF(t, struct alarm, t)->n_rings++;
    timers_set(&set, &other->t, 0); /* for the next run … */
    timers_set(&set, &other->t, 0);
    assert_true(other->t.is_set);
    timers_clear(&set, &other->t); /* … or not */
}

static void what_is_set_for_the_next_run_can_be_cleared(void **state)
{
    (void)state;
    timers_init(&set);
    other = &alarms[1];
    timer_init(&alarms[0].t, set_and_clear_other);
    timer_init(&other->t, on_ring);
    alarms[0].n_rings = other->n_rings = 0;
    timers_set(&set, &alarms[0].t, 5);
    timers_set(&set, &other->t, 7);
    assert_int_equal(timers_run(&set, 10), 1);
    assert_int_equal(timers_run(&set, UINT64_MAX), 0);
    assert_int_equal(other->n_rings, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_rings_once_in_its_order),
        cmocka_unit_test(one_that_is_always_due_does_not_hold_up_the_rest),
        cmocka_unit_test(what_is_set_for_the_next_run_can_be_cleared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
