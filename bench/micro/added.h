/* SPDX-License-Identifier: Apache-2.0 */
/*
 * added - what a backend adds to its framework, in one process, with our core library and no
 * network. A batch of requests is measured in three ways, in short turns, in CPU time of the
 * process:
 *
 *     backend   the requests made, executed (ModelInstanceExecute, responses, release)
 *     made      the requests made and released, nothing else
 *     bare      the framework's call of the same rows, with memory of the caller
 *
 * The cost of the backend is backend - made - bare. Of a round's turns the one counts that is
 * slower than a tenth of them, and of rounds the median.
 *
 * Under copy_count.so nothing is measured: one batch is executed, and the bytes that the backend
 * copies are counted.
 *
 * Thread: one.
 */
#ifndef CONCH_BENCH_MICRO_ADDED_H
#define CONCH_BENCH_MICRO_ADDED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct model;
struct request;

enum { ADDED_MAX_ROUNDS = 64, ADDED_MAX_REQUESTS = 8 };

struct added {
    struct model *model;
    /* Of request number i of a batch. */
    void (*add_inputs)(struct request *r, int i, int64_t n_rows);
    /* The rows of all requests. */
    void (*run_bare)(void *bare, int64_t n_rows);
    void *bare;
    int n_requests; /* in a batch; 0: one */
    int runs;       /* in a round; 0: 20 000, the most */
    /* Nothing of it runs on other threads. Then a turn is a single run, by the wall clock. */
    bool one_thread;
    size_t bytes; /* of the inputs of a batch, for the copies */
};

/* added_read_rounds - the number of rounds that an argument of the program says. NULL: 5.
 * Returns 0 if it is none. */
int added_read_rounds(const char *text);

/* added_add_floats - an input of the request, FP32 [n_rows, n_columns]. @values  used in place */
void added_add_floats(struct request *r, const char *name, const float *values, int64_t n_rows,
                      int64_t n_columns);

/* added_measure - prints a JSON object, for n_rows in each request. Errors end the program. */
void added_measure(const struct added *a, int64_t n_rows, int n_rounds);

/* added_counts_copies - is copy_count.so loaded? */
int added_counts_copies(void);

/* cpu_us - CPU time of this process, all threads. */
double cpu_us(void);

/* median - of n values, which are sorted. */
double median(double *values, int n);

#endif
