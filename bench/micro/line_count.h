/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counts which cache lines threads write and read, at the loads and stores themselves. The examined
 * code is compiled with -fsanitize=thread, and line_count.c replaces the sanitizer's library. Locks
 * are seen by --wrap=pthread_mutex_lock and …unlock. Accesses of the C library and of plugins are
 * not seen.
 */
#ifndef CONCH_BENCH_LINE_COUNT_H
#define CONCH_BENCH_LINE_COUNT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A line that this thread has touched. */
struct line {
    uintptr_t number;    /* address / 64; 0: empty */
    uint64_t last_write; /* the number of the request, from 1 */
    uint64_t last_read;
    uint64_t n_writes;        /* requests in which it was written */
    uint64_t n_reads;         /* … read */
    uintptr_t writer;         /* the last writer: an address in the code */
    unsigned char first, end; /* the bytes of the line that were written */
};

enum { LINES = 1 << 14 };

struct line_table {
    struct line lines[LINES]; /* by a hash of their numbers */
    uint64_t request;         /* 0: nothing is counted */
};

/* line_count_here - counts this thread's accesses in t; NULL: nowhere. */
void line_count_here(struct line_table *t);

#endif
