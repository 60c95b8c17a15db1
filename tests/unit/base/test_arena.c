/* SPDX-License-Identifier: Apache-2.0 */
#include "base/arena.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/pool.h"

static int n_allocations;

static bool count(size_t size_bytes)
{
    (void)size_bytes;
    n_allocations++;
    return true;
}

static bool refuse(size_t size_bytes)
{
    (void)size_bytes;
    return false;
}

static void the_first_memory_is_used_first(void **state)
{
    (void)state;
    char first[200]; /* at an unaligned address */
    struct arena a;
    n_allocations = 0;
    mem_set_test_hook(count);
    arena_init(&a, first + 1, sizeof(first) - 1, 10000, NULL, NULL);
    for (int i = 0; i < 11; i++) {
        char *p = arena_alloc(&a, 1);
        assert_true(p > first && p < first + sizeof(first));
        assert_int_equal((uintptr_t)p % 16, 0);
    }
    assert_int_equal(n_allocations, 0);
    char *p = arena_alloc(&a, 100);
    assert_int_equal(n_allocations, 1);
    assert_int_equal((uintptr_t)p % 16, 0);
    arena_reset(&a);
    p = arena_alloc(&a, 100);
    assert_true(p > first && p < first + sizeof(first));
    mem_set_test_hook(NULL);
    assert_int_equal(n_allocations, 1);
    arena_reset(&a);
}

/* Every block is filled with its own mark; an overlap would change an earlier block. */
static void blocks_do_not_overlap(void **state)
{
    (void)state;
    static unsigned char *blocks[500];
    static size_t sizes[500];
    struct pool *pool = pool_new("test", 1 << 20, 0);
    struct mem_owner *owner = mem_owner_new("test");
    struct arena a;
    arena_init(&a, NULL, 0, 1 << 20, pool, owner);
    for (int round = 0; round < 3; round++) {
        uint64_t seed = 1;
        for (int i = 0; i < 500; i++) {
            seed = seed * 6364136223846793005ULL + 1;
            sizes[i] = (seed >> 40) % (i % 50 ? 200 : 9000);
            blocks[i] = arena_alloc(&a, sizes[i]);
            assert_non_null(blocks[i]);
            assert_int_equal((uintptr_t)blocks[i] % 16, 0);
            memset(blocks[i], i & 0xff, sizes[i]);
        }
        for (int i = 0; i < 500; i++) {
            for (size_t k = 0; k < sizes[i]; k++)
                assert_int_equal(blocks[i][k], i & 0xff);
        }
        assert_true(mem_owner_bytes(owner, MEM_TENSORS) > 100000);
        arena_reset(&a);
        assert_int_equal(mem_owner_bytes(owner, MEM_TENSORS), 0);
    }
    struct pool_stats stats;
    pool_stats(pool, &stats);
    assert_true(stats.n_allocs >= 3 * stats.n_misses); /* later rounds reused pool blocks */
    assert_int_equal(stats.used_bytes, 0);
    mem_owner_free(owner);
    pool_free(pool);
}

static void an_arena_allocates_up_to_its_maximum(void **state)
{
    (void)state;
    struct arena a;
    arena_init(&a, NULL, 0, 10000, NULL, NULL);
    assert_null(arena_alloc(&a, 10001));
    assert_null(arena_alloc(&a, SIZE_MAX));
    assert_null(arena_alloc(&a, SIZE_MAX - 14)); /* would be 0 when rounded up */
    assert_null(arena_strndup(&a, "x", SIZE_MAX));
    size_t n = 0;
    while (arena_alloc(&a, 100))
        n += 112;
    assert_false(a.starved);
    assert_in_range(n, 9500, 10000);
    assert_null(arena_alloc(&a, 100));
    arena_reset(&a);
    assert_non_null(arena_alloc(&a, 10000)); /* the whole maximum in one block */
    arena_reset(&a);

    /* No memory but the first. */
    _Alignas(16) char first[64];
    arena_init(&a, first, sizeof(first), 0, NULL, NULL);
    assert_ptr_equal(arena_alloc(&a, 64), first);
    assert_null(arena_alloc(&a, 1));
    arena_reset(&a);
    /* Too small for any allocation. */
    arena_init(&a, first + 1, 3, 0, NULL, NULL);
    assert_null(arena_alloc(&a, 1));
}

static void lack_of_memory_returns_null(void **state)
{
    (void)state;
    struct arena a;
    arena_init(&a, NULL, 0, 10000, NULL, NULL);
    mem_set_test_hook(refuse);
    void *p = arena_alloc(&a, 1);
    char *s = arena_strndup(&a, "text", 4);
    mem_set_test_hook(NULL);
    assert_null(p);
    assert_null(s);
    assert_true(a.starved);
    assert_non_null(arena_alloc(&a, 1)); /* it allocates again when there is memory */
    arena_reset(&a);
}

static void an_arena_copies_strings_and_bytes(void **state)
{
    (void)state;
    struct arena a;
    arena_init(&a, NULL, 0, 10000, NULL, NULL);
    assert_non_null(arena_dup(&a, NULL, 0)); /* a copy of nothing is not NULL */
    assert_memory_equal(arena_dup(&a, "a\0b", 3), "a\0b", 3);
    assert_string_equal(arena_strndup(&a, "one two", 3), "one");
    assert_string_equal(arena_strndup(&a, "", 0), "");
    arena_reset(&a);
}

static void an_array_grows_in_an_arena(void **state)
{
    (void)state;
    struct arena a;
    uint32_t capacity = 0;
    int *items = NULL;
    arena_init(&a, NULL, 0, 10000, NULL, NULL);
    for (uint32_t n = 0; n < 100; n++) {
        int *grown = arena_grow(&a, items, n, &capacity, sizeof(*items));
        assert_non_null(grown);
        assert_true(capacity > n &&
                    (n == 0 || capacity <= 2 * MAX(n, (uint32_t)ARENA_FIRST_ITEMS)));
        items = grown;
        items[n] = (int)n;
    }
    for (int i = 0; i < 100; i++)
        assert_int_equal(items[i], i);

    /* What does not fit leaves the array as it is. */
    uint32_t before = capacity;
    assert_null(arena_grow(&a, items, capacity, &capacity, 1000));
    assert_int_equal(capacity, before);
    assert_int_equal(items[99], 99);
    capacity = UINT32_MAX / 2 + 1;
    assert_null(arena_grow(&a, items, capacity, &capacity, sizeof(*items)));
    assert_int_equal(capacity, UINT32_MAX / 2 + 1);
    arena_reset(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_memory_is_used_first),
        cmocka_unit_test(blocks_do_not_overlap),
        cmocka_unit_test(an_arena_allocates_up_to_its_maximum),
        cmocka_unit_test(lack_of_memory_returns_null),
        cmocka_unit_test(an_arena_copies_strings_and_bytes),
        cmocka_unit_test(an_array_grows_in_an_arena),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
