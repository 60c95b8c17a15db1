/* SPDX-License-Identifier: Apache-2.0 */
/* scale - a complete backend: OUT = IN times the request's parameter `factor` (2 if it has none).
 */
#include <string.h>
#include <time.h>

#include "triton/core/tritonbackend.h"

#define TRY(call)                                                                                  \
    do {                                                                                           \
        TRITONSERVER_Error *try_err = (call);                                                      \
        if (try_err)                                                                               \
            return try_err;                                                                        \
    } while (0)

static uint64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static TRITONSERVER_Error *read_factor(TRITONBACKEND_Request *request, double *factor)
{
    uint32_t n;

    *factor = 2;
    TRY(TRITONBACKEND_RequestParameterCount(request, &n));
    for (uint32_t i = 0; i < n; i++) {
        TRITONSERVER_ParameterType type;
        const void *value;
        const char *key;

        TRY(TRITONBACKEND_RequestParameter(request, i, &key, &type, &value));
        if (strcmp(key, "factor") != 0)
            continue;
        if (type != TRITONSERVER_PARAMETER_DOUBLE)
            return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INVALID_ARG, "factor must be a DOUBLE");
        *factor = *(const double *)value;
    }
    return NULL;
}

/* Compute one request into its response. */
static TRITONSERVER_Error *scale(TRITONBACKEND_Request *request, TRITONBACKEND_Response *response)
{
    TRITONSERVER_MemoryType memory = TRITONSERVER_MEMORY_CPU;
    uint64_t size, done = 0;
    TRITONBACKEND_Output *output;
    TRITONBACKEND_Input *input;
    uint32_t rank, n_buffers;
    const int64_t *shape;
    int64_t memory_id = 0;
    void *to;
    double factor;

    TRY(read_factor(request, &factor));
    TRY(TRITONBACKEND_RequestInput(request, "IN", &input));
    TRY(TRITONBACKEND_InputProperties(input, NULL, NULL, &shape, &rank, &size, &n_buffers));
    TRY(TRITONBACKEND_ResponseOutput(response, &output, "OUT", TRITONSERVER_TYPE_FP32, shape,
                                     rank));
    TRY(TRITONBACKEND_OutputBuffer(output, &to, size, &memory, &memory_id));

    /* The data may come in pieces, and a piece may end anywhere: put them together first. */
    for (uint32_t i = 0; i < n_buffers; i++) {
        const void *from;
        uint64_t n;

        TRY(TRITONBACKEND_InputBuffer(input, i, &from, &n, &memory, &memory_id));
        if (n > 0)
            memcpy((char *)to + done, from, n);
        done += n;
    }
    for (uint64_t i = 0; i < size / sizeof(float); i++) {
        char *at = (char *)to + i * sizeof(float); /* shared memory may begin at any address */
        float number;

        memcpy(&number, at, sizeof(number));
        number *= (float)factor;
        memcpy(at, &number, sizeof(number));
    }
    return NULL;
}

/* The only function that a backend must have. Returning NULL, it has taken all the requests. */
TRITONSERVER_Error *TRITONBACKEND_ModelInstanceExecute(TRITONBACKEND_ModelInstance *instance,
                                                       TRITONBACKEND_Request **requests,
                                                       const uint32_t request_count)
{
    for (uint32_t i = 0; i < request_count; i++) {
        uint64_t start = now_ns(), end;
        TRITONBACKEND_Response *response;
        TRITONSERVER_Error *err, *ignored;

        err = TRITONBACKEND_ResponseNew(&response, requests[i]);
        if (err)
            response = NULL; /* the release below still lets the server answer */
        else
            err = scale(requests[i], response);
        end = now_ns();
        ignored = TRITONBACKEND_ModelInstanceReportStatistics(instance, requests[i], !err, start,
                                                              start, end, end);
        TRITONSERVER_ErrorDelete(ignored);
        if (response) { /* taken by the call, whatever it returns */
            ignored =
                TRITONBACKEND_ResponseSend(response, TRITONSERVER_RESPONSE_COMPLETE_FINAL, err);
            TRITONSERVER_ErrorDelete(ignored);
        }
        TRITONSERVER_ErrorDelete(err);
        ignored = TRITONBACKEND_RequestRelease(requests[i], TRITONSERVER_REQUEST_RELEASE_ALL);
        TRITONSERVER_ErrorDelete(ignored);
    }
    return NULL;
}
