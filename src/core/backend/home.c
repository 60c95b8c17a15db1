/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One job at a time: the posting thread sets `run`, which is NULL again when the job is done.
 */
#include "core/backend/home.h"

#include <stdbool.h>

#include "base/mem.h"
#include "base/mutex.h"
#include "base/status.h"
#include "base/thread.h"

enum { HOME_LEVEL = 610 };

struct home {
    struct thread thread;

    struct mutex mu; /* level 610 in core/README.md; a leaf */
    struct cond changed;
    /* Under mu. */
    void (*run)(void *arg);
    void *arg;
    bool ending;
};

static void run_home_thread(void *arg)
{
    struct home *h = arg;
    mutex_lock(&h->mu);
    for (;;) {
        if (h->run) {
            void (*run)(void *) = h->run;
            mutex_unlock(&h->mu);
            run(h->arg);
            mutex_lock(&h->mu);
            h->run = NULL;
            cond_broadcast(&h->changed);
        } else if (h->ending) {
            break;
        } else {
            cond_wait(&h->changed, &h->mu);
        }
    }
    mutex_unlock(&h->mu);
}

struct status *home_new(const char *name, struct home **ret_home)
{
    struct home *h = mem_zalloc(sizeof(*h));
    mutex_init(&h->mu, HOME_LEVEL, "home.mu");
    cond_init(&h->changed);
    struct status *st = thread_start(&h->thread, name, run_home_thread, h);
    if (st) {
        cond_done(&h->changed);
        mutex_done(&h->mu);
        mem_free(h);
        return st;
    }
    *ret_home = h;
    return NULL;
}

void home_free(struct home *h)
{
    if (!h)
        return;
    mutex_lock(&h->mu);
    h->ending = true;
    cond_broadcast(&h->changed);
    mutex_unlock(&h->mu);
    thread_join(&h->thread);
    cond_done(&h->changed);
    mutex_done(&h->mu);
    mem_free(h);
}

void home_post(struct home *h, void (*run)(void *arg), void *arg)
{
    mutex_lock(&h->mu);
    BUG_ON(h->run || h->ending);
    h->run = run;
    h->arg = arg;
    cond_broadcast(&h->changed);
    mutex_unlock(&h->mu);
}

void home_wait(struct home *h)
{
    mutex_lock(&h->mu);
    while (h->run)
        cond_wait(&h->changed, &h->mu);
    mutex_unlock(&h->mu);
}

void home_call(struct home *h, void (*run)(void *arg), void *arg)
{
    home_post(h, run, arg);
    home_wait(h);
}
