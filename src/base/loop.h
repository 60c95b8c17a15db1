/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An event loop on epoll, owned by one thread. File descriptors, timers, messages from other
 * threads, and work for the end of the iteration; all of them are embedded in the objects they
 * serve, so that nothing here allocates.
 *
 * One iteration: wait → callbacks of ready descriptors → messages → timers due → deferred work →
 * what was deferred to the last. All that was ready is handled before the deferred work runs, which
 * makes an iteration a batch: a transport reads and parses in the callbacks and writes each
 * connection once, in its deferred work.
 *
 * Any callback may add, change and remove any watcher, timer or work, its own included, and free
 * the object around it: what was removed is not called back any more, in this iteration neither.
 *
 * Thread: the owner's (the one in loop_run(), or any one before it runs), unless said otherwise.
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
/* events: those that are ready, of EPOLLIN and so on; EPOLLERR and EPOLLHUP come unasked. */
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
    uint64_t sleeps;   /* iterations that found nothing to do at first and waited */
    uint64_t events;   /* callbacks of ready descriptors */
    uint64_t wakeups;  /* by another thread's message, or by loop_stop() */
    uint64_t messages; /* delivered */
    uint64_t timers;   /* run */
};

/* How a loop does, as others see it. */
struct loop_load {
    unsigned int busy_permille; /* of the last LOOP_LOAD_NS, or somewhat longer, in iterations */
    uint64_t in_iteration_ns;   /* how long its iteration lasts by now; 0 while it waits */
};

#define LOOP_LOAD_NS (100 * NS_PER_MS)

enum { LOOP_BATCH = 256 }; /* ready descriptors per iteration; others come first in the next */

struct loop {
    /* Set by loop_init(), constant afterwards. */
    struct clock *clock;
    int epoll_fd;
    bool coarse_wait; /* the kernel waits in milliseconds only (before 5.11, or forbidden) */

    /* The owner's. */
    uint64_t now_ns; /* read once per iteration, after the wait */
    uint64_t iteration;
    struct timers timers;
    struct list deferred;  /* for the end of this iteration */
    struct list next;      /* for the end of the next one */
    struct list last;      /* for when all of this iteration's is done */
    struct list next_last; /* the same of the next one */
    struct loop_fd wake;
    struct epoll_event ready[LOOP_BATCH];
    uint64_t load_since_ns;  /* what is measured for busy_permille, began; */
    uint64_t load_waited_ns; /* and of that it waited */
    int n_ready, next_ready; /* of this iteration; ready[next_ready..) are to be called */
    pthread_t owner;
    bool running;

    /* Any thread. */
    struct mailbox mailbox;
    atomic_bool stopping;

    /* Written by the owner, read by any thread; relaxed, a stale value is harmless. */
    struct {
        _Atomic uint64_t iterations, sleeps, events, wakeups, messages, timers;
    } counts;
    _Atomic uint64_t phase; /* since when it runs, or waits: twice that, + 1: it waits */
    atomic_uint busy_permille;
};

/*
 * loop_init - a loop that is ready to run.
 *
 * @clock  the time of timers; clock_real() outside tests
 * Errors: STATUS_UNAVAILABLE  no file descriptor is left
 */
NODISCARD struct status *loop_init(struct loop *loop, struct clock *clock);

/*
 * loop_done - delivers the messages that are left and ends the loop. It does not run any more, and
 * nobody posts to it; watchers and timers that are still there are forgotten, descriptors stay
 * open.
 */
void loop_done(struct loop *loop);

/* loop_run - runs iterations on the calling thread until loop_stop(). May be called again after
 * that. */
void loop_run(struct loop *loop);

/*
 * loop_stop - loop_run() returns at the end of the current iteration; if it does not run yet, at
 * the end of its first iteration. Must have returned before loop_done(). Thread: any; signal
 * handlers too.
 */
void loop_stop(struct loop *loop);

/*
 * loop_iterate - a single iteration, for tests and for owners that have a loop of their own; how
 * many callbacks it made.
 *
 * @max_wait_ns  how long to wait when nothing is ready; UINT64_MAX for as long as it takes
 */
unsigned int loop_iterate(struct loop *loop, uint64_t max_wait_ns);

/* loop_now_ns - the time at which the iteration began to be handled: no system call. */
static inline uint64_t loop_now_ns(const struct loop *loop)
{
    return loop->now_ns;
}

/* loop_refresh_time - reads the clock, after a callback that took long; the new loop_now_ns(). */
uint64_t loop_refresh_time(struct loop *loop);

/*
 * loop_add_fd - w->callback will be called whenever fd is ready.
 *
 * @w       stays where it is until loop_remove_fd(), which comes before the close of fd
 * @events  EPOLLIN, EPOLLOUT, EPOLLRDHUP, EPOLLET, EPOLLEXCLUSIVE
 * Errors:  STATUS_UNAVAILABLE  the kernel has no room for another watch
 *          STATUS_INTERNAL     not a descriptor that can be waited for
 */
NODISCARD struct status *loop_add_fd(struct loop *loop, struct loop_fd *w, int fd, uint32_t events,
                                     loop_fd_fn callback);

/*
 * loop_change_fd - waits for other events from now on; costs nothing when they are the same. 0
 * pauses, but errors and hang-ups still come, again in each iteration until the descriptor is
 * removed.
 */
void loop_change_fd(struct loop *loop, struct loop_fd *w, uint32_t events);

/*
 * loop_rearm_fd - with EPOLLET: tells again of what is ready now. For an owner that left something
 * behind, on purpose or because a call was interrupted.
 */
void loop_rearm_fd(struct loop *loop, struct loop_fd *w);

/* loop_remove_fd - w is not called back any more; harmless when it is not added (w->fd is -1). */
void loop_remove_fd(struct loop *loop, struct loop_fd *w);

/*
 * loop_set_timer - t->callback will be called at the end of the wait at deadline_ns, in the time of
 * loop_now_ns(); less than a millisecond late when the loop is idle, never early. Sets it anew when
 * it is set. timer_init() comes first.
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
 * loop_defer - runs work->callback once, at the end of this iteration (before the loop runs: of the
 * first). Deferring it again before it ran changes nothing. A work that defers itself, or is
 * deferred by another one after it ran, comes at the end of the next iteration, which follows at
 * once.
 */
void loop_defer(struct loop *loop, struct loop_work *work);

/*
 * loop_defer_last - as loop_defer(), but after all that was deferred, so that what waits for it
 * waits for nothing else of the iteration. What it defers itself runs in the same iteration.
 */
void loop_defer_last(struct loop *loop, struct loop_work *work);

/* loop_cancel_work - work does not run any more; harmless when it is not deferred. */
void loop_cancel_work(struct loop *loop, struct loop_work *work);

/* loop_post - mailbox_post() to the loop. Thread: any. */
static inline void loop_post(struct loop *loop, struct message *m)
{
    mailbox_post(&loop->mailbox, m);
}

/* loop_get_stats - Thread: any. */
void loop_get_stats(const struct loop *loop, struct loop_stats *ret_stats);

/* loop_get_load - Thread: any. @now_ns  in the time of the loop's clock */
void loop_get_load(const struct loop *loop, uint64_t now_ns, struct loop_load *ret_load);

#endif
