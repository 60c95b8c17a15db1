/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The number of CPUs that this process may use.
 */
#ifndef CONCH_BASE_CPU_COUNT_H
#define CONCH_BASE_CPU_COUNT_H

/* cpu_count_usable - CPUs that this process may run on (affinity, cgroup quota); at least 1.
 * Thread: any. */
int cpu_count_usable(void);

#endif
