/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A library that is no repository agent: it lacks TRITONREPOAGENT_ModelAction.
 */
#include "triton/core/tritonrepoagent.h"

TRITONSERVER_Error *TRITONREPOAGENT_Initialize(TRITONREPOAGENT_Agent *agent)
{
    (void)agent;
    return NULL;
}
