/* SPDX-License-Identifier: Apache-2.0 */
#include "base/thread.h"

#include <limits.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

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

static void runs_named_and_without_signals(void **state)
{
    (void)state;
    struct thread t;
    struct seen s = {.calls = 0};
    sigset_t before, after;
    pthread_sigmask(SIG_SETMASK, NULL, &before);
    assert_null(thread_start(&t, "a-rather-long-name", look, &s));
    thread_join(&t);
    assert_int_equal(s.calls, 1);
    assert_string_equal(s.name, "a-rather-long-n");
    assert_true(s.blocks_term && s.blocks_usr1);
    pthread_sigmask(SIG_SETMASK, NULL, &after); /* ours is as it was */
    assert_int_equal(sigismember(&before, SIGTERM), sigismember(&after, SIGTERM));
}

static void counts_the_cpus_it_may_use(void **state)
{
    (void)state;
    cpu_set_t all, one;
    assert_int_equal(sched_getaffinity(0, sizeof(all), &all), 0);
    assert_in_range(thread_cpu_count(), 1, CPU_COUNT(&all));
    CPU_ZERO(&one);
    for (int i = 0; i < CPU_SETSIZE; i++) {
        if (CPU_ISSET(i, &all)) {
            CPU_SET(i, &one);
            break;
        }
    }
    assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
    int n = thread_cpu_count();
    assert_int_equal(sched_setaffinity(0, sizeof(all), &all), 0);
    assert_int_equal(n, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_named_and_without_signals),
        cmocka_unit_test(counts_the_cpus_it_may_use),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
