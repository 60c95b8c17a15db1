/* SPDX-License-Identifier: Apache-2.0 */
/*
 * large - what the programs about backends of frameworks measure besides small requests, with two
 * models of one input and one output, FP32:
 *
 *     image     [-1,150528]; a row is 602 kB. Alone, and eight requests as a batch (added.h)
 *     pair      [32,n], two instances (load_rate.h)
 *
 * Thread: one.
 */
#ifndef CONCH_BENCH_MICRO_LARGE_H
#define CONCH_BENCH_MICRO_LARGE_H

#include <stdint.h>

#include "micro/load_rate.h"

enum { LARGE_PIXELS = 3 * 224 * 224, LARGE_BATCH = 8, LARGE_PAIR_ROWS = 32 };
enum { LARGE_MAX_COLUMNS = 512 };

struct large {
    struct server *server;
    const char *repository;
    const char *input;    /* its name, of both models */
    int64_t pair_columns; /* at most LARGE_MAX_COLUMNS */
    /* Makes what run_bare() gets: a call of the model with values[n_rows, n_columns]. Called for
     * one row of `image`, for eight, and for each thread of `pair`. */
    void *(*make_bare)(const char *repository, const char *model, float *values, int64_t n_rows,
                       int64_t n_columns);
    void (*run_bare)(void *bare, int64_t n_rows);
};

/* large_measure - prints members of a JSON object, with a comma before each: image, batch, and,
 * unless copies are counted, pair. Errors end the program. */
void large_measure(const struct large *l, int n_rounds);

#endif
