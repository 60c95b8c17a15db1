/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torrent - a decoupled backend that sends as many responses, of as many bytes, as a request asks
 * for, as fast as they are taken.
 *
 * The input IN has two INT32: the number of responses, and the bytes of each. The output OUT has
 * them as UINT8; its first 4 bytes are the response's number. A cancelled request gets no more.
 * Statistics count a request when all its responses are sent.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conch/backend.h"

static void must(TRITONSERVER_Error *err)
{
    if (!err)
        return;
    fprintf(stderr, "torrent: %s\n", TRITONSERVER_ErrorMessage(err));
    abort();
}

/* Without memory for the output, or when the client has left, there is an error. */
static bool goes_on(TRITONSERVER_Error *err)
{
    if (err)
        TRITONSERVER_ErrorDelete(err);
    return !err;
}

static bool send_one(TRITONBACKEND_Request *request, int32_t number, int32_t n_bytes)
{
    TRITONSERVER_MemoryType memory = TRITONSERVER_MEMORY_CPU;
    TRITONBACKEND_Response *response;
    TRITONBACKEND_Output *output;
    int64_t memory_id = 0, shape[] = {n_bytes};
    void *to;
    bool is_cancelled;
    must(TRITONBACKEND_RequestIsCancelled(request, &is_cancelled));
    if (is_cancelled || !goes_on(TRITONBACKEND_ResponseNew(&response, request)))
        return false;
    bool fine =
        goes_on(TRITONBACKEND_ResponseOutput(response, &output, "OUT", TRITONSERVER_TYPE_UINT8,
                                             shape, 1)) &&
        goes_on(TRITONBACKEND_OutputBuffer(output, &to, (uint64_t)n_bytes, &memory, &memory_id));
    if (!fine) {
        must(TRITONBACKEND_ResponseDelete(response));
        return false;
    }
    memset(to, 0, (size_t)n_bytes);
    memcpy(to, &number, (size_t)n_bytes < sizeof(number) ? (size_t)n_bytes : sizeof(number));
    return goes_on(TRITONBACKEND_ResponseSend(response, 0, NULL));
}

static void execute_one(TRITONBACKEND_ModelInstance *instance, TRITONBACKEND_Request *request)
{
    TRITONSERVER_MemoryType memory = TRITONSERVER_MEMORY_CPU;
    TRITONBACKEND_ResponseFactory *factory;
    TRITONBACKEND_Input *input;
    const void *from;
    int64_t memory_id = 0;
    uint64_t size;
    int32_t wanted[2] = {0, 0};
    must(TRITONBACKEND_RequestInput(request, "IN", &input));
    must(TRITONBACKEND_InputBuffer(input, 0, &from, &size, &memory, &memory_id));
    if (size == sizeof(wanted))
        memcpy(wanted, from, sizeof(wanted));
    must(TRITONBACKEND_ResponseFactoryNew(&factory, request));
    for (int32_t i = 0; i < wanted[0] && send_one(request, i, wanted[1]); i++) {
    }
    must(TRITONBACKEND_ModelInstanceReportStatistics(instance, request, true, 1, 1, 1, 1));
    goes_on(TRITONBACKEND_ResponseFactorySendFlags(factory, TRITONSERVER_RESPONSE_COMPLETE_FINAL));
    must(TRITONBACKEND_ResponseFactoryDelete(factory));
    must(TRITONBACKEND_RequestRelease(request, TRITONSERVER_REQUEST_RELEASE_ALL));
}

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceExecute(TRITONBACKEND_ModelInstance *instance,
                                                       TRITONBACKEND_Request **requests,
                                                       const uint32_t request_count)
{
    for (uint32_t i = 0; i < request_count; i++)
        execute_one(instance, requests[i]);
    return NULL;
}
