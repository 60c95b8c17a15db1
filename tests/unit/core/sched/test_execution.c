/* SPDX-License-Identifier: Apache-2.0 */
#include "core/sched/execution.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/status.h"
#include "core/request.h"

static struct turn full = {.left_ns = EXECUTION_BUDGET_NS};

static void the_words(void **state)
{
    (void)state;
    struct execution e;
    assert_null(execution_init(&e, NULL));
    assert_int_equal(e.mode, EXECUTION_AUTO);
    assert_null(execution_init(&e, "auto"));
    assert_int_equal(e.mode, EXECUTION_AUTO);
    assert_null(execution_init(&e, "thread"));
    assert_false(execution_may_inline(&e, &full));
    assert_null(execution_init(&e, "inline"));
    assert_true(execution_may_inline(&e, &full));
    assert_false(execution_may_inline(&e, NULL)); /* the C API's threads are not ours to use */
    struct status *st = execution_init(&e, "Inline");
    assert_int_equal(status_code(st), STATUS_INVALID_ARG);
    assert_string_equal(
        status_message(st),
        "parameter 'CONCH_EXECUTION' is 'Inline', expected 'auto', 'inline' or 'thread'");
    status_free(st);
}

static void what_needs_its_own_thread_is_never_inline(void **state)
{
    (void)state;
    struct execution e;
    assert_null(execution_init(&e, NULL));
    assert_null(execution_never_inline(&e, "somebody needs", "m_0"));
    for (int i = 0; i < 100; i++)
        execution_measured(&e, 100, 0, false);
    assert_false(execution_may_inline(&e, &full));

    assert_null(execution_init(&e, "thread"));
    assert_null(execution_never_inline(&e, "somebody needs", "m_0"));
    assert_null(execution_init(&e, "inline"));
    struct status *st = execution_never_inline(&e, "somebody needs", "m_0");
    assert_int_equal(status_code(st), STATUS_INVALID_ARG);
    assert_string_equal(status_message(st),
                        "parameter 'CONCH_EXECUTION' is 'inline', but somebody needs 'm_0': it "
                        "executes on a thread of its own");
    status_free(st);
}

/* How many executions of that length on the worker it takes until it may run inline. */
static int proof(struct execution *e, uint64_t took_ns, int at_most)
{
    int n = 0;
    while (n < at_most && !execution_may_inline(e, &full)) {
        execution_measured(e, took_ns, 0, false);
        n++;
    }
    return n;
}

static void a_short_model_proves_itself(void **state)
{
    (void)state;
    struct execution e;
    assert_null(execution_init(&e, NULL));
    assert_false(execution_may_inline(&e, &full));
    assert_int_equal(proof(&e, 2000, 100), 4);

    struct turn used_up = {.left_ns = 1000};
    assert_false(execution_may_inline(&e, &used_up));
}

static void a_long_model_never_does(void **state)
{
    (void)state;
    struct execution e;
    assert_null(execution_init(&e, NULL));
    assert_int_equal(proof(&e, EXECUTION_SHORT_NS + 1, 1000), 1000);
    assert_int_equal(proof(&e, 20000000, 1000), 1000);
}

static void moving_bytes_is_not_counted(void **state)
{
    (void)state;
    struct execution e;
    uint64_t bytes = 6 * 100000; /* what takes 100 µs to move */
    assert_null(execution_init(&e, NULL));
    for (int i = 0; i < 4; i++)
        execution_measured(&e, 100000 + EXECUTION_SHORT_NS / 2, bytes, false);
    assert_true(execution_may_inline(&e, &full));
    for (int i = 0; i < 40; i++)
        execution_measured(&e, 100000 + EXECUTION_SHORT_NS * 2, bytes, true);
    assert_false(execution_may_inline(&e, &full));
}

static void a_lapse_costs_more_each_time(void **state)
{
    (void)state;
    struct execution e;
    assert_null(execution_init(&e, NULL));
    proof(&e, 1000, 100);
    int last = 4;
    for (int lapse = 0; lapse < 4; lapse++) {
        for (int i = 0; i < 3; i++)
            execution_measured(&e, EXECUTION_LONG_NS, 0, true);
        assert_false(execution_may_inline(&e, &full));
        int n = proof(&e, 1000, 100000);
        assert_true(n >= 2 * last || last == 4);
        assert_true(n >= 64);
        last = n;
    }
}

static void one_outlier_is_forgiven(void **state)
{
    (void)state;
    struct execution e;
    assert_null(execution_init(&e, NULL));
    proof(&e, 1000, 100);
    for (int round = 0; round < 10; round++) { /* a thread that is preempted now and then */
        execution_measured(&e, 20 * EXECUTION_LONG_NS, 0, true);
        assert_true(execution_may_inline(&e, &full));
        for (int i = 0; i < 400; i++)
            execution_measured(&e, 1000, 0, true);
    }
    assert_true(execution_may_inline(&e, &full));
}

static void a_slower_average_leaves_the_loop(void **state)
{
    (void)state;
    struct execution e;
    assert_null(execution_init(&e, NULL));
    proof(&e, 1000, 100);
    for (int i = 0; i < 40; i++)
        execution_measured(&e, 2 * EXECUTION_SHORT_NS, 0, true);
    assert_false(execution_may_inline(&e, &full));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_words),
        cmocka_unit_test(what_needs_its_own_thread_is_never_inline),
        cmocka_unit_test(a_short_model_proves_itself),
        cmocka_unit_test(a_long_model_never_does),
        cmocka_unit_test(moving_bytes_is_not_counted),
        cmocka_unit_test(a_lapse_costs_more_each_time),
        cmocka_unit_test(one_outlier_is_forgiven),
        cmocka_unit_test(a_slower_average_leaves_the_loop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
