/* SPDX-License-Identifier: Apache-2.0 */
/*
 * volume_batching - a batching library that limits the bytes of all inputs of a batch, by the
 * model's parameter MAX_BATCH_VOLUME_BYTES. A request that alone has more is executed alone.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "triton/core/tritonbackend.h"

#define TRY(call)                                                                                  \
    do {                                                                                           \
        TRITONSERVER_Error *try_err = (call);                                                      \
        if (try_err)                                                                               \
            return try_err;                                                                        \
    } while (0)

struct batcher {
    uint64_t max_bytes;
};

struct batch {
    uint64_t max_bytes, bytes;
    bool has_any;
};

/* The configuration is JSON without blanks; a number in quotes is what a parameter looks like. */
static TRITONSERVER_Error *read_limit(const char *json, size_t size, uint64_t *ret_bytes)
{
    static const char key[] = "\"MAX_BATCH_VOLUME_BYTES\":{\"string_value\":\"";
    char *copy = strndup(json, size), *value = copy ? strstr(copy, key) : NULL, *end = NULL;
    TRITONSERVER_Error *error = NULL;

    errno = 0;
    if (value) {
        value += strlen(key);
        *ret_bytes = strtoull(value, &end, 10);
    }
    if (!value || *value < '0' || *value > '9' || *end != '"' || errno)
        error = TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INVALID_ARG,
                                      "the parameter MAX_BATCH_VOLUME_BYTES must be a number");
    free(copy);
    return error;
}

TRITONSERVER_Error *TRITONBACKEND_ModelBatcherInitialize(TRITONBACKEND_Batcher **batcher,
                                                         TRITONBACKEND_Model *model)
{
    TRITONSERVER_Message *message;
    TRITONSERVER_Error *error;
    uint64_t max_bytes = 0;
    const char *json;
    size_t size;

    TRY(TRITONBACKEND_ModelConfig(model, 1, &message));
    error = TRITONSERVER_MessageSerializeToJson(message, &json, &size);
    if (!error)
        error = read_limit(json, size, &max_bytes);
    TRITONSERVER_MessageDelete(message);
    if (error)
        return error;

    struct batcher *b = malloc(sizeof(*b));
    if (!b)
        return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_UNAVAILABLE, "no memory for a batcher");
    b->max_bytes = max_bytes;
    *batcher = (TRITONBACKEND_Batcher *)b;
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelBatcherFinalize(TRITONBACKEND_Batcher *batcher)
{
    free(batcher);
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelBatchInitialize(const TRITONBACKEND_Batcher *batcher,
                                                       void **userp)
{
    struct batch *b = calloc(1, sizeof(*b));
    if (!b)
        return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_UNAVAILABLE, "no memory for a batch");
    b->max_bytes = ((const struct batcher *)batcher)->max_bytes;
    *userp = b;
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelBatchIncludeRequest(TRITONBACKEND_Request *request,
                                                           void *userp, bool *should_include)
{
    struct batch *b = userp;
    uint64_t sum = b->bytes;
    uint32_t n;

    TRY(TRITONBACKEND_RequestInputCount(request, &n));
    for (uint32_t i = 0; i < n; i++) {
        TRITONBACKEND_Input *input;
        uint64_t size;
        TRY(TRITONBACKEND_RequestInputByIndex(request, i, &input));
        TRY(TRITONBACKEND_InputProperties(input, NULL, NULL, NULL, NULL, &size, NULL));
        sum += size;
    }
    *should_include = !b->has_any || sum <= b->max_bytes;
    if (*should_include) {
        b->has_any = true;
        b->bytes = sum;
    }
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelBatchFinalize(void *userp)
{
    free(userp);
    return NULL;
}
