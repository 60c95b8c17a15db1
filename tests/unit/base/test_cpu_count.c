/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The processors that a process may use; test_control_group.c has the quotas of control groups.
 */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/cpu_count.h"

static unsigned int first_cpu(const cpu_set_t *cpus)
{
    unsigned int cpu = 0;
    while (!CPU_ISSET(cpu, cpus))
        cpu++;
    return cpu;
}

static void a_process_counts_the_cpus_that_it_may_use(void **state)
{
    (void)state;
    cpu_set_t all, one;
    assert_int_equal(sched_getaffinity(0, sizeof(all), &all), 0);
    assert_in_range(cpu_count_usable(), 1, CPU_COUNT(&all));
    CPU_ZERO(&one);
    CPU_SET(first_cpu(&all), &one);
    assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
    int n = cpu_count_usable();
    assert_int_equal(sched_setaffinity(0, sizeof(all), &all), 0);
    assert_int_equal(n, 1);
}

static void *bind_and_count(void *arg)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(first_cpu(arg), &one);
    assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
    return (void *)(uintptr_t)cpu_count_usable(); /* NOLINT: a number */
}

/* Where this machine has one, this shows nothing. */
static void a_bound_thread_counts_those_of_the_process(void **state)
{
    (void)state;
    cpu_set_t all;
    assert_int_equal(sched_getaffinity(0, sizeof(all), &all), 0);
    pthread_t bound;
    void *counted;
    assert_int_equal(pthread_create(&bound, NULL, bind_and_count, &all), 0);
    assert_int_equal(pthread_join(bound, &counted), 0);
    assert_int_equal((uintptr_t)counted, cpu_count_usable());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_process_counts_the_cpus_that_it_may_use),
        cmocka_unit_test(a_bound_thread_counts_those_of_the_process),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
