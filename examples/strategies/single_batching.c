/* SPDX-License-Identifier: Apache-2.0 */
/* single_batching - the smallest batching library: each request is executed alone. */
#include <stdlib.h>

#include "triton/core/tritonbackend.h"

/* Nothing is kept for the model: the batcher remains NULL. */
TRITONSERVER_Error *TRITONBACKEND_ModelBatcherInitialize(TRITONBACKEND_Batcher **batcher,
                                                         TRITONBACKEND_Model *model)
{
    (void)batcher;
    (void)model;
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelBatcherFinalize(TRITONBACKEND_Batcher *batcher)
{
    (void)batcher;
    return NULL;
}

/* Of a batch: how many requests are in it. */
TRITONSERVER_Error *TRITONBACKEND_ModelBatchInitialize(const TRITONBACKEND_Batcher *batcher,
                                                       void **userp)
{
    (void)batcher;
    *userp = calloc(1, sizeof(unsigned int));
    if (!*userp)
        return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_UNAVAILABLE, "no memory for a batch");
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelBatchIncludeRequest(TRITONBACKEND_Request *request,
                                                           void *userp, bool *should_include)
{
    unsigned int *n = userp;
    (void)request;
    *should_include = (*n)++ == 0;
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelBatchFinalize(void *userp)
{
    free(userp);
    return NULL;
}
