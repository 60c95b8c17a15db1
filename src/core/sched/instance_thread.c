/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An ended thread keeps its stack until it is joined. The instance may not need a new one for days,
 * so the next thread of any instance that ends joins it: at most one waits to be joined, however
 * many have ended. A thread that needs the end (the instance's next thread, or the end of the
 * model) joins by itself, or waits for the joining thread.
 */
#include "core/sched/instance_thread.h"

#include <pthread.h>

#include "base/cpu_count.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/mutex.h"
#include "base/cpu_binding.h"
#include "base/sleeper.h"
#include "base/status.h"
#include "base/thread.h"
#include "core/backend/home.h"
#include "core/backend/instance.h"
#include "core/model/model.h"
#include "core/model/model_services.h"
#include "core/request/request.h"
#include "core/sched/execution.h"

enum { ENDS_LEVEL = 600 };

/*
 * A worker that has just finished polls for a while before it sleeps, as a wake-up costs both sides
 * a system call and some µs of latency. POLL_NS is about that cost. Measured with one request
 * outstanding, embedder and worker on a CPU each: 0.9 µs to the answer where it was 18, and 18 to
 * 36 µs of CPU per request where it was 37 to 49. Where both share a CPU, polling is useless, which
 * shows after four requests, and costs nothing from then on.
 */
#define POLL_NS      30000ULL
#define SHORT_GAP_NS (POLL_NS + 50000ULL) /* of a gap that was slept through: with the wake-up */
enum { FIRST_GAPS = 4, MAX_GAPS = 1024 };

/*
 * Decides whether polling pays: it does after some short gaps in a row; after a useless poll only
 * after twice as many. So a model that is asked now and then polls for next to nothing.
 */
struct patience {
    bool never;              /* no other CPU could bring work meanwhile */
    unsigned int n_short;    /* recent gaps, in a row */
    unsigned int n_required; /* this many make it poll */
};

struct instance_thread {
    /* Constant once started. */
    struct thread thread;
    struct instance *instance;
    struct clock *clock; /* the model's */
    const struct instance_thread_ops *ops;
    struct mutex *mu;
    uint64_t idle_ns; /* UINT64_MAX for a home's thread, which ends only by stop */

    /* Used by the thread itself. */
    struct instance_thread *before; /* ended, to be joined first */
    struct patience patience;
    struct inline_budget budget; /* watched from its first use on */

    /* Under mu. */
    struct sleeper sleeper;
    uint64_t waits_since_ns; /* 0: it does not wait */
    bool idle;               /* it has waited for idle_ns, and ends unless there is work */
    bool stop, ended;

    /* Under ends.mu. */
    bool claimed; /* a thread joins it, or has joined it */
    bool joined;
};

/* Of all instances of all servers in the process. */
static struct {
    pthread_once_t once;
    struct mutex mu; /* level 600 in core/README.md */
    /* Under mu. */
    struct instance_thread *last; /* the one that ended last, if no thread has claimed it */
    struct cond one_joined;
} ends = {.once = PTHREAD_ONCE_INIT};

static void init_ends(void)
{
    mutex_init(&ends.mu, ENDS_LEVEL, "ends.mu");
    cond_init(&ends.one_joined);
}

/* Called by a thread that is about to end: joins the one before it and leaves itself to the
 * next. */
static void hand_over_end(struct instance_thread *w)
{
    mutex_lock(&ends.mu);
    struct instance_thread *before = TAKE(ends.last);
    if (before)
        before->claimed = true;
    if (!w->claimed)
        ends.last = w;
    mutex_unlock(&ends.mu);

    if (!before)
        return;
    thread_join(&before->thread);
    mutex_lock(&ends.mu);
    before->joined = true; /* a thread that waits for it may free it from here on */
    cond_broadcast(&ends.one_joined);
    mutex_unlock(&ends.mu);
}

/* For a thread that ends by itself, or has ended. */
static void join_and_free(struct instance_thread *w)
{
    if (!w)
        return;
    if (w->instance->home) {
        home_wait(w->instance->home);
        mem_free(w);
        return;
    }
    mutex_lock(&ends.mu);
    bool ours = !w->claimed;
    w->claimed = true;
    if (ends.last == w)
        ends.last = NULL;
    while (!ours && !w->joined)
        cond_wait(&ends.one_joined, &ends.mu);
    mutex_unlock(&ends.mu);
    if (ours)
        thread_join(&w->thread);
    mem_free(w);
}

/*
 * The starter may have had a CPU binding of its own, which this thread has inherited. If a binding
 * is no longer possible (a CPU was taken out of service), the instance runs all the same.
 */
static void enter_cpu_binding(const struct instance *in)
{
    const struct cpu_binding *outside = cpu_binding_outside();
    if (outside)
        status_free(cpu_binding_enter(outside, NULL));
    struct cpu_binding before;
    log_status(LOG_WARN, "a model runs where its host policy does not want it",
               instance_enter_cpu_binding(in, &before));
}

static pthread_once_t cpus_once = PTHREAD_ONCE_INIT;
static bool one_cpu;

static void count_cpus(void)
{
    one_cpu = cpu_count_usable() == 1;
}

/* An instance with a CPU binding of its own shares a few CPUs with other bound instances. */
static void init_patience(struct patience *p, const struct instance *in)
{
    pthread_once(&cpus_once, count_cpus);
    *p = (struct patience){.never = one_cpu || in->cpu_binding, .n_required = FIRST_GAPS};
}

static void note_gap(struct patience *p, bool polled, uint64_t gap_ns)
{
    if (gap_ns >= (polled ? POLL_NS : SHORT_GAP_NS)) {
        p->n_short = 0;
        if (polled)
            p->n_required = MIN(2 * p->n_required, (unsigned int)MAX_GAPS);
        return;
    }
    p->n_short = MIN(p->n_short + 1, (unsigned int)MAX_GAPS);
    if (polled)
        p->n_required = FIRST_GAPS;
}

/* Waits until there is work, or the thread must end. Unlocks mu meanwhile. */
static void wait_locked(struct instance_thread *w)
{
    struct patience *p = &w->patience;
    bool polls = !p->never && p->n_short >= p->n_required;
    uint64_t from_ns = w->waits_since_ns = clock_now_ns(w->clock);
    if (w->idle_ns != UINT64_MAX)
        w->ops->waits_locked(w->instance, from_ns + w->idle_ns);
    sleeper_prepare(&w->sleeper);
    mutex_unlock(w->mu);
    sleeper_wait(&w->sleeper, polls ? POLL_NS : 0);
    if (!p->never)
        note_gap(p, polls, clock_now_ns(w->clock) - from_ns);
    mutex_lock(w->mu);
    w->waits_since_ns = 0;
}

/* The models that wait are executed when the thread is done with what else is to be done. */
static void let_wait(struct inline_budget *budget)
{
    (void)budget;
}

struct inline_budget *instance_thread_budget(struct instance_thread *w)
{
    struct inline_budget *budget = &w->budget;
    if (UNLIKELY(!budget->watch.dog)) {
        inline_watch_open(&budget->watch, w->instance->model->services->watchdog);
        budget->on_wait = let_wait;
        budget->is_workers = true;
    }
    budget->left_ns = EXECUTION_BUDGET_NS;
    budget->now_ns = 0; /* that of an earlier use */
    return budget;
}

static void run_instance_thread(void *arg)
{
    struct instance_thread *w = arg;
    struct instance *in = w->instance;

    join_and_free(TAKE(w->before));
    enter_cpu_binding(in);
    init_patience(&w->patience, in);

    mutex_lock(w->mu);
    while (!w->stop) {
        if (w->ops->has_work_locked(in)) {
            w->ops->work_locked(in);
            w->idle = false;
        } else if (!w->idle) {
            wait_locked(w);
        } else {
            break;
        }
    }
    w->ended = true;
    mutex_unlock(w->mu);
    inline_watch_close(&w->budget.watch);
    if (!in->home) /* a home's thread goes on; only this object ends */
        hand_over_end(w);
}

struct status *instance_thread_start_locked(struct instance *in, struct instance_thread *before,
                                            const struct instance_thread_ops *ops, struct mutex *mu,
                                            uint64_t idle_ns, struct instance_thread **ret_thread)
{
    mutex_assert_held(mu);
    pthread_once(&ends.once, init_ends);
    MEM_CHARGE(in->model->owner, MEM_INSTANCES);
    struct instance_thread *w = mem_zalloc(sizeof(*w));
    w->instance = in;
    w->clock = in->model->clock;
    w->ops = ops;
    w->mu = mu;
    w->idle_ns = in->home ? UINT64_MAX : idle_ns;
    w->before = before;
    sleeper_init(&w->sleeper);
    struct status *st = NULL;
    if (in->home)
        home_post(in->home, run_instance_thread, w);
    else
        st = thread_start(&w->thread, in->name, run_instance_thread, w);
    if (st) {
        mem_free(w);
        return st;
    }
    *ret_thread = w;
    return NULL;
}

void *instance_thread_rouse_locked(struct instance_thread *w)
{
    mutex_assert_held(w->mu);
    return sleeper_rouse(&w->sleeper);
}

void instance_thread_wake(void *asleep)
{
    sleeper_wake(asleep);
}

bool instance_thread_has_ended_locked(const struct instance_thread *w)
{
    return w->ended;
}

uint64_t instance_thread_end_idle_locked(struct instance_thread *w, uint64_t now_ns)
{
    mutex_assert_held(w->mu);
    if (w->waits_since_ns == 0 || w->idle || w->idle_ns == UINT64_MAX)
        return UINT64_MAX;
    uint64_t until_ns = w->waits_since_ns + w->idle_ns;
    if (until_ns > now_ns)
        return until_ns;
    w->idle = true;
    sleeper_wake(sleeper_rouse(&w->sleeper)); /* under mu: it happens once in its life */
    return UINT64_MAX;
}

void instance_thread_stop(struct instance_thread *w)
{
    if (!w)
        return;
    mutex_lock(w->mu);
    w->stop = true;
    void *asleep = sleeper_rouse(&w->sleeper);
    mutex_unlock(w->mu);
    sleeper_wake(asleep);
    join_and_free(w);
}
