/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The events of …/generate_stream. A backend's thread puts responses into an inbox; the loop prints
 * all that have come as events into one part of the reply, and frees them.
 *
 *      put_response ─► stream_flow_take, response_inbox ─► take_responses ─► waiting
 *      waiting ─► print_waiting ─► exchange_reply_more ─► (sent) release_part ─► stream_flow_drop
 *
 * One turn prints up to TURN_BYTES, so that a model that sends much does not hold up the loop; the
 * rest follows in the next one. A model that is not decoupled has one response, which needs no
 * flow.
 *
 * The first response decides the status. Once `is_over`, nothing more is sent: the reply is
 * complete, or its exchange has ended, and what the backend still sends is dropped. The struct
 * lives in the exchange's arena until on_destroy, when no thread of the backend can be in the flow
 * any more.
 *
 * Thread: the loop's; put_response() any.
 */
#include <string.h>

#include "base/json.h"
#include "base/loop.h"
#include "base/pool.h"
#include "base/status.h"
#include "core/model/model.h"
#include "core/request/life.h"
#include "core/sched/pull.h"
#include "frontends/http/call.h"
#include "frontends/http/deadline.h"
#include "frontends/http/generate.h"
#include "frontends/http/infer.h"
#include "frontends/http/load_metrics.h"
#include "frontends/http/reply.h"
#include "frontends/ops/errors.h"
#include "frontends/ops/loop_share.h"
#include "frontends/ops/response_inbox.h"
#include "frontends/ops/stream_flow.h"

#define TURN_BYTES ((size_t)256 << 10)

/*
 * A client that reads too slowly is found by its connection, which ends: no time is needed here.
 */
static const struct stream_flow_limits flow_limits = {.max_bytes = (size_t)64 << 20};

static const char event_type[] = "text/event-stream; charset=utf-8";

struct event_stream {
    struct exchange *x;
    struct response_inbox inbox;
    struct stream_flow flow;
    struct list waiting; /* responses that are not printed yet */
    struct loop_work print_more;
    bool is_decoupled;
    bool has_final; /* no further response is to come, but for late ones of waiting threads */
    bool is_over;
    struct reply_part last; /* an error when there is no memory for an event, and the like */
};

/* A part of the reply: all events that were printed together. */
struct event_part {
    struct reply_part part;
    struct event_stream *events;
    size_t n_responses; /* of the flow */
    size_t n_bytes;
    char text[];
};

static size_t count_response_bytes(const struct response *resp)
{
    size_t n = sizeof(*resp);
    for (uint32_t i = 0; i < resp->n_outputs; i++)
        n += resp->outputs[i]->size_bytes;
    return n;
}

static void drop_waiting(struct event_stream *e)
{
    struct list *link;
    while ((link = list_pop(&e->waiting))) {
        struct response *resp = LIST_ENTRY(link, struct response, link);
        if (e->is_decoupled)
            stream_flow_drop(&e->flow, 1, count_response_bytes(resp));
        response_free(resp);
    }
}

/* ---- The reply ------------------------------------------------------------------------------ */

static void release_nothing(void *owner)
{
    (void)owner;
}

/* The reply has begun and gets no further event. The exchange may end; the caller refers to it. */
static void end_reply(struct event_stream *e)
{
    e->is_over = true;
    drop_waiting(e);
    exchange_reply_end(e->x);
}

/* Ends the request early. The text is an event. */
static void break_off(struct event_stream *e, const char *text)
{
    struct exchange *x = e->x;
    exchange_reply_more(x, &e->last, text, strlen(text), release_nothing, NULL);
    end_reply(e);
    infer_cancel(x);
}

#define EVENT_OF_ERROR(text) "data: {\"error\":\"" text "\"}\n\n"

/* False: an error was replied instead. */
static bool begin_reply(struct event_stream *e, int status)
{
    struct exchange *x = e->x;
    const struct http_call *call = exchange_part(x);
    char header[LOAD_METRICS_BYTES];
    size_t n = load_metrics_header((enum load_metrics_form)call->facts.load_metrics, header);
    struct http_reply reply = {
        .status = status,
        .content_type = event_type,
        .headers = header,
        .headers_length = n,
        .filler = "\n", /* an empty line behind an event has no event to end */
    };
    reply_stamp(x);
    if (exchange_reply_begin(x, &reply))
        return true;
    e->is_over = true;
    drop_waiting(e);
    infer_cancel(x);
    return false;
}

static void release_part(void *owner)
{
    struct event_part *p = owner;
    struct event_stream *e = p->events;
    if (p->n_responses > 0)
        stream_flow_drop(&e->flow, p->n_responses, p->n_bytes);
    pool_release(p);
}

/* ---- Printing ------------------------------------------------------------------------------- */

/* Prints the response, or its error, as an event; returns the HTTP status. */
static int print_event(struct buf *b, struct response *resp, bool shortest_floats)
{
    static const char prefix[] = "data: ";
    int status = 200;
    buf_add(b, prefix, sizeof(prefix) - 1);
    struct status *st =
        resp->error ? status_ref(resp->error) : generate_print(b, resp, shortest_floats);
    if (st) {
        http_print_error(b, status_message(st));
        status = ops_error_of(status_code(st))->http_status;
        status_free(st);
    }
    buf_add(b, "\n\n", 2);
    return status;
}

struct printed {
    size_t n_responses; /* of the flow, … */
    size_t n_bytes;     /* … and what they had */
    int status;         /* of the first one */
};

/* Prints what waits, up to a turn's bytes, and frees it. */
static struct printed print_events(struct event_stream *e, struct buf *b)
{
    const struct http_call *call = exchange_part(e->x);
    struct printed is = {0};
    struct list *link;
    while (b->size < TURN_BYTES && !b->failed && (link = list_pop(&e->waiting))) {
        struct response *resp = LIST_ENTRY(link, struct response, link);
        int status = print_event(b, resp, call->facts.shortest_floats);
        is.status = is.status ? is.status : status;
        is.n_responses += e->is_decoupled;
        is.n_bytes += e->is_decoupled ? count_response_bytes(resp) : 0;
        response_free(resp);
    }
    return is;
}

/* The printed events as a part of the reply. False: no memory. */
static bool send_part(struct event_stream *e, const struct buf *b, const struct printed *is)
{
    struct exchange *x = e->x;
    struct event_part *p =
        b->failed ? NULL : pool_alloc(x->env->net.pool, sizeof(*p) + b->size, NULL);
    if (!p) {
        if (is->n_responses > 0)
            stream_flow_drop(&e->flow, is->n_responses, is->n_bytes);
        return false;
    }
    p->events = e;
    p->n_responses = is->n_responses;
    p->n_bytes = b->size;
    memcpy(p->text, b->data, b->size);
    if (is->n_responses > 0)
        stream_flow_exchange(&e->flow, is->n_bytes, b->size);
    exchange_reply_more(x, &p->part, p->text, b->size, release_part, p);
    return true;
}

/* Sends what waits; the caller has a reference to the exchange. */
static void print_waiting(struct event_stream *e)
{
    struct exchange *x = e->x;
    struct buf *b = &call_ctx(x)->json;
    if (e->is_over) {
        drop_waiting(e);
        return;
    }
    buf_reset(b);
    struct printed is = print_events(e, b);
    bool has_text = is.status > 0;
    if (x->stage == EXCHANGE_HANDLING && (has_text || e->has_final) &&
        !begin_reply(e, has_text ? is.status : 200)) {
        if (is.n_responses > 0)
            stream_flow_drop(&e->flow, is.n_responses, is.n_bytes);
        return;
    }
    if (has_text && !send_part(e, b, &is))
        break_off(e, EVENT_OF_ERROR("out of memory"));
    else if (!list_empty(&e->waiting))
        loop_defer(x->env->net.loop, &e->print_more);
    else if (e->has_final)
        end_reply(e);
}

static void on_print_more(struct loop_work *work)
{
    struct event_stream *e = CONTAINER_OF(work, struct event_stream, print_more);
    struct exchange *x = e->x;
    exchange_ref(x);
    print_waiting(e);
    exchange_unref(x);
}

/* ---- Responses ------------------------------------------------------------------------------ */

/* Responses have come to the loop. */
static void take_responses(struct response_inbox *in)
{
    struct event_stream *e = CONTAINER_OF(in, struct event_stream, inbox);
    struct exchange *x = e->x;
    struct http_call *call = exchange_part(x);
    bool had_final = e->has_final;
    struct response *resp;
    uint32_t flags;

    exchange_ref(x);
    while (response_inbox_next(in, &resp, &flags)) {
        if (resp)
            list_push(&e->waiting, &resp->link);
        e->has_final |= (flags & RESPONSE_FINAL) != 0;
    }
    call->is_answered = e->has_final;
    if (UNLIKELY(call->traced != NULL)) /* the first one counts */
        traced_stamp(call->traced, STAMP_RESPONSE_COMPLETE, clock_now_ns(e->inbox.loop->clock));
    if (UNLIKELY(atomic_load(&e->flow.has_stalled)) && x->stage == EXCHANGE_REPLYING)
        break_off(e, EVENT_OF_ERROR("the client has not read its responses"));
    else
        print_waiting(e);
    if (call->is_closed && e->has_final && !had_final)
        request_unref(&call->request);
    exchange_unref(x);
}

static void put_response(struct request *r, struct response *resp, uint32_t flags)
{
    struct event_stream *e = CONTAINER_OF(r, struct http_call, request)->events;
    if (resp && e->is_decoupled &&
        !stream_flow_take(&e->flow, e->inbox.loop, count_response_bytes(resp), resp->error))
        response_free(TAKE(resp)); /* the client has left */
    if (resp || flags & RESPONSE_FINAL)
        response_inbox_put(&e->inbox, resp, flags);
}

/* ---- The exchange's events ------------------------------------------------------------------ */

static struct status *parse_and_begin(struct exchange *x)
{
    struct status *st = generate_parse(x);
    if (st)
        return st;
    struct http_call *call = exchange_part(x);
    struct model *model = call->request.model;
    struct loop *loop = x->env->net.loop;
    struct event_stream *e = arena_alloc(&x->arena, sizeof(*e));
    if (!e)
        return status_no_memory();
    memset(e, 0, offsetof(struct event_stream, last));
    e->x = x;
    e->is_decoupled = model->decoupled;
    list_init(&e->waiting);
    loop_work_init(&e->print_more, on_print_more);
    response_inbox_init(&e->inbox, loop, take_responses);
    stream_flow_init(&e->flow, &flow_limits, loop->clock);
    /* The loop cannot wait for its client: it executes such a model only if its configuration
     * demands that. */
    if (e->is_decoupled && !pull_is_always_inline(model))
        call->request.maker.inline_budget = NULL;
    call->events = e;
    return NULL;
}

static void free_stream(struct exchange *x)
{
    struct http_call *call = exchange_part(x);
    stream_flow_done(&call->events->flow);
    call->events = NULL;
}

static void cancel_flow(struct exchange *x)
{
    struct http_call *call = exchange_part(x);
    stream_flow_end(&call->events->flow);
}

static void give_events_up(struct exchange *x)
{
    struct http_call *call = exchange_part(x);
    exchange_ref(x);
    if (x->stage == EXCHANGE_REPLYING) {
        break_off(call->events, EVENT_OF_ERROR("Deadline Exceeded"));
    } else if (x->stage == EXCHANGE_HANDLING) {
        call->events->is_over = true;
        drop_waiting(call->events);
        reply_status(x, deadline_status(), content_json);
        infer_cancel(x);
    }
    exchange_unref(x);
}

static void end_events(struct exchange *x)
{
    struct http_call *call = exchange_part(x);
    struct event_stream *e = call->events;
    e->is_over = true;
    loop_cancel_work(x->env->net.loop, &e->print_more);
    drop_waiting(e);
    stream_flow_end(&e->flow);
}

const struct infer_kind generate_stream_kind = {
    .parse = parse_and_begin,
    .respond = put_response,
    .give_up = give_events_up,
    .cancel = cancel_flow,
    .end = end_events,
    .destroy = free_stream,
};
