/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/fault.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdatomic.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/status.h"

enum { MOST_RUNS = 100000 };

static atomic_uint n_seen;    /* allocations of this run */
static atomic_uint fail_from; /* the first allocation that fails */
static bool fail_on;          /* and all later ones */

static bool hook(size_t size_bytes)
{
    (void)size_bytes;
    unsigned int n = atomic_fetch_add(&n_seen, 1) + 1;
    unsigned int from = atomic_load(&fail_from);
    return fail_on ? n < from : n != from;
}

/* Runs the scenario; did an allocation fail? */
static bool run(fault_scenario_fn scenario, void *arg, unsigned int n)
{
    atomic_store(&n_seen, 0);
    atomic_store(&fail_from, n);
    mem_set_test_hook(hook);
    struct status *st = scenario(arg);
    mem_set_test_hook(NULL);

    bool met = atomic_load(&n_seen) >= n;
    if (st && !met)
        fail_msg("failed without a fault: %s", status_message(st));
    if (st && !strstr(status_message(st), "out of memory"))
        fail_msg("allocation %u failed, reported as: %s", n, status_message(st));
    status_free(st);
    return met;
}

unsigned int fault_each_allocation(fault_scenario_fn scenario, void *arg)
{
    unsigned int n_failed = 0;
    for (int kind = 0; kind < 2; kind++) {
        fail_on = kind == 1;
        unsigned int n = 1;
        while (run(scenario, arg, n)) {
            n_failed++;
            assert_true(n++ < MOST_RUNS);
        }
    }
    assert_true(n_failed > 0);
    return n_failed;
}
