/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bodies of inferences that the client has packed, and replies that it wants packed (coding.h).
 *
 * What is small is done at once, all else by helper threads (ops/packing.h) while the loop turns.
 * The exchange is in the handler's hands meanwhile, so that it lives. Thread: the loop's.
 */
#ifndef CONCH_FRONTENDS_HTTP_PACKED_H
#define CONCH_FRONTENDS_HTTP_PACKED_H

struct exchange;
struct http_reply;
struct model;
struct status;

/* What follows the unpacking: st is NULL and the body is unpacked, or the error. Both are taken. */
typedef void (*unpacked_fn)(struct exchange *x, struct model *model, struct status *st);

/*
 * unpack_body - puts the unpacked bytes in the place of the body. on_unpacked() follows in any
 * case, perhaps before this returns.
 *
 * @model  is handed on
 * Errors: STATUS_INVALID_ARG  there is no body; it is not packed so; it has more than
 *                             --http-max-input-size
 *         STATUS_UNAVAILABLE  no memory
 *         STATUS_CANCELLED    the client is gone
 */
void unpack_body(struct exchange *x, struct model *model, unpacked_fn on_unpacked);

/*
 * reply_packed - does what reply_traced() does, with the body packed by call->facts.reply_coding.
 * Without memory for that the body is sent as it is. on_packed() follows the reply if the packed
 * bytes alone are sent: the body's are not needed any more.
 *
 * @reply  may be freed when this returns, but not the bytes of its body
 */
void reply_packed(struct exchange *x, const struct http_reply *reply,
                  void (*on_packed)(struct exchange *x));

#endif
