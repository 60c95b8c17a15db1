/* SPDX-License-Identifier: Apache-2.0 */
#include "base/thread.h"

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/status.h"

static void *thread_main(void *arg)
{
    struct thread *t = arg;
    pthread_setname_np(pthread_self(), t->name);
    t->run(t->arg);
    return NULL;
}

struct status *thread_start(struct thread *t, const char *name, void (*run)(void *), void *arg)
{
    snprintf(t->name, sizeof(t->name), "%s", name);
    t->run = run;
    t->arg = arg;

    sigset_t all, before;
    sigfillset(&all);
    /* But not those that a mistake in the thread itself raises: blocked, they would end the program
     * without a word of where it was. */
    static const int own[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS};
    for (size_t i = 0; i < ARRAY_SIZE(own); i++)
        sigdelset(&all, own[i]);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int err = pthread_create(&t->id, NULL, thread_main, t);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (err)
        return status_from_errno(err, "failed to start thread '%s'", name);
    return NULL;
}

void thread_join(struct thread *t)
{
    pthread_join(t->id, NULL);
}

/* The CPU quota of our control group (version 2), rounded up; 0 when there is none. */
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

int thread_cpu_count(void)
{
    cpu_set_t set;
    int n = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
    int quota = cgroup_cpus();
    if (quota > 0 && quota < n)
        n = quota;
    return n > 0 ? n : 1;
}
