/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The log. Each message is one line and one write(). INFO and verbose lines go to stdout, WARNING
 * and ERROR lines to stderr; with a log file, all of them go to the file. Two formats are the
 * reference's (reference/features §10): default "I1120 15:04:05.123456 4711 file.c:12] "text"" and
 * ISO8601. In the third each line is a JSON object, and all lines go to stdout or to the file. On a
 * terminal, lines of WARNING and ERROR begin in colour, unless NO_COLOR is set. The message is
 * escaped like a JSON string and quoted, without loss, so that no content can forge a line
 * (TRITON_SERVER_ESCAPE_LOG_MESSAGES=0 turns that off). Settings may change at run time.
 *
 * A message that repeats within a second (same file and line, same text) is written once. The
 * number of its repeats is written before the next different message, with the first repeat after
 * more than a second, or by log_flush(), whichever comes first.
 *
 * Logging never fails, and does not wait for the reader of the log (log_sink.h). A line that the
 * system does not accept (disk full, a pipe that nobody reads) is lost. The number of lost lines is
 * written as soon as the system accepts one again.
 */
#ifndef CONCH_BASE_LOG_H
#define CONCH_BASE_LOG_H

#include <stdbool.h>
#include <stddef.h>

#include "base/compiler.h"

/* The values are those of TRITONSERVER_LogLevel. */
enum log_level { LOG_INFO, LOG_WARN, LOG_ERROR, LOG_VERBOSE };
enum log_format { LOG_FORMAT_DEFAULT, LOG_FORMAT_ISO8601, LOG_FORMAT_JSON, LOG_FORMATS };

struct log_settings {
    bool info, warning, error;
    int verbose_level; /* 0 = none */
    enum log_format format;
};

/*
 * log_start, log_stop - between them a thread that logs does not wait for the reader (log_sink.h).
 * Calls are counted: the effect lasts until log_stop() was called as often as log_start(). Without
 * it a line may wait for up to a second.
 *
 * Thread: any, without locks.
 */
void log_start(void);
void log_stop(void);

/* log_get_settings, log_set_settings - Thread: any. Take no lock. */
void log_get_settings(struct log_settings *ret_settings);
void log_set_settings(const struct log_settings *settings);

/*
 * log_replace_settings - sets the settings if they are still what `was` says. False: another thread
 * has changed them meanwhile. For callers that change some of them. Thread: any.
 */
NODISCARD bool log_replace_settings(const struct log_settings *was,
                                    const struct log_settings *settings);

/*
 * log_open_file - sends all further lines to that file. The file is appended to. The same path is
 * opened anew, for use after a rotation. NULL or "" returns to the console. On error nothing
 * changes.
 *
 * Thread: any.
 * Errors: as open() has them, with the path
 */
NODISCARD struct status *log_open_file(const char *path);

/*
 * log_get_file - the path of the log file, cut to the room; "" when there is none. Does not wait
 * for a line that is being logged. Thread: any.
 */
void log_get_file(char *ret_path, size_t room_bytes);

/*
 * log_flush - writes the pending number of repeats. The loops' timers call it each second while
 * there are connections, and so does the end of the process. Thread: any.
 */
void log_flush(void);

struct clock;
/* log_set_clock - the clock by which repeats are counted; for tests. */
void log_set_clock(struct clock *clock);

/* log_is_on - whether the level is logged. @verbosity  for LOG_VERBOSE: the level */
bool log_is_on(enum log_level level, int verbosity);

/*
 * log_write - writes one message, even when its level is off. The macros below test the level and
 * fill in file and line. Thread: any, under any lock.
 */
void log_write(enum log_level level, const char *file, int line, const char *fmt, ...)
    PRINTF_LIKE(4, 5);

/* log_text - the same for a finished text, such as the message of a backend. */
void log_text(enum log_level level, const char *file, int line, const char *text);

/*
 * log_print - writes a line as it is, without time, file and line; as JSON, without file and line.
 * It goes to the console even when there is a log file.
 */
void log_print(enum log_level level, const char *line);

/*
 * log_columns - the width of the terminal that shows messages of that level; 0: no terminal does,
 * or its width is not known. Thread: any.
 */
size_t log_columns(enum log_level level);

/*
 * log_show - shows a text in place, below the log, on the terminal that shows messages of level
 * INFO. The next text replaces it, and the next line of the log removes it; NULL removes it. It is
 * cut to the terminal's width. Thread: any. Returns false, and does nothing, if no terminal does.
 */
bool log_show(const char *text);

/* log_table - writes an empty message, and below it a text of several lines, unescaped; as JSON,
 * the text is the message. */
void log_table(enum log_level level, const char *file, int line, const char *table);

#define LOG_AT(level, verbosity, ...)                                                              \
    do {                                                                                           \
        if (log_is_on(level, verbosity))                                                           \
            log_write(level, __FILE__, __LINE__, __VA_ARGS__);                                     \
    } while (0)

#define log_info(...)           LOG_AT(LOG_INFO, 0, __VA_ARGS__)
#define log_warn(...)           LOG_AT(LOG_WARN, 0, __VA_ARGS__)
#define log_error(...)          LOG_AT(LOG_ERROR, 0, __VA_ARGS__)
#define log_verbose(level, ...) LOG_AT(LOG_VERBOSE, level, __VA_ARGS__)

/* log_status - logs "<what>: <Code>: <message>" and frees the status. NULL logs nothing. */
#define log_status(level, what, st) log_status_at(level, __FILE__, __LINE__, what, st)
void log_status_at(enum log_level level, const char *file, int line, const char *what,
                   struct status *st);

#endif
