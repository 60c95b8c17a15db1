/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A container's limit of CPUs is mostly no set of CPUs but a quota of their time: its threads run
 * on all of them, and all stand still for the rest of a period once they have used the quota.
 * Threads: any.
 */
#include "base/cpu_count.h"

#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <unistd.h>

#include "base/compiler.h"
#include "base/control_group.h"

/* One number of a file of version 1; 0: there is none, or -1, no limit. */
static uint64_t read_microseconds(const char *root, const char *folder, const char *file)
{
    int64_t us = 0;
    FILE *f = control_group_open(root, folder, file);
    if (!f)
        return 0;
    int n = fscanf(f, "%" SCNd64, &us);
    fclose(f);
    return n == 1 && us > 0 ? (uint64_t)us : 0;
}

/* "150000 100000", or "max 100000", of which no number is read. */
static void read_quota_and_period(const char *root, const char *folder, uint64_t *ret_quota_us,
                                  uint64_t *ret_period_us)
{
    FILE *f = control_group_open(root, folder, "cpu.max");
    if (!f)
        return;
    if (fscanf(f, "%" SCNu64 " %" SCNu64, ret_quota_us, ret_period_us) != 2)
        *ret_quota_us = 0;
    fclose(f);
}

static uint64_t read_quota(const char *root, const char *folder, bool is_v2)
{
    uint64_t quota_us = 0, period_us = 0;
    if (is_v2) {
        read_quota_and_period(root, folder, &quota_us, &period_us);
    } else {
        quota_us = read_microseconds(root, folder, "cpu.cfs_quota_us");
        period_us = read_microseconds(root, folder, "cpu.cfs_period_us");
    }
    return quota_us > 0 && period_us > 0 ? (quota_us - 1) / period_us + 1 : UINT64_MAX;
}

uint64_t cpu_count_of_groups(const char *root)
{
    const struct control_group_limit cpu = {"cpu", read_quota};
    return control_group_least_limit(root, &cpu);
}

int cpu_count_usable(void)
{
    cpu_set_t set;
    int n = sched_getaffinity(getpid(), sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
    return MAX(1, (int)MIN((uint64_t)n, cpu_count_of_groups("")));
}
