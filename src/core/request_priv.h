/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Functions on requests that the core's own files (server, schedulers, instances, responses) and
 * the backend API share. request.c has a drawing of the states.
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
/* request_unbegin - undoes request_begin(): the scheduler has refused the request, which goes back
 * to its maker without an answer. */
void request_unbegin(struct request *r);

/*
 * request_release - the backend, or the core in its place, releases the request; once. The call has
 * no effect on a request that waits in a scheduler: its caller does not hold it.
 *
 * Errors: STATUS_INVALID_ARG  it is released already
 */
NODISCARD struct status *request_release(struct request *r);

/*
 * request_reschedule - the backend gives the request back to be executed again later: EXECUTING →
 * QUEUED.
 *
 * Errors: STATUS_INVALID_ARG  its model has no iterative sequences; it has its final response; it
 *                             is not in execution
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

/* status_cancelled - makes the error of a cancelled request: without a text, as in the reference.
 */
struct status *status_cancelled(void);

/*
 * request_too_late - makes the error of a request that comes while the server or its model stops
 * (reference/behaviours §10.15).
 * @r  its id begins the text; NULL: the text has no id, as in the reference's sequence batcher
 */
struct status *request_too_late(const struct request *r);

/* request_sender_add, request_sender_done - count those that may still answer (r->senders). The
 * last one that is done ends the request. */
void request_sender_add(struct request *r);
void request_sender_done(struct request *r);

/*
 * request_is_held - does that instance execute this run of the request, which has not ended?
 * request_sender_join - the same; if so, the run does not end before the caller's
 * request_sender_done(). False: the run has ended.
 *
 * Thread: any, while the request's memory is allocated.
 */
bool request_is_held(const struct request *r, const struct instance *in);
NODISCARD bool request_sender_join(struct request *r, const struct instance *in);

/* request_respond - calls ops->respond(). The caller ensures that this response is the next one. */
void request_respond(struct request *r, struct response *resp, uint32_t flags);

/* request_send - calls ops->respond() unless the final response is out. Takes resp. */
NODISCARD struct status *request_send(struct request *r, struct response *resp, uint32_t flags);

/* response_make - makes a response that does not count as a sender; response_free() ends it. */
NODISCARD struct status *response_make(struct request *r, struct response **ret_response);

/*
 * output_undo_reshape - turns the output's shape from the backend's into the client's: the model's
 * dims, whose n-th -1 gets the value at the n-th -1 of the reshape.
 */
NODISCARD struct status *output_undo_reshape(struct response *resp, struct output *out,
                                             const struct tensor_spec *spec);

struct parameter *parameter_append(struct arena *a, struct parameter **items, uint32_t *n,
                                   uint32_t *capacity, const struct parameter *p);

/* model_request_begun - counts one more request of the model in flight, or work that keeps the
 * model like a request. The caller reads m->stopping afterwards. */
void model_request_begun(struct model *m);

/*
 * model_request_ended - counts one request less. Model and server may be freed when this returns,
 * unless the caller has another reference. Thread: any; calls services->on_drained()
 * for the last request of a model that stops.
 */
void model_request_ended(struct model *m);

/* model_count_last_end - counts one request less; called by services->on_drained() alone. */
void model_count_last_end(struct model *m);

#endif
