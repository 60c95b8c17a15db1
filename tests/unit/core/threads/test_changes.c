/* SPDX-License-Identifier: Apache-2.0 */
/* Subscriptions of loops to changes: each change is heard of, by one message at a time. */
#include "core/threads/changes.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/loop.h"
#include "base/status.h"
#include "base/thread.h"

static struct changes changes;
static struct loop loop;

static int begin(void **state)
{
    (void)state;
    changes_init(&changes);
    assert_null(loop_init(&loop, clock_real()));
    loop.owner = pthread_self();
    return 0;
}

static int end(void **state)
{
    (void)state;
    loop_done(&loop);
    changes_done(&changes);
    return 0;
}

static void count(void *arg)
{
    ++*(int *)arg;
}

static void changes_before_a_delivery_are_one_message(void **state)
{
    (void)state;
    int n = 0, n_others = 0;
    changes_announce(&changes); /* nobody hears of it */
    struct subscription *s = changes_subscribe(&changes, &loop, count, &n);
    struct subscription *other = changes_subscribe(&changes, &loop, count, &n_others);
    assert_non_null(s);
    assert_non_null(other);
    loop_iterate(&loop, 0);
    assert_int_equal(n, 0);
    uint32_t before = changes_generation(&changes);
    for (int i = 0; i < 3; i++)
        changes_announce(&changes);
    assert_int_equal(changes_generation(&changes), before + 3);
    loop_iterate(&loop, 0);
    assert_int_equal(n, 1);
    changes_announce(&changes);
    loop_iterate(&loop, 0);
    loop_iterate(&loop, 0);
    assert_int_equal(n, 2);
    assert_int_equal(n_others, 2);
    changes_unsubscribe(s);
    changes_announce(&changes);
    loop_iterate(&loop, 0);
    assert_int_equal(n, 2);
    assert_int_equal(n_others, 3);
    changes_unsubscribe(other);
    changes_unsubscribe(NULL);
}

/* The message is under way: it finds the subscription, and calls nobody. */
static void a_subscription_may_end_before_its_message_comes(void **state)
{
    (void)state;
    int n = 0;
    struct subscription *s = changes_subscribe(&changes, &loop, count, &n);
    assert_non_null(s);
    changes_announce(&changes);
    changes_unsubscribe(s);
    loop_iterate(&loop, 0);
    assert_int_equal(n, 0);
}

/* ---- Many threads ---------------------------------------------------------------------------- */

enum { THREADS = 4, ROUNDS = 2000 };

struct seen {
    atomic_int n; /* what changes */
    int last;     /* that on_change() has seen */
};

static void see(void *arg)
{
    struct seen *seen = arg;
    seen->last = atomic_load_explicit(&seen->n, memory_order_relaxed);
}

static void change_often(void *arg)
{
    struct seen *seen = arg;
    for (int i = 0; i < ROUNDS; i++) {
        atomic_fetch_add_explicit(&seen->n, 1, memory_order_relaxed);
        changes_announce(&changes);
    }
}

/* Whatever the order, the last call of on_change() sees the last change. */
static void no_change_is_missed(void **state)
{
    (void)state;
    struct seen seen = {.last = 0};
    struct thread threads[THREADS];
    struct subscription *s = changes_subscribe(&changes, &loop, see, &seen);
    assert_non_null(s);
    for (int i = 0; i < THREADS; i++)
        assert_null(thread_start(&threads[i], "changer", change_often, &seen));
    while (seen.last < THREADS * ROUNDS)
        loop_iterate(&loop, UINT64_MAX); /* a lost message would leave it here */
    for (int i = 0; i < THREADS; i++)
        thread_join(&threads[i]);
    changes_unsubscribe(s);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, begin, end)
    const struct CMUnitTest tests[] = {
        TEST(changes_before_a_delivery_are_one_message),
        TEST(a_subscription_may_end_before_its_message_comes),
        TEST(no_change_is_missed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
