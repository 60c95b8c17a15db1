/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model gets other instances while it serves (reference/behaviours §13.8), in schedulers with
 * instances. All of them are exchanged in one hold of mu: those that stay keep their runners, loans
 * are called back, and new ones are idle, so that they get at once what waits. The others leave:
 *
 *   in service ─ pull_change() ─┬─ it has sequences ─► draining: in service yet, gets no new ones
 *                               │                        │ pull_drained_locked(): the timer has a
 *                               │◄───────────────────────┘ helper take it out, run_end_drained()
 *                               ├─ a runner has it ─► leaving: it finishes its batch, takes none
 *                               │                        │ pull_leave_locked()
 *                               └─ it was idle ─► left ◄─┘
 *                                                  │ the timer drops the scheduler's reference,
 *                                                  │ and the last instance_unref() calls
 *                                                  │ pull_on_unused()
 *                                                  ▼
 *                                                unused: the timer has a helper end it,
 *                                                        end_instance()
 *
 * A runner cannot end its own instance, since its worker is to be joined; nor can the thread that
 * drops the last reference, which may be one of the backend. So both leave it to the timer, which
 * may be set under mu. Each instance that leaves counts as a request of the model, until its end.
 *
 * Those that drain are the last ones among the model's instances, and go with the model when it
 * stops before their sequences end.
 */
#include "core/sched/pull_priv.h"

#include "base/clock.h"
#include "base/mem.h"
#include "core/backend/backend.h"
#include "core/backend/instance_group.h"
#include "core/model/model_services.h"
#include "core/sched/instance_thread.h"
#include "core/sched/limiter.h"

const struct instance *pull_bound_instance(struct instance *const *instances, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        if (instances[i]->cpu_binding && !instances[i]->group->passive)
            return instances[i];
    }
    return NULL;
}

/* Where a limit, a turn or a CPU binding belongs to the call of the backend, they do not. */
bool pull_may_leave(const struct pull_scheduler *s, struct instance *const *instances, uint32_t n)
{
    if (!s->ops->leaves || s->exclusive || s->execution.mode != EXECUTION_AUTO ||
        s->watch.limit_ns != UINT64_MAX || pull_bound_instance(instances, n))
        return false;
    for (uint32_t i = 0; i < n; i++) {
        const struct instance *in = instances[i];
        if (!in->group->passive && (!in->leave.finish || in->limit))
            return false;
    }
    return true;
}

static uint32_t count_executing(struct instance *const *instances, uint32_t n)
{
    uint32_t n_executing = 0;
    for (uint32_t i = 0; i < n; i++)
        n_executing += !instances[i]->group->passive;
    return n_executing;
}

bool pull_can_change(struct scheduler *base, const struct instance_change *c)
{
    struct pull_scheduler *s = pull_from_base(base);
    if (!c)
        return true;
    mutex_lock(&s->mu);
    bool executes = s->n_instances > 0;
    mutex_unlock(&s->mu);
    return executes && count_executing(c->all, c->n) > 0 &&
           !(s->execution.mode == EXECUTION_INLINE && pull_bound_instance(c->all, c->n)) &&
           pull_may_leave(s, c->all, c->n) == s->leaves;
}

/* ---- The change ------------------------------------------------------------------------------ */

/* The instance gets no more work; another one may be in its place when mu is unlocked. */
static void make_leave_locked(struct pull_scheduler *s, struct instance *in)
{
    bool was_idle = in->group->passive || idle_has(&s->idle, in->number);
    pull_hold_model(s);
    in->is_leaving = true;
    s->n_running -= !was_idle;
    s->n_leaving += !was_idle;
    watch_leaves(&s->watch, in);
    if (was_idle)
        pull_leave_locked(s, in);
}

/* Makes all those idle that no thread runs. */
static void call_all_back_locked(struct pull_scheduler *s)
{
    struct instance *in;
    while ((in = loan_call_back_locked(&s->loans)))
        pull_become_idle_locked(s, in);
    pull_withdraw_limits_locked(s);
}

static void prepare_new_locked(struct pull_scheduler *s, struct instance *in)
{
    in->on_unused = pull_on_unused;
    if (in->group->passive)
        return;
    in->runner = RUNNER_NONE;
    in->watcher = &s->watch.watcher;
    in->leave.ops = &pull_leave_ops;
}

/* Numbers the instances anew, and the idle ones among them. */
static void number_locked(struct pull_scheduler *s, const struct instance_change *c)
{
    bool *idle = mem_zalloc((c->n + 1) * sizeof(*idle));
    for (uint32_t i = 0; i < c->n; i++)
        idle[i] = !c->all[i]->group->passive && idle_has(&s->idle, c->all[i]->number);
    for (uint32_t i = 0; i < c->n_new; i++)
        c->new[i]->number = IDLE_NONE;
    for (uint32_t i = 0; i < c->n; i++) {
        if (c->all[i]->number == IDLE_NONE)
            idle[i] = !c->all[i]->group->passive;
    }
    idle_done(&s->idle);
    idle_init(&s->idle, c->n);
    for (uint32_t i = c->n; i-- > 0;) {
        c->all[i]->number = i;
        if (idle[i])
            idle_add(&s->idle, i);
    }
    mem_free(idle);
}

/* Of those that are to leave, some stay until they have drained, as do those of changes before. */
static void keep_draining_locked(struct pull_scheduler *s, struct instance_change *c)
{
    const struct model *m = s->model;
    uint32_t n_leaving = 0;
    for (uint32_t i = 0; i < m->n_instances; i++) {
        if (m->instances[i]->is_draining)
            c->all[c->n++] = m->instances[i];
    }
    for (uint32_t i = 0; i < c->n_leaving; i++) {
        struct instance *in = c->leaving[i];
        if (s->ops->drain_locked && s->ops->drain_locked(s, in)) {
            in->is_draining = true;
            c->all[c->n++] = in;
        } else {
            c->leaving[n_leaving++] = in;
        }
    }
    c->n_leaving = n_leaving;
}

static void exchange_and_unlock(struct pull_scheduler *s, struct instance_change *c)
{
    call_all_back_locked(s);
    for (uint32_t i = 0; i < c->n_leaving; i++) {
        make_leave_locked(s, c->leaving[i]);
        if (s->ops->remove_instance_locked)
            s->ops->remove_instance_locked(s, c->leaving[i]);
    }
    for (uint32_t i = 0; i < c->n_new; i++)
        prepare_new_locked(s, c->new[i]);
    number_locked(s, c);
    execution_bind(&s->execution, pull_bound_instance(c->all, c->n));
    struct instance **before = s->model->instances;
    watch_set_instances(&s->watch, c->all, c->n);
    s->n_instances = count_executing(c->all, c->n);
    if (s->ops->add_instances_locked)
        s->ops->add_instances_locked(s, c->new, c->n_new);
    pull_dispatch_and_unlock(s);
    c->all = before;
}

void pull_change(struct scheduler *base, struct instance_change *c)
{
    struct pull_scheduler *s = pull_from_base(base);
    MEM_CHARGE(s->model->owner, MEM_INSTANCES);
    mutex_lock(&s->mu);
    keep_draining_locked(s, c);
    exchange_and_unlock(s, c);
}

/* ---- Instances that drain -------------------------------------------------------------------- */

void pull_drained_locked(struct pull_scheduler *s)
{
    s->has_drained = true;
    deadline_timer_fire_by(&s->deadline_timer, clock_now_ns(s->clock));
}

/* On a helper. */
static void run_end_drained(struct control_job *job)
{
    struct pull_scheduler *s = CONTAINER_OF(job, struct pull_scheduler, drained);
    struct model *m = s->model;
    struct instance_change c = {.model = m};
    MEM_CHARGE(m->owner, MEM_INSTANCES);
    mutex_lock(&s->mu);
    s->has_drained = s->ends_drained = false;
    c.all = mem_alloc((m->n_instances + 1) * sizeof(struct instance *));
    c.leaving = mem_alloc((m->n_instances + 1) * sizeof(struct instance *));
    for (uint32_t i = 0; i < m->n_instances; i++) {
        struct instance *in = m->instances[i];
        if (in->is_draining && !s->ops->drain_locked(s, in))
            c.leaving[c.n_leaving++] = in;
        else
            c.all[c.n++] = in;
    }
    exchange_and_unlock(s, &c);
    instances_change_done(&c);
    pull_release_model(m);
}

void pull_end_drained(struct pull_scheduler *s)
{
    struct model *m = s->model;
    if (!model_ref_unless_alone(m))
        return;
    model_request_begun(m);
    if (atomic_load(&m->stopping)) {
        pull_release_model(m);
        return;
    }
    s->drained.run = run_end_drained;
    helpers_post(m->services->helpers, &s->drained);
}

/* ---- The end of an instance ------------------------------------------------------------------ */

void pull_leave_locked(struct pull_scheduler *s, struct instance *in)
{
    watch_has_left(&s->watch, in);
    list_push(&s->left, &in->leaving_link);
    deadline_timer_fire_by(&s->deadline_timer, clock_now_ns(s->clock));
}

void pull_on_unused(struct instance *in)
{
    struct pull_scheduler *s = pull_scheduler_of(in->model);
    mutex_lock(&s->mu);
    list_push(&s->unused, &in->leaving_link);
    deadline_timer_fire_by(&s->deadline_timer, clock_now_ns(s->clock));
    mutex_unlock(&s->mu);
}

static void run_instance_end(void *arg)
{
    instance_end(arg);
}

/* On a helper. */
static void end_instance(struct control_job *job)
{
    struct instance *in = CONTAINER_OF(job, struct instance, end);
    struct model *m = in->model;
    struct pull_scheduler *s = pull_scheduler_of(m);
    mutex_lock(&s->mu); /* the timer reads them */
    struct instance_thread *w = TAKE(in->thread);
    mutex_unlock(&s->mu);
    instance_thread_stop(w);
    leave_forget(in);
    limiter_remove_instances(m->services->limiter, &in, 1);
    if (!backend_call("instance-end", run_instance_end, in))
        backend_stays(m->backend);
    pull_release_model(m);
}

void pull_end_unused(struct pull_scheduler *s)
{
    struct helpers *helpers = s->model->services->helpers;
    for (;;) {
        struct list *link;
        mutex_lock(&s->mu);
        bool has_left = (link = list_pop(&s->left)) != NULL;
        if (!has_left)
            link = list_pop(&s->unused);
        mutex_unlock(&s->mu);
        if (!link)
            return;
        struct instance *in = LIST_ENTRY(link, struct instance, leaving_link);
        if (has_left) {
            instance_unref(in);
        } else {
            in->end.run = end_instance;
            helpers_post(helpers, &in->end);
        }
    }
}
