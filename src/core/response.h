/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A response: outputs, parameters, or an error; made by a backend (or by the core, when no backend
 * answers), sent to the maker of the request, who frees it. This is TRITONBACKEND_Response and
 * TRITONSERVER_InferenceResponse.
 */
#ifndef CONCH_CORE_RESPONSE_H
#define CONCH_CORE_RESPONSE_H

#include "core/request.h"

/* This is TRITONBACKEND_Output. */
struct output {
    struct response *response;
    const char *name;
    enum dtype dtype;
    uint32_t n_dims;
    int64_t *shape; /* batch dimension included; the model's reshape undone */
    bool allocated;
    void *base; /* set by alloc_output(); NULL for 0 bytes */
    size_t size_bytes;
    enum memory_type memory_type;
    int64_t memory_type_id;
    void *maker_data;
};

struct response {
    /* Constant from response_new() on. */
    struct request *request; /* a reference */
    struct arena arena;
    const char *id; /* the request's; the maker may replace it by a copy */

    /* The backend's until response_send(), then the receiver's. */
    uint32_t n_outputs, output_capacity;
    struct output **outputs;
    uint32_t n_parameters, parameter_capacity;
    struct parameter *parameters;
    struct status *error; /* outputs do not count then */
    bool sent;
    uint32_t flags;   /* it was sent with; of one that waits for those before it
                         (sched/response_order.h) */
    struct list link; /* for whoever has it */
};

/*
 * response_spare - keeps room for one response in the request's arena, if what the arena began in
 * has as much left. So the first response, mostly the only one, needs no block of the pool, that is
 * of the thread that made the request, nor its lock.
 *
 * Thread: the request's maker, before the request is anybody else's.
 */
void response_spare(struct request *r);

/*
 * response_new - an empty response to a request that somebody may still answer.
 *
 * Thread: any. Errors: STATUS_UNAVAILABLE  no memory
 */
NODISCARD struct status *response_new(struct request *r, struct response **ret_response);

/* response_free - ends it, with its outputs. NULL is fine. */
void response_free(struct response *resp);

/* response_add_output - name and shape are copied. */
NODISCARD struct status *response_add_output(struct response *resp, const char *name,
                                             enum dtype dtype, const int64_t *shape, size_t n_dims,
                                             struct output **ret_output);
/* output_alloc - the output's memory, from the maker of the request. Once per output. */
NODISCARD struct status *output_alloc(struct output *out, size_t size_bytes);
NODISCARD struct status *response_add_parameter(struct response *resp, const struct parameter *p);

/*
 * response_send - hands the response to the maker of the request.
 *
 * Thread: any. With RESPONSE_FINAL this is the request's single terminal transition.
 * @resp   taken in every case, also on error
 * @error  taken; makes it an error response
 * Errors: STATUS_INVALID_ARG  the request has had its final response already
 */
NODISCARD struct status *response_send(struct response *resp, uint32_t flags, struct status *error);

/* request_send_flags - ends a request without another response. Errors: as response_send(). */
NODISCARD struct status *request_send_flags(struct request *r, uint32_t flags);

/*
 * request_fail - the final response is an error, unless it has been sent already. Takes the
 * error.
 * Returns whether it was the answer.
 */
bool request_fail(struct request *r, struct status *error);

/* The alloc_output and free_output of makers that ask for no memory of their own: from the
 * request's pool, or, if they are small, in the response itself. */
struct status *response_alloc_pooled(struct request *r, struct output *out, size_t size_bytes);
void response_free_pooled(struct request *r, struct output *out);

#endif
