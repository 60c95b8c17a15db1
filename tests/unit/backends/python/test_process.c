/* SPDX-License-Identifier: Apache-2.0 */
#include "common/backend.c"
#include "common/doc.c"
#include "python/process.c"

#include <ctype.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

/* A shell that runs this script; its descriptor 3 is one end of a pipe of ours. */
static int start_shell(struct process *p, const char *script, const char *const *changes)
{
    const char *const arguments[] = {"-c", script, NULL};
    int both[2];

    assert_int_equal(pipe(both), 0);
    const struct process_start start = {.python = "/bin/sh",
                                        .arguments = arguments,
                                        .changes = changes,
                                        .more = "CONCH_C=more",
                                        .socket = both[1],
                                        .page = both[1],
                                        .down = both[1],
                                        .up = both[1]};
    TRITONSERVER_Error *err = process_spawn(p, &start);
    assert_null(err);
    close(both[1]);
    return both[0];
}

static void read_all(int fd, char *text, size_t room)
{
    size_t n = 0;
    ssize_t more;

    while ((more = read(fd, text + n, room - n - 1)) > 0)
        n += (size_t)more;
    text[n] = 0;
    close(fd);
}

static void await_it(struct process *p)
{
    struct pollfd f = {.fd = p->pidfd, .events = POLLIN};

    assert_int_equal(poll(&f, 1, 60000), 1);
    assert_true(process_has_ended(p));
    process_reap(p);
}

static void it_has_its_descriptors_and_no_others(void **state)
{
    struct process p;
    char text[4096];

    (void)state;
    /* Of the shell's `ls`, which has one for the folder that it lists. */
    const int other = fcntl(0, F_DUPFD, 200); /* inherited, if nothing closed it */
    const int fd = start_shell(&p, "ls /proc/self/fd >&3", NULL);
    read_all(fd, text, sizeof text);
    await_it(&p);
    close(other);
    assert_non_null(strstr(text, "0\n1\n2\n3\n4\n5\n6\n"));
    assert_null(strstr(text, "200"));
    assert_string_equal(p.cause, "exited with code 0");
    process_done(&p);
}

static void its_environment_is_changed(void **state)
{
    static const char *const changes[] = {"CONCH_A=new", "CONCH_B", NULL};
    struct process p;
    char text[4096];

    (void)state;
    setenv("CONCH_A", "old", 1);
    setenv("CONCH_B", "gone", 1);
    setenv("CONCH_AB", "stays", 1);
    setenv("CONCH_C", "less", 1);
    const int fd = start_shell(&p, "echo $CONCH_A.$CONCH_B.$CONCH_AB.$CONCH_C >&3", changes);
    read_all(fd, text, sizeof text);
    await_it(&p);
    assert_string_equal(text, "new..stays.more\n");
    process_done(&p);
}

static void signals_are_as_at_a_start(void **state)
{
    struct process p;
    char text[4096];
    sigset_t all, before;

    (void)state;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    signal(SIGTERM, SIG_IGN);
    const int fd = start_shell(&p, "grep -E 'Sig(Blk|Ign)' /proc/self/status >&3", NULL);
    signal(SIGTERM, SIG_DFL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    read_all(fd, text, sizeof text);
    await_it(&p);
    assert_memory_equal(text, "SigBlk:\t0000000000000000\nSigIgn:\t", 32);
    /* The C library has 32 and 33, and lets nobody change them. */
    assert_int_equal(strtoull(text + 32, NULL, 16) & ~(UINT64_C(3) << 31), 0);
    process_done(&p);
}

static void the_cause_of_its_end_is_told(void **state)
{
    static const struct {
        const char *script, *cause;
    } cases[] = {
        {"exit 3", "exited with code 3"},
        {"kill -SEGV $$", "was killed by signal 11 (Segmentation fault)"},
        {"kill -KILL $$", "was killed by signal 9 (Killed)"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct process p;
        const int fd = start_shell(&p, cases[i].script, NULL);

        await_it(&p);
        assert_string_equal(p.cause, cases[i].cause);
        process_done(&p);
        close(fd);
    }
}

/* The pipe is closed once the last process that has it has ended. */
static void a_lack_of_memory_is_told(void **state)
{
    struct process p;
    const int fd = start_shell(&p, "kill -KILL $$", NULL);

    (void)state;
    assert_int_not_equal(p.memory_kills, UINT64_MAX); /* the kernel counts */
    p.memory_kills--;                                 /* as if one had been counted meanwhile */
    await_it(&p);
    assert_string_equal(p.cause, "was killed by signal 9 (Killed, since memory ran out)");
    process_done(&p);
    close(fd);
}

static void what_it_has_started_ends_with_it(void **state)
{
    struct process p;
    char text[64], byte;

    (void)state;
    int fd = start_shell(&p, "sleep 1000 & echo $$ >&3; exit 0", NULL);
    await_it(&p);
    read_all(fd, text, sizeof text);
    assert_true(isdigit((unsigned char)text[0]));
    process_done(&p);

    fd = start_shell(&p, "sleep 1000 & echo >&3; wait", NULL);
    assert_int_equal(read(fd, &byte, 1), 1);
    assert_false(process_has_ended(&p));
    process_done(&p); /* kills it */
    read_all(fd, text, sizeof text);
}

static void one_that_is_not_there_is_an_error(void **state)
{
    const char *const arguments[] = {NULL};
    struct process p;
    const struct process_start start = {.python = "/nowhere/python3", .arguments = arguments};

    (void)state;
    TRITONSERVER_Error *err = process_spawn(&p, &start);
    assert_non_null(err);
    assert_string_equal(TRITONSERVER_ErrorMessage(err),
                        "cannot start the interpreter '/nowhere/python3': No such file or "
                        "directory");
    TRITONSERVER_ErrorDelete(err);
    process_done(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_has_its_descriptors_and_no_others),
        cmocka_unit_test(its_environment_is_changed),
        cmocka_unit_test(signals_are_as_at_a_start),
        cmocka_unit_test(the_cause_of_its_end_is_told),
        cmocka_unit_test(a_lack_of_memory_is_told),
        cmocka_unit_test(what_it_has_started_ends_with_it),
        cmocka_unit_test(one_that_is_not_there_is_an_error),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
