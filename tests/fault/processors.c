/* SPDX-License-Identifier: Apache-2.0 */
/*
 * processors - an LD_PRELOAD library that sets the number of processors that the machine seems to
 * have, so that a small machine shows what grows with them. Threads stay on their CPUs.
 *
 * PROCESSORS  <n>
 * QUOTA       what "cpu.max" of the process's control group seems to have, such as "150000 100000";
 *             not set: there is no quota, also where the machine has one
 */
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysinfo.h>
#include <unistd.h>

static int count(void)
{
    const char *text = getenv("PROCESSORS");
    int n = text ? atoi(text) : 0;
    return n > 0 && n <= CPU_SETSIZE ? n : 1;
}

int sched_getaffinity(pid_t pid, size_t size, cpu_set_t *set)
{
    (void)pid;
    memset(set, 0, size);
    for (size_t i = 0; i < (size_t)count(); i++)
        CPU_SET_S(i, size, set);
    return 0;
}

int pthread_getaffinity_np(pthread_t thread, size_t size, cpu_set_t *set)
{
    (void)thread;
    return sched_getaffinity(0, size, set);
}

int sched_setaffinity(pid_t pid, size_t size, const cpu_set_t *set)
{
    (void)pid, (void)size, (void)set;
    return 0;
}

int pthread_setaffinity_np(pthread_t thread, size_t size, const cpu_set_t *set)
{
    (void)thread, (void)size, (void)set;
    return 0;
}

int get_nprocs(void)
{
    return count();
}

int get_nprocs_conf(void)
{
    return count();
}

long sysconf(int name)
{
    static long (*next)(int);
    if (name == _SC_NPROCESSORS_ONLN || name == _SC_NPROCESSORS_CONF)
        return count();
    if (!next)
        *(void **)&next = dlsym(RTLD_NEXT, "sysconf");
    return next(name);
}

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), length = strlen(end);
    return n >= length && strcmp(text + n - length, end) == 0;
}

/* The files in which a process finds the quota of its control group. */
static char *text_of(const char *path)
{
    static char groups[] = "0::/\n", mounts[] = "31 23 0:28 / /quota rw - cgroup2 none rw\n",
                none[] = "max 100000\n", none_of_version_1[] = "-1\n";
    char *quota = getenv("QUOTA");
    if (quota && strcmp(path, "/proc/self/cgroup") == 0)
        return groups;
    if (quota && strcmp(path, "/proc/self/mountinfo") == 0)
        return mounts;
    if (ends_with(path, "/cpu.max"))
        return quota ? quota : none;
    return ends_with(path, "/cpu.cfs_quota_us") ? none_of_version_1 : NULL;
}

FILE *fopen(const char *path, const char *mode)
{
    static FILE *(*next)(const char *, const char *);
    char *text = text_of(path);
    if (text)
        return fmemopen(text, strlen(text), "r");
    if (!next)
        *(void **)&next = dlsym(RTLD_NEXT, "fopen");
    return next(path, mode);
}
