/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fault injection: what happens when the n-th allocation fails, for every n.
 */
#ifndef CONCH_TESTS_LIB_FAULT_H
#define CONCH_TESTS_LIB_FAULT_H

#include <stdbool.h>

struct status;

/*
 * A piece of work from nothing to nothing: whatever it makes it ends, on every way out. Its own
 * allocations for the test's sake are made by malloc(), which is not failed.
 *
 * Returns NULL when all was done, or the status that told of the lack of memory, in words that have
 * "out of memory" in them. Work that reports by other means returns status_no_memory() for it. Any
 * other status fails the test.
 */
typedef struct status *(*fault_scenario_fn)(void *arg);

/*
 * fault_each_allocation - runs the scenario with its first allocation failing, its second, and so
 * on until it meets no failure; then all again with each allocation failing from the n-th on. In
 * the first run of each kind that meets no failure it must succeed. A run may succeed in spite of a
 * failure, where it can do without.
 *
 * Only mem_try_… fails, since the others may not. Leaks and worse are for the sanitizers to find.
 * Returns how many allocations failed in all; 0 would mean that nothing was tested, and fails.
 */
unsigned int fault_each_allocation(fault_scenario_fn scenario, void *arg);

#endif
