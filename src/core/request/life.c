/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The life of a request.
 *
 * Where it is (`stage`, the holder of its inputs):
 *
 *      IDLE ──server_infer()──► QUEUED ──instance──► EXECUTING ──request_release()──► RELEASED
 *        ▲                        │ refused: returned unanswered                         │
 *        ├────────────────────────┘ ▲──── request_reschedule() ────┘                     │
 *        └── the last sender is done: ops->release(), the maker may use it again ◄───────┘
 *
 * Whether it has its answer (`answered`): false → true exactly once, by an atomic exchange in
 * claim_answer(); the thread that wins it sends the final response. That is the single terminal
 * transition.
 *
 * Who may still answer (`senders`): the core or the backend while it holds the request, each
 * response factory, each response that is not sent yet, a final one that waits for earlier
 * positions (sched/response_order.h). When the last sender of an unanswered request is done, the
 * core answers in its place: no accepted request is ever lost. That moment, in sender_done(), is
 * also the end of the request for its model.
 *
 * Who keeps its memory (`refs`): the maker by its reference from request_init(), the senders by one
 * reference together, each response until the maker has freed it. The last reference calls
 * ops->destroy().
 */
#include "core/request/life.h"

#include "base/clock.h"
#include "base/mutex.h"
#include "base/pool.h"
#include "base/status.h"
#include "core/model/model.h"
#include "core/model/model_priv.h"
#include "core/model/model_statistics.h"
#include "core/request/request_trace.h"
#include "core/request/steps.h"

/* The lower half of `senders`. */
#define COUNT 0xffffffffULL

void request_begin(struct request *r)
{
    /* The scheduler's lock, or the call itself on this thread, publishes these writes. */
    response_spare(r);
    atomic_store_explicit(&r->life.answered, false, memory_order_relaxed);
    atomic_store_explicit(&r->life.lacks_response, false, memory_order_relaxed);
    uint64_t senders = atomic_load_explicit(&r->life.senders, memory_order_relaxed);
    /* Release: a thread that sees this run sees that no instance has taken it yet
     * (request_is_held()). */
    atomic_store_explicit(&r->life.senders, (senders | COUNT) + 2, memory_order_release);
    atomic_store_explicit(&r->life.responded, false, memory_order_relaxed);
    atomic_store_explicit(&r->life.n_reported, 0, memory_order_relaxed);
    r->order.in = NULL;
    atomic_store_explicit(&r->cache.missed, false, memory_order_relaxed);
    atomic_store_explicit(&r->cache.has_response, false, memory_order_relaxed);
    atomic_store_explicit(&r->cache.held, NULL, memory_order_relaxed);
    atomic_store_explicit(&r->cache.posted, NULL, memory_order_relaxed);
    atomic_store_explicit(&r->life.stage, REQUEST_QUEUED, memory_order_relaxed);
    atomic_fetch_add_explicit(&r->life.refs, 1, memory_order_relaxed);
    model_request_begun(r->model);
}

void request_unbegin(struct request *r)
{
    trace_end(r);
    atomic_store_explicit(&r->life.stage, REQUEST_IDLE, memory_order_relaxed);
    atomic_fetch_and_explicit(&r->life.senders, ~COUNT, memory_order_relaxed);
    model_request_ended(r->model);
    /* The maker has a reference of its own, so this is never the last. */
    atomic_fetch_sub_explicit(&r->life.refs, 1, memory_order_relaxed);
}

bool request_is_held(const struct request *r, const struct instance *in)
{
    /* seq_cst: pairs with request_sender_done(), see core/sched/watch.c. */
    return (atomic_load(&r->life.senders) & COUNT) && atomic_load(&r->life.taken_by) == in;
}

bool request_sender_join(struct request *r, const struct instance *in)
{
    uint64_t senders = atomic_load(&r->life.senders);
    /* Numbers of runs do not repeat, so values read between two equal ones belong to that run. */
    while ((senders & COUNT) &&
           atomic_load_explicit(&r->life.taken_by, memory_order_relaxed) == in) {
        if (atomic_compare_exchange_weak(&r->life.senders, &senders, senders + 1))
            return true;
    }
    return false;
}

static bool claim_answer(struct request *r)
{
    return !atomic_exchange_explicit(&r->life.answered, true, memory_order_acq_rel);
}

void request_sender_add(struct request *r)
{
    atomic_fetch_add_explicit(&r->life.senders, 1, memory_order_relaxed);
}

static void observe_first_response(struct request *r)
{
    if (atomic_exchange_explicit(&r->life.responded, true, memory_order_relaxed))
        return;
    uint64_t now_ns = clock_now_ns(r->model->clock);
    double ms = (double)(now_ns - MIN(r->admitted.start_ns, now_ns)) / NS_PER_MS;
    histogram_observe(r->model->metrics.first_response, ms);
}

void request_respond(struct request *r, struct response *resp, uint32_t flags)
{
    if (UNLIKELY(r->model->metrics.first_response != NULL) && resp)
        observe_first_response(r);
    r->ops->respond(r, resp, flags);
}

static void respond_in_order(struct request *r, struct response *resp, uint32_t flags)
{
    mutex_assert_none_held();
    if (UNLIKELY(r->order.in != NULL))
        r->model->scheduler_ops->respond(r, resp, flags);
    else
        request_respond(r, resp, flags);
}

/* The core sends an error as the final response; the answer is claimed before. */
static void send_error(struct request *r, struct status *error)
{
    struct response *resp = response_make_last(r);
    if (!resp) { /* the flags alone end the request */
        status_free(error);
        respond_in_order(r, NULL, RESPONSE_FINAL);
        return;
    }
    resp->error = error;
    resp->sent = true;
    respond_in_order(r, resp, RESPONSE_FINAL);
}

/* Acquire: pairs with the release of the thread that holds it. */
static struct held_response *take_held_response(struct request *r)
{
    return atomic_exchange_explicit(&r->cache.held, NULL, memory_order_acquire);
}

static void drop_held_response(struct request *r)
{
    pool_release(take_held_response(r));
}

void request_sender_done(struct request *r)
{
    /* seq_cst: pairs with on_kept() of watch.c. */
    if ((atomic_fetch_sub(&r->life.senders, 1) & COUNT) != 1)
        return;
    if (UNLIKELY(!atomic_load_explicit(&r->life.answered, memory_order_acquire)) &&
        claim_answer(r)) {
        request_sender_add(
            r); /* the core is a sender now; its answer may wait for earlier positions */
        send_error(r, status_new(STATUS_INTERNAL,
                                 "model '%s' released the request without a final response",
                                 r->model->name));
        request_sender_done(r);
        return;
    }
    if (UNLIKELY(atomic_load(&r->life.late)))
        r->model->scheduler_ops->on_late_end(r);
    if (UNLIKELY(atomic_load_explicit(&r->cache.held, memory_order_acquire) != NULL))
        drop_held_response(r);
    atomic_store_explicit(&r->life.taken_by, NULL, memory_order_relaxed);
    trace_end(r);
    model_request_ended(r->model);
    atomic_store_explicit(&r->life.stage, REQUEST_IDLE, memory_order_release);
    mutex_assert_none_held();
    if (r->ops->release)
        r->ops->release(r, RELEASE_ALL); /* the maker may start it again in there */
    request_unref(r);
}

struct status *request_send(struct request *r, struct response *resp, uint32_t flags)
{
    if (flags & RESPONSE_FINAL) {
        if (!claim_answer(r))
            goto too_late;
    } else if (atomic_load_explicit(&r->life.answered, memory_order_acquire)) {
        goto too_late;
    } else {
        atomic_store_explicit(&r->life.progressed, true, memory_order_relaxed);
    }
    respond_in_order(r, resp, flags);
    return NULL;

too_late:
    response_free(resp);
    return status_new(STATUS_INVALID_ARG,
                      "[request id: %s] model '%s' sent a response after the final one",
                      request_log_name(r), r->model->name);
}

/* The response that came before is the only one. */
static void keep_held_response(struct request *r)
{
    struct held_response *held = take_held_response(r);
    mutex_assert_none_held();
    if (held)
        r->model->cached->keep_held(r, held);
}

/* A backend that had no memory for a response, or for an error that says so, can only send flags.
 * Its client gets the error, instead of fewer responses than there should be. */
struct status *request_send_flags(struct request *r, uint32_t flags)
{
    if (UNLIKELY((flags & RESPONSE_FINAL) &&
                 atomic_load_explicit(&r->life.lacks_response, memory_order_relaxed)) &&
        claim_answer(r)) {
        send_error(r, status_no_memory());
        return NULL;
    }
    if (UNLIKELY((flags & RESPONSE_FINAL) &&
                 atomic_load_explicit(&r->cache.missed, memory_order_relaxed)))
        keep_held_response(r);
    return request_send(r, NULL, flags);
}

bool request_fail(struct request *r, struct status *error)
{
    bool first = claim_answer(r);
    if (first)
        send_error(r, error);
    else
        status_free(error);
    return first;
}

NODISCARD static struct status *refuse_release(const struct request *r)
{
    return status_new(STATUS_INVALID_ARG,
                      "[request id: %s] request is released, but not held by a backend",
                      request_log_name(r));
}

struct status *request_release(struct request *r)
{
    /* Exactly one release counts, the backend's; a second one is refused. A release from
     * elsewhere while the request waits, which the reference allows, has no effect: the request
     * goes on to its answer. */
    int expected = REQUEST_EXECUTING;
    if (!atomic_compare_exchange_strong_explicit(&r->life.stage, &expected, REQUEST_RELEASED,
                                                 memory_order_acq_rel, memory_order_acquire))
        return expected == REQUEST_QUEUED ? NULL : refuse_release(r);
    if (UNLIKELY(r->seq.sequence || r->seq.padding))
        r->model->scheduler_ops->on_released(r);
    request_sender_done(r);
    return NULL;
}

struct status *request_reschedule(struct request *r)
{
    const Inference__ModelSequenceBatching *config = model_config_sequences(r->model->config);
    int expected = REQUEST_EXECUTING;
    if (!config || !config->iterative_sequence || r->seq.padding)
        return status_new(STATUS_INVALID_ARG,
                          "Request is released with TRITONSERVER_REQUEST_RELEASE_RESCHEDULE, while "
                          "the model is not configured to handle such a flag.");
    if (atomic_load_explicit(&r->life.answered, memory_order_acquire))
        return status_new(STATUS_INVALID_ARG,
                          "[request id: %s] request is to be rescheduled, but has its final "
                          "response",
                          request_log_name(r));
    r->admitted.queue_ns = clock_now_ns(r->model->clock);
    if (!atomic_compare_exchange_strong_explicit(&r->life.stage, &expected, REQUEST_QUEUED,
                                                 memory_order_acq_rel, memory_order_acquire))
        return refuse_release(r);
    atomic_store(&r->life.taken_by, NULL); /* seq_cst: pairs with on_kept() of watch.c */
    if (UNLIKELY(atomic_load(&r->life.late)))
        r->model->scheduler_ops->on_late_end(r);
    r->model->scheduler_ops->on_rescheduled(r);
    return NULL;
}

void request_cancel(struct request *r)
{
    /* seq_cst: pairs with steps_begin(), calls_of(), pull_waits_locked() and
     * cache_post_look_up(). */
    atomic_store(&r->life.cancelled, true);
    if (UNLIKELY(atomic_load(&r->cache.posted) != NULL))
        r->model->cached->cancel(r);
    if (atomic_load(&r->life.waiting))
        r->model->scheduler_ops->on_cancelled(r);
    if (UNLIKELY(atomic_load(&r->life.steps)))
        steps_cancel_of(r);
    struct request_calls *calls = atomic_load(&r->life.calls);
    if (UNLIKELY(calls != NULL))
        calls->cancel(calls, r);
}

struct status *status_cancelled(void)
{
    return status_new(STATUS_CANCELLED, "%s", "");
}

struct status *status_given_up(const struct request *r)
{
    return request_is_cancelled(r) ? status_cancelled()
                                   : status_new(STATUS_TIMED_OUT, "Deadline Exceeded");
}

struct status *request_too_late(const struct request *r)
{
    struct status *st = status_new(STATUS_UNAVAILABLE,
                                   "Server is stopping, scheduler for model has stopped accepting "
                                   "new inference requests");
    return r ? status_prefix(st, "[request id: %s] ", request_log_name(r)) : st;
}

void request_fail_queued(struct request *r, enum failure_reason reason, struct status *error)
{
    uint64_t now_ns = clock_now_ns(r->model->clock);
    model_count_failure(r->model, reason, now_ns - MIN(r->admitted.start_ns, now_ns));
    request_fail(r, error);
    atomic_store_explicit(&r->life.stage, REQUEST_EXECUTING, memory_order_relaxed);
    struct status *st = request_release(r);
    BUG_ON(st != NULL);
}

/* ---- Responses ------------------------------------------------------------------------------- */

struct status *response_new(struct request *r, struct response **ret_response)
{
    struct status *st = response_make(r, ret_response);
    if (!st)
        request_sender_add(r);
    return st;
}

void response_free(struct response *resp)
{
    if (!resp)
        return;
    struct request *r = resp->request;
    bool unsent = !resp->sent;
    response_discard(resp);
    if (unsent)
        request_sender_done(r);
    request_unref(r);
}

/* A request of several responses has none that could stand for it. Source: reference/behaviours
 * §17.10 */
static void keep_in_cache(const struct response *resp, uint32_t flags)
{
    struct request *r = resp->request;
    bool is_first = !atomic_exchange_explicit(&r->cache.has_response, true, memory_order_relaxed);
    mutex_assert_none_held();
    if (!is_first || resp->error) {
        atomic_store_explicit(&r->cache.missed, false, memory_order_relaxed);
        drop_held_response(r);
    } else if (flags & RESPONSE_FINAL) {
        r->model->cached->keep(resp);
    } else {
        /* Release: the thread that sends the final flag may be another one. */
        atomic_store_explicit(&r->cache.held, r->model->cached->hold(resp), memory_order_release);
    }
}

struct status *response_send(struct response *resp, uint32_t flags, struct status *error)
{
    struct request *r = resp->request;
    if (!error)
        error = response_check(resp);
    for (uint32_t i = 0; UNLIKELY(r->maker.trace != NULL) && !error && i < resp->n_outputs; i++)
        trace_output(r, resp->outputs[i]);
    resp->error = error;
    resp->sent = true;
    if (UNLIKELY(atomic_load_explicit(&r->cache.missed, memory_order_relaxed)))
        keep_in_cache(resp, flags);
    struct status *st = request_send(r, resp, flags);
    request_sender_done(r);
    return st;
}
