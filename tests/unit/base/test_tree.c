/* SPDX-License-Identifier: Apache-2.0 */
#include "base/tree.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "base/mem.h"

enum { N = 20000 };

static struct tree_node nodes[N];

static void assert_walk(const struct tree *t, uint64_t first, uint64_t step, size_t n)
{
    const struct tree_node *node = tree_first(t);
    for (size_t i = 0; i < n; i++, node = tree_next(node)) {
        assert_non_null(node);
        assert_int_equal(node->key, first + i * step);
    }
    assert_null(node);
    node = tree_last(t);
    for (size_t i = n; i-- > 0; node = tree_before(node)) {
        assert_non_null(node);
        assert_int_equal(node->key, first + i * step);
    }
    assert_null(node);
    assert_int_equal(t->count, n);
}

static void an_empty_tree_has_nothing(void **state)
{
    (void)state;
    struct tree t;
    tree_init(&t);
    assert_null(tree_find(&t, 0));
    assert_walk(&t, 0, 0, 0);
}

/* Ascending keys, which turn an unbalanced search tree into a list. */
static void ascending_keys_keep_the_tree_shallow(void **state)
{
    (void)state;
    struct tree t;
    tree_init(&t);
    for (uint64_t i = 0; i < N; i++) {
        nodes[i].key = i;
        assert_null(tree_find(&t, i));
        tree_add(&t, &nodes[i]);
    }
    assert_walk(&t, 0, 1, N);
    for (uint64_t i = 0; i < N; i++)
        assert_ptr_equal(tree_find(&t, i), &nodes[i]);
    assert_true(t.n_looks < (uint64_t)3 * N * 30); /* log2(N) is 14 */
    for (uint64_t i = 0; i < N; i += 2)
        tree_remove(&t, &nodes[i]);
    assert_walk(&t, 1, 2, N / 2);
    for (uint64_t i = 1; i < N; i += 2)
        tree_remove(&t, &nodes[N - i]);
    assert_walk(&t, 0, 0, 0);
}

/* Compared with a table of the keys that are in the tree. */
static void keys_in_any_order_are_found(void **state)
{
    (void)state;
    struct tree t;
    static bool in[256];
    uint64_t seed = 7;
    tree_init(&t);
    for (int i = 0; i < 100000; i++) {
        seed = seed * 6364136223846793005 + 1;
        size_t k = seed >> 56;
        assert_ptr_equal(tree_find(&t, k), in[k] ? &nodes[k] : NULL);
        nodes[k].key = k;
        if (in[k])
            tree_remove(&t, &nodes[k]);
        else
            tree_add(&t, &nodes[k]);
        in[k] = !in[k];
        const struct tree_node *next = tree_first(&t);
        for (size_t j = 0; i % 100 == 0 && j < ARRAY_SIZE(in); j++) {
            if (!in[j])
                continue;
            assert_ptr_equal(next, &nodes[j]);
            next = tree_next(next);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_empty_tree_has_nothing),
        cmocka_unit_test(ascending_keys_keep_the_tree_shallow),
        cmocka_unit_test(keys_in_any_order_are_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
