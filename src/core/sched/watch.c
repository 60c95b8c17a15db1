/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A request is with its backend from the call on, and its `taken_by` names the instance until its
 * end. Most requests end while the backend's call runs. The others are put on the list of late ones
 * when the call returns. So there are two places to look at: the batch of each instance whose call
 * runs, and the list.
 *
 * The batch belongs to the instance's runner, which stops using it without a lock. A look that
 * wants to read it announces that first (`watched`) and comes again WATCH_SETTLE_NS later: a runner
 * that returns from then on sees it, and takes mu before it touches the batch. If the call is still
 * the same one under mu, the batch stays as it is until mu is unlocked. (Time replaces a barrier in
 * each runner: a store that is invisible to another processor for milliseconds does not exist.)
 *
 * A request on the list is removed, under mu, before its maker may use it again. The thread that
 * puts it there may come too late for that. Both sides write first and then read the other's word:
 *
 *     runner:  late := REQUEST_KEPT; senders == 0, or taken_by another?  → it has ended: remove it
 *     end:     senders := 0; late != 0?                          → remove it
 *     rescheduled: taken_by := NULL; late != 0?                  → remove it
 *
 * To answer a request, the look becomes one of its senders (request_sender_join()), so that this
 * run of it cannot end meanwhile; a helper answers it, and is the sender then. The model counts as
 * in use until the helper has nothing left.
 */
#include "core/sched/watch.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/status.h"
#include "base/str.h"
#include "core/backend/instance.h"
#include "core/model/model.h"
#include "core/model/model_priv.h"
#include "core/model/model_services.h"
#include "core/model/model_statistics.h"
#include "core/options/server_options.h"
#include "core/request/life.h"
#include "core/threads/changes.h"
#include "core/threads/helpers.h"

enum {
    WATCH_LEVEL = 550,
    MAX_LIMIT_MS = 24 * 3600 * 1000,
    MAX_ID_LENGTH = 128,    /* of a request, in the log */
    MAX_LATE_AT_ONCE = 256, /* overdue requests that one look answers */
};

#define LEAST_PAUSE_NS (10 * NS_PER_MS)

/* The result of a look, for the helper. */
struct watch_finding {
    struct watch_finding *next;
    struct instance *in; /* a reference */
    uint64_t age_ns;
    bool overdue;
    size_t n_unanswered;
    size_t n_joined, capacity;
    struct request **joined; /* each with a reference, and the look is one of its senders */
    char id[MAX_ID_LENGTH + 1];
};

struct look {
    struct watch *w;
    uint64_t now_ns, next_ns;
    bool busy;
    struct watch_finding *findings;
};

struct status *watch_limit(const char *parameter, uint64_t *ret_limit_ns)
{
    int64_t ms;
    if (!parameter) {
        *ret_limit_ns = UINT64_MAX;
        return NULL;
    }
    if (!str_to_int64(parameter, strlen(parameter), &ms) || ms < 1 || ms > MAX_LIMIT_MS)
        return status_new(STATUS_INVALID_ARG,
                          "parameter '" WATCH_LIMIT_PARAMETER
                          "' is '%s', expected a whole number of "
                          "milliseconds from 1 to %d",
                          parameter, MAX_LIMIT_MS);
    *ret_limit_ns = (uint64_t)ms * NS_PER_MS;
    return NULL;
}

static void on_watch_timer(struct deadline_timer *t)
{
    struct watch *w = CONTAINER_OF(t, struct watch, deadline_timer);
    watch_look(w, clock_now_ns(w->model->clock));
}

static void arm_watch(struct call_watcher *watcher, uint64_t now_ns);
static void note_return(struct instance *in);
static void keep_late(struct instance *in, struct request *r, uint64_t start_ns);

static const struct call_watcher_ops watcher_ops = {
    .arm = arm_watch,
    .on_returned = note_return,
    .on_kept = keep_late,
};

struct status *watch_init(struct watch *w, struct model *m)
{
    *w = (struct watch){.watcher.ops = &watcher_ops, .model = m};
    struct status *st =
        watch_limit(model_config_parameter(m->config, WATCH_LIMIT_PARAMETER), &w->limit_ns);
    if (!st)
        st = deadline_timer_init(&w->deadline_timer, m->services->deadline_timers, on_watch_timer);
    if (st)
        return st;
    unsigned int warning_s = m->services->options->execution_warning_s;
    w->warn_ns = warning_s ? warning_s * NS_PER_S : UINT64_MAX;
    uint64_t first_ns = MIN(MAX(w->limit_ns, LEAST_PAUSE_NS), w->warn_ns);
    w->pause_ns = MIN(first_ns, WATCH_WARN_MAX_NS);
    list_init(&w->leaving);
    list_init(&w->late);
    mutex_init(&w->mu, WATCH_LEVEL, "watch.mu");
    cond_init(&w->reported);
    return NULL;
}

void watch_done(struct watch *w)
{
    if (!w->deadline_timer.set)
        return;
    deadline_timer_done(&w->deadline_timer);
    mutex_lock(&w->mu);
    while (w->is_answering)
        cond_wait(&w->reported, &w->mu);
    mutex_unlock(&w->mu);
    cond_done(&w->reported);
    mutex_done(&w->mu);
}

static void arm_watch(struct call_watcher *watcher, uint64_t now_ns)
{
    struct watch *w = CONTAINER_OF(watcher, struct watch, watcher);
    mutex_lock(&w->mu);
    atomic_store_explicit(&w->watcher.armed, true, memory_order_relaxed);
    deadline_timer_fire_by(&w->deadline_timer, now_ns + w->pause_ns);
    mutex_unlock(&w->mu);
}

/* ---- Instances that are stuck ---------------------------------------------------------------- */

/* An instance is stuck for each call and each late request that is overdue. */
static void add_overdue_locked(struct watch *w, struct instance *in)
{
    mutex_assert_held(&w->mu);
    unsigned int n = atomic_load_explicit(&in->n_overdue, memory_order_relaxed);
    atomic_store_explicit(&in->n_overdue, n + 1, memory_order_relaxed);
    if (n > 0)
        return;
    atomic_fetch_add_explicit(&w->n_stuck, 1, memory_order_relaxed);
    changes_announce(w->model->services->changes);
}

/* Returns whether that was the last thing that it was stuck for. */
static bool remove_overdue_locked(struct watch *w, struct instance *in)
{
    mutex_assert_held(&w->mu);
    unsigned int n = atomic_load_explicit(&in->n_overdue, memory_order_relaxed) - 1;
    atomic_store_explicit(&in->n_overdue, n, memory_order_relaxed);
    if (n > 0)
        return false;
    atomic_fetch_sub_explicit(&w->n_stuck, 1, memory_order_relaxed);
    changes_announce(w->model->services->changes);
    return true;
}

static void log_usable_again(const struct instance *in)
{
    log_info("model '%s' version %s, instance '%s': the backend has let go of what was beyond the "
             "execution limit; the instance is not stuck any more",
             in->model->name, in->model->version_text, in->name);
}

/* ---- Returned calls, kept requests ----------------------------------------------------------- */

static struct watch *watch_of(const struct instance *in)
{
    return CONTAINER_OF(in->watcher, struct watch, watcher);
}

static void note_return(struct instance *in)
{
    struct watch *w = watch_of(in);
    bool usable = false;
    mutex_lock(&w->mu);
    atomic_store_explicit(&in->watched, false, memory_order_relaxed);
    if (in->call.overdue)
        usable = remove_overdue_locked(w, in);
    in->call.since_ns = 0;
    in->call.overdue = false;
    mutex_unlock(&w->mu);
    if (usable)
        log_usable_again(in); /* its runner is here, so it has not ended */
}

/* Removes it from the list, if it is there, and returns the instance, whose reference is the
 * caller's then. @ret_usable  that is no longer stuck */
static struct instance *remove_late_locked(struct watch *w, struct request *r, bool *ret_usable)
{
    mutex_assert_held(&w->mu);
    unsigned int late = atomic_exchange_explicit(&r->life.late, 0, memory_order_relaxed);
    if (!(late & REQUEST_KEPT))
        return NULL;
    struct instance *in = r->watched.kept_by;
    list_remove(&r->watched.link);
    w->n_late--;
    *ret_usable = (late & REQUEST_OVERDUE) && remove_overdue_locked(w, in);
    return in;
}

static void keep_late(struct instance *in, struct request *r, uint64_t start_ns)
{
    struct watch *w = watch_of(in);
    mutex_lock(&w->mu);
    unsigned int late = atomic_fetch_or(&r->life.late, REQUEST_KEPT);
    if (!request_is_held(r, in)) { /* it ended, and may be in use again */
        if (!(late & REQUEST_KEPT))
            atomic_fetch_and(&r->life.late, ~(unsigned int)REQUEST_KEPT);
        mutex_unlock(&w->mu);
        return;
    }
    instance_ref(in); /* until watch_request_ended() */
    r->watched.kept_by = in;
    r->watched.taken_ns = start_ns;
    r->watched.warn_after_ns = in->call.since_ns == start_ns ? in->call.warn_after_ns : w->warn_ns;
    r->watched.warn_from_ns = start_ns;
    list_push(&w->late, &r->watched.link);
    w->n_late++;
    if (late & REQUEST_OVERDUE)
        add_overdue_locked(w, in);
    mutex_unlock(&w->mu);
}

void watch_request_ended(struct watch *w, struct request *r)
{
    bool usable = false;
    mutex_lock(&w->mu);
    struct instance *in = remove_late_locked(w, r, &usable);
    mutex_unlock(&w->mu);
    if (usable)
        log_usable_again(in);
    if (in)
        instance_unref(in);
}

/* ---- The look -------------------------------------------------------------------------------- */

static void look_again_by(struct look *l, uint64_t at_ns)
{
    l->next_ns = MIN(l->next_ns, at_ns);
}

static uint64_t add_time_ns(uint64_t from_ns, uint64_t by_ns)
{
    return by_ns > UINT64_MAX - from_ns ? UINT64_MAX : from_ns + by_ns;
}

/* Returns when the next warning is due, after one at now_ns: 10 s, 20 s, 40 s, … by default */
static uint64_t next_warning_ns(uint64_t from_ns, uint64_t after_ns, uint64_t now_ns)
{
    while (from_ns + after_ns <= now_ns)
        after_ns = after_ns < WATCH_WARN_MAX_NS ? 2 * after_ns : after_ns + WATCH_WARN_MAX_NS;
    return after_ns;
}

static struct watch_finding *add_finding(struct look *l, struct instance *in, uint64_t since_ns,
                                         bool overdue)
{
    struct watch_finding *f = mem_zalloc(sizeof(*f));
    instance_ref(in);
    f->in = in;
    f->age_ns = l->now_ns - MIN(since_ns, l->now_ns);
    f->overdue = overdue;
    f->next = l->findings;
    l->findings = f;
    return f;
}

/* Makes the request's run, which the instance has, last as long as the finding; false: it has
 * ended. */
static bool join_request(struct watch_finding *f, struct request *r, const struct instance *in)
{
    if (!request_sender_join(r, in))
        return false;
    request_ref(r);
    if (f->n_joined == f->capacity) {
        f->capacity = MAX(4u, 2 * f->capacity);
        f->joined = mem_realloc(f->joined, f->capacity * sizeof(struct request *));
    }
    if (f->n_joined == 0)
        snprintf(f->id, sizeof(f->id), "%s", request_log_name(r));
    f->joined[f->n_joined++] = r;
    return true;
}

static bool is_answered(const struct request *r)
{
    return atomic_load_explicit(&r->life.answered, memory_order_relaxed);
}

/* Finds the batch of a long call, which does not change while mu is held. */
static void find_in_batch_locked(struct watch_finding *f, const struct instance *in)
{
    uint32_t n = atomic_load_explicit(&in->n_executing, memory_order_relaxed);
    for (uint32_t i = 0; i < n; i++) {
        struct request *r = in->batch[i];
        if (r->seq.padding || !request_is_held(r, in) || is_answered(r))
            continue;
        f->n_unanswered++;
        if ((f->overdue || f->n_joined == 0) && join_request(f, r, in) && f->overdue)
            atomic_fetch_or_explicit(&r->life.late, REQUEST_OVERDUE, memory_order_relaxed);
    }
}

/* Is it certain that the runner, when it returns, waits for mu? */
static bool is_settled_locked(struct look *l, struct instance *in)
{
    if (!in->call.watched_ns) {
        in->call.watched_ns = l->now_ns;
        atomic_store_explicit(&in->watched, true, memory_order_relaxed);
    }
    if (l->now_ns < in->call.watched_ns + WATCH_SETTLE_NS) {
        look_again_by(l, in->call.watched_ns + WATCH_SETTLE_NS);
        return false;
    }
    return atomic_load_explicit(&in->since_ns, memory_order_acquire) == in->call.since_ns;
}

static void look_at_call_locked(struct look *l, struct instance *in)
{
    struct watch *w = l->w;
    uint64_t since_ns = atomic_load_explicit(&in->since_ns, memory_order_acquire);
    if (!since_ns)
        return;
    l->busy = true;
    if (in->call.since_ns != since_ns)
        in->call = (struct watched_call){.since_ns = since_ns, .warn_after_ns = w->warn_ns};
    uint64_t warn_ns = add_time_ns(since_ns, in->call.warn_after_ns);
    uint64_t limit_ns = in->call.limit_seen ? UINT64_MAX : add_time_ns(since_ns, w->limit_ns);
    uint64_t due_ns = MIN(warn_ns, limit_ns);
    if (l->now_ns < due_ns) {
        look_again_by(l, due_ns);
        return;
    }
    if (!is_settled_locked(l, in))
        return;
    if (l->now_ns >= limit_ns) {
        struct watch_finding *f = add_finding(l, in, since_ns, true);
        find_in_batch_locked(f, in);
        in->call.limit_seen = true;
        in->call.overdue = f->n_joined > 0;
        if (in->call.overdue)
            add_overdue_locked(w, in);
    }
    if (l->now_ns >= warn_ns) {
        find_in_batch_locked(add_finding(l, in, since_ns, false), in);
        in->call.warn_after_ns = next_warning_ns(since_ns, in->call.warn_after_ns, l->now_ns);
    }
    look_again_by(l, add_time_ns(since_ns, in->call.warn_after_ns));
}

/* Examines requests that a backend has kept: one warning for all that are due. */
static void look_at_late_locked(struct look *l)
{
    struct watch *w = l->w;
    struct watch_finding *warned = NULL, *overdue = NULL;
    LIST_FOR_EACH (link, &w->late) {
        struct request *r = LIST_ENTRY(link, struct request, watched.link);
        struct instance *in = r->watched.kept_by;
        l->busy = true;
        if (is_answered(r))
            continue; /* no client waits for it any more */
        if (atomic_exchange_explicit(&r->life.progressed, false, memory_order_relaxed)) {
            r->watched.warn_from_ns = l->now_ns;
            r->watched.warn_after_ns = w->warn_ns;
        }
        bool is_overdue =
            atomic_load_explicit(&r->life.late, memory_order_relaxed) & REQUEST_OVERDUE;
        uint64_t limit_ns = is_overdue ? UINT64_MAX : add_time_ns(r->watched.taken_ns, w->limit_ns);
        if (l->now_ns >= limit_ns) {
            if (!overdue)
                overdue = add_finding(l, in, r->watched.taken_ns, true);
            if (overdue->n_joined == MAX_LATE_AT_ONCE) {
                look_again_by(l, l->now_ns);
            } else if (join_request(overdue, r, in)) {
                overdue->n_unanswered++;
                atomic_fetch_or_explicit(&r->life.late, REQUEST_OVERDUE, memory_order_relaxed);
                add_overdue_locked(w, in);
            }
            continue;
        }
        look_again_by(l, limit_ns);
        if (l->now_ns >= add_time_ns(r->watched.warn_from_ns, r->watched.warn_after_ns)) {
            if (!warned)
                warned = add_finding(l, in, r->watched.taken_ns, false);
            /* Only the first one is joined, for its id in the log; the others are counted. */
            warned->n_unanswered += warned->n_joined > 0 || join_request(warned, r, in);
            r->watched.warn_after_ns =
                next_warning_ns(r->watched.warn_from_ns, r->watched.warn_after_ns, l->now_ns);
        }
        look_again_by(l, add_time_ns(r->watched.warn_from_ns, r->watched.warn_after_ns));
    }
}

/* ---- The log --------------------------------------------------------------------------------- */

static void log_finding(const struct watch *w, const struct watch_finding *f)
{
    const struct model *m = w->model;
    char others[48] = "";
    if (f->n_unanswered > 1)
        snprintf(others, sizeof(others), " (and %zu more)", f->n_unanswered - 1);
    if (f->overdue)
        log_warn(
            "model '%s' version %s, instance '%s': request '%s'%s is beyond the execution limit "
            "of %llu ms: answered with an error, the instance is stuck",
            m->name, m->version_text, f->in->name, f->id, others,
            (unsigned long long)(w->limit_ns / NS_PER_MS));
    else if (f->n_unanswered > 0)
        log_warn(
            "model '%s' version %s, instance '%s': request '%s'%s has been with the backend for "
            "%llu s without an answer",
            m->name, m->version_text, f->in->name, f->id, others,
            (unsigned long long)(f->age_ns / NS_PER_S));
    else
        log_warn("model '%s' version %s, instance '%s': the backend has not returned from an "
                 "execution for %llu s, all of whose requests are answered",
                 m->name, m->version_text, f->in->name, (unsigned long long)(f->age_ns / NS_PER_S));
}

static void answer_overdue(const struct watch *w, const struct watch_finding *f, struct request *r)
{
    const struct model *m = w->model;
    if (!request_fail(r, status_new(STATUS_TIMED_OUT,
                                    "[request id: %s] model '%s', instance '%s': no answer "
                                    "within the execution limit of %llu ms",
                                    request_log_name(r), m->name, f->in->name,
                                    (unsigned long long)(w->limit_ns / NS_PER_MS))))
        return;
    model_count_failure(w->model, FAILURE_OTHER, f->age_ns);
    request_cancel(r); /* a backend that checks for it learns that no client waits any longer */
}

static void end_finding(const struct watch *w, struct watch_finding *f)
{
    if (!f->overdue || f->n_joined > 0)
        log_finding(w, f);
    for (size_t i = 0; i < f->n_joined; i++) {
        struct request *r = f->joined[i];
        if (f->overdue)
            answer_overdue(w, f, r);
        request_sender_done(r);
        request_unref(r);
    }
    instance_unref(f->in);
    mem_free(f->joined);
    mem_free(f);
}

/* On a helper: handles the findings of looks, until there are no more. */
static void end_findings(struct control_job *job)
{
    struct watch *w = CONTAINER_OF(job, struct watch, answers);
    struct model *m = w->model;
    for (;;) {
        mutex_lock(&w->mu);
        struct watch_finding *all = TAKE(w->findings);
        w->is_answering = all;
        if (!all)
            cond_broadcast(&w->reported);
        mutex_unlock(&w->mu);
        if (!all)
            break; /* from here on the watch may be freed, the model is not */
        while (all) {
            struct watch_finding *f = all;
            all = f->next;
            end_finding(w, f);
        }
    }
    model_request_ended(m);
    model_unref(m);
}

/* Returns whether end_findings() is to be posted, without the lock. */
NODISCARD static bool hand_findings_to_helper_locked(struct watch *w, struct watch_finding *found)
{
    mutex_assert_held(&w->mu);
    if (!found)
        return false;
    struct watch_finding **end = &w->findings;
    while (*end)
        end = &(*end)->next;
    *end = found;
    if (w->is_answering)
        return false;
    w->is_answering = true;
    model_ref(w->model);
    model_request_begun(w->model); /* until end_findings() is over */
    return true;
}

uint64_t watch_look(struct watch *w, uint64_t now_ns)
{
    struct look l = {.w = w, .now_ns = now_ns, .next_ns = UINT64_MAX};
    struct model *m = w->model;
    mutex_lock(&w->mu);
    for (uint32_t i = 0; i < m->n_instances; i++)
        look_at_call_locked(&l, m->instances[i]);
    LIST_FOR_EACH (link, &w->leaving)
        look_at_call_locked(&l, LIST_ENTRY(link, struct instance, watched_link));
    look_at_late_locked(&l);
    /*
     * A call that begins after this is due at least one pause from now. When no call is left the
     * timer fires once more: a call may just have begun, and found it set.
     */
    bool was_armed = atomic_exchange_explicit(&w->watcher.armed, l.busy, memory_order_relaxed);
    if (l.busy || was_armed)
        look_again_by(&l, now_ns + w->pause_ns);
    l.next_ns = MAX(l.next_ns, add_time_ns(now_ns, NS_PER_MS));
    if (l.next_ns != UINT64_MAX)
        deadline_timer_fire_by(&w->deadline_timer, l.next_ns);
    bool must_post = hand_findings_to_helper_locked(w, l.findings);
    mutex_unlock(&w->mu);
    if (must_post) {
        w->answers.run = end_findings;
        helpers_post(m->services->helpers, &w->answers);
    }
    return l.next_ns;
}

/* Adds what the backend executes on the instance now. */
static void read_call_locked(const struct instance *in, struct watch_use *use, uint64_t *since_ns)
{
    uint64_t began_ns = atomic_load_explicit(&in->since_ns, memory_order_acquire);
    if (!began_ns)
        return;
    use->n_requests += atomic_load_explicit(&in->n_executing, memory_order_relaxed);
    *since_ns = MIN(*since_ns, began_ns);
}

void watch_read(struct watch *w, uint64_t now_ns, struct watch_use *ret)
{
    uint64_t since_ns = UINT64_MAX;
    *ret = (struct watch_use){0};
    mutex_lock(&w->mu);
    for (uint32_t i = 0; i < w->model->n_instances; i++)
        read_call_locked(w->model->instances[i], ret, &since_ns);
    LIST_FOR_EACH (link, &w->leaving)
        read_call_locked(LIST_ENTRY(link, struct instance, watched_link), ret, &since_ns);
    ret->n_requests += w->n_late;
    LIST_FOR_EACH (link, &w->late)
        since_ns = MIN(since_ns, LIST_ENTRY(link, struct request, watched.link)->watched.taken_ns);
    mutex_unlock(&w->mu);
    if (since_ns < now_ns)
        ret->oldest_ns = now_ns - since_ns;
}

/* ---- Instances come and go ------------------------------------------------------------------- */

static bool is_stuck(const struct instance *in)
{
    return atomic_load_explicit(&in->n_overdue, memory_order_relaxed) > 0;
}

static const struct instance *find_stuck_locked(const struct watch *w)
{
    for (uint32_t i = 0; i < w->model->n_instances; i++) {
        if (is_stuck(w->model->instances[i]))
            return w->model->instances[i];
    }
    LIST_FOR_EACH (link, &w->leaving) {
        const struct instance *in = LIST_ENTRY(link, struct instance, watched_link);
        if (is_stuck(in))
            return in;
    }
    LIST_FOR_EACH (link, &w->late) {
        const struct instance *in = LIST_ENTRY(link, struct request, watched.link)->watched.kept_by;
        if (is_stuck(in))
            return in;
    }
    return NULL;
}

char *watch_stuck_instance(struct watch *w)
{
    if (atomic_load_explicit(&w->n_stuck, memory_order_relaxed) == 0)
        return NULL;
    mutex_lock(&w->mu);
    const struct instance *in = find_stuck_locked(w);
    char *name = in ? mem_strdup(in->name) : NULL;
    mutex_unlock(&w->mu);
    return name;
}

void watch_set_instances(struct watch *w, struct instance **instances, uint32_t n)
{
    struct model *m = w->model;
    mutex_lock(&w->mu);
    mutex_lock(&m->config_mu); /* for questions for readiness, which take no other lock */
    m->instances = instances;
    m->n_instances = n;
    mutex_unlock(&m->config_mu);
    mutex_unlock(&w->mu);
}

void watch_leaves(struct watch *w, struct instance *in)
{
    mutex_lock(&w->mu);
    list_push(&w->leaving, &in->watched_link);
    mutex_unlock(&w->mu);
}

void watch_has_left(struct watch *w, struct instance *in)
{
    mutex_lock(&w->mu);
    list_remove(&in->watched_link);
    mutex_unlock(&w->mu);
}
