/* SPDX-License-Identifier: Apache-2.0 */
#include "base/cpu_count.h"
#include "base/stripe.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mutex.h"
#include "base/thread.h"

enum { N_THREADS = 4, N_ROUNDS = 300, N_TIMES = 2000 };

/* Counts held objects, as its users do. */
struct held {
    struct stripe *stripes;
    atomic_long rest, n_ends; /* how often the count became 0 */
    atomic_int n_ready;
};

static void change(struct held *h, long n)
{
    if (!stripe_add(h->stripes, STRIPE_REFS, n) && atomic_fetch_add(&h->rest, n) == -n)
        atomic_fetch_add(&h->n_ends, 1);
}

/* Takes objects and gives them back; the last one that it gives back was taken by another
 * thread. */
static void use(void *arg)
{
    struct held *h = arg;
    atomic_fetch_add(&h->n_ready, 1);
    while (atomic_load(&h->n_ready) < N_THREADS) {
    }
    for (int i = 0; i < N_TIMES; i++) {
        change(h, 1);
        change(h, -1);
    }
    change(h, -1);
}

/* The count is closed while threads change it. No change is lost, and its end is seen once. */
static void a_count_is_closed_while_it_changes(void **state)
{
    (void)state;
    for (int round = 0; round < N_ROUNDS; round++) {
        struct held h = {.stripes = stripes_new()};
        struct thread threads[N_THREADS];
        atomic_init(&h.rest, STRIPE_BIAS);
        stripes_open(h.stripes, STRIPE_REFS);
        for (int i = 0; i < N_THREADS; i++) {
            change(&h, 1);
            assert_null(thread_start(&threads[i], "user", use, &h));
        }
        change(&h, 1); /* taken by this thread, so that the end is not before the close */
        while (atomic_load(&h.n_ready) < N_THREADS - round % 2) {
        }
        atomic_fetch_add(&h.rest, stripes_close(h.stripes, STRIPE_REFS) - STRIPE_BIAS);
        change(&h, -1);
        for (int i = 0; i < N_THREADS; i++)
            thread_join(&threads[i]);
        assert_int_equal(atomic_load(&h.rest), 0);
        assert_int_equal(atomic_load(&h.n_ends), 1);
        stripes_free(h.stripes);
    }
}

/* One thread takes and another one gives back, more often than the word can count. */
static void a_stripe_may_wrap(void **state)
{
    (void)state;
    struct stripe *s = stripes_new();
    stripes_open(s, STRIPE_BLOCKS);
    const long much = 1L << 61;
    for (int i = 0; i < 7; i++) {
        atomic_fetch_add(&s[0].words[STRIPE_BLOCKS], 2 * much);
        atomic_fetch_sub(&s[1].words[STRIPE_BLOCKS], 2 * (much - 1));
        assert_int_equal(stripes_sum(s, STRIPE_BLOCKS), i + 1);
    }
    assert_int_equal(stripes_close(s, STRIPE_BLOCKS), 7);
    stripes_free(s);
}

static void a_count_is_the_sum_of_its_stripes(void **state)
{
    (void)state;
    struct stripe *s = stripes_new();
    assert_false(stripe_add(s, STRIPE_INFLIGHT, 5)); /* it is not open */
    stripes_open(s, STRIPE_INFLIGHT);
    stripes_open(s, STRIPE_REFS);
    assert_int_equal(stripes_sum(s, STRIPE_INFLIGHT), 0);
    assert_true(stripe_add(s, STRIPE_INFLIGHT, 5));
    assert_true(stripe_add(s, STRIPE_INFLIGHT, -12));
    assert_true(stripe_add(s, STRIPE_REFS, 1));
    assert_int_equal(stripes_sum(s, STRIPE_INFLIGHT), -7);
    assert_int_equal(stripes_sum(s, STRIPE_REFS), 1);
    assert_int_equal(stripes_close(s, STRIPE_INFLIGHT), -7);
    assert_false(stripe_add(s, STRIPE_INFLIGHT, 1));
    assert_true(stripe_add(s, STRIPE_REFS, 1));
    stripes_free(s);
}

struct place {
    struct mutex mu;
    struct cond changed;
    unsigned int n_here, numbers[STRIPES_MAX];
    bool may_go;
};

static void stand(void *arg)
{
    struct place *p = arg;
    unsigned int number = stripe_here();
    mutex_lock(&p->mu);
    p->numbers[p->n_here++] = number;
    cond_broadcast(&p->changed);
    while (!p->may_go)
        cond_wait(&p->changed, &p->mu);
    mutex_unlock(&p->mu);
}

/* Threads that run at the same time have different lines, however many threads ran before them. */
static void threads_share_no_stripe_while_some_are_free(void **state)
{
    (void)state;
    struct thread threads[STRIPES_MAX];
    unsigned int n = (unsigned int)MIN(cpu_count_usable(), STRIPES_MAX) - 1, mine = stripe_here();
    for (int round = 0; round < 20; round++) {
        struct place p = {0};
        mutex_init(&p.mu, 1, "test");
        cond_init(&p.changed);
        for (unsigned int i = 0; i < n; i++)
            assert_null(thread_start(&threads[i], "one", stand, &p));
        mutex_lock(&p.mu);
        while (p.n_here < n)
            cond_wait(&p.changed, &p.mu);
        p.may_go = true;
        cond_broadcast(&p.changed);
        mutex_unlock(&p.mu);
        for (unsigned int i = 0; i < n; i++) {
            thread_join(&threads[i]);
            assert_int_not_equal(p.numbers[i], mine);
            for (unsigned int j = 0; j < i; j++)
                assert_int_not_equal(p.numbers[i], p.numbers[j]);
        }
        cond_done(&p.changed);
        mutex_done(&p.mu);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_count_is_closed_while_it_changes),
        cmocka_unit_test(a_count_is_the_sum_of_its_stripes),
        cmocka_unit_test(a_stripe_may_wrap),
        cmocka_unit_test(threads_share_no_stripe_while_some_are_free),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
