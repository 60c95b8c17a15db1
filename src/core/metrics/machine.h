/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How busy the machine's processors are, and its memory: what Linux says in /proc, for all
 * processes together.
 *
 * Nobody polls: whoever asks makes a look, unless the last one was a moment ago. The processors'
 * share of time is that between two looks, so between two scrapes nothing is missed.
 *
 * Source: reference/features §5 rows 32-34; --metrics-interval-ms
 */
#ifndef CONCH_CORE_METRICS_MACHINE_H
#define CONCH_CORE_METRICS_MACHINE_H

#include <stdbool.h>
#include <stdint.h>

struct machine;

struct machine_use {
    double utilization; /* 0 to 1; 0 until there was a second look */
    uint64_t memory_bytes, memory_used_bytes;
};

/*
 * machine_new - makes the first look.
 *
 * @interval_ms  looks are no nearer than half of this, which is how often the reference looks
 */
struct machine *machine_new(uint64_t interval_ms, uint64_t now_ns);
void machine_free(struct machine *m);

/* machine_look - Thread: any. */
struct machine_use machine_look(struct machine *m, uint64_t now_ns);

/* ---- What the two files say; for tests ------------------------------------------------------ */

struct machine_time {
    uint64_t busy, idle; /* ticks since the start */
};

/* machine_read_stat, machine_read_meminfo - false: that is not such a text. */
bool machine_read_stat(const char *text, struct machine_time *ret);
bool machine_read_meminfo(const char *text, struct machine_use *ret);

#endif
