/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The watchdog watches threads that execute models inline. When an execution holds up a loop for
 * longer than WATCHDOG_LIMIT_NS, the watchdog logs it while it still lasts. Its model executes only
 * on its workers from then on (execution_overdue()).
 *
 * A server has one watchdog thread. It looks every WATCHDOG_LIMIT_NS while something runs inline,
 * and earlier when it has seen an execution that may be over the limit by then. So it logs an
 * execution at one and a half times the limit at the latest. The thread sleeps when nothing has run
 * for a while. An inline execution costs two stores, a load, and one exchange more.
 * Time in which a thread waits for a CPU does not count: only time in which the thread was seen to
 * compute, or to wait for something in the execution.
 */
#ifndef CONCH_CORE_THREADS_WATCHDOG_H
#define CONCH_CORE_THREADS_WATCHDOG_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/list.h"
#include "base/mutex.h"
#include "base/sleeper.h"
#include "base/thread.h"

struct clock;
struct instance;
struct status;
struct watchdog;

#define WATCHDOG_LIMIT_NS 5000000ULL

/* What one thread executes inline now; part of its inline budget. Zero: it is not watched. */
struct inline_watch {
    struct watchdog *dog; /* constant once opened */
    struct list link;     /* under watchdog.mu */

    /* The thread's. */
    uint64_t waited_ns; /* thread_waited_ns() when it was last read */

    /* Written by the thread. */
    _Atomic(pid_t) tid;
    atomic_uintptr_t instance; /* 0: none; +1: the watchdog examines it now (HELD) */
    atomic_uint_least64_t since_ns;

    /* The watchdog's: of the execution that it sees. */
    uint64_t seen_ns; /* its since_ns; 0: of none */
    uint64_t cpu_ns;  /* of the thread when it was first seen */
    bool logged;
};

/*
 * An execution on the instance has held up its thread for stood_ns, and still lasts. Thread: the
 * watchdog's; takes no lock of a level below watchdog.mu.
 */
typedef void long_execution_fn(struct instance *in, uint64_t stood_ns);

/* A server's. */
struct watchdog {
    /* Constant. */
    struct clock *clock;
    long_execution_fn *on_long_execution;

    struct mutex mu; /* level 720 in core/README.md */
    /* Under mu. */
    struct list watches;
    struct sleeper sleeper; /* roused by the first execution after a pause, and the end */
    bool has_thread, ending;
    struct thread thread;

    atomic_bool parked; /* the thread sleeps: a thread that begins an execution wakes it */
};

void watchdog_init(struct watchdog *d, struct clock *clock, long_execution_fn *on_long_execution);
/* watchdog_done - joins the thread. No inline_watch is open. */
void watchdog_done(struct watchdog *d);

/*
 * watchdog_start - starts the thread, unless it runs. Thread: control.
 *
 * Errors: STATUS_UNAVAILABLE  the system has no room for another thread
 */
NODISCARD struct status *watchdog_start(struct watchdog *d);

/* inline_watch_open, inline_watch_close - begin and end to watch a thread. Thread: any, while the
 * watched thread executes nothing. */
void inline_watch_open(struct inline_watch *w, struct watchdog *d);
void inline_watch_close(struct inline_watch *w);

/* inline_watch_begin, inline_watch_end - around an inline execution. Thread: the one that executes.
 */
void inline_watch_begin(struct inline_watch *w, struct instance *in, uint64_t now_ns);
void inline_watch_end(struct inline_watch *w);

/*
 * inline_watch_starved_ns - how much of the last took_ns this thread may have waited for a CPU.
 * Reads a file of the system, so it is for long executions only.
 */
uint64_t inline_watch_starved_ns(struct inline_watch *w, uint64_t took_ns);

#endif
