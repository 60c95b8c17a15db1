/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The limits of the control groups that this process is in (cgroup version 1 and 2).
 */
#ifndef CONCH_BASE_CONTROL_GROUP_H
#define CONCH_BASE_CONTROL_GROUP_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct control_group_limit {
    const char *controller; /* "memory", "cpu" */
    /*
     * Reads the limit of one group. UINT64_MAX: it has none.
     *
     * @root    put in front of the folder, for control_group_open()
     * @folder  of the group
     */
    uint64_t (*read)(const char *root, const char *folder, bool is_v2);
};

/*
 * control_group_least_limit - the least limit of our group and of all groups around it, as far as
 * the mounts show them; UINT64_MAX without one. Reads files in /proc and /sys.
 *
 * @root  put in front of all paths; "" is the machine itself
 * Thread: any.
 */
uint64_t control_group_least_limit(const char *root, const struct control_group_limit *limit);

/* control_group_open - opens a file of a group to read it; NULL: there is none. */
FILE *control_group_open(const char *root, const char *folder, const char *file);

#endif
