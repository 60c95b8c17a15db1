/* SPDX-License-Identifier: Apache-2.0 */
/*
 * square - answers n with n responses, each with the value n.
 *
 *     IN   INT32  [1]   n; no response for 0, and an error for less
 *     OUT  INT32  [1]
 *
 * A decoupled model: the number of responses depends on the request. With max_batch_size the shapes
 * have a first dimension of 1.
 */
#include "common/series.h"

struct job {
    const char *out; /* NULL: not requested */
    uint32_t n, n_dims;
    struct series_elements in;
};

static void trim_square_job(void *job, size_t most_bytes)
{
    series_elements_trim(&((struct job *)job)->in, most_bytes);
}

static TRITONSERVER_Error *read_square_request(TRITONBACKEND_Request *request, void *job,
                                               uint32_t *ret_hold_ms)
{
    struct job *j = job;

    (void)ret_hold_ms;
    TRY(series_input(request, "IN", TRITONSERVER_TYPE_INT32, &j->in, &j->n_dims));
    j->n = j->in.n ? j->in.values[0] : 0;
    j->out = series_wanted(request, "OUT");
    if (j->in.n != 1 || j->n_dims > 2)
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG, "IN must have 1 element, it has %u",
                             j->in.n);
    if ((int32_t)j->n < 0)
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG, "IN must not be negative, it is %d",
                             (int32_t)j->n);
    return NULL;
}

static TRITONSERVER_Error *send_copies(struct series *s, const void *job)
{
    const struct job *j = job;
    const struct series_value value = {j->out, TRITONSERVER_TYPE_INT32, j->n};

    for (uint32_t i = 0; i < j->n; i++) {
        TRY(series_pause(s, 0)); /* ends if the request was cancelled */
        TRY(series_send(s, &value, 1, j->n_dims));
    }
    return NULL;
}

const struct series_backend series_backend = {
    .job_bytes = sizeof(struct job),
    .read = read_square_request,
    .send = send_copies,
    .trim = trim_square_job,
};
