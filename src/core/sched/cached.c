/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The way of a request whose model has a response cache (core/cache/cache.h): it is looked up
 * before the scheduler of any kind sees it, so a hit of an ensemble runs no step.
 *
 *     cached_submit ──┬─ the cache never waits, or may be waited for: look up here ──┬─ hit: answer
 *                     ├─ else: look up on a thread of the cache ────────────────────┴─ miss: submit
 *                     └─ no key, or too many look-ups under way: submit
 *
 * With preserve_ordering a request has its position before anything that comes after it: a hit when
 * it has been found in the call, a request that another thread looks up when it comes.
 *
 * A request that another thread looks up has been accepted: what its scheduler refuses is answered
 * with the error. When it is cancelled, it is answered although the cache has not.
 *
 * Source: reference/behaviours §10.11, §12.12, §17.1, §17.5
 */
#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "core/cache/cache.h"
#include "core/cache/cache_key.h"
#include "core/cache/posted_look_up.h"
#include "core/model/model_statistics.h"
#include "core/request/life.h"
#include "core/sched/afterwards.h"
#include "core/sched/scheduler.h"

/* Answers the request, which has its position if it needs one. Takes the response. */
static void answer_hit(struct request *r, struct response *resp, uint64_t from_ns)
{
    uint64_t now_ns = clock_now_ns(r->model->clock);
    const struct request_ns ns = {.all = now_ns - r->admitted.start_ns,
                                  .queue = from_ns - r->admitted.queue_ns};
    model_count_cache_hit(r->model, &ns, now_ns - from_ns);
    atomic_store_explicit(&r->life.stage, REQUEST_EXECUTING, memory_order_relaxed);
    status_free(response_send(resp, RESPONSE_FINAL, NULL));
    struct status *st = request_release(r);
    BUG_ON(st != NULL);
}

static void take_order_position(struct scheduler *s, struct request *r)
{
    if (s->ops->take_position)
        s->ops->take_position(s, r);
}

/* Notes that the response is to be kept. The time in the queue begins now. */
static void note_miss(struct request *r, uint64_t from_ns)
{
    uint64_t now_ns = clock_now_ns(r->model->clock);
    r->cache.look_up_ns = now_ns - from_ns;
    r->admitted.queue_ns = now_ns;
    atomic_store_explicit(&r->cache.missed, true, memory_order_relaxed);
}

/* The caller's, and with it the time that its look-up may take, is no concern of this thread. */
static void submit_late(struct scheduler *s, struct request *r)
{
    r->maker.inline_budget = NULL;
    r->maker.goes_on = true; /* it was accepted while its model served */
    struct status *st = s->ops->submit(s, r);
    if (st)
        request_fail_queued(r, FAILURE_OTHER, st);
}

/* On a thread of the cache. */
static void end_look_up(struct scheduler *s, struct request *r, struct response *resp,
                        uint64_t from_ns)
{
    if (resp) {
        answer_hit(r, resp, from_ns);
    } else if (request_is_given_up(r)) {
        request_fail_queued(r, FAILURE_CANCELED, status_given_up(r));
    } else {
        note_miss(r, from_ns);
        submit_late(s, r);
    }
}

/* Has a thread of the cache look it up, or else goes on without the cache. */
static struct status *look_up_elsewhere(struct scheduler *s, struct request *r)
{
    take_order_position(s, r);
    if (cache_post_look_up(s, r, end_look_up))
        return NULL;
    struct status *st = s->ops->submit(s, r);
    if (!st || !r->order.in)
        return st;
    request_fail_queued(r, FAILURE_OTHER, st); /* others wait behind its position */
    return NULL;
}

/* The reference looks a request up before it is cancelled or late, too. */
static struct status *look_up_here(struct scheduler *s, struct request *r)
{
    uint64_t from_ns = r->admitted.queue_ns;
    struct inline_budget *budget = r->maker.inline_budget;
    struct response *resp = cache_look_up(r);
    if (!resp) {
        note_miss(r, from_ns);
        return s->ops->submit(s, r);
    }
    take_order_position(s, r);
    answer_hit(r, resp, from_ns);
    if (budget)
        afterwards_run(budget);
    return NULL;
}

struct status *cached_submit(struct scheduler *s, struct request *r)
{
    if (UNLIKELY(!cache_key_of(r, &r->cache.key))) {
        log_warn("Failed to hash request: an input of model '%s' is in the memory of a GPU",
                 r->model->name);
        return s->ops->submit(s, r);
    }
    if (r->model->cached->cache->never_waits || r->maker.may_wait)
        return look_up_here(s, r);
    return look_up_elsewhere(s, r);
}
