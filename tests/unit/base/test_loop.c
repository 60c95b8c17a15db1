/* SPDX-License-Identifier: Apache-2.0 */
#include "base/loop.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/status.h"
#include "base/thread.h"
#include "lib/fake_clock.h"

static struct loop loop; /* the one under test */

static int start(void **state)
{
    (void)state;
    assert_null(loop_init(&loop, clock_real()));
    return 0;
}

static int stop(void **state)
{
    (void)state;
    loop_done(&loop);
    return 0;
}

/* One end of a socket pair is in the loop, the other end in the test. */
struct watched {
    struct loop_fd w;
    int far;
    int n_calls;
    uint32_t events;
    struct watched *victim; /* this watched one's callback removes, closes and frees it */
};

static void watched_free(struct watched *x)
{
    int fd = x->w.fd;
    loop_remove_fd(&loop, &x->w);
    close(fd);
    close(x->far);
    mem_free(x);
}

static void on_ready(struct loop_fd *w, uint32_t events)
{
    struct watched *x = CONTAINER_OF(w, struct watched, w);
    x->n_calls++;
    x->events = events;
    struct watched *victim = TAKE(x->victim);
    if (victim) {
        victim->victim = NULL;
        watched_free(victim);
    }
}

static struct watched *watched_new(uint32_t events)
{
    struct watched *x = mem_zalloc(sizeof(*x));
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), 0);
    x->far = pair[1];
    assert_null(loop_add_fd(&loop, &x->w, pair[0], events, on_ready));
    return x;
}

static void ready_descriptors_are_called_back(void **state)
{
    (void)state;
    struct watched *x = watched_new(EPOLLIN);
    assert_int_equal(loop_iterate(&loop, 0), 0);
    assert_int_equal(write(x->far, "x", 1), 1);
    assert_int_equal(loop_iterate(&loop, UINT64_MAX), 1);
    assert_int_equal(x->events, EPOLLIN);

    /* The descriptor stays ready, but has no events to wait for. */
    loop_change_fd(&loop, &x->w, 0);
    assert_int_equal(loop_iterate(&loop, 0), 0);
    loop_change_fd(&loop, &x->w, EPOLLOUT);
    assert_int_equal(loop_iterate(&loop, 0), 1);
    assert_int_equal(x->events, EPOLLOUT);

    loop_remove_fd(&loop, &(struct loop_fd){.fd = -1}); /* without effect */
    watched_free(x);
    assert_int_equal(loop_iterate(&loop, 0), 0);
}

static void a_callback_may_remove_itself(void **state)
{
    (void)state;
    struct watched *x = watched_new(EPOLLOUT);
    x->victim = x;
    assert_int_equal(loop_iterate(&loop, 0), 1);
    assert_int_equal(loop_iterate(&loop, 0), 0);
}

/* Two descriptors are ready in the same iteration. The callback that runs first frees the other
 * one. */
static void a_callback_may_free_another_that_is_ready(void **state)
{
    (void)state;
    struct watched *a = watched_new(EPOLLOUT), *b = watched_new(EPOLLOUT);
    a->victim = b;
    b->victim = a;
    assert_int_equal(loop_iterate(&loop, 0), 1);

    struct epoll_event ev;
    assert_int_equal(epoll_wait(loop.epoll_fd, &ev, 1, 0), 1);
    struct watched *left = CONTAINER_OF((struct loop_fd *)ev.data.ptr, struct watched, w);
    assert_int_equal(left->n_calls, 1);
    assert_int_equal(loop_iterate(&loop, 0), 1); /* the loop goes on */
    watched_free(left);
}

static struct watched *late_comer;

static void replace_the_others(struct loop_fd *w, uint32_t events)
{
    struct watched *x = CONTAINER_OF(w, struct watched, w);
    (void)events;
    x->n_calls++;
    if (!x->victim)
        return;
    int fd = x->victim->w.fd;
    watched_free(TAKE(x->victim));
    late_comer = watched_new(EPOLLOUT);
    assert_int_equal(late_comer->w.fd, fd); /* otherwise nothing is tested */
}

/* A descriptor's number is reused within the iteration: events of the old descriptor must not
 * reach the new one. */
static void events_of_a_closed_descriptor_do_not_reach_its_successor(void **state)
{
    (void)state;
    struct watched *a = watched_new(EPOLLOUT), *b = watched_new(EPOLLOUT);
    a->w.callback = b->w.callback = replace_the_others;
    a->victim = b;
    b->victim = a;
    /* The second one must not be called: the first one frees it. */
    late_comer = NULL;
    struct epoll_event ev[2];
    assert_int_equal(epoll_wait(loop.epoll_fd, ev, 2, 0), 2);
    struct watched *first = CONTAINER_OF((struct loop_fd *)ev[0].data.ptr, struct watched, w);
    struct watched *second = CONTAINER_OF((struct loop_fd *)ev[1].data.ptr, struct watched, w);
    second->victim = NULL;
    first->victim = second;
    if (loop_iterate(&loop, 0) == 1) /* otherwise the kernel changed their order */
        assert_int_equal(late_comer->n_calls, 0);
    assert_int_equal(loop_iterate(&loop, 0), 2);
    watched_free(late_comer);
    watched_free(first);
}

static struct loop_fd *to_pause;

static void pause_other(struct loop_fd *w, uint32_t events)
{
    struct watched *x = CONTAINER_OF(w, struct watched, w);
    (void)events;
    x->n_calls++;
    loop_change_fd(&loop, to_pause, 0);
    loop_change_fd(&loop, w, 0);
}

static void events_no_longer_waited_for_are_dropped(void **state)
{
    (void)state;
    struct watched *a = watched_new(EPOLLOUT), *b = watched_new(EPOLLOUT);
    a->w.callback = b->w.callback = pause_other;
    struct epoll_event ev[2];
    assert_int_equal(epoll_wait(loop.epoll_fd, ev, 2, 0), 2);
    to_pause = &b->w;
    if (CONTAINER_OF((struct loop_fd *)ev[0].data.ptr, struct watched, w) == b)
        to_pause = &a->w;
    loop_iterate(&loop, 0);
    /* The kernel may change the order between two waits; then both were called. */
    assert_true(a->n_calls + b->n_calls >= 1);
    assert_int_equal(loop_iterate(&loop, 0), 0);
    watched_free(a);
    watched_free(b);
}

static void an_error_names_what_cannot_be_watched(void **state)
{
    (void)state;
    struct loop_fd w;
    int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    struct status *st = loop_add_fd(&loop, &w, fd, EPOLLIN, on_ready);
    assert_non_null(st);
    assert_non_null(strstr(status_message(st), "failed to watch descriptor"));
    assert_int_equal(w.fd, -1);
    status_free(st);
    close(fd);
}

/* Timers. */

struct test_timer {
    struct timer t;
    struct test_timer *clears; /* another timer, which the callback clears */
    uint64_t again_at_ns;      /* the callback sets the timer again for this time; 0: not */
    uint64_t late_ns;
    int n_calls;
};

static void on_test_timer(struct timer *t)
{
    struct test_timer *a = CONTAINER_OF(t, struct test_timer, t);
    a->n_calls++;
    a->late_ns = monotonic_ns() - t->deadline_ns;
    if (a->clears)
        loop_clear_timer(&loop, &a->clears->t);
    if (a->again_at_ns)
        loop_set_timer(&loop, t, a->again_at_ns);
}

static void timers_follow_the_loops_clock(void **state)
{
    (void)state;
    struct clock_fake fake;
    clock_fake_init(&fake, 1000);
    assert_null(loop_init(&loop, &fake.clock));
    struct test_timer a = {0}, b = {0}, c = {0};
    timer_init(&a.t, on_test_timer);
    timer_init(&b.t, on_test_timer);
    timer_init(&c.t, on_test_timer);

    loop_set_timer(&loop, &a.t, 2000);
    loop_set_timer(&loop, &b.t, 3000);
    loop_set_timer(&loop, &c.t, 4000);
    loop_set_timer(&loop, &c.t, 2500); /* set again */
    assert_int_equal(loop_iterate(&loop, 0), 0);
    clock_fake_advance(&fake, 999);
    assert_int_equal(loop_iterate(&loop, 0), 0); /* never early */
    clock_fake_advance(&fake, 1);
    assert_int_equal(loop_iterate(&loop, UINT64_MAX), 1);
    assert_int_equal(a.n_calls, 1);
    assert_false(a.t.is_set);

    c.clears = &b; /* due in the same iteration, but cleared before */
    clock_fake_advance(&fake, 5000);
    assert_int_equal(loop_iterate(&loop, 0), 1);
    assert_int_equal(b.n_calls, 0);
    assert_int_equal(c.n_calls, 1);

    /* A timer that sets itself to the past fires once per iteration, so the iteration ends. */
    c.again_at_ns = 1;
    loop_set_timer(&loop, &c.t, 1);
    assert_int_equal(loop_iterate(&loop, UINT64_MAX), 1);
    assert_int_equal(loop_iterate(&loop, UINT64_MAX), 1);
    assert_int_equal(c.n_calls, 3);
    loop_clear_timer(&loop, &c.t);
    loop_clear_timer(&loop, &c.t); /* without effect */
    assert_int_equal(loop_iterate(&loop, 0), 0);
    loop_done(&loop);
}

/* At least one of many tries must be in time, however busy the machine is. None may be early. */
static void is_in_time(void)
{
    struct test_timer a = {0};
    timer_init(&a.t, on_test_timer);
    uint64_t best_ns = UINT64_MAX;
    for (int i = 0; i < 200 && best_ns >= NS_PER_MS; i++) {
        uint64_t deadline_ns = monotonic_ns() + 300 * NS_PER_US;
        loop_set_timer(&loop, &a.t, deadline_ns);
        while (a.n_calls == i)
            loop_iterate(&loop, UINT64_MAX);
        assert_true(a.late_ns < UINT64_MAX / 2);
        best_ns = MIN(best_ns, a.late_ns);
    }
    assert_in_range(best_ns, 0, NS_PER_MS - 1);
}

static void timers_of_an_idle_loop_fire_in_time(void **state)
{
    (void)state;
    is_in_time();
}

static void a_coarse_wait_is_never_early(void **state)
{
    (void)state;
    loop.coarse_wait = true;
    is_in_time();
    assert_int_equal(loop_iterate(&loop, 100), 0); /* less than a millisecond */
}

/* Work that runs at the end of the iteration. */

struct job {
    struct loop_work work;
    struct job *defers;
    int n_calls;
};

static int last_seen_events;

static void on_job(struct loop_work *work)
{
    struct job *j = CONTAINER_OF(work, struct job, work);
    j->n_calls++;
    if (j->defers)
        loop_defer(&loop, &j->defers->work);
}

static struct job *defer_when_ready;

static void defer_it(struct loop_fd *w, uint32_t events)
{
    struct watched *x = CONTAINER_OF(w, struct watched, w);
    (void)events;
    x->n_calls++;
    assert_int_equal(defer_when_ready->n_calls, 0); /* after all callbacks */
    loop_defer(&loop, &defer_when_ready->work);
    last_seen_events++;
}

static void deferred_work_runs_once_after_all_events(void **state)
{
    (void)state;
    struct job j = {0};
    loop_work_init(&j.work, on_job);
    struct watched *x[10];
    last_seen_events = 0;
    for (int i = 0; i < 10; i++) {
        x[i] = watched_new(EPOLLOUT);
        x[i]->w.callback = defer_it;
    }
    defer_when_ready = &j;
    assert_int_equal(loop_iterate(&loop, UINT64_MAX), 11);
    assert_int_equal(last_seen_events, 10);
    assert_int_equal(j.n_calls, 1);
    for (int i = 0; i < 10; i++)
        watched_free(x[i]);
    assert_int_equal(loop_iterate(&loop, 0), 0);
}

static void work_that_defers_itself_runs_in_the_next_iteration(void **state)
{
    (void)state;
    struct job a = {0}, b = {0};
    loop_work_init(&a.work, on_job);
    loop_work_init(&b.work, on_job);
    a.defers = &b; /* b has not run in this iteration, so it does */
    b.defers = &a; /* a has run: it runs in the next iteration */
    loop_defer(&loop, &a.work);
    assert_int_equal(loop_iterate(&loop, UINT64_MAX), 2);
    assert_int_equal(loop_iterate(&loop, UINT64_MAX), 2);
    assert_int_equal(a.n_calls, 2);
    assert_int_equal(b.n_calls, 2);
    a.defers = &a;
    b.defers = NULL;
    assert_int_equal(loop_iterate(&loop, UINT64_MAX), 1);
    assert_int_equal(a.n_calls, 3);
    loop_cancel_work(&loop, &a.work);
    loop_cancel_work(&loop, &b.work); /* without effect */
    assert_int_equal(loop_iterate(&loop, 0), 0);
}

/* Messages of other threads. */

enum { N_SENDERS = 4, N_EACH = 100000 };

struct letter {
    struct message message;
    int sender, number;
};

struct sender {
    struct thread thread;
    int number;
};

static int next_of[N_SENDERS];
static atomic_int n_ended;

static void check_letter(struct message *m)
{
    struct letter *l = CONTAINER_OF(m, struct letter, message);
    assert_int_equal(l->number, next_of[l->sender]);
    next_of[l->sender]++;
    if (l->number == N_EACH - 1 && atomic_fetch_add(&n_ended, 1) == N_SENDERS - 1)
        loop_stop(&loop);
    mem_free(l);
}

static void send_all(void *arg)
{
    struct sender *s = arg;
    for (int i = 0; i < N_EACH; i++) {
        struct letter *l = mem_alloc(sizeof(*l));
        *l = (struct letter){.message.deliver = check_letter, .sender = s->number, .number = i};
        loop_post(&loop, &l->message);
    }
}

/* There is no timer, so a lost wake-up hangs the test. */
static void messages_of_many_threads_arrive_once_and_in_order(void **state)
{
    (void)state;
    struct sender senders[N_SENDERS];
    for (int i = 0; i < N_SENDERS; i++) {
        senders[i].number = i;
        assert_null(thread_start(&senders[i].thread, "sender", send_all, &senders[i]));
    }
    loop_run(&loop);
    for (int i = 0; i < N_SENDERS; i++) {
        thread_join(&senders[i].thread);
        assert_int_equal(next_of[i], N_EACH);
    }
    struct loop_stats stats;
    loop_get_stats(&loop, &stats);
    assert_int_equal(stats.messages, N_SENDERS * N_EACH);
    assert_true(stats.wakeups <= stats.iterations);
}

/* Otherwise ready descriptors would wait for the last of many messages. */
static void many_messages_take_several_iterations(void **state)
{
    (void)state;
    enum { N_LETTERS = 2 * LOOP_BATCH + 1 };
    next_of[0] = 0;
    for (int i = 0; i < N_LETTERS; i++) {
        struct letter *l = mem_alloc(sizeof(*l));
        *l = (struct letter){.message.deliver = check_letter, .number = i};
        loop_post(&loop, &l->message);
    }
    assert_int_equal(loop_iterate(&loop, UINT64_MAX), LOOP_BATCH);
    assert_int_equal(loop_iterate(&loop, UINT64_MAX), LOOP_BATCH); /* does not wait */
    assert_int_equal(loop_iterate(&loop, UINT64_MAX), 1);
    assert_int_equal(next_of[0], N_LETTERS);
    assert_int_equal(loop_iterate(&loop, 0), 0);
}

/* A ball between two loops: for each throw a loop must go to sleep and be woken. */
struct player {
    struct loop loop;
    struct thread thread;
    struct player *other;
};

struct ball {
    struct message message;
    struct player *holder;
    int throws_left;
};

static void on_ball(struct message *m)
{
    struct ball *b = CONTAINER_OF(m, struct ball, message);
    if (b->throws_left-- == 0) {
        loop_stop(&b->holder->loop);
        loop_stop(&b->holder->other->loop);
        return;
    }
    b->holder = b->holder->other;
    loop_post(&b->holder->loop, &b->message);
}

static void play(void *arg)
{
    struct player *p = arg;
    loop_run(&p->loop);
}

static void no_wakeup_is_lost_between_two_loops(void **state)
{
    (void)state;
    struct player p[2];
    struct ball ball = {.message.deliver = on_ball, .holder = &p[0], .throws_left = 20000};
    for (int i = 0; i < 2; i++) {
        assert_null(loop_init(&p[i].loop, clock_real()));
        p[i].other = &p[1 - i];
    }
    loop_post(&p[0].loop, &ball.message);
    for (int i = 0; i < 2; i++)
        assert_null(thread_start(&p[i].thread, "player", play, &p[i]));
    for (int i = 0; i < 2; i++)
        thread_join(&p[i].thread); /* both: the last throw may still wake a loop */
    for (int i = 0; i < 2; i++) {
        struct loop_stats stats;
        loop_get_stats(&p[i].loop, &stats);
        assert_true(stats.sleeps > 0);
        /* No busy waiting: each iteration is for a message, a wake-up or the end. */
        assert_in_range(stats.iterations, 1, 2 * 10001 + 2);
        loop_done(&p[i].loop);
    }
    assert_int_equal(ball.throws_left, -1);
}

static void a_loop_stopped_before_its_run_iterates_once(void **state)
{
    (void)state;
    struct job j = {0};
    loop_work_init(&j.work, on_job);
    loop_defer(&loop, &j.work);
    loop_stop(&loop);
    loop_run(&loop);
    assert_int_equal(j.n_calls, 1);

    /* After that the loop runs again until it is stopped. */
    struct letter *l = mem_alloc(sizeof(*l));
    *l = (struct letter){.message.deliver = check_letter, .number = N_EACH - 1};
    next_of[0] = N_EACH - 1;
    atomic_store(&n_ended, N_SENDERS - 1);
    loop_post(&loop, &l->message);
    loop_run(&loop);
}

static void the_end_of_a_loop_delivers_its_messages(void **state)
{
    (void)state;
    assert_null(loop_init(&loop, clock_real()));
    struct letter *l = mem_alloc(sizeof(*l));
    *l = (struct letter){.message.deliver = check_letter, .number = 5};
    next_of[0] = 5;
    loop_post(&loop, &l->message);
    loop_done(&loop); /* a leak would be seen by the sanitizer */
    assert_int_equal(next_of[0], 6);
}

static void on_signal(int number)
{
    (void)number;
    loop_stop(&loop);
}

static void a_signal_handler_may_stop_a_loop(void **state)
{
    (void)state;
    struct sigaction sa = {.sa_handler = on_signal}, before;
    sigaction(SIGALRM, &sa, &before); /* no SA_RESTART: the wait ends with EINTR */
    struct itimerval in_5ms = {.it_value.tv_usec = 5000};
    setitimer(ITIMER_REAL, &in_5ms, NULL);
    loop_run(&loop);
    sigaction(SIGALRM, &before, NULL);
}

static void lack_of_descriptors_is_an_error(void **state)
{
    (void)state;
    struct rlimit before, none;
    getrlimit(RLIMIT_NOFILE, &before);
    int n_open = open("/dev/null", O_RDONLY | O_CLOEXEC);
    close(n_open);
    for (int room = 0; room < 2; room++) { /* no descriptor for the eventfd, or none for epoll */
        none = before;
        none.rlim_cur = (rlim_t)(n_open + room);
        setrlimit(RLIMIT_NOFILE, &none);
        struct status *st = loop_init(&loop, clock_real());
        setrlimit(RLIMIT_NOFILE, &before);
        assert_non_null(st);
        assert_int_equal(status_code(st), STATUS_UNAVAILABLE);
        assert_non_null(strstr(status_message(st), "event loop: failed to create an e"));
        status_free(st);
    }
    int again = open("/dev/null", O_RDONLY | O_CLOEXEC);
    assert_int_equal(again, n_open); /* no descriptor leaked */
    close(again);
}

/* ---- Work for the very end ------------------------------------------------------------------ */

static char order[16];
static int n_in_order;
static struct loop_work usual, last;

static void on_usual(struct loop_work *work)
{
    (void)work;
    order[n_in_order++] = 'u';
}

static void on_last(struct loop_work *work)
{
    order[n_in_order++] = 'l';
    if (n_in_order < 6) {
        loop_defer(&loop, &usual); /* runs in this iteration, if it has not run yet */
        loop_defer_last(&loop, work);
    }
}

static void work_deferred_last_runs_after_all_other_work(void **state)
{
    (void)state;
    memset(order, 0, sizeof(order));
    n_in_order = 0;
    loop_work_init(&usual, on_usual);
    loop_work_init(&last, on_last);
    loop_defer_last(&loop, &last);
    loop_defer(&loop, &usual);
    loop_iterate(&loop, UINT64_MAX);
    assert_string_equal(order, "ul");
    loop_iterate(&loop, UINT64_MAX); /* does not sleep */
    assert_string_equal(order, "ulul");
    loop_iterate(&loop, UINT64_MAX);
    assert_string_equal(order, "ululul");
    assert_int_equal(loop_iterate(&loop, 0), 0);
    loop_defer_last(&loop, &last);
    loop_cancel_work(&loop, &last);
    loop_iterate(&loop, 0);
    assert_string_equal(order, "ululul");
}

/* ---- Load ----------------------------------------------------------------------------------- */

static struct clock_fake load_clock;

static void work_for_60_ms(struct loop_work *work)
{
    (void)work;
    struct loop_load load;
    clock_fake_advance(&load_clock, 60 * NS_PER_MS);
    loop_get_load(&loop, clock_now_ns(&load_clock.clock), &load);
    assert_int_equal(load.in_iteration_ns, 60 * NS_PER_MS);
}

static void other_threads_read_the_load_of_a_loop(void **state)
{
    (void)state;
    struct loop_load load;
    struct loop_work work;
    clock_fake_init(&load_clock, NS_PER_S);
    assert_null(loop_init(&loop, &load_clock.clock));
    loop_get_load(&loop, 5 * NS_PER_S, &load); /* as if it waited to be run */
    assert_int_equal(load.in_iteration_ns, 0);
    assert_int_equal(load.busy_permille, 0);
    loop_work_init(&work, work_for_60_ms);
    while (loop_now_ns(&loop) < NS_PER_S + 120 * NS_PER_MS) { /* no iteration but work */
        loop_defer(&loop, &work);
        loop_iterate(&loop, 0);
    }
    loop_get_load(&loop, clock_now_ns(&load_clock.clock), &load);
    assert_int_equal(load.busy_permille, 1000);
    loop_done(&loop);
}

static void work_for_its_time(struct loop_work *work);

static struct {
    struct loop_work work;
    uint64_t ns;
} turn = {.work.callback = work_for_its_time};

static void work_for_its_time(struct loop_work *work)
{
    (void)work;
    clock_fake_advance(&load_clock, turn.ns);
}

/* An iteration of that length, and the end of it: the next one begins. */
static void take_turn(uint64_t ns)
{
    turn.ns = ns;
    loop_defer(&loop, &turn.work);
    loop_iterate(&loop, 0);
    loop_iterate(&loop, 0);
}

static uint64_t longest_ms(void)
{
    return loop_get_longest_ns(&loop, clock_now_ns(&load_clock.clock)) / NS_PER_MS;
}

/* The loop waits: that is no iteration. */
static void wait_for_long(uint64_t ns)
{
    clock_fake_advance(&load_clock, ns);
    loop.phase = clock_now_ns(&load_clock.clock) * 2 + 1;
    loop.began_ns = UINT64_MAX;
}

static void the_longest_iteration_is_kept_for_a_minute_or_two(void **state)
{
    (void)state;
    clock_fake_init(&load_clock, 1000 * NS_PER_S);
    assert_null(loop_init(&loop, &load_clock.clock));
    loop_work_init(&turn.work, work_for_its_time);
    assert_int_equal(longest_ms(), 0);
    take_turn(20 * NS_PER_MS);
    take_turn(70 * NS_PER_MS);
    take_turn(30 * NS_PER_MS);
    assert_int_equal(longest_ms(), 70);
    wait_for_long(61 * NS_PER_S);
    take_turn(5 * NS_PER_MS);
    assert_int_equal(longest_ms(), 70); /* of the minute before */
    wait_for_long(61 * NS_PER_S);
    take_turn(3 * NS_PER_MS);
    assert_int_equal(longest_ms(), 5);
    wait_for_long(121 * NS_PER_S);
    assert_int_equal(longest_ms(), 0); /* nothing has happened for so long */
    take_turn(9 * NS_PER_MS);
    take_turn(8 * NS_PER_MS);
    assert_int_equal(longest_ms(), 9);
    loop_done(&loop);
}

/* An iteration that lasts counts before it ends. */
static void the_present_iteration_counts(void **state)
{
    (void)state;
    clock_fake_init(&load_clock, 1000 * NS_PER_S);
    assert_null(loop_init(&loop, &load_clock.clock));
    take_turn(20 * NS_PER_MS);
    loop.phase = clock_now_ns(&load_clock.clock) * 2;
    clock_fake_advance(&load_clock, 40 * NS_PER_MS);
    assert_int_equal(longest_ms(), 40);
    loop_done(&loop);
}

int main(void)
{
#define WITH_LOOP(test) cmocka_unit_test_setup_teardown(test, start, stop)
    const struct CMUnitTest tests[] = {
        WITH_LOOP(ready_descriptors_are_called_back),
        WITH_LOOP(a_callback_may_remove_itself),
        WITH_LOOP(a_callback_may_free_another_that_is_ready),
        WITH_LOOP(events_of_a_closed_descriptor_do_not_reach_its_successor),
        WITH_LOOP(events_no_longer_waited_for_are_dropped),
        WITH_LOOP(an_error_names_what_cannot_be_watched),
        cmocka_unit_test(timers_follow_the_loops_clock),
        WITH_LOOP(timers_of_an_idle_loop_fire_in_time),
        WITH_LOOP(a_coarse_wait_is_never_early),
        WITH_LOOP(deferred_work_runs_once_after_all_events),
        WITH_LOOP(work_that_defers_itself_runs_in_the_next_iteration),
        WITH_LOOP(messages_of_many_threads_arrive_once_and_in_order),
        WITH_LOOP(many_messages_take_several_iterations),
        cmocka_unit_test(no_wakeup_is_lost_between_two_loops),
        WITH_LOOP(a_loop_stopped_before_its_run_iterates_once),
        cmocka_unit_test(the_end_of_a_loop_delivers_its_messages),
        WITH_LOOP(a_signal_handler_may_stop_a_loop),
        WITH_LOOP(work_deferred_last_runs_after_all_other_work),
        cmocka_unit_test(other_threads_read_the_load_of_a_loop),
        cmocka_unit_test(the_longest_iteration_is_kept_for_a_minute_or_two),
        cmocka_unit_test(the_present_iteration_counts),
        cmocka_unit_test(lack_of_descriptors_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
