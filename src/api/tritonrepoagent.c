/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tritonrepoagent.h: the server's functions for repository agents. Thin: each function checks its
 * arguments, and reads or calls the core.
 */
#include "api/handles.h"
#include "base/status.h"
#include "documents/documents.h"

TRITONSERVER_Error *TRITONREPOAGENT_ApiVersion(uint32_t *major, uint32_t *minor)
{
    NEED(major);
    NEED(minor);
    *major = TRITONREPOAGENT_API_VERSION_MAJOR;
    *minor = TRITONREPOAGENT_API_VERSION_MINOR;
    return NULL;
}

/* ---- A model's files ------------------------------------------------------------------------- */

TRITONSERVER_Error *TRITONREPOAGENT_ModelRepositoryLocation(
    TRITONREPOAGENT_Agent *agent, TRITONREPOAGENT_AgentModel *model,
    TRITONREPOAGENT_ArtifactType *artifact_type, const char **location)
{
    enum agent_artifact type;
    NEED(agent);
    NEED(model);
    NEED(artifact_type);
    NEED(location);
    *location = agent_model_location(to_agent_model(model), &type);
    *artifact_type = (TRITONREPOAGENT_ArtifactType)type;
    return NULL;
}

TRITONSERVER_Error *TRITONREPOAGENT_ModelRepositoryLocationAcquire(
    TRITONREPOAGENT_Agent *agent, TRITONREPOAGENT_AgentModel *model,
    const TRITONREPOAGENT_ArtifactType artifact_type, const char **location)
{
    NEED(agent);
    NEED(model);
    NEED(location);
    return as_status(agent_model_acquire(to_agent_model(model), artifact_type, location));
}

TRITONSERVER_Error *TRITONREPOAGENT_ModelRepositoryLocationRelease(
    TRITONREPOAGENT_Agent *agent, TRITONREPOAGENT_AgentModel *model, const char *location)
{
    NEED(agent);
    NEED(model);
    NEED(location);
    return as_status(agent_model_release(to_agent_model(model)));
}

TRITONSERVER_Error *TRITONREPOAGENT_ModelRepositoryUpdate(
    TRITONREPOAGENT_Agent *agent, TRITONREPOAGENT_AgentModel *model,
    const TRITONREPOAGENT_ArtifactType artifact_type, const char *location)
{
    NEED(agent);
    NEED(model);
    NEED(location);
    return as_status(agent_model_update(to_agent_model(model), artifact_type, location));
}

/* ---- A model's configuration ----------------------------------------------------------------- */

TRITONSERVER_Error *TRITONREPOAGENT_ModelParameterCount(TRITONREPOAGENT_Agent *agent,
                                                        TRITONREPOAGENT_AgentModel *model,
                                                        uint32_t *count)
{
    NEED(agent);
    NEED(model);
    NEED(count);
    *count = agent_model_n_parameters(to_agent_model(model));
    return NULL;
}

TRITONSERVER_Error *TRITONREPOAGENT_ModelParameter(TRITONREPOAGENT_Agent *agent,
                                                   TRITONREPOAGENT_AgentModel *model,
                                                   const uint32_t index,
                                                   const char **parameter_name,
                                                   const char **parameter_value)
{
    NEED(agent);
    NEED(model);
    NEED(parameter_name);
    NEED(parameter_value);
    if (!agent_model_parameter(to_agent_model(model), index, parameter_name, parameter_value))
        return as_status(status_new(STATUS_INVALID_ARG, "index out of range for model parameters"));
    return NULL;
}

TRITONSERVER_Error *TRITONREPOAGENT_ModelConfig(TRITONREPOAGENT_Agent *agent,
                                                TRITONREPOAGENT_AgentModel *model,
                                                const uint32_t config_version,
                                                TRITONSERVER_Message **model_config)
{
    char *json;
    size_t size;
    NEED(agent);
    NEED(model);
    NEED(model_config);
    struct status *st = document_check_config_version(config_version);
    if (!st)
        st = agent_model_config(to_agent_model(model), &json, &size);
    if (st)
        return as_status(st);
    *model_config = as_message(json_message_new(json, size));
    return NULL;
}

/* ---- The agent's own pointers ---------------------------------------------------------------- */

TRITONSERVER_Error *TRITONREPOAGENT_ModelState(TRITONREPOAGENT_AgentModel *model, void **state)
{
    NEED(model);
    NEED(state);
    *state = agent_model_state(to_agent_model(model));
    return NULL;
}

TRITONSERVER_Error *TRITONREPOAGENT_ModelSetState(TRITONREPOAGENT_AgentModel *model, void *state)
{
    NEED(model);
    agent_model_set_state(to_agent_model(model), state);
    return NULL;
}

TRITONSERVER_Error *TRITONREPOAGENT_State(TRITONREPOAGENT_Agent *agent, void **state)
{
    NEED(agent);
    NEED(state);
    *state = to_repo_agent(agent)->state;
    return NULL;
}

TRITONSERVER_Error *TRITONREPOAGENT_SetState(TRITONREPOAGENT_Agent *agent, void *state)
{
    NEED(agent);
    to_repo_agent(agent)->state = state;
    return NULL;
}
