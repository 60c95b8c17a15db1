/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem_owner.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/arena.h"
#include "base/mem.h"
#include "base/pool.h"
#include "base/status.h"
#include "base/thread.h"

static void the_current_owner_is_charged_and_credited(void **state)
{
    (void)state;
    struct mem_owner *o = mem_owner_new("some model");
    assert_string_equal(mem_owner_name(o), "some model");
    void *before = mem_alloc(100), *all[6];
    {
        MEM_CHARGE(o, MEM_INSTANCES);
        all[0] = mem_alloc(100);
        all[1] = mem_zalloc(50);
        all[2] = mem_try_alloc(25);
        all[3] = mem_try_zalloc(3, 5);
        all[4] = mem_strdup("1234");
        all[5] = mem_realloc(NULL, 7);
    }
    void *after = mem_alloc(100);
    size_t sum = 100 + 50 + 25 + 15 + 5 + 7;
    assert_int_equal(mem_owner_bytes(o, MEM_INSTANCES), sum);
    assert_int_equal(mem_owner_bytes(o, MEM_CONFIG), 0);
    assert_int_equal(mem_owner_blocks(o), 6);
    mem_free(before);
    mem_free(after);
    assert_int_equal(mem_owner_bytes(o, MEM_INSTANCES), sum);
    for (size_t i = 0; i < ARRAY_SIZE(all); i++)
        mem_free(all[i]);
    assert_int_equal(mem_owner_bytes(o, MEM_INSTANCES), 0);
    assert_int_equal(mem_owner_peak(o, MEM_INSTANCES), sum);
    assert_int_equal(mem_owner_blocks(o), 0);
    mem_owner_free(o);
}

static void charges_nest(void **state)
{
    (void)state;
    struct mem_owner *x = mem_owner_new("x"), *y = mem_owner_new("y");
    void *all[4];
    {
        MEM_CHARGE(x, MEM_CONFIG);
        all[0] = mem_alloc(1);
        {
            MEM_CHARGE(y, MEM_BACKEND);
            all[1] = mem_alloc(10);
            {
                MEM_CHARGE(NULL, 0);
                all[2] = mem_alloc(1000);
            }
        }
        all[3] = mem_alloc(2);
    }
    assert_null(mem_payer_now().owner);
    assert_int_equal(mem_owner_bytes(x, MEM_CONFIG), 3);
    assert_int_equal(mem_owner_bytes(y, MEM_BACKEND), 10);
    for (size_t i = 0; i < ARRAY_SIZE(all); i++)
        mem_free(all[i]);
    assert_int_equal(mem_owner_blocks(x) + mem_owner_blocks(y), 0);
    mem_owner_free(x);
    mem_owner_free(y);
}

static void a_block_that_grows_keeps_its_owner(void **state)
{
    (void)state;
    struct mem_owner *x = mem_owner_new("x"), *y = mem_owner_new("y");
    char *p;
    {
        MEM_CHARGE(x, MEM_CONFIG);
        p = mem_strdup("content");
    }
    MEM_CHARGE(y, MEM_CONFIG);
    p = mem_realloc(p, 100000);
    assert_string_equal(p, "content");
    assert_int_equal(mem_owner_bytes(x, MEM_CONFIG), 100000);
    p = mem_try_realloc(p, 8);
    assert_string_equal(p, "content");
    assert_int_equal(mem_owner_bytes(x, MEM_CONFIG), 8);
    assert_int_equal(mem_owner_blocks(x), 1);
    assert_int_equal(mem_owner_blocks(y), 0);
    mem_free(p);
    mem_owner_free(x);
    mem_owner_free(y);
}

static void a_block_may_be_given_to_another(void **state)
{
    (void)state;
    struct mem_owner *x = mem_owner_new("x");
    void *p = mem_alloc(64), *q = mem_alloc(36);
    mem_give(p, x, MEM_CONFIG);
    mem_give(q, x, MEM_INSTANCES);
    mem_give(NULL, x, MEM_INSTANCES);
    assert_int_equal(mem_owner_bytes(x, MEM_CONFIG), 64);
    assert_int_equal(mem_owner_bytes(x, MEM_INSTANCES), 36);
    mem_give(q, x, MEM_CONFIG);
    assert_int_equal(mem_owner_bytes(x, MEM_CONFIG), 100);
    assert_int_equal(mem_owner_bytes(x, MEM_INSTANCES), 0);
    mem_give(q, NULL, 0);
    assert_int_equal(mem_owner_blocks(x), 1);
    mem_free(p);
    mem_free(q);
    assert_int_equal(mem_owner_blocks(x), 0);
    mem_owner_free(x);
}

/* Leak and address sanitizers see an owner that is freed too early, or not at all. */
static void the_last_block_ends_an_owner_without_a_holder(void **state)
{
    (void)state;
    struct mem_owner *o = mem_owner_new("x");
    struct pool *pool = pool_new("test", 0, 0);
    void *tensor = pool_alloc(pool, 1000, o), *p;
    {
        MEM_CHARGE(o, MEM_CONFIG);
        p = mem_alloc(10);
    }
    mem_owner_free(o);
    p = mem_realloc(p, 20);
    assert_int_equal(mem_owner_bytes(o, MEM_CONFIG), 20);
    mem_free(p);
    assert_int_equal(mem_owner_blocks(o), (size_t)0); /* the tensor's block keeps the owner */
    pool_release(tensor);
    pool_free(pool);
    mem_owner_free(NULL);
}

static void an_arena_charges_its_owner(void **state)
{
    (void)state;
    struct mem_owner *o = mem_owner_new("x");
    struct arena a;
    arena_init(&a, NULL, 0, 1 << 20, NULL, NULL);
    assert_non_null(arena_alloc(&a, 100));
    assert_int_equal(mem_owner_blocks(o), 0);
    arena_give(&a, o, MEM_CONFIG);
    size_t given = mem_owner_bytes(o, MEM_CONFIG);
    assert_true(given >= 100);
    assert_non_null(arena_alloc(&a, 10000));
    assert_true(mem_owner_bytes(o, MEM_CONFIG) >= given + 10000);
    arena_reset(&a);
    assert_int_equal(mem_owner_blocks(o), 0);
    mem_owner_free(o);
}

static void a_status_has_no_owner(void **state)
{
    (void)state;
    struct mem_owner *o = mem_owner_new("x");
    MEM_CHARGE(o, MEM_CONFIG);
    struct status *st = status_new(STATUS_INTERNAL, "%s", "something");
    st = status_prefix(st, "because: ");
    assert_int_equal(mem_owner_blocks(o), 0);
    assert_int_equal(mem_owner_peak(o, MEM_CONFIG), 0);
    status_free(st);
    mem_owner_free(o);
}

static void a_thread_pays_for_itself(void *arg)
{
    BUG_ON(mem_payer_now().owner);
    MEM_CHARGE(arg, MEM_TENSORS);
    for (int i = 0; i < 20000; i++) {
        void *p = mem_alloc((size_t)i % 100);
        mem_free(p);
    }
}

static void many_threads_keep_accounts_right(void **state)
{
    (void)state;
    struct mem_owner *o = mem_owner_new("x");
    struct thread threads[4];
    MEM_CHARGE(o, MEM_CONFIG);
    void *mine = mem_alloc(5);
    for (size_t i = 0; i < ARRAY_SIZE(threads); i++)
        assert_null(thread_start(&threads[i], "payer", a_thread_pays_for_itself, o));
    for (size_t i = 0; i < ARRAY_SIZE(threads); i++)
        thread_join(&threads[i]);
    assert_int_equal(mem_owner_bytes(o, MEM_TENSORS), 0);
    assert_in_range(mem_owner_peak(o, MEM_TENSORS), 0, 4 * 99); /* so few bytes may be missed */
    assert_int_equal(mem_owner_bytes(o, MEM_CONFIG), 5);
    mem_free(mine);
    mem_owner_free(o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_current_owner_is_charged_and_credited),
        cmocka_unit_test(charges_nest),
        cmocka_unit_test(a_block_that_grows_keeps_its_owner),
        cmocka_unit_test(a_block_may_be_given_to_another),
        cmocka_unit_test(the_last_block_ends_an_owner_without_a_holder),
        cmocka_unit_test(an_arena_charges_its_owner),
        cmocka_unit_test(a_status_has_no_owner),
        cmocka_unit_test(many_threads_keep_accounts_right),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
