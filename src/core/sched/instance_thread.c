/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A thread that has ended keeps its stack until somebody joins it. The instance may not need a new
 * one for days, so the next thread of any instance that ends joins it: at most one waits for that,
 * however many have been. Who needs an end (the instance's next thread, or the end of the model)
 * joins by itself, or waits for the one that does.
 */
#include "core/sched/instance_thread.h"

#include <pthread.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/mutex.h"
#include "base/place.h"
#include "base/status.h"
#include "base/thread.h"
#include "core/backend/instance.h"
#include "core/model.h"

enum { ENDS_LEVEL = 600 };

struct instance_thread {
    /* Constant once started. */
    struct thread thread;
    struct instance *instance;
    const struct instance_thread_ops *ops;
    struct mutex *mu;
    uint64_t idle_ns;

    /* The thread's. */
    struct instance_thread *before; /* ended, to be joined first */

    /* Under mu. */
    struct cond work;
    bool stop, ended;

    /* Under ends.mu. */
    bool claimed; /* somebody joins it, or has */
    bool joined;
};

/* Of all instances of all servers in the process. */
static struct {
    pthread_once_t once;
    struct mutex mu; /* level 600 in core/README.md */
    /* Under mu. */
    struct instance_thread *last; /* the one that ended last, if nobody has claimed it */
    struct cond one_joined;
} ends = {.once = PTHREAD_ONCE_INIT};

static void init_ends(void)
{
    mutex_init(&ends.mu, ENDS_LEVEL, "ends.mu");
    cond_init(&ends.one_joined);
}

/* On a thread that is about to end: joins the one before it and leaves itself to the next. */
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
    before->joined = true; /* who waits for it may free it from here on */
    cond_broadcast(&ends.one_joined);
    mutex_unlock(&ends.mu);
}

/* Of a thread that ends by itself, or has. */
static void join_and_free(struct instance_thread *w)
{
    if (!w)
        return;
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
    cond_done(&w->work);
    mem_free(w);
}

/*
 * The starter may have been in a place of its own, which this thread has inherited. Where a place
 * cannot be had any longer (a CPU was taken out of service), the instance runs all the same.
 */
static void go_to_place(const struct instance *in)
{
    const struct place *outside = place_outside();
    if (outside)
        status_free(place_enter(outside, NULL));
    struct place before;
    log_status(LOG_WARN, "a model runs where its host policy does not want it",
               instance_enter_place(in, &before));
}

static void run(void *arg)
{
    struct instance_thread *w = arg;
    struct instance *in = w->instance;

    join_and_free(TAKE(w->before));
    go_to_place(in);

    mutex_lock(w->mu);
    bool on_time = true;
    while (!w->stop) {
        if (w->ops->has_work_locked(in)) {
            w->ops->work_locked(in);
            on_time = true;
        } else if (on_time) {
            on_time = cond_wait_until(&w->work, w->mu, monotonic_ns() + w->idle_ns);
        } else {
            break;
        }
    }
    w->ended = true;
    mutex_unlock(w->mu);
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
    w->ops = ops;
    w->mu = mu;
    w->idle_ns = idle_ns;
    w->before = before;
    cond_init(&w->work);
    struct status *st = thread_start(&w->thread, in->name, run, w);
    if (st) {
        cond_done(&w->work);
        mem_free(w);
        return st;
    }
    *ret_thread = w;
    return NULL;
}

void instance_thread_wake_locked(struct instance_thread *w)
{
    cond_signal(&w->work);
}

bool instance_thread_has_ended_locked(const struct instance_thread *w)
{
    return w->ended;
}

void instance_thread_stop(struct instance_thread *w)
{
    if (!w)
        return;
    mutex_lock(w->mu);
    w->stop = true;
    cond_signal(&w->work);
    mutex_unlock(w->mu);
    join_and_free(w);
}
