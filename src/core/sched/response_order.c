/* SPDX-License-Identifier: Apache-2.0 */
/*
 * response_order.mu guards the line of requests, the responses that each of them keeps, and
 * `responding`. One thread at a time responds, without the lock; what others bring meanwhile goes
 * into the line, and that thread takes it from there.
 */
#include "core/sched/response_order.h"
#include "core/request/life.h"

enum { RESPONSE_ORDER_LEVEL = 650 };

void response_order_init(struct response_order *o)
{
    mutex_init(&o->mu, RESPONSE_ORDER_LEVEL, "response_order.mu");
    list_init(&o->waiting);
    o->responding = false;
}

void response_order_done(struct response_order *o)
{
    BUG_ON(!list_empty(&o->waiting));
    mutex_done(&o->mu);
}

bool response_order_is_empty(struct response_order *o)
{
    mutex_lock(&o->mu);
    bool is_empty = list_empty(&o->waiting);
    mutex_unlock(&o->mu);
    return is_empty;
}

void response_order_add(struct response_order *o, struct request *r)
{
    r->order.in = o;
    list_init(&r->order.kept);
    r->order.complete = false;
    mutex_lock(&o->mu);
    list_push(&o->waiting, &r->order.link);
    mutex_unlock(&o->mu);
}

/* What may be sent next: a response of the first request, or the bare flags that end it. */
struct due_response {
    struct request *request;
    struct response *resp;
    uint32_t flags;
};

static bool next_due_locked(struct response_order *o, struct due_response *ret_next)
{
    if (list_empty(&o->waiting))
        return false;
    struct request *r = LIST_ENTRY(o->waiting.next, struct request, order.link);
    struct list *link = list_pop(&r->order.kept);
    if (!link && !r->order.complete)
        return false;
    struct response *resp = link ? LIST_ENTRY(link, struct response, link) : NULL;
    *ret_next = (struct due_response){r, resp, resp ? resp->flags : RESPONSE_FINAL};
    if (ret_next->flags & RESPONSE_FINAL)
        list_remove(&r->order.link);
    return true;
}

/*
 * Sends everything that may be sent. A request that has had its final response is dropped only when
 * the lock has been taken again: with the last request the model, and this order with it, may be
 * freed.
 */
static void respond_and_unlock(struct response_order *o)
{
    struct request *ended = NULL;
    struct due_response d;
    while (next_due_locked(o, &d)) {
        mutex_unlock(&o->mu);
        if (ended)
            request_sender_done(TAKE(ended));
        request_respond(d.request, d.resp, d.flags);
        if (d.flags & RESPONSE_FINAL)
            ended = d.request;
        mutex_lock(&o->mu);
    }
    o->responding = false;
    mutex_unlock(&o->mu);
    if (ended)
        request_sender_done(ended);
}

/* Returns false for a response that has lost a race against the final one of another thread. */
static bool keep_response_locked(struct request *r, struct response *resp, uint32_t flags)
{
    if (r->order.complete)
        return false;
    if (flags & RESPONSE_FINAL) {
        r->order.complete = true;
        request_sender_add(r); /* until it has been sent */
    }
    if (resp) {
        resp->flags = flags;
        list_push(&r->order.kept, &resp->link);
    }
    return true;
}

void response_order_respond(struct request *r, struct response *resp, uint32_t flags)
{
    struct response_order *o = r->order.in;
    mutex_lock(&o->mu);
    /* While another thread responds, the response stays in the line: that thread looks at the line
     * again, under this lock, before it stops. So no response overtakes another, no thread
     * waits for a callback of another, and a callback that answers another request returns at
     * once instead of being entered again. */
    bool kept = keep_response_locked(r, resp, flags);
    if (kept && !o->responding) {
        o->responding = true;
        respond_and_unlock(o);
        return;
    }
    mutex_unlock(&o->mu);
    if (!kept)
        response_free(resp);
}
