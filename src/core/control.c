/* SPDX-License-Identifier: Apache-2.0 */
#include "core/control.h"

#include <string.h>

#include "base/mem.h"
#include "base/status.h"

enum { CONTROL_LEVEL = 870 };

/* ---- Which job is next ---------------------------------------------------------------------- */

static bool same_key(const char *a, const char *b)
{
    return a && b && strcmp(a, b) == 0;
}

static unsigned int count_busy(const struct control *c, bool loads)
{
    unsigned int n = 0;
    for (size_t i = 0; i < ARRAY_SIZE(c->threads); i++)
        n += c->threads[i].is_busy && c->threads[i].is_load == loads;
    return n;
}

static bool is_free(const struct control *c, const struct control_job *job)
{
    for (size_t i = 0; i < ARRAY_SIZE(c->threads); i++) {
        if (c->threads[i].is_busy && same_key(c->threads[i].key, job->key))
            return false;
    }
    LIST_FOR_EACH (link, &c->waiting) { /* none is overtaken by a later one of its key */
        const struct control_job *earlier = LIST_ENTRY(link, struct control_job, link);
        if (earlier == job)
            break;
        if (same_key(earlier->key, job->key))
            return false;
    }
    return true;
}

static struct control_job *next_locked(struct control *c)
{
    mutex_assert_held(&c->mu);
    bool may[] = {count_busy(c, false) < CONTROL_MAX_OTHERS, count_busy(c, true) < c->max_loads};
    LIST_FOR_EACH (link, &c->waiting) {
        struct control_job *job = LIST_ENTRY(link, struct control_job, link);
        if (may[job->is_load] && is_free(c, job))
            return job;
    }
    return NULL;
}

/* ---- Threads -------------------------------------------------------------------------------- */

static void run(void *arg);

/* A place for one more thread. */
static struct control_thread *find_place_locked(struct control *c)
{
    mutex_assert_held(&c->mu);
    for (size_t i = 0; i < ARRAY_SIZE(c->threads); i++) {
        struct control_thread *t = &c->threads[i];
        if (t->stage == CONTROL_THREAD_ENDED)
            thread_join(&t->thread); /* it has nothing left to do, not even with mu */
        if (t->stage != CONTROL_THREAD)
            return t;
    }
    return NULL;
}

/* Starts under the lock, so that nobody joins the thread before it is known. */
static struct status *start_locked(struct control *c)
{
    struct control_thread *t = find_place_locked(c);
    if (!t)
        return NULL;
    t->control = c;
    t->stage = CONTROL_THREAD;
    struct status *st = thread_start(&t->thread, "control", run, t);
    if (st)
        t->stage = CONTROL_NO_THREAD;
    return st;
}

/* A job that can run now gets a thread, unless one is about to look. */
static void see_to_it_locked(struct control *c)
{
    mutex_assert_held(&c->mu);
    if (!next_locked(c))
        return;
    if (c->is_idle)
        cond_broadcast(&c->changed);
    else
        status_free(start_locked(c)); /* without it a busy thread comes by later */
}

static void do_locked(struct control_thread *t, struct control_job *job)
{
    struct control *c = t->control;
    list_remove(&job->link);
    t->is_busy = true;
    t->is_load = job->is_load;
    t->key = job->key ? mem_strdup(job->key) : NULL;
    see_to_it_locked(c);
    mutex_unlock(&c->mu);
    job->run(job); /* which may end it */
    mutex_lock(&c->mu);
    t->is_busy = false;
    mem_free(TAKE(t->key));
}

static void run(void *arg)
{
    struct control_thread *t = arg;
    struct control *c = t->control;
    bool stays = t == &c->threads[0];
    mutex_lock(&c->mu);
    for (;;) {
        struct control_job *job = next_locked(c);
        if (job) {
            do_locked(t, job);
            continue;
        }
        if (!stays || (c->stopping && list_empty(&c->waiting)))
            break;
        c->is_idle = true;
        cond_wait(&c->changed, &c->mu);
        c->is_idle = false;
    }
    t->stage = CONTROL_THREAD_ENDED;
    cond_broadcast(&c->changed);
    mutex_unlock(&c->mu);
}

struct status *control_start(struct control *c, unsigned int max_loads)
{
    memset(c, 0, sizeof(*c));
    c->max_loads = MIN(max_loads, (unsigned int)CONTROL_MAX_LOADS);
    mutex_init(&c->mu, CONTROL_LEVEL, "control.mu");
    cond_init(&c->changed);
    list_init(&c->waiting);
    mutex_lock(&c->mu);
    struct status *st = start_locked(c);
    mutex_unlock(&c->mu);
    if (st) {
        cond_done(&c->changed);
        mutex_done(&c->mu);
    }
    return st;
}

static bool has_threads_locked(const struct control *c)
{
    for (size_t i = 0; i < ARRAY_SIZE(c->threads); i++) {
        if (c->threads[i].stage == CONTROL_THREAD)
            return true;
    }
    return false;
}

void control_stop(struct control *c)
{
    mutex_lock(&c->mu);
    c->stopping = true;
    cond_broadcast(&c->changed);
    while (has_threads_locked(c))
        cond_wait(&c->changed, &c->mu);
    mutex_unlock(&c->mu);
    for (size_t i = 0; i < ARRAY_SIZE(c->threads); i++) {
        if (c->threads[i].stage == CONTROL_THREAD_ENDED)
            thread_join(&c->threads[i].thread);
    }
    cond_done(&c->changed);
    mutex_done(&c->mu);
}

void control_post(struct control *c, struct control_job *job)
{
    mutex_lock(&c->mu);
    list_push(&c->waiting, &job->link);
    see_to_it_locked(c);
    mutex_unlock(&c->mu);
}
