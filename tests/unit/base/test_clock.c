/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void the_real_clock_runs_forward(void **state)
{
    (void)state;
    struct clock *c = clock_real();
    uint64_t first_ns = clock_now_ns(c), last_ns = first_ns;
    while (last_ns == first_ns) {
        uint64_t now_ns = clock_now_ns(c);
        assert_true(now_ns >= last_ns);
        last_ns = now_ns;
    }
    uint64_t direct_ns = monotonic_ns(); /* the same clock */
    assert_true(direct_ns >= last_ns);
    assert_true(direct_ns - last_ns < 10 * NS_PER_S);
}

static void a_fake_clock_stands_still(void **state)
{
    (void)state;
    struct clock_fake fake;
    clock_fake_init(&fake, 500);
    assert_int_equal(clock_now_ns(&fake.clock), 500);
    assert_int_equal(clock_now_ns(&fake.clock), 500);
    clock_fake_advance(&fake, NS_PER_MS);
    assert_int_equal(clock_now_ns(&fake.clock), 500 + NS_PER_MS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_real_clock_runs_forward),
        cmocka_unit_test(a_fake_clock_stands_still),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
