/* SPDX-License-Identifier: Apache-2.0 */
/*
 * series - the frame of a backend that answers a request any number of times, also long after
 * execution has returned. Such a backend defines series_backend and uses the helpers below; the
 * functions of tritonbackend.h are here.
 *
 *     Execute   read() makes a job of the request; then the request is released
 *     a thread  send() sends the responses of one job, with any pauses
 *
 * The frame ends each request when send() has returned: with the final flag alone, or with an error
 * response. It reports statistics of the request, of the execution, and, if the server counts them,
 * of each response. An instance is finalised when all its threads have ended.
 */
#ifndef BACKENDS_COMMON_SERIES_H
#define BACKENDS_COMMON_SERIES_H

#include <stddef.h>

#include "common/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

struct series; /* one request on its way */

struct series_backend {
    size_t job_bytes;
    /*
     * @job          for send(): of zeros, or of a request that has ended
     * @ret_hold_ms  how long Execute holds the request after its job has begun; 0
     * An error is the request's only response.
     */
    TRITONSERVER_Error *(*read)(TRITONBACKEND_Request *request, void *job, uint32_t *ret_hold_ms);
    /* An error becomes the last response. */
    TRITONSERVER_Error *(*send)(struct series *s, const void *job);
    /* The job has ended: frees blocks of it that are larger than this, all of them with 0.
     * Optional. */
    void (*trim)(void *job, size_t most_bytes);
};

/* To be defined by the backend. */
extern const struct series_backend series_backend;

/*
 * series_pause - sleeps, unless the request is cancelled.
 * Errors: CANCELLED  the request has been cancelled
 */
TRITONSERVER_Error *series_pause(struct series *s, uint32_t ms);

/* One output of one element. */
struct series_value {
    const char *name; /* NULL: the request does not ask for it */
    TRITONSERVER_DataType type;
    uint32_t bits;
};

/*
 * series_send - sends one response, and reports its statistics.
 * @n_dims  of the outputs' shapes, whose dimensions are all 1: 1 or 2
 */
TRITONSERVER_Error *series_send(struct series *s, const struct series_value *values,
                                size_t n_values, uint32_t n_dims);

/* series_wanted - the name, if the request asks for that output; else NULL. */
const char *series_wanted(TRITONBACKEND_Request *request, const char *name);

/* The elements of an input, in a block that the next request of the job uses again. */
struct series_elements {
    uint32_t *values;
    uint32_t n;
    size_t capacity_bytes;
};

/* series_elements_trim - frees the block if it is larger than this. */
void series_elements_trim(struct series_elements *e, size_t most_bytes);

/*
 * series_input - reads a request's input as 32-bit elements.
 * @type        what it must be
 * @ret_n_dims  of its shape
 * Errors: INVALID_ARG  another type; UNAVAILABLE  no memory
 */
TRITONSERVER_Error *series_input(TRITONBACKEND_Request *request, const char *name,
                                 TRITONSERVER_DataType type, struct series_elements *e,
                                 uint32_t *ret_n_dims);

#ifdef __cplusplus
}
#endif
#endif
