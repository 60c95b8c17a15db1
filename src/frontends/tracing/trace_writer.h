/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes traces to files, on a thread of its own, from a bounded ring. A trace for which there is
 * no room, no memory or no disk is dropped and counted: requests never wait for a file.
 *
 * All settings of a server have the same file. A setting without log frequency and without count
 * writes to it at once. Other settings write to a file FILE.<n>.unfinished, which is renamed to
 * FILE.<k> when it has as many traces as the setting says (reference/behaviours §22.8).
 *
 * Thread: any, unless said otherwise.
 */
#ifndef CONCH_FRONTENDS_TRACING_TRACE_WRITER_H
#define CONCH_FRONTENDS_TRACING_TRACE_WRITER_H

#include <stdbool.h>
#include <stddef.h>

#include "base/compiler.h"
#include "base/list.h"
#include "base/mutex.h"
#include "base/thread.h"
#include "frontends/tracing/traced.h"

struct metric;
struct metric_family;
struct status;
struct trace_file;
struct trace_setting;

enum trace_drop { TRACE_DROP_RING, TRACE_DROP_MEMORY, TRACE_DROP_FILE, N_TRACE_DROPS };

enum { TRACE_RING = 4096 }; /* traces that wait for the writer */

struct trace_writer {
    struct trace_home home;
    char *path;
    struct thread thread;
    struct metric_family *families[2];
    struct metric *n_written, *n_dropped[N_TRACE_DROPS];

    struct mutex mu; /* level 886 in core/README.md */
    struct cond changed;
    /* Under mu. */
    struct list ring; /* of struct traced */
    unsigned int n_ring;
    struct list due; /* of struct trace_setting, each with a reference */
    bool is_ending;

    /* The thread's. */
    struct trace_file *main_file;
    unsigned int next_number;     /* of FILE.<k> */
    unsigned int next_unfinished; /* of FILE.<n>.unfinished */
    bool has_failed;              /* the last trace could not be written */
};

/*
 * trace_writer_start - starts the thread.
 *
 * @path    copied
 * Errors: STATUS_UNAVAILABLE  the system has no room for another thread
 *         STATUS_INVALID_ARG  an embedder has metrics of the same names and another kind
 */
NODISCARD struct status *trace_writer_start(const char *path, struct trace_home **ret);

#endif
