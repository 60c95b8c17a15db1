/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Instances pull. The state of an instance's runner (`runner`, under mu) changes like this:
 *
 *                  submit, may be inline           submit otherwise, or more work after inline
 *      CALLER ◄──────────────────────── NONE ──────────────────────────► WORKER
 *        │ no batch left                 ▲ ▲          no batch left         │
 *        └───────────────────────────────┘ └────────────────────────────────┘
 *
 * Invariants: an instance is on the idle list exactly while its runner is NONE. While a batch is
 * due that could be executed, no instance is idle: submit() takes one off the list with the push,
 * under the same lock, and a runner looks for more before it becomes idle. So no wake-up can be
 * lost, and a busy instance is never signalled: its worker finds the next batch by itself. (In an
 * exclusive scheduler one instance at a time has a runner, and the same then holds for all of them
 * together.) Any other event that makes a batch due, such as the end of a delay, dispatches. The
 * one exception is short: pull_run_deferred() dispatches what a loop defers to the end of its
 * iteration.
 *
 * An instance on which one thread executes inline, again and again, is lent to it (loan.h), and
 * counts as running. Its CALLER then comes and goes without the lock, with a request that is in no
 * queue. The invariant holds for threads that take the lock: they call the loan back before their
 * requests wait.
 *
 * The worker (instance_thread.h) is a thread that starts and ends as needed. A submit that finds it
 * ended, under the same lock, starts the next one.
 */
#include "core/sched/pull.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/cpu_binding.h"
#include "base/status.h"
#include "base/thread.h"
#include "core/backend/backend.h"
#include "core/backend/instance.h"
#include "core/request/life.h"
#include "core/model/model.h"
#include "core/model/model_priv.h"
#include "core/model/model_services.h"
#include "core/sched/afterwards.h"
#include "core/sched/batch_strategy.h"
#include "core/sched/instance_thread.h"
#include "core/sched/response_order.h"
#include "core/threads/watchdog.h"

enum { SCHEDULER_LEVEL = 500 };

#define GATHER_NS 50000ULL /* a worker's executions before it does what they set going */

static struct pull_scheduler *to_pull(struct scheduler *s)
{
    return CONTAINER_OF(s, struct pull_scheduler, base);
}

/* Returns an instance whose host policy binds it to CPUs or memory; NULL when none is bound. */
static const struct instance *bound_instance(const struct model *m)
{
    for (uint32_t i = 0; i < m->n_instances; i++) {
        if (m->instances[i]->cpu_binding && !m->instances[i]->group->passive)
            return m->instances[i];
    }
    return NULL;
}

static void on_scheduler_timer(struct deadline_timer *t);
static const struct scheduler_ops scheduler_ops;

struct status *pull_init(struct pull_scheduler *s, const struct pull_ops *ops, struct model *m)
{
    s->base.ops = &scheduler_ops;
    s->ops = ops;
    s->model = m;
    s->clock = m->clock;
    m->scheduler_ops = ops->for_requests;
    s->exclusive = m->backend->policy == EXECUTION_DEVICE_BLOCKING;
    list_init(&s->waiting);
    s->n_instances = s->n_running = s->n_large = 0;
    s->pads = false;
    s->closing = s->flushing = s->stopping = false;
    list_init(&s->refused);
    list_init(&s->unanswered);
    s->is_answering = false;
    s->deadline_timer.set = s->watch.deadline_timer.set = NULL;
    s->idle_look_ns = UINT64_MAX;
    memset(&s->loans, 0, sizeof(s->loans));
    s->thread_idle_ns = INSTANCE_THREAD_IDLE_NS;
    struct status *st = execution_init(&s->execution, s->clock,
                                       model_config_parameter(m->config, "CONCH_EXECUTION"),
                                       model_settle_bounds(m));
    const struct instance *bound = bound_instance(m);
    if (!st && bound)
        st = execution_never_inline(&s->execution, "a host policy binds instance", bound->name);
    if (!st && m->backend->attribute.instance_threads)
        st = execution_never_inline(&s->execution, "instances have threads of their own in backend",
                                    m->backend->name);
    if (!st)
        st = watch_init(&s->watch, m);
    /* Inline, a call beyond the limit would block the loop that must send the answer. */
    if (!st && s->watch.limit_ns != UINT64_MAX)
        st =
            execution_never_inline(&s->execution, "there is an execution limit for model", m->name);
    if (!st && execution_is_ever_inline(&s->execution))
        st = watchdog_start(m->services->watchdog);
    if (!st)
        st = deadline_timer_init(&s->deadline_timer, m->services->deadline_timers,
                                 on_scheduler_timer);
    if (st)
        goto out;
    idle_init(&s->idle, m->n_instances);
    mutex_init(&s->mu, SCHEDULER_LEVEL, "scheduler.mu");
    cond_init(&s->quiet);
    return NULL;
out:
    deadline_timer_done(&s->deadline_timer);
    watch_done(&s->watch);
    return st;
}

void pull_done(struct pull_scheduler *s)
{
    deadline_timer_done(&s->deadline_timer); /* when it fires now it looks for idle instances */
    watch_done(&s->watch);
    idle_done(&s->idle);
    cond_done(&s->quiet);
    mutex_done(&s->mu);
}

static void become_idle_locked(struct pull_scheduler *s, struct instance *in)
{
    in->runner = RUNNER_NONE;
    idle_add(&s->idle, in->number);
    if (--s->n_running == 0 && UNLIKELY(s->stopping))
        cond_signal(&s->quiet);
}

/*
 * A thread that works for the scheduler without a request in it or an instance to run counts as a
 * request, so that the scheduler is not freed meanwhile.
 */
static struct model *hold_model(struct pull_scheduler *s)
{
    model_ref(s->model);
    model_request_begun(s->model);
    return s->model;
}

static void release_model(struct model *m)
{
    model_request_ended(m);
    model_unref(m);
}

/* ---- Requests that are not executed ---------------------------------------------------------- */

/*
 * For the metrics: requests are counted by the push, and uncounted by a take or a refusal, all
 * under mu; the unlock publishes the number. So a request that is executed at once, inline, writes
 * nothing of the model.
 */
static void add_pending_locked(struct pull_scheduler *s, int n)
{
    s->n_pending += (unsigned int)n;
}

static void show_pending_locked(struct pull_scheduler *s)
{
    atomic_uint *shown = &s->model->pending;
    if (atomic_load_explicit(shown, memory_order_relaxed) != s->n_pending)
        atomic_store_explicit(shown, s->n_pending, memory_order_relaxed);
}

static bool is_large(const struct request *r)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < r->maker.n_inputs; i++)
        bytes += r->maker.inputs[i]->size_bytes;
    return bytes > EXECUTION_LARGE_BYTES;
}

void pull_waits_locked(struct pull_scheduler *s, struct request *r)
{
    add_pending_locked(s, 1);
    r->queue.is_large = is_large(r);
    s->n_large += r->queue.is_large;
    atomic_store_explicit(&r->life.waiting, true, memory_order_relaxed);
}

void pull_refuse_locked(struct pull_scheduler *s, struct request *r, enum failure_reason reason,
                        struct status *error)
{
    add_pending_locked(s, -1);
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

/* @asleep  a worker to wake as soon as mu is unlocked, before any request is answered */
static void unlock_and_wake(struct pull_scheduler *s, void *asleep)
{
    show_pending_locked(s);
    if (LIKELY(list_empty(&s->refused))) {
        mutex_unlock(&s->mu);
        instance_thread_wake(asleep);
        return;
    }
    /* The end of the model may wait for the last of them. */
    struct list refused = LIST_INIT(refused);
    struct model *m = hold_model(s);
    list_move_all(&refused, &s->refused);
    mutex_unlock(&s->mu);
    instance_thread_wake(asleep);
    answer_refused(&refused);
    release_model(m);
}

void pull_unlock(struct pull_scheduler *s)
{
    unlock_and_wake(s, NULL);
}

/*
 * The canceller may hold locks that the answer takes, or be in the middle of a list that the answer
 * changes. So the next thread that releases the lock answers, or the helper that the deadline timer
 * asks.
 */
static void refuse_cancelled(struct pull_scheduler *s, struct request *r)
{
    mutex_lock(&s->mu);
    bool waits = atomic_load_explicit(&r->life.waiting, memory_order_relaxed);
    if (waits && s->ops->remove_locked(s, r)) {
        pull_refuse_locked(s, r, FAILURE_CANCELED, status_cancelled());
        deadline_timer_fire_by(&s->deadline_timer, 0);
    }
    show_pending_locked(s);
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
    if (atomic_load(&r->life.waiting) && pull_scheduler_of(m)->ops->remove_locked)
        refuse_cancelled(pull_scheduler_of(m), r);
    model_request_ended(m);
}

bool pull_is_always_inline(const struct model *m)
{
    return m->scheduler->ops == &scheduler_ops &&
           pull_scheduler_of(m)->execution.mode == EXECUTION_INLINE;
}

void pull_on_late_end(struct request *r)
{
    watch_request_ended(&pull_scheduler_of(r->model)->watch, r);
}

const struct scheduler_request_ops pull_request_ops = {
    .on_cancelled = pull_on_cancelled,
    .respond = response_order_respond,
    .on_late_end = pull_on_late_end,
};

/* On a helper: answers the refused requests that have no answer yet, in the order of their
 * refusal. */
static void answer_refused_late(struct control_job *job)
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
    release_model(m);
}

/* ---- Runners --------------------------------------------------------------------------------- */

/* Returns the instance to ask next after another that had no batch; IDLE_NONE: there is none. */
static uint32_t next_idle_locked(const struct pull_scheduler *s, uint32_t after)
{
    return s->ops->per_instance ? idle_next(&s->idle, after + 1) : (uint32_t)IDLE_NONE;
}

/* Takes back an instance that is lent and not in use, for another thread; or NULL. */
static struct instance *call_instance_back_locked(struct pull_scheduler *s)
{
    return s->loans.n && s->ops->has_work_locked(s, NULL) ? loan_call_back_locked(&s->loans) : NULL;
}

/* Returns an instance that has a batch to execute now, off the idle list and counted, or NULL. */
static struct instance *take_idle_instance_locked(struct pull_scheduler *s)
{
    if (UNLIKELY(s->exclusive) && s->n_running)
        return NULL;
    if (s->n_running == s->n_instances)
        return call_instance_back_locked(s);
    uint32_t i = s->ops->per_instance ? idle_next(&s->idle, 0) : idle_best(&s->idle);
    for (; i != IDLE_NONE; i = next_idle_locked(s, i)) {
        struct instance *in = s->model->instances[i];
        if (s->ops->has_work_locked(s, in)) {
            idle_remove(&s->idle, i);
            s->n_running++;
            return in;
        }
    }
    return call_instance_back_locked(s);
}

/* Takes the next batch into in->batch, which is allocated with an instance's first batch. */
static uint32_t take_batch_locked(struct pull_scheduler *s, struct instance *in)
{
    if (UNLIKELY(!in->batch)) {
        MEM_CHARGE(s->model->owner, MEM_INSTANCES);
        in->batch = in->batch_capacity == 1
                        ? in->batch_of_one
                        : mem_zalloc(2 * in->batch_capacity * sizeof(*in->batch));
    }
    uint32_t n = s->ops->take_locked(s, in, in->batch, in->batch_capacity);
    int n_waited = 0;
    for (uint32_t i = 0; i < n; i++) {
        atomic_store_explicit(&in->batch[i]->life.waiting, false, memory_order_relaxed);
        n_waited += !in->batch[i]->seq.padding;
        s->n_large -= in->batch[i]->queue.is_large;
    }
    add_pending_locked(s, -n_waited);
    return n;
}

/* After a take that has unlocked mu: gives later or remaining requests to idle instances. */
static void dispatch_to_workers_locked(struct pull_scheduler *s);

/*
 * Learns whether the model is fast enough for event loops, unless that is known. A long time of a
 * thread that was preempted in between proves nothing: its answer may have woken the very thread
 * that took its CPU.
 */
static void learn_on_worker(struct pull_scheduler *s, struct instance *in, uint64_t took_ns,
                            uint64_t bytes)
{
    long n_before = in->n_preempted;
    in->n_preempted = thread_preemptions();
    if (took_ns < EXECUTION_SHORT_NS || in->n_preempted == n_before)
        execution_measured(&s->execution, took_ns, bytes, false);
}

/* Begins the next steps of the requests that this thread has just executed. @w  NULL: it is not
 * the instance's worker */
static void run_afterwards(struct instance_thread *w)
{
    struct inline_budget *budget = w ? instance_thread_budget(w) : NULL;
    afterwards_run(budget);
    if (budget)
        pull_run_deferred(budget);
}

/*
 * Executes batches until there is none; the caller holds mu and is the instance's runner. @w  as
 * above
 *
 * What the executions set going is done when no batch is left, or after GATHER_NS of executions.
 * So requests that came together also end together: their maker, woken by the first answer, finds
 * the others, too, instead of taking the CPU from this thread at each of them.
 */
static void run_instance_locked(struct pull_scheduler *s, struct instance *in,
                                struct instance_thread *w)
{
    uint64_t gathered_ns = 0;
    for (;;) {
        uint32_t n = take_batch_locked(s, in);
        /* The unlock answers what the take has refused; after that there may be a batch. */
        bool is_last = n == 0 && list_empty(&s->refused);
        if (is_last && LIKELY(!afterwards_last))
            break;
        if (UNLIKELY(s->ops->take_unlocks))
            dispatch_to_workers_locked(s);
        pull_unlock(s);
        if (n > 0) {
            in->ends_soon = execution_is_short(&s->execution);
            uint64_t bytes,
                took_ns = instance_execute(in, in->batch, n, clock_now_ns(s->clock), &bytes);
            if (took_ns && execution_is_in_doubt(&s->execution))
                learn_on_worker(s, in, took_ns, bytes);
            gathered_ns += took_ns;
        }
        if (UNLIKELY(afterwards_last != NULL) && (is_last || gathered_ns >= GATHER_NS)) {
            run_afterwards(w);
            gathered_ns = 0;
        }
        mutex_lock(&s->mu);
    }
    become_idle_locked(s, in);
}

static bool is_run_by_worker_locked(struct instance *in)
{
    return in->runner == RUNNER_WORKER;
}

static void run_worker_locked(struct instance *in)
{
    run_instance_locked(pull_scheduler_of(in->model), in, in->thread);
}

/* The timer is mostly set already, by an earlier wait of the worker. */
static void waits_locked(struct instance *in, uint64_t until_ns)
{
    struct pull_scheduler *s = pull_scheduler_of(in->model);
    s->idle_look_ns = MIN(s->idle_look_ns, until_ns);
    deadline_timer_fire_by(&s->deadline_timer, s->idle_look_ns);
}

static const struct instance_thread_ops thread_ops = {
    .has_work_locked = is_run_by_worker_locked,
    .work_locked = run_worker_locked,
    .waits_locked = waits_locked,
};

/* The timer has fired. */
static void end_idle_workers_locked(struct pull_scheduler *s, uint64_t now_ns)
{
    if (now_ns >= s->idle_look_ns) {
        s->idle_look_ns = UINT64_MAX;
        for (uint32_t i = 0; i < s->model->n_instances; i++) {
            struct instance_thread *w = s->model->instances[i]->thread;
            if (w)
                s->idle_look_ns = MIN(s->idle_look_ns, instance_thread_end_idle_locked(w, now_ns));
        }
    }
    if (s->idle_look_ns != UINT64_MAX)
        deadline_timer_fire_by(&s->deadline_timer, s->idle_look_ns);
}

/* If the system has no thread left, this thread runs the model: late is better than never. */
static void run_here_and_unlock(struct pull_scheduler *s, struct instance *in, struct status *why)
{
    struct cpu_binding before;
    struct status *st = instance_enter_cpu_binding(in, &before);
    model_code_stays(s->model);
    run_instance_locked(s, in, NULL);
    pull_unlock(s);
    cpu_binding_restore(&before);
    log_status(LOG_WARN, "a model runs on the thread of its request", why);
    log_status(LOG_WARN, "a model runs where its host policy does not want it", st);
}

/*
 * Makes the instance's worker its runner: wakes it, or starts it. (It is started under the lock, so
 * that no thread sees it without its id. It is woken without the lock, which it takes first of
 * all.) Unlocks mu.
 */
static void give_to_worker_and_unlock(struct pull_scheduler *s, struct instance *in)
{
    struct status *st = NULL;
    void *asleep = NULL;

    in->runner = RUNNER_WORKER;
    if (LIKELY(in->thread && !instance_thread_has_ended_locked(in->thread)))
        asleep = instance_thread_rouse_locked(in->thread);
    else
        st = instance_thread_start_locked(in, in->thread, &thread_ops, &s->mu, s->thread_idle_ns,
                                          &in->thread);
    if (UNLIKELY(st != NULL))
        run_here_and_unlock(s, in, st);
    else
        unlock_and_wake(s, asleep);
}

static void dispatch_to_workers_locked(struct pull_scheduler *s)
{
    struct instance *in;
    while ((in = take_idle_instance_locked(s))) {
        give_to_worker_and_unlock(s, in);
        mutex_lock(&s->mu);
    }
}

void pull_dispatch_and_unlock(struct pull_scheduler *s)
{
    dispatch_to_workers_locked(s);
    pull_unlock(s);
}

/* ---- The deadline timer ---------------------------------------------------------------------- */

/*
 * Called on the timers' thread, which all models of a server share. No request is answered there,
 * since an embedder's callback may take long. A helper answers, one for each model. Returns whether
 * answer_refused_late() is to be posted, without the lock.
 */
NODISCARD static bool hand_refused_to_helper_locked(struct pull_scheduler *s)
{
    if (list_empty(&s->refused))
        return false;
    list_move_all(&s->unanswered, &s->refused);
    if (s->is_answering)
        return false;
    s->is_answering = true;
    hold_model(s); /* until answer_refused_late() is over */
    return true;
}

static void on_scheduler_timer(struct deadline_timer *t)
{
    struct pull_scheduler *s = CONTAINER_OF(t, struct pull_scheduler, deadline_timer);
    struct instance *in;
    mutex_lock(&s->mu);
    if (s->ops->on_timer_locked)
        s->ops->on_timer_locked(s);
    bool must_post = hand_refused_to_helper_locked(s);
    while ((in = take_idle_instance_locked(s))) {
        /* Before the unlock, which would answer refused requests on this thread. */
        must_post |= hand_refused_to_helper_locked(s);
        give_to_worker_and_unlock(s, in);
        mutex_lock(&s->mu);
    }
    end_idle_workers_locked(s, clock_now_ns(s->clock));
    must_post |= hand_refused_to_helper_locked(s);
    show_pending_locked(s);
    mutex_unlock(&s->mu);
    if (!must_post)
        return;
    s->answers.run = answer_refused_late;
    helpers_post(s->model->services->helpers, &s->answers);
}

/* ---- On the thread of the request ------------------------------------------------------------ */

static bool may_inline_locked(const struct pull_scheduler *s, const struct inline_budget *budget)
{
    if (!execution_may_inline(&s->execution, budget) || (budget->is_embedders && s->pads))
        return false;
    return LIKELY(s->n_large == 0) || s->execution.mode == EXECUTION_INLINE;
}

/* The time that counts is without the waits of the thread for a CPU. */
static void execute_inline(struct pull_scheduler *s, struct instance *in,
                           struct inline_budget *budget, uint32_t n, uint64_t start_ns)
{
    uint64_t bytes;
    inline_watch_begin(&budget->watch, in, start_ns);
    uint64_t took_ns = instance_execute(in, in->batch, n, start_ns, &bytes);
    inline_watch_end(&budget->watch);
    budget->left_ns -= MIN(took_ns, budget->left_ns);
    budget->now_ns = took_ns ? start_ns + took_ns : 0;
    if (took_ns) {
        uint64_t starved_ns = UNLIKELY(took_ns >= EXECUTION_LONG_NS)
                                  ? inline_watch_starved_ns(&budget->watch, took_ns)
                                  : 0;
        execution_measured(&s->execution, took_ns - starved_ns, bytes, true);
    }
}

/* No request waits, and this thread has executed on the instance inline. */
static void lend_or_become_idle_locked(struct pull_scheduler *s, struct instance *in)
{
    if (!s->ops->lends || s->stopping || s->exclusive || !loan_lend_locked(&s->loans, in))
        become_idle_locked(s, in);
}

/*
 * After an execution on this thread: executes further requests that other threads have brought
 * meanwhile, while its budget has time left, since waking the worker for them would cost more. The
 * rest is the worker's. Unlocks mu.
 */
static void go_on_inline_and_unlock(struct pull_scheduler *s, struct instance *in,
                                    struct inline_budget *budget)
{
    loan_note_locked(in, !s->ops->has_work_locked(s, in));
    while (UNLIKELY(s->ops->has_work_locked(s, in))) {
        if (budget->left_ns == 0 || !may_inline_locked(s, budget)) {
            give_to_worker_and_unlock(s, in);
            return;
        }
        uint32_t n = take_batch_locked(s, in);
        if (n == 0)
            break;
        pull_unlock(s);
        execute_inline(s, in, budget, n, clock_now_ns(s->clock));
        mutex_lock(&s->mu);
    }
    lend_or_become_idle_locked(s, in);
    pull_unlock(s);
}

/* Executes a batch on this thread. Unlocks mu. */
static void run_inline_and_unlock(struct pull_scheduler *s, struct instance *in,
                                  struct inline_budget *budget, uint64_t start_ns)
{
    in->runner = RUNNER_CALLER;
    backend_stays(s->model->backend);
    idle_note_inline(&s->idle, in->number);
    uint32_t n = take_batch_locked(s, in);
    if (UNLIKELY(n == 0)) {
        become_idle_locked(s, in);
        pull_unlock(s);
        return;
    }
    pull_unlock(s);
    execute_inline(s, in, budget, n, start_ns);
    mutex_lock(&s->mu);
    go_on_inline_and_unlock(s, in, budget);
}

/*
 * Executes on the instance that is lent to this thread, if it is free: then no request waits, and
 * this one need not, either. Without the lock, unless another thread wants the instance meanwhile.
 * Returns whether the request has been executed.
 */
static bool run_lent(struct pull_scheduler *s, struct request *r, struct inline_budget *budget)
{
    if (!execution_may_inline(&s->execution, budget) ||
        (UNLIKELY(is_large(r)) && s->execution.mode != EXECUTION_INLINE))
        return false;
    struct instance *in = loan_take(&s->loans);
    if (!in)
        return false;
    in->batch[0] = r;
    /* Queued a moment ago, so the clock is not read again. */
    execute_inline(s, in, budget, 1, r->admitted.queue_ns);
    if (LIKELY(loan_give_back(in)))
        return true;
    mutex_lock(&s->mu);
    loan_end_locked(&s->loans, in);
    go_on_inline_and_unlock(s, in, budget);
    return true;
}

void pull_on_long_execution(struct instance *in, uint64_t stood_ns)
{
    bool off = execution_overdue(&pull_scheduler_of(in->model)->execution, stood_ns);
    log_warn("model '%s' version %s, instance '%s': an inline execution has held up its thread for "
             "%llu ms, and goes on; %s",
             in->model->name, in->model->version_text, in->name,
             (unsigned long long)(stood_ns / NS_PER_MS),
             off ? "the model executes on threads of its own from now on, until many executions "
                   "have been short"
                 : "its CONCH_EXECUTION says 'inline'");
}

/* Defers the model to the end of the iteration, when it is executed with all requests that
 * arrive until then. */
static bool defer_to_iteration_end(struct pull_scheduler *s, struct inline_budget *budget)
{
    if (!budget->on_wait)
        return false;
    for (uint32_t i = 0; i < budget->n_waiting; i++) {
        if (budget->waiting[i] == s->model)
            return true;
    }
    if (budget->n_waiting == ARRAY_SIZE(budget->waiting))
        return false;
    budget->waiting[budget->n_waiting++] = hold_model(s);
    if (budget->n_waiting == 1)
        budget->on_wait(budget);
    return true;
}

/* Executes batches of one model while the budget has time left; the rest goes to the worker. */
static void run_deferred_model(struct pull_scheduler *s, struct inline_budget *budget)
{
    struct instance *in;
    mutex_lock(&s->mu);
    while ((in = take_idle_instance_locked(s))) {
        if (may_inline_locked(s, budget))
            run_inline_and_unlock(s, in, budget, clock_now_ns(s->clock));
        else
            give_to_worker_and_unlock(s, in);
        mutex_lock(&s->mu);
    }
    pull_unlock(s);
}

void pull_run_deferred(struct inline_budget *budget)
{
    while (budget->n_waiting > 0) {
        struct model *m = budget->waiting[--budget->n_waiting];
        run_deferred_model(pull_scheduler_of(m), budget);
        release_model(m);
        afterwards_run(budget);
    }
}

/* Returns why no request is accepted. */
NODISCARD static struct status *refuse_request_locked(const struct pull_scheduler *s,
                                                      const struct request *r)
{
    if (s->stopping)
        return request_too_late(r);
    return status_new(STATUS_UNSUPPORTED,
                      "[request id: %s] model '%s' executes nothing: all its instances are passive",
                      request_log_name(r), s->model->name);
}

static struct status *submit(struct scheduler *base, struct request *r)
{
    struct pull_scheduler *s = to_pull(base);
    struct inline_budget *budget = r->maker.inline_budget;

    if (budget && run_lent(s, r, budget)) {
        afterwards_run(budget);
        return NULL;
    }
    mutex_lock(&s->mu);
    /* Before the push, which may find that it is cancelled already, and refuse it. */
    pull_waits_locked(s, r);
    struct status *st = UNLIKELY(s->stopping || s->n_instances == 0) ? refuse_request_locked(s, r)
                                                                     : s->ops->push_locked(s, r);
    if (UNLIKELY(st != NULL)) {
        atomic_store_explicit(&r->life.waiting, false, memory_order_relaxed);
        add_pending_locked(s, -1);
        s->n_large -= r->queue.is_large;
        pull_unlock(s);
        return st;
    }
    bool may_inline = may_inline_locked(s, budget);
    bool waits = may_inline && s->ops->batches && defer_to_iteration_end(s, budget);
    struct instance *in = waits ? NULL : take_idle_instance_locked(s);
    if (!in)
        pull_unlock(s);
    else if (may_inline)
        run_inline_and_unlock(s, in, budget, r->admitted.queue_ns);
    else
        give_to_worker_and_unlock(s, in);
    if (may_inline)
        afterwards_run(budget);
    return NULL;
}

size_t scheduler_hook(const char *variable)
{
    const char *text = getenv(variable);
    return text ? (size_t)strtoul(text, NULL, 10) : 0;
}

static void use_instances(struct scheduler *base)
{
    struct pull_scheduler *s = to_pull(base);
    const struct model *m = s->model;
    mutex_lock(&s->mu);
    for (uint32_t i = m->n_instances; i-- > 0;) {
        struct instance *in = m->instances[i];
        in->number = i;
        if (in->group->passive)
            continue;
        in->runner = RUNNER_NONE;
        in->watcher = &s->watch.watcher;
        idle_add(&s->idle, i);
        s->n_instances++;
    }
    mutex_unlock(&s->mu);
}

static void flush_queue(struct scheduler *base)
{
    struct pull_scheduler *s = to_pull(base);
    mutex_lock(&s->mu);
    s->flushing = true;
    pull_dispatch_and_unlock(s);
}

static size_t count_open(struct scheduler *base)
{
    struct pull_scheduler *s = to_pull(base);
    if (!s->ops->n_open_locked)
        return 0;
    mutex_lock(&s->mu);
    size_t n = s->ops->n_open_locked(s);
    mutex_unlock(&s->mu);
    return n;
}

static size_t close_queue(struct scheduler *base)
{
    struct pull_scheduler *s = to_pull(base);
    mutex_lock(&s->mu);
    s->closing = s->flushing = true;
    size_t n = s->ops->n_open_locked ? s->ops->n_open_locked(s) : 0;
    pull_dispatch_and_unlock(s);
    return n;
}

/* From now on every request takes the lock. */
static void stop_lending_locked(struct pull_scheduler *s)
{
    struct instance *in;
    s->stopping = true;
    while ((in = loan_call_back_locked(&s->loans)))
        become_idle_locked(s, in);
}

static void stop_queue(struct scheduler *base)
{
    struct pull_scheduler *s = to_pull(base);
    mutex_lock(&s->mu);
    s->flushing = true;
    stop_lending_locked(s);
    pull_dispatch_and_unlock(s);
}

static void read_use(struct scheduler *s, uint64_t now_ns, struct watch_use *ret)
{
    watch_read(&to_pull(s)->watch, now_ns, ret);
}

static const char *name_stuck_instance(struct scheduler *base)
{
    const struct pull_scheduler *s = to_pull(base);
    const struct model *m = s->model;
    if (atomic_load_explicit(&s->watch.n_stuck, memory_order_relaxed) == 0)
        return NULL;
    for (uint32_t i = 0; i < m->n_instances; i++) {
        if (atomic_load_explicit(&m->instances[i]->n_overdue, memory_order_relaxed) > 0)
            return m->instances[i]->name;
    }
    return NULL;
}

static void free_when_quiet(struct scheduler *base)
{
    struct pull_scheduler *s = to_pull(base);
    /* The last request has ended, yet its caller may be inside instance_execute(). */
    mutex_lock(&s->mu);
    stop_lending_locked(s);
    while (s->n_running > 0)
        cond_wait(&s->quiet, &s->mu);
    mutex_unlock(&s->mu);

    for (uint32_t i = 0; i < s->model->n_instances; i++) {
        mutex_lock(&s->mu); /* the timer reads them */
        struct instance_thread *w = TAKE(s->model->instances[i]->thread);
        mutex_unlock(&s->mu);
        instance_thread_stop(w);
    }
    s->ops->free(s);
}

static const struct scheduler_ops scheduler_ops = {
    .submit = submit,
    .flush = flush_queue,
    .n_open = count_open,
    .close = close_queue,
    .stop = stop_queue,
    .free = free_when_quiet,
    .use_instances = use_instances,
    .read_use = read_use,
    .stuck_instance = name_stuck_instance,
};
