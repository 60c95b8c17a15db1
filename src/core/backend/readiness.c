/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A question counts as a request and has a reference, so that the instances are not finalised while
 * they are asked. `is_asking` becomes true in start_question(), and false when the answer is there:
 * then the job is free for the next question.
 */
#include "core/backend/readiness.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "core/backend/backend.h"
#include "core/model/model.h"
#include "core/model/model_priv.h"
#include "core/model/model_services.h"
#include "core/threads/helpers.h"

enum { READINESS_WATCH_LEVEL = 310 };
enum { READINESS_UNKNOWN, READINESS_NO, READINESS_YES };

#define FIRST_WAIT_NS NS_PER_S
#define AGAIN_NS      NS_PER_S        /* while clients want the answer, … */
#define WANTED_NS     (30 * NS_PER_S) /* … which lasts this long after the last client has asked */
#define AT_MOST_NS    (20 * NS_PER_MS) /* the least time between questions for loops */

/* Asks each instance; the answer of the first one that is not ready is logged. */
static bool ask_instances(struct model *m)
{
    struct status *st = NULL;
    for (uint32_t i = 0; i < m->n_instances && !st; i++)
        st = m->backend->fns.instance_ready(m->instances[i]);
    int answer = st ? READINESS_NO : READINESS_YES;
    int before = atomic_exchange(&m->readiness.answer, answer);
    if (before != answer && st)
        log_warn("Model '%s' version %s is not ready: %s", m->name, m->version_text,
                 status_message(st));
    if (before == READINESS_UNKNOWN)
        helpers_notify(&m->backend->askers);
    status_free(st);
    return answer == READINESS_YES;
}

static void run_question_job(struct control_job *job)
{
    struct model *m = CONTAINER_OF(job, struct model, readiness.job);
    ask_instances(m);
    atomic_store(&m->readiness.is_asking, false);
    model_request_ended(m);
    model_unref(m);
}

/* Starts a question, unless one is in progress. The caller has a reference. */
static void start_question(struct model *m)
{
    struct readiness *rd = &m->readiness;
    model_request_begun(m);
    if (atomic_load(&m->stopping) || atomic_exchange(&rd->is_asking, true)) {
        model_request_ended(m);
        return;
    }
    model_ref(m);
    atomic_store(&rd->asked_ns, clock_now_ns(m->clock));
    rd->job.run = run_question_job;
    struct control *askers = helpers_control(&m->backend->askers);
    if (LIKELY(askers != NULL)) {
        control_post(askers, &rd->job);
        return;
    }
    backend_stays(m->backend); /* this thread still runs in the backend */
    run_question_job(&rd->job);
}

/* ---- Questions by timer ---------------------------------------------------------------------- */

bool readiness_ask_if_wanted(struct model *m, uint64_t now_ns)
{
    if (now_ns >= atomic_load(&m->readiness.wanted_until_ns))
        return false;
    start_question(m);
    return true;
}

static void fire_again_locked(struct readiness_watch *w)
{
    deadline_timer_fire_by(&w->deadline_timer, clock_now_ns(w->deadline_timers->clock) + AGAIN_NS);
}

static void ask_wanted_again(struct control_job *job)
{
    struct readiness_watch *w = CONTAINER_OF(job, struct readiness_watch, job);
    bool any = w->ask_wanted(w);
    mutex_lock(&w->mu);
    w->is_at_it = false;
    if (any && !w->ending)
        fire_again_locked(w);
    cond_broadcast(&w->changed);
    mutex_unlock(&w->mu);
}

static void on_readiness_timer(struct deadline_timer *t)
{
    struct readiness_watch *w = CONTAINER_OF(t, struct readiness_watch, deadline_timer);
    mutex_lock(&w->mu);
    bool mine = !w->is_at_it && !w->ending;
    w->is_at_it |= mine;
    mutex_unlock(&w->mu);
    w->job.run = ask_wanted_again;
    if (mine)
        helpers_post(w->helpers, &w->job);
}

static void begin_watch(struct readiness_watch *w)
{
    mutex_lock(&w->mu);
    /* Without a thread for the timers, questions are asked only when clients ask. */
    if (!w->deadline_timer.set && !w->ending)
        status_free(
            deadline_timer_init(&w->deadline_timer, w->deadline_timers, on_readiness_timer));
    mutex_unlock(&w->mu);
}

/* A client wants the answer: the next question is asked in a second at the latest. */
static void keep_watching(struct readiness_watch *w)
{
    mutex_lock(&w->mu);
    if (w->deadline_timer.set && !w->ending && !w->is_at_it)
        fire_again_locked(w);
    mutex_unlock(&w->mu);
}

void readiness_watch_init(struct readiness_watch *w, struct deadline_timers *deadline_timers,
                          struct helpers *helpers, bool (*ask_wanted)(struct readiness_watch *w))
{
    w->deadline_timers = deadline_timers;
    w->helpers = helpers;
    w->ask_wanted = ask_wanted;
    w->deadline_timer.set = NULL;
    w->is_at_it = w->ending = false;
    mutex_init(&w->mu, READINESS_WATCH_LEVEL, "readiness_watch.mu");
    cond_init(&w->changed);
}

void readiness_watch_end(struct readiness_watch *w)
{
    mutex_lock(&w->mu);
    w->ending = true;
    while (w->is_at_it)
        cond_wait(&w->changed, &w->mu);
    mutex_unlock(&w->mu);
    deadline_timer_done(&w->deadline_timer);
}

void readiness_watch_done(struct readiness_watch *w)
{
    cond_done(&w->changed);
    mutex_done(&w->mu);
}

/* ---- Questions for clients ------------------------------------------------------------------- */

static bool has_answer(void *arg)
{
    const struct model *m = arg;
    return atomic_load(&m->readiness.answer) != READINESS_UNKNOWN;
}

bool readiness_is_asked(const struct model *m)
{
    return m->backend && m->backend->fns.instance_ready;
}

void readiness_begin(struct model *m)
{
    if (!readiness_is_asked(m))
        return;
    begin_watch(m->services->readiness_watch);
    start_question(m);
    helpers_wait(&m->backend->askers, has_answer, m, m->clock,
                 clock_now_ns(m->clock) + FIRST_WAIT_NS);
}

/* Counts the question as a request, so that the backend stays; false: the model is being
 * stopped. */
static bool hold_backend(struct model *m)
{
    model_request_begun(m);
    if (!atomic_load(&m->stopping))
        return true;
    model_request_ended(m);
    return false;
}

bool readiness_known(struct model *m)
{
    struct readiness *rd = &m->readiness;
    if (!hold_backend(m))
        return false;
    bool ready = true;
    if (readiness_is_asked(m)) {
        uint64_t now_ns = clock_now_ns(m->clock);
        atomic_store(&rd->wanted_until_ns, now_ns + WANTED_NS);
        ready = atomic_load(&rd->answer) == READINESS_YES;
        if (now_ns - atomic_load(&rd->asked_ns) > AT_MOST_NS) {
            start_question(m);
            keep_watching(m->services->readiness_watch);
        }
    }
    model_request_ended(m);
    return ready;
}

struct question {
    struct model *m;
    bool ready;
};

static void ask_now(void *arg)
{
    struct question *q = arg;
    q->ready = ask_instances(q->m);
}

bool readiness_ask(struct model *m)
{
    if (!hold_backend(m))
        return false;
    struct question q = {.m = m, .ready = true};
    if (readiness_is_asked(m) && !backend_call("readiness", ask_now, &q))
        backend_stays(m->backend);
    model_request_ended(m);
    return q.ready;
}
