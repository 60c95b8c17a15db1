/* SPDX-License-Identifier: Apache-2.0 */
/*
 * load_rate - how many requests a second models answer on the threads of their instances, against
 * two bare threads that call the framework. There is no client: the thread that has just answered
 * makes the next request. Both sides run in turn, in short samples, and the ratio is that of two
 * neighbours in time, because others may use the machine, too.
 *
 * Thread: one measures at a time.
 */
#ifndef CONCH_BENCH_MICRO_LOAD_RATE_H
#define CONCH_BENCH_MICRO_LOAD_RATE_H

#include <stddef.h>

struct model;
struct request;
struct server;

enum { LOAD_BARE_THREADS = 2, LOAD_MAX_STREAMS = 16 };

struct load {
    struct server *server;
    /* Each of them is sent a request, and again as soon as that is answered; a model may be there
     * several times. At most LOAD_MAX_STREAMS. */
    struct model *const *models;
    size_t n_models;
    void (*add_inputs)(struct request *r);
    /* Call number n of that bare thread. */
    void (*run_bare)(size_t thread, size_t n);
};

/* load_measure - prints a JSON object: served_per_s, bare_per_s, CPU µs and context switches of
 * each, ratio (of requests a second) and cpu_ratio. Errors end the program. */
void load_measure(const struct load *l, int n_rounds);

/* load_measure_pair - the same of one model with two instances, which four requests keep busy. */
void load_measure_pair(struct server *server, struct model *model,
                       void (*add_inputs)(struct request *r),
                       void (*run_bare)(size_t thread, size_t n), int n_rounds);

#endif
