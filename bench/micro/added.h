/* SPDX-License-Identifier: Apache-2.0 */
/*
 * added - what a backend adds to its framework, in one process, with our core library and no
 * network. A request is measured in three ways in turn, round after round, in CPU time of the
 * process:
 *
 *     backend   the request made, executed (ModelInstanceExecute, response, release)
 *     made      the request made and released, nothing else
 *     bare      the framework's call of the same rows, with memory of the caller
 *
 * The cost of the backend is backend - made - bare, taken within each round; the median counts.
 *
 * Thread: one.
 */
#ifndef CONCH_BENCH_MICRO_ADDED_H
#define CONCH_BENCH_MICRO_ADDED_H

#include <stdint.h>

struct model;
struct request;

struct added {
    struct model *model;
    void (*add_inputs)(struct request *r, int64_t n_rows);
    void (*run_bare)(int64_t n_rows);
};

/* added_read_rounds - the number of rounds that an argument of the program says. NULL: 5.
 * Returns 0 if it is none. */
int added_read_rounds(const char *text);

/* added_add_floats - an input of the request, FP32 [n_rows, n_columns]. @values  used in place */
void added_add_floats(struct request *r, const char *name, const float *values, int64_t n_rows,
                      int64_t n_columns);

/* added_measure - prints a JSON object. Errors end the program. */
void added_measure(const struct added *a, int64_t n_rows, int n_rounds);

#endif
