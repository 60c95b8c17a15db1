/* SPDX-License-Identifier: Apache-2.0 */
/* The least of what the machine, the control groups and RLIMIT_AS allow. */
#include "base/memory_limit.h"

#include <inttypes.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/compiler.h"
#include "base/control_group.h"

/* Of one group; UINT64_MAX if it has none, or "max". */
static uint64_t read_memory_limit(const char *root, const char *folder, bool is_v2)
{
    uint64_t bytes = UINT64_MAX;
    FILE *f = control_group_open(root, folder, is_v2 ? "memory.max" : "memory.limit_in_bytes");
    if (!f)
        return UINT64_MAX;
    if (fscanf(f, "%" SCNu64, &bytes) != 1)
        bytes = UINT64_MAX;
    fclose(f);
    return bytes;
}

uint64_t memory_limit_of_groups(const char *root)
{
    const struct control_group_limit memory = {"memory", read_memory_limit};
    return control_group_least_limit(root, &memory);
}

uint64_t memory_limit_bytes(void)
{
    long pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);
    uint64_t least = memory_limit_of_groups("");
    struct rlimit space;
    if (pages > 0 && page_bytes > 0)
        least = MIN(least, (uint64_t)pages * (uint64_t)page_bytes);
    if (getrlimit(RLIMIT_AS, &space) == 0 && space.rlim_cur != RLIM_INFINITY)
        least = MIN(least, (uint64_t)space.rlim_cur);
    return least;
}
