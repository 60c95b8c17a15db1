/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The same function for many indices, on several threads: each thread takes the next index when it
 * has done one.
 *
 *     parallel_for(&(struct parallel_options){"check", 8, NULL}, n, check_model, run);
 *
 * Work that only waits may lend its thread's share: another thread comes for as long as that lasts.
 */
#ifndef CONCH_BASE_PARALLEL_FOR_H
#define CONCH_BASE_PARALLEL_FOR_H

#include <stddef.h>

enum { PARALLEL_MAX_THREADS = 64, PARALLEL_MAX_LENT = 192 };

struct parallel_options {
    const char *thread_name;
    size_t max_threads;   /* the calling one included; at most PARALLEL_MAX_THREADS are used */
    const char *shortage; /* is logged when the system has no room for a thread; NULL: nothing is */
};

/*
 * parallel_for - calls work(arg, 0) … work(arg, n - 1), on this thread and on others, and returns
 * when all have returned. When threads cannot be started it takes longer.
 *
 * Thread: any; the others have ended when it returns.
 */
void parallel_for(const struct parallel_options *options, size_t n,
                  void (*work)(void *arg, size_t i), void *arg);

/* A thread of a parallel_for(), as long as its work(arg, i) runs. */
struct parallel_worker;

/* parallel_worker_mine - inside work(): this thread. */
struct parallel_worker *parallel_worker_mine(void);

/*
 * parallel_worker_lend - the worker's work only waits from now on: one more thread may work.
 * parallel_worker_take_back ends that; once for each lend, before work() returns. Thread: any.
 */
void parallel_worker_lend(struct parallel_worker *w);
void parallel_worker_take_back(struct parallel_worker *w);

#endif
