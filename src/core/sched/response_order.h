/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The response order (preserve_ordering): the responses of a model are sent in the order in which
 * its requests were accepted, whether these succeed or fail, on whichever thread they are executed.
 *
 * A request gets its position when it is pushed. A response of the first request is sent at once;
 * those of others are kept until all before them have been sent. The thread that brings the
 * response that others wait for sends these, too, one after the other. One thread at a time does
 * that: it also sends what other threads, or callbacks on the same thread, bring meanwhile.
 *
 *      waiting   [A] ──► [B] ──► [C]      A's final response comes: A's goes out, then B's;
 *      kept               │       │       C's other responses go out as they come from
 *                       final    some     then on
 *
 * A request ends only when its final response has been sent. A kept response counts in
 * request.life.senders (life.c), so ops->release() and the end of the model wait for it. Requests
 * and responses have their own links; nothing is allocated.
 *
 * Source: reference/behaviours §10.11
 */
#ifndef CONCH_CORE_SCHED_RESPONSE_ORDER_H
#define CONCH_CORE_SCHED_RESPONSE_ORDER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "base/mutex.h"

struct request;
struct response;

struct response_order {
    struct mutex mu; /* level 650 in core/README.md */
    /* Under mu. */
    struct list waiting; /* requests whose final response has not been sent, by arrival */
    bool responding;     /* a thread sends responses, and looks for more before it stops */
};

void response_order_init(struct response_order *o);
/* response_order_done - no request has a position. */
void response_order_done(struct response_order *o);

/* response_order_is_empty - has no request a position? Thread: any. */
bool response_order_is_empty(struct response_order *o);

/*
 * response_order_add - gives the request the last position; from now on its responses are sent with
 * response_order_respond().
 *
 * Thread: any, under the scheduler's lock, which orders the requests.
 */
void response_order_add(struct response_order *o, struct request *r);

/*
 * response_order_respond - sends a response of a request that has a position: calls ops->respond()
 * with it once that position is the first. Takes resp.
 *
 * Thread: any that may answer the request, without locks. May call ops->respond() and
 * ops->release() of other requests.
 */
void response_order_respond(struct request *r, struct response *resp, uint32_t flags);

#endif
