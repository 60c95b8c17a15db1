/* SPDX-License-Identifier: Apache-2.0 */
/*
 * order.mu guards the line of requests, the responses that each of them keeps, and `delivering`.
 * One thread at a time delivers, without the lock; what others bring meanwhile goes into the line,
 * and that thread takes it from there.
 */
#include "core/sched/order.h"

#include "core/request_priv.h"

enum { ORDER_LEVEL = 650 };

void order_init(struct order *o)
{
    mutex_init(&o->mu, ORDER_LEVEL, "order.mu");
    list_init(&o->waiting);
    o->delivering = false;
}

void order_done(struct order *o)
{
    BUG_ON(!list_empty(&o->waiting));
    mutex_done(&o->mu);
}

void order_add(struct order *o, struct request *r)
{
    r->order = o;
    list_init(&r->kept);
    r->complete = false;
    mutex_lock(&o->mu);
    list_push(&o->waiting, &r->order_link);
    mutex_unlock(&o->mu);
}

/* What may be delivered next: a response of the first request, or the bare flags that end it. */
struct delivery {
    struct request *request;
    struct response *resp;
    uint32_t flags;
};

static bool next_delivery_locked(struct order *o, struct delivery *ret_next)
{
    if (list_empty(&o->waiting))
        return false;
    struct request *r = LIST_ENTRY(o->waiting.next, struct request, order_link);
    struct list *link = list_pop(&r->kept);
    if (!link && !r->complete)
        return false;
    struct response *resp = link ? LIST_ENTRY(link, struct response, link) : NULL;
    *ret_next = (struct delivery){r, resp, resp ? resp->flags : RESPONSE_FINAL};
    if (ret_next->flags & RESPONSE_FINAL)
        list_remove(&r->order_link);
    return true;
}

/*
 * Delivers as much as there is. A request that has had its final response is let go of only when
 * the lock has been taken again: with the last one the model, and this order with it, may end.
 */
static void deliver_and_unlock(struct order *o)
{
    struct request *ended = NULL;
    struct delivery d;
    while (next_delivery_locked(o, &d)) {
        mutex_unlock(&o->mu);
        if (ended)
            request_sender_done(TAKE(ended));
        request_tell(d.request, d.resp, d.flags);
        if (d.flags & RESPONSE_FINAL)
            ended = d.request;
        mutex_lock(&o->mu);
    }
    o->delivering = false;
    mutex_unlock(&o->mu);
    if (ended)
        request_sender_done(ended);
}

/* Returns false for a response that has lost a race against the final one of another thread. */
static bool keep_response_locked(struct request *r, struct response *resp, uint32_t flags)
{
    if (r->complete)
        return false;
    if (flags & RESPONSE_FINAL) {
        r->complete = true;
        request_sender_add(r); /* until it has been delivered */
    }
    if (resp) {
        resp->flags = flags;
        list_push(&r->kept, &resp->link);
    }
    return true;
}

void order_respond(struct request *r, struct response *resp, uint32_t flags)
{
    struct order *o = r->order;
    mutex_lock(&o->mu);
    bool kept = keep_response_locked(r, resp, flags);
    if (kept && !o->delivering) {
        o->delivering = true;
        deliver_and_unlock(o);
        return;
    }
    mutex_unlock(&o->mu);
    if (!kept)
        response_free(resp);
}
