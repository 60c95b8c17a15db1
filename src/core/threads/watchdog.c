/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An instance may be freed as soon as its execution has ended, which the watchdog learns from
 * another thread. So it takes hold of the instance by setting HELD beside the pointer. A thread
 * that ends an execution that is held waits for the watchdog's lock, under which all of a look is
 * made.
 *
 * The watchdog parks when nothing has run inline for some ticks. A thread stores its execution and
 * reads `parked`; the watchdog stores `parked` and reads the executions. Both could miss each
 * other, since each processor may delay its stores, and a fence for that would cost every request.
 * Instead the watchdog looks once more after a time in which every store becomes visible
 * (SETTLE_NS), and only then sleeps without a limit.
 */
#include "core/threads/watchdog.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/status.h"

enum { WATCHDOG_LEVEL = 720 };
enum { HELD = 1 };
enum { QUIET_LOOKS = 5 }; /* after this many without an inline execution it parks */
#define SETTLE_NS (50 * NS_PER_MS)
/* The time between two looks at the same execution, and the least part of it for which a
 * computing thread has had a CPU. */
#define AGAIN_NS   (WATCHDOG_LIMIT_NS / 2)
#define AT_WORK_NS (AGAIN_NS - NS_PER_MS / 2)

void watchdog_init(struct watchdog *d, struct clock *clock, long_execution_fn *on_long_execution)
{
    d->clock = clock;
    d->on_long_execution = on_long_execution;
    mutex_init(&d->mu, WATCHDOG_LEVEL, "watchdog.mu");
    sleeper_init(&d->sleeper);
    list_init(&d->watches);
    d->has_thread = d->ending = false;
    atomic_init(&d->parked, false);
}

void watchdog_done(struct watchdog *d)
{
    mutex_lock(&d->mu);
    d->ending = true;
    void *asleep = sleeper_rouse(&d->sleeper);
    mutex_unlock(&d->mu);
    sleeper_wake(asleep);
    if (d->has_thread)
        thread_join(&d->thread);
    mutex_done(&d->mu);
}

/* ---- A look ---------------------------------------------------------------------------------- */

/* Returns the CPU time of another thread of this process, which is inside an execution. */
static uint64_t cpu_ns_of(pid_t tid)
{
    /* The system's name for the clock of a thread's CPU time; see clock_getcpuclockid(3). */
    clockid_t clock = (clockid_t)((~(unsigned int)tid << 3) | 6);
    struct timespec ts;
    if (clock_gettime(clock, &ts) != 0)
        return 0;
    return (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
}

/* Does the thread wait for something other than a CPU? True also if the system does not report
 * it. */
static bool is_asleep(pid_t tid)
{
    char path[64], state = 'S';
    snprintf(path, sizeof(path), "/proc/self/task/%d/stat", (int)tid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return true;
    char line[256];
    ssize_t n = read(fd, line, sizeof(line) - 1);
    close(fd);
    line[MAX(n, 0)] = '\0';
    /* "123 (name) R …"; our threads' names have no parenthesis, an embedder's may. */
    const char *end = strrchr(line, ')');
    if (end && end[1] == ' ')
        state = end[2];
    return state != 'R';
}

/*
 * The execution lasts too long by the clock. Has its thread used, or slept, that time itself? On a
 * busy machine every execution lasts long. A thread that only waited for a CPU proves nothing about
 * its model, and a model that is taken off the loop pays for a hand-over with each request.
 */
static bool is_to_blame(const struct inline_watch *w, pid_t tid)
{
    return cpu_ns_of(tid) - w->cpu_ns >= AT_WORK_NS || is_asleep(tid);
}

/* Returns when the execution is to be looked at again. */
static uint64_t look_at_execution(const struct watchdog *d, struct inline_watch *w,
                                  struct instance *in, uint64_t now_ns)
{
    uint64_t since_ns = atomic_load_explicit(&w->since_ns, memory_order_relaxed);
    pid_t tid = atomic_load_explicit(&w->tid, memory_order_relaxed);
    if (w->seen_ns != since_ns) {
        w->seen_ns = since_ns;
        w->cpu_ns = cpu_ns_of(tid);
        w->logged = false;
        return MAX(since_ns + WATCHDOG_LIMIT_NS, now_ns + AGAIN_NS);
    }
    uint64_t stood_ns = now_ns - MIN(since_ns, now_ns);
    if (w->logged)
        return now_ns + WATCHDOG_LIMIT_NS;
    if (stood_ns < WATCHDOG_LIMIT_NS || !is_to_blame(w, tid))
        return now_ns + AGAIN_NS;
    w->logged = true;
    d->on_long_execution(in, stood_ns);
    return now_ns + WATCHDOG_LIMIT_NS;
}

/* Has anything run inline since the last look? *ret_next_ns: when to look again. */
static bool look_at_watches_locked(struct watchdog *d, uint64_t last_ns, uint64_t now_ns,
                                   uint64_t *ret_next_ns)
{
    bool active = false;
    *ret_next_ns = now_ns + WATCHDOG_LIMIT_NS;
    LIST_FOR_EACH (link, &d->watches) {
        struct inline_watch *w = LIST_ENTRY(link, struct inline_watch, link);
        uintptr_t seen = atomic_load_explicit(&w->instance, memory_order_relaxed);
        active |= seen || atomic_load_explicit(&w->since_ns, memory_order_relaxed) >= last_ns;
        /* Acquire: sees the thread's writes before its store of the pointer. */
        if (!seen ||
            !atomic_compare_exchange_strong_explicit(&w->instance, &seen, seen | HELD,
                                                     memory_order_acquire, memory_order_relaxed))
            continue;
        *ret_next_ns = MIN(*ret_next_ns, look_at_execution(d, w, (struct instance *)seen, now_ns));
        /* Fails if the execution has ended meanwhile: its thread has stored 0, has seen HELD, and
         * waits for d->mu. So the instance exists until this look is over. */
        uintptr_t held = seen | HELD;
        atomic_compare_exchange_strong_explicit(&w->instance, &held, seen, memory_order_release,
                                                memory_order_relaxed);
    }
    return active;
}

/* ---- The time of looks ----------------------------------------------------------------------- */

static void sleep_locked(struct watchdog *d, uint64_t until_ns)
{
    sleeper_prepare(&d->sleeper);
    mutex_unlock(&d->mu);
    if (until_ns == UINT64_MAX)
        sleeper_wait(&d->sleeper, 0);
    else
        sleeper_wait_by_clock(&d->sleeper, d->clock, until_ns);
    mutex_lock(&d->mu);
}

static void park_locked(struct watchdog *d, uint64_t last_ns)
{
    uint64_t unused_ns;
    atomic_store(&d->parked, true);
    sleep_locked(d, clock_now_ns(d->clock) + SETTLE_NS);
    if (!look_at_watches_locked(d, last_ns, clock_now_ns(d->clock), &unused_ns)) {
        while (atomic_load(&d->parked) && !d->ending)
            sleep_locked(d, UINT64_MAX);
    }
    atomic_store(&d->parked, false);
}

static void run_watchdog_thread(void *arg)
{
    struct watchdog *d = arg;
    uint64_t last_ns = 0;
    mutex_lock(&d->mu);
    for (int n_quiet = 0; !d->ending;) {
        uint64_t now_ns = clock_now_ns(d->clock), next_ns;
        n_quiet = look_at_watches_locked(d, last_ns, now_ns, &next_ns) ? 0 : n_quiet + 1;
        last_ns = now_ns;
        if (n_quiet < QUIET_LOOKS) {
            sleep_locked(d, next_ns);
        } else {
            park_locked(d, last_ns);
            n_quiet = 0;
        }
    }
    mutex_unlock(&d->mu);
}

struct status *watchdog_start(struct watchdog *d)
{
    struct status *st = NULL;
    mutex_lock(&d->mu);
    if (!d->has_thread)
        st = thread_start(&d->thread, "watchdog", run_watchdog_thread, d);
    d->has_thread = !st;
    mutex_unlock(&d->mu);
    return st;
}

static void unpark_watchdog(struct watchdog *d)
{
    if (!atomic_exchange(&d->parked, false))
        return; /* another thread does */
    mutex_lock(&d->mu);
    void *asleep = sleeper_rouse(&d->sleeper);
    mutex_unlock(&d->mu);
    sleeper_wake(asleep);
}

/* ---- The watched threads --------------------------------------------------------------------- */

void inline_watch_open(struct inline_watch *w, struct watchdog *d)
{
    *w = (struct inline_watch){.dog = d};
    mutex_lock(&d->mu);
    list_push(&d->watches, &w->link);
    mutex_unlock(&d->mu);
}

void inline_watch_close(struct inline_watch *w)
{
    struct watchdog *d = w->dog;
    if (!d)
        return;
    mutex_lock(&d->mu);
    list_remove(&w->link);
    mutex_unlock(&d->mu);
    w->dog = NULL;
}

void inline_watch_begin(struct inline_watch *w, struct instance *in, uint64_t now_ns)
{
    if (!w->dog)
        return;
    if (UNLIKELY(!atomic_load_explicit(&w->tid, memory_order_relaxed)))
        atomic_store_explicit(&w->tid, gettid(), memory_order_relaxed);
    atomic_store_explicit(&w->since_ns, now_ns, memory_order_relaxed);
    atomic_store_explicit(&w->instance, (uintptr_t)in, memory_order_release);
    /* The compiler keeps the order; the top of the file says why the processor need not. */
    atomic_signal_fence(memory_order_seq_cst);
    if (UNLIKELY(atomic_load_explicit(&w->dog->parked, memory_order_relaxed)))
        unpark_watchdog(w->dog);
}

void inline_watch_end(struct inline_watch *w)
{
    if (!w->dog)
        return;
    /* Acquire and release: the watchdog is done with the instance, or has not begun. */
    if (LIKELY(!(atomic_exchange_explicit(&w->instance, 0, memory_order_acq_rel) & HELD)))
        return;
    mutex_lock(&w->dog->mu);
    mutex_unlock(&w->dog->mu);
}

uint64_t inline_watch_starved_ns(struct inline_watch *w, uint64_t took_ns)
{
    uint64_t now_ns = thread_waited_ns();
    uint64_t starved_ns = now_ns - MIN(w->waited_ns, now_ns);
    w->waited_ns = now_ns;
    return MIN(starved_ns, took_ns);
}
