/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A control that starts when it is first needed. `has_threads` becomes true once, under helpers.mu,
 * and is read without it. Where the system has no memory for a thread, and no helper is idle, the
 * job runs on the caller's.
 */
#include "core/threads/helpers.h"

#include <string.h>

#include "base/status.h"

enum { HELPERS_LEVEL = 865 };

void helpers_init(struct helpers *h)
{
    memset(h, 0, sizeof(*h));
    mutex_init(&h->mu, HELPERS_LEVEL, "helpers.mu");
    cond_init(&h->notified);
}

void helpers_done(struct helpers *h)
{
    if (h->has_threads)
        control_stop(&h->control);
    cond_done(&h->notified);
    mutex_done(&h->mu);
}

struct control *helpers_control(struct helpers *h)
{
    /* Acquire: pairs with the store below. An event loop waits here only the first time. */
    if (LIKELY(atomic_load_explicit(&h->has_threads, memory_order_acquire)))
        return &h->control;
    struct status *st = NULL;
    mutex_lock(&h->mu);
    if (!atomic_load_explicit(&h->has_threads, memory_order_relaxed))
        st = control_start(&h->control, 1, CONTROL_MAX_OTHERS);
    atomic_store_explicit(&h->has_threads, !st, memory_order_release);
    mutex_unlock(&h->mu);
    if (!st)
        return &h->control;
    status_free(st);
    return NULL;
}

void helpers_post(struct helpers *h, struct control_job *job)
{
    struct control *control = helpers_control(h);
    if (LIKELY(control != NULL))
        control_post_or_run(control, job);
    else
        job->run(job);
}

void helpers_look(struct helpers *h, uint64_t now_ns, uint64_t patience_ns)
{
    /* Acquire: as in helpers_control(). */
    if (atomic_load_explicit(&h->has_threads, memory_order_acquire))
        control_look(&h->control, now_ns, patience_ns);
}

void helpers_notify(struct helpers *h)
{
    mutex_lock(&h->mu);
    cond_broadcast(&h->notified);
    mutex_unlock(&h->mu);
}

bool helpers_wait(struct helpers *h, bool (*done)(void *arg), void *arg, struct clock *clock,
                  uint64_t until_ns)
{
    mutex_lock(&h->mu);
    bool in_time = true;
    while (in_time && !done(arg))
        in_time = cond_wait_by_clock(&h->notified, &h->mu, clock, until_ns);
    bool is_done = done(arg);
    mutex_unlock(&h->mu);
    return is_done;
}
