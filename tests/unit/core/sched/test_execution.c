/* SPDX-License-Identifier: Apache-2.0 */
#include "core/sched/execution.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/status.h"
#include "core/request/request.h"
#include "lib/fake_clock.h"

static struct inline_budget full = {.left_ns = EXECUTION_BUDGET_NS};

/* An execution in mode auto, whose backend has declared that it is bounded. */
static void make(struct execution *e, struct clock_fake *clock)
{
    clock_fake_init(clock, NS_PER_S);
    assert_null(execution_init(e, &clock->clock, NULL, true));
}

static void execution_modes_have_these_names(void **state)
{
    (void)state;
    struct execution e;
    assert_null(execution_init(&e, clock_real(), NULL, true));
    assert_int_equal(e.mode, EXECUTION_AUTO);
    assert_null(execution_init(&e, clock_real(), "auto", true));
    assert_int_equal(e.mode, EXECUTION_AUTO);
    assert_true(execution_is_ever_inline(&e));
    assert_null(execution_init(&e, clock_real(), "thread", true));
    assert_false(execution_may_inline(&e, &full));
    assert_false(execution_is_ever_inline(&e));
    assert_null(execution_init(&e, clock_real(), "inline", false));
    assert_true(execution_may_inline(&e, &full));
    assert_true(execution_is_ever_inline(&e));
    assert_false(execution_may_inline(&e, NULL));
    struct status *st = execution_init(&e, clock_real(), "Inline", true);
    assert_int_equal(status_code(st), STATUS_INVALID_ARG);
    assert_string_equal(
        status_message(st),
        "parameter 'CONCH_EXECUTION' is 'Inline', expected 'auto', 'inline' or 'thread'");
    status_free(st);
}

static void a_model_that_needs_its_own_thread_never_runs_inline(void **state)
{
    (void)state;
    struct execution e;
    assert_null(execution_init(&e, clock_real(), NULL, true));
    assert_null(execution_never_inline(&e, "somebody needs", "m_0"));
    for (int i = 0; i < 100; i++)
        execution_measured(&e, 100, 0, false);
    assert_false(execution_may_inline(&e, &full));

    assert_null(execution_init(&e, clock_real(), "thread", true));
    assert_null(execution_never_inline(&e, "somebody needs", "m_0"));
    assert_null(execution_init(&e, clock_real(), "inline", true));
    struct status *st = execution_never_inline(&e, "somebody needs", "m_0");
    assert_int_equal(status_code(st), STATUS_INVALID_ARG);
    assert_string_equal(status_message(st),
                        "parameter 'CONCH_EXECUTION' is 'inline', but somebody needs 'm_0': it "
                        "executes on a thread of its own");
    status_free(st);
}

/* Returns how many executions of took_ns on the worker it takes until the model may run inline. */
static int proof(struct execution *e, uint64_t took_ns, int at_most)
{
    int n = 0;
    while (n < at_most && !execution_may_inline(e, &full)) {
        execution_measured(e, took_ns, 0, false);
        n++;
    }
    return n;
}

static void an_undeclared_backend_never_runs_inline_by_its_past(void **state)
{
    (void)state;
    struct execution e;
    assert_null(execution_init(&e, clock_real(), NULL, false));
    assert_int_equal(proof(&e, 1000, 100000), 100000);
    assert_false(execution_is_ever_inline(&e));
}

static void a_short_model_may_run_inline(void **state)
{
    (void)state;
    struct clock_fake clock;
    struct execution e;
    make(&e, &clock);
    assert_false(execution_may_inline(&e, &full));
    assert_int_equal(proof(&e, 2000, 100), 4);

    struct inline_budget used_up = {.left_ns = 500};
    assert_false(execution_may_inline(&e, &used_up));
}

static void a_long_model_never_runs_inline(void **state)
{
    (void)state;
    struct clock_fake clock;
    struct execution e;
    make(&e, &clock);
    assert_int_equal(proof(&e, 2 * EXECUTION_SHORT_NS, 1000), 1000);
    assert_int_equal(proof(&e, 20000000, 1000), 1000);
}

static void the_time_to_copy_bytes_is_not_counted(void **state)
{
    (void)state;
    struct clock_fake clock;
    struct execution e;
    uint64_t bytes = 6 * 100000; /* what takes 100 µs to copy */
    make(&e, &clock);
    for (int i = 0; i < 4; i++)
        execution_measured(&e, 100000 + EXECUTION_SHORT_NS / 2, bytes, false);
    assert_true(execution_may_inline(&e, &full));
    for (int i = 0; i < 80; i++)
        execution_measured(&e, 100000 + EXECUTION_SHORT_NS * 2, bytes, true);
    assert_false(execution_may_inline(&e, &full));
}

/* The client chooses the size of the input. A large input must neither earn inline time nor
 * prove anything. */
static void a_large_request_proves_nothing(void **state)
{
    (void)state;
    struct clock_fake clock;
    struct execution e;
    make(&e, &clock);
    for (int i = 0; i < 1000; i++)
        execution_measured(&e, 1000, EXECUTION_LARGE_BYTES + 1, false);
    assert_false(execution_may_inline(&e, &full));
    proof(&e, 1000, 100);
    for (int i = 0; i < 1000; i++) /* copying 100 MB takes long, which is allowed on the worker … */
        execution_measured(&e, 20 * NS_PER_MS, 100000000, false);
    assert_true(execution_may_inline(&e, &full));
    execution_measured(&e, 2 * EXECUTION_LONG_NS, UINT64_MAX, true); /* … but not inline */
    assert_false(execution_may_inline(&e, &full));
}

/* Returns how many executions on the worker it takes until a worker may run such a request. */
static int large_proof(struct execution *e, uint64_t took_ns, uint64_t bytes, int at_most)
{
    int n = 0;
    while (n < at_most && !execution_may_inline_large(e, &full, bytes)) {
        assert_true(execution_is_in_doubt(e, bytes));
        assert_false(execution_is_short(e, bytes));
        execution_measured(e, took_ns, bytes, false);
        n++;
    }
    return n;
}

static void large_requests_have_a_proof_of_their_own(void **state)
{
    (void)state;
    struct clock_fake clock;
    struct execution e;
    uint64_t bytes = 100000000;
    make(&e, &clock);
    proof(&e, 1000, 100);
    assert_false(execution_may_inline_large(&e, &full, bytes));
    assert_int_equal(large_proof(&e, 1000, bytes, 100), 4);
    assert_true(execution_is_short(&e, bytes));
    assert_false(execution_is_in_doubt(&e, bytes));
    struct inline_budget used_up = {.left_ns = 500};
    assert_false(execution_may_inline_large(&e, &used_up, bytes));

    /* A larger one than all before proves itself anew. */
    assert_false(execution_is_short(&e, bytes + 1));
    assert_int_equal(large_proof(&e, 1000, bytes + 1, 100), 4);

    /* Time to read the bytes counts. */
    make(&e, &clock);
    assert_int_equal(large_proof(&e, 3 * EXECUTION_SHORT_NS, bytes, 1000), 1000);
}

static void a_long_execution_of_a_large_request_ends_its_proof_alone(void **state)
{
    (void)state;
    struct clock_fake clock;
    struct execution e;
    uint64_t bytes = 100000000;
    make(&e, &clock);
    proof(&e, 1000, 100);
    large_proof(&e, 1000, bytes, 100);
    execution_measured_large(&e, 2 * EXECUTION_LONG_NS, bytes);
    assert_false(execution_may_inline_large(&e, &full, bytes));
    assert_true(execution_may_inline(&e, &full));
    assert_in_range(large_proof(&e, 1000, bytes, 100000), 64, 100);

    for (int i = 0; i < 80; i++)
        execution_measured_large(&e, 2 * EXECUTION_SHORT_NS, bytes);
    assert_false(execution_may_inline_large(&e, &full, bytes));
    assert_true(large_proof(&e, 1000, bytes, 100000) < 1000);
    assert_true(execution_overdue(&e, 5 * NS_PER_MS));
    assert_false(execution_may_inline_large(&e, &full, bytes));
}

static void without_a_declaration_no_large_request_runs_inline(void **state)
{
    (void)state;
    struct execution e;
    assert_null(execution_init(&e, clock_real(), NULL, false));
    for (int i = 0; i < 100; i++)
        execution_measured(&e, 1000, 100000000, false);
    execution_measured_large(&e, 1000, 100000000);
    assert_false(execution_may_inline_large(&e, &full, 100000000));
    assert_null(execution_init(&e, clock_real(), "inline", false));
    assert_true(execution_may_inline_large(&e, &full, 100000000));
    assert_true(execution_is_short(&e, 100000000));
}

static void a_long_execution_makes_the_proof_begin_anew(void **state)
{
    (void)state;
    struct clock_fake clock;
    struct execution e;
    make(&e, &clock);
    proof(&e, 1000, 100);
    execution_measured(&e, EXECUTION_LONG_NS, 0, true);
    assert_false(execution_may_inline(&e, &full));
    assert_in_range(proof(&e, 1000, 100000), 64, 100);

    /* An execution on the worker counts, too. */
    execution_measured(&e, 2 * EXECUTION_LONG_NS, 0, false);
    assert_false(execution_may_inline(&e, &full));
    assert_in_range(proof(&e, 1000, 100000), 64, 100);
}

static void a_longer_execution_demands_a_longer_proof(void **state)
{
    (void)state;
    int last = 0;
    for (uint64_t took_ns = EXECUTION_LONG_NS; took_ns < 1000 * EXECUTION_LONG_NS; took_ns *= 10) {
        struct clock_fake clock;
        struct execution e;
        make(&e, &clock);
        proof(&e, 1000, 100);
        execution_measured(&e, took_ns, 0, true);
        int n = proof(&e, 1000, 1000000);
        assert_true(n >= 8 * last);
        last = n;
    }
}

/* A model that takes 2 s once in 300 requests holds up its loop once, and then not again for
 * long. */
static void one_long_execution_in_three_hundred_keeps_a_model_off_loops(void **state)
{
    (void)state;
    struct clock_fake clock;
    struct execution e;
    uint64_t stood_ns = 0;
    make(&e, &clock);
    for (int i = 0; i < 30000; i++) {
        uint64_t took_ns = i % 300 == 299 ? 2 * NS_PER_S : 2000;
        bool inlined = execution_may_inline(&e, &full);
        execution_measured(&e, took_ns, 0, inlined);
        stood_ns += inlined && took_ns > EXECUTION_LONG_NS ? took_ns : 0;
    }
    assert_int_equal(stood_ns, 2 * NS_PER_S);
}

static void repeated_long_executions_demand_ever_longer_proofs(void **state)
{
    (void)state;
    struct clock_fake clock;
    struct execution e;
    make(&e, &clock);
    proof(&e, 1000, 100);
    int last = 0;
    for (int lapse = 0; lapse < 4; lapse++) {
        clock_fake_advance(&clock, NS_PER_S);
        execution_measured(&e, EXECUTION_LONG_NS, 0, true);
        int n = proof(&e, 1000, 100000);
        assert_true(n >= 2 * last - 100);
        last = n;
    }
    assert_true(last >= 512);
    clock_fake_advance(&clock, 3600 * NS_PER_S);
    execution_measured(&e, EXECUTION_LONG_NS, 0, true);
    assert_in_range(proof(&e, 1000, 100000), 64, 100);
}

static void nearly_all_executions_must_be_short(void **state)
{
    (void)state;
    struct clock_fake clock;
    struct execution e;
    make(&e, &clock);
    proof(&e, 1000, 100);
    for (int i = 0; i < 100000; i++) { /* one in 1000: as if a thread is preempted now and then */
        execution_measured(&e, i % 1000 == 0 ? EXECUTION_LONG_NS / 2 : 1000, 0, true);
        assert_true(execution_may_inline(&e, &full));
    }
    /* One in eight is slow; the mean is 13 µs. */
    int n = 0;
    for (; n < 10000 && execution_may_inline(&e, &full); n++)
        execution_measured(&e, n % 8 == 0 ? 100000 : 1000, 0, true);
    assert_true(n < 2000);
}

static void a_model_whose_mean_slows_down_is_taken_off_the_loop(void **state)
{
    (void)state;
    struct clock_fake clock;
    struct execution e;
    make(&e, &clock);
    proof(&e, 1000, 100);
    for (int i = 0; i < 80; i++)
        execution_measured(&e, 2 * EXECUTION_SHORT_NS, 0, true);
    assert_false(execution_may_inline(&e, &full));
}

static void an_overdue_execution_is_taken_off_before_it_ends(void **state)
{
    (void)state;
    struct clock_fake clock;
    struct execution e;
    make(&e, &clock);
    proof(&e, 1000, 100);
    assert_true(execution_may_inline(&e, &full));
    assert_true(execution_overdue(&e, 5 * NS_PER_MS));
    assert_false(execution_may_inline(&e, &full));
    assert_true(proof(&e, 1000, 100000) >= 5 * 64);

    assert_null(execution_init(&e, clock_real(), "inline", true));
    assert_false(execution_overdue(&e, 5 * NS_PER_MS)); /* the operator's option decides */
    assert_true(execution_may_inline(&e, &full));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(execution_modes_have_these_names),
        cmocka_unit_test(a_model_that_needs_its_own_thread_never_runs_inline),
        cmocka_unit_test(an_undeclared_backend_never_runs_inline_by_its_past),
        cmocka_unit_test(a_short_model_may_run_inline),
        cmocka_unit_test(a_long_model_never_runs_inline),
        cmocka_unit_test(the_time_to_copy_bytes_is_not_counted),
        cmocka_unit_test(a_large_request_proves_nothing),
        cmocka_unit_test(large_requests_have_a_proof_of_their_own),
        cmocka_unit_test(a_long_execution_of_a_large_request_ends_its_proof_alone),
        cmocka_unit_test(without_a_declaration_no_large_request_runs_inline),
        cmocka_unit_test(a_long_execution_makes_the_proof_begin_anew),
        cmocka_unit_test(a_longer_execution_demands_a_longer_proof),
        cmocka_unit_test(one_long_execution_in_three_hundred_keeps_a_model_off_loops),
        cmocka_unit_test(repeated_long_executions_demand_ever_longer_proofs),
        cmocka_unit_test(nearly_all_executions_must_be_short),
        cmocka_unit_test(a_model_whose_mean_slows_down_is_taken_off_the_loop),
        cmocka_unit_test(an_overdue_execution_is_taken_off_before_it_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
