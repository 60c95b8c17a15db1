/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN: a line is put together on the stack, then handed to the kernel by one write() under one
 * mutex. The mutex is there for pipes and terminals, where the kernel mixes long writes of several
 * threads, and for the memory of the last message. Whether a level is on is a single relaxed load.
 */
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/mutex.h"
#include "base/status.h"

enum {
    LOG_LEVEL = 1000,   /* of the mutex: the last of all */
    USUAL_BYTES = 1024, /* longer messages take memory from the system */
    FILE_BYTES = 128,   /* of a file name; cut beyond */
    PREFIX_BYTES = 256, /* time, process, file:line */
    ESCAPED_BYTES = 6,  /* of one byte, at most */
    LINE_BYTES = USUAL_BYTES * ESCAPED_BYTES + PREFIX_BYTES,
    PATIENCE_MS = 1000, /* for a pipe that is full */
};

struct place {
    enum log_level level;
    const char *file; /* its base name */
    int line;
};

static struct place place_of(enum log_level level, const char *file, int line)
{
    const char *slash = strrchr(file, '/');
    return (struct place){level, slash ? slash + 1 : file, line};
}

/* What log_is_on() asks; bits by enum log_level. Any thread, relaxed: a late change is harmless. */
static atomic_uint levels_on = 1u << LOG_INFO | 1u << LOG_WARN | 1u << LOG_ERROR;
static atomic_int verbose_on;
static atomic_int format_in_use = LOG_FORMAT_DEFAULT;

static struct {
    struct mutex mu;
    /* Under mu. */
    struct clock *clock;       /* NULL = the real one */
    int file_fd;               /* -1 = console */
    enum log_level last_level; /* of the last message, if it is short enough to be remembered */
    char last_file[FILE_BYTES];
    int last_line;
    char last_text[USUAL_BYTES];
    bool has_last;
    uint64_t last_written_ns;
    unsigned long n_repeats; /* of it, not yet told */
    unsigned long n_lost;    /* lines that could not be written, not yet told */
    bool stalled;            /* the last wait for the reader was in vain: do not wait again */
    bool torn;               /* a line was cut off in the middle */
} log_state = {
    .mu = {.mu = PTHREAD_MUTEX_INITIALIZER, .level = LOG_LEVEL, .name = "log.mu"},
    .file_fd = -1,
};

void log_get_settings(struct log_settings *ret_settings)
{
    unsigned int on = atomic_load_explicit(&levels_on, memory_order_relaxed);
    *ret_settings = (struct log_settings){
        .info = on >> LOG_INFO & 1,
        .warning = on >> LOG_WARN & 1,
        .error = on >> LOG_ERROR & 1,
        .verbose_level = atomic_load_explicit(&verbose_on, memory_order_relaxed),
        .format = (enum log_format)atomic_load_explicit(&format_in_use, memory_order_relaxed),
    };
}

void log_set_settings(const struct log_settings *settings)
{
    unsigned int on = (unsigned int)settings->info << LOG_INFO |
                      (unsigned int)settings->warning << LOG_WARN |
                      (unsigned int)settings->error << LOG_ERROR;
    atomic_store_explicit(&levels_on, on, memory_order_relaxed);
    atomic_store_explicit(&verbose_on, settings->verbose_level, memory_order_relaxed);
    atomic_store_explicit(&format_in_use, (int)settings->format, memory_order_relaxed);
}

bool log_is_on(enum log_level level, int verbosity)
{
    if (level == LOG_VERBOSE)
        return verbosity <= atomic_load_explicit(&verbose_on, memory_order_relaxed);
    return atomic_load_explicit(&levels_on, memory_order_relaxed) >> level & 1;
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
    log_flush(); /* repeats belong to where the message is */
    mutex_lock(&log_state.mu);
    int before = log_state.file_fd;
    log_state.file_fd = fd;
    log_state.has_last = log_state.stalled = log_state.torn = false;
    mutex_unlock(&log_state.mu);
    if (before >= 0)
        close(before);
    return NULL;
}

void log_set_clock(struct clock *clock)
{
    mutex_lock(&log_state.mu);
    log_state.clock = clock;
    mutex_unlock(&log_state.mu);
}

static bool escapes;

static void read_environment(void)
{
    const char *value = getenv("TRITON_SERVER_ESCAPE_LOG_MESSAGES");
    escapes = !value || strcmp(value, "0") != 0;
}

static bool is_escaping(void)
{
    static pthread_once_t read_once = PTHREAD_ONCE_INIT;
    pthread_once(&read_once, read_environment);
    return escapes;
}

/* The text in quotes, as a JSON string has it; returns the end. Bytes from 0x20 up stay as they
 * are. */
static char *put_quoted(char *to, const char *text, size_t length)
{
    static const char hex[] = "0123456789ABCDEF";
    static const char short_form[0x20] = {
        ['\b'] = 'b', ['\t'] = 't', ['\n'] = 'n', ['\f'] = 'f', ['\r'] = 'r'};

    *to++ = '"';
    for (size_t i = 0; i < length; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c == '"' || c == '\\') {
            *to++ = '\\';
            *to++ = (char)c;
        } else if (c >= 0x20) {
            *to++ = (char)c;
        } else if (short_form[c]) {
            *to++ = '\\';
            *to++ = short_form[c];
        } else {
            memcpy(to, "\\u00", 4);
            to[4] = hex[c >> 4];
            to[5] = hex[c & 15];
            to += 6;
        }
    }
    *to++ = '"';
    return to;
}

static char *put_prefix(char *to, const struct place *where)
{
    static const char letters[] = {
        [LOG_INFO] = 'I', [LOG_WARN] = 'W', [LOG_ERROR] = 'E', [LOG_VERBOSE] = 'I'};
    struct timespec now;
    struct tm tm;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &tm);

    char letter = letters[where->level];
    int length;
    if (atomic_load_explicit(&format_in_use, memory_order_relaxed) == LOG_FORMAT_ISO8601)
        length = snprintf(to, PREFIX_BYTES, "%04d-%02d-%02dT%02d:%02d:%02dZ %c %d %.127s:%d] ",
                          tm.tm_year + 1900, tm.tm_mon + 1, tm.tm_mday, tm.tm_hour, tm.tm_min,
                          tm.tm_sec, letter, (int)getpid(), where->file, where->line);
    else
        length = snprintf(to, PREFIX_BYTES, "%c%02d%02d %02d:%02d:%02d.%06ld %d %.127s:%d] ",
                          letter, tm.tm_mon + 1, tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec,
                          now.tv_nsec / 1000, (int)getpid(), where->file, where->line);
    return to + length;
}

static int descriptor_of(enum log_level level)
{
    if (log_state.file_fd >= 0)
        return log_state.file_fd;
    return level == LOG_INFO || level == LOG_VERBOSE ? STDOUT_FILENO : STDERR_FILENO;
}

/* Whether the descriptor takes more, after a bounded wait. */
static bool wait_until_writable_locked(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    int n;
    do {
        n = poll(&p, 1, log_state.stalled ? 0 : PATIENCE_MS);
    } while (n < 0 && errno == EINTR);
    log_state.stalled = n <= 0;
    return n > 0;
}

static bool write_all_locked(int fd, const char *bytes, size_t length)
{
    size_t done = 0;
    while (done < length) {
        ssize_t n = write(fd, bytes + done, length - done);
        if (n >= 0)
            done += (size_t)n;
        else if (errno == EAGAIN) {
            if (!wait_until_writable_locked(fd))
                break;
        } else if (errno != EINTR) {
            break;
        }
    }
    if (done == length)
        return true;
    if (done > 0)
        log_state.torn = true;
    return false;
}

static void write_line_locked(const struct place *where, const char *bytes, size_t length)
{
    int saved_errno = errno;
    int fd = descriptor_of(where->level);
    if (log_state.n_lost || log_state.torn) {
        char note[PREFIX_BYTES + 64];
        struct place here = place_of(LOG_WARN, __FILE__, __LINE__);
        char *end = note;
        if (log_state.torn)
            *end++ = '\n';
        end = put_prefix(end, &here);
        end += snprintf(end, 64, "\"%lu log messages were lost\"\n", log_state.n_lost);
        log_state.torn = false;
        if (!write_all_locked(fd, note, (size_t)(end - note))) {
            log_state.n_lost++;
            errno = saved_errno;
            return;
        }
        log_state.n_lost = 0;
    }
    if (!write_all_locked(fd, bytes, length))
        log_state.n_lost++;
    errno = saved_errno;
}

/* Puts the line together and writes it. */
static void write_message_locked(const struct place *where, const char *text, size_t length)
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
    char *end = put_prefix(line, where);
    if (is_escaping())
        end = put_quoted(end, text, length);
    else
        end = (char *)memcpy(end, text, length) + length;
    *end++ = '\n';
    write_line_locked(where, line, (size_t)(end - line));
    if (line != usual)
        mem_free(line);
}

static uint64_t now_locked(void)
{
    return clock_now_ns(log_state.clock ? log_state.clock : clock_real());
}

static void tell_repeats_locked(void)
{
    if (!log_state.n_repeats)
        return;
    char text[64];
    int length = snprintf(text, sizeof(text), "last message repeated %lu time%s",
                          log_state.n_repeats, log_state.n_repeats == 1 ? "" : "s");
    log_state.n_repeats = 0;
    struct place where = {log_state.last_level, log_state.last_file, log_state.last_line};
    write_message_locked(&where, text, (size_t)length);
}

/* Counts a repeat instead of having it written; false: write it. */
static bool is_repeat_locked(const struct place *where, const char *text, size_t length)
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
            tell_repeats_locked();
            log_state.last_written_ns = now_ns;
        }
        return true;
    }
    tell_repeats_locked();
    log_state.last_written_ns = now_ns;
    /* Copied, the name too: it may be a plugin's, which may be unloaded next. */
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
    struct place where = place_of(level, file, line);
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
        usual[0] = '\0'; /* a wide character without a form: nothing of ours prints any */
    if (length >= sizeof(usual)) {
        text = mem_try_alloc(length + 1);
        if (text) {
            va_start(ap, fmt);
            vsnprintf(text, length + 1, fmt, ap);
            va_end(ap);
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
    log_bytes(level, file, line, text, strlen(text));
}

void log_table(enum log_level level, const char *file, int line, const char *table)
{
    struct place where = place_of(level, file, line);
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
    tell_repeats_locked();
    log_state.has_last = false;
    write_line_locked(&where, whole, (size_t)(end - whole));
    mutex_unlock(&log_state.mu);
    mem_free(whole);
}

void log_flush(void)
{
    mutex_lock(&log_state.mu);
    tell_repeats_locked();
    mutex_unlock(&log_state.mu);
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
