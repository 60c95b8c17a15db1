/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The answer to an inference whose protocol carries exactly one response: responses that the core
 * gives on any thread, and the end of the request, come to the loop.
 *
 *     request_ops.respond ──► answer_take ──────┬─► true: the caller goes on, on the loop's thread
 *                                               └─► message `answered` ─► the same on the loop
 *     request_ops.destroy ──► answer_destroyed ─┬─► true: likewise
 *                                               └─► message `destroyed`
 *
 * On the loop's own thread (a model that is executed inline) no message is needed. The answer is a
 * part of its owner's struct.
 */
#ifndef CONCH_FRONTENDS_OPS_ANSWER_H
#define CONCH_FRONTENDS_OPS_ANSWER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"
#include "base/mailbox.h"

struct loop;
struct response;
struct status;

struct answer {
    struct message answered, destroyed;
    _Atomic(struct response *) response; /* the first one, or NULL */
    atomic_uint n_responses;
};

/* answer_init - begins without a response. Both functions run on the loop. */
void answer_init(struct answer *a, void (*on_answered)(struct message *m),
                 void (*on_destroyed)(struct message *m));

/*
 * answer_take - for request_ops.respond(). Takes resp, which may be NULL.
 *
 * Thread: any. Returns true for the final response on the loop's own thread: the caller then does
 * what on_answered() does.
 */
NODISCARD bool answer_take(struct answer *a, struct loop *loop, struct response *resp,
                           uint32_t flags);

/*
 * answer_read - the response of a complete answer, which stays the answer's. Thread: the loop's.
 *
 * Errors: STATUS_INTERNAL  there is not exactly one response
 *         and the error that the response has
 */
NODISCARD struct status *answer_read(struct answer *a, struct response **ret_resp);

/* answer_drop - frees the response. Thread: the loop's. */
void answer_drop(struct answer *a);

/*
 * answer_destroyed - for request_ops.destroy(). Thread: any. Returns true on the loop's own thread:
 * the caller then does what on_destroyed() does.
 */
NODISCARD bool answer_destroyed(struct answer *a, struct loop *loop);

#endif
