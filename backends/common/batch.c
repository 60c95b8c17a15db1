/* SPDX-License-Identifier: Apache-2.0 */
/*
 * batch.h gives the order of the calls. The array of parts stays with the batch from one execution
 * to the next, so that the usual execution allocates nothing. An error belongs to its part until
 * batch_finish() sends it. `rows` counts the parts without an error, `size` counts all parts.
 */
#include "common/batch.h"

#include <stdlib.h>
#include <string.h>

/* The first dimension of any input of a request is its share of the batch. */
static TRITONSERVER_Error *count_rows(TRITONBACKEND_Request *request, uint64_t *ret_rows)
{
    TRITONBACKEND_Input *input;
    const int64_t *shape;
    uint32_t n_inputs, n_dims;

    TRY(TRITONBACKEND_RequestInputCount(request, &n_inputs));
    if (n_inputs == 0)
        return NULL;
    TRY(TRITONBACKEND_RequestInputByIndex(request, 0, &input));
    TRY(TRITONBACKEND_InputProperties(input, NULL, NULL, &shape, &n_dims, NULL, NULL));
    if (n_dims == 0 || shape[0] < 0)
        return backend_error(TRITONSERVER_ERROR_INTERNAL, "an input has no batch dimension");
    *ret_rows = (uint64_t)shape[0];
    return NULL;
}

static void begin_part(struct batch *b, struct batch_part *part)
{
    TRITONSERVER_Error *err = b->has_rows ? count_rows(part->request, &part->rows) : NULL;

    b->rows += part->rows;
    b->size += part->rows;
    if (!err)
        err = TRITONBACKEND_ResponseNew(&part->response, part->request);
    batch_fail(b, part, err);
}

TRITONSERVER_Error *batch_begin(struct batch *b, TRITONBACKEND_ModelInstance *instance,
                                TRITONBACKEND_Request **requests, uint32_t n, bool has_rows)
{
    if (n > b->max_parts) {
        struct batch_part *parts = realloc(b->parts, n * sizeof(*parts));

        if (!parts)
            return backend_error(TRITONSERVER_ERROR_UNAVAILABLE,
                                 "out of memory for a batch of %u requests", (unsigned int)n);
        b->parts = parts;
        b->max_parts = n;
    }
    b->instance = instance;
    b->n_parts = n;
    b->has_rows = has_rows;
    b->rows = b->size = 0;
    b->exec_start_ns = backend_now_ns();
    b->compute_start_ns = b->compute_end_ns = 0;
    for (uint32_t i = 0; i < n; i++) {
        b->parts[i] = (struct batch_part){.request = requests[i], .rows = 1};
        begin_part(b, &b->parts[i]);
    }
    return NULL;
}

void batch_done(struct batch *b)
{
    free(b->parts);
    *b = (struct batch){0};
}

void batch_fail(struct batch *b, struct batch_part *part, TRITONSERVER_Error *err)
{
    if (!err)
        return;
    if (part->err) {
        TRITONSERVER_ErrorDelete(err);
        return;
    }
    part->err = err;
    b->rows -= part->rows;
}

bool batch_empty(const struct batch *b)
{
    for (uint32_t i = 0; i < b->n_parts; i++)
        if (!b->parts[i].err)
            return false;
    return true;
}

static TRITONSERVER_Error *check_cancelled(const struct batch_part *part)
{
    bool cancelled = false;

    TRY(TRITONBACKEND_RequestIsCancelled(part->request, &cancelled));
    if (cancelled)
        return backend_error(TRITONSERVER_ERROR_CANCELLED, "cancelled while it was executed");
    return NULL;
}

void batch_drop_cancelled(struct batch *b)
{
    for (uint32_t i = 0; i < b->n_parts; i++)
        if (!b->parts[i].err)
            batch_fail(b, &b->parts[i], check_cancelled(&b->parts[i]));
}

void batch_computes(struct batch *b)
{
    b->compute_start_ns = backend_now_ns();
}

void batch_computed(struct batch *b)
{
    b->compute_end_ns = backend_now_ns();
}

TRITONSERVER_Error *batch_wants(const struct batch_part *part, const char *output, uint32_t hint,
                                bool *ret_wanted)
{
    const char *name;
    uint32_t n;

    *ret_wanted = true;
    if (hint == BATCH_WANTED)
        return NULL;
    TRY(TRITONBACKEND_RequestOutputCount(part->request, &n));
    if (hint < n) {
        TRY(TRITONBACKEND_RequestOutputName(part->request, hint, &name));
        if (strcmp(name, output) == 0)
            return NULL;
    }
    for (uint32_t i = 0; i < n; i++) {
        TRY(TRITONBACKEND_RequestOutputName(part->request, i, &name));
        if (strcmp(name, output) == 0)
            return NULL;
    }
    *ret_wanted = false;
    return NULL;
}

static void report_batch_statistics(struct batch *b)
{
    uint64_t end_ns = backend_now_ns();
    uint64_t start_ns = b->compute_start_ns ? b->compute_start_ns : b->exec_start_ns;
    uint64_t done_ns = b->compute_end_ns ? b->compute_end_ns : end_ns;

    for (uint32_t i = 0; i < b->n_parts; i++)
        backend_ignore(TRITONBACKEND_ModelInstanceReportStatistics(
                           b->instance, b->parts[i].request, !b->parts[i].err, b->exec_start_ns,
                           start_ns, done_ns, end_ns),
                       "reporting statistics");
    backend_ignore(TRITONBACKEND_ModelInstanceReportBatchStatistics(
                       b->instance, b->size, b->exec_start_ns, start_ns, done_ns, end_ns),
                   "reporting statistics");
}

static void answer_and_release_part(struct batch_part *part)
{
    if (part->err)
        backend_send_error(part->request, part->response, part->err);
    else
        backend_ignore(
            TRITONBACKEND_ResponseSend(part->response, TRITONSERVER_RESPONSE_COMPLETE_FINAL, NULL),
            "sending a response");
    backend_ignore(TRITONBACKEND_RequestRelease(part->request, TRITONSERVER_REQUEST_RELEASE_ALL),
                   "releasing a request");
}

void batch_finish(struct batch *b, TRITONSERVER_Error *err)
{
    for (uint32_t i = 0; err && i < b->n_parts; i++)
        if (!b->parts[i].err)
            batch_fail(
                b, &b->parts[i],
                TRITONSERVER_ErrorNew(TRITONSERVER_ErrorCode(err), TRITONSERVER_ErrorMessage(err)));
    TRITONSERVER_ErrorDelete(err);
    /* All statistics come before the answers that they count, so that a client which has its
     * answer finds it counted. */
    report_batch_statistics(b);
    for (uint32_t i = 0; i < b->n_parts; i++)
        answer_and_release_part(&b->parts[i]);
    b->n_parts = 0;
}

void batch_single(struct batch *b, uint32_t i, struct batch *ret_single)
{
    struct batch_part *part = &b->parts[i];

    *ret_single = *b;
    ret_single->parts = part;
    ret_single->n_parts = 1;
    ret_single->rows = part->err ? 0 : part->rows;
    ret_single->size = part->rows;
    ret_single->exec_start_ns = backend_now_ns();
    ret_single->compute_start_ns = ret_single->compute_end_ns = 0;
    if (part->err)
        return;
    /* Outputs that were begun cannot be withdrawn, so the whole response is made again. */
    backend_ignore(TRITONBACKEND_ResponseDelete(part->response), "deleting a response");
    part->response = NULL;
    batch_fail(ret_single, part, TRITONBACKEND_ResponseNew(&part->response, part->request));
}
