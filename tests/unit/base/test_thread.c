/* SPDX-License-Identifier: Apache-2.0 */
#include "base/thread.h"

#include <limits.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/status.h"

struct seen {
    char name[32];
    bool blocks_term, blocks_usr1;
    int calls;
};

static void look(void *arg)
{
    struct seen *s = arg;
    sigset_t set;
    pthread_sigmask(SIG_SETMASK, NULL, &set);
    s->blocks_term = sigismember(&set, SIGTERM);
    s->blocks_usr1 = sigismember(&set, SIGUSR1);
    pthread_getname_np(pthread_self(), s->name, sizeof(s->name));
    s->calls++;
}

static struct seen run_one(void)
{
    struct thread t;
    struct seen s = {.calls = 0};
    assert_null(thread_start(&t, "a-rather-long-name", look, &s));
    thread_join(&t);
    assert_int_equal(s.calls, 1);
    return s;
}

static void a_thread_has_its_name_and_the_mask_of_its_starter(void **state)
{
    (void)state;
    sigset_t one, before, after;
    sigemptyset(&one);
    sigaddset(&one, SIGUSR1);
    struct seen s = run_one();
    assert_string_equal(s.name, "a-rather-long-n");
    assert_false(s.blocks_term || s.blocks_usr1);
    pthread_sigmask(SIG_BLOCK, &one, &before);
    s = run_one();
    assert_true(!s.blocks_term && s.blocks_usr1);
    pthread_sigmask(SIG_SETMASK, &before, &after);
    assert_true(sigismember(&after, SIGUSR1) && !sigismember(&after, SIGTERM)); /* unchanged */
}

/* The thread that makes a server chooses the signal mask, not the thread that later needs
 * another thread. */
static void a_thread_has_the_mask_that_was_kept(void **state)
{
    (void)state;
    sigset_t term, usr1, before;
    sigemptyset(&term);
    sigaddset(&term, SIGTERM);
    sigemptyset(&usr1);
    sigaddset(&usr1, SIGUSR1);
    pthread_sigmask(SIG_SETMASK, &usr1, &before);
    thread_keep_mask();
    pthread_sigmask(SIG_SETMASK, &term, NULL);
    struct seen s = run_one();
    assert_true(!s.blocks_term && s.blocks_usr1);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    thread_keep_mask();
}

/* ---- A handler for a thread whose stack is full ---------------------------------------------- */

static void say_and_exit(int number)
{
    (void)number;
    _exit(42);
}

static int fill_stack(volatile char *before)
{
    volatile char more[4096];
    more[0] = before ? before[0] : 1;
    return more[0] ? fill_stack(more) + more[0] : 0; /* always true */
}

static void overflow(void *arg)
{
    (void)arg;
    fill_stack(NULL);
}

static void a_handler_runs_when_the_stack_is_full(void **state)
{
    (void)state;
    pid_t pid = fork();
    if (pid == 0) {
        struct thread t;
        struct sigaction action = {.sa_handler = say_and_exit, .sa_flags = SA_ONSTACK};
        sigaction(SIGSEGV, &action, NULL);
        status_free(thread_start(&t, "overflows", overflow, NULL));
        thread_join(&t);
        _exit(1);
    }
    int result;
    assert_int_equal(waitpid(pid, &result, 0), pid);
    assert_true(WIFEXITED(result));
    assert_int_equal(WEXITSTATUS(result), 42);
}

static void the_signal_stack_is_freed(void **state)
{
    (void)state;
    stack_t before, after;
    sigaltstack(NULL, &before);
    for (int i = 0; i < 100; i++)
        run_one();
    sigaltstack(NULL, &after);
    assert_ptr_equal(before.ss_sp, after.ss_sp);
}

static atomic_bool is_over;

static void spin(void *arg)
{
    (void)arg;
    while (!atomic_load(&is_over)) {
    }
}

/* Two threads spin on one CPU, and wait for each other. */
static void a_thread_reports_how_long_it_waited_for_a_cpu(void **state)
{
    (void)state;
    struct thread t;
    cpu_set_t all, one;
    if (access("/proc/thread-self/schedstat", R_OK) != 0) {
        assert_int_equal(thread_waited_ns(), 0); /* this system does not report it */
        return;
    }
    assert_int_equal(sched_getaffinity(0, sizeof(all), &all), 0);
    CPU_ZERO(&one);
    CPU_SET((size_t)sched_getcpu(), &one);
    assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
    assert_null(thread_start(&t, "spins", spin, NULL)); /* on the same CPU */
    uint64_t before_ns = thread_waited_ns();
    while (thread_waited_ns() < before_ns + 1000000) {
    }
    atomic_store(&is_over, true);
    thread_join(&t);
    assert_int_equal(sched_setaffinity(0, sizeof(all), &all), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_thread_has_its_name_and_the_mask_of_its_starter),
        cmocka_unit_test(a_thread_has_the_mask_that_was_kept),
        cmocka_unit_test(a_handler_runs_when_the_stack_is_full),
        cmocka_unit_test(the_signal_stack_is_freed),
        cmocka_unit_test(a_thread_reports_how_long_it_waited_for_a_cpu),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
