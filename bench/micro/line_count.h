/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which cache lines threads write and read, counted at the loads and stores themselves: the code
 * that is looked at is compiled with -fsanitize=thread, and line_count.c is what it calls in place
 * of the sanitizer's library. Locks are seen by --wrap=pthread_mutex_lock and …unlock; what the C
 * library and plugins do by themselves is not.
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
    uintptr_t writer;         /* who wrote there last: an address in the code */
    unsigned char first, end; /* the bytes of the line that were written */
};

enum { LINES = 1 << 14 };

struct line_table {
    struct line lines[LINES]; /* by a hash of their numbers */
    uint64_t request;         /* 0: nothing is counted */
};

/* line_count_here - what this thread touches goes there; NULL: nowhere. */
void line_count_here(struct line_table *t);

#endif
