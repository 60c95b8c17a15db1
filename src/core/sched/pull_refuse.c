/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests that are not executed, of schedulers with instances: they are cancelled, too late, or
 * refused by the kind. Whoever refuses one under mu puts it into refused; the thread that unlocks
 * mu next answers it, without the lock. The timers' thread leaves that to a helper.
 */
#include "core/sched/pull_priv.h"

#include "base/status.h"
#include "core/model/model_services.h"
#include "core/request/life.h"
#include "core/sched/instance_thread.h"

void pull_waits_locked(struct pull_scheduler *s, struct request *r)
{
    pull_add_pending_locked(s, 1);
    uint64_t bytes = pull_count_input_bytes(r);
    r->queue.is_large = bytes > EXECUTION_LARGE_BYTES;
    if (UNLIKELY(r->queue.is_large))
        s->most_bytes = s->n_large++ ? MAX(s->most_bytes, bytes) : bytes;
    atomic_store(&r->life.waiting, true); /* seq_cst: pairs with request_cancel() */
}

void pull_refuse_locked(struct pull_scheduler *s, struct request *r, enum failure_reason reason,
                        struct status *error)
{
    pull_add_pending_locked(s, -1);
    s->n_large -= r->queue.is_large;
    r->queue.refusal = error;
    r->queue.refusal_reason = reason;
    atomic_store_explicit(&r->life.waiting, false, memory_order_relaxed);
    list_push(&s->refused, &r->queue.link);
}

static void answer_refused(struct list *refused)
{
    struct list *link;
    while ((link = list_pop(refused))) {
        struct request *r = LIST_ENTRY(link, struct request, queue.link);
        request_fail_queued(r, r->queue.refusal_reason, TAKE(r->queue.refusal));
    }
}

void pull_unlock_and_wake(struct pull_scheduler *s, void *asleep)
{
    pull_show_pending_locked(s);
    if (LIKELY(list_empty(&s->refused))) {
        mutex_unlock(&s->mu);
        instance_thread_wake(asleep);
        return;
    }
    /* The end of the model may wait for the last of them. */
    struct list refused = LIST_INIT(refused);
    struct model *m = pull_hold_model(s);
    list_move_all(&refused, &s->refused);
    mutex_unlock(&s->mu);
    instance_thread_wake(asleep);
    answer_refused(&refused);
    pull_release_model(m);
}

void pull_unlock(struct pull_scheduler *s)
{
    pull_unlock_and_wake(s, NULL);
}

bool pull_refuse_cancelled_locked(struct pull_scheduler *s, struct request *r)
{
    bool waits = atomic_load_explicit(&r->life.waiting, memory_order_relaxed);
    if (!waits || !s->ops->remove_locked || !s->ops->remove_locked(s, r))
        return false;
    pull_refuse_locked(s, r, FAILURE_CANCELED, status_cancelled());
    return true;
}

/*
 * The canceller may hold locks that the answer takes, or be in the middle of a list that the answer
 * changes. So the next thread that releases the lock answers, or the helper that the deadline timer
 * asks.
 */
static void refuse_cancelled(struct pull_scheduler *s, struct request *r)
{
    mutex_lock(&s->mu);
    if (pull_refuse_cancelled_locked(s, r))
        deadline_timer_fire_by(&s->deadline_timer, 0);
    pull_show_pending_locked(s);
    mutex_unlock(&s->mu);
}

void pull_on_cancelled(struct request *r)
{
    struct model *m = r->model;
    /*
     * A request that waits is in flight, so the scheduler exists. It stays: either the end of the
     * model sees this increment, or it has not begun when the request is seen waiting.
     */
    model_request_begun(m);
    if (atomic_load(&r->life.waiting))
        refuse_cancelled(pull_scheduler_of(m), r);
    model_request_ended(m);
}

void pull_answer_refused_late(struct control_job *job)
{
    struct pull_scheduler *s = CONTAINER_OF(job, struct pull_scheduler, answers);
    struct model *m = s->model;
    struct list some = LIST_INIT(some);
    for (;;) {
        mutex_lock(&s->mu);
        list_move_all(&some, &s->unanswered);
        bool over = list_empty(&some);
        s->is_answering = !over;
        mutex_unlock(&s->mu);
        if (over)
            break;
        answer_refused(&some);
    }
    pull_release_model(m);
}

bool pull_hand_refused_to_helper_locked(struct pull_scheduler *s)
{
    if (list_empty(&s->refused))
        return false;
    list_move_all(&s->unanswered, &s->refused);
    if (s->is_answering)
        return false;
    s->is_answering = true;
    pull_hold_model(s); /* until pull_answer_refused_late() is over */
    return true;
}
