/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A job that several threads share: each index is called once, by at most as many threads as
 * wanted, and by one more thread for each that lends its share.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "base/parallel_for.h"

enum { N = 1000 };

static atomic_uint n_calls[N], n_inside, most_inside;
static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

static void enter(size_t i)
{
    atomic_fetch_add(&n_calls[i], 1);
    unsigned int n = atomic_fetch_add(&n_inside, 1) + 1, most = atomic_load(&most_inside);
    while (n > most && !atomic_compare_exchange_weak(&most_inside, &most, n))
        ;
    pthread_mutex_lock(&mu);
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mu);
}

static void count(void *arg, size_t i)
{
    (void)arg;
    assert_non_null(parallel_worker_mine());
    enter(i);
    atomic_fetch_sub(&n_inside, 1);
}

/* Waits until n threads are inside at the same time. */
static void wait_for(unsigned int n)
{
    pthread_mutex_lock(&mu);
    while (atomic_load(&most_inside) < n)
        pthread_cond_wait(&changed, &mu);
    pthread_mutex_unlock(&mu);
}

static void run(size_t max_threads, size_t n, void (*work)(void *arg, size_t i))
{
    for (size_t i = 0; i < N; i++)
        atomic_store(&n_calls[i], 0);
    atomic_store(&n_inside, 0);
    atomic_store(&most_inside, 0);
    parallel_for(&(struct parallel_options){"test", max_threads, NULL}, n, work, NULL);
    for (size_t i = 0; i < N; i++)
        assert_int_equal(atomic_load(&n_calls[i]), i < n);
    assert_null(parallel_worker_mine());
}

static void each_index_is_called_once(void **state)
{
    (void)state;
    static const size_t threads[] = {0, 1, 2, 7, 1000}, sizes[] = {0, 1, 2, N};
    for (size_t t = 0; t < ARRAY_SIZE(threads); t++) {
        for (size_t n = 0; n < ARRAY_SIZE(sizes); n++) {
            run(threads[t], sizes[n], count);
            assert_true(atomic_load(&most_inside) <= (threads[t] ? threads[t] : 1));
        }
    }
}

static void meet_three(void *arg, size_t i)
{
    (void)arg;
    enter(i);
    wait_for(3);
    atomic_fetch_sub(&n_inside, 1);
}

/* With fewer threads the test would not end. */
static void as_many_threads_run_as_wanted(void **state)
{
    (void)state;
    run(3, 9, meet_three);
    assert_int_equal(atomic_load(&most_inside), 3);
}

/* The first call waits until two others are inside with it, although there are two threads. */
static void lend_until_three(void *arg, size_t i)
{
    (void)arg;
    enter(i);
    if (i == 0) {
        parallel_worker_lend(parallel_worker_mine());
        wait_for(3);
        parallel_worker_take_back(parallel_worker_mine());
    } else {
        wait_for(3);
    }
    atomic_fetch_sub(&n_inside, 1);
}

static void a_thread_that_lends_its_share_lets_another_one_run(void **state)
{
    (void)state;
    run(2, 100, lend_until_three);
    assert_int_equal(atomic_load(&most_inside), 3);
}

static void run_inner(void *arg, size_t i)
{
    struct parallel_worker *outer = parallel_worker_mine();
    enter(i);
    if (i == 0)
        parallel_for(&(struct parallel_options){"inner", 2, NULL}, 0, count, arg);
    assert_ptr_equal(parallel_worker_mine(), outer);
    atomic_fetch_sub(&n_inside, 1);
}

static void a_parallel_for_may_contain_another(void **state)
{
    (void)state;
    run(2, 10, run_inner);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_index_is_called_once),
        cmocka_unit_test(as_many_threads_run_as_wanted),
        cmocka_unit_test(a_thread_that_lends_its_share_lets_another_one_run),
        cmocka_unit_test(a_parallel_for_may_contain_another),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
