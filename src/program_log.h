/* SPDX-License-Identifier: Apache-2.0 */
/* The program's own lines in the log of the server. Thread: any. */
#ifndef CONCH_PROGRAM_LOG_H
#define CONCH_PROGRAM_LOG_H

#include "base/compiler.h"
#include "triton/core/tritonserver.h"

/* program_log - logs a line, cut to 2 KiB. The macros fill in level, file and line. */
void program_log(TRITONSERVER_LogLevel level, const char *file, int line, const char *fmt, ...)
    PRINTF_LIKE(4, 5);

#define log_verbose(...) program_log(TRITONSERVER_LOG_VERBOSE, __FILE__, __LINE__, __VA_ARGS__)
#define log_info(...)    program_log(TRITONSERVER_LOG_INFO, __FILE__, __LINE__, __VA_ARGS__)
#define log_warn(...)    program_log(TRITONSERVER_LOG_WARN, __FILE__, __LINE__, __VA_ARGS__)
#define log_error(...)   program_log(TRITONSERVER_LOG_ERROR, __FILE__, __LINE__, __VA_ARGS__)

#endif
