/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lower_bound() in arrays of every small size, with gaps and with equal elements.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/search.h"

static bool is_less(const void *element, const void *key)
{
    return *(const int *)element < *(const int *)key;
}

static void lower_bound_finds_the_first_that_is_not_before(void **unused)
{
    (void)unused;
    enum { MAX_ITEMS = 40 };
    int items[MAX_ITEMS];
    for (size_t n = 0; n <= MAX_ITEMS; n++) {
        for (size_t i = 0; i < n; i++)
            items[i] = 2 * (int)(i / 3); /* 0 0 0 2 2 2 4 … */
        for (int key = -1; key < 2 * MAX_ITEMS; key++) {
            size_t want = 0;
            while (want < n && items[want] < key)
                want++;
            assert_int_equal(lower_bound(items, n, sizeof(items[0]), is_less, &key), want);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lower_bound_finds_the_first_that_is_not_before),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
