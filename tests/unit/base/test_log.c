/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The expected lines were compared with those of the genuine server. Where a line must be one
 * write(), the log goes to a socket that keeps the borders of writes.
 */
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <regex.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/log_sink.h"
#include "base/mem.h"
#include "base/status.h"
#include "base/thread.h"
#include "lib/fake_clock.h"

/* The console, replaced while a test captures it. */

static int saved_fds[2];
static int reader_fds[2]; /* [0] of stdout, [1] of stderr */

static void replace_console(int out_fd, int err_fd)
{
    fflush(NULL);
    for (int i = 0; i < 2; i++) {
        saved_fds[i] = fcntl(1 + i, F_DUPFD_CLOEXEC, 10);
        dup2(i == 0 ? out_fd : err_fd, 1 + i);
    }
    close(out_fd);
    if (err_fd != out_fd)
        close(err_fd);
}

static void restore_console(void)
{
    for (int i = 0; i < 2; i++) {
        dup2(saved_fds[i], 1 + i);
        close(saved_fds[i]);
    }
}

static void capture(void)
{
    int fds[2][2];
    for (int i = 0; i < 2; i++) {
        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds[i]) < 0)
            fail();
        reader_fds[i] = fds[i][0];
    }
    replace_console(fds[0][1], fds[1][1]);
}

enum { MOST_WRITES = 16, MOST_BYTES = 40000 };
struct captured {
    char *writes[2][MOST_WRITES]; /* each one write() */
    int n[2];
};

static void end_capture(struct captured *ret)
{
    restore_console();
    *ret = (struct captured){0};
    for (int i = 0; i < 2; i++) {
        static char bytes[MOST_BYTES];
        ssize_t n;
        while ((n = recv(reader_fds[i], bytes, sizeof(bytes), 0)) > 0) {
            assert_true(ret->n[i] < MOST_WRITES);
            ret->writes[i][ret->n[i]++] = mem_strndup(bytes, (size_t)n);
        }
        close(reader_fds[i]);
    }
}

static void captured_done(struct captured *c)
{
    for (int i = 0; i < 2; i++) {
        for (int k = 0; k < c->n[i]; k++)
            mem_free(c->writes[i][k]);
    }
}

static void assert_matches(const char *text, const char *pattern)
{
    regex_t re;
    assert_int_equal(regcomp(&re, pattern, REG_EXTENDED | REG_NOSUB), 0);
    if (regexec(&re, text, 0, NULL, 0) != 0)
        fail_msg("%s\ndoes not match %s", text, pattern);
    regfree(&re);
}

#define TIME_PATTERN "[01][0-9][0-3][0-9] [0-2][0-9]:[0-5][0-9]:[0-6][0-9]\\.[0-9]{6} [0-9]+ "

static struct clock_fake fake;

static int setup(void **state)
{
    (void)state;
    clock_fake_init(&fake, 1000 * NS_PER_S);
    log_set_clock(&fake.clock);
    struct log_settings usual = {.info = true, .warning = true, .error = true};
    log_set_settings(&usual);
    return 0;
}

static int forget(void **state)
{
    (void)state;
    struct status *st = log_open_file(NULL); /* writes the last message, too */
    log_set_clock(NULL);
    return st != NULL;
}

static void messages_go_to_the_console_in_the_default_format(void **state)
{
    (void)state;
    struct captured c;
    capture();
    log_info("hello %d", 5);
    log_warn("careful");
    log_error("broken");
    log_write(LOG_VERBOSE, "/a/b/some.cc", 12, "details");
    log_text(LOG_INFO, "plain.c", 7, "");
    end_capture(&c);

    assert_int_equal(c.n[0], 3);
    assert_int_equal(c.n[1], 2);
    assert_matches(c.writes[0][0], "^I" TIME_PATTERN "test_log\\.c:[0-9]+\\] \"hello 5\"\n$");
    assert_matches(c.writes[1][0], "^W" TIME_PATTERN "test_log\\.c:[0-9]+\\] \"careful\"\n$");
    assert_matches(c.writes[1][1], "^E" TIME_PATTERN "test_log\\.c:[0-9]+\\] \"broken\"\n$");
    assert_matches(c.writes[0][1], "^I" TIME_PATTERN "some\\.cc:12\\] \"details\"\n$");
    assert_matches(c.writes[0][2], "^I" TIME_PATTERN "plain\\.c:7\\] \"\"\n$");
    char pid[32];
    snprintf(pid, sizeof(pid), " %d ", (int)getpid());
    assert_non_null(strstr(c.writes[0][0], pid));
    captured_done(&c);
}

/* Changes one setting again and again, and finds each change as it was. Returns a fault. */
static void *change_setting(void *arg)
{
    struct log_settings was, now;
    for (int i = 0; i < 20000; i++) {
        do {
            log_get_settings(&was);
            now = was;
            if (arg)
                now.verbose_level = i;
            else
                now.info = i % 2;
        } while (!log_replace_settings(&was, &now));
        log_get_settings(&now);
        if (arg ? now.verbose_level != i : now.info != i % 2)
            return (void *)(uintptr_t) "a change was lost";
    }
    return NULL;
}

static void changes_of_two_threads_are_both_kept(void **state)
{
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, change_setting, i ? state : NULL), 0);
    for (int i = 0; i < 2; i++) {
        void *fault;
        pthread_join(threads[i], &fault);
        assert_null(fault);
    }
}

/* A clock that keeps the thread that reads it, which holds the log's mutex, until the test lets it
 * go on. */
static struct {
    struct clock clock;
    struct mutex mu;
    struct cond changed;
    bool is_read, may_go_on, has_waited_long; /* under mu */
} gate;

static uint64_t wait_at_gate(struct clock *c)
{
    (void)c;
    uint64_t until_ns = monotonic_ns() + 60 * NS_PER_S;
    mutex_lock(&gate.mu);
    gate.is_read = true;
    cond_broadcast(&gate.changed);
    while (!gate.may_go_on && !gate.has_waited_long)
        gate.has_waited_long = !cond_wait_until(&gate.changed, &gate.mu, until_ns);
    mutex_unlock(&gate.mu);
    return monotonic_ns();
}

static void *log_one_line(void *arg)
{
    (void)arg;
    log_info("a line");
    return NULL;
}

static void settings_are_read_while_a_line_is_logged(void **state)
{
    (void)state;
    pthread_t logger;
    struct captured c;
    struct log_settings was, now;
    char path[100];
    gate.clock.now_ns = wait_at_gate;
    mutex_init(&gate.mu, 2000, "gate");
    cond_init(&gate.changed);
    capture();
    log_set_clock(&gate.clock);
    assert_int_equal(pthread_create(&logger, NULL, log_one_line, NULL), 0);
    mutex_lock(&gate.mu);
    while (!gate.is_read)
        cond_wait(&gate.changed, &gate.mu);
    mutex_unlock(&gate.mu);

    log_get_settings(&was);
    now = was;
    now.verbose_level = -3;
    now.format = LOG_FORMAT_ISO8601;
    bool is_replaced = log_replace_settings(&was, &now);
    log_get_settings(&now);
    log_set_settings(&was);
    log_get_file(path, sizeof(path));

    mutex_lock(&gate.mu);
    gate.may_go_on = true;
    bool has_waited = gate.has_waited_long;
    cond_broadcast(&gate.changed);
    mutex_unlock(&gate.mu);
    pthread_join(logger, NULL);
    log_set_clock(NULL);
    end_capture(&c);
    captured_done(&c);
    assert_false(has_waited);
    assert_true(is_replaced);
    assert_true(now.verbose_level == -3 && now.format == LOG_FORMAT_ISO8601);
    assert_string_equal(path, "");
    cond_done(&gate.changed);
    mutex_done(&gate.mu);
}

static void format_and_levels_change_at_run_time(void **state)
{
    (void)state;
    struct captured c;
    struct log_settings s = {.warning = true, .verbose_level = 2, .format = LOG_FORMAT_ISO8601};
    capture();
    log_set_settings(&s);
    log_info("off");
    log_error("off");
    log_warn("on");
    log_verbose(2, "deep");
    log_verbose(3, "too deep");
    end_capture(&c);

    struct log_settings got;
    log_get_settings(&got);
    assert_true(!got.info && got.warning && !got.error && got.verbose_level == 2);
    assert_int_equal(got.format, LOG_FORMAT_ISO8601);
    assert_int_equal(c.n[0], 1);
    assert_int_equal(c.n[1], 1);
    const char *pattern = "^20[0-9]{2}-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-6][0-9]Z "
                          "W [0-9]+ test_log\\.c:[0-9]+\\] \"on\"\n$";
    assert_matches(c.writes[1][0], pattern);
    assert_matches(c.writes[0][0], " I [0-9]+ test_log\\.c:[0-9]+\\] \"deep\"\n$");
    captured_done(&c);
}

#define JSON_PATTERN                                                                                 \
    "^\\{\"time\":\"20[0-9]{2}-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-6][0-9]\\.[0-9]{6}Z\"," \
    "\"level\":\"%s\",\"pid\":[0-9]+,%s\"message\":\"%s\"\\}\n$"

static void assert_is_json(const char *line, const char *level, const char *where,
                           const char *message)
{
    char pattern[1024];
    snprintf(pattern, sizeof(pattern), JSON_PATTERN, level, where, message);
    assert_matches(line, pattern);
}

static void lines_are_json_objects_on_one_stream(void **state)
{
    (void)state;
    struct captured c;
    struct log_settings s = {.info = true,
                             .warning = true,
                             .error = true,
                             .verbose_level = 1,
                             .format = LOG_FORMAT_JSON};
    capture();
    log_set_settings(&s);
    log_info("a \"b\" \\ \n");
    log_warn("caf\xc3\xa9 \xff\xc3 \xe2\x80\xa8"); /* é, two bytes that are no UTF-8, U+2028 */
    log_text(LOG_ERROR, "no\"file\n.c", 7, "x");
    log_verbose(1, "deep");
    log_table(LOG_INFO, "t.c", 8, "a\nb\n");
    log_print(LOG_WARN, "Signal");
    end_capture(&c);
    setup(NULL);
    assert_int_equal(c.n[1], 0);
    assert_int_equal(c.n[0], 6);
    const char *here = "\"file\":\"test_log\\.c\",\"line\":[0-9]+,";
    assert_is_json(c.writes[0][0], "info", here, "a \\\\\"b\\\\\" \\\\\\\\ \\\\n");
    assert_is_json(c.writes[0][1], "warning", here, "caf\xc3\xa9 \\\\u00FF\\\\u00C3 \\\\u2028");
    assert_is_json(c.writes[0][2], "error", "\"file\":\"no_file_\\.c\",\"line\":7,", "x");
    assert_is_json(c.writes[0][3], "verbose", here, "deep");
    assert_is_json(c.writes[0][4], "info", "\"file\":\"t\\.c\",\"line\":8,", "a\\\\nb\\\\n");
    assert_is_json(c.writes[0][5], "warning", "", "Signal");
    captured_done(&c);
}

static void a_long_json_line_is_whole(void **state)
{
    (void)state;
    struct captured c;
    struct log_settings s = {.error = true, .format = LOG_FORMAT_JSON};
    char file[300], text[1500];
    memset(file, 'f', sizeof(file) - 1);
    memset(text, '\x01', sizeof(text) - 1);
    file[sizeof(file) - 1] = text[sizeof(text) - 1] = '\0';
    capture();
    log_set_settings(&s);
    log_text(LOG_ERROR, file, INT_MAX, text);
    text[1000] = '\0'; /* short enough for the stack */
    log_print(LOG_ERROR, text);
    end_capture(&c);
    setup(NULL);
    assert_int_equal(c.n[0], 2);
    for (int i = 0; i < 2; i++) {
        const char *line = c.writes[0][i];
        size_t n = strlen(line);
        assert_memory_equal(line + n - 9, "\\u0001\"}\n", 9);
    }
    captured_done(&c);
}

static int n_evaluated;

static int evaluate(void)
{
    return ++n_evaluated;
}

static void arguments_of_levels_that_are_off_are_not_evaluated(void **state)
{
    (void)state;
    log_verbose(1, "%d", evaluate());
    assert_int_equal(n_evaluated, 0);
}

static void every_byte_is_escaped_without_loss(void **state)
{
    (void)state;
    struct captured c;
    capture();
    log_text(LOG_INFO, "f.c", 1, "a\"b\\c\td\ne\x01\x1b\x7f\xc3\xa9\xff<x>/\b\f\r\x1f");
    end_capture(&c);
    assert_int_equal(c.n[0], 1);
    const char *quoted = strchr(c.writes[0][0], ']') + 2;
    assert_string_equal(quoted, "\"a\\\"b\\\\c\\td\\ne\\u0001\\u001B\x7f\xc3\xa9\xff<x>/\\b\\f\\r"
                                "\\u001F\"\n");
    captured_done(&c);
}

static void control_characters_are_escaped(void **state)
{
    (void)state;
    struct captured c;
    capture();
    log_text(LOG_INFO, "f.c", 1,
             "\xc2\x80 \xc2\x85 \xc2\x9b \xc2\x9f \xc2\xa0 \xe2\x80\xa8 \xe2\x80\xa9 \xe2\x80\xaa "
             "\xc3\x85 \xe2\x80 \xc2");
    end_capture(&c);
    assert_int_equal(c.n[0], 1);
    const char *quoted = strchr(c.writes[0][0], ']') + 2;
    assert_string_equal(quoted, "\"\\u0080 \\u0085 \\u009B \\u009F \xc2\xa0 \\u2028 \\u2029 "
                                "\xe2\x80\xaa \xc3\x85 \xe2\x80 \xc2\"\n");
    captured_done(&c);
}

/* Starts the program itself with this argument, and reads what it prints. */
static void run_self(const char *argument, char *bytes, size_t room)
{
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    pid_t pid = fork();
    if (pid == 0) {
        dup2(fds[1], 1);
        execl("/proc/self/exe", "test_log", argument, (char *)NULL);
        _exit(9);
    }
    close(fds[1]);
    size_t size = 0;
    ssize_t n;
    while (size < room - 1 && (n = read(fds[0], bytes + size, room - 1 - size)) > 0)
        size += (size_t)n;
    bytes[size] = '\0';
    close(fds[0]);
    int result;
    assert_int_equal(waitpid(pid, &result, 0), pid);
    assert_int_equal(result, 0);
}

/* The environment is read once, so this test needs a process of its own. */
static void the_environment_turns_escaping_off(void **state)
{
    (void)state;
    char bytes[256];
    setenv("TRITON_SERVER_ESCAPE_LOG_MESSAGES", "0", 1);
    run_self("print-one", bytes, sizeof(bytes));
    unsetenv("TRITON_SERVER_ESCAPE_LOG_MESSAGES");
    assert_matches(bytes, "^I" TIME_PATTERN "one\\.c:1\\] a\"b\n$");
}

static void repeats_are_printed_at_the_end(void **state)
{
    (void)state;
    char bytes[512];
    run_self("print-three", bytes, sizeof(bytes));
    assert_matches(bytes,
                   "^I[^\n]*\"again\"\nI[^\n]*one\\.c:1\\] \"last message repeated 2 times\"\n$");
}

static char *letters(size_t length)
{
    char *text = mem_alloc(length + 1);
    for (size_t i = 0; i < length; i++)
        text[i] = (char)('a' + i % 26);
    text[length] = '\0';
    return text;
}

static void long_messages_are_whole_and_one_write(void **state)
{
    (void)state;
    static const size_t lengths[] = {1023, 1024, 1025, 4096, 30000};
    for (size_t i = 0; i < ARRAY_SIZE(lengths); i++) {
        char *text = letters(lengths[i]);
        struct captured c;
        capture();
        log_info("%s", text);
        end_capture(&c);
        assert_int_equal(c.n[0], 1);
        const char *quoted = strchr(c.writes[0][0], ']') + 2;
        assert_int_equal(strlen(quoted), lengths[i] + 3);
        assert_memory_equal(quoted + 1, text, lengths[i]);
        captured_done(&c);
        mem_free(text);
    }
}

static void huge_messages_are_cut(void **state)
{
    (void)state;
    static const char marked[] = "…(10000000 bytes)\"\n";
    char *text = letters(10000000);
    struct captured c;
    capture();
    log_info("%s", text);
    log_text(LOG_INFO, "t.c", 1, text);
    end_capture(&c);
    assert_int_equal(c.n[0], 2);
    for (size_t i = 0; i < 2; i++) {
        const char *quoted = strchr(c.writes[0][i], ']') + 2;
        assert_memory_equal(quoted + 1, text, 32 << 10);
        assert_string_equal(quoted + 1 + (32 << 10), marked);
    }
    captured_done(&c);
    mem_free(text);
}

static bool refuse(size_t size_bytes)
{
    (void)size_bytes;
    return false;
}

static void without_memory_a_long_message_is_cut(void **state)
{
    (void)state;
    char *text = letters(5000);
    struct captured c;
    capture();
    mem_set_test_hook(refuse);
    log_info("%s", text);
    log_text(LOG_INFO, "t.c", 1, text);
    log_table(LOG_INFO, "t.c", 2, "short table");
    mem_set_test_hook(NULL);
    end_capture(&c);
    assert_int_equal(c.n[0], 3);
    assert_int_equal(strlen(strchr(c.writes[0][0], ']') + 2), 1024 + 3);
    assert_int_equal(strlen(strchr(c.writes[0][1], ']') + 2), 1024 + 3);
    assert_matches(c.writes[0][2], "\"short table\"\n$");
    captured_done(&c);
    mem_free(text);
}

static int n_allocations;

static bool count_allocation(size_t size_bytes)
{
    (void)size_bytes;
    n_allocations++;
    return true;
}

static void ordinary_messages_allocate_nothing(void **state)
{
    (void)state;
    char *text = letters(900);
    struct captured c;
    capture();
    mem_set_test_hook(count_allocation);
    log_info("one %s", text);
    log_warn("two");
    mem_set_test_hook(NULL);
    end_capture(&c);
    assert_int_equal(n_allocations, 0);
    captured_done(&c);
    mem_free(text);
}

static void a_table_begins_on_its_own_line(void **state)
{
    (void)state;
    struct captured c;
    capture();
    log_table(LOG_INFO, "src/server.c", 3, "+--+\n|\"x|\n+--+\n");
    log_table(LOG_INFO, "src/server.c", 4, "+--+");
    end_capture(&c);
    assert_int_equal(c.n[0], 2);
    assert_matches(c.writes[0][0],
                   "^I" TIME_PATTERN "server\\.c:3\\] \n\\+--\\+\n\\|\"x\\|\n\\+--\\+\n\n$");
    assert_matches(c.writes[0][1], "server\\.c:4\\] \n\\+--\\+\n\n$");
    captured_done(&c);
}

static void repeats_are_counted(void **state)
{
    (void)state;
    struct captured c;
    capture();
    for (int i = 0; i < 4; i++)
        log_text(LOG_WARN, "r.c", 1, "again");
    log_text(LOG_WARN, "r.c", 2, "again"); /* a different line */
    log_text(LOG_WARN, "r.c", 2, "again");
    log_flush();
    log_flush(); /* no repeat is left */
    end_capture(&c);
    assert_int_equal(c.n[1], 4);
    assert_matches(c.writes[1][0], "r\\.c:1\\] \"again\"\n$");
    assert_matches(c.writes[1][1], "^W.*r\\.c:1\\] \"last message repeated 3 times\"\n$");
    assert_matches(c.writes[1][2], "r\\.c:2\\] \"again\"\n$");
    assert_matches(c.writes[1][3], "^W.*r\\.c:2\\] \"last message repeated 1 time\"\n$");
    captured_done(&c);
}

static void repeats_are_printed_within_a_second(void **state)
{
    (void)state;
    struct captured c;
    capture();
    log_text(LOG_WARN, "r.c", 1, "again");
    clock_fake_advance(&fake, NS_PER_S / 2);
    log_text(LOG_WARN, "r.c", 1, "again"); /* held back */
    clock_fake_advance(&fake, NS_PER_S / 2);
    log_text(LOG_WARN, "r.c", 1, "again"); /* printed with this message */
    clock_fake_advance(&fake, NS_PER_S);
    log_text(LOG_WARN, "r.c", 1, "again"); /* the last one is long ago: printed itself */
    end_capture(&c);
    assert_int_equal(c.n[1], 3);
    assert_matches(c.writes[1][1], "repeated 2 times");
    assert_matches(c.writes[1][2], "\"again\"");
    captured_done(&c);
}

static void a_file_takes_all_messages(void **state)
{
    (void)state;
    char folder[] = "/tmp/test-log-XXXXXX", path[64];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/log", folder);
    for (int round = 0; round < 2; round++) { /* the second round appends */
        assert_null(log_open_file(path));
        log_info("to the file");
        log_error("this too");
    }
    /* A failure to open a file changes nothing. */
    struct status *st = log_open_file("/nonexistent/folder/log");
    assert_non_null(st);
    assert_string_equal(
        status_message(st),
        "failed to open log file '/nonexistent/folder/log': No such file or directory");
    status_free(st);
    log_warn("still there");
    assert_null(log_open_file(""));

    FILE *f = fopen(path, "r");
    char bytes[1024] = "";
    size_t n = fread(bytes, 1, sizeof(bytes) - 1, f);
    fclose(f);
    assert_true(n > 0);
    assert_matches(bytes, "^I[^\n]*to the file\"\nE[^\n]*too\"\nI[^\n]*to the file\"\nE[^\n]*"
                          "too\"\nW[^\n]*still there\"\n$");
    unlink(path);
    rmdir(folder);
}

/* While the pipe is full, lines are dropped and counted. The count is printed when the pipe is
 * read again. */
static void a_full_pipe_loses_lines_but_blocks_no_thread(void **state)
{
    (void)state;
    int fds[2];
    assert_int_equal(pipe2(fds, O_NONBLOCK | O_CLOEXEC), 0);
    fcntl(fds[0], F_SETPIPE_SZ, 4096);
    replace_console(fds[1], fcntl(fds[1], F_DUPFD_CLOEXEC, 10));
    char *text = letters(3000);
    uint64_t before_ns = monotonic_ns();
    for (int i = 0; i < 200; i++)
        log_info("%d %s", i, text);
    uint64_t took_ns = monotonic_ns() - before_ns;

    static char bytes[1 << 20];
    size_t size = 0;
    ssize_t n;
    for (int i = 0; i < 2; i++) {
        while ((n = read(fds[0], bytes + size, sizeof(bytes) - 1 - size)) > 0)
            size += (size_t)n;
        if (i == 0)
            log_info("back again");
    }
    restore_console();
    close(fds[0]);
    mem_free(text);
    assert_in_range(took_ns, 0, 100 * NS_PER_S); /* and not a second for each line */
    bytes[size] = '\0';
    assert_matches(bytes, "\nW[^\n]*\"1[0-9]+ log lines were lost\"\nI[^\n]*\"back again\"\n$");
}

static void errors_of_write_are_survived(void **state)
{
    (void)state;
    signal(SIGPIPE, SIG_IGN);
    int fds[2];
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    close(fds[0]);
    int err = open("/dev/full", O_WRONLY | O_CLOEXEC);
    assert_true(err >= 0);
    replace_console(fds[1], err);
    errno = 77;
    log_info("to a closed pipe");
    log_error("to a full disk");
    int errno_after = errno;
    restore_console();
    assert_int_equal(errno_after, 77);

    struct captured c;
    capture();
    log_info("well again");
    log_info("and well");
    log_error("this too");
    end_capture(&c);
    assert_int_equal(c.n[0], 3);
    assert_matches(c.writes[0][0], "^W.*\"1 log line was lost\"\n$");
    assert_int_equal(c.n[1], 2);
    assert_matches(c.writes[1][0], "^W.*\"1 log line was lost\"\n$");
    captured_done(&c);
}

/* ---- With the thread: nobody who logs waits, and the descriptors stay as they were ----------- */

/* Reads until this text has arrived, and returns all of it. */
static char *read_until(int fd, const char *text)
{
    size_t size = 0, room = 8 << 20;
    char *bytes = mem_alloc(room);
    bytes[0] = '\0';
    while (!strstr(bytes + (size > 4096 ? size - 4096 : 0), text)) {
        ssize_t n = read(fd, bytes + size, MIN(room - 1 - size, (size_t)2048));
        assert_true(n > 0);
        size += (size_t)n;
        bytes[size] = '\0';
    }
    return bytes;
}

/* Replaces the console by a pipe that blocks a writer when it is full, as the console of a
 * program does. */
static int replace_console_by_pipe(void)
{
    int fds[2];
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    fcntl(fds[0], F_SETPIPE_SZ, 4096);
    replace_console(fds[1], fcntl(fds[1], F_DUPFD_CLOEXEC, 10));
    return fds[0];
}

/* As strstr(), for which the address sanitizer would read the whole text at each call. */
static const char *find(const char *text, const char *part)
{
    size_t size = strlen(part);
    while (*text && strncmp(text, part, size) != 0)
        text++;
    return *text ? text : NULL;
}

/* Asserts that the numbers of the lines "number N" are 0, 1, … without a gap, and returns how
 * many there are. */
static unsigned long count_numbers(const char *bytes)
{
    unsigned long n = 0;
    for (const char *at = bytes; (at = find(at, "number ")); n++) {
        at += strlen("number ");
        assert_int_equal(strtoul(at, NULL, 10), n);
    }
    return n;
}

/* The number of lost lines is printed whenever there is room again, so perhaps in portions. */
static unsigned long count_lost(const char *bytes)
{
    unsigned long n = 0;
    for (const char *at = bytes; (at = find(at, " log line")); at++) { /* "1 log line was lost" */
        const char *number = at;
        while (number[-1] >= '0' && number[-1] <= '9')
            number--;
        n += strtoul(number, NULL, 10);
    }
    return n;
}

static void an_unread_pipe_blocks_no_thread(void **state)
{
    (void)state;
    enum { N = 30000 };
    char *text = letters(100);
    int fd = replace_console_by_pipe();
    log_start();
    alarm(120); /* it would wait for ever */
    for (int i = 0; i < N; i++)
        log_write(i % 2 ? LOG_INFO : LOG_ERROR, "n.c", i, "number %d %s", i, text);
    alarm(0);
    assert_false(log_await(0));
    char *bytes = read_until(fd, "lines were lost\"\n"); /* printed after the rest */
    log_warn("back again");
    char *more = read_until(fd, "back again\"\n");
    assert_true(log_await(60000));
    log_stop();
    restore_console();
    close(fd);

    /* The lines that fitted are in their order, whatever their level; the missing lines are
     * counted. */
    unsigned long n = count_numbers(bytes);
    assert_in_range(n, LOG_QUEUE_BYTES / 300, N - 1);
    assert_int_equal(count_lost(bytes) + count_lost(more), N - n);
    mem_free(bytes);
    mem_free(more);
    mem_free(text);
}

static void a_long_table_waits_for_room(void **state)
{
    (void)state;
    enum { N = 60000 };
    char *table = mem_alloc(N * 40), *end = table;
    for (int i = 0; i < N; i++)
        end += snprintf(end, 40, "| row number %d |\n", i);
    int fd = replace_console_by_pipe();
    log_start();
    pid_t reader = fork();
    if (reader == 0) { /* reads until the pipe is closed */
        char *bytes = read_until(fd, "the end\"\n");
        _exit(count_numbers(bytes) == N ? 0 : 1);
    }
    log_table(LOG_INFO, "t.c", 1, table);
    log_info("the end");
    log_stop();
    restore_console();
    close(fd);
    int result;
    assert_int_equal(waitpid(reader, &result, 0), reader);
    assert_int_equal(result, 0);
    mem_free(table);
}

/* The child of a fork has no log thread: its messages are written at once, and the queue of its
 * parent is not. */
static void a_fork_does_not_repeat_its_parents_lines(void **state)
{
    (void)state;
    int fd = replace_console_by_pipe();
    log_start();
    char *text = letters(3000);
    for (int i = 0; i < 20; i++)
        log_write(LOG_INFO, "n.c", i, "number %d %s", i, text);
    assert_false(log_await(0));
    pid_t pid = fork();
    if (pid == 0) {
        log_info("the child");
        log_stop();
        _exit(log_await(0) ? 0 : 1);
    }
    log_info("the parent");
    char *bytes = read_until(fd, "the parent\"\n");
    int result;
    assert_int_equal(waitpid(pid, &result, 0), pid);
    assert_int_equal(result, 0);
    assert_int_equal(count_numbers(bytes), 20);
    log_stop();
    restore_console();
    close(fd);
    mem_free(bytes);
    mem_free(text);
}

static void unformatted_lines_keep_their_order(void **state)
{
    (void)state;
    int fd = replace_console_by_pipe();
    log_start();
    log_info("first");
    log_print(LOG_INFO, "Signal (15) received.");
    log_error("last");
    char *bytes = read_until(fd, "last\"\n");
    log_stop();
    restore_console();
    close(fd);
    assert_matches(bytes, "\"first\"\nSignal \\(15\\) received\\.\nE[^\n]*\"last\"\n$");
    mem_free(bytes);
}

/* Many threads, lines longer than PIPE_BUF, a slow pipe: every line arrives whole, exactly once. */

enum { N_WRITERS = 4, N_LINES = 100, LINE_LENGTH = 6000 };

static void write_lines(void *arg)
{
    char c = *(char *)arg;
    char text[LINE_LENGTH + 1];
    memset(text, c, LINE_LENGTH);
    text[LINE_LENGTH] = '\0';
    for (int i = 0; i < N_LINES; i++)
        log_info("%03d%s", i, text);
}

static void lines_of_many_threads_stay_whole(void **state)
{
    (void)state;
    int fds[2];
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    replace_console(fds[1], fcntl(fds[1], F_DUPFD_CLOEXEC, 10));
    struct thread writers[N_WRITERS];
    char names[N_WRITERS];
    for (int i = 0; i < N_WRITERS; i++) {
        names[i] = (char)('A' + i);
        assert_null(thread_start(&writers[i], "writer", write_lines, &names[i]));
    }
    FILE *f = fdopen(fds[0], "r");
    char *line = NULL;
    size_t room = 0;
    int next[N_WRITERS] = {0}, n_bad = 0;
    for (int i = 0; i < N_WRITERS * N_LINES; i++) {
        ssize_t n = getline(&line, &room, f);
        char *quoted = n > 0 ? strchr(line, '"') : NULL;
        int writer = quoted ? quoted[4] - 'A' : -1;
        if (writer < 0 || writer >= N_WRITERS || strlen(quoted) != 1 + 3 + LINE_LENGTH + 2 ||
            strspn(quoted + 4, (char[]){quoted[4], 0}) != LINE_LENGTH ||
            strtol(quoted + 1, NULL, 10) != next[writer]++)
            n_bad++;
    }
    for (int i = 0; i < N_WRITERS; i++)
        thread_join(&writers[i]);
    restore_console();
    free(line);
    fclose(f);
    assert_int_equal(n_bad, 0);
}

static void an_error_ends_in_the_log(void **state)
{
    (void)state;
    struct captured c;
    capture();
    log_status(LOG_ERROR, "loading 'm'", status_new(STATUS_NOT_FOUND, "no file '%s'", "x"));
    log_status(LOG_ERROR, "nothing", NULL);
    log_set_settings(&(struct log_settings){0});
    log_status(LOG_ERROR, "off", status_new(STATUS_NOT_FOUND, "freed all the same"));
    end_capture(&c);
    assert_int_equal(c.n[1], 1);
    assert_matches(c.writes[1][0],
                   "test_log\\.c:[0-9]+\\] \"loading 'm': Not found: no file 'x'\"\n$");
    captured_done(&c);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "print-three") == 0) {
        clock_fake_init(&fake, 1000 * NS_PER_S);
        log_set_clock(&fake.clock); /* no second passes between them */
        for (int i = 0; i < 3; i++)
            log_text(LOG_INFO, "one.c", 1, "again");
        return 0;
    }
    if (argc > 1 && strcmp(argv[1], "print-one") == 0) {
        log_text(LOG_INFO, "one.c", 1, "a\"b");
        return 0;
    }
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, forget)
    const struct CMUnitTest tests[] = {
        TEST(messages_go_to_the_console_in_the_default_format),
        TEST(changes_of_two_threads_are_both_kept),
        TEST(settings_are_read_while_a_line_is_logged),
        TEST(format_and_levels_change_at_run_time),
        TEST(lines_are_json_objects_on_one_stream),
        TEST(a_long_json_line_is_whole),
        TEST(arguments_of_levels_that_are_off_are_not_evaluated),
        TEST(every_byte_is_escaped_without_loss),
        TEST(control_characters_are_escaped),
        TEST(huge_messages_are_cut),
        TEST(the_environment_turns_escaping_off),
        TEST(long_messages_are_whole_and_one_write),
        TEST(without_memory_a_long_message_is_cut),
        TEST(ordinary_messages_allocate_nothing),
        TEST(a_table_begins_on_its_own_line),
        TEST(repeats_are_counted),
        TEST(repeats_are_printed_within_a_second),
        TEST(repeats_are_printed_at_the_end),
        TEST(a_file_takes_all_messages),
        TEST(a_full_pipe_loses_lines_but_blocks_no_thread),
        TEST(errors_of_write_are_survived),
        TEST(lines_of_many_threads_stay_whole),
        TEST(an_unread_pipe_blocks_no_thread),
        TEST(a_long_table_waits_for_room),
        TEST(a_fork_does_not_repeat_its_parents_lines),
        TEST(unformatted_lines_keep_their_order),
        TEST(an_error_ends_in_the_log),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
