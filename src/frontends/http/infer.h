/* SPDX-License-Identifier: Apache-2.0 */
/*
 * POST …/infer: turns an exchange into a request of the core, and its response into a reply.
 */
#ifndef CONCH_FRONTENDS_HTTP_INFER_H
#define CONCH_FRONTENDS_HTTP_INFER_H

#include "frontends/http/call.h"

struct model;

/* What the exchange calls besides the handler (handlers.h). Thread: the loop's. */
void infer_cancel(struct exchange *x);
void infer_end(struct exchange *x);

/*
 * infer_begin - gives the exchange an empty request for the model; the reference to model is taken.
 */
void infer_begin(struct exchange *x, struct model *model);

/*
 * infer_parse - parses the body into the request: reference/behaviours §3.3 to §3.15, in that
 * order.
 *
 * @ret_type  on error: the content type of the error reply, as in the reference
 */
NODISCARD struct status *infer_parse(struct exchange *x, const char **ret_type);

/* infer_print - makes the reply from the first response, which has no error; resp is taken. */
void infer_print(struct exchange *x, struct response *resp);

/* infer_block - memory for a tensor in JSON, freed with the exchange; NULL when exhausted. */
void *infer_block(struct exchange *x, size_t size_bytes);

#endif
