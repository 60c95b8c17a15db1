/* SPDX-License-Identifier: Apache-2.0 */
/* A file that is watched is read again when it changes, and once more when that reading failed. */
#include "base/file_watch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/status.h"

static char path[] = "/tmp/conch-watch-XXXXXX";
static atomic_int n_calls;
static atomic_int n_failures; /* as many calls fail */

static bool count_call(void *arg)
{
    assert_ptr_equal(arg, path);
    return atomic_fetch_add(&n_calls, 1) >= atomic_load(&n_failures);
}

static void append_to_file(void)
{
    FILE *f = fopen(path, "a");
    assert_non_null(f);
    fputs("more\n", f);
    fclose(f);
}

static void wait_for_calls(int n)
{
    uint64_t until_ns = monotonic_ns() + 60 * NS_PER_S;
    while (atomic_load(&n_calls) < n)
        assert_true(monotonic_ns() < until_ns);
    assert_int_equal(atomic_load(&n_calls), n);
}

static void a_reading_that_failed_is_repeated(void **state)
{
    (void)state;
    struct file_watch_options o = {.thread_name = "watch",
                                   .paths = {path},
                                   .check_ns = NS_PER_MS / 5,
                                   .on_change = count_call,
                                   .arg = path};
    close(mkstemp(path));
    struct file_watch *w = file_watch_new(&o);
    assert_null(file_watch_start(w));
    append_to_file();
    wait_for_calls(1);

    atomic_store(&n_failures, 3);
    append_to_file();
    wait_for_calls(4);

    /* A call that has succeeded is the last: a further change adds one. */
    append_to_file();
    wait_for_calls(5);
    file_watch_free(w);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_reading_that_failed_is_repeated),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
