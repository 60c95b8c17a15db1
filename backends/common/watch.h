/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watch - ends runs whose requests have all been cancelled.
 *
 * While a model runs, the thread that runs it is inside a framework and cannot ask whether the
 * requests are cancelled. So one thread looks, every WATCH_TICK_MS, at the present runs, and asks
 * for those that it has seen before. A shorter run costs its executor only two atomic operations on
 * memory that no other thread writes. The thread sleeps when nothing has run for a while.
 *
 * Threads: one watched belongs to one executor. All functions but watch_new and watch_free may be
 * called by any thread.
 */
#ifndef BACKENDS_COMMON_WATCH_H
#define BACKENDS_COMMON_WATCH_H

#include "common/batch.h"

#ifdef __cplusplus
extern "C" {
#endif

struct watch;
struct watched;

/* How a framework ends a run. */
struct watch_action {
    /* Ask for the end of the run that is in progress. The watch calls it. */
    TRITONSERVER_Error *(*end)(void *run);
    /* Make runs possible again, after one that was ended. The runner calls it. Optional. */
    TRITONSERVER_Error *(*allow)(void *run);
};

/* watch_new - starts the thread. Errors: INTERNAL, UNAVAILABLE  no memory, no thread */
TRITONSERVER_Error *watch_new(struct watch **ret_watch);
void watch_free(struct watch *w); /* when all watched are gone; NULL is fine */

/*
 * watch_add - the runs of one executor.
 * @action, run  how they end; both must outlive it
 * @least_ms     how long a run has lasted, by the ticks, before it is ended; what its end costs
 */
TRITONSERVER_Error *watch_add(struct watch *w, const struct watch_action *action, void *run,
                              uint64_t least_ms, struct watched **ret_watched);
void watch_remove(struct watched *d); /* NULL is fine */

/*
 * watch_begin - a run begins.
 * @parts  the requests of that run; they stay until watch_end()
 */
void watch_begin(struct watched *d, const struct batch_part *parts, uint32_t n);

/* watch_end - the run has ended. True: the watch ended it, since all its requests were cancelled.
 */
bool watch_end(struct watched *d);

#ifdef __cplusplus
}
#endif

#endif
