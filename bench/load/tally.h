/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the load generators share: the latencies of a phase, counts that another process keeps, and
 * the line of JSON that bench/harness reads. Thread: one.
 */
#ifndef BENCH_LOAD_TALLY_H
#define BENCH_LOAD_TALLY_H

#include <stddef.h>
#include <stdint.h>

#include "procfs.h"

enum { TALLY_MAX_COUNTERS = 16 };

/* A phase: what was answered, and how. */
struct tally {
    uint64_t answered; /* requests */
    uint64_t messages; /* answers to them; one each, but for decoupled models */
    uint64_t failed;   /* with a status that is an error */
    uint64_t mismatched;
    uint64_t reconnects;
    uint32_t *latency; /* in units of 100 ns, which reach to 429 s */
    size_t latency_cap;
};

/* What is measured around a phase. */
struct tally_frame {
    struct cpu_sample from, to;
    uint64_t elapsed_ns;
    int64_t counters[TALLY_MAX_COUNTERS];
    size_t n_counters;
};

/* tally_die - prints the reason and exits with 1. */
void tally_die(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

/* tally_now_ns - monotonic time. */
uint64_t tally_now_ns(void);

/* tally_reset - begins a phase; keeps the memory of latencies. */
void tally_reset(struct tally *t);

/* tally_record - counts an answered request. */
void tally_record(struct tally *t, uint64_t ns);

/*
 * tally_begin, tally_end - read CPU time, clock and counters before and after a phase.
 *
 * @server         0: no process is watched
 * @cpus           bit n: core n is watched
 * @counters_path  an array of 64-bit counts that another process keeps; NULL: none
 */
void tally_begin(struct tally_frame *f, pid_t server, uint64_t cpus, const char *counters_path);
void tally_end(struct tally_frame *f, pid_t server, uint64_t cpus, const char *counters_path);

/* tally_report - prints one line of JSON; sorts the latencies. */
void tally_report(struct tally *t, const struct tally_frame *f, size_t reply_bytes);

#endif
