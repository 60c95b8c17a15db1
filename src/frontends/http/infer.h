/* SPDX-License-Identifier: Apache-2.0 */
/*
 * POST …/infer: turns an exchange into a request of the core, and its response into a reply.
 */
#ifndef CONCH_FRONTENDS_HTTP_INFER_H
#define CONCH_FRONTENDS_HTTP_INFER_H

#include "frontends/http/call.h"

struct buf;
struct model;
struct output;

/* What the exchange calls besides the handler (handlers.h). Thread: the loop's. */
void infer_cancel(struct exchange *x);
void infer_end(struct exchange *x);

/*
 * What differs from …/infer. A kind with respond() gets all responses itself, and has the functions
 * below it; any other has one response.
 */
struct infer_kind {
    struct status *(*parse)(struct exchange *x); /* the body into the request */
    void (*reply)(struct exchange *x);           /* the final response has come */

    void (*respond)(struct request *r, struct response *resp, uint32_t flags); /* on any thread */
    void (*give_up)(struct exchange *x); /* the deadline has passed */
    void (*cancel)(struct exchange *x);  /* the client is gone; once parse() has succeeded … */
    void (*end)(struct exchange *x);     /* on_end; … likewise, … */
    void (*destroy)(struct exchange *x); /* … and when the core has released the request */
};

/*
 * infer_start - makes a request for the model of the exchange's body, and hands it to the core.
 *
 * @model  the reference is taken
 * @kind   constant; NULL for …/infer
 */
void infer_start(struct exchange *x, struct model *model, const struct infer_kind *kind);

/*
 * infer_begin - gives the exchange an empty request for the model; the reference to model is taken.
 *
 * @kind  as of infer_start()
 */
void infer_begin(struct exchange *x, struct model *model, const struct infer_kind *kind);

/*
 * infer_parse - parses the body into the request: reference/behaviours §3.3 to §3.15, in that
 * order.
 *
 * @ret_type  on error: the content type of the error reply, as in the reference
 */
NODISCARD struct status *infer_parse(struct exchange *x, const char **ret_type);

/* infer_print - makes the reply from the first response, which has no error; resp is taken. */
void infer_print(struct exchange *x, struct response *resp);

/*
 * infer_print_values - prints the elements of an output as a JSON array.
 *
 * Errors: STATUS_INTERNAL  its bytes do not fit its shape and datatype
 * @ret_elements  their number
 */
NODISCARD struct status *infer_print_values(struct buf *b, const struct output *out,
                                            bool shortest_floats, int64_t *ret_elements);

/* infer_check_printable - makes the error of an output whose datatype JSON does not have. */
NODISCARD struct status *infer_check_printable(const struct output *out);

/* infer_block - memory for a tensor in JSON, freed with the exchange; NULL when exhausted. */
void *infer_block(struct exchange *x, size_t size_bytes);

#endif
