/* SPDX-License-Identifier: Apache-2.0 */
/*
 * repeat - answers with the elements of its input, one response for each, after its delay.
 *
 *     IN     INT32   [n]   the elements
 *     DELAY  UINT32  [n]   how long to wait before each, milliseconds
 *     WAIT   UINT32  [1]   how long the request is held, milliseconds
 *     OUT    INT32   [1]   the element
 *     IDX    UINT32  [1]   its index in IN
 *
 * A decoupled model, to try clients and servers with: the responses begin while the request is
 * held, and may go on long after it was released. With max_batch_size the shapes have a first
 * dimension of 1.
 */
#include <stdlib.h>

#include "common/series.h"

struct job {
    const char *out, *idx; /* NULL: not requested */
    uint32_t n, n_dims;
    uint32_t *in, *delay_ms;
};

static void job_free(void *job)
{
    struct job *j = job;
    if (!j)
        return;
    free(j->in);
    free(j->delay_ms);
    free(j);
}

static TRITONSERVER_Error *read_inputs(TRITONBACKEND_Request *request, struct job *j,
                                       uint32_t *ret_hold_ms)
{
    uint32_t n_delays, n_waits, n_dims, *wait;

    TRY(series_input(request, "IN", TRITONSERVER_TYPE_INT32, &j->in, &j->n, &j->n_dims));
    TRY(series_input(request, "DELAY", TRITONSERVER_TYPE_UINT32, &j->delay_ms, &n_delays, &n_dims));
    TRY(series_input(request, "WAIT", TRITONSERVER_TYPE_UINT32, &wait, &n_waits, &n_dims));
    *ret_hold_ms = n_waits ? wait[0] : 0;
    free(wait);
    if (n_waits != 1)
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG, "WAIT must have 1 element, it has %u",
                             n_waits);
    if (n_delays != j->n)
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                             "IN and DELAY must have as many elements, they have %u and %u", j->n,
                             n_delays);
    if (j->n_dims > 2)
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG, "IN must be a list of elements");
    return NULL;
}

static TRITONSERVER_Error *read_repeat_request(TRITONBACKEND_Request *request, void **ret_job,
                                               uint32_t *ret_hold_ms)
{
    struct job *j = calloc(1, sizeof(*j));

    *ret_job = j;
    if (!j)
        return backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "out of memory");
    j->out = series_wanted(request, "OUT");
    j->idx = series_wanted(request, "IDX");
    return read_inputs(request, j, ret_hold_ms);
}

static TRITONSERVER_Error *send_elements(struct series *s, const void *job)
{
    const struct job *j = job;

    for (uint32_t i = 0; i < j->n; i++) {
        const struct series_value values[] = {
            {j->out, TRITONSERVER_TYPE_INT32, j->in[i]},
            {j->idx, TRITONSERVER_TYPE_UINT32, i},
        };
        TRY(series_pause(s, j->delay_ms[i]));
        TRY(series_send(s, values, 2, j->n_dims));
    }
    return NULL;
}

const struct series_backend series_backend = {
    .read = read_repeat_request,
    .send = send_elements,
    .free = job_free,
};
