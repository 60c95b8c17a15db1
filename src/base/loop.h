/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An event loop on epoll, owned by one thread. It serves file descriptors, timers, messages from
 * other threads, and work that is deferred to the end of the iteration. All of these are embedded
 * in the objects that they serve, so that the loop allocates nothing.
 *
 * One iteration: wait → callbacks of ready descriptors → messages → timers due → deferred work →
 * work of loop_defer_last(). Everything that was ready is handled before the deferred work runs, so
 * an iteration is a batch: a transport reads and parses in the callbacks, and writes each
 * connection once, in its deferred work.
 *
 * Any callback may add, change and remove any watcher, timer or work, its own included, and free
 * the object around it. What was removed is not called back any more, even in the same iteration.
 *
 * Thread: the owner's, unless said otherwise. The owner is the thread in loop_run(); before that
 * runs, any one thread.
 */
#ifndef CONCH_BASE_LOOP_H
#define CONCH_BASE_LOOP_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "base/list.h"
#include "base/mailbox.h"
#include "base/timer.h"

struct loop_fd;
/* events: the ready ones, such as EPOLLIN; EPOLLERR and EPOLLHUP come even if not asked for. */
typedef void (*loop_fd_fn)(struct loop_fd *w, uint32_t events);

struct loop_fd {
    int fd; /* -1 while not added */
    uint32_t events;
    loop_fd_fn callback;
};

struct loop_work;
typedef void (*loop_work_fn)(struct loop_work *work);

struct loop_work {
    struct list link;
    loop_work_fn callback;
    uint64_t ran_in_iteration;
};

/* Counted since loop_init(). */
struct loop_stats {
    uint64_t iterations;
    uint64_t sleeps;   /* iterations that had nothing to do at first and waited */
    uint64_t events;   /* callbacks of descriptors */
    uint64_t wakeups;  /* by another thread's message, or by loop_stop() */
    uint64_t messages; /* delivered */
    uint64_t timers;   /* run */
};

/* The load of a loop, as other threads see it. */
struct loop_load {
    unsigned int busy_permille; /* share of the last LOOP_LOAD_NS or more spent in iterations */
    uint64_t in_iteration_ns;   /* how long the current iteration has lasted; 0 while it waits */
};

#define LOOP_LOAD_NS    (100 * NS_PER_MS)
#define LOOP_LONGEST_NS (60 * NS_PER_S)

/* Ready descriptors, and messages, per iteration; the rest come first in the next. */
enum { LOOP_BATCH = 256 };

struct loop {
    /* Set by loop_init(), constant afterwards. */
    struct clock *clock;
    int epoll_fd;
    bool coarse_wait; /* the kernel waits in milliseconds only (before 5.11, or forbidden) */

    /* The owner's. */
    uint64_t now_ns; /* read once per iteration, after the wait */
    uint64_t iteration;
    struct timers timers;
    struct list deferred;  /* runs at the end of this iteration */
    struct list next;      /* runs at the end of the next iteration */
    struct list last;      /* runs after `deferred` is empty */
    struct list next_last; /* the same for the next iteration */
    struct loop_fd wake;
    struct epoll_event ready[LOOP_BATCH];
    uint64_t began_ns;       /* start of the last iteration; UINT64_MAX: there was none */
    uint64_t load_since_ns;  /* start of the measurement for busy_permille */
    uint64_t load_waited_ns; /* waiting time since load_since_ns */
    int n_ready, next_ready; /* of this iteration; ready[next_ready..n_ready) are still due */
    pthread_t owner;
    bool running;

    /* Any thread. */
    struct mailbox mailbox;
    atomic_bool stopping;

    /* Written by the owner, read by any thread; relaxed, a stale value is harmless. */
    struct {
        _Atomic uint64_t iterations, sleeps, events, wakeups, messages, timers;
    } counts;
    /* The longest iteration since longest_since_ns, and of the LOOP_LONGEST_NS before. */
    _Atomic uint64_t longest_since_ns, longest_ns, longest_before_ns;
    _Atomic uint64_t phase; /* twice the start of this iteration or wait, in ns; + 1 for a wait */
    atomic_uint busy_permille;
};

/*
 * loop_init - makes a loop that is ready to run. loop_done() ends it.
 *
 * @clock  the time of timers; clock_real() outside tests
 * Errors: STATUS_UNAVAILABLE  no file descriptor is left
 */
NODISCARD struct status *loop_init(struct loop *loop, struct clock *clock);

/*
 * loop_done - delivers the remaining messages and ends the loop. The loop must not run any more,
 * and no thread may post to it. Watchers and timers that are still set are forgotten; descriptors
 * stay open.
 */
void loop_done(struct loop *loop);

/*
 * loop_run - runs iterations on the calling thread until loop_stop(). It may be called again after
 * that.
 */
void loop_run(struct loop *loop);

/*
 * loop_stop - makes loop_run() return at the end of the current iteration. If the loop does not run
 * yet, loop_run() returns after its first iteration. loop_stop() must have returned before
 * loop_done() is called. Thread: any; signal handlers, too.
 */
void loop_stop(struct loop *loop);

/*
 * loop_iterate - runs a single iteration, for tests and for owners that have a loop of their own.
 * Returns the number of callbacks that it made.
 *
 * @max_wait_ns  how long to wait when nothing is ready; UINT64_MAX: without limit
 */
unsigned int loop_iterate(struct loop *loop, uint64_t max_wait_ns);

/* loop_now_ns - the time at which the wait of this iteration ended; makes no system call. */
static inline uint64_t loop_now_ns(const struct loop *loop)
{
    return loop->now_ns;
}

/*
 * loop_refresh_time - reads the clock, for use after a long callback; returns the new
 * loop_now_ns().
 */
uint64_t loop_refresh_time(struct loop *loop);

/*
 * loop_add_fd - has w->callback called whenever fd is ready.
 *
 * @w       must stay at its address until loop_remove_fd(), which comes before the close of fd
 * @events  EPOLLIN, EPOLLOUT, EPOLLRDHUP, EPOLLET, EPOLLEXCLUSIVE
 * Errors:  STATUS_UNAVAILABLE  the kernel has no room for another watch
 *          STATUS_INTERNAL     epoll cannot watch this descriptor
 */
NODISCARD struct status *loop_add_fd(struct loop *loop, struct loop_fd *w, int fd, uint32_t events,
                                     loop_fd_fn callback);

/*
 * loop_change_fd - waits for other events from now on; the same events cost nothing. With 0 the
 * watch pauses, but errors and hang-ups are still reported, in each iteration until the descriptor
 * is removed.
 */
void loop_change_fd(struct loop *loop, struct loop_fd *w, uint32_t events);

/*
 * loop_rearm_fd - with EPOLLET: reports again what is ready now. For an owner that did not read or
 * write everything, on purpose or because a call was interrupted.
 */
void loop_rearm_fd(struct loop *loop, struct loop_fd *w);

/* loop_remove_fd - w is not called back any more; harmless when it is not added (w->fd is -1). */
void loop_remove_fd(struct loop *loop, struct loop_fd *w);

/*
 * loop_set_timer - has t->callback called when loop_now_ns() has reached deadline_ns. On an idle
 * loop the call comes less than a millisecond late, and never early. A timer that is set already is
 * moved. timer_init() comes first.
 */
static inline void loop_set_timer(struct loop *loop, struct timer *t, uint64_t deadline_ns)
{
    timers_set(&loop->timers, t, deadline_ns);
}

static inline void loop_clear_timer(struct loop *loop, struct timer *t)
{
    timers_clear(&loop->timers, t);
}

void loop_work_init(struct loop_work *work, loop_work_fn callback);

/*
 * loop_defer - runs work->callback once, at the end of this iteration; before the loop runs, at the
 * end of the first one. Deferring the work again before it has run changes nothing. Work that has
 * run in this iteration and is deferred again, by itself or by other work, runs at the end of the
 * next iteration, which follows without a wait.
 */
void loop_defer(struct loop *loop, struct loop_work *work);

/*
 * loop_defer_last - like loop_defer(), but the work runs after all work of loop_defer(). Other work
 * that it defers runs in the same iteration.
 */
void loop_defer_last(struct loop *loop, struct loop_work *work);

/* loop_cancel_work - the work will not run; harmless when it is not deferred. */
void loop_cancel_work(struct loop *loop, struct loop_work *work);

/*
 * loop_is_on_thread - whether the calling thread is the loop's owner. Thread: any, from when the
 * loop has its first callback.
 */
static inline bool loop_is_on_thread(const struct loop *loop)
{
    return pthread_equal(loop->owner, pthread_self());
}

/* loop_post - posts m to the loop, as mailbox_post() does. Thread: any. */
static inline void loop_post(struct loop *loop, struct message *m)
{
    mailbox_post(&loop->mailbox, m);
}

/* loop_get_stats - copies the counts. Thread: any. */
void loop_get_stats(const struct loop *loop, struct loop_stats *ret_stats);

/* loop_get_load - the load at now_ns, a time of the loop's clock. Thread: any. */
void loop_get_load(const struct loop *loop, uint64_t now_ns, struct loop_load *ret_load);

/*
 * loop_get_longest_ns - the longest iteration of the last LOOP_LONGEST_NS, at least, and twice that
 * at most; the present iteration counts as long as it has lasted. Thread: any.
 *
 * @now_ns  a time of the loop's clock
 */
uint64_t loop_get_longest_ns(const struct loop *loop, uint64_t now_ns);

#endif
