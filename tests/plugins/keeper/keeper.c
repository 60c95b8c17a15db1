/* SPDX-License-Identifier: Apache-2.0 */
/*
 * keeper - a backend that leaks what the server made for it: the message with the configuration,
 * once per model and once per instance.
 */
#include "triton/core/tritonbackend.h"

static TRITONSERVER_Error *keep(TRITONBACKEND_Model *model)
{
    TRITONSERVER_Message *config;
    return TRITONBACKEND_ModelConfig(model, 1, &config);
}

TRITONSERVER_Error *TRITONBACKEND_ModelInitialize(TRITONBACKEND_Model *model)
{
    return keep(model);
}

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceInitialize(TRITONBACKEND_ModelInstance *instance)
{
    TRITONBACKEND_Model *model;
    TRITONSERVER_Error *err = TRITONBACKEND_ModelInstanceModel(instance, &model);
    return err ? err : keep(model);
}

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceExecute(TRITONBACKEND_ModelInstance *instance,
                                                       TRITONBACKEND_Request **requests,
                                                       const uint32_t count)
{
    (void)instance;
    for (uint32_t i = 0; i < count; i++)
        TRITONSERVER_ErrorDelete(
            TRITONBACKEND_RequestRelease(requests[i], TRITONSERVER_REQUEST_RELEASE_ALL));
    return NULL;
}
