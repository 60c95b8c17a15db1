/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The life of a request, from its acceptance to its single final response and its release; life.c
 * has a drawing of the states. Responses count here as parties that may still answer.
 */
#ifndef CONCH_CORE_REQUEST_LIFE_H
#define CONCH_CORE_REQUEST_LIFE_H

#include "core/model/statistics.h"
#include "core/request/response.h"

/* ---- Responses ------------------------------------------------------------------------------- */

/*
 * response_new - an empty response to a request that may still be answered. The caller ends it with
 * response_send() or response_free().
 *
 * Thread: any. Errors: STATUS_UNAVAILABLE  no memory
 */
NODISCARD struct status *response_new(struct request *r, struct response **ret_response);

/* response_free - frees the response and its outputs. NULL is fine. */
void response_free(struct response *resp);

/*
 * response_send - hands the response to the maker of the request.
 *
 * Thread: any. With RESPONSE_FINAL this is the request's single terminal transition.
 * @resp   taken in every case, also on error
 * @error  taken; makes it an error response
 * Errors: STATUS_INVALID_ARG  the request has had its final response already
 */
NODISCARD struct status *response_send(struct response *resp, uint32_t flags, struct status *error);

/*
 * request_send_flags - ends a request without another response; with an error, if there was no
 * memory for a response. Errors: as response_send().
 */
NODISCARD struct status *request_send_flags(struct request *r, uint32_t flags);

/*
 * request_fail - sends the error as the final response, unless the final response has been sent
 * already. Takes the error.
 * Returns whether the error was sent.
 */
bool request_fail(struct request *r, struct status *error);

/* ---- Requests -------------------------------------------------------------------------------- */

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

/* status_given_up - makes the error of a request that request_is_given_up(). */
struct status *status_given_up(const struct request *r);

/*
 * request_too_late - makes the error of a request that comes while the server or its model stops
 * (reference/behaviours §10.15).
 * @r  its id begins the text; NULL: the text has no id, as in the reference's sequence batcher
 */
struct status *request_too_late(const struct request *r);

/* request_sender_add, request_sender_done - count those that may still answer (r->life.senders).
 * The last one that is done ends the request. */
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

#endif
