/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The scheduler of an ensemble. It has no instances: for each step it submits a request to another
 * model. The state of one request of the ensemble is in its state machine (ensemble_run.h); this
 * file tells that what happens, and does what it wants.
 *
 * Threads: whoever ends a step, mostly inside the backend's call, takes the next events out of the
 * state machine. steps.mu guards the state machine; it is not held while a step is submitted, an
 * answer is sent or a tensor is freed. A step that has begun keeps the request, n_busy counts the
 * threads that come back to it; the last of all, once the request is over, ends it. The requests of
 * the steps that become ready are made under the lock. They are begun without it, on the same
 * thread: after the execution (afterwards.h), or at once if the request is part of a sequence.
 *
 * Most steps answer and are released inside one short execution. Both are then reported together,
 * when it is over: so neither this work nor the client's callback counts as the execution's time,
 * and the stack stays flat. A backend that keeps the request beyond its call (on_step_kept()) does
 * not hold the answer back.
 */
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/pool.h"
#include "base/status.h"
#include "core/backend/instance.h"
#include "core/model/model.h"
#include "core/model/model_statistics.h"
#include "core/request/admit.h"
#include "core/request/life.h"
#include "core/request/request_trace.h"
#include "core/sched/ensemble_priv.h"

enum { STEP_ARENA_BYTES = 1536 }; /* for the usual step, and room for its response */

static struct ensemble_scheduler *to_ensemble(struct scheduler *s)
{
    return CONTAINER_OF(s, struct ensemble_scheduler, base);
}

static struct model *model_of_step(const struct ensemble_request *er, uint32_t step)
{
    return er->scheduler->model->members[step];
}

/* When the thread begins the steps that are ready: when the execution is over that it is in, or
 * now, with the budget. */
struct begin {
    bool is_later;
    uint64_t now_ns;              /* 0: unknown */
    struct inline_budget *budget; /* NULL: none */
};

static const struct begin begin_later = {.is_later = true}, begin_now = {0};

static void advance_and_unlock(struct ensemble_request *er, struct begin when);

/* ---- Making steps ---------------------------------------------------------------------------- */

static void on_step_response(struct request *r, struct response *resp, uint32_t flags);
static void on_step_release(struct request *r, uint32_t flags);
static void on_step_kept(struct request *r);

static void free_step(struct request *r)
{
    pool_release(to_ensemble_step(r));
}

static const struct request_ops step_ops = {
    .alloc_output = ensemble_alloc_output,
    .free_output = ensemble_free_output,
    .respond = on_step_response,
    .release = on_step_release,
    .on_kept = on_step_kept,
    .destroy = free_step,
};

static void begin_step(struct ensemble_step_request *s, struct inline_budget *budget,
                       uint64_t now_ns);

/* Mostly an execution has just ended, and said when; 0: it has not. */
static uint64_t take_now_ns(struct inline_budget *budget)
{
    if (!budget)
        return 0;
    uint64_t now_ns = budget->now_ns;
    budget->now_ns = 0;
    return now_ns;
}

/* The execution is over that has made the step ready. */
static void begin_posted(struct afterwards *a, struct inline_budget *budget)
{
    begin_step(CONTAINER_OF(a, struct ensemble_step_request, later), budget, take_now_ns(budget));
}

/* The step ends before it has begun. */
static void fail_step_locked(struct ensemble_request *er, struct ensemble_step_run *s,
                             struct status *error)
{
    ensemble_run_respond(er->run, s, NULL, NULL, true, error);
    ensemble_run_release(er->run, s);
}

/* The same of a step that had its place within the limits. Returns the step that has the place now,
 * perhaps of another request, to be begun without the lock. */
static struct ensemble_step_run *
fail_placed_locked(struct ensemble_request *er, struct ensemble_step_run *s, struct status *error)
{
    struct ensemble_limits *limits = er->scheduler->limits;
    uint32_t step = s->step;
    fail_step_locked(er, s, error);
    return limits ? ensemble_limits_give(limits, step) : NULL;
}

/* Makes the step's request, still empty, and notes it, so that a cancel of the ensemble's request
 * finds it. */
NODISCARD static struct status *make_step_locked(struct ensemble_request *er,
                                                 struct ensemble_step_run *s,
                                                 struct ensemble_step_request **ret_step)
{
    struct pool *pool = er->outer->pool;
    struct model *m = model_of_step(er, s->step);
    if (UNLIKELY(request_is_given_up(er->outer)))
        return status_given_up(er->outer);
    struct ensemble_step_request *made = pool_alloc(pool, sizeof(*made) + STEP_ARENA_BYTES, NULL);
    if (!made)
        return status_no_memory();
    model_ref(m);
    request_init(&made->request, &step_ops, m, made->first, STEP_ARENA_BYTES, pool);
    made->step.request = &made->request;
    made->has_answer = false;
    made->later.run = begin_posted;
    made->parent = er;
    made->run = s;
    made->plan = &er->scheduler->plan->steps[s->step];
    made->tensors = &er->scheduler->tensors[s->step];
    made->request.maker.step_times = &er->times;
    if (UNLIKELY(!steps_add_locked(&er->steps, &made->step))) {
        request_unref(&made->request);
        return status_cancelled();
    }
    *ret_step = made;
    return NULL;
}

/* Makes the step that has its place within the limits, or has it fail; returns NULL then.
 * @others  who has the place instead, or NULL */
static struct ensemble_step_request *make_or_fail_locked(struct ensemble_request *er,
                                                         struct ensemble_step_run *s,
                                                         struct ensemble_step_run **others)
{
    struct ensemble_step_request *made = NULL;
    struct status *st = make_step_locked(er, s, &made);
    if (UNLIKELY(st != NULL))
        *others = fail_placed_locked(er, s, st);
    return made;
}

/* Takes the next step that is ready, unless it is skipped, waits for its place, or fails; NULL:
 * none is left. After a failure none is ready, so @others is set once. */
static struct ensemble_step_request *take_step_locked(struct ensemble_request *er,
                                                      struct ensemble_step_run **others)
{
    struct ensemble_limits *limits = er->scheduler->limits;
    struct ensemble_step_request *made = NULL;
    struct ensemble_step_run *s;
    while (!made && (s = ensemble_run_next_step(er->run))) {
        bool skip = false;
        struct status *st = ensemble_step_condition(er, s, &skip);
        if (UNLIKELY(st != NULL))
            fail_step_locked(er, s, st);
        else if (skip)
            ensemble_run_skip(er->run, s);
        else if (LIKELY(!limits) || ensemble_limits_take(limits, &er->limited, s))
            made = make_or_fail_locked(er, s, others);
    }
    return made;
}

/* ---- Beginning steps ------------------------------------------------------------------------- */

/* A producer that the limits may make wait does not execute inline, where a loop would wait. */
static struct inline_budget *budget_of(const struct ensemble_step_request *s,
                                       struct inline_budget *budget)
{
    return s->parent->scheduler->limits && s->plan->makes != s->plan->kind ? NULL : budget;
}

/* On success the step may have ended already. @now_ns  0: the clock is read */
NODISCARD static struct status *submit_step(struct ensemble_step_request *s, uint64_t now_ns)
{
    struct request *r = &s->request;
    struct model *m = r->model;
    struct status *st;
    r->admitted.start_ns = r->admitted.queue_ns = now_ns ? now_ns : clock_now_ns(m->clock);
    trace_step(r, s->parent->outer);
    request_begin(r);
    trace_begin(r);
    if (UNLIKELY(atomic_load(&m->stopping)) && !r->maker.goes_on)
        st = request_too_late(r);
    else
        st = scheduler_submit(m->scheduler, r);
    if (UNLIKELY(st != NULL))
        request_unbegin(r);
    return st;
}

/* Begins steps that have waited for their places: the first one, and if it fails the next. */
static void begin_waiting(struct ensemble_step_run *s)
{
    while (s) {
        struct ensemble_request *er =
            CONTAINER_OF(ensemble_limits_owner(s), struct ensemble_request, limited);
        struct ensemble_step_run *others = NULL;
        mutex_lock(&er->steps.mu);
        struct ensemble_step_request *made = make_or_fail_locked(er, s, &others);
        if (made) {
            mutex_unlock(&er->steps.mu);
            begin_step(made, NULL, 0);
        } else {
            advance_and_unlock(er, begin_now);
        }
        s = others;
    }
}

/* The step could not be begun. */
static void abandon_step(struct ensemble_step_request *s, struct status *error)
{
    struct ensemble_request *er = s->parent;
    mutex_lock(&er->steps.mu);
    steps_remove_locked(&er->steps, &s->step);
    struct ensemble_step_run *others = fail_placed_locked(er, s->run, error);
    request_unref(&s->request);
    advance_and_unlock(er, begin_now);
    begin_waiting(others);
}

/* Afterwards the step may be gone. After an error of another one it is not begun. */
static void begin_step(struct ensemble_step_request *s, struct inline_budget *budget,
                       uint64_t now_ns)
{
    struct status *st = NULL;
    if (UNLIKELY(ensemble_run_has_failed(s->parent->run)))
        st = status_cancelled();
    s->request.maker.inline_budget = budget_of(s, budget);
    if (!st)
        st = ensemble_step_fill(s);
    if (!st)
        st = request_admit(&s->request);
    if (!st)
        st = submit_step(s, now_ns);
    if (UNLIKELY(st != NULL))
        abandon_step(s, st);
}

/* ---- What a step tells ----------------------------------------------------------------------- */

/*
 * A request of a sequence must not overtake the one before it, of which a step has just ended. So
 * its next steps are queued while the execution still has the instance: once that is given back,
 * another thread may execute the next request on it, and queue that one's next step first.
 */
static bool may_go_on_later(const struct ensemble_step_request *s)
{
    return LIKELY(!request_names_sequence(s->parent->outer));
}

/* The ensemble's response that has the memory of a decoupled step's outputs. */
static struct response *leaving_response(const struct response *resp)
{
    for (uint32_t i = 0; i < resp->n_outputs; i++) {
        const struct output *out = resp->outputs[i];
        if (out->allocated && out->maker_data)
            return ((struct output *)out->maker_data)->response;
    }
    return NULL;
}

/* The step has answered, and has not been released. */
static void keep_limit(struct ensemble_request *er, uint32_t step, bool is_final)
{
    struct ensemble_limits *limits = er->scheduler->limits;
    struct ensemble_step_run *s;
    if (is_final)
        begin_waiting(ensemble_limits_give(limits, step));
    while (!is_final && (s = ensemble_limits_wait(limits, &er->limited)))
        begin_waiting(s);
}

static struct ensemble_step_answer take_answer(struct ensemble_step_request *s,
                                               struct response *resp)
{
    struct ensemble_step_answer a = {.error = resp ? TAKE(resp->error) : NULL};
    if (resp && !a.error) {
        a.wave_data = leaving_response(resp);
        a.error = ensemble_take_response(s, resp, &a.values, &a.by_map);
    }
    if (resp && a.error)
        response_free(resp);
    return a;
}

/* Is it the thread that executes the step, and does that end soon? Then either a release or
 * on_step_kept() comes soon. */
static bool ends_with_execution(const struct request *r)
{
    return afterwards_is_soon() && !atomic_load_explicit(&r->life.late, memory_order_relaxed) &&
           atomic_load_explicit(&r->life.taken_by, memory_order_relaxed) == instance_executing();
}

static void report_answer_locked(struct ensemble_step_request *s,
                                 const struct ensemble_step_answer *a, bool is_final)
{
    ensemble_run_respond(s->parent->run, s->run, a->by_map, a->wave_data, is_final, a->error);
}

static void values_done(struct ensemble_values *values)
{
    if (values)
        ensemble_values_done(values);
}

static void on_step_response(struct request *r, struct response *resp, uint32_t flags)
{
    struct ensemble_step_request *s = to_ensemble_step(r);
    struct ensemble_request *er = s->parent;
    bool is_final = flags & RESPONSE_FINAL;
    struct ensemble_limits *limits = er->scheduler->limits;
    struct ensemble_step_answer a = take_answer(s, resp);
    if (is_final && LIKELY(!limits) && ends_with_execution(r)) {
        s->answer = a;
        s->has_answer = true;
        return;
    }
    uint32_t step = s->run->step;
    mutex_lock(&er->steps.mu);
    report_answer_locked(s, &a, is_final);
    advance_and_unlock(er, is_final ? begin_later : begin_now);
    values_done(a.values);
    if (UNLIKELY(limits != NULL))
        keep_limit(er, step, is_final);
}

static void on_step_kept(struct request *r)
{
    struct ensemble_step_request *s = to_ensemble_step(r);
    struct ensemble_request *er = s->parent;
    if (!s->has_answer)
        return;
    s->has_answer = false;
    mutex_lock(&er->steps.mu);
    report_answer_locked(s, &s->answer, true);
    advance_and_unlock(er, begin_later);
    values_done(s->answer.values);
}

/* Nothing is left of the step afterwards. */
static void end_step(struct ensemble_step_request *s, struct begin when)
{
    struct ensemble_request *er = s->parent;
    struct ensemble_values *values = NULL;
    mutex_lock(&er->steps.mu);
    if (LIKELY(s->has_answer)) {
        values = s->answer.values;
        report_answer_locked(s, &s->answer, true);
    }
    steps_remove_locked(&er->steps, &s->step);
    ensemble_run_release(er->run, s->run);
    advance_and_unlock(er, when);
    values_done(values);
    request_unref(&s->request);
}

/* The execution is over that has released the step. */
static void end_posted(struct afterwards *a, struct inline_budget *budget)
{
    struct begin when = {.budget = budget, .now_ns = take_now_ns(budget)};
    end_step(CONTAINER_OF(a, struct ensemble_step_request, later), when);
}

static void on_step_release(struct request *r, uint32_t flags)
{
    struct ensemble_step_request *s = to_ensemble_step(r);
    (void)flags;
    if (UNLIKELY(!s->has_answer) || !may_go_on_later(s)) {
        end_step(s, begin_later);
        return;
    }
    s->later.run = end_posted;
    afterwards_post(&s->later);
}

/* ---- What the state machine wants ------------------------------------------------------------ */

/* Taken out of the state machine under the lock, done without it. */
struct todo {
    struct list steps;                /* made; ensemble_step_run.link */
    struct ensemble_step_run *others; /* a step that has waited for the place of one that failed */
    struct ensemble_value *gone;
    bool has_answer;
    struct ensemble_answer answer;
    struct response *response; /* for the answer's outputs; NULL: they have no memory yet */
};

/* Takes the values that nobody reads any more. Those of the ensemble's inputs are the request's. */
static struct ensemble_value *take_gone(struct ensemble_request *er)
{
    struct ensemble_value *next, *ret = NULL;
    for (struct ensemble_value *v = ensemble_run_take_gone(er->run); v; v = next) {
        next = v->next;
        if (ensemble_value_is_input(v))
            continue;
        v->next = ret;
        ret = v;
    }
    return ret;
}

static void take_todo_locked(struct ensemble_request *er, struct todo *ret)
{
    struct ensemble_step_request *s;
    list_init(&ret->steps);
    ret->others = NULL;
    while ((s = take_step_locked(er, &ret->others))) {
        s->run->data = s;
        list_push(&ret->steps, &s->run->link);
    }
    ret->has_answer = ensemble_run_next_answer(er->run, &ret->answer);
    ret->response =
        ret->has_answer && ret->answer.wave ? ensemble_take_response_of(ret->answer.wave) : NULL;
    ret->gone = take_gone(er);
}

static void free_values(struct ensemble_value *v)
{
    while (v) {
        struct ensemble_value *next = v->next;
        ensemble_value_free(v);
        v = next;
    }
}

/* Each of the steps keeps the ensemble's request until it is begun. */
static void begin_steps(struct todo *t, struct begin when)
{
    uint64_t now_ns = when.now_ns;
    struct list *link;
    while ((link = list_pop(&t->steps))) {
        struct ensemble_step_request *s = LIST_ENTRY(link, struct ensemble_step_run, link)->data;
        if (when.is_later && may_go_on_later(s))
            afterwards_post(&s->later);
        else
            begin_step(s, when.budget, now_ns);
        now_ns = 0;
    }
    begin_waiting(t->others);
}

/* The last of this request: afterwards nothing of it is left. */
static void end_request(struct ensemble_request *er)
{
    struct request *outer = er->outer;
    ensemble_drop_responses(er);
    ensemble_run_done(er->run);
    request_count_ensemble(outer, &er->times, !er->has_failed);
    steps_end(&er->steps, outer);
    struct status *st = request_release(outer);
    BUG_ON(st != NULL);
}

/* Is it the final answer, with no step and no other thread left that needs the lock? */
static bool is_last_locked(const struct ensemble_request *er, const struct todo *t)
{
    return t->has_answer && t->answer.is_final && er->n_busy == 0 && er->run->n_held == 0;
}

static void send_and_end(struct ensemble_request *er, struct todo *t)
{
    free_values(t->gone);
    struct status *st = ensemble_send(er, &t->answer, t->response);
    BUG_ON(st != NULL); /* an error is the final answer */
    ensemble_run_answered(er->run);
    free_values(take_gone(er));
    end_request(er);
    begin_waiting(t->others);
}

static bool is_over_locked(const struct ensemble_request *er)
{
    return er->n_busy == 0 && ensemble_run_is_over(er->run);
}

/* Does this thread have to come back to the request after what there is to do? */
static bool must_return_locked(const struct ensemble_request *er, const struct todo *t)
{
    return t->has_answer || (t->gone && list_empty(&t->steps) && !is_over_locked(er));
}

/* Does what there is to do. Returns with the lock. */
static void do_and_lock(struct ensemble_request *er, struct todo *t, struct begin when)
{
    struct status *st = NULL;
    er->n_busy++;
    mutex_unlock(&er->steps.mu);
    free_values(t->gone);
    if (t->has_answer)
        st = ensemble_send(er, &t->answer, t->response);
    begin_steps(t, when);
    mutex_lock(&er->steps.mu);
    er->n_busy--;
    if (t->has_answer)
        ensemble_run_answered(er->run);
    if (st)
        ensemble_run_fail(er->run, st);
}

/* Does what there is to do. Unlocks steps.mu; afterwards the request may be gone. */
static void advance_and_unlock(struct ensemble_request *er, struct begin when)
{
    struct todo t;
    take_todo_locked(er, &t);
    while (must_return_locked(er, &t)) {
        if (is_last_locked(er, &t)) {
            mutex_unlock(&er->steps.mu);
            send_and_end(er, &t);
            return;
        }
        do_and_lock(er, &t, when);
        when.now_ns = 0; /* that has taken its time */
        take_todo_locked(er, &t);
    }
    bool is_over = is_over_locked(er);
    mutex_unlock(&er->steps.mu);
    free_values(t.gone);
    begin_steps(&t, when);
    if (is_over)
        end_request(er);
}

/* ---- Requests of the ensemble ---------------------------------------------------------------- */

/* The block of a request: the struct, and behind it the other parts. */
struct layout {
    size_t inputs, by_index, outputs, run, bytes;
};

static struct layout layout_of(const struct ensemble_plan *p, const struct request *r)
{
    struct layout l = {.inputs = sizeof(struct ensemble_request)};
    l.by_index = l.inputs + r->maker.n_inputs * sizeof(struct ensemble_tensor_value);
    l.outputs = l.by_index + p->n_inputs * sizeof(struct ensemble_value *);
    l.run = l.outputs + ensemble_set_words(p->n_outputs) * sizeof(uint64_t);
    l.bytes = l.run + ensemble_run_bytes(p);
    return l;
}

static void free_request(struct steps *s)
{
    pool_release(CONTAINER_OF(s, struct ensemble_request, steps));
}

/* Makes the values of the request's inputs, by the ensemble's index. */
static struct ensemble_value *const *take_inputs(struct ensemble_request *er, char *by_index)
{
    const struct request *r = er->outer;
    const struct ensemble_plan *p = er->scheduler->plan;
    struct ensemble_value **values = (struct ensemble_value **)(void *)by_index;
    memset(values, 0, p->n_inputs * sizeof(struct ensemble_value *));
    for (uint32_t i = 0; i < r->maker.n_inputs; i++) {
        const struct input *in = r->maker.inputs[i];
        ensemble_value_of_input(r, in, &er->inputs[i]);
        values[in->spec - r->model->inputs] = &er->inputs[i].head;
    }
    return values;
}

/* Returns the requested outputs as a set; NULL: all. */
static const uint64_t *take_requested(const struct ensemble_plan *p, const struct request *r,
                                      char *room)
{
    uint64_t *set = (uint64_t *)(void *)room;
    if (r->maker.n_outputs == 0 || r->maker.n_outputs == p->n_outputs)
        return NULL; /* each name is there once */
    memset(set, 0, ensemble_set_words(p->n_outputs) * sizeof(*set));
    for (uint32_t i = 0; i < r->maker.n_outputs; i++)
        ensemble_set_add(set, ensemble_plan_find_output(p, r->maker.outputs[i]));
    return set;
}

/* The server stops: only sequences that have begun in a step's model go on. */
static bool comes_too_late(const struct request *r)
{
    return atomic_load_explicit(&r->model->is_closing, memory_order_relaxed) && !r->maker.goes_on &&
           (!request_names_sequence(r) || (r->maker.flags & REQUEST_SEQUENCE_START));
}

static struct status *submit_to_ensemble(struct scheduler *s, struct request *r)
{
    struct ensemble_scheduler *es = to_ensemble(s);
    if (UNLIKELY(comes_too_late(r)))
        return request_too_late(r);
    struct layout l = layout_of(es->plan, r);
    char *block = pool_alloc(r->pool, l.bytes, NULL);
    if (!block)
        return status_no_memory();
    struct ensemble_request *er = (struct ensemble_request *)(void *)block;
    er->scheduler = es;
    er->outer = r;
    er->inputs = (struct ensemble_tensor_value *)(void *)(block + l.inputs);
    er->n_busy = 0;
    er->limited = (struct ensemble_limited){.request = r};
    er->has_failed = false;
    memset(&er->times, 0, sizeof(er->times));
    list_init(&er->responses);
    er->run = (struct ensemble_run *)(void *)(block + l.run);
    ensemble_run_init(er->run, es->plan, r->pool, r->model->owner);
    /* As in the reference, it executes while its steps wait. */
    atomic_store_explicit(&r->life.stage, REQUEST_EXECUTING, memory_order_relaxed);
    steps_begin(&er->steps, r, free_request);
    const uint64_t *outputs = take_requested(es->plan, r, block + l.outputs);
    struct ensemble_value *const *inputs = take_inputs(er, block + l.by_index);
    mutex_lock(&er->steps.mu);
    ensemble_run_begin(er->run, outputs, inputs);
    advance_and_unlock(
        er, (struct begin){.budget = r->maker.inline_budget, .now_ns = r->admitted.queue_ns});
    return NULL;
}

/* ---- The kind -------------------------------------------------------------------------------- */

static void do_nothing(struct scheduler *s)
{
    (void)s; /* the models of the steps have the queues and sequences */
}

static size_t count_no_sequences(struct scheduler *s)
{
    (void)s;
    return 0;
}

static void free_ensemble_scheduler(struct scheduler *s)
{
    struct ensemble_scheduler *es = to_ensemble(s);
    ensemble_limits_free(es->limits);
    ensemble_plan_free(es->plan);
    mem_free(es);
}

static const struct scheduler_ops ops = {
    .submit = submit_to_ensemble,
    .flush = do_nothing,
    .n_open = count_no_sequences,
    .close = count_no_sequences,
    .stop = do_nothing,
    .free = free_ensemble_scheduler,
};

static void ignore_cancel(struct request *r)
{
    (void)r; /* its steps are cancelled: core/request/steps.h */
}

static const struct scheduler_request_ops request_ops = {.on_cancelled = ignore_cancel};

NODISCARD static struct status *make_plan(struct model *m, struct ensemble_plan **ret_plan)
{
    if (!m->members)
        return status_new(STATUS_INTERNAL, "ensemble '%s' has no models for its steps", m->name);
    bool *decoupled = mem_zalloc((m->n_members + 1) * sizeof(*decoupled));
    for (size_t i = 0; i < m->n_members; i++)
        decoupled[i] = m->members[i]->decoupled;
    struct status *st = ensemble_plan_new(m->config, decoupled, ret_plan);
    mem_free(decoupled);
    return st;
}

struct status *ensemble_scheduler_new(struct model *m, struct scheduler **ret_scheduler)
{
    MEM_CHARGE(m->owner, MEM_INSTANCES);
    struct ensemble_plan *plan;
    struct status *st = make_plan(m, &plan);
    if (st)
        return st;
    const struct ensemble_step_tensors *tensors;
    st = ensemble_tensors_new(plan, m->members, &tensors);
    if (!st)
        st = model_config_set_decoupled(m->config, ensemble_plan_is_decoupled(plan));
    if (st) {
        ensemble_plan_free(plan);
        return st;
    }
    struct ensemble_scheduler *es = mem_zalloc(sizeof(*es));
    es->base.ops = &ops;
    es->model = m;
    es->plan = plan;
    es->tensors = tensors;
    if (plan->max_inflight_requests) {
        es->limits = ensemble_limits_new(plan->n_steps, plan->max_inflight_requests);
        log_info("Ensemble model '%s' configured with max_inflight_requests: %u", m->name,
                 plan->max_inflight_requests);
    }
    m->scheduler_ops = &request_ops;
    m->decoupled = ensemble_plan_is_decoupled(plan);
    *ret_scheduler = &es->base;
    return NULL;
}
