/* SPDX-License-Identifier: Apache-2.0 */
#include "common/backend.c"
#include "common/doc.c"
#include "python/watcher.c"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>

#include <cmocka.h>

static atomic_uint n_run;

static void count_job(struct job *j)
{
    (void)j;
    atomic_fetch_add(&n_run, 1);
}

static void await_runs(unsigned int n)
{
    while (atomic_load(&n_run) < n)
        sched_yield();
}

static void jobs_run_on_its_thread(void **state)
{
    struct job first = {.run = count_job}, second = {.run = count_job};

    (void)state;
    atomic_store(&n_run, 0);
    assert_null(watcher_ref());
    watcher_post(&first);
    watcher_post(&second);
    await_runs(2);
    watcher_post(&first);
    await_runs(3);
    watcher_unref();
    assert_int_equal(watcher.epoll, -1);
}

/* A job that waits behind another is posted once more, as by another thread; and the thread is told
 * to stop before it has seen any of them. */

static struct job again = {.run = count_job};

static bool is_true_of_watcher(bool (*holds)(void))
{
    pthread_mutex_lock(&watcher.mu);
    const bool ret = holds();
    pthread_mutex_unlock(&watcher.mu);
    return ret;
}

static bool stops(void)
{
    return watcher.stops;
}

static bool has_taken_all(void)
{
    return !watcher.first_job;
}

static void wait_for_stop(struct job *j)
{
    (void)j;
    while (!is_true_of_watcher(stops))
        sched_yield();
}

static void post_again(struct job *j)
{
    (void)j;
    watcher_post(&again);
}

static void no_job_is_lost(void **state)
{
    struct job wait = {.run = wait_for_stop}, post = {.run = post_again}, last = {.run = count_job};

    (void)state;
    atomic_store(&n_run, 0);
    assert_null(watcher_ref());
    watcher_post(&wait);
    while (!is_true_of_watcher(has_taken_all))
        sched_yield();
    watcher_post(&post);
    watcher_post(&again);
    watcher_post(&last);
    watcher_unref();
    assert_int_equal(atomic_load(&n_run), 2);
    assert_false(last.posted);
    assert_int_equal(watcher.epoll, -1);
}

/* A job sets a time; the time has come. */

static void count_time(struct timer *t)
{
    (void)t;
    atomic_fetch_add(&n_run, 1);
}

static struct timer soon = {.due = count_time}, never = {.due = count_time};

static void set_times(struct job *j)
{
    (void)j;
    watcher_set_timer(&never, backend_now_ns() + 1000 * UINT64_C(1000000000));
    watcher_set_timer(&soon, backend_now_ns() + 1000000);
    watcher_set_timer(&never, backend_now_ns() + 2000 * UINT64_C(1000000000));
}

static void clear_times(struct job *j)
{
    (void)j;
    watcher_clear_timer(&never);
    watcher_clear_timer(&never);
    atomic_fetch_add(&n_run, 1);
}

static void times_come(void **state)
{
    struct job set = {.run = set_times}, clear = {.run = clear_times};

    (void)state;
    atomic_store(&n_run, 0);
    assert_null(watcher_ref());
    watcher_post(&set);
    await_runs(1);
    watcher_post(&clear);
    await_runs(2);
    watcher_unref();
    assert_null(watcher.timers);
}

static atomic_bool released;

/* As a thread does that loads another Python model. */
static void use_when_released(void *arg)
{
    (void)arg;
    while (!atomic_load(&released))
        sched_yield();
    assert_null(watcher_ref());
    watcher_unref();
    atomic_fetch_add(&n_run, 1);
}

static void the_last_user_does_not_wait_for_helpers(void **state)
{
    (void)state;
    atomic_store(&n_run, 0);
    atomic_store(&released, false);
    assert_null(watcher_ref());
    assert_null(watcher_run(use_when_released, NULL));
    watcher_unref();
    assert_true(watcher.epoll >= 0); /* it joins the helper */
    atomic_store(&released, true);
    watcher_close();
    assert_int_equal(atomic_load(&n_run), 1);
    assert_int_equal(watcher.epoll, -1);
    assert_int_equal(watcher.n_helpers, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(jobs_run_on_its_thread),
        cmocka_unit_test(no_job_is_lost),
        cmocka_unit_test(times_come),
        cmocka_unit_test(the_last_user_does_not_wait_for_helpers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
