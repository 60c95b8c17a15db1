/* SPDX-License-Identifier: Apache-2.0 */
/*
 * /proc/self/cgroup names our group in each hierarchy, /proc/self/mountinfo says where the
 * hierarchies are mounted. A container often sees its own group as the root of the mount while its
 * path names more, or has a path that the mount does not show: then what can be seen is read,
 * beginning at the mount itself.
 */
#include "base/control_group.h"

#include <limits.h>
#include <string.h>

#include "base/compiler.h"

enum { LINE_BYTES = 2 * PATH_MAX };

struct hierarchy {
    const char *controller;
    bool is_v2;
    char group[PATH_MAX]; /* our group, as /proc/self/cgroup has it: "/a/b" */
    char root[PATH_MAX];  /* the group that the mount shows at its top */
    char mount[PATH_MAX];
};

static FILE *open_under(const char *root, const char *path)
{
    char whole[2 * PATH_MAX];
    int n = snprintf(whole, sizeof(whole), "%s%s", root, path);
    return n > 0 && (size_t)n < sizeof(whole) ? fopen(whole, "re") : NULL;
}

FILE *control_group_open(const char *root, const char *folder, const char *file)
{
    char path[2 * PATH_MAX];
    int n = snprintf(path, sizeof(path), "%s/%s", folder, file);
    return n > 0 && (size_t)n < sizeof(path) ? open_under(root, path) : NULL;
}

/* Is one of the words between commas this one? */
static bool names_controller(const char *words, const char *wanted)
{
    for (const char *at = words; at; at = strchr(at, ',')) {
        at += *at == ',';
        size_t length = strcspn(at, ",\n");
        if (length == strlen(wanted) && strncmp(at, wanted, length) == 0)
            return true;
    }
    return false;
}

/* Finds our group in the hierarchy of the controller, in lines such as "4:memory:/a" and
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
        found = h->is_v2 ? *words == '\0' : names_controller(words, h->controller);
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
                         : strcmp(type, "cgroup") == 0 && names_controller(options, h->controller);
    }
    fclose(f);
    return found;
}

static uint64_t read_limit(const char *root, const struct hierarchy *h, const char *group,
                           const struct control_group_limit *limit)
{
    char folder[2 * PATH_MAX];
    snprintf(folder, sizeof(folder), "%s%s", h->mount, group);
    return limit->read(root, folder, h->is_v2);
}

static uint64_t least_of(const char *root, bool is_v2, const struct control_group_limit *limit)
{
    struct hierarchy h = {.controller = limit->controller, .is_v2 = is_v2};
    if (!find_group(root, &h) || !find_mount(root, &h))
        return UINT64_MAX;
    size_t length = strcmp(h.root, "/") == 0 ? 0 : strlen(h.root);
    char *group = h.group;
    if (strncmp(group, h.root, length) == 0 && (group[length] == '/' || group[length] == '\0'))
        group += length;
    uint64_t least = read_limit(root, &h, "", limit);
    for (char *end = group + strlen(group); end > group; end = strrchr(group, '/')) {
        *end = '\0';
        least = MIN(least, read_limit(root, &h, group, limit));
        if (!strchr(group, '/'))
            break;
    }
    return least;
}

uint64_t control_group_least_limit(const char *root, const struct control_group_limit *limit)
{
    return MIN(least_of(root, false, limit), least_of(root, true, limit));
}
