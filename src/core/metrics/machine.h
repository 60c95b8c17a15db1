/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The use of the machine's processors and memory by all processes, from Linux' /proc.
 *
 * No thread polls: a caller's look reads /proc, unless the last look was a moment ago. The
 * utilization is that between two looks, so it covers all the time between two scrapes.
 *
 * Source: reference/features §5 rows 32-34; --metrics-interval-ms
 */
#ifndef CONCH_CORE_METRICS_MACHINE_H
#define CONCH_CORE_METRICS_MACHINE_H

#include <stdbool.h>
#include <stdint.h>

struct machine;

struct machine_use {
    double utilization; /* 0 to 1; 0 before the second look */
    uint64_t memory_bytes, memory_used_bytes;
};

/*
 * machine_new - makes the first look.
 *
 * @interval_ms  the reference's interval; two looks are at least half of it apart
 */
struct machine *machine_new(uint64_t interval_ms, uint64_t now_ns);
void machine_free(struct machine *m);

/* machine_look - the use at the last look, or at a new one. Thread: any. */
struct machine_use machine_look(struct machine *m, uint64_t now_ns);

/* ---- The parsers of the two files; for tests ------------------------------------------------ */

struct machine_time {
    uint64_t busy, idle; /* ticks since the start */
};

/* machine_read_stat, machine_read_meminfo - false: the text has another format. */
bool machine_read_stat(const char *text, struct machine_time *ret);
bool machine_read_meminfo(const char *text, struct machine_use *ret);

#endif
