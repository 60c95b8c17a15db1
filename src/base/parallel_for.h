/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls one function for many indices, on several threads. Each thread takes the next index when
 * its call has returned.
 *
 *     parallel_for(&(struct parallel_options){"check", 8, NULL}, n, check_model, run);
 *
 * A call that only waits may lend its thread's share: as long as the loan lasts, one more thread
 * may work.
 */
#ifndef CONCH_BASE_PARALLEL_FOR_H
#define CONCH_BASE_PARALLEL_FOR_H

#include <stddef.h>

enum { PARALLEL_MAX_THREADS = 64, PARALLEL_MAX_LENT = 192 };

struct parallel_options {
    const char *thread_name;
    size_t max_threads;   /* with the calling thread; at most PARALLEL_MAX_THREADS are used */
    const char *shortage; /* logged when a thread cannot be started; NULL: nothing is logged */
};

/*
 * parallel_for - calls work(arg, 0) … work(arg, n - 1), on this thread and on others, and returns
 * when all calls have returned. When threads cannot be started, fewer do the work.
 *
 * Thread: any; the other threads have ended when it returns.
 */
void parallel_for(const struct parallel_options *options, size_t n,
                  void (*work)(void *arg, size_t i), void *arg);

/* A thread of a parallel_for(), valid while its work(arg, i) runs. */
struct parallel_worker;

/* parallel_worker_mine - the worker of the calling thread. Thread: one inside work(). */
struct parallel_worker *parallel_worker_mine(void);

/*
 * parallel_worker_lend - while the worker only waits, one more thread may work.
 * parallel_worker_take_back - ends that; must be called once for each lend, before work() returns.
 * Thread: any.
 */
void parallel_worker_lend(struct parallel_worker *w);
void parallel_worker_take_back(struct parallel_worker *w);

#endif
