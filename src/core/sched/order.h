/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The order in which the responses of a model leave: that in which its requests were accepted,
 * whatever becomes of each of them, wherever it is executed (preserve_ordering).
 *
 * A request gets its place when it is pushed. A response of the first one is delivered at once;
 * those of others are kept until everything before them has gone. Whoever brings the response that
 * others wait for delivers these, too, one after the other; one thread at a time does that, so what
 * another thread brings meanwhile, or a callback of the thread itself, goes out with it.
 *
 *      waiting   [A] ──► [B] ──► [C]      A's final response comes: A's is delivered, then B's;
 *      kept               │       │       C's other responses are delivered as they come from
 *                       final    some     then on
 *
 * A request has ended only when its final response has been delivered: one that waits for its turn
 * counts among those who may still answer (`senders`, request.c), so ops->release() and the end of
 * the model wait for it. Requests and responses are linked as they are; nothing is allocated.
 *
 * Source: reference/behaviours §10.11
 */
#ifndef CONCH_CORE_SCHED_ORDER_H
#define CONCH_CORE_SCHED_ORDER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "base/mutex.h"

struct request;
struct response;

struct order {
    struct mutex mu; /* level 650 in core/README.md */
    /* Under mu. */
    struct list waiting; /* requests whose final response has not been delivered, by arrival */
    bool delivering;     /* a thread is at it, and looks again before it ends */
};

void order_init(struct order *o);
/* order_done - no request has a place. */
void order_done(struct order *o);

/*
 * order_add - the request gets the last place; from now on its responses come by order_respond().
 *
 * Thread: any; under the lock of the scheduler, where the order of requests is made.
 */
void order_add(struct order *o, struct request *r);

/*
 * order_respond - a response of a request that has a place, in the place of ops->respond(), which
 * is called with it when its turn has come. Takes resp.
 *
 * Thread: any who may answer the request, without locks. May call what other requests' makers have
 * for their responses and for the end of their requests.
 */
void order_respond(struct request *r, struct response *resp, uint32_t flags);

#endif
