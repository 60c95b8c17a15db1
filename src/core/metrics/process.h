/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the server's process uses, from Linux' /proc: the metrics process_…, whose names all
 * exporters of Prometheus share.
 */
#ifndef CONCH_CORE_METRICS_PROCESS_H
#define CONCH_CORE_METRICS_PROCESS_H

#include <stdbool.h>
#include <stdint.h>

struct process_use {
    double cpu_s;   /* of all threads, in the kernel and outside */
    double start_s; /* when it began, since the epoch */
    uint64_t resident_bytes, virtual_bytes;
    uint64_t n_threads;
    uint64_t n_fds, max_fds; /* open descriptors, and how many there may be */
};

/* process_look - false: /proc cannot be read, or has another format. Thread: any. */
bool process_look(struct process_use *ret);

/* The parser of /proc/self/stat; for tests. */
struct process_stat {
    uint64_t n_threads, start_ticks, virtual_bytes, resident_pages;
};

/* process_read_stat - false: the text has another format. */
bool process_read_stat(const char *text, struct process_stat *ret);

#endif
