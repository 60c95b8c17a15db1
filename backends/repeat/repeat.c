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
#include "common/series.h"

struct job {
    const char *out, *idx; /* NULL: not requested */
    uint32_t n_dims;
    struct series_elements in, delay_ms, wait_ms;
};

static void trim_repeat_job(void *job, size_t most_bytes)
{
    struct job *j = job;
    series_elements_trim(&j->in, most_bytes);
    series_elements_trim(&j->delay_ms, most_bytes);
    series_elements_trim(&j->wait_ms, most_bytes);
}

static TRITONSERVER_Error *read_inputs(TRITONBACKEND_Request *request, struct job *j,
                                       uint32_t *ret_hold_ms)
{
    uint32_t n_dims;

    TRY(series_input(request, "IN", TRITONSERVER_TYPE_INT32, &j->in, &j->n_dims));
    TRY(series_input(request, "DELAY", TRITONSERVER_TYPE_UINT32, &j->delay_ms, &n_dims));
    TRY(series_input(request, "WAIT", TRITONSERVER_TYPE_UINT32, &j->wait_ms, &n_dims));
    *ret_hold_ms = j->wait_ms.n ? j->wait_ms.values[0] : 0;
    if (j->wait_ms.n != 1)
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG, "WAIT must have 1 element, it has %u",
                             j->wait_ms.n);
    if (j->delay_ms.n != j->in.n)
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                             "IN and DELAY must have as many elements, they have %u and %u",
                             j->in.n, j->delay_ms.n);
    if (j->n_dims > 2)
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG, "IN must be a list of elements");
    return NULL;
}

static TRITONSERVER_Error *read_repeat_request(TRITONBACKEND_Request *request, void *job,
                                               uint32_t *ret_hold_ms)
{
    struct job *j = job;

    j->out = series_wanted(request, "OUT");
    j->idx = series_wanted(request, "IDX");
    return read_inputs(request, j, ret_hold_ms);
}

static TRITONSERVER_Error *send_elements(struct series *s, const void *job)
{
    const struct job *j = job;

    for (uint32_t i = 0; i < j->in.n; i++) {
        const struct series_value values[] = {
            {j->out, TRITONSERVER_TYPE_INT32, j->in.values[i]},
            {j->idx, TRITONSERVER_TYPE_UINT32, i},
        };
        TRY(series_pause(s, j->delay_ms.values[i]));
        TRY(series_send(s, values, 2, j->n_dims));
    }
    return NULL;
}

const struct series_backend series_backend = {
    .job_bytes = sizeof(struct job),
    .read = read_repeat_request,
    .send = send_elements,
    .trim = trim_repeat_job,
};
