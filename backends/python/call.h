/* SPDX-License-Identifier: Apache-2.0 */
/*
 * call - requests of a model to other models: inputs stay in the child's memory while the other
 * model reads them, and outputs are allocated in the memory that the child reads.
 *
 * A call has two ends: the server releases its request, and its final response comes. It is over
 * when both have come. When the child ends, its calls are cancelled.
 *
 * Threads: call_start(), call_cancel() the child's reader; calls_cancel() the watcher; responses
 * come on any thread.
 */
#ifndef BACKENDS_PYTHON_CALL_H
#define BACKENDS_PYTHON_CALL_H

#include "python/child.h"

/* calls_open, calls_close - before the first child, and after the last call. Errors: UNAVAILABLE no
 * memory */
TRITONSERVER_Error *calls_open(void);
void calls_close(void);

/* The calls of a child. NULL without memory. */
struct calls *calls_new(void);
void calls_free(struct calls *all);

/* call_start - NOTE_CALL. Gives the message back, now or when the call is over. False: the message
 * is impossible. */
bool call_start(struct child *c, uint64_t id, struct unpacker *u, uint64_t message);

/* call_cancel - NOTE_CALL_CANCEL. */
void call_cancel(struct child *c, uint64_t id);

/* calls_cancel - cancels all calls of a child that has ended. */
void calls_cancel(struct child *c);

#endif
