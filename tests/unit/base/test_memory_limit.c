/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The limit of this machine; test_control_group.c has those of control groups.
 */
#include "base/memory_limit.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/compiler.h"

static void the_machine_has_memory(void **state)
{
    (void)state;
    uint64_t pages = (uint64_t)sysconf(_SC_PHYS_PAGES), bytes = memory_limit_bytes();
    assert_true(bytes > 1 << 20);
    assert_true(bytes <= pages * (uint64_t)sysconf(_SC_PAGESIZE));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_machine_has_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
