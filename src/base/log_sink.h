/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the lines of the log go: the two of the console, and the log file. A thread that logs never
 * waits for whoever reads: what a sink does not take at once is queued, in order and up to
 * LOG_QUEUE_BYTES, and written by a thread of the log's as soon as the sink takes more. What does
 * not fit is lost, line by line, and counted; the count is written when there is room again.
 *
 * A sink that takes everything costs one write() per line on the caller's thread, and its lines are
 * there before the call returns. Regular files are written like that in every case, but those of
 * other machines, which may not answer: they get all through the thread.
 *
 * Without log_sinks_start() there is no thread: the caller waits for a sink, up to a second, once.
 */
#ifndef CONCH_BASE_LOG_SINK_H
#define CONCH_BASE_LOG_SINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum log_where { LOG_TO_STDOUT, LOG_TO_STDERR, LOG_TO_FILE, LOG_SINKS };

enum { LOG_QUEUE_BYTES = 1 << 20 }; /* of each sink */

/*
 * log_sinks_start, log_sinks_stop - lines are queued from now on, by as many users as there are;
 * the last one to stop waits until all is written, up to a second. Where the system has no room for
 * a thread, all stays as it is without. Thread: any, without locks.
 */
void log_sinks_start(void);
void log_sinks_stop(void);

/*
 * log_sink_put - bytes that end with a line's end. Calls of several threads are not mixed. errno
 * stays as it is. Thread: any, under any lock; takes log_sinks.mu.
 */
void log_sink_put(enum log_where where, const char *bytes, size_t length);

/*
 * log_sink_put_patiently - the same for text of many lines that may be larger than the queue: waits
 * for room, up to a second without any. Thread: one that may wait, without locks.
 */
void log_sink_put_patiently(enum log_where where, const char *bytes, size_t length);

/* log_sink_set_file - the file of LOG_TO_FILE, taken; -1: none. Thread: any. */
void log_sink_set_file(int fd);

/*
 * log_await - waits until nothing is queued; false: it still is after timeout_ms. Touches no lock.
 * Thread: any; signal handlers too, of a crash as well.
 */
bool log_await(uint64_t timeout_ms);

/* log_put_lost - log.c's: the line that says how many are lost, without a zero byte; its length. */
enum { LOG_LOST_BYTES = 320 };
size_t log_put_lost(char to[LOG_LOST_BYTES], unsigned long n_lost);

#endif
