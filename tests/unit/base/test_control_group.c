/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The limits of memory and of CPU time, in files of a folder that stands for "/".
 */
#include "base/control_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "base/cpu_count.h"
#include "base/memory_limit.h"

static char root[64];

static int make_root(void **state)
{
    (void)state;
    snprintf(root, sizeof(root), "/tmp/control-group-XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int remove_root(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof(command), "rm -r %s", root);
    return system(command);
}

/* Writes a file below the root, and makes its folders. */
static void put(const char *path, const char *text)
{
    char whole[512];
    snprintf(whole, sizeof(whole), "%s%s", root, path);
    for (char *slash = strchr(whole + strlen(root) + 1, '/'); slash;
         slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        (void)mkdir(whole, 0700);
        *slash = '/';
    }
    FILE *f = fopen(whole, "we");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static const char v1_mounts[] =
    "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n"
    "32 31 0:29 / /cg/cpu rw,relatime - cgroup cgroup rw,cpu\n"
    "35 31 0:32 / /cg/memory rw,relatime shared:3 - cgroup cgroup rw,memory\n";

static void a_missing_limit_is_no_limit(void **state)
{
    (void)state;
    assert_true(memory_limit_of_groups(root) == UINT64_MAX);
    put("/proc/self/cgroup", "0::/a\n");
    assert_true(memory_limit_of_groups(root) == UINT64_MAX);
    put("/proc/self/mountinfo", v1_mounts);
    assert_true(memory_limit_of_groups(root) == UINT64_MAX);
}

static void version_1_takes_the_least_limit_on_the_path(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "5:cpu:/other\n4:hugetlb,memory:/a/b\n0::/\n");
    put("/proc/self/mountinfo", v1_mounts);
    put("/cg/memory/memory.limit_in_bytes", "9223372036854771712\n");
    put("/cg/memory/other/memory.limit_in_bytes", "1\n");
    put("/cg/memory/a/b/memory.limit_in_bytes", "700000\n");
    assert_int_equal(memory_limit_of_groups(root), 700000);
    put("/cg/memory/a/memory.limit_in_bytes", "600000\n");
    assert_int_equal(memory_limit_of_groups(root), 600000);
    put("/cg/memory/memory.limit_in_bytes", "500000\n");
    assert_int_equal(memory_limit_of_groups(root), 500000);
}

static void version_2_takes_the_least_limit_on_the_path(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "0::/k8s/pod/box\n");
    put("/proc/self/mountinfo", "31 23 0:28 / /cg2 rw - cgroup2 none rw\n");
    put("/cg2/k8s/pod/box/memory.max", "max\n");
    assert_true(memory_limit_of_groups(root) == UINT64_MAX);
    put("/cg2/k8s/pod/memory.max", "536870912\n");
    assert_int_equal(memory_limit_of_groups(root), 536870912);
}

/* The mount shows our group as its root, or the path has folders that the mount does not have. */
static void a_container_reads_its_own_group(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "0::/docker/abc/inner\n");
    put("/proc/self/mountinfo", "31 23 0:28 /docker/abc /cg3 rw - cgroup2 none rw\n");
    put("/cg3/memory.max", "900000\n");
    assert_int_equal(memory_limit_of_groups(root), 900000);
    put("/cg3/inner/memory.max", "800000\n");
    assert_int_equal(memory_limit_of_groups(root), 800000);
    put("/proc/self/cgroup", "0::/../elsewhere\n");
    assert_int_equal(memory_limit_of_groups(root), 900000);
}

static void version_1_takes_the_least_quota_rounded_up(void **state)
{
    (void)state;
    assert_true(cpu_count_of_groups(root) == UINT64_MAX);
    put("/proc/self/cgroup", "5:memory:/other\n4:cpu,cpuacct:/a/b\n0::/\n");
    put("/proc/self/mountinfo", "32 31 0:29 / /cg4 rw,relatime - cgroup cgroup rw,cpu,cpuacct\n");
    put("/cg4/a/b/cpu.cfs_quota_us", "-1\n");
    put("/cg4/a/b/cpu.cfs_period_us", "100000\n");
    assert_true(cpu_count_of_groups(root) == UINT64_MAX);
    put("/cg4/a/b/cpu.cfs_quota_us", "300001\n");
    assert_int_equal(cpu_count_of_groups(root), 4);
    put("/cg4/a/cpu.cfs_quota_us", "100000\n");
    put("/cg4/a/cpu.cfs_period_us", "50000\n");
    assert_int_equal(cpu_count_of_groups(root), 2);
}

/* As in a service of systemd: the root of the mount has no such file, our group has one. */
static void version_2_takes_the_least_quota_rounded_up(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "0::/system.slice/conch.service\n");
    put("/proc/self/mountinfo", "31 23 0:28 / /cg5 rw - cgroup2 none rw\n");
    put("/cg5/system.slice/cpu.max", "max 100000\n");
    assert_true(cpu_count_of_groups(root) == UINT64_MAX);
    put("/cg5/system.slice/conch.service/cpu.max", "150000 100000\n");
    assert_int_equal(cpu_count_of_groups(root), 2);
    put("/cg5/system.slice/cpu.max", "5000 100000\n");
    assert_int_equal(cpu_count_of_groups(root), 1);
}

static void a_file_of_nonsense_is_no_quota(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "0::/box\n");
    put("/proc/self/mountinfo", "31 23 0:28 / /cg6 rw - cgroup2 none rw\n");
    static const char *const texts[] = {"", "100000", "0 100000", "100000 0", "a b"};
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        put("/cg6/box/cpu.max", texts[i]);
        assert_true(cpu_count_of_groups(root) == UINT64_MAX);
    }
    put("/cg6/box/cpu.max", "18446744073709551615 1");
    assert_true(cpu_count_of_groups(root) == UINT64_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_missing_limit_is_no_limit),
        cmocka_unit_test(version_1_takes_the_least_limit_on_the_path),
        cmocka_unit_test(version_2_takes_the_least_limit_on_the_path),
        cmocka_unit_test(a_container_reads_its_own_group),
        cmocka_unit_test(version_1_takes_the_least_quota_rounded_up),
        cmocka_unit_test(version_2_takes_the_least_quota_rounded_up),
        cmocka_unit_test(a_file_of_nonsense_is_no_quota),
    };
    return cmocka_run_group_tests(tests, make_root, remove_root);
}
