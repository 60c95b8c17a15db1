/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of a call share: call.c has its life, call_head.c its head, call_answer.c its
 * answers and status. Thread: the loop's.
 */
#ifndef CONCH_FRONTENDS_GRPC_CALL_PRIV_H
#define CONCH_FRONTENDS_GRPC_CALL_PRIV_H

#include "frontends/grpc/call.h"
#include "frontends/ops/packing.h"

#define CALL_DEADLINE_TEXT "Deadline Exceeded"

/*
 * call_read_head - reads what the head says into the call, and sets its deadline.
 *
 * Returns false when the stream has been refused or reset, and nothing is left to do. Otherwise
 * *ret_error is NULL or the error with which the call fails, the caller's.
 */
bool call_read_head(struct grpc_call *c, const struct http2_head *head, struct status **ret_error);

/*
 * call_read_more - notes what only some servers read (grpc_settings.reads_more): the metadata that
 * become parameters, and the trace that the call belongs to.
 *
 * Errors: STATUS_INVALID_ARG  a reserved name
 *         STATUS_UNAVAILABLE  no memory
 */
NODISCARD struct status *call_read_more(struct grpc_call *c, const struct http2_head *head);

/* call_mark_ended - ends the call: its input, and its deadline. */
void call_mark_ended(struct grpc_call *c);

/*
 * call_send_status - sends the status and ends the call: as trailers, or, when no message was sent,
 * as a head that ends the stream.
 */
void call_send_status(struct grpc_call *c, int code, const char *message);

/* A job of a call, which has a reference to the call. */
struct call_job {
    struct packing_job job;
    struct grpc_call *call;
    grpc_packed_fn on_packed;
    char *block;        /* of a message to be unpacked */
    struct iovec piece; /* … its bytes */
};

/* call_make_job - makes a job without its task; NULL: no memory. */
struct call_job *call_make_job(struct grpc_call *c, unsigned int encoding);

#endif
