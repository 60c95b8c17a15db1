/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The turns of instances with a limit (limiter.h), in schedulers with instances. Each batch of such
 * an instance has a turn of its own. An instance that waits for its turn is off the idle list, has
 * no runner, and counts as running; pull_run_granted() gives it to its worker.
 */
#include "core/sched/pull_priv.h"

#include "core/backend/instance.h"
#include "core/model/model.h"
#include "core/model/model_priv.h"
#include "core/sched/afterwards.h"
#include "core/sched/limiter.h"

bool pull_take_first_turn_locked(struct pull_scheduler *s, struct instance *in)
{
    if (limit_begin_turn(in->limit) == TURN_BEGUN)
        return true;
    idle_remove(&s->idle, in->number);
    s->n_running++;
    return false;
}

uint32_t pull_take_limited_batch_locked(struct pull_scheduler *s, struct instance *in,
                                        struct list *granted, bool *ret_waits)
{
    struct limit *l = in->limit;
    if (l->state == LIMIT_FREE || l->was_used) {
        bool wants = pull_has_work_locked(s, in); /* it may refuse requests */
        bool may_wait = !afterwards_last && list_empty(&s->refused);
        enum turn turn = limit_next_turn(l, wants, may_wait, granted);
        *ret_waits = turn == TURN_WAITS;
        if (turn != TURN_BEGUN)
            return 0;
    }
    uint32_t n = pull_take_batch_locked(s, in);
    l->was_used = n > 0;
    if (n == 0)
        limit_next_turn(l, false, false, granted);
    return n;
}

void pull_run_granted(struct list *granted)
{
    struct list *link;
    while (UNLIKELY((link = list_pop(granted)) != NULL)) {
        struct instance *in = LIST_ENTRY(link, struct limit, link)->instance;
        struct model *m = in->model; /* the limiter has a reference for this */
        struct pull_scheduler *s = pull_scheduler_of(m);
        mutex_lock(&s->mu);
        if (pull_has_work_locked(s, in)) {
            pull_give_to_worker_and_unlock(s, in);
        } else {
            limit_next_turn(in->limit, false, false, granted);
            pull_become_idle_locked(s, in);
            pull_unlock(s);
        }
        pull_release_model(m);
    }
}

void pull_leave_limited_and_unlock(struct pull_scheduler *s, struct instance *in)
{
    struct list granted = LIST_INIT(granted);
    if (pull_has_work_locked(s, in)) {
        pull_give_to_worker_and_unlock(s, in);
        return;
    }
    limit_next_turn(in->limit, false, false, &granted);
    pull_become_idle_locked(s, in);
    pull_unlock(s);
    pull_run_granted(&granted);
}

void pull_withdraw_limits_locked(struct pull_scheduler *s)
{
    for (uint32_t i = 0; i < s->model->n_instances; i++) {
        struct instance *in = s->model->instances[i];
        if (in->limit && limit_withdraw(in->limit))
            pull_become_idle_locked(s, in);
    }
}
