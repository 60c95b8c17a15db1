/* SPDX-License-Identifier: Apache-2.0 */
#include "tally.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

void tally_die(const char *format, ...)
{
    va_list ap;

    fputs("load: ", stderr);
    va_start(ap, format);
    vfprintf(stderr, format, ap);
    va_end(ap);
    fputc('\n', stderr);
    exit(1);
}

uint64_t tally_now_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

void tally_reset(struct tally *t)
{
    t->answered = t->messages = t->failed = t->mismatched = t->reconnects = 0;
}

void tally_record(struct tally *t, uint64_t ns)
{
    if (t->answered == t->latency_cap) {
        t->latency_cap = t->latency_cap ? t->latency_cap * 2 : 1 << 20;
        t->latency = realloc(t->latency, t->latency_cap * sizeof(*t->latency));
        if (!t->latency)
            tally_die("out of memory");
    }
    t->latency[t->answered++] = (uint32_t)(ns / 100);
}

/* Adds sign * the counts in the file, all of them up to TALLY_MAX_COUNTERS. */
static size_t add_counters(const char *path, int sign, int64_t counters[TALLY_MAX_COUNTERS])
{
    uint64_t now[TALLY_MAX_COUNTERS];
    size_t n;
    FILE *f;

    if (!path)
        return 0;
    f = fopen(path, "re");
    if (!f)
        tally_die("%s: %s", path, strerror(errno));
    n = fread(now, sizeof(now[0]), TALLY_MAX_COUNTERS, f);
    fclose(f);
    for (size_t i = 0; i < n; i++)
        counters[i] += sign * (int64_t)now[i];
    return n;
}

void tally_begin(struct tally_frame *f, pid_t server, uint64_t cpus, const char *counters_path)
{
    memset(f, 0, sizeof(*f));
    if (!cpu_sample_take(server, cpus, &f->from))
        exit(1);
    add_counters(counters_path, -1, f->counters);
    f->elapsed_ns = tally_now_ns();
}

void tally_end(struct tally_frame *f, pid_t server, uint64_t cpus, const char *counters_path)
{
    f->elapsed_ns = tally_now_ns() - f->elapsed_ns;
    if (!cpu_sample_take(server, cpus, &f->to))
        exit(1);
    f->n_counters = add_counters(counters_path, 1, f->counters);
}

static int compare_latencies(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return x < y ? -1 : x > y;
}

static double percentile_us(const struct tally *t, double p)
{
    if (t->answered == 0)
        return 0;
    return t->latency[(size_t)(p * (double)(t->answered - 1) + 0.5)] / 10.0;
}

void tally_report(struct tally *t, const struct tally_frame *f, size_t reply_bytes)
{
    qsort(t->latency, t->answered, sizeof(*t->latency), compare_latencies);
    printf("{\"requests\": %llu, \"messages\": %llu, \"elapsed_s\": %.6f, \"p50_us\": %.1f, "
           "\"p99_us\": %.1f, \"max_us\": %.1f, \"non_2xx\": %llu, \"mismatched\": %llu, "
           "\"reconnects\": %llu, \"reply_bytes\": %zu, \"server_us\": %llu, \"client_us\": %llu, "
           "\"busy_us\": %llu, \"counters\": [",
           (unsigned long long)t->answered, (unsigned long long)t->messages,
           (double)f->elapsed_ns / 1e9, percentile_us(t, 0.5), percentile_us(t, 0.99),
           percentile_us(t, 1.0), (unsigned long long)t->failed, (unsigned long long)t->mismatched,
           (unsigned long long)t->reconnects, reply_bytes,
           (unsigned long long)(f->to.server_us - f->from.server_us),
           (unsigned long long)(f->to.client_us - f->from.client_us),
           (unsigned long long)(f->to.busy_us - f->from.busy_us));
    for (size_t i = 0; i < f->n_counters; i++)
        printf("%s%lld", i ? ", " : "", (long long)f->counters[i]);
    printf("]}\n");
}
