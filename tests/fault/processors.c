/* SPDX-License-Identifier: Apache-2.0 */
/*
 * processors - an LD_PRELOAD library that sets the number of processors that the machine seems to
 * have, so that a small machine shows what grows with them. Threads stay on their CPUs.
 *
 * PROCESSORS  <n>
 */
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
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
