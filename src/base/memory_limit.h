/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The amount of memory that this process may use.
 */
#ifndef CONCH_BASE_MEMORY_LIMIT_H
#define CONCH_BASE_MEMORY_LIMIT_H

#include <stdint.h>

/*
 * memory_limit_bytes - the least of three: the machine's memory; the limits of our control group
 * and of each visible group around it (cgroup version 1 and 2); the address space that RLIMIT_AS
 * allows. Reads files in /proc and /sys, so call it at the start only.
 */
uint64_t memory_limit_bytes(void);

/*
 * memory_limit_of_groups - the limit of the control groups; UINT64_MAX without one. For tests:
 *
 * @root  put in front of all paths; "" is the machine itself
 */
uint64_t memory_limit_of_groups(const char *root);

#endif
