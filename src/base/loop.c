/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN: level-triggered epoll, one epoll_pwait2() per iteration.
 *
 * Waiting: epoll_pwait2() takes nanoseconds, so a timer costs no system call of its own; a timerfd
 * would cost a timerfd_settime() for each new earliest deadline and an event for each expiry. Where
 * the kernel lacks it (before 5.11) or a container forbids it, epoll_wait() takes its place, with
 * the wait rounded up to the next millisecond: still never early, at most a millisecond late.
 *
 * Removal during an iteration: an event that was fetched for a watcher that is gone by now must not
 * be delivered, since the watcher's memory may be gone too. loop_remove_fd() therefore looks
 * through the events of this iteration that are still to be delivered, a few hundred at most, and
 * blanks its own.
 *
 * Sleep: the mailbox is asked before each wait that may block (base/mailbox.c). Its eventfd is
 * watched edge-triggered, so that it never needs to be read.
 */
#include "base/loop.h"

#include <errno.h>
#include <limits.h>
#include <unistd.h>

#include "base/status.h"

static void assert_owner(const struct loop *loop)
{
#ifdef CONCH_DEBUG
    BUG_ON(loop->running && !loop_is_on_thread(loop));
#else
    (void)loop;
#endif
}

/* Only the owner writes, so a locked addition is not needed. */
#define LOAD(field)         atomic_load_explicit(&(field), memory_order_relaxed)
#define STORE(field, value) atomic_store_explicit(&(field), value, memory_order_relaxed)

static void add_count(_Atomic uint64_t *counter, uint64_t n)
{
    uint64_t before = atomic_load_explicit(counter, memory_order_relaxed);
    atomic_store_explicit(counter, before + n, memory_order_relaxed);
}

static void on_wake(struct loop_fd *w, uint32_t events)
{
    struct loop *loop = CONTAINER_OF(w, struct loop, wake);
    (void)events;
    add_count(&loop->counts.wakeups, 1); /* every iteration delivers the messages themselves */
}

struct status *loop_init(struct loop *loop, struct clock *clock)
{
    *loop = (struct loop){.clock = clock, .epoll_fd = -1, .wake.fd = -1};
    struct status *st = mailbox_init(&loop->mailbox);
    if (st)
        return status_prefix(st, "event loop: ");

    timers_init(&loop->timers);
    list_init(&loop->deferred);
    list_init(&loop->next);
    list_init(&loop->last);
    list_init(&loop->next_last);
    loop->load_since_ns = loop_refresh_time(loop);
    loop->began_ns = UINT64_MAX;
    atomic_init(&loop->phase, loop->now_ns * 2 + 1);

    loop->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (loop->epoll_fd < 0)
        st = status_from_errno(errno, "event loop: failed to create an epoll instance");
    else
        st = loop_add_fd(loop, &loop->wake, loop->mailbox.wake_fd, EPOLLIN | EPOLLET, on_wake);
    if (st) {
        loop_done(loop);
        return st;
    }
    return NULL;
}

void loop_done(struct loop *loop)
{
    while (mailbox_deliver(&loop->mailbox, UINT_MAX) > 0) {
        /* the callbacks may have posted more */
    }
    mailbox_done(&loop->mailbox);
    if (loop->epoll_fd >= 0)
        close(loop->epoll_fd);
    loop->epoll_fd = -1;
}

uint64_t loop_refresh_time(struct loop *loop)
{
    loop->now_ns = clock_now_ns(loop->clock);
    return loop->now_ns;
}

struct status *loop_add_fd(struct loop *loop, struct loop_fd *w, int fd, uint32_t events,
                           loop_fd_fn callback)
{
    assert_owner(loop);
    struct epoll_event ev = {.events = events, .data.ptr = w};
    if (epoll_ctl(loop->epoll_fd, EPOLL_CTL_ADD, fd, &ev) < 0) {
        int err = errno;
        w->fd = -1;
        return status_from_errno(err == ENOSPC ? EAGAIN : err, "failed to watch descriptor %d", fd);
    }
    *w = (struct loop_fd){.fd = fd, .events = events, .callback = callback};
    return NULL;
}

void loop_rearm_fd(struct loop *loop, struct loop_fd *w)
{
    assert_owner(loop);
    struct epoll_event ev = {.events = w->events, .data.ptr = w};
    /* The kernel allocates nothing for a change: it fails only for a wrong descriptor. */
    BUG_ON(epoll_ctl(loop->epoll_fd, EPOLL_CTL_MOD, w->fd, &ev) < 0);
}

void loop_change_fd(struct loop *loop, struct loop_fd *w, uint32_t events)
{
    if (w->events == events)
        return;
    w->events = events;
    loop_rearm_fd(loop, w);
}

void loop_remove_fd(struct loop *loop, struct loop_fd *w)
{
    assert_owner(loop);
    if (w->fd < 0)
        return;
    BUG_ON(epoll_ctl(loop->epoll_fd, EPOLL_CTL_DEL, w->fd, NULL) < 0);
    w->fd = -1;
    for (int i = loop->next_ready; i < loop->n_ready; i++) {
        if (loop->ready[i].data.ptr == w)
            loop->ready[i].data.ptr = NULL;
    }
}

void loop_work_init(struct loop_work *work, loop_work_fn callback)
{
    *work = (struct loop_work){.callback = callback};
    list_init(&work->link);
}

static void defer_work(struct loop *loop, struct loop_work *work, struct list *now,
                       struct list *later)
{
    assert_owner(loop);
    if (!list_empty(&work->link))
        return;
    /* Once per iteration, so that every iteration ends. Iteration 0 is the time before the first.
     */
    bool ran = loop->iteration > 0 && work->ran_in_iteration == loop->iteration;
    list_push(ran ? later : now, &work->link);
}

void loop_defer(struct loop *loop, struct loop_work *work)
{
    defer_work(loop, work, &loop->deferred, &loop->next);
}

void loop_defer_last(struct loop *loop, struct loop_work *work)
{
    defer_work(loop, work, &loop->last, &loop->next_last);
}

void loop_cancel_work(struct loop *loop, struct loop_work *work)
{
    assert_owner(loop);
    list_remove(&work->link);
}

/* Returns how long the iteration may sleep; if that is not 0, loop_now_ns() is the time of the
 * call. */
static uint64_t wait_ns(struct loop *loop, uint64_t max_wait_ns)
{
    if (!list_empty(&loop->deferred) || !list_empty(&loop->last) || max_wait_ns == 0)
        return 0;
    uint64_t next_ns = timers_next_ns(&loop->timers);
    uint64_t now_ns = loop_refresh_time(loop); /* the last iteration may have taken long */
    if (next_ns == UINT64_MAX)
        return max_wait_ns;
    return MIN(max_wait_ns, next_ns > now_ns ? next_ns - now_ns : 0);
}

static int wait_coarsely(struct loop *loop, uint64_t ns)
{
    int ms = -1;
    if (ns != UINT64_MAX) {
        uint64_t rounded_ms = ns / NS_PER_MS + (ns % NS_PER_MS != 0);
        ms = rounded_ms < INT_MAX ? (int)rounded_ms : INT_MAX;
    }
    return epoll_wait(loop->epoll_fd, loop->ready, LOOP_BATCH, ms);
}

static int wait_for_events(struct loop *loop, uint64_t ns)
{
    if (loop->coarse_wait)
        return wait_coarsely(loop, ns);
    /* Longer waits are cut to a day: the kernel's time types have a limit, and a spurious
     * iteration costs nothing. */
    struct timespec ts = {.tv_sec = (time_t)MIN(ns / NS_PER_S, (uint64_t)86400),
                          .tv_nsec = (long)(ns % NS_PER_S)};
    int n =
        epoll_pwait2(loop->epoll_fd, loop->ready, LOOP_BATCH, ns == UINT64_MAX ? NULL : &ts, NULL);
    if (n < 0 && (errno == ENOSYS || errno == EPERM)) {
        loop->coarse_wait = true;
        return wait_coarsely(loop, ns);
    }
    return n;
}

static void set_phase(struct loop *loop, bool waits)
{
    atomic_store_explicit(&loop->phase, loop->now_ns * 2 + waits, memory_order_relaxed);
}

static __attribute__((noinline)) void note_longest(struct loop *loop, uint64_t ns, uint64_t now_ns)
{
    uint64_t since_ns = LOAD(loop->longest_since_ns);
    if (now_ns - since_ns > LOOP_LONGEST_NS) {
        bool is_next = now_ns - since_ns <= 2 * LOOP_LONGEST_NS;
        STORE(loop->longest_before_ns, is_next ? LOAD(loop->longest_ns) : 0);
        STORE(loop->longest_since_ns, now_ns);
        STORE(loop->longest_ns, 0);
    }
    if (ns > LOAD(loop->longest_ns))
        STORE(loop->longest_ns, ns);
}

/*
 * Notes that the iteration has ended. Its time is that of its callbacks: the wait, if any, comes
 * behind.
 */
static void note_end(struct loop *loop, uint64_t now_ns)
{
    uint64_t ns = now_ns > loop->began_ns ? now_ns - loop->began_ns : 0;
    if (UNLIKELY(ns > LOAD(loop->longest_ns) ||
                 now_ns - LOAD(loop->longest_since_ns) > LOOP_LONGEST_NS))
        note_longest(loop, ns, now_ns);
}

/* Notes that an iteration begins after a wait of this length. */
static void note_load(struct loop *loop, uint64_t waited_ns)
{
    uint64_t whole_ns = loop->now_ns - loop->load_since_ns;
    loop->load_waited_ns += waited_ns;
    if (UNLIKELY(whole_ns >= LOOP_LOAD_NS)) {
        uint64_t waited_permille = MIN(loop->load_waited_ns, whole_ns) * 1000 / whole_ns;
        atomic_store_explicit(&loop->busy_permille, (unsigned int)(1000 - waited_permille),
                              memory_order_relaxed);
        loop->load_since_ns = loop->now_ns;
        loop->load_waited_ns = 0;
    }
    loop->began_ns = loop->now_ns;
    set_phase(loop, false);
}

static unsigned int call_back_ready(struct loop *loop)
{
    unsigned int n_calls = 0;
    while (loop->next_ready < loop->n_ready) {
        struct epoll_event *ev = &loop->ready[loop->next_ready++];
        struct loop_fd *w = ev->data.ptr;
        if (!w)
            continue; /* removed by an earlier callback of this iteration */
        /* An earlier callback may have changed the events that are waited for. */
        uint32_t events = ev->events & (w->events | EPOLLERR | EPOLLHUP);
        if (!events)
            continue;
        n_calls++;
        w->callback(w, events);
    }
    loop->n_ready = loop->next_ready = 0;
    return n_calls;
}

static unsigned int run_deferred(struct loop *loop)
{
    unsigned int n = 0;
    struct list *link;
    while ((link = list_pop(&loop->deferred)) || (link = list_pop(&loop->last))) {
        struct loop_work *work = LIST_ENTRY(link, struct loop_work, link);
        work->ran_in_iteration = loop->iteration;
        n++;
        work->callback(work);
    }
    list_move_all(&loop->deferred, &loop->next);
    list_move_all(&loop->last, &loop->next_last);
    return n;
}

unsigned int loop_iterate(struct loop *loop, uint64_t max_wait_ns)
{
    assert_owner(loop);
    uint64_t ns = wait_ns(loop, max_wait_ns);
    if (ns > 0 && !mailbox_sleep(&loop->mailbox))
        ns = 0;
    uint64_t wait_began_ns = loop->now_ns;
    if (ns > 0) {
        note_end(loop, wait_began_ns);
        set_phase(loop, true);
    }
    int n_ready = wait_for_events(loop, ns);
    BUG_ON(n_ready < 0 && errno != EINTR);

    loop->iteration++;
    loop->n_ready = MAX(n_ready, 0);
    uint64_t now_ns = loop_refresh_time(loop);
    if (ns == 0)
        note_end(loop, now_ns);
    note_load(loop, ns > 0 ? now_ns - wait_began_ns : 0);
    unsigned int n_calls = call_back_ready(loop);
    unsigned int n_messages = mailbox_deliver(&loop->mailbox, LOOP_BATCH);
    unsigned int n_timers = timers_run(&loop->timers, loop->now_ns);
    unsigned int n_work = run_deferred(loop);

    add_count(&loop->counts.iterations, 1);
    add_count(&loop->counts.sleeps, ns > 0);
    add_count(&loop->counts.events, n_calls);
    add_count(&loop->counts.messages, n_messages);
    add_count(&loop->counts.timers, n_timers);
    return n_calls + n_messages + n_timers + n_work;
}

void loop_run(struct loop *loop)
{
    loop->owner = pthread_self();
    loop->running = true;
    do {
        loop_iterate(loop, UINT64_MAX);
    } while (!atomic_load_explicit(&loop->stopping, memory_order_acquire));
    atomic_store_explicit(&loop->stopping, false, memory_order_relaxed);
    loop->running = false;
}

void loop_stop(struct loop *loop)
{
    /* Pairs with the acquire in loop_run(): writes of the stopping thread before are visible
     * there. */
    atomic_store_explicit(&loop->stopping, true, memory_order_release);
    mailbox_wake(&loop->mailbox);
}

void loop_get_stats(const struct loop *loop, struct loop_stats *ret_stats)
{
    *ret_stats = (struct loop_stats){
        .iterations = atomic_load_explicit(&loop->counts.iterations, memory_order_relaxed),
        .sleeps = atomic_load_explicit(&loop->counts.sleeps, memory_order_relaxed),
        .events = atomic_load_explicit(&loop->counts.events, memory_order_relaxed),
        .wakeups = atomic_load_explicit(&loop->counts.wakeups, memory_order_relaxed),
        .messages = atomic_load_explicit(&loop->counts.messages, memory_order_relaxed),
        .timers = atomic_load_explicit(&loop->counts.timers, memory_order_relaxed),
    };
}

void loop_get_load(const struct loop *loop, uint64_t now_ns, struct loop_load *ret_load)
{
    uint64_t phase = atomic_load_explicit(&loop->phase, memory_order_relaxed);
    uint64_t since_ns = phase / 2, ns = now_ns > since_ns ? now_ns - since_ns : 0;
    bool waits = phase % 2;
    unsigned int busy = atomic_load_explicit(&loop->busy_permille, memory_order_relaxed);
    ret_load->busy_permille = waits && ns >= LOOP_LOAD_NS ? 0 : busy;
    ret_load->in_iteration_ns = waits ? 0 : ns;
}

uint64_t loop_get_longest_ns(const struct loop *loop, uint64_t now_ns)
{
    struct loop_load load;
    uint64_t since_ns = LOAD(loop->longest_since_ns), ns = now_ns - MIN(now_ns, since_ns);
    loop_get_load(loop, now_ns, &load);
    uint64_t longest_ns = load.in_iteration_ns;
    if (ns <= 2 * LOOP_LONGEST_NS)
        longest_ns = MAX(longest_ns, LOAD(loop->longest_ns));
    if (ns <= LOOP_LONGEST_NS)
        longest_ns = MAX(longest_ns, LOAD(loop->longest_before_ns));
    return longest_ns;
}
