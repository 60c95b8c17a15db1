/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How much memory this process may have.
 */
#ifndef CONCH_BASE_MEMORY_LIMIT_H
#define CONCH_BASE_MEMORY_LIMIT_H

#include <stdint.h>

/*
 * memory_limit_bytes - the least of: what the machine has; what our control group, and each group
 * around it that can be seen, is allowed (version 1 and 2); the address space that RLIMIT_AS
 * allows. Reads some files in /proc and /sys: for the start.
 */
uint64_t memory_limit_bytes(void);

/*
 * memory_limit_of_groups - what the control groups allow; UINT64_MAX without a limit. For tests:
 *
 * @root  in front of all paths; "" is the machine itself
 */
uint64_t memory_limit_of_groups(const char *root);

#endif
