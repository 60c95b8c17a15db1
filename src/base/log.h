/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The log. One line per message, one write() per line; INFO and verbose go to stdout, WARNING and
 * ERROR to stderr, all of it to the file when there is one. Formats as the reference's
 * (reference/features §10): default "I1120 15:04:05.123456 4711 file.c:12] "text"" and ISO8601. The
 * message is escaped like a JSON string and quoted, without loss, so that no content can forge a
 * line (TRITON_SERVER_ESCAPE_LOG_MESSAGES=0 turns that off). Settings may change at run time.
 *
 * A message that repeats (same file and line, same text) within a second is written once. How often
 * it came again follows before the next different message, with the first repeat that is more than
 * a second late, or with log_flush(), whatever comes first.
 *
 * Logging never fails, and does not wait for whoever reads (log_sink.h). A line that the system
 * does not take (disk full, a pipe that nobody reads) is lost, and the number of lost lines follows
 * when it takes one again.
 */
#ifndef CONCH_BASE_LOG_H
#define CONCH_BASE_LOG_H

#include <stdbool.h>

#include "base/compiler.h"

/* The values are those of TRITONSERVER_LogLevel. */
enum log_level { LOG_INFO, LOG_WARN, LOG_ERROR, LOG_VERBOSE };
enum log_format { LOG_FORMAT_DEFAULT, LOG_FORMAT_ISO8601 };

struct log_settings {
    bool info, warning, error;
    int verbose_level; /* 0 = none */
    enum log_format format;
};

/*
 * log_start, log_stop - from now on nobody who logs waits for a reader (log_sink.h); until as many
 * users as there were have stopped. Until then, and afterwards, a line may wait for up to a second.
 *
 * Thread: any, without locks.
 */
void log_start(void);
void log_stop(void);

/* log_get_settings, log_set_settings - Thread: any. */
void log_get_settings(struct log_settings *ret_settings);
void log_set_settings(const struct log_settings *settings);

/*
 * log_open_file - from now on all goes to that file (appended; opened anew even if it is the same
 * path, after a rotation). NULL or "" returns to the console. On error nothing changes.
 *
 * Thread: any.
 * Errors: as open() has them, with the path
 */
NODISCARD struct status *log_open_file(const char *path);

/* log_flush - writes the number of repeats held back. Called by the loops' timers each second while
 * there are connections, and at the end of the process. Thread: any. */
void log_flush(void);

struct clock;
/* log_set_clock - the time by which repeats are counted; for tests. */
void log_set_clock(struct clock *clock);

/* log_is_on - the macros ask before they evaluate their arguments. @verbosity for LOG_VERBOSE */
bool log_is_on(enum log_level level, int verbosity);

/*
 * log_write - one message, whether its level is on or not; the macros below ask, and fill in file
 * and line. Thread: any, under any lock.
 */
void log_write(enum log_level level, const char *file, int line, const char *fmt, ...)
    PRINTF_LIKE(4, 5);

/* log_text - the same for text that is ready, such as a backend's. */
void log_text(enum log_level level, const char *file, int line, const char *text);

/* log_print - a line as it is, without time, file and line, on the console even if there is a file.
 */
void log_print(enum log_level level, const char *line);

/* log_table - a heading message followed by text that stands on lines of its own, unescaped. */
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

/* log_status - an error ends its life here: "<what>: <Code>: <message>", freed. NULL logs nothing.
 */
#define log_status(level, what, st) log_status_at(level, __FILE__, __LINE__, what, st)
void log_status_at(enum log_level level, const char *file, int line, const char *what,
                   struct status *st);

#endif
