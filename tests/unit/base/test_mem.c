/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/status.h"
#include "base/thread.h"

static int n_calls;
static bool answer;
static size_t last_size;

static bool hook(size_t size_bytes)
{
    n_calls++;
    last_size = size_bytes;
    return answer;
}

static void memory_is_allocated_and_aligned(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 1, 100, 1 << 20};
    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
        size_t size = sizes[i];
        void *all[] = {mem_alloc(size),
                       mem_zalloc(size),
                       mem_try_alloc(size),
                       mem_try_zalloc(size, 1),
                       mem_realloc(NULL, size),
                       mem_try_realloc(NULL, size),
                       mem_try_alloc_aligned(size)};
        for (size_t k = 0; k < ARRAY_SIZE(all); k++) {
            assert_non_null(all[k]);
            assert_int_equal((uintptr_t)all[k] % 16, 0); /* for any type, behind the header */
            if (k == 1 || k == 3) {
                for (size_t b = 0; b < size; b++)
                    assert_int_equal(((char *)all[k])[b], 0);
            }
            memset(all[k], 0xff, size);
        }
        assert_int_equal((uintptr_t)all[6] % MEM_ALIGNMENT, 0);
        mem_free_aligned(all[6]);
        for (size_t k = 0; k < 6; k++)
            mem_free(all[k]);
    }
    mem_free(NULL);
}

static void strings_are_copied(void **state)
{
    (void)state;
    char *a = mem_strdup("text"), *b = mem_strndup("one two", 3), *c = mem_printf("%d-%s", 5, "x");
    char *d = mem_strdup("");
    assert_string_equal(a, "text");
    assert_string_equal(b, "one");
    assert_string_equal(c, "5-x");
    assert_string_equal(d, "");
    mem_free(a);
    mem_free(b);
    mem_free(c);
    mem_free(d);
}

static void a_product_that_overflows_returns_null(void **state)
{
    (void)state;
    assert_null(mem_try_zalloc(SIZE_MAX / 2 + 1, 2));
    assert_null(mem_try_zalloc(2, SIZE_MAX / 2 + 1));
    assert_null(mem_try_alloc_aligned(SIZE_MAX));
    assert_null(mem_try_alloc_aligned(SIZE_MAX - 62));
}

/* With the header added, these sizes would wrap to a few bytes. */
static void a_size_that_wraps_returns_null(void **state)
{
    (void)state;
    static const size_t sizes[] = {SIZE_MAX, SIZE_MAX - 15, SIZE_MAX - 16, (size_t)1 << 56};
    char *p = mem_strdup("kept");
    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
        assert_null(mem_try_alloc(sizes[i]));
        assert_null(mem_try_zalloc(sizes[i], 1));
        assert_null(mem_try_realloc(NULL, sizes[i]));
        assert_null(mem_try_realloc(p, sizes[i]));
        assert_string_equal(p, "kept");
    }
    mem_free(p);
}

static void the_hook_makes_allocations_fail(void **state)
{
    (void)state;
    void *p = mem_alloc(10);
    memset(p, 7, 10);
    answer = false;
    n_calls = 0;
    mem_set_test_hook(hook);
    assert_null(mem_try_alloc(1));
    assert_null(mem_try_zalloc(3, 4));
    assert_int_equal(last_size, 12);
    assert_null(mem_try_alloc_aligned(1));
    assert_null(mem_try_realloc(p, 1000));
    assert_int_equal(((char *)p)[9], 7); /* still valid */
    assert_int_equal(n_calls, 4);

    /* These allocations may not fail, but are counted. */
    p = mem_realloc(p, 20);
    void *q = mem_alloc(1), *r = mem_zalloc(1);
    char *s = mem_strdup("s"), *t = mem_printf("t");
    assert_int_equal(n_calls, 9);
    mem_set_test_hook(NULL);
    void *u = mem_try_alloc(1);
    assert_non_null(u);
    assert_int_equal(n_calls, 9);
    void *all[] = {p, q, r, s, t, u};
    for (size_t i = 0; i < ARRAY_SIZE(all); i++)
        mem_free(all[i]);
}

/* ---- Whole pages ---- */

enum { MAPPED_BYTES = 64 << 10, GROWN_BYTES = 2 << 20, N_ROUNDS = 50, LINE_BYTES = 64 };

static size_t n_different(const unsigned char *p, unsigned char value, size_t size_bytes)
{
    size_t n = 0;
    for (size_t i = 0; i < size_bytes; i += LINE_BYTES)
        n += p[i] != value;
    return n;
}

struct grower {
    unsigned char value;
    size_t n_wrong;
};

static void map_and_grow(void *arg)
{
    struct grower *g = arg;
    for (int round = 0; round < N_ROUNDS; round++) {
        size_t bytes = MAPPED_BYTES;
        unsigned char *p = mem_try_map(bytes);
        memset(p, g->value, bytes);
        while (bytes < GROWN_BYTES) {
            p = mem_try_remap(p, bytes, 2 * bytes);
            g->n_wrong += n_different(p, g->value, bytes) + n_different(p + bytes, 0, bytes);
            memset(p + bytes, g->value, bytes);
            bytes *= 2;
        }
        mem_unmap(p, bytes);
    }
}

static void shared_memory_begins_on_a_cache_line(void **state)
{
    (void)state;
    for (size_t bytes = 1; bytes < 300; bytes += 7) {
        unsigned char *p = mem_zalloc_on_line(bytes);
        assert_int_equal((uintptr_t)p % MEM_ALIGNMENT, 0);
        assert_int_equal(n_different(p, 0, bytes), 0);
        memset(p, 0xff, bytes);
        mem_free_on_line(p);
    }
    mem_free_on_line(NULL);
}

/* Each mapping lies where another one was a moment ago, which the thread sanitizer must know. */
static void several_threads_grow_their_pages(void **state)
{
    (void)state;
    struct thread threads[3];
    struct grower growers[ARRAY_SIZE(threads)] = {{1, 0}, {2, 0}, {3, 0}};
    for (size_t i = 0; i < ARRAY_SIZE(threads); i++)
        assert_null(thread_start(&threads[i], "grower", map_and_grow, &growers[i]));
    for (size_t i = 0; i < ARRAY_SIZE(threads); i++)
        thread_join(&threads[i]);
    for (size_t i = 0; i < ARRAY_SIZE(threads); i++)
        assert_int_equal(growers[i].n_wrong, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_is_allocated_and_aligned),
        cmocka_unit_test(strings_are_copied),
        cmocka_unit_test(a_product_that_overflows_returns_null),
        cmocka_unit_test(a_size_that_wraps_returns_null),
        cmocka_unit_test(the_hook_makes_allocations_fail),
        cmocka_unit_test(shared_memory_begins_on_a_cache_line),
        cmocka_unit_test(several_threads_grow_their_pages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
