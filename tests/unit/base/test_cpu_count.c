/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The processors that a process may use.
 */
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/cpu_count.h"

static void a_process_counts_the_cpus_that_it_may_use(void **state)
{
    (void)state;
    cpu_set_t all, one;
    assert_int_equal(sched_getaffinity(0, sizeof(all), &all), 0);
    assert_in_range(cpu_count_usable(), 1, CPU_COUNT(&all));
    CPU_ZERO(&one);
    for (int i = 0; i < CPU_SETSIZE; i++) {
        if (CPU_ISSET(i, &all)) {
            CPU_SET(i, &one);
            break;
        }
    }
    assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
    int n = cpu_count_usable();
    assert_int_equal(sched_setaffinity(0, sizeof(all), &all), 0);
    assert_int_equal(n, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_process_counts_the_cpus_that_it_may_use),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
