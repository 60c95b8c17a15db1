/* SPDX-License-Identifier: Apache-2.0 */
/* Responses of any thread on their way to a loop: none is lost, their order stays, one message is
 * enough for many, and the inbox may be freed with the final one. */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/status.h"
#include "base/thread.h"
#include "core/request/response.h"
#include "frontends/ops/response_inbox.h"

static struct loop loop;

/* ---- On one thread --------------------------------------------------------------------------- */

enum { N_FEW = 4 };

static struct response_inbox inbox;
static struct response few[N_FEW];
static char taken[64];  /* digits of the responses, f: bare final flag, |: end of a delivery */
static bool put_inside; /* the callback puts the last of `few` */

static void note(char c)
{
    size_t n = strlen(taken);
    assert_true(n + 1 < sizeof(taken));
    taken[n] = c;
    taken[n + 1] = '\0';
}

static void note_responses(struct response_inbox *in)
{
    struct response *resp;
    uint32_t flags;
    while (response_inbox_next(in, &resp, &flags)) {
        note(resp ? (char)('0' + (resp - few)) : 'f');
        if (flags & RESPONSE_FINAL)
            note('!');
        if (put_inside) {
            put_inside = false;
            response_inbox_put(in, &few[N_FEW - 1], 0);
        }
    }
    note('|');
}

static int start(void **state)
{
    (void)state;
    assert_null(loop_init(&loop, clock_real()));
    loop.owner = pthread_self();
    memset(few, 0, sizeof(few));
    taken[0] = '\0';
    put_inside = false;
    response_inbox_init(&inbox, &loop, note_responses);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    loop_done(&loop);
    return 0;
}

static void put_three_and_final(void *arg)
{
    (void)arg;
    for (int i = 0; i < 3; i++)
        response_inbox_put(&inbox, &few[i], 0);
    response_inbox_put(&inbox, NULL, RESPONSE_FINAL);
}

static void one_message_delivers_all_responses(void **state)
{
    (void)state;
    struct thread thread;
    struct loop_stats stats;
    assert_null(thread_start(&thread, "put", put_three_and_final, NULL));
    thread_join(&thread);
    assert_string_equal(taken, "");
    loop_iterate(&loop, 0);
    assert_string_equal(taken, "012f!|");
    loop_get_stats(&loop, &stats);
    assert_int_equal(stats.messages, 1);
}

static void the_loops_own_thread_delivers_at_once(void **state)
{
    (void)state;
    response_inbox_put(&inbox, &few[0], 0);
    assert_string_equal(taken, "0|");
    response_inbox_put(&inbox, &few[1], RESPONSE_FINAL);
    assert_string_equal(taken, "0|1!|");
}

/*
 * A response that is put during a delivery waits for its end: on_responses() is not entered twice.
 */
static void a_delivery_is_not_entered_twice(void **state)
{
    (void)state;
    put_inside = true;
    response_inbox_put(&inbox, &few[0], 0);
    assert_string_equal(taken, "0|");
    loop_iterate(&loop, 0);
    assert_string_equal(taken, "0|3|");
}

static void put_one(void *arg)
{
    response_inbox_put(&inbox, arg, 0);
}

/* While a message is under way, the loop's own thread does not overtake it. */
static void the_order_stays_between_threads(void **state)
{
    (void)state;
    struct thread thread;
    assert_null(thread_start(&thread, "put", put_one, &few[0]));
    thread_join(&thread);
    response_inbox_put(&inbox, &few[1], 0);
    assert_string_equal(taken, "");
    loop_iterate(&loop, 0);
    assert_string_equal(taken, "01|");
}

/* ---- Many threads ---------------------------------------------------------------------------- */

enum { N_THREADS = 4, N_EACH = 500, N_ROUNDS = 20 };

/* A request whose responses come from several threads; freed with the final one. */
struct answered {
    struct response_inbox inbox;
    struct response responses[N_THREADS][N_EACH], last;
    bool bare; /* the final flag comes alone */
    atomic_int n_threads_left;
    atomic_bool *ended;
    int n_taken[N_THREADS]; /* the loop's */
};

struct putter {
    struct answered *a;
    int number;
    struct thread thread;
};

static void take_responses(struct response_inbox *in)
{
    struct answered *a = CONTAINER_OF(in, struct answered, inbox);
    struct response *resp;
    uint32_t flags;
    while (response_inbox_next(in, &resp, &flags)) {
        if (resp && resp != &a->last) {
            ptrdiff_t at = resp - &a->responses[0][0];
            assert_int_equal(at % N_EACH, a->n_taken[at / N_EACH]++); /* each thread's, in order */
        }
        if (!(flags & RESPONSE_FINAL))
            continue;
        assert_true(resp == (a->bare ? NULL : &a->last));
        for (int i = 0; i < N_THREADS; i++)
            assert_int_equal(a->n_taken[i], N_EACH);
        atomic_store(a->ended, true);
        free(a);
        return;
    }
}

/* The last thread to end puts the final flag, with a response of its own or bare. */
static void put_responses(void *arg)
{
    struct putter *p = arg;
    struct answered *a = p->a;
    for (int i = 0; i < N_EACH; i++)
        response_inbox_put(&a->inbox, &a->responses[p->number][i], 0);
    if (atomic_fetch_sub(&a->n_threads_left, 1) == 1)
        response_inbox_put(&a->inbox, a->bare ? NULL : &a->last, RESPONSE_FINAL);
}

static void run_loop(void *arg)
{
    loop_run(arg);
}

static atomic_bool runs;

static void on_running(struct message *m)
{
    (void)m;
    atomic_store(&runs, true);
}

/* As in a server, the loop runs before any thread can put a response. */
static void start_loop(struct thread *thread)
{
    struct message running = {.deliver = on_running};
    atomic_store(&runs, false);
    loop_post(&loop, &running);
    assert_null(thread_start(thread, "loop", run_loop, &loop));
    while (!atomic_load(&runs))
        sched_yield();
}

static void responses_of_many_threads_arrive_once(void **state)
{
    (void)state;
    struct thread loop_thread;
    start_loop(&loop_thread);
    for (int round = 0; round < N_ROUNDS; round++) {
        struct putter putters[N_THREADS];
        atomic_bool ended = false;
        struct answered *a = calloc(1, sizeof(*a));
        assert_non_null(a);
        a->ended = &ended;
        a->bare = round % 2 == 0;
        atomic_init(&a->n_threads_left, N_THREADS);
        response_inbox_init(&a->inbox, &loop, take_responses);
        for (int i = 0; i < N_THREADS; i++) {
            putters[i].a = a;
            putters[i].number = i;
            assert_null(thread_start(&putters[i].thread, "put", put_responses, &putters[i]));
        }
        for (int i = 0; i < N_THREADS; i++)
            thread_join(&putters[i].thread);
        while (!atomic_load(&ended))
            sched_yield();
    }
    loop_stop(&loop);
    thread_join(&loop_thread);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(one_message_delivers_all_responses, start, stop),
        cmocka_unit_test_setup_teardown(the_loops_own_thread_delivers_at_once, start, stop),
        cmocka_unit_test_setup_teardown(a_delivery_is_not_entered_twice, start, stop),
        cmocka_unit_test_setup_teardown(the_order_stays_between_threads, start, stop),
        cmocka_unit_test_setup_teardown(responses_of_many_threads_arrive_once, start, stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
