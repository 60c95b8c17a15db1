/* SPDX-License-Identifier: Apache-2.0 */
/* The parser of /proc/self/stat. tests/system/test_metrics.py compares a server's page with /proc.
 */
#include "core/metrics/process.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define FRONT "42 (a ) name) "
#define AFTER "S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 "

static void the_fields_are_counted_from_the_last_bracket(void **state)
{
    (void)state;
    struct process_stat s;
    assert_true(process_read_stat(FRONT AFTER "7 0 1234 8192000 -3 18446744073709551615 1\n", &s));
    assert_int_equal(s.n_threads, 7);
    assert_int_equal(s.start_ticks, 1234);
    assert_int_equal(s.virtual_bytes, 8192000);
    assert_int_equal(s.resident_pages, 0); /* the kernel may be behind with its sum */
}

static void another_format_is_refused(void **state)
{
    (void)state;
    struct process_stat s;
    assert_false(process_read_stat("", &s));
    assert_false(process_read_stat("42 (name", &s));
    assert_false(process_read_stat(FRONT AFTER "7 0 1234 8192000", &s));
    assert_false(process_read_stat(FRONT "S 1 x 3", &s));
}

static void this_process_is_there(void **state)
{
    (void)state;
    struct process_use use;
    assert_true(process_look(&use));
    assert_true(use.n_threads >= 1 && use.n_fds >= 3 && use.n_fds <= use.max_fds);
    assert_true(use.resident_bytes > 0 && use.resident_bytes < use.virtual_bytes);
    assert_true(use.cpu_s > 0 && use.start_s > 1e9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_fields_are_counted_from_the_last_bracket),
        cmocka_unit_test(another_format_is_refused),
        cmocka_unit_test(this_process_is_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
