/* SPDX-License-Identifier: Apache-2.0 */
/*
 * First the parsers of /proc/stat and /proc/meminfo, which are independent of the system and tested
 * with texts; then the looks, under machine.mu. A look is reused for half of --metrics-interval-ms.
 */
#include "core/metrics/machine.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/mutex.h"

enum {
    MACHINE_LEVEL = 845,
    TEXT_BYTES = 8192, /* of /proc/meminfo 1.5 kB are in use; of /proc/stat the first line counts */
};

struct machine {
    uint64_t apart_ns; /* constant: between two looks */

    struct mutex mu; /* level 845 in core/README.md */
    /* Under mu. */
    uint64_t looked_ns;
    struct machine_time time;
    struct machine_use use;
    bool logged; /* that the value is unavailable */
};

/* ---- /proc ---------------------------------------------------------------------------------- */

bool machine_read_stat(const char *text, struct machine_time *ret)
{
    uint64_t user, nice, system, idle, iowait, irq, softirq, steal;
    if (strncmp(text, "cpu ", 4) != 0 || /* of all CPUs, not of "cpu0" */
        sscanf(text,
               "cpu %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64
               " %" SCNu64 " %" SCNu64,
               &user, &nice, &system, &idle, &iowait, &irq, &softirq, &steal) != 8)
        return false;
    ret->busy = user + nice + system + irq + softirq + steal;
    ret->idle = idle + iowait;
    return true;
}

/* Returns the number of kB behind the name at the beginning of a line. */
static bool find_kb(const char *text, const char *name, uint64_t *ret_bytes)
{
    size_t length = strlen(name);
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        uint64_t kb;
        if (strncmp(line, name, length) == 0 && sscanf(line + length, "%" SCNu64 " kB", &kb) == 1)
            return !__builtin_mul_overflow(kb, 1024, ret_bytes);
    }
    return false;
}

bool machine_read_meminfo(const char *text, struct machine_use *ret)
{
    uint64_t total, available;
    if (!find_kb(text, "MemTotal:", &total) || !find_kb(text, "MemAvailable:", &available) ||
        available > total)
        return false;
    ret->memory_bytes = total;
    ret->memory_used_bytes = total - available;
    return true;
}

/* The kernel makes these texts when they are read: one read() gives one moment. */
static bool read_proc_file(const char *path, char text[TEXT_BYTES])
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t n;
    do {
        n = read(fd, text, TEXT_BYTES - 1);
    } while (n < 0 && errno == EINTR);
    close(fd);
    text[MAX(n, (ssize_t)0)] = '\0';
    return n > 0;
}

/* ---- Looks ---------------------------------------------------------------------------------- */

static void count_time(struct machine *m, const struct machine_time *now)
{
    /* Some of these counters may decrease a little, which counts as no time. */
    uint64_t busy = now->busy - MIN(m->time.busy, now->busy);
    uint64_t idle = now->idle - MIN(m->time.idle, now->idle);
    if (busy + idle)
        m->use.utilization = (double)busy / (double)(busy + idle);
    m->time = *now;
}

static void read_machine_locked(struct machine *m, uint64_t now_ns)
{
    char text[TEXT_BYTES];
    struct machine_time now;
    bool first = m->looked_ns == 0;
    bool fine = read_proc_file("/proc/stat", text) && machine_read_stat(text, &now);
    if (fine && first)
        m->time = now;
    else if (fine)
        count_time(m, &now);
    fine = read_proc_file("/proc/meminfo", text) && machine_read_meminfo(text, &m->use) && fine;
    if (!fine && !m->logged)
        log_warn("metrics of processors and memory are not complete: /proc/stat or /proc/meminfo "
                 "cannot be read");
    m->logged |= !fine;
    m->looked_ns = now_ns;
}

struct machine *machine_new(uint64_t interval_ms, uint64_t now_ns)
{
    struct machine *m = mem_zalloc(sizeof(*m));
    m->apart_ns = MIN(interval_ms, (uint64_t)INT32_MAX) * NS_PER_MS / 2;
    mutex_init(&m->mu, MACHINE_LEVEL, "machine.mu");
    mutex_lock(&m->mu);
    read_machine_locked(m, now_ns);
    mutex_unlock(&m->mu);
    return m;
}

void machine_free(struct machine *m)
{
    if (!m)
        return;
    mutex_done(&m->mu);
    mem_free(m);
}

struct machine_use machine_look(struct machine *m, uint64_t now_ns)
{
    mutex_lock(&m->mu);
    if (now_ns - m->looked_ns >= m->apart_ns)
        read_machine_locked(m, now_ns);
    struct machine_use use = m->use;
    mutex_unlock(&m->mu);
    return use;
}
