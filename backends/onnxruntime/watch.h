/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watch - ends runs whose requests have all been cancelled.
 *
 * While a model runs, the thread that runs it is inside ONNX Runtime and cannot ask whether the
 * requests are cancelled. So one thread looks, every WATCH_TICK_MS, at the present runs, and asks
 * for those that it has seen before. A shorter run costs its executor only two atomic operations on
 * memory that no other thread writes. The thread sleeps when nothing has run for a while.
 *
 * Threads: one watched belongs to one executor. All functions but watch_new and watch_free may be
 * called by any thread.
 */
#ifndef BACKENDS_ONNXRUNTIME_WATCH_H
#define BACKENDS_ONNXRUNTIME_WATCH_H

#include "common/batch.h"
#include "onnxruntime/library.h"

struct watch;
struct watched;

TRITONSERVER_Error *watch_new(const struct library *lib, struct watch **ret_watch);
void watch_free(struct watch *w); /* when all watched are gone; NULL is fine */

/*
 * watch_add - the runs of one executor.
 * @options  of those runs; must outlive it
 */
TRITONSERVER_Error *watch_add(struct watch *w, struct ort_run_options *options,
                              struct watched **ret_watched);
void watch_remove(struct watched *d); /* NULL is fine */

/*
 * watch_begin - a run begins.
 * @parts  the requests of that run; they stay until watch_end()
 */
void watch_begin(struct watched *d, const struct batch_part *parts, uint32_t n);

/* watch_end - the run has ended. True: the watch ended it, since all its requests were cancelled.
 */
bool watch_end(struct watched *d);

#endif
