/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One lock for all steps of an ensemble, which only an ensemble with a limit has. A step that waits
 * is STARTED for its state machine, so that its request cannot end meanwhile.
 *
 * A producer looks every 20 ms whether its request is given up, since a cancel does not know of
 * this wait.
 */
#include "core/sched/ensemble_limit.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/mutex.h"
#include "core/model/model.h"
#include "core/request/request.h"
#include "core/sched/ensemble_run.h"

enum { LIMITS_LEVEL = 490, LOOK_EVERY_MS = 20, LONGEST_S = 300 };

struct limit {
    uint32_t n_inflight;
    struct list waiting; /* ensemble_step_run.link */
};

struct ensemble_limits {
    uint32_t n_steps, max; /* constant */

    struct mutex mu; /* level 490 in core/README.md */
    struct cond fewer;
    /* Under mu; ensemble_limited.n_waiting, too. */
    struct limit limits[];
};

struct ensemble_limits *ensemble_limits_new(uint32_t n_steps, uint32_t max)
{
    struct ensemble_limits *l = mem_zalloc(sizeof(*l) + n_steps * sizeof(l->limits[0]));
    l->n_steps = n_steps;
    l->max = max;
    mutex_init(&l->mu, LIMITS_LEVEL, "ensemble_limits.mu");
    cond_init(&l->fewer);
    for (uint32_t i = 0; i < n_steps; i++)
        list_init(&l->limits[i].waiting);
    return l;
}

void ensemble_limits_free(struct ensemble_limits *l)
{
    if (!l)
        return;
    cond_done(&l->fewer);
    mutex_done(&l->mu);
    mem_free(l);
}

struct ensemble_limited *ensemble_limits_owner(const struct ensemble_step_run *s)
{
    return s->data;
}

bool ensemble_limits_take(struct ensemble_limits *l, struct ensemble_limited *of,
                          struct ensemble_step_run *s)
{
    struct limit *limit = &l->limits[s->step];
    mutex_lock(&l->mu);
    bool has_place = limit->n_inflight < l->max;
    if (has_place) {
        limit->n_inflight++;
    } else {
        s->data = of;
        of->n_waiting++;
        list_push(&limit->waiting, &s->link);
    }
    mutex_unlock(&l->mu);
    return has_place;
}

/* The step has waited, and gets a place. */
static struct ensemble_step_run *take_out_locked(struct ensemble_limits *l, struct list *link)
{
    struct ensemble_step_run *s = LIST_ENTRY(link, struct ensemble_step_run, link);
    list_remove(link);
    l->limits[s->step].n_inflight++;
    if (--ensemble_limits_owner(s)->n_waiting == 0)
        cond_broadcast(&l->fewer);
    return s;
}

struct ensemble_step_run *ensemble_limits_give(struct ensemble_limits *l, uint32_t step)
{
    struct limit *limit = &l->limits[step];
    struct ensemble_step_run *next = NULL;
    mutex_lock(&l->mu);
    limit->n_inflight--;
    if (limit->n_inflight < l->max && !list_empty(&limit->waiting))
        next = take_out_locked(l, limit->waiting.next);
    mutex_unlock(&l->mu);
    return next;
}

static struct ensemble_step_run *take_any_locked(struct ensemble_limits *l,
                                                 const struct ensemble_limited *of)
{
    for (uint32_t i = 0; i < l->n_steps; i++) {
        LIST_FOR_EACH (link, &l->limits[i].waiting) {
            if (LIST_ENTRY(link, struct ensemble_step_run, link)->data == of)
                return take_out_locked(l, link);
        }
    }
    return NULL;
}

struct ensemble_step_run *ensemble_limits_wait(struct ensemble_limits *l,
                                               struct ensemble_limited *of)
{
    const struct model *m = of->request->model;
    uint64_t end_ns = clock_now_ns(m->clock) + LONGEST_S * NS_PER_S, now_ns;
    bool waits = true;
    mutex_lock(&l->mu);
    while (of->n_waiting && waits) {
        now_ns = clock_now_ns(m->clock);
        waits = now_ns < end_ns && !request_is_given_up(of->request);
        if (waits)
            cond_wait_by_clock(&l->fewer, &l->mu, m->clock, now_ns + LOOK_EVERY_MS * NS_PER_MS);
    }
    struct ensemble_step_run *s = waits ? NULL : take_any_locked(l, of);
    uint32_t n_inflight = s ? l->limits[s->step].n_inflight - 1 : 0;
    mutex_unlock(&l->mu);
    if (s && !request_is_given_up(of->request))
        log_error("[Internal Error] Ensemble '%s' unable to schedule step %u (inflight: %u >= "
                  "limit: %u) for %d seconds. Proceeding to avoid deadlock.",
                  m->name, s->step, n_inflight, l->max, LONGEST_S);
    return s;
}
