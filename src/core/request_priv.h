/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inner life of requests: what the core's own files (server, schedulers, instances, responses)
 * and the backend API share. See the drawing in request.c.
 */
#ifndef CONCH_CORE_REQUEST_PRIV_H
#define CONCH_CORE_REQUEST_PRIV_H

#include "core/request.h"
#include "core/response.h"
#include "core/statistics.h"

/*
 * request_admit - checks the request against its model, in the order of reference/behaviours §7;
 * resolves raw inputs, specs, reshapes and the batch size.
 */
NODISCARD struct status *request_admit(struct request *r);

/* request_begin - the core accepts the request: IDLE → QUEUED. */
void request_begin(struct request *r);
/* request_unbegin - … and gives it back to its maker, unanswered: the scheduler refused it. */
void request_unbegin(struct request *r);

/*
 * request_release - the backend (or the core in its place) lets go of the request. Once. Of one
 * that waits, by somebody who does not hold it: nothing happens.
 *
 * Errors: STATUS_INVALID_ARG  it is released already
 */
NODISCARD struct status *request_release(struct request *r);

/*
 * request_reschedule - the backend wants the request again later: EXECUTING → QUEUED.
 *
 * Errors: STATUS_INVALID_ARG  its model has no iterative sequences; it has its final response; it
 * is not in execution
 */
NODISCARD struct status *request_reschedule(struct request *r);

/*
 * request_fail_queued - answers, counts and releases a request that is queued and will not be
 * executed.
 *
 * Thread: any, without locks.
 * @error  taken
 */
void request_fail_queued(struct request *r, enum failure_reason reason, struct status *error);

/* status_cancelled - the error of one that is cancelled: without a text, as clients know it. */
struct status *status_cancelled(void);

/*
 * request_too_late - the error of one that comes while the server or its model stops
 * (reference/behaviours §10.15).
 * @r  whose id stands in front; NULL: none does, as in the reference's sequence batcher
 */
struct status *request_too_late(const struct request *r);

/* One more, one less who may answer. */
void request_sender_add(struct request *r);
void request_sender_done(struct request *r);

/*
 * request_is_held - this run of the request was taken by that instance, and has not ended.
 * request_sender_join - … and does not end until the caller's request_sender_done(); false: it has.
 *
 * Thread: any that knows the request to be allocated.
 */
bool request_is_held(const struct request *r, const struct instance *in);
NODISCARD bool request_sender_join(struct request *r, const struct instance *in);

/* request_respond - calls ops->respond(), for whoever knows that this response comes next. */
void request_respond(struct request *r, struct response *resp, uint32_t flags);

/* request_send - calls ops->respond() unless the final response is out. Takes resp. */
NODISCARD struct status *request_send(struct request *r, struct response *resp, uint32_t flags);

/* response_make - a response that does not count as a sender. */
NODISCARD struct status *response_make(struct request *r, struct response **ret_response);

/*
 * output_undo_reshape - the shape that the client sees from the one that the backend gave: the
 * model's dims, whose -1 take the values of the reshape's -1 in order.
 */
NODISCARD struct status *output_undo_reshape(struct response *resp, struct output *out,
                                             const struct tensor_spec *spec);

struct parameter *parameter_append(struct arena *a, struct parameter **items, uint32_t *n,
                                   uint32_t *capacity, const struct parameter *p);

/* model_request_begun - one request of the model more in flight, or who works as if it were one;
 * `stopping` is looked at afterwards. */
void model_request_begun(struct model *m);

/*
 * model_request_ended - one request of the model less in flight. Unless the caller has another
 * reason, model and server may be gone when this returns. Thread: any; takes server.drain_mu for
 * the last one of a model that stops.
 */
void model_request_ended(struct model *m);

#endif
