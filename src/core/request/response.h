/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A response has outputs and parameters, or an error. A backend makes it, or the core when no
 * backend answers. The maker of the request receives and frees it. This is TRITONBACKEND_Response
 * and TRITONSERVER_InferenceResponse.
 */
#ifndef CONCH_CORE_REQUEST_RESPONSE_H
#define CONCH_CORE_REQUEST_RESPONSE_H

#include "core/request/request.h"

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
    /* Constant from response_make() on. */
    struct request *request; /* a reference */
    struct arena arena;
    const char *id; /* the request's; the maker may replace it by a copy */

    /* The backend's until response_send(), then the receiver's. */
    uint32_t n_outputs, output_capacity;
    struct output **outputs;
    uint32_t n_parameters, parameter_capacity;
    struct parameter *parameters;
    struct status *error; /* if set, the outputs have no meaning */
    bool as_sent; /* the outputs are those that a client got before: the response cache had it */
    bool sent;
    uint32_t flags;   /* the flags it was sent with, while it waits for earlier responses
                         (sched/response_order.h) */
    struct list link; /* for the present owner */
};

/*
 * response_spare - reserves room for one response in the request's arena, if the arena's first
 * block has enough left. The first response, mostly the only one, then needs no block of the pool.
 * The pool is that of the thread that made the request, and has a lock.
 *
 * Thread: the request's maker, before it hands the request over.
 */
void response_spare(struct request *r);

/*
 * response_make - an empty response that counts nowhere, in whatever room there is. Without memory
 * the request remembers that it lacks a response.
 * response_discard - frees it with its outputs, but not its reference to the request.
 *
 * Thread: any. Only for life.c, which counts responses. Errors: STATUS_UNAVAILABLE  no memory
 */
NODISCARD struct status *response_make(struct request *r, struct response **ret_response);
/*
 * response_make_last - an empty response for an error, also without memory: the request has room
 * for one. NULL: there is no memory, and an earlier run's response is still in that room.
 */
struct response *response_make_last(struct request *r);
void response_discard(struct response *resp);

/*
 * output_undo_reshape - turns the output's shape from the backend's into the client's: the model's
 * dims, whose n-th -1 gets the value at the n-th -1 of the reshape.
 */
NODISCARD struct status *output_undo_reshape(struct response *resp, struct output *out,
                                             const struct tensor_spec *spec);

/*
 * response_check - are the outputs those of the model? Undoes the model's reshape.
 *
 * Errors: STATUS_INVALID_ARG  the model has no output of that name
 */
NODISCARD struct status *response_check(struct response *resp);

/* response_add_output - name and shape are copied. */
NODISCARD struct status *response_add_output(struct response *resp, const char *name,
                                             enum dtype dtype, const int64_t *shape, size_t n_dims,
                                             struct output **ret_output);
/* output_alloc - has the maker of the request allocate the output's memory. Once per output. */
NODISCARD struct status *output_alloc(struct output *out, size_t size_bytes);
NODISCARD struct status *response_add_parameter(struct response *resp, const struct parameter *p);
/* response_add_named_parameter - the same, but the name is borrowed for the life of the response.
 */
NODISCARD struct status *response_add_named_parameter(struct response *resp,
                                                      const struct parameter *p);

/* The alloc_output and free_output of makers that have no memory of their own: outputs come from
 * the request's pool, or if they are small from the response's arena. */
struct status *response_alloc_pooled(struct request *r, struct output *out, size_t size_bytes);
void response_free_pooled(struct request *r, struct output *out);

#endif
