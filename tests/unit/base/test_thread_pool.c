/* SPDX-License-Identifier: Apache-2.0 */
#include "base/thread_pool.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/mutex.h"
#include "base/pool.h"
#include "base/thread.h"

struct visitor {
    struct pool *pool;
    void *block;
};

static void visit(void *arg)
{
    struct visitor *v = arg;
    v->pool = thread_pool();
    assert_ptr_equal(thread_pool(), v->pool);
    v->block = pool_alloc(v->pool, 1000, NULL);
    memset(v->block, 1, 1000);
    pool_release(pool_alloc(v->pool, 100000, NULL)); /* freed at the end of the thread */
}

/* Threads that run one after another use one pool, which keeps no memory between them. */
static void an_ended_threads_pool_is_taken_over(void **state)
{
    (void)state;
    struct pool *mine = thread_pool();
    struct visitor first, others;
    struct thread t;
    assert_null(thread_start(&t, "visitor", visit, &first));
    thread_join(&t);
    assert_ptr_not_equal(first.pool, mine);
    size_t count = thread_pools_count();
    for (int i = 0; i < 100; i++) {
        assert_null(thread_start(&t, "visitor", visit, &others));
        thread_join(&t);
        assert_ptr_equal(others.pool, first.pool);
        pool_release(others.block);
    }
    assert_int_equal(thread_pools_count(), count);
    assert_ptr_equal(thread_pool(), mine);
    pool_release(first.block); /* its thread ended before */
    struct pool_stats stats;
    thread_pools_trim();
    pool_stats(first.pool, &stats);
    assert_int_equal(stats.used_bytes, 0);
    assert_int_equal(stats.unused_bytes, 0);
}

enum { N_THREADS = 8 };

struct meeting {
    struct mutex mu;
    struct cond changed;
    size_t n_here;
    struct pool *pools[N_THREADS];
};

static void meet(void *arg)
{
    struct meeting *m = arg;
    struct pool *pool = thread_pool();
    mutex_lock(&m->mu);
    m->pools[m->n_here++] = pool;
    cond_broadcast(&m->changed);
    while (m->n_here < N_THREADS)
        cond_wait(&m->changed, &m->mu);
    mutex_unlock(&m->mu);
}

static void concurrent_threads_have_pools_of_their_own(void **state)
{
    (void)state;
    for (int round = 0; round < 50; round++) {
        struct meeting m = {0};
        struct thread threads[N_THREADS];
        mutex_init(&m.mu, 1, "test");
        cond_init(&m.changed);
        for (size_t i = 0; i < N_THREADS; i++)
            assert_null(thread_start(&threads[i], "one", meet, &m));
        for (size_t i = 0; i < N_THREADS; i++)
            thread_join(&threads[i]);
        for (size_t i = 0; i < N_THREADS; i++) {
            assert_ptr_not_equal(m.pools[i], thread_pool());
            for (size_t j = 0; j < i; j++)
                assert_ptr_not_equal(m.pools[i], m.pools[j]);
        }
        assert_true(thread_pools_count() <= N_THREADS + 2);
        cond_done(&m.changed);
        mutex_done(&m.mu);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_ended_threads_pool_is_taken_over),
        cmocka_unit_test(concurrent_threads_have_pools_of_their_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
