/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The three sinks that log lines go to: stdout, stderr and the log file. A thread that logs never
 * waits for a reader. What a sink does not accept at once is queued, in order and up to
 * LOG_QUEUE_BYTES; the log's own thread writes it as soon as the sink accepts more. Lines that do
 * not fit into the queue are lost and counted. The count is written when there is room again.
 *
 * While a sink accepts everything, each line costs one write() on the caller's thread, and is
 * written before the call returns. Regular files are always written like that. The exception are
 * files on other machines, which may not answer: only the thread writes those.
 *
 * Without log_sinks_start() there is no thread. A caller then waits for a sink, for up to a second,
 * and does so once.
 */
#ifndef CONCH_BASE_LOG_SINK_H
#define CONCH_BASE_LOG_SINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum log_where { LOG_TO_STDOUT, LOG_TO_STDERR, LOG_TO_FILE, LOG_SINKS };

enum { LOG_QUEUE_BYTES = 1 << 20 }; /* of each sink */

/*
 * log_sinks_start, log_sinks_stop - the first start starts the thread, and lines are queued from
 * then on. The last stop waits until all lines are written, up to a second, and ends the thread.
 * When the system cannot start a thread, logging works as without one. Thread: any, without locks.
 */
void log_sinks_start(void);
void log_sinks_stop(void);

/*
 * log_sink_put - writes or queues bytes that end with a newline. The bytes of one call stay
 * together. errno is preserved. Thread: any, under any lock; takes log_sinks.mu.
 */
void log_sink_put(enum log_where where, const char *bytes, size_t length);

/*
 * log_sink_put_patiently - the same for a text of many lines that may be larger than the queue. It
 * waits for room in the queue, and gives up after a second in which none became free. Thread: one
 * that may wait, without locks.
 */
void log_sink_put_patiently(enum log_where where, const char *bytes, size_t length);

/* log_sink_set_file - sets the file of LOG_TO_FILE; fd is taken. -1: no file. Thread: any. */
void log_sink_set_file(int fd);

/*
 * log_await - waits until nothing is queued; false when something still is after timeout_ms. Takes
 * no lock. Thread: any; signal handlers, too, also after a crash.
 */
bool log_await(uint64_t timeout_ms);

/*
 * log_put_lost - in log.c: prints the line with the number of lost lines; returns its length. No
 * zero byte follows it.
 */
enum { LOG_LOST_BYTES = 400 };
size_t log_put_lost(char to[LOG_LOST_BYTES], unsigned long n_lost);

#endif
