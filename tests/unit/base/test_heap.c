/* SPDX-License-Identifier: Apache-2.0 */
#include "base/heap.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { N = 300, N_STEPS = 20000 };

struct item {
    struct heap_node node;
    unsigned int value;
    bool is_in;
};

static struct item items[N];
static uint64_t seed = 99;

static unsigned int draw(unsigned int below)
{
    seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
    return (unsigned int)(seed >> 33) % below;
}

static struct item *of(struct heap_node *node)
{
    return CONTAINER_OF(node, struct item, node);
}

static bool smaller(const struct heap_node *a, const struct heap_node *b)
{
    const struct item *x = (const struct item *)(const void *)a; /* node is the first member */
    const struct item *y = (const struct item *)(const void *)b;
    return x->value < y->value;
}

/* Asserts that links and order agree, and returns how many nodes there are below. */
static size_t check(struct heap_node *node, struct heap_node *parent)
{
    if (!node)
        return 0;
    assert_ptr_equal(node->parent, parent);
    if (parent)
        assert_false(smaller(node, parent));
    if (node->right)
        assert_non_null(node->left);
    return 1 + check(node->left, node) + check(node->right, node);
}

static void a_heap_agrees_with_a_plain_table(void **state)
{
    (void)state;
    struct heap h;
    heap_init(&h, smaller);
    assert_null(heap_top(&h));
    assert_null(heap_pop(&h));
    size_t count = 0;
    for (int step = 0; step < N_STEPS; step++) {
        struct item *it = &items[draw(N)];
        if (it->is_in) {
            heap_remove(&h, &it->node);
            count--;
        } else {
            it->value = draw(100); /* many values are equal */
            heap_push(&h, &it->node);
            count++;
        }
        it->is_in = !it->is_in;
        assert_int_equal(h.count, count);

        unsigned int least = UINT32_MAX;
        for (int i = 0; i < N; i++) {
            if (items[i].is_in)
                least = MIN(least, items[i].value);
        }
        if (count == 0)
            assert_null(heap_top(&h));
        else
            assert_int_equal(of(heap_top(&h))->value, least);
        if (step % 100 == 0)
            assert_int_equal(check(h.top, NULL), count);
    }
    unsigned int last = 0;
    struct heap_node *node;
    while ((node = heap_pop(&h))) {
        assert_true(of(node)->value >= last);
        last = of(node)->value;
        count--;
    }
    assert_int_equal(count, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_heap_agrees_with_a_plain_table)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
