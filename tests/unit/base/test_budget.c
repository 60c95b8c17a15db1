/* SPDX-License-Identifier: Apache-2.0 */
#include "base/budget.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/status.h"
#include "base/thread.h"

enum { MIB = 1 << 20 };

struct member {
    struct budget_member member;
    int n_told;
};

static void on_short(struct budget_member *m)
{
    CONTAINER_OF(m, struct member, member)->n_told++;
}

static uint64_t used_of(const struct budget *b)
{
    struct budget_stats stats;
    budget_stats(b, &stats);
    return stats.used_bytes;
}

static void a_budget_gives_up_to_its_limit(void **state)
{
    (void)state;
    struct budget *b = budget_new(16 * MIB);
    struct member m = {.member.on_short = on_short};
    budget_attach(b, &m.member);

    assert_true(budget_has_room(b, 14 * MIB));
    assert_true(budget_could_hold(b, 14 * MIB));
    assert_false(budget_could_hold(b, 14 * MIB + 1));
    assert_true(budget_take(b, 16 * MIB));
    assert_int_equal(m.n_told, 0);
    assert_false(budget_lacks(b, monotonic_ns()));

    assert_false(budget_take(b, BUDGET_SMALL_BYTES + 1));
    assert_int_equal(m.n_told, 1);
    assert_false(budget_has_room(b, MIB));
    assert_int_equal(m.n_told, 2);
    assert_int_equal(used_of(b), 16 * MIB);
    assert_false(budget_is_exceeded(b));
    assert_true(budget_take(b, BUDGET_SMALL_BYTES)); /* always granted */
    assert_int_equal(m.n_told, 3);
    assert_true(budget_is_exceeded(b));

    /* The budget lacks memory until there is room for the refused amount, or no taker has asked
     * again for a while. */
    uint64_t now_ns = monotonic_ns();
    assert_true(budget_lacks(b, now_ns));
    assert_false(budget_lacks(b, now_ns + 11 * NS_PER_S));
    budget_give(b, BUDGET_SMALL_BYTES);
    budget_give(b, 2 * MIB);
    assert_true(budget_lacks(b, now_ns));
    budget_give(b, MIB);
    assert_false(budget_lacks(b, now_ns));
    budget_give(b, 13 * MIB);
    assert_int_equal(used_of(b), 0);

    struct budget_stats stats;
    budget_evicted(b);
    budget_stats(b, &stats);
    assert_int_equal(stats.n_refused, 2);
    assert_int_equal(stats.n_evicted, 1);
    assert_int_equal(stats.limit_bytes, 16 * MIB);
    budget_detach(b, &m.member);
    assert_false(budget_take(b, 17 * MIB));
    assert_int_equal(m.n_told, 3);
    budget_set_limit(b, 20 * MIB);
    assert_true(budget_take(b, 17 * MIB));
    budget_give(b, 17 * MIB);
    budget_unref(b);
}

static void a_budget_knows_its_heaviest_member(void **state)
{
    (void)state;
    struct budget *b = budget_new(16 * MIB);
    struct member first = {0}, second = {0};
    budget_attach(b, &first.member);
    budget_attach(b, &second.member);
    assert_true(budget_is_heaviest(b, &first.member));
    atomic_store(&second.member.burden, 7);
    assert_false(budget_is_heaviest(b, &first.member));
    assert_true(budget_is_heaviest(b, &second.member));
    budget_detach(b, &second.member);
    assert_true(budget_is_heaviest(b, &first.member));
    budget_detach(b, &first.member);
    budget_unref(b);
}

static bool is_mapped(const char *p, size_t bytes)
{
    unsigned char some[64];
    for (size_t at = 0; at < bytes; at += 4096) {
        if (mincore((void *)(uintptr_t)(p + at), 4096, some) == 0)
            return true;
    }
    return false;
}

/* The budget's thread unmaps the pages, and ends when all are unmapped. Without the thread they
 * are unmapped at once. */
static void a_budget_unmaps_the_pages_it_is_given(void **state)
{
    (void)state;
    struct budget *b = budget_new(1000 * (uint64_t)MIB);
    const size_t sizes[] = {MIB, 16 * MIB, 16 * MIB + 4096, 50 * MIB};
    for (int round = 0; round < 3; round++) {
        bool with_thread = round > 0;
        if (with_thread)
            assert_null(budget_start(b));
        char *pages[ARRAY_SIZE(sizes)];
        for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
            assert_true(budget_take(b, sizes[i]));
            pages[i] = mem_try_map(sizes[i]);
            assert_non_null(pages[i]);
            memset(pages[i], 1, sizes[i]);
        }
        budget_purge(b);
        for (size_t i = 0; i < ARRAY_SIZE(sizes); i++)
            budget_unmap(b, pages[i], sizes[i]);
        assert_int_equal(used_of(b), 0);
        if (with_thread)
            budget_stop(b);
        for (size_t i = 0; i < ARRAY_SIZE(sizes); i++)
            assert_false(is_mapped(pages[i], sizes[i]));
    }
    budget_unref(b);
}

static void churn(void *arg)
{
    struct budget *b = arg;
    for (int i = 0; i < 3000; i++) {
        size_t bytes = (size_t)(1 + i % 7) * MIB;
        if (!budget_has_room(b, bytes) || !budget_take(b, bytes))
            continue;
        if (i % 10 > 0) {
            budget_give(b, bytes);
            continue;
        }
        void *pages = mem_try_map(bytes);
        assert_non_null(pages);
        budget_unmap(b, pages, bytes);
    }
    budget_unref(b);
}

static void many_threads_share_a_budget(void **state)
{
    (void)state;
    struct budget *b = budget_new(16 * MIB);
    struct thread threads[4];
    assert_null(budget_start(b));
    for (size_t i = 0; i < ARRAY_SIZE(threads); i++)
        assert_null(thread_start(&threads[i], "churn", churn, budget_ref(b)));
    for (size_t i = 0; i < ARRAY_SIZE(threads); i++)
        thread_join(&threads[i]);
    budget_stop(b);
    assert_int_equal(used_of(b), 0);
    budget_unref(b);
    budget_unref(NULL);
}

enum { N_TAKERS = 3, N_REFUSALS = 100000 };

static void take_too_much(void *arg)
{
    for (int i = 0; i < N_REFUSALS; i++)
        assert_false(budget_take(arg, 2 * MIB));
}

/* What is refused is in no sum that another thread reads. */
static void a_refusal_is_never_counted_as_used(void **state)
{
    (void)state;
    struct thread takers[N_TAKERS];
    struct budget *b = budget_new(16 * MIB);
    struct budget_stats stats;
    assert_true(budget_take(b, 15 * MIB));
    for (int i = 0; i < N_TAKERS; i++)
        assert_null(thread_start(&takers[i], "taker", take_too_much, b));
    do {
        budget_stats(b, &stats);
        assert_int_equal(stats.used_bytes, 15 * MIB);
    } while (stats.n_refused < N_TAKERS * N_REFUSALS);
    for (int i = 0; i < N_TAKERS; i++)
        thread_join(&takers[i]);
    budget_give(b, 15 * MIB);
    budget_unref(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_refusal_is_never_counted_as_used),
        cmocka_unit_test(a_budget_gives_up_to_its_limit),
        cmocka_unit_test(a_budget_knows_its_heaviest_member),
        cmocka_unit_test(a_budget_unmaps_the_pages_it_is_given),
        cmocka_unit_test(many_threads_share_a_budget),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
