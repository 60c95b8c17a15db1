/* SPDX-License-Identifier: Apache-2.0 */
/* Each time is in the bucket that a walk over the bounds finds. */
#include "core/model/time_counts.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

static unsigned int walk(uint64_t ns)
{
    unsigned int i = 0;
    while (ns > time_bounds_ns[i])
        i++;
    return i;
}

static void bounds_ascend(void **state)
{
    (void)state;
    for (unsigned int i = 1; i < TIME_BUCKETS; i++)
        assert_true(time_bounds_ns[i - 1] < time_bounds_ns[i]);
    assert_true(time_bounds_ns[TIME_BUCKETS - 1] == UINT64_MAX);
}

static void each_time_has_its_bucket(void **state)
{
    (void)state;
    assert_int_equal(time_bucket(0), 0);
    assert_int_equal(time_bucket(UINT64_MAX), TIME_BUCKETS - 1);
    for (unsigned int i = 0; i + 1 < TIME_BUCKETS; i++) {
        assert_int_equal(time_bucket(time_bounds_ns[i]), i);
        assert_int_equal(time_bucket(time_bounds_ns[i] + 1), i + 1);
    }
    for (unsigned int bit = 0; bit < 64; bit++) {
        for (int around = -1; around <= 1; around++) {
            uint64_t ns = (1ULL << bit) + (uint64_t)around;
            assert_int_equal(time_bucket(ns), walk(ns));
        }
    }
    unsigned int seed = 1;
    for (int i = 0; i < 10000; i++) {
        uint64_t ns =
            ((uint64_t)rand_r(&seed) << 31 | (uint64_t)rand_r(&seed)) >> rand_r(&seed) % 62;
        assert_int_equal(time_bucket(ns), walk(ns));
    }
}

static void times_are_counted_apart(void **state)
{
    (void)state;
    struct time_counts c = {0};
    time_counts_add(&c, TIME_OF_REQUEST, 20000);
    time_counts_add(&c, TIME_OF_REQUEST, 20000);
    time_counts_add(&c, TIME_IN_QUEUE, 1);
    assert_int_equal(c.of[TIME_OF_REQUEST][1], 2);
    assert_int_equal(c.of[TIME_IN_QUEUE][0], 1);
    assert_int_equal(c.of[TIME_OF_COMPUTE][0], 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bounds_ascend),
        cmocka_unit_test(each_time_has_its_bucket),
        cmocka_unit_test(times_are_counted_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
