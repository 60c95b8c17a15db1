/* SPDX-License-Identifier: Apache-2.0 */
/*
 * POST …/infer: an exchange becomes a request of the core, its response a reply.
 */
#ifndef CONCH_FRONTENDS_HTTP_INFER_H
#define CONCH_FRONTENDS_HTTP_INFER_H

#include "frontends/http/call.h"

struct model;

/* The route's handler, and the exchange's other events. Thread: the loop's. */
void infer_handle(struct exchange *x);
void infer_cancel(struct exchange *x);
void infer_end(struct exchange *x);

/* infer_begin - the exchange gets an empty request for the model, whose reference is taken. */
void infer_begin(struct exchange *x, struct model *model);

/*
 * infer_parse - the body into the request: reference/behaviours §3.3 to §3.15, in that order.
 *
 * @ret_type  on error: the content type that the reference answers with
 */
NODISCARD struct status *infer_parse(struct exchange *x, const char **ret_type);

/* infer_print - the reply from the first response, which has no error; taken by the exchange. */
void infer_print(struct exchange *x, struct response *resp);

/* infer_block - memory for a tensor that comes as JSON; lives as long as the exchange. */
void *infer_block(struct exchange *x, size_t size_bytes);

#endif
