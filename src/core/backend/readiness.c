/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A question counts as a request and has a reference, so that the instances are not finalised while
 * they are asked. A model that is dropped before it has served waits for its question in
 * readiness_end().
 *
 *     NOT_ASKING ── start_question() ──► ASKING ── another one is wanted ──► ASKING_AGAIN
 *         ▲                               │  ▲                                   │
 *         └─────── the answer is there ───┘  └──── … and the next one begins ◄───┘
 *
 * One thread at a time asks a model. A question that is wanted while one is in progress is asked
 * after it, since the instances that have answered already may answer otherwise by now.
 */
#include "core/backend/readiness.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/status.h"
#include "core/backend/backend.h"
#include "core/backend/instance.h"
#include "core/backend/instance_group.h"
#include "core/model/model.h"
#include "core/model/model_priv.h"
#include "core/model/model_services.h"
#include "core/threads/changes.h"
#include "core/threads/helpers.h"

enum { READINESS_WATCH_LEVEL = 310 };
enum { READINESS_UNKNOWN, READINESS_NO, READINESS_YES };
enum { NOT_ASKING, ASKING, ASKING_AGAIN };
enum { FEW_INSTANCES = 16 };

#define FIRST_WAIT_NS NS_PER_S
#define AGAIN_NS      NS_PER_S        /* while clients want the answer, … */
#define WANTED_NS     (30 * NS_PER_S) /* … which lasts this long after the last client has asked */
#define AT_MOST_NS    (20 * NS_PER_MS) /* the least time between questions for loops */
#define PATIENCE_NS   (5 * NS_PER_S)   /* then another question may have a thread, too */

static void log_change(const struct model *m, int before, const struct status *st)
{
    if (st && before != READINESS_NO)
        log_warn("Model '%s' version %s is not ready: %s", m->name, m->version_text,
                 status_message(st));
    else if (!st && before == READINESS_NO)
        log_info("Model '%s' version %s is ready again", m->name, m->version_text);
}

/* seq_cst: a thread that waits counts itself, and then looks; this one has stored what it looks
 * for. */
static void notify_waiting(struct readiness *rd, struct helpers *askers)
{
    if (atomic_load(&rd->n_waiting) > 0)
        helpers_notify(askers);
}

/* Asks each instance; the answer of the first one that is not ready counts. */
static void ask_instances(struct model *m)
{
    struct readiness *rd = &m->readiness;
    struct status *st = NULL;
    unsigned int number = atomic_fetch_add(&rd->n_begun, 1) + 1;
    struct instance *few[FEW_INSTANCES]; /* each second, so without an allocation if it can be */
    uint32_t n;
    struct instance **instances = instances_in_service(m, few, FEW_INSTANCES, &n);
    for (uint32_t i = 0; i < n; i++) {
        if (!st)
            st = m->backend->fns.instance_ready(instances[i]);
        instance_unref(instances[i]);
    }
    if (instances != few)
        mem_free(instances);
    int answer = st ? READINESS_NO : READINESS_YES;
    int before = atomic_exchange(&rd->answer, answer);
    log_change(m, before, st);
    atomic_store(&rd->n_answered, number);
    if (before != answer)
        changes_announce(m->services->changes);
    status_free(st);
}

/* The watch looks a second after that time, at the latest. */
static void fire_after_locked(struct readiness_watch *w, uint64_t from_ns)
{
    deadline_timer_fire_by(&w->deadline_timer, from_ns + AGAIN_NS);
}

/* The watch looks in a second at the latest, or, if it is looking now, a second after. */
static void keep_watching_locked(struct readiness_watch *w, uint64_t now_ns)
{
    if (w->deadline_timer.set && !w->ending && !w->is_at_it)
        fire_after_locked(w, now_ns);
}

/* A client wants to know of a model: the watch asks it, also where no question begins now. */
static void have_models_asked(struct readiness_watch *w, uint64_t now_ns)
{
    /* seq_cst: wanted_until_ns is stored; a look that clears is_wanted afterwards reads it. */
    if (LIKELY(atomic_load(&w->is_wanted)))
        return;
    mutex_lock(&w->mu);
    atomic_store(&w->is_wanted, true);
    keep_watching_locked(w, now_ns);
    mutex_unlock(&w->mu);
}

/* A question begins. */
static void count_question(struct readiness_watch *w, uint64_t now_ns)
{
    mutex_lock(&w->mu);
    if (w->n_asking++ == 0)
        w->asking_since_ns = now_ns;
    keep_watching_locked(w, now_ns);
    mutex_unlock(&w->mu);
}

static void uncount_question(struct readiness_watch *w)
{
    mutex_lock(&w->mu);
    w->n_asking--;
    mutex_unlock(&w->mu);
}

/* After the change to NOT_ASKING a model that has never served may be taken down; its struct lives
 * as long as the reference, and the backend as long as this thread. */
static void end_question(struct model *m, struct helpers *askers)
{
    uncount_question(m->services->readiness_watch);
    notify_waiting(&m->readiness, askers);
    model_request_ended(m);
    model_unref(m);
}

/* The answer is there. Returns whether another question was wanted meanwhile, which is asked unless
 * the model is being stopped: then its threads that wait see that nobody asks. */
static bool must_ask_again(struct model *m)
{
    int asking = ASKING;
    if (LIKELY(atomic_compare_exchange_strong(&m->readiness.asking, &asking, NOT_ASKING)))
        return false;
    if (!atomic_load(&m->stopping))
        return true;
    atomic_store(&m->readiness.asking, NOT_ASKING);
    return false;
}

static void run_question_job(struct control_job *job)
{
    struct model *m = CONTAINER_OF(job, struct model, readiness.job);
    struct readiness *rd = &m->readiness;
    struct helpers *askers = &m->backend->askers;
    do {
        atomic_store(&rd->asking, ASKING); /* what was wanted until now is answered by this one */
        ask_instances(m);
        notify_waiting(rd, askers);
    } while (must_ask_again(m));
    end_question(m, askers);
}

/* Notes that a question is wanted; returns whether the caller begins it. @again  also after the one
 * in progress */
static bool want_question(struct readiness *rd, bool again)
{
    int asking = NOT_ASKING;
    while (!atomic_compare_exchange_weak(&rd->asking, &asking,
                                         asking == NOT_ASKING ? ASKING : ASKING_AGAIN)) {
        if (asking == ASKING_AGAIN || (asking == ASKING && !again))
            return false;
    }
    return asking == NOT_ASKING;
}

/* Counts as a request, so that the backend stays; false: the model is being stopped. */
static bool hold_backend(struct model *m)
{
    model_request_begun(m);
    if (!atomic_load(&m->stopping))
        return true;
    model_request_ended(m);
    return false;
}

/* Starts a question, unless the model is being stopped. The caller has a reference. */
static void start_question(struct model *m, bool again)
{
    struct readiness *rd = &m->readiness;
    model_request_begun(m);
    if (atomic_load(&m->stopping) || !want_question(rd, again)) {
        model_request_ended(m);
        return;
    }
    /* A model that has served keeps its backend until the requests that began before the stop have
     * ended, and this counts as one. */
    struct helpers *askers = &m->backend->askers;
    model_ref(m);
    uint64_t now_ns = clock_now_ns(m->clock);
    count_question(m->services->readiness_watch, now_ns);
    /* seq_cst: readiness_end() comes after the change of `stopping`, and waits for ours. */
    if (atomic_load(&m->stopping)) {
        atomic_store(&rd->asking, NOT_ASKING);
        end_question(m, askers);
        return;
    }
    atomic_store(&rd->asked_ns, now_ns);
    rd->job.run = run_question_job;
    struct control *control = helpers_control(askers);
    if (LIKELY(control != NULL)) {
        control_post(control, &rd->job);
        return;
    }
    backend_stays(m->backend); /* this thread still runs in the backend */
    run_question_job(&rd->job);
}

/* ---- Questions by timer ---------------------------------------------------------------------- */

/* Other questions get threads in place of those whose questions last too long. */
static void look_at_askers(struct model *m, uint64_t now_ns)
{
    if (!hold_backend(m))
        return;
    helpers_look(&m->backend->askers, now_ns, PATIENCE_NS);
    model_request_ended(m);
}

bool readiness_ask_if_wanted(struct model *m, uint64_t now_ns)
{
    bool is_asking = atomic_load(&m->readiness.asking) != NOT_ASKING;
    if (is_asking)
        look_at_askers(m, now_ns);
    if (now_ns >= atomic_load(&m->readiness.wanted_until_ns))
        return is_asking;
    start_question(m, false);
    return true;
}

static void ask_wanted_again(struct control_job *job)
{
    struct readiness_watch *w = CONTAINER_OF(job, struct readiness_watch, job);
    bool any = w->ask_wanted(w);
    mutex_lock(&w->mu);
    w->is_at_it = false;
    if (any)
        atomic_store(&w->is_wanted, true);
    if ((atomic_load(&w->is_wanted) || w->n_asking > 0) && !w->ending)
        fire_after_locked(w, clock_now_ns(w->deadline_timers->clock));
    cond_broadcast(&w->changed);
    mutex_unlock(&w->mu);
}

/* Questions that were answered at once need no look, and no thread for it. */
static void on_readiness_timer(struct deadline_timer *t)
{
    struct readiness_watch *w = CONTAINER_OF(t, struct readiness_watch, deadline_timer);
    mutex_lock(&w->mu);
    uint64_t now_ns = clock_now_ns(w->deadline_timers->clock);
    bool is_free = !w->is_at_it && !w->ending;
    bool lasts = w->n_asking > 0 && now_ns - w->asking_since_ns >= AGAIN_NS;
    bool mine = is_free && (atomic_load(&w->is_wanted) || lasts);
    if (mine) {
        w->is_at_it = true;
        atomic_store(&w->is_wanted, false);
    } else if (is_free && w->n_asking > 0) {
        fire_after_locked(w, w->asking_since_ns);
    }
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

void readiness_watch_init(struct readiness_watch *w, struct deadline_timers *deadline_timers,
                          struct helpers *helpers, bool (*ask_wanted)(struct readiness_watch *w))
{
    w->deadline_timers = deadline_timers;
    w->helpers = helpers;
    w->ask_wanted = ask_wanted;
    w->deadline_timer.set = NULL;
    w->is_at_it = w->ending = false;
    atomic_init(&w->is_wanted, false);
    w->n_asking = 0;
    w->asking_since_ns = 0;
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

struct awaited {
    struct readiness *rd;
    unsigned int number; /* of the question */
};

static bool is_question_answered(const struct awaited *a)
{
    return (int)(atomic_load(&a->rd->n_answered) - a->number) >= 0;
}

/* … or will not be, since the model is being stopped. */
static bool is_settled(void *arg)
{
    const struct awaited *a = arg;
    return atomic_load(&a->rd->asking) == NOT_ASKING || is_question_answered(a);
}

/* Starts a question, and waits for its answer. The caller has a reference, and counts as a
 * request. */
static bool ask_and_wait(struct model *m, uint64_t until_ns)
{
    struct readiness *rd = &m->readiness;
    struct awaited a = {.rd = rd, .number = atomic_load(&rd->n_begun) + 1};
    atomic_fetch_add(&rd->n_waiting, 1);
    start_question(m, true);
    helpers_wait(&m->backend->askers, is_settled, &a, m->clock, until_ns);
    atomic_fetch_sub(&rd->n_waiting, 1);
    return is_question_answered(&a) && atomic_load(&rd->answer) == READINESS_YES;
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
    atomic_store(&m->readiness.is_open, true);
    ask_and_wait(m, clock_now_ns(m->clock) + FIRST_WAIT_NS);
}

static bool is_not_asking(void *arg)
{
    struct readiness *rd = arg;
    return atomic_load(&rd->asking) == NOT_ASKING;
}

void readiness_end(struct model *m)
{
    struct readiness *rd = &m->readiness;
    if (!readiness_is_asked(m))
        return;
    atomic_fetch_add(&rd->n_waiting, 1);
    helpers_wait(&m->backend->askers, is_not_asking, rd, m->clock, UINT64_MAX);
    atomic_fetch_sub(&rd->n_waiting, 1);
}

void readiness_changed(struct model *m)
{
    /* Without a thread that may ask, the next client has the question asked. This thread must not
     * ask: it is the backend's, and may hold locks that the answer needs. */
    if (!readiness_is_asked(m) || !atomic_load(&m->readiness.is_open) ||
        !helpers_control(&m->backend->askers) || !model_ref_unless_alone(m))
        return;
    start_question(m, true);
    model_unref(m);
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
        have_models_asked(m->services->readiness_watch, now_ns);
        ready = atomic_load(&rd->answer) == READINESS_YES;
        if (now_ns - atomic_load(&rd->asked_ns) > AT_MOST_NS)
            start_question(m, false);
    }
    model_request_ended(m);
    return ready;
}

bool readiness_ask(struct model *m)
{
    if (!hold_backend(m))
        return false;
    bool ready = !readiness_is_asked(m) || ask_and_wait(m, UINT64_MAX);
    model_request_ended(m);
    return ready;
}
