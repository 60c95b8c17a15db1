/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The affinity mask, or the quota of the control group (version 2) where that is less. Threads:
 * any.
 */
#include "base/cpu_count.h"

#include <sched.h>
#include <stdio.h>

/* Returns the CPU quota of our control group (version 2), rounded up; 0 if there is none. */
static int cgroup_cpus(void)
{
    FILE *f = fopen("/sys/fs/cgroup/cpu.max", "re");
    if (!f)
        return 0;
    long quota_us = 0, period_us = 0;
    int n = fscanf(f, "%ld %ld", &quota_us, &period_us); /* "max 100000" reads nothing */
    fclose(f);
    if (n != 2 || quota_us <= 0 || period_us <= 0)
        return 0;
    return (int)((quota_us + period_us - 1) / period_us);
}

int cpu_count_usable(void)
{
    cpu_set_t set;
    int n = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
    int quota = cgroup_cpus();
    if (quota > 0 && quota < n)
        n = quota;
    return n > 0 ? n : 1;
}
