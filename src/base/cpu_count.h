/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The number of CPUs that this process may use.
 */
#ifndef CONCH_BASE_CPU_COUNT_H
#define CONCH_BASE_CPU_COUNT_H

#include <stdint.h>

/*
 * cpu_count_usable - the CPUs that this process may run on, or as many as the CPU time that its
 * control groups allow would keep busy, where these are fewer; at least 1. The CPUs are those of
 * the process's first thread: another may be bound for a model (base/cpu_binding.h). Reads files
 * in /proc and /sys. Thread: any.
 */
int cpu_count_usable(void);

/*
 * cpu_count_of_groups - the CPU time that our control group and each visible group around it
 * allow, in CPUs, rounded up; UINT64_MAX without a limit. For tests:
 *
 * @root  put in front of all paths; "" is the machine itself
 */
uint64_t cpu_count_of_groups(const char *root);

#endif
