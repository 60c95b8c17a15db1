/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each look reads two files and counts the entries of a directory. There is no state.
 */
#include "core/metrics/process.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { TEXT_BYTES = 1024 };

/* The name of the program stands in brackets, and may have brackets and blanks of its own: the
 * fields are counted from the last bracket. */
bool process_read_stat(const char *text, struct process_stat *ret)
{
    const char *at = strrchr(text, ')');
    unsigned long long n_threads, start, virtual_bytes;
    long long resident;
    if (!at || sscanf(at,
                      ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d "
                      "%llu %*d %llu %llu %lld",
                      &n_threads, &start, &virtual_bytes, &resident) != 4)
        return false;
    *ret = (struct process_stat){.n_threads = n_threads,
                                 .start_ticks = start,
                                 .virtual_bytes = virtual_bytes,
                                 .resident_pages = resident > 0 ? (uint64_t)resident : 0};
    return true;
}

static bool read_stat(struct process_stat *ret)
{
    char text[TEXT_BYTES];
    FILE *f = fopen("/proc/self/stat", "re");
    if (!f)
        return false;
    size_t n = fread(text, 1, sizeof(text) - 1, f);
    fclose(f);
    text[n] = '\0';
    return process_read_stat(text, ret);
}

/* The directory itself is open meanwhile, and is not counted. */
static bool count_fds(uint64_t *ret_n)
{
    DIR *d = opendir("/proc/self/fd");
    uint64_t n = 0;
    if (!d)
        return false;
    for (const struct dirent *e; (e = readdir(d));)
        n += e->d_name[0] != '.';
    closedir(d);
    *ret_n = n - 1;
    return true;
}

static double seconds_of(clockid_t clock)
{
    struct timespec t = {0};
    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

bool process_look(struct process_use *ret)
{
    struct process_stat stat;
    struct rlimit fds = {0};
    struct process_use use = {.cpu_s = seconds_of(CLOCK_PROCESS_CPUTIME_ID)};
    if (!read_stat(&stat) || !count_fds(&use.n_fds) || getrlimit(RLIMIT_NOFILE, &fds) != 0)
        return false;
    double age_s =
        seconds_of(CLOCK_BOOTTIME) - (double)stat.start_ticks / (double)sysconf(_SC_CLK_TCK);
    use.start_s = seconds_of(CLOCK_REALTIME) - age_s;
    use.n_threads = stat.n_threads;
    use.virtual_bytes = stat.virtual_bytes;
    use.resident_bytes = stat.resident_pages * (uint64_t)sysconf(_SC_PAGESIZE);
    use.max_fds = fds.rlim_cur;
    *ret = use;
    return true;
}
