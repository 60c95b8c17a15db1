/* SPDX-License-Identifier: Apache-2.0 */
/* The records of a trace as the reference's files have them (reference/behaviours §22.6, §22.7). */
#ifndef CONCH_FRONTENDS_TRACING_TRACE_PRINT_H
#define CONCH_FRONTENDS_TRACING_TRACE_PRINT_H

#include <stdbool.h>

struct trace_file;
struct traced;

/*
 * trace_print - prints the trace into the file, between trace_file_begin() and _commit(). False:
 * the trace has no record, and the file nothing to commit.
 */
bool trace_print(const struct traced *t, struct trace_file *f);

#endif
