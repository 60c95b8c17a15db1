/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The order in which the responses of a model leave: that in which its requests were accepted,
 * whatever becomes of each of them, wherever it is executed (preserve_ordering).
 *
 * A request gets its position when it is pushed. A response of the first one goes out at once;
 * those of others are kept until everything before them has gone. Whoever brings the response that
 * others wait for sends these, too, one after the other; one thread at a time does that, so what
 * another thread brings meanwhile, or a callback of the thread itself, goes out with it.
 *
 *      waiting   [A] ──► [B] ──► [C]      A's final response comes: A's goes out, then B's;
 *      kept               │       │       C's other responses go out as they come from
 *                       final    some     then on
 *
 * A request has ended only when its final response has been sent: one that waits for those
 * before it counts among those who may still answer (`senders`, request.c), so ops->release() and
 * the end of the model wait for it. Requests and responses are linked as they are; nothing is
 * allocated.
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
    bool responding;     /* a thread is at it, and looks again before it ends */
};

void response_order_init(struct response_order *o);
/* response_order_done - no request has a position. */
void response_order_done(struct response_order *o);

/*
 * response_order_add - the request gets the last position; from now on its responses come by
 * response_order_respond().
 *
 * Thread: any; under the lock of the scheduler, where the order of requests is made.
 */
void response_order_add(struct response_order *o, struct request *r);

/*
 * response_order_respond - a response of a request that has a position, instead of ops->respond(),
 * which is called with it when its position is the first. Takes resp.
 *
 * Thread: any who may answer the request, without locks. May call what other requests' makers have
 * for their responses and for the end of their requests.
 */
void response_order_respond(struct request *r, struct response *resp, uint32_t flags);

#endif
