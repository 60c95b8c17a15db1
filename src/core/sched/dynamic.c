/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The dynamic batcher. It has no thread. `batch` is the next batch as far as it is formed. The
 * thread that pushes a request, takes a batch or runs the deadline timer brings it up to date, and
 * an idle instance takes it when it is due (batch.h).
 *
 *      queue (by priority, then by arrival)
 *      ┌───┬───┬───┬───┬───┬───┬───┐
 *      │ r │ r │ r │ r │ r │ r │ r │      `batch` is made of the first ones, up to `last`
 *      └───┴───┴───┴───┴───┴───┴───┘
 *       └─── batch ────┘   └── not examined, or (batch.closed) for later batches
 *
 * A request that is pushed behind all others is examined at once. A change of the order or of the
 * earlier requests (a higher priority, a time limit, a batch that was taken) makes the batch void.
 * It is formed again from the front, which examines no more requests than fit.
 *
 * With a batching library each request is offered to it, too, by the worker of an idle instance:
 * the library may take long, and must not be called under our lock or on a loop's thread. One
 * worker at a time walks through the queue, unlocks for each candidate, and then takes what is due;
 * no batch is taken meanwhile. The library's answer counts if the batch is still the same one.
 *
 * Source: reference/behaviours §10
 */
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/status.h"
#include "core/backend/instance.h"
#include "core/request/life.h"
#include "core/model/model.h"
#include "core/sched/batch.h"
#include "core/sched/batch_strategy.h"
#include "core/sched/response_order.h"
#include "core/sched/queue.h"
#include "core/sched/pull.h"
#include "core/sched/can_batch.h"

struct dynamic_scheduler {
    struct pull_scheduler scheduler;
    struct batch_rule rule;                /* constant */
    const struct batch_strategy *strategy; /* constant; NULL: none */
    bool uses_deadlines;                   /* constant: there is a delay, or a time limit */
    struct response_order order;

    /* Under scheduler.mu. */
    size_t hold_below; /* nothing is due while fewer requests wait: a hook of tests; 0: off */
    struct queue queue;
    struct batch batch;
    struct request *first, *last; /* of the batch; NULL: it has none */
    bool all_seen;                /* no request behind `last` is unexamined */

    uint64_t generation; /* of `batch`: incremented each time it is made void */

    /* With a strategy: a worker is asking it; under scheduler.mu. */
    bool examining;
    /* Used by the examining worker: a batch as the library knows it. */
    struct {
        bool begun, asks; /* `begin` was called; and succeeded */
        void *user;       /* the library's */
        uint64_t generation;
    } known;
};

static struct dynamic_scheduler *to_dynamic(struct pull_scheduler *s)
{
    return CONTAINER_OF(s, struct dynamic_scheduler, scheduler);
}

static uint32_t batch_size_of(const struct request *r)
{
    return MAX(r->admitted.batch_size, 1u);
}

static void discard_batch_locked(struct dynamic_scheduler *d)
{
    d->batch = (struct batch){0};
    d->first = d->last = NULL;
    d->all_seen = false;
    d->generation++;
}

/* A cancelled or late request is not executed (reference/behaviours §10.13). */
static void refuse_given_up_locked(struct dynamic_scheduler *d, struct request *r)
{
    queue_remove(&d->queue, r);
    pull_refuse_locked(&d->scheduler, r, FAILURE_CANCELED, status_given_up(r));
}

/* Returns the next request that fits by our own rules; NULL: none now. */
static struct request *next_candidate_locked(struct dynamic_scheduler *d)
{
    while (!d->batch.closed && !d->all_seen) {
        struct request *r = d->last ? queue_next(&d->queue, d->last) : queue_first(&d->queue);
        if (!r) {
            d->all_seen = true;
        } else if (UNLIKELY(request_is_given_up(r))) {
            refuse_given_up_locked(d, r);
        } else if (batch_has_room(&d->batch, &d->rule, batch_size_of(r))) {
            if (!d->first || requests_can_batch(d->first, r))
                return r;
            batch_close(&d->batch);
        }
    }
    return NULL;
}

static void add_to_batch_locked(struct dynamic_scheduler *d, struct request *r)
{
    batch_add(&d->batch, &d->rule, batch_size_of(r), r->admitted.queue_ns);
    d->last = r;
    if (!d->first)
        d->first = r;
}

/* A request that the strategy has not seen yet waits for take_examined(). */
static void grow_batch_locked(struct dynamic_scheduler *d)
{
    struct request *r;
    if (d->strategy)
        return;
    while ((r = next_candidate_locked(d)))
        add_to_batch_locked(d, r);
}

/* Applies the time limits; afterwards the batch is up to date. */
static void update_batch_locked(struct dynamic_scheduler *d, uint64_t now_ns)
{
    if (UNLIKELY(queue_next_limit_ns(&d->queue) <= now_ns) &&
        queue_expire(&d->queue, now_ns, &d->scheduler))
        discard_batch_locked(d);
    grow_batch_locked(d);
}

static bool is_batch_held_locked(struct dynamic_scheduler *d)
{
    if (UNLIKELY(d->hold_below) && (d->queue.n >= d->hold_below || d->scheduler.flushing))
        d->hold_below = 0;
    return UNLIKELY(d->hold_below);
}

/* Returns how many requests of the current batch are due; if none are, sets the timer. */
static uint32_t count_due_locked(struct dynamic_scheduler *d, uint64_t now_ns)
{
    uint64_t until_ns = UINT64_MAX;
    uint32_t n = 0;
    if (!is_batch_held_locked(d))
        n = batch_due(&d->batch, &d->rule, now_ns, d->scheduler.flushing, &until_ns);
    until_ns = MIN(until_ns, queue_next_limit_ns(&d->queue));
    if (until_ns != UINT64_MAX)
        deadline_timer_fire_by(&d->scheduler.deadline_timer, until_ns);
    return n;
}

/* Only some configurations need the time. */
static uint64_t read_clock_if_timed(const struct dynamic_scheduler *d)
{
    return d->uses_deadlines ? clock_now_ns(d->scheduler.clock) : 0;
}

static struct status *push_to_queue(struct pull_scheduler *s, struct request *r)
{
    struct dynamic_scheduler *d = to_dynamic(s);
    bool is_last;
    struct status *st = queue_push(&d->queue, r, &is_last);
    if (st)
        return st;
    if (d->scheduler.order && !r->order.in) /* it may have had one since it came: cached.c */
        response_order_add(&d->order, r);
    if (is_last)
        d->all_seen = false;
    else
        discard_batch_locked(d);
    if (d->uses_deadlines) { /* no idle instance may be there to check */
        update_batch_locked(d, r->admitted.queue_ns);
        count_due_locked(d, r->admitted.queue_ns);
    }
    return NULL;
}

static bool has_due_batch(struct pull_scheduler *s, const struct instance *in)
{
    struct dynamic_scheduler *d = to_dynamic(s);
    uint64_t now_ns = read_clock_if_timed(d);
    (void)in;
    update_batch_locked(d, now_ns);
    return count_due_locked(d, now_ns) > 0;
}

static uint32_t take_due_batch(struct pull_scheduler *s, struct instance *in,
                               struct request **batch, uint32_t max)
{
    struct dynamic_scheduler *d = to_dynamic(s);
    uint64_t now_ns = read_clock_if_timed(d);
    (void)in;
    update_batch_locked(d, now_ns);
    uint32_t n = MIN(count_due_locked(d, now_ns), max);
    if (n == 0)
        return 0;
    struct request *r = d->first;
    for (uint32_t i = 0; i < n; i++) {
        batch[i] = r;
        r = queue_next(&d->queue, r);
        queue_remove(&d->queue, batch[i]);
    }
    discard_batch_locked(d);
    grow_batch_locked(d);
    count_due_locked(d, now_ns); /* sets the timer for the rest */
    return n;
}

/* ---- With a batching library ----------------------------------------------------------------- */

static void log_strategy_failure(const struct dynamic_scheduler *d, const char *function,
                                 struct status *st)
{
    if (LIKELY(!st))
        return;
    log_error("Custom batching %s function failed for model %s: %s", function,
              d->scheduler.model->name, status_message(st));
    status_free(st);
}

/* Ends the library's part of a batch that was dropped. Unlocks mu. */
static void end_known_locked(struct dynamic_scheduler *d)
{
    if (!d->known.begun || d->known.generation == d->generation)
        return;
    d->known.begun = false;
    if (!d->known.user)
        return;
    pull_unlock(&d->scheduler);
    mutex_assert_none_held();
    log_strategy_failure(d, "finalization", d->strategy->end(d->known.user));
    mutex_lock(&d->scheduler.mu);
}

/* … and begins that of the next one. Unlocks mu. */
static void begin_known_locked(struct dynamic_scheduler *d)
{
    void *user = NULL;
    if (d->known.begun)
        return;
    d->known.begun = true;
    d->known.generation = d->generation;
    pull_unlock(&d->scheduler);
    mutex_assert_none_held();
    struct status *st = d->strategy->begin(d->strategy->batcher, &user);
    d->known.asks = !st;
    d->known.user = st ? NULL : user;
    log_strategy_failure(d, "initialization", st);
    mutex_lock(&d->scheduler.mu);
}

/* Asks the library about one candidate; its answer counts after an error, too. No lock is held. */
static bool ask_strategy(struct dynamic_scheduler *d, struct request *r)
{
    bool include = false;
    mutex_assert_none_held();
    log_strategy_failure(d, "include", d->strategy->include(r, d->known.user, &include));
    return include;
}

/*
 * Examines one candidate. Unlocks mu. The request stays readable while the library examines it,
 * whatever happens to it meanwhile: the library counts as a sender.
 *
 * A library's refusal of the first request of a batch cannot be obeyed, because the batch would
 * have no request: the request is executed, alone. (The reference makes empty batches, for ever.)
 */
static void examine_one_locked(struct dynamic_scheduler *d, struct request *r)
{
    uint64_t generation = d->generation;
    bool include = true, first = d->batch.n == 0;
    request_sender_add(r);
    end_known_locked(d);
    begin_known_locked(d);
    bool ask = d->known.asks && generation == d->generation;
    pull_unlock(&d->scheduler);
    if (ask)
        include = ask_strategy(d, r);
    if (UNLIKELY(first && !include))
        log_warn("the batching library of model '%s' refuses the first request of a batch, which "
                 "is executed alone",
                 d->scheduler.model->name);
    request_sender_done(r);
    mutex_lock(&d->scheduler.mu);
    if (generation != d->generation)
        return;
    if (include || first)
        add_to_batch_locked(d, r);
    if (!include)
        batch_close(&d->batch);
}

/* Returns the request about which the library must be asked next. */
static struct request *unexamined_locked(struct dynamic_scheduler *d)
{
    return is_batch_held_locked(d) ? NULL : next_candidate_locked(d);
}

static bool has_examined_work(struct pull_scheduler *s, const struct instance *in)
{
    struct dynamic_scheduler *d = to_dynamic(s);
    bool due = has_due_batch(s, in); /* it also sets the timer */
    return !d->examining && (due || unexamined_locked(d));
}

/* No other thread is woken for requests that arrive while mu is unlocked, so this one looks once
 * more at the end. */
static uint32_t take_examined(struct pull_scheduler *s, struct instance *in, struct request **batch,
                              uint32_t max)
{
    struct dynamic_scheduler *d = to_dynamic(s);
    struct request *r;
    uint32_t n;
    if (d->examining)
        return 0;
    d->examining = true;
    do {
        while ((r = unexamined_locked(d)))
            examine_one_locked(d, r);
        n = take_due_batch(s, in, batch, max);
        for (uint32_t i = 0; i < n; i++) /* before other threads can look */
            atomic_store_explicit(&batch[i]->life.waiting, false, memory_order_relaxed);
        end_known_locked(d); /* the library ends the batch before it is executed */
    } while (n == 0 && (has_due_batch(s, in) || unexamined_locked(d)));
    d->examining = false;
    return n;
}

/* ---------------------------------------------------------------------------------------------- */

static bool remove_from_queue(struct pull_scheduler *s, struct request *r)
{
    queue_remove(&to_dynamic(s)->queue, r);
    discard_batch_locked(to_dynamic(s));
    return true;
}

static void on_queue_timer_locked(struct pull_scheduler *s)
{
    struct dynamic_scheduler *d = to_dynamic(s);
    uint64_t now_ns = read_clock_if_timed(d);
    update_batch_locked(d, now_ns);
    count_due_locked(d, now_ns);
}

static void free_dynamic_scheduler(struct pull_scheduler *s)
{
    struct dynamic_scheduler *d = to_dynamic(s);
    pull_done(s); /* the timer does not fire any more */
    if (d->known.begun && d->known.user)
        log_strategy_failure(d, "finalization", d->strategy->end(d->known.user));
    queue_done(&d->queue);
    response_order_done(&d->order);
    mem_free(d);
}

static uint64_t find_oldest_in_queue(const struct pull_scheduler *s)
{
    return queue_oldest_ns(&CONTAINER_OF((uintptr_t)s, struct dynamic_scheduler, scheduler)->queue);
}

static void set_rule(struct batch_rule *rule, const struct model *m)
{
    const Inference__ModelDynamicBatching *c = m->config->pb->dynamic_batching;
    batch_rule_init(rule, m->max_batch_size, INSTANCE_MAX_REQUESTS, c->n_preferred_batch_size,
                    c->preferred_batch_size, c->max_queue_delay_microseconds);
}

static const struct pull_ops ops = {
    .for_requests = &pull_request_ops,
    .batches = true,
    .leaves = true,
    .push_locked = push_to_queue,
    .take_locked = take_due_batch,
    .has_work_locked = has_due_batch,
    .remove_locked = remove_from_queue,
    .find_oldest_locked = find_oldest_in_queue,
    .on_timer_locked = on_queue_timer_locked,
    .free = free_dynamic_scheduler,
};

static const struct pull_ops ops_with_strategy = {
    .for_requests = &pull_request_ops,
    .batches = true,
    .take_unlocks = true,
    .push_locked = push_to_queue,
    .take_locked = take_examined,
    .has_work_locked = has_examined_work,
    .remove_locked = remove_from_queue,
    .find_oldest_locked = find_oldest_in_queue,
    .on_timer_locked = on_queue_timer_locked,
    .free = free_dynamic_scheduler,
};

struct status *dynamic_scheduler_new(struct model *m, struct scheduler **ret_scheduler)
{
    MEM_CHARGE(m->owner, MEM_INSTANCES);
    struct dynamic_scheduler *d = mem_zalloc(sizeof(*d));
    set_rule(&d->rule, m);
    queue_init(&d->queue, m, m->config->pb->dynamic_batching);
    response_order_init(&d->order);
    d->scheduler.order = m->config->pb->dynamic_batching->preserve_ordering ? &d->order : NULL;
    d->strategy = m->strategy;
    d->hold_below = scheduler_hook("TRITONSERVER_DELAY_SCHEDULER");
    struct status *st = pull_init(&d->scheduler, d->strategy ? &ops_with_strategy : &ops, m);
    if (st) {
        queue_done(&d->queue);
        response_order_done(&d->order);
        mem_free(d);
        return st;
    }
    /* Users search the log for this line to see that the model forms batches. */
    log_verbose(1,
                "Starting dynamic-batcher thread for %s: none is needed, its instances take their "
                "batches by themselves",
                m->name);
    if (d->strategy)
        st = execution_never_inline(&d->scheduler.execution,
                                    "a batching library makes the batches of", m->name);
    d->uses_deadlines = d->rule.delay_ns || queue_limits_time(&d->queue);
    if (st)
        free_dynamic_scheduler(&d->scheduler);
    else
        *ret_scheduler = &d->scheduler.base;
    return st;
}
