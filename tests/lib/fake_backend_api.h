/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fake_backend_api - the server's side of tritonbackend.h, as far as backends/common/ uses it for
 * batches: requests whose buffers lie where a test wants them, and responses that a test can
 * examine.
 *
 * Test programs also contain the real functions, so the fake ones have other names. A test includes
 * this file first, and then the .c files that it tests.
 */
#ifndef TESTS_LIB_FAKE_BACKEND_API_H
#define TESTS_LIB_FAKE_BACKEND_API_H

/* The headers that those files need are included before the names change. */
#include "common/doc.c"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TRITONBACKEND_RequestInput                       fake_RequestInput
#define TRITONBACKEND_RequestInputByIndex                fake_RequestInputByIndex
#define TRITONBACKEND_RequestInputCount                  fake_RequestInputCount
#define TRITONBACKEND_RequestInputName                   fake_RequestInputName
#define TRITONBACKEND_RequestOutputCount                 fake_RequestOutputCount
#define TRITONBACKEND_RequestOutputName                  fake_RequestOutputName
#define TRITONBACKEND_RequestIsCancelled                 fake_RequestIsCancelled
#define TRITONBACKEND_RequestRelease                     fake_RequestRelease
#define TRITONBACKEND_InputProperties                    fake_InputProperties
#define TRITONBACKEND_InputBuffer                        fake_InputBuffer
#define TRITONBACKEND_ResponseNew                        fake_ResponseNew
#define TRITONBACKEND_ResponseDelete                     fake_ResponseDelete
#define TRITONBACKEND_ResponseOutput                     fake_ResponseOutput
#define TRITONBACKEND_ResponseSend                       fake_ResponseSend
#define TRITONBACKEND_OutputBuffer                       fake_OutputBuffer
#define TRITONBACKEND_ModelInstanceReportStatistics      fake_ReportStatistics
#define TRITONBACKEND_ModelInstanceReportBatchStatistics fake_ReportBatchStatistics

/* With names of their own, so that they do not clash with those of a library in the same
 * program. */
#include "common/backend.c"

enum { FAKE_MOST = 4 };

struct TRITONBACKEND_Input {
    const char *name;
    TRITONSERVER_DataType type;
    int64_t shape[4];
    uint32_t rank;
    uint32_t n_buffers;
    const void *buffers[FAKE_MOST];
    uint64_t sizes[FAKE_MOST];
    TRITONSERVER_MemoryType memory;
};

struct TRITONBACKEND_Output {
    const char *name;
    TRITONSERVER_DataType type;
    int64_t shape[4];
    uint32_t rank;
    uint64_t size;
    void *data;
};

struct TRITONBACKEND_Response {
    struct TRITONBACKEND_Output outputs[FAKE_MOST];
    uint32_t n_outputs;
};

struct TRITONBACKEND_Request {
    struct TRITONBACKEND_Input inputs[FAKE_MOST];
    uint32_t n_inputs;
    const char *wanted[FAKE_MOST];
    uint32_t n_wanted;
    bool cancelled;
    size_t offset; /* of the memory for outputs, from an aligned address */

    /* The responses made, and the last one sent. */
    struct TRITONBACKEND_Response *made, sent;
    char error[200]; /* "": none */
    unsigned int n_sent, n_released, n_reported, n_succeeded, n_responses;
};

/* Counted over all requests. */
static uint64_t fake_batch_size;
static unsigned int fake_n_batches, fake_n_live;

static TRITONSERVER_Error *fake_missing(const char *what)
{
    return backend_error(TRITONSERVER_ERROR_INVALID_ARG, "there is no %s", what);
}

TRITONSERVER_Error *fake_RequestInput(TRITONBACKEND_Request *request, const char *name,
                                      TRITONBACKEND_Input **input)
{
    for (uint32_t i = 0; i < request->n_inputs; i++) {
        *input = &request->inputs[i];
        if (strcmp((*input)->name, name) == 0)
            return NULL;
    }
    return fake_missing(name);
}

TRITONSERVER_Error *fake_RequestInputByIndex(TRITONBACKEND_Request *request, const uint32_t index,
                                             TRITONBACKEND_Input **input)
{
    if (index >= request->n_inputs)
        return fake_missing("input");
    *input = &request->inputs[index];
    return NULL;
}

TRITONSERVER_Error *fake_RequestInputCount(TRITONBACKEND_Request *request, uint32_t *count)
{
    *count = request->n_inputs;
    return NULL;
}

TRITONSERVER_Error *fake_RequestInputName(TRITONBACKEND_Request *request, const uint32_t index,
                                          const char **input_name)
{
    *input_name = request->inputs[index].name;
    return NULL;
}

TRITONSERVER_Error *fake_RequestOutputCount(TRITONBACKEND_Request *request, uint32_t *count)
{
    *count = request->n_wanted;
    return NULL;
}

TRITONSERVER_Error *fake_RequestOutputName(TRITONBACKEND_Request *request, const uint32_t index,
                                           const char **output_name)
{
    *output_name = request->wanted[index];
    return NULL;
}

TRITONSERVER_Error *fake_RequestIsCancelled(TRITONBACKEND_Request *request, bool *is_cancelled)
{
    *is_cancelled = request->cancelled;
    return NULL;
}

TRITONSERVER_Error *fake_RequestRelease(TRITONBACKEND_Request *request, uint32_t release_flags)
{
    assert_int_equal(release_flags, TRITONSERVER_REQUEST_RELEASE_ALL);
    request->n_released++;
    return NULL;
}

TRITONSERVER_Error *fake_InputProperties(TRITONBACKEND_Input *input, const char **name,
                                         TRITONSERVER_DataType *datatype, const int64_t **shape,
                                         uint32_t *dims_count, uint64_t *byte_size,
                                         uint32_t *buffer_count)
{
    uint64_t size = 0;

    for (uint32_t i = 0; i < input->n_buffers; i++)
        size += input->sizes[i];
    if (name)
        *name = input->name;
    if (datatype)
        *datatype = input->type;
    if (shape)
        *shape = input->shape;
    if (dims_count)
        *dims_count = input->rank;
    if (byte_size)
        *byte_size = size;
    if (buffer_count)
        *buffer_count = input->n_buffers;
    return NULL;
}

TRITONSERVER_Error *fake_InputBuffer(TRITONBACKEND_Input *input, const uint32_t index,
                                     const void **buffer, uint64_t *buffer_byte_size,
                                     TRITONSERVER_MemoryType *memory_type, int64_t *memory_type_id)
{
    assert_true(index < input->n_buffers);
    *buffer = input->buffers[index];
    *buffer_byte_size = input->sizes[index];
    *memory_type = input->memory;
    *memory_type_id = 0;
    return NULL;
}

TRITONSERVER_Error *fake_ResponseNew(TRITONBACKEND_Response **response,
                                     TRITONBACKEND_Request *request)
{
    *response = request->made = calloc(1, sizeof(**response));
    assert_non_null(*response);
    request->n_responses++;
    fake_n_live++;
    return NULL;
}

/* Only the backend knows which request a response belongs to. */
static void fake_response_free(TRITONBACKEND_Response *response, bool outputs)
{
    for (uint32_t i = 0; outputs && i < response->n_outputs; i++)
        free((void *)((uintptr_t)response->outputs[i].data & ~(uintptr_t)63));
    free(response);
    fake_n_live--;
}

TRITONSERVER_Error *fake_ResponseDelete(TRITONBACKEND_Response *response)
{
    fake_response_free(response, true);
    return NULL;
}

TRITONSERVER_Error *fake_ResponseOutput(TRITONBACKEND_Response *response,
                                        TRITONBACKEND_Output **output, const char *name,
                                        const TRITONSERVER_DataType datatype, const int64_t *shape,
                                        const uint32_t dims_count)
{
    struct TRITONBACKEND_Output *o = &response->outputs[response->n_outputs++];

    assert_true(response->n_outputs <= FAKE_MOST && dims_count <= 4);
    *o = (struct TRITONBACKEND_Output){.name = name, .type = datatype, .rank = dims_count};
    memcpy(o->shape, shape, dims_count * sizeof(*shape));
    *output = o;
    return NULL;
}

static size_t fake_offset; /* where the next output's memory begins */

TRITONSERVER_Error *fake_OutputBuffer(TRITONBACKEND_Output *output, void **buffer,
                                      const uint64_t buffer_byte_size,
                                      TRITONSERVER_MemoryType *memory_type, int64_t *memory_type_id)
{
    char *memory = aligned_alloc(64, (buffer_byte_size + fake_offset) / 64 * 64 + 64);

    assert_non_null(memory);
    assert_int_equal(*memory_type, TRITONSERVER_MEMORY_CPU);
    *memory_type_id = 0;
    output->size = buffer_byte_size;
    *buffer = output->data = memory + fake_offset;
    return NULL;
}

/* The requests of the test, by which a response finds its own. */
static TRITONBACKEND_Request *fake_requests;
static uint32_t fake_n_requests;

TRITONSERVER_Error *fake_ResponseSend(TRITONBACKEND_Response *response, const uint32_t send_flags,
                                      TRITONSERVER_Error *error)
{
    assert_int_equal(send_flags, TRITONSERVER_RESPONSE_COMPLETE_FINAL);
    for (uint32_t i = 0; i < fake_n_requests; i++) {
        TRITONBACKEND_Request *r = &fake_requests[i];

        if (r->made != response)
            continue;
        r->n_sent++;
        r->sent = *response;
        r->made = NULL;
        if (error)
            snprintf(r->error, sizeof(r->error), "%s", TRITONSERVER_ErrorMessage(error));
        fake_response_free(response, false);
        return NULL;
    }
    fail_msg("a response of no request");
    return NULL;
}

TRITONSERVER_Error *fake_ReportStatistics(TRITONBACKEND_ModelInstance *instance,
                                          TRITONBACKEND_Request *request, const bool success,
                                          const uint64_t exec_start_ns,
                                          const uint64_t compute_start_ns,
                                          const uint64_t compute_end_ns, const uint64_t exec_end_ns)
{
    (void)instance;
    assert_true(exec_start_ns <= compute_start_ns && compute_start_ns <= compute_end_ns &&
                compute_end_ns <= exec_end_ns);
    assert_int_equal(request->n_sent, 0);
    request->n_reported++;
    request->n_succeeded += success;
    return NULL;
}

TRITONSERVER_Error *
fake_ReportBatchStatistics(TRITONBACKEND_ModelInstance *instance, const uint64_t batch_size,
                           const uint64_t exec_start_ns, const uint64_t compute_start_ns,
                           const uint64_t compute_end_ns, const uint64_t exec_end_ns)
{
    (void)instance;
    assert_true(exec_start_ns <= compute_start_ns && compute_end_ns <= exec_end_ns);
    fake_batch_size += batch_size;
    fake_n_batches++;
    return NULL;
}

/* ---- For tests ------------------------------------------------------------------------------ */

/* fake_input - gives a request an input in one buffer. */
static inline TRITONBACKEND_Input *fake_input(TRITONBACKEND_Request *r, const char *name,
                                              TRITONSERVER_DataType type, const void *data,
                                              uint64_t size, uint32_t rank, ...)
{
    TRITONBACKEND_Input *in = &r->inputs[r->n_inputs++];
    va_list dims;

    *in = (TRITONBACKEND_Input){.name = name, .type = type, .rank = rank, .n_buffers = 1};
    in->buffers[0] = data;
    in->sizes[0] = size;
    va_start(dims, rank);
    for (uint32_t d = 0; d < rank; d++)
        in->shape[d] = va_arg(dims, int);
    va_end(dims);
    return in;
}

/* fake_forget - forgets what was sent, and asserts that nothing leaked. */
static inline void fake_forget(TRITONBACKEND_Request *requests, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < requests[i].sent.n_outputs; k++)
            free((void *)((uintptr_t)requests[i].sent.outputs[k].data & ~(uintptr_t)63));
    assert_int_equal(fake_n_live, 0);
}

/* fake_expect - frees an error that has the expected text. */
static inline void fake_expect(TRITONSERVER_Error *err, const char *text)
{
    assert_non_null(err);
    assert_string_equal(TRITONSERVER_ErrorMessage(err), text);
    TRITONSERVER_ErrorDelete(err);
}

static inline void fake_must(TRITONSERVER_Error *err)
{
    if (err)
        fail_msg("%s", TRITONSERVER_ErrorMessage(err));
}

#endif
