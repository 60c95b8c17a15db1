/* SPDX-License-Identifier: Apache-2.0 */
/* Formats lines for the log, which the C API takes as finished texts. */
#include "program_log.h"

#include <stdarg.h>
#include <stdio.h>

void program_log(TRITONSERVER_LogLevel level, const char *file, int line, const char *fmt, ...)
{
    char text[2048];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    TRITONSERVER_ErrorDelete(TRITONSERVER_LogMessage(level, file, line, text));
}
