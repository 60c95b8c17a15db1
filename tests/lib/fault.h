/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fault injection: what happens when the n-th allocation fails, for every n.
 */
#ifndef CONCH_TESTS_LIB_FAULT_H
#define CONCH_TESTS_LIB_FAULT_H

#include <stdbool.h>

struct status;

/*
 * A job that frees all that it makes, on every path. Its own allocations for the test's sake use
 * malloc(), which does not fail.
 *
 * Returns NULL when the job succeeded, or the status that reports the lack of memory, with "out of
 * memory" in its text. A job that reports in another way returns status_no_memory(). Any other
 * status fails the test.
 */
typedef struct status *(*fault_scenario_fn)(void *arg);

/*
 * fault_each_allocation - runs the scenario with its first allocation failing, then its second, and
 * so on until a run meets no failure. Then it runs all again with each allocation failing from the
 * n-th on. The first run of each kind that meets no failure must succeed. A run that meets a
 * failure may succeed, too, where the code can do without the memory.
 *
 * Only mem_try_… fails, since the other functions may not. Sanitizers find leaks and worse. Returns
 * how many allocations failed in all; 0 would mean that nothing was tested, and fails the test.
 */
unsigned int fault_each_allocation(fault_scenario_fn scenario, void *arg);

#endif
