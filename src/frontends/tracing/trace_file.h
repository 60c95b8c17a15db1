/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file with traces: a JSON list. After each trace that is committed the file is complete, so that
 * it can be read while the server runs and after it was killed. A trace that cannot be written
 * (disk full) leaves the file as it was.
 *
 * Thread: one at a time.
 */
#ifndef CONCH_FRONTENDS_TRACING_TRACE_FILE_H
#define CONCH_FRONTENDS_TRACING_TRACE_FILE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/compiler.h"

struct status;

struct trace_file {
    int fd;
    char *path;
    int64_t end;     /* of the last trace; the closing bracket is there */
    int64_t written; /* how far the present trace is written */
    struct buf text; /* of it, not written yet */
    int error;       /* errno of a write of it; 0: none */
};

/*
 * trace_file_open - makes the file, or empties it.
 *
 * Errors: as open() has them, with the path
 */
NODISCARD struct status *trace_file_open(const char *path, struct trace_file **ret);

/* trace_file_begin - begins a trace, or a part of one; returns where its text goes. */
struct buf *trace_file_begin(struct trace_file *f);

/* trace_file_flush - call it from time to time within a long text: writes what there is of it. */
void trace_file_flush(struct trace_file *f);

/*
 * trace_file_commit - ends the trace.
 *
 * Errors: as write() has them, with the path: the file does not have the trace
 */
NODISCARD struct status *trace_file_commit(struct trace_file *f);

/*
 * trace_file_append - copies all traces of another file to the end of this one.
 *
 * Errors: as read() and write() have them, with a path
 */
NODISCARD struct status *trace_file_append(struct trace_file *f, const struct trace_file *other);

/* trace_file_close - NULL is fine. */
void trace_file_close(struct trace_file *f);

#endif
