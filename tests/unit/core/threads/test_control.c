/* SPDX-License-Identifier: Apache-2.0 */
#include "core/threads/control.h"

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/status.h"
#include "lib/thread_fault.h"

enum { N_OTHERS = 16 };

/* Jobs that wait until the test releases them. */
struct gate {
    struct mutex mu;
    struct cond changed;
    size_t n_running, most, n_done;
    char order[1024]; /* the order in which the jobs began */
};

struct held {
    struct control_job job;
    struct gate *gate;
    char name;
    bool may_go; /* under mu */
};

static void gate_init(struct gate *g)
{
    memset(g, 0, sizeof(*g));
    mutex_init(&g->mu, 1, "test");
    cond_init(&g->changed);
}

static void gate_done(struct gate *g)
{
    cond_done(&g->changed);
    mutex_done(&g->mu);
}

static void run(struct control_job *job)
{
    struct held *h = CONTAINER_OF(job, struct held, job);
    struct gate *g = h->gate;
    mutex_lock(&g->mu);
    g->order[strlen(g->order)] = h->name;
    g->n_running++;
    g->most = MAX(g->most, g->n_running);
    cond_broadcast(&g->changed);
    while (!h->may_go)
        cond_wait(&g->changed, &g->mu);
    g->n_running--;
    g->n_done++;
    cond_broadcast(&g->changed);
    mutex_unlock(&g->mu);
}

static void post(struct control *c, struct gate *g, struct held *h, char name, const char *key,
                 bool is_load)
{
    *h =
        (struct held){.job = {.key = key, .is_load = is_load, .run = run}, .gate = g, .name = name};
    control_post(c, &h->job);
}

static void let_go(struct held *h)
{
    mutex_lock(&h->gate->mu);
    h->may_go = true;
    cond_broadcast(&h->gate->changed);
    mutex_unlock(&h->gate->mu);
}

static void await(struct gate *g, size_t n_running, size_t n_done)
{
    mutex_lock(&g->mu);
    uint64_t until_ns = monotonic_ns() + 60 * NS_PER_S;
    while (g->n_running != n_running || g->n_done != n_done)
        assert_true(cond_wait_until(&g->changed, &g->mu, until_ns));
    mutex_unlock(&g->mu);
}

/* Jobs of one key run one after the other, in order. Jobs of other keys do
 * not wait for them. */
static void jobs_of_one_key_run_in_order(void **state)
{
    (void)state;
    struct control c;
    struct gate g;
    struct held h[5];
    gate_init(&g);
    assert_null(control_start(&c, 8, N_OTHERS));
    post(&c, &g, &h[0], 'a', "m", true);
    await(&g, 1, 0);
    post(&c, &g, &h[1], 'b', "m", false);
    post(&c, &g, &h[2], 'c', "m", true);
    post(&c, &g, &h[3], 'd', "n", true);
    post(&c, &g, &h[4], 'e', NULL, false);
    await(&g, 3, 0); /* a, d, e */
    let_go(&h[2]);
    let_go(&h[0]);
    await(&g, 3, 1); /* b, d, e: c waits behind b */
    let_go(&h[1]);
    await(&g, 2, 3);
    let_go(&h[3]);
    let_go(&h[4]);
    control_stop(&c);
    assert_int_equal(g.n_done, 5);
    assert_true(strchr(g.order, 'a') < strchr(g.order, 'b'));
    assert_true(strchr(g.order, 'b') < strchr(g.order, 'c'));
    gate_done(&g);
}

/* At most max_loads jobs load at a time, and other jobs do not wait for them. A stop lets all
 * jobs end. */
static void at_most_max_loads_jobs_load_at_once(void **state)
{
    (void)state;
    enum { N = 20 };
    struct control c;
    struct gate g;
    struct held h[N], other;
    gate_init(&g);
    assert_null(control_start(&c, 2, N_OTHERS));
    for (size_t i = 0; i < N; i++)
        post(&c, &g, &h[i], 'l', NULL, true);
    await(&g, 2, 0);
    post(&c, &g, &other, 'o', NULL, false);
    await(&g, 3, 0);
    let_go(&other);
    await(&g, 2, 1);
    for (size_t i = 0; i < N; i++)
        let_go(&h[i]);
    control_stop(&c);
    assert_int_equal(g.n_done, N + 1);
    assert_int_equal(g.most, 3);
    gate_done(&g);
}

static atomic_int n_run;

static void count(struct control_job *job)
{
    atomic_fetch_add(&n_run, 1);
    mem_free(job); /* its maker owns the job again */
}

static void a_job_may_free_itself(void **state)
{
    (void)state;
    struct control c;
    assert_null(control_start(&c, 3, N_OTHERS));
    for (int i = 0; i < 2000; i++) {
        struct control_job *job = mem_zalloc(sizeof(*job));
        job->key = i % 3 ? "some" : NULL;
        job->is_load = i % 2;
        job->run = count;
        control_post(&c, job);
    }
    control_stop(&c);
    assert_int_equal(atomic_load(&n_run), 2000);
}

struct numbered {
    struct control_job job;
    int number, group;
    char key[16];
};

enum { N_NUMBERED = 25600, N_GROUPS = 6400 };
static int last_of_group[N_GROUPS];
static bool out_of_order;

static void number(struct control_job *job)
{
    struct numbered *n = CONTAINER_OF(job, struct numbered, job);
    out_of_order |= n->number <= last_of_group[n->group]; /* each group has one job at a time */
    last_of_group[n->group] = n->number;
}

/* Neither a post nor a thread that wants its next job searches the waiting jobs. */
static void waiting_jobs_are_not_searched(void **state)
{
    (void)state;
    struct control c;
    struct gate g;
    struct held first;
    struct numbered *all = mem_zalloc(N_NUMBERED * sizeof(*all));
    gate_init(&g);
    assert_null(control_start(&c, 1, N_OTHERS));
    post(&c, &g, &first, 'f', "first", true);
    await(&g, 1, 0);
    for (int i = 0; i < N_NUMBERED; i++) {
        all[i].number = i + 1;
        all[i].group = i % N_GROUPS;
        snprintf(all[i].key, sizeof(all[i].key), "m_%d", all[i].group);
        all[i].job = (struct control_job){.key = all[i].key, .is_load = true, .run = number};
        control_post(&c, &all[i].job);
    }
    let_go(&first);
    control_stop(&c);
    for (int i = 0; i < N_GROUPS; i++)
        assert_int_equal(last_of_group[i], N_NUMBERED - N_GROUPS + i + 1);
    assert_false(out_of_order);
    /* Jobs that find their key are compared with it, and few other comparisons are made. */
    assert_in_range(c.n_compared, N_NUMBERED - N_GROUPS, N_NUMBERED);
    mem_free(all);
    gate_done(&g);
}

static void post_or_run(struct control *c, struct gate *g, struct held *h, bool may_go)
{
    *h = (struct held){.job = {.run = run}, .gate = g, .name = 'x', .may_go = may_go};
    control_post_or_run(c, &h->job);
}

static bool is_idle(struct control *c)
{
    mutex_lock(&c->mu);
    bool idle = c->n_idle > 0;
    mutex_unlock(&c->mu);
    return idle;
}

/* The only thread is busy for as long as the test likes. */
static void without_another_thread_the_caller_runs_the_job(void **state)
{
    (void)state;
    struct control c;
    struct gate g;
    struct held busy, job[3];
    gate_init(&g);
    assert_null(control_start(&c, 1, N_OTHERS));
    post_or_run(&c, &g, &busy, false);
    await(&g, 1, 0);
    fail_threads(true);
    post_or_run(&c, &g, &job[0], true);
    assert_int_equal(g.n_done, 1); /* it has run already */
    post_or_run(&c, &g, &job[1], true);
    assert_int_equal(g.n_done, 2);
    fail_threads(false);
    post_or_run(&c, &g, &job[2], false);
    await(&g, 2, 2); /* on a thread of its own */
    let_go(&job[2]);
    let_go(&busy);
    control_stop(&c);
    assert_int_equal(g.n_done, 4);
    gate_done(&g);
}

/* An idle thread takes one job; the second of two that are posted at once cannot rely on it. */
static void an_idle_thread_takes_one_job(void **state)
{
    (void)state;
    for (int i = 0; i < 50; i++) {
        struct control c;
        struct gate g;
        struct held busy, other;
        gate_init(&g);
        assert_null(control_start(&c, 1, N_OTHERS));
        while (!is_idle(&c))
            sched_yield();
        fail_threads(true);
        post_or_run(&c, &g, &busy, false);
        post_or_run(&c, &g, &other, true);
        await(&g, 1, 1);
        fail_threads(false);
        let_go(&busy);
        control_stop(&c);
        gate_done(&g);
    }
}

/* How many jobs count no more, after a look. */
static unsigned int look(struct control *c, uint64_t now_ns)
{
    control_look(c, now_ns, 100);
    mutex_lock(&c->mu);
    unsigned int n = c->n_long;
    mutex_unlock(&c->mu);
    return n;
}

/* Jobs that may go on for ever do not keep the others from running, however many they are; a job
 * counts from when it was seen first. */
static void a_job_that_lasts_lets_others_run(void **state)
{
    (void)state;
    enum { N = CONTROL_MAX_LOADS + 3 * CONTROL_MAX_OTHERS };
    struct control c;
    struct gate g;
    static struct held h[N], load, other;
    gate_init(&g);
    assert_null(control_start(&c, 1, CONTROL_MAX_OTHERS));
    post(&c, &g, &load, 'l', NULL, true);
    await(&g, 1, 0);
    for (size_t i = 0; i < N; i++)
        post(&c, &g, &h[i], 'x', NULL, false);
    uint64_t now_ns = 7;
    for (size_t n = CONTROL_MAX_OTHERS; n <= N; n += CONTROL_MAX_OTHERS, now_ns += 100) {
        await(&g, n + 1, 0);
        assert_int_equal(look(&c, now_ns), n - CONTROL_MAX_OTHERS);
        assert_int_equal(look(&c, now_ns + 99), n - CONTROL_MAX_OTHERS);
        if (n < N)
            assert_int_equal(look(&c, now_ns + 100), n); /* and a load counts as before */
    }
    post(&c, &g, &other, 'o', NULL, false);
    assert_int_equal(look(&c, now_ns), N); /* the last ones give way, too */
    await(&g, N + 2, 0);
    /* Those that end do not count any more in any way: the limit is what it was. */
    for (size_t i = 0; i < N; i++)
        let_go(&h[i]);
    await(&g, 2, N);
    while (look(&c, now_ns) > 0)
        sched_yield();
    for (size_t i = 0; i < N; i++)
        post(&c, &g, &h[i], 'x', NULL, false);
    await(&g, CONTROL_MAX_OTHERS + 1, N);
    let_go(&load);
    let_go(&other);
    for (size_t i = 0; i < N; i++)
        let_go(&h[i]);
    control_stop(&c);
    assert_int_equal(g.n_done, 2 * N + 2);
    gate_done(&g);
}

static unsigned int count_idle(struct control *c)
{
    mutex_lock(&c->mu);
    unsigned int n = c->n_idle;
    mutex_unlock(&c->mu);
    return n;
}

/* Three jobs at a time: afterwards as many threads wait as are kept, and they take the next jobs,
 * though no thread can be started. */
static void threads_that_are_kept_take_the_next_jobs(void **state)
{
    (void)state;
    struct control c;
    struct gate g;
    struct held first[3], next[2];
    gate_init(&g);
    assert_null(control_start(&c, 1, N_OTHERS));
    control_keep(&c, 2);
    for (int i = 0; i < 3; i++)
        post_or_run(&c, &g, &first[i], false);
    await(&g, 3, 0);
    for (int i = 0; i < 3; i++)
        let_go(&first[i]);
    await(&g, 0, 3);
    while (count_idle(&c) < 2)
        sched_yield();
    fail_threads(true);
    for (int i = 0; i < 2; i++)
        post_or_run(&c, &g, &next[i], false);
    await(&g, 2, 3); /* both at a time, and neither on this thread */
    fail_threads(false);
    for (int i = 0; i < 2; i++)
        let_go(&next[i]);
    control_stop(&c);
    assert_int_equal(g.n_done, 5);
    gate_done(&g);
}

/* Many threads wait, and each job wakes one: the others would only take the processor from it. */
static void a_job_wakes_one_thread(void **state)
{
    (void)state;
    enum { N_KEPT = 6, N_JOBS = 100, SPURIOUS = 20 };
    struct control c;
    struct gate g;
    struct held first[N_KEPT], next;
    gate_init(&g);
    assert_null(control_start(&c, 1, N_OTHERS));
    control_keep(&c, N_KEPT);
    for (int i = 0; i < N_KEPT; i++)
        post_or_run(&c, &g, &first[i], false);
    await(&g, N_KEPT, 0);
    for (int i = 0; i < N_KEPT; i++)
        let_go(&first[i]);
    for (size_t i = 0; i <= N_JOBS; i++) {
        await(&g, 0, N_KEPT + i);
        while (count_idle(&c) < N_KEPT)
            sched_yield();
        if (i < N_JOBS)
            post_or_run(&c, &g, &next, true);
    }
    control_stop(&c);
    assert_in_range(c.n_woken, N_JOBS, N_JOBS + N_KEPT + SPURIOUS); /* the stop wakes all */
    gate_done(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(jobs_of_one_key_run_in_order),
        cmocka_unit_test(at_most_max_loads_jobs_load_at_once),
        cmocka_unit_test(a_job_may_free_itself),
        cmocka_unit_test(waiting_jobs_are_not_searched),
        cmocka_unit_test(without_another_thread_the_caller_runs_the_job),
        cmocka_unit_test(an_idle_thread_takes_one_job),
        cmocka_unit_test(a_job_that_lasts_lets_others_run),
        cmocka_unit_test(threads_that_are_kept_take_the_next_jobs),
        cmocka_unit_test(a_job_wakes_one_thread),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
