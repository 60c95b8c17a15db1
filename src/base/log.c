/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN: a line is put together on the stack, then given to its sink (log_sink.h) under one mutex.
 * So lines keep their order, and the last message is remembered. The test whether a level is on is
 * one relaxed load. Readers of the settings and of the file's path, such as event loops, never wait
 * for the mutex, whose holder may wait for the log's reader.
 */
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log_sink.h"
#include "base/mem.h"
#include "base/mutex.h"
#include "base/status.h"
#include "base/utf8.h"

enum {
    LOG_LEVEL = 1000,     /* of log.mu: below all others */
    PATH_LEVEL = 1001,    /* of log_path.mu, a leaf */
    USUAL_BYTES = 1024,   /* longer messages take memory from the system */
    MAX_BYTES = 32 << 10, /* of a message; longer ones are cut, with their length */
    FILE_BYTES = 128,     /* of a file name; longer ones are cut */
    PREFIX_BYTES = 320,   /* time, process, file:line; and what ends a line */
    ESCAPED_BYTES = 6,    /* of one byte, at most */
    LINE_BYTES = USUAL_BYTES * ESCAPED_BYTES + PREFIX_BYTES,
};

struct log_origin {
    enum log_level level;
    const char *file; /* its base name */
    int line;
};

static struct log_origin origin_of_message(enum log_level level, const char *file, int line)
{
    const char *slash = strrchr(file, '/');
    return (struct log_origin){level, slash ? slash + 1 : file, line};
}

/*
 * All settings in one word, so that a snapshot of them needs no lock: bits by enum log_level, the
 * format from FORMAT_SHIFT on, the verbose level from VERBOSE_SHIFT on. Any thread, relaxed: a late
 * change is harmless.
 */
enum { FORMAT_SHIFT = 8, FORMAT_MASK = 3, VERBOSE_SHIFT = 32 };
static _Atomic uint64_t settings_in_use = 1u << LOG_INFO | 1u << LOG_WARN | 1u << LOG_ERROR;

static struct {
    struct mutex mu;
    /* Under mu. */
    struct clock *clock;       /* NULL = the real one */
    bool has_file;             /* otherwise it goes to the console */
    enum log_level last_level; /* of the last message, if it is short enough to be remembered */
    char last_file[FILE_BYTES];
    int last_line;
    char last_text[USUAL_BYTES];
    bool has_last;
    uint64_t last_written_ns;
    unsigned long n_repeats; /* of it, not logged yet */
} log_state = {
    .mu = {.mu = PTHREAD_MUTEX_INITIALIZER, .level = LOG_LEVEL, .name = "log.mu"},
};

/* The path of the file, for readers that do not wait for a line; "" without a file. */
static struct {
    struct mutex mu;
    char text[PATH_MAX]; /* under mu, and changed under log.mu, too */
} log_path = {
    .mu = {.mu = PTHREAD_MUTEX_INITIALIZER, .level = PATH_LEVEL, .name = "log_path.mu"},
};

static uint64_t pack_settings(const struct log_settings *s)
{
    return (uint64_t)(uint32_t)s->verbose_level << VERBOSE_SHIFT |
           (uint64_t)(s->format < LOG_FORMATS ? s->format : LOG_FORMAT_DEFAULT) << FORMAT_SHIFT |
           (uint64_t)s->info << LOG_INFO | (uint64_t)s->warning << LOG_WARN |
           (uint64_t)s->error << LOG_ERROR;
}

static uint64_t load_settings(void)
{
    return atomic_load_explicit(&settings_in_use, memory_order_relaxed);
}

static int verbose_level_of(uint64_t settings)
{
    return (int)(uint32_t)(settings >> VERBOSE_SHIFT);
}

static enum log_format format_of(uint64_t settings)
{
    return (enum log_format)(settings >> FORMAT_SHIFT & FORMAT_MASK);
}

void log_get_settings(struct log_settings *ret_settings)
{
    uint64_t now = load_settings();
    *ret_settings = (struct log_settings){
        .info = now >> LOG_INFO & 1,
        .warning = now >> LOG_WARN & 1,
        .error = now >> LOG_ERROR & 1,
        .verbose_level = verbose_level_of(now),
        .format = format_of(now),
    };
}

void log_set_settings(const struct log_settings *settings)
{
    atomic_store_explicit(&settings_in_use, pack_settings(settings), memory_order_relaxed);
}

bool log_replace_settings(const struct log_settings *was, const struct log_settings *settings)
{
    uint64_t expected = pack_settings(was);
    return atomic_compare_exchange_strong_explicit(&settings_in_use, &expected,
                                                   pack_settings(settings), memory_order_relaxed,
                                                   memory_order_relaxed);
}

bool log_is_on(enum log_level level, int verbosity)
{
    uint64_t now = load_settings();
    return level == LOG_VERBOSE ? verbosity <= verbose_level_of(now) : now >> level & 1;
}

struct status *log_open_file(const char *path)
{
    int fd = -1;
    if (path && *path) {
        do {
            fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
        } while (fd < 0 && errno == EINTR);
        if (fd < 0)
            return status_from_errno(errno, "failed to open log file '%s'", path);
    }
    log_flush(); /* repeats are logged where the message was */
    mutex_lock(&log_state.mu);
    log_state.has_file = fd >= 0;
    mutex_lock(&log_path.mu);
    snprintf(log_path.text, sizeof(log_path.text), "%s", path ? path : "");
    mutex_unlock(&log_path.mu);
    log_state.has_last = false;
    log_sink_set_file(fd);
    mutex_unlock(&log_state.mu);
    return NULL;
}

void log_get_file(char *ret_path, size_t room_bytes)
{
    mutex_lock(&log_path.mu);
    snprintf(ret_path, room_bytes, "%s", log_path.text);
    mutex_unlock(&log_path.mu);
}

void log_set_clock(struct clock *clock)
{
    mutex_lock(&log_state.mu);
    log_state.clock = clock;
    mutex_unlock(&log_state.mu);
}

static bool escapes;

static void read_escape_setting(void)
{
    const char *value = getenv("TRITON_SERVER_ESCAPE_LOG_MESSAGES");
    escapes = !value || strcmp(value, "0") != 0;
}

static bool is_escaping(void)
{
    static pthread_once_t read_once = PTHREAD_ONCE_INIT;
    pthread_once(&read_once, read_escape_setting);
    return escapes;
}

/*
 * Returns how many bytes at `text` are a control character above 0x20, and which one: those of C1
 * (U+0080 to U+009F; U+0085 ends a line for some readers), and U+2028 and U+2029, which end lines,
 * too.
 */
static size_t far_control(const char *text, size_t length, unsigned int *ret_code)
{
    const unsigned char *t = (const unsigned char *)text;
    if (length >= 2 && t[0] == 0xc2 && t[1] >= 0x80 && t[1] <= 0x9f) {
        *ret_code = t[1];
        return 2;
    }
    if (length >= 3 && t[0] == 0xe2 && t[1] == 0x80 && (t[2] == 0xa8 || t[2] == 0xa9)) {
        *ret_code = 0x2000u + (t[2] & 0x3fu);
        return 3;
    }
    return 0;
}

static char *put_code(char *to, unsigned int code)
{
    static const char hex[] = "0123456789ABCDEF";
    *to++ = '\\';
    *to++ = 'u';
    for (int shift = 12; shift >= 0; shift -= 4)
        *to++ = hex[code >> shift & 15];
    return to;
}

/*
 * Writes the text in quotes, as a JSON string; returns the end. Bytes other than controls stay as
 * they are.
 *
 * @strict  a byte that is not UTF-8 is written as the character of that number
 */
static char *put_quoted(char *to, const char *text, size_t length, bool strict)
{
    static const char short_form[0x20] = {
        ['\b'] = 'b', ['\t'] = 't', ['\n'] = 'n', ['\f'] = 'f', ['\r'] = 'r'};

    *to++ = '"';
    for (size_t i = 0; i < length; i++) {
        unsigned char c = (unsigned char)text[i];
        unsigned int code;
        size_t n = c >= 0xc2 ? far_control(text + i, length - i, &code) : 0;
        if (n) {
            to = put_code(to, code);
            i += n - 1;
        } else if (c >= 0x80 && strict) {
            n = utf8_sequence(text + i, length - i);
            if (n == 0) {
                to = put_code(to, c);
                continue;
            }
            to = (char *)memcpy(to, text + i, n) + n;
            i += n - 1;
        } else if (c == '"' || c == '\\') {
            *to++ = '\\';
            *to++ = (char)c;
        } else if (c >= 0x20) {
            *to++ = (char)c;
        } else if (short_form[c]) {
            *to++ = '\\';
            *to++ = short_form[c];
        } else {
            to = put_code(to, c);
        }
    }
    *to++ = '"';
    return to;
}

/* The members of a JSON object up to the message. Names of files that would need escapes are
 * changed: only a plugin has them. */
static char *put_json_prefix(char *to, const struct log_origin *where, const struct tm *tm,
                             long microseconds)
{
    static const char *const levels[] = {[LOG_INFO] = "info",
                                         [LOG_WARN] = "warning",
                                         [LOG_ERROR] = "error",
                                         [LOG_VERBOSE] = "verbose"};
    char *at =
        to + snprintf(to, PREFIX_BYTES,
                      "{\"time\":\"%04d-%02d-%02dT%02d:%02d:%02d.%06ldZ\",\"level\":\"%s\","
                      "\"pid\":%d,",
                      tm->tm_year + 1900, tm->tm_mon + 1, tm->tm_mday, tm->tm_hour, tm->tm_min,
                      tm->tm_sec, microseconds, levels[where->level], (int)getpid());
    if (where->file) {
        at += snprintf(at, PREFIX_BYTES, "\"file\":\"");
        for (size_t i = 0; where->file[i] && i < FILE_BYTES - 1; i++) {
            char c = where->file[i];
            *at++ = c >= 0x20 && c < 0x7f && c != '"' && c != '\\' ? c : '_';
        }
        at += snprintf(at, PREFIX_BYTES, "\",\"line\":%d,", where->line);
    }
    return at + snprintf(at, PREFIX_BYTES, "\"message\":");
}

static char *put_prefix(char *to, const struct log_origin *where)
{
    static const char letters[] = {
        [LOG_INFO] = 'I', [LOG_WARN] = 'W', [LOG_ERROR] = 'E', [LOG_VERBOSE] = 'I'};
    enum log_format format = format_of(load_settings());
    struct timespec now;
    struct tm tm;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &tm);
    if (format == LOG_FORMAT_JSON)
        return put_json_prefix(to, where, &tm, now.tv_nsec / 1000);

    char letter = letters[where->level];
    int length;
    if (format == LOG_FORMAT_ISO8601)
        length = snprintf(to, PREFIX_BYTES, "%04d-%02d-%02dT%02d:%02d:%02dZ %c %d %.127s:%d] ",
                          tm.tm_year + 1900, tm.tm_mon + 1, tm.tm_mday, tm.tm_hour, tm.tm_min,
                          tm.tm_sec, letter, (int)getpid(), where->file, where->line);
    else
        length = snprintf(to, PREFIX_BYTES, "%c%02d%02d %02d:%02d:%02d.%06ld %d %.127s:%d] ",
                          letter, tm.tm_mon + 1, tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec,
                          now.tv_nsec / 1000, (int)getpid(), where->file, where->line);
    return to + length;
}

static bool is_json(void)
{
    return format_of(load_settings()) == LOG_FORMAT_JSON;
}

static enum log_where console_of(enum log_level level)
{
    if (is_json())
        return LOG_TO_STDOUT;
    return level == LOG_INFO || level == LOG_VERBOSE ? LOG_TO_STDOUT : LOG_TO_STDERR;
}

static enum log_where where_of(enum log_level level)
{
    return log_state.has_file ? LOG_TO_FILE : console_of(level);
}

/* Set once by look_at_terminals(). */
static bool is_terminal[LOG_SINKS], has_colour;
static pthread_once_t looked_once = PTHREAD_ONCE_INIT;

static void look_at_terminals(void)
{
    const char *no = getenv("NO_COLOR"), *term = getenv("TERM");
    bool is_able = term && strcmp(term, "dumb") != 0;
    has_colour = !(no && *no);
    is_terminal[LOG_TO_STDOUT] = is_able && isatty(STDOUT_FILENO);
    is_terminal[LOG_TO_STDERR] = is_able && isatty(STDERR_FILENO);
}

static size_t terminal_columns_of(enum log_where sink)
{
    struct winsize size = {0};
    int fd = sink == LOG_TO_STDERR ? STDERR_FILENO : STDOUT_FILENO;
    pthread_once(&looked_once, look_at_terminals);
    if (!is_terminal[sink] || is_json() || ioctl(fd, TIOCGWINSZ, &size) != 0)
        return 0;
    return size.ws_col;
}

size_t log_columns(enum log_level level)
{
    mutex_lock(&log_state.mu);
    enum log_where sink = where_of(level);
    mutex_unlock(&log_state.mu);
    return terminal_columns_of(sink);
}

/* The colour in which lines of that level begin; NULL: they have none. */
static const char *colour_of(enum log_where to, enum log_level level)
{
    if ((level != LOG_WARN && level != LOG_ERROR) || is_json())
        return NULL;
    pthread_once(&looked_once, look_at_terminals);
    if (!has_colour || !is_terminal[to])
        return NULL;
    return level == LOG_ERROR ? "\033[31m" : "\033[33m";
}

static char *put_plain(char *to, const char *text)
{
    size_t length = strlen(text);
    return (char *)memcpy(to, text, length) + length;
}

/* Writes what stands in front of the message, in its colour. */
static char *put_head(char *to, enum log_where sink, const struct log_origin *where)
{
    const char *colour = colour_of(sink, where->level);
    if (!colour)
        return put_prefix(to, where);
    to = put_plain(to, colour);
    to = put_prefix(to, where);
    return put_plain(to, "\033[0m");
}

/* Writes the message, and the end of the line. */
static char *put_message_line(char *to, const char *text, size_t length)
{
    bool json = is_json();
    if (json || is_escaping())
        to = put_quoted(to, text, length, json);
    else
        to = (char *)memcpy(to, text, length) + length;
    if (json)
        *to++ = '}';
    *to++ = '\n';
    return to;
}

size_t log_put_lost(char to[LOG_LOST_BYTES], unsigned long n_lost)
{
    struct log_origin here = origin_of_message(LOG_WARN, __FILE__, __LINE__);
    char *end = put_prefix(to, &here);
    end += snprintf(end, LOG_LOST_BYTES - PREFIX_BYTES, "\"%lu log %s lost\"%s\n", n_lost,
                    n_lost == 1 ? "line was" : "lines were", is_json() ? "}" : "");
    return (size_t)(end - to);
}

static const char erase_line[] = "\r\033[K";
static atomic_bool is_shown; /* the last line of the terminal is a text of log_show() */

static void erase_shown(void)
{
    if (atomic_load_explicit(&is_shown, memory_order_relaxed) && atomic_exchange(&is_shown, false))
        log_sink_put(LOG_TO_STDOUT, erase_line, sizeof(erase_line) - 1);
}

/* Puts the line together and gives it to the sink. */
static void write_message_locked(const struct log_origin *where, const char *text, size_t length)
{
    char usual[LINE_BYTES];
    char *line = usual;
    if (length > USUAL_BYTES) {
        line = length < SIZE_MAX / 8 ? mem_try_alloc(length * ESCAPED_BYTES + PREFIX_BYTES) : NULL;
        if (!line) { /* no memory: the beginning is better than nothing */
            line = usual;
            length = USUAL_BYTES;
        }
    }
    enum log_where to = where_of(where->level);
    char *end = put_message_line(put_head(line, to, where), text, length);
    erase_shown();
    log_sink_put(to, line, (size_t)(end - line));
    if (line != usual)
        mem_free(line);
}

static uint64_t now_locked(void)
{
    return clock_now_ns(log_state.clock ? log_state.clock : clock_real());
}

static void put_repeats_locked(void)
{
    if (!log_state.n_repeats)
        return;
    char text[64];
    int length = snprintf(text, sizeof(text), "last message repeated %lu time%s",
                          log_state.n_repeats, log_state.n_repeats == 1 ? "" : "s");
    log_state.n_repeats = 0;
    struct log_origin where = {log_state.last_level, log_state.last_file, log_state.last_line};
    write_message_locked(&where, text, (size_t)length);
}

/* Counts a repeat instead of writing it; false: it is to be written. */
static bool is_repeat_locked(const struct log_origin *where, const char *text, size_t length)
{
    uint64_t now_ns = now_locked();
    bool same = log_state.has_last && log_state.last_line == where->line &&
                log_state.last_level == where->level &&
                strcmp(log_state.last_file, where->file) == 0 &&
                strcmp(log_state.last_text, text) == 0;
    bool soon = now_ns - log_state.last_written_ns < NS_PER_S;
    if (same && (soon || log_state.n_repeats > 0)) {
        log_state.n_repeats++;
        if (!soon) {
            put_repeats_locked();
            log_state.last_written_ns = now_ns;
        }
        return true;
    }
    put_repeats_locked();
    log_state.last_written_ns = now_ns;
    /* Copies the name, too: it may belong to a plugin that is unloaded next. */
    size_t file_length = strlen(where->file);
    log_state.has_last = length < USUAL_BYTES && file_length < FILE_BYTES;
    if (log_state.has_last && !same) {
        log_state.last_level = where->level;
        log_state.last_line = where->line;
        memcpy(log_state.last_file, where->file, file_length + 1);
        memcpy(log_state.last_text, text, length + 1);
    }
    return false;
}

/* text ends with a zero byte at text[length]. */
static void log_bytes(enum log_level level, const char *file, int line, const char *text,
                      size_t length)
{
    struct log_origin where = origin_of_message(level, file, line);
    mutex_lock(&log_state.mu);
    if (!is_repeat_locked(&where, text, length))
        write_message_locked(&where, text, length);
    mutex_unlock(&log_state.mu);
}

void log_write(enum log_level level, const char *file, int line, const char *fmt, ...)
{
    char usual[USUAL_BYTES + 1];
    char *text = usual;
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(usual, sizeof(usual), fmt, ap);
    va_end(ap);
    size_t length = n > 0 ? (size_t)n : 0;
    if (n < 0)
        usual[0] = '\0'; /* a wide character that cannot be converted: no message of ours has any */
    if (length >= sizeof(usual)) {
        size_t kept = MIN(length, (size_t)MAX_BYTES);
        text = mem_try_alloc(kept + 1 + UTF8_CUT_BYTES);
        if (text) {
            va_start(ap, fmt);
            vsnprintf(text, kept + 1, fmt, ap);
            va_end(ap);
            length = kept < length ? utf8_mark_cut(text, kept, length) : length;
        } else {
            text = usual;
            length = sizeof(usual) - 1;
        }
    }
    log_bytes(level, file, line, text, length);
    if (text != usual)
        mem_free(text);
}

void log_text(enum log_level level, const char *file, int line, const char *text)
{
    size_t length = strlen(text);
    if (length > MAX_BYTES)
        log_write(level, file, line, "%s", text); /* which cuts it */
    else
        log_bytes(level, file, line, text, length);
}

void log_table(enum log_level level, const char *file, int line, const char *table)
{
    if (is_json()) {
        log_text(level, file, line, table);
        return;
    }
    struct log_origin where = origin_of_message(level, file, line);
    size_t length = strlen(table);
    char *whole = mem_try_alloc(PREFIX_BYTES + length + 3);
    if (!whole) {
        log_text(level, file, line, table);
        return;
    }
    /* The heading is empty; one blank line follows the table. */
    char *end = put_prefix(whole, &where);
    *end++ = '\n';
    memcpy(end, table, length);
    end += length;
    if (length == 0 || table[length - 1] != '\n')
        *end++ = '\n';
    *end++ = '\n';

    mutex_lock(&log_state.mu);
    put_repeats_locked();
    log_state.has_last = false;
    enum log_where to = where_of(level);
    mutex_unlock(&log_state.mu);
    erase_shown();
    log_sink_put_patiently(to, whole, (size_t)(end - whole)); /* it may be a long one */
    mem_free(whole);
}

/* Copies the characters that fit; those that control a terminal become blanks. Returns the end. */
static char *put_shown(char *to, const char *text, size_t columns)
{
    size_t n_characters = 0;
    for (; *text; text++) {
        n_characters += ((unsigned char)*text & 0xc0) != 0x80;
        if (n_characters > columns)
            break;
        *to++ = (unsigned char)*text < ' ' || *text == 0x7f ? ' ' : *text;
    }
    return to;
}

bool log_show(const char *text)
{
    enum { MOST_COLUMNS = 500, CHARACTER_BYTES = 4 };
    char line[sizeof(erase_line) + MOST_COLUMNS * CHARACTER_BYTES];
    size_t columns = log_columns(LOG_INFO);
    if (!text)
        erase_shown();
    if (!text || columns < 2)
        return columns >= 2;
    mutex_lock(&log_state.mu);
    char *end = put_plain(line, erase_line);
    end = put_shown(end, text, MIN(columns - 1, (size_t)MOST_COLUMNS));
    atomic_store(&is_shown, true);
    log_sink_put(LOG_TO_STDOUT, line, (size_t)(end - line));
    mutex_unlock(&log_state.mu);
    return true;
}

void log_flush(void)
{
    mutex_lock(&log_state.mu);
    put_repeats_locked();
    mutex_unlock(&log_state.mu);
}

void log_print(enum log_level level, const char *line)
{
    size_t length = strlen(line);
    char usual[LINE_BYTES];
    if (is_json()) {
        struct log_origin nowhere = {.level = level};
        char *end =
            put_message_line(put_prefix(usual, &nowhere), line, MIN(length, (size_t)USUAL_BYTES));
        log_sink_put(LOG_TO_STDOUT, usual, (size_t)(end - usual));
        return;
    }
    char *whole = length < USUAL_BYTES ? usual : mem_try_alloc(length + 1);
    if (!whole) {
        whole = usual;
        length = USUAL_BYTES;
    }
    memcpy(whole, line, length);
    whole[length] = '\n';
    erase_shown();
    log_sink_put(console_of(level), whole, length + 1);
    if (whole != usual)
        mem_free(whole);
}

static void lock_log_before_fork(void)
{
    mutex_lock(&log_state.mu);
}

static void unlock_log_after_fork(void)
{
    mutex_unlock(&log_state.mu);
}

/* The handlers of the sinks are registered before, so that fork() takes this lock before theirs. */
static void survive_forks(void)
{
    pthread_atfork(lock_log_before_fork, unlock_log_after_fork, unlock_log_after_fork);
}

void log_start(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    log_sinks_start();
    pthread_once(&once, survive_forks);
}

void log_stop(void)
{
    log_sinks_stop();
}

__attribute__((destructor)) static void at_exit(void)
{
    log_flush();
}

void log_status_at(enum log_level level, const char *file, int line, const char *what,
                   struct status *st)
{
    if (!st)
        return;
    if (log_is_on(level, 1))
        log_write(level, file, line, "%s: %s: %s", what, status_code_name(status_code(st)),
                  status_message(st));
    status_free(st);
}
