/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The responses of one request on their way to the loop of its connection, for requests that may
 * have any number of them. Any thread puts a response in. The thread that finds the inbox empty
 * wakes the loop by a message. The loop takes all responses that are there by then, in their order.
 * The entries are linked by the responses' own links, so that nothing is allocated.
 *
 *     request_ops.respond ──► response_inbox_put ─(one message)─► on_responses ─► …_next
 *                any thread                                            the loop
 *
 * On the loop's own thread (a model that executes inline) on_responses() is called at once.
 */
#ifndef CONCH_FRONTENDS_OPS_RESPONSE_INBOX_H
#define CONCH_FRONTENDS_OPS_RESPONSE_INBOX_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "base/loop.h"

struct response;

struct response_inbox {
    /* Set by response_inbox_init(), constant afterwards. */
    struct loop *loop;
    void (*on_responses)(struct response_inbox *in);

    /* Any thread: the newest entry, linked to the older ones by .prev; or NULL. */
    _Atomic(struct list *) newest;
    /* The thread's that has found the inbox empty, until the message is delivered. */
    struct message wake;
    /* The thread's that puts the final flag without a response. */
    struct list bare_final;
    uint32_t bare_final_flags;

    /* The loop's. */
    struct list taken; /* oldest first */
    bool delivering;   /* on_responses() was called, and `taken` is not yet empty */
};

/*
 * response_inbox_init - makes an empty inbox. When the loop has taken the final response, or the
 * bare final flag, the inbox may be freed, also inside on_responses().
 *
 * @on_responses  calls response_inbox_next() until it returns false, or until the final flag
 */
void response_inbox_init(struct response_inbox *in, struct loop *loop,
                         void (*on_responses)(struct response_inbox *in));

/*
 * response_inbox_put - for request_ops.respond().
 *
 * Thread: any; takes no lock. Two calls for one request may overlap, but none follows the one with
 * the final flag.
 * @resp   taken; NULL only with the final flag
 * @flags  RESPONSE_FINAL, or 0
 */
void response_inbox_put(struct response_inbox *in, struct response *resp, uint32_t flags);

/*
 * response_inbox_next - returns the next response that the loop has taken, oldest first; false when
 * there is none. Thread: the loop's, inside on_responses().
 *
 * @ret_resp  the caller's; NULL for a bare final flag
 */
bool response_inbox_next(struct response_inbox *in, struct response **ret_resp,
                         uint32_t *ret_flags);

#endif
