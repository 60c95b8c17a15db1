/* SPDX-License-Identifier: Apache-2.0 */
#include "procfs.h"

#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static uint64_t ticks_to_us(uint64_t ticks)
{
    return ticks * 1000000u / (uint64_t)sysconf(_SC_CLK_TCK);
}

/* Uses the process's own clock, which has nanoseconds where /proc has ticks of 10 ms. */
static bool process_us(pid_t pid, uint64_t *ret_us)
{
    clockid_t clock;
    struct timespec t;

    if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &t) != 0)
        return false;
    *ret_us = (uint64_t)t.tv_sec * 1000000u + (uint64_t)t.tv_nsec / 1000u;
    return true;
}

/* Adds the children of one thread, which the kernel lists in a file. */
static uint64_t children_us(pid_t pid, const char *thread)
{
    char path[64];
    uint64_t sum = 0;
    FILE *f;
    int child;

    snprintf(path, sizeof(path), "/proc/%d/task/%.20s/children", (int)pid, thread);
    f = fopen(path, "re");
    while (f && fscanf(f, "%d", &child) == 1) {
        uint64_t us;

        if (process_us(child, &us))
            sum += us;
    }
    if (f)
        fclose(f);
    return sum;
}

/* The server's processes: itself, and its children, which execute models in Python. */
static bool processes_us(pid_t pid, uint64_t *ret_us)
{
    char path[64];
    struct dirent *d;
    DIR *threads;

    if (!process_us(pid, ret_us))
        return false;
    snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
    threads = opendir(path);
    while (threads && (d = readdir(threads)))
        *ret_us += children_us(pid, d->d_name);
    if (threads)
        closedir(threads);
    return true;
}

static uint64_t cores_busy_us(uint64_t cpus)
{
    uint64_t ticks = 0;
    char line[512];
    FILE *f = fopen("/proc/stat", "re");

    if (!f)
        return 0;
    while (fgets(line, sizeof(line), f)) {
        unsigned long user, nice, system, irq, softirq, steal;
        unsigned cpu;

        if (sscanf(line, "cpu%u %lu %lu %lu %*u %*u %lu %lu %lu", &cpu, &user, &nice, &system, &irq,
                   &softirq, &steal) != 7)
            continue;
        if (cpu < 64 && (cpus >> cpu & 1))
            ticks += user + nice + system + irq + softirq + steal;
    }
    fclose(f);
    return ticks_to_us(ticks);
}

bool cpu_sample_take(pid_t server, uint64_t cpus, struct cpu_sample *ret_sample)
{
    struct cpu_sample s = {0};
    struct rusage ru;

    if (server > 0 && !processes_us(server, &s.server_us)) {
        fprintf(stderr, "load: process %d is gone\n", (int)server);
        return false;
    }
    getrusage(RUSAGE_SELF, &ru);
    s.client_us = (uint64_t)(ru.ru_utime.tv_sec + ru.ru_stime.tv_sec) * 1000000u +
                  (uint64_t)(ru.ru_utime.tv_usec + ru.ru_stime.tv_usec);
    s.busy_us = cores_busy_us(cpus);
    *ret_sample = s;
    return true;
}
