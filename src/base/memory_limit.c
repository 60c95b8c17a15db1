/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Control groups: /proc/self/cgroup names our group in each hierarchy, /proc/self/mountinfo says
 * where the hierarchies are mounted. A container often sees its own group as the root of the mount
 * while its path names more, or has a path that the mount does not show: then what can be seen is
 * read, beginning at the mount itself.
 */
#include "base/memory_limit.h"

#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/compiler.h"

enum { LINE_BYTES = 2 * PATH_MAX };

struct hierarchy {
    bool is_v2;
    char group[PATH_MAX]; /* our group, as /proc/self/cgroup has it: "/a/b" */
    char root[PATH_MAX];  /* the group that the mount shows at its top */
    char mount[PATH_MAX];
};

static FILE *open_under(const char *root, const char *path)
{
    char whole[PATH_MAX];
    int n = snprintf(whole, sizeof(whole), "%s%s", root, path);
    return n > 0 && (size_t)n < sizeof(whole) ? fopen(whole, "re") : NULL;
}

/* Is one of the words between commas "memory"? */
static bool names_memory(const char *words)
{
    for (const char *at = words; at; at = strchr(at, ',')) {
        at += *at == ',';
        size_t length = strcspn(at, ",\n");
        if (length == 6 && strncmp(at, "memory", 6) == 0)
            return true;
    }
    return false;
}

/* Finds our group in the hierarchy that counts memory, in lines such as "4:memory:/a" and
 * "0::/a". */
static bool find_group(const char *root, struct hierarchy *h)
{
    char line[LINE_BYTES];
    FILE *f = open_under(root, "/proc/self/cgroup");
    if (!f)
        return false;
    bool found = false;
    while (!found && fgets(line, sizeof(line), f)) {
        char *words = strchr(line, ':'), *path = words ? strchr(words + 1, ':') : NULL;
        if (!path)
            continue;
        *path++ = '\0';
        words++;
        path[strcspn(path, "\n")] = '\0';
        found = h->is_v2 ? *words == '\0' : names_memory(words);
        if (found)
            snprintf(h->group, sizeof(h->group), "%s", path);
    }
    fclose(f);
    return found;
}

/* Finds where it is mounted: "35 31 0:32 ROOT MOUNT options - cgroup cgroup rw,memory". */
static bool find_mount(const char *root, struct hierarchy *h)
{
    char line[LINE_BYTES], type[16], source[256], options[512];
    FILE *f = open_under(root, "/proc/self/mountinfo");
    if (!f)
        return false;
    bool found = false;
    while (!found && fgets(line, sizeof(line), f)) {
        char *rest = strstr(line, " - ");
        if (!rest || sscanf(rest, " - %15s %255s %511s", type, source, options) != 3 ||
            sscanf(line, "%*s %*s %*s %4095s %4095s", h->root, h->mount) != 2)
            continue;
        found = h->is_v2 ? strcmp(type, "cgroup2") == 0
                         : strcmp(type, "cgroup") == 0 && names_memory(options);
    }
    fclose(f);
    return found;
}

/* Reads the limit of one group; UINT64_MAX if it has none, or "max". */
static uint64_t limit_at(const char *root, const struct hierarchy *h, const char *group)
{
    char path[2 * PATH_MAX + 64];
    uint64_t bytes = UINT64_MAX;
    snprintf(path, sizeof(path), "%s%s/%s", h->mount, group,
             h->is_v2 ? "memory.max" : "memory.limit_in_bytes");
    FILE *f = open_under(root, path);
    if (!f)
        return UINT64_MAX;
    if (fscanf(f, "%" SCNu64, &bytes) != 1)
        bytes = UINT64_MAX;
    fclose(f);
    return bytes;
}

/* Returns the least limit of our group and of all groups around it, as far as the mount shows
 * them. */
static uint64_t limit_of(const char *root, bool is_v2)
{
    struct hierarchy h = {.is_v2 = is_v2};
    if (!find_group(root, &h) || !find_mount(root, &h))
        return UINT64_MAX;
    size_t length = strcmp(h.root, "/") == 0 ? 0 : strlen(h.root);
    char *group = h.group;
    if (strncmp(group, h.root, length) == 0 && (group[length] == '/' || group[length] == '\0'))
        group += length;
    uint64_t least = limit_at(root, &h, "");
    for (char *end = group + strlen(group); end > group; end = strrchr(group, '/')) {
        *end = '\0';
        least = MIN(least, limit_at(root, &h, group));
        if (!strchr(group, '/'))
            break;
    }
    return least;
}

uint64_t memory_limit_of_groups(const char *root)
{
    return MIN(limit_of(root, false), limit_of(root, true));
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
