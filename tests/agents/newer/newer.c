/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A repository agent that is written for a later version of the interface.
 */
#include "triton/core/tritonrepoagent.h"

TRITONSERVER_Error *TRITONREPOAGENT_Initialize(TRITONREPOAGENT_Agent *agent)
{
    uint32_t major = 0, minor = 0;
    (void)agent;
    TRITONSERVER_Error *err = TRITONREPOAGENT_ApiVersion(&major, &minor);
    if (err || major > 0 || minor > TRITONREPOAGENT_API_VERSION_MINOR)
        return err;
    return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_UNSUPPORTED,
                                 "the server's agent API is too old");
}

TRITONSERVER_Error *TRITONREPOAGENT_ModelAction(TRITONREPOAGENT_Agent *agent,
                                                TRITONREPOAGENT_AgentModel *model,
                                                const TRITONREPOAGENT_ActionType action_type)
{
    (void)agent;
    (void)model;
    (void)action_type;
    return NULL;
}
