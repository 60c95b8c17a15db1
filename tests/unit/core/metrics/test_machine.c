/* SPDX-License-Identifier: Apache-2.0 */
#include "core/metrics/machine.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/compiler.h"

static void processor_time_is_parsed(void **state)
{
    (void)state;
    struct machine_time t;
    assert_true(machine_read_stat("cpu  1 20 300 4000 50000 600000 7000000 80000000 9 9\n"
                                  "cpu0 9 9 9 9 9 9 9 9 9 9\n",
                                  &t));
    assert_int_equal(t.busy, 1 + 20 + 300 + 600000 + 7000000 + 80000000);
    assert_int_equal(t.idle, 4000 + 50000);
}

static void malformed_texts_give_no_value(void **state)
{
    (void)state;
    static const char *const stats[] = {"", "cpu", "cpu 1 2 3 4 5 6 7", "cpu0 1 2 3 4 5 6 7 8",
                                        "intr 1 2 3 4 5 6 7 8"};
    static const char *const memories[] = {
        "",
        "MemTotal: 5 kB",
        "MemAvailable: 5 kB\n",
        "MemTotal: 5 kB\nMemAvailable: x kB\n",
        "MemTotal: 5 kB\nMemAvailable: 6 kB\n", /* more than the total */
        "MemTotal: 18446744073709551615 kB\nMemAvailable: 1 kB\n",
        "XMemTotal: 5 kB\nXMemAvailable: 1 kB\n",
    };
    struct machine_time t = {7, 8};
    struct machine_use use = {.memory_bytes = 9};
    for (size_t i = 0; i < ARRAY_SIZE(stats); i++)
        assert_false(machine_read_stat(stats[i], &t));
    for (size_t i = 0; i < ARRAY_SIZE(memories); i++)
        assert_false(machine_read_meminfo(memories[i], &use));
    assert_int_equal(t.busy, 7);
    assert_int_equal(use.memory_bytes, 9);
}

static void memory_is_parsed(void **state)
{
    (void)state;
    struct machine_use use = {0};
    assert_true(machine_read_meminfo("MemTotal:       16000000 kB\nMemFree:    1 kB\n"
                                     "MemAvailable:    4000000 kB\n",
                                     &use));
    assert_int_equal(use.memory_bytes, 16000000ULL * 1024);
    assert_int_equal(use.memory_used_bytes, 12000000ULL * 1024);
}

/* The share covers the time since the last look. A look too soon after it is skipped. */
static void utilization_covers_the_time_between_looks(void **state)
{
    (void)state;
    struct machine *m = machine_new(1000, 5 * NS_PER_S);
    struct machine_use first = machine_look(m, 5 * NS_PER_S + 499 * NS_PER_MS);
    assert_true(first.utilization == 0.0);
    assert_true(first.memory_used_bytes < first.memory_bytes);

    /* Keeps the CPU busy until the kernel has counted a tick of it. */
    struct machine_use later;
    uint64_t now_ns = 5 * NS_PER_S;
    do {
        now_ns += 500 * NS_PER_MS;
        later = machine_look(m, now_ns);
    } while (later.utilization == 0.0);
    assert_true(later.utilization > 0 && later.utilization <= 1);

    struct machine_use again = machine_look(m, now_ns + 499 * NS_PER_MS);
    assert_true(again.utilization == later.utilization);
    assert_true(again.memory_used_bytes == later.memory_used_bytes);
    machine_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(processor_time_is_parsed),
        cmocka_unit_test(malformed_texts_give_no_value),
        cmocka_unit_test(memory_is_parsed),
        cmocka_unit_test(utilization_covers_the_time_between_looks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
