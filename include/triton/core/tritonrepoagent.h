/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tritonrepoagent.h - what a repository agent is given, and what it has to define.
 *
 * A repository agent is a shared library, libtritonrepoagent_NAME.so. It takes part in loading and
 * unloading the models that name it in `model_repository_agents`: it may check a model's files, or
 * put others in their place (decrypted, unpacked). This is Conch's own text of Triton's interface,
 * agent API version 0.1.
 *
 *     LOAD ──► LOAD_COMPLETE ──► UNLOAD ──► UNLOAD_COMPLETE
 *       └────► LOAD_FAIL
 *
 * An Agent is one use of the library with its own state; an AgentModel is one model on its way
 * through those actions, with the parameters that its configuration gives the agent.
 */
#ifndef TRITON_CORE_TRITONREPOAGENT_H
#define TRITON_CORE_TRITONREPOAGENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "triton/core/tritonserver.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What the server exports, and what the agent exports. */
#define TRITONREPOAGENT_DECLSPEC __attribute__((__visibility__("default")))
#define TRITONREPOAGENT_ISPEC    __attribute__((__visibility__("default")))

struct TRITONREPOAGENT_Agent;
struct TRITONREPOAGENT_AgentModel;

typedef struct TRITONREPOAGENT_Agent TRITONREPOAGENT_Agent;
typedef struct TRITONREPOAGENT_AgentModel TRITONREPOAGENT_AgentModel;

/* ---- Version -------------------------------------------------------------------------------- */

/* As for backends: equal major numbers, and the server's minor number is not smaller. */
#define TRITONREPOAGENT_API_VERSION_MAJOR 0
#define TRITONREPOAGENT_API_VERSION_MINOR 1

/* TRITONREPOAGENT_ApiVersion - the version that the server implements. */
TRITONREPOAGENT_DECLSPEC TRITONSERVER_Error *TRITONREPOAGENT_ApiVersion(uint32_t *major,
                                                                        uint32_t *minor);

/* Where a model's files are. */
typedef enum TRITONREPOAGENT_artifacttype_enum {
    TRITONREPOAGENT_ARTIFACT_FILESYSTEM,       /* a folder */
    TRITONREPOAGENT_ARTIFACT_REMOTE_FILESYSTEM /* a path in an object store */
} TRITONREPOAGENT_ArtifactType;

/* What is happening to a model. */
typedef enum TRITONREPOAGENT_actiontype_enum {
    TRITONREPOAGENT_ACTION_LOAD,          /* it will be loaded; an error refuses it */
    TRITONREPOAGENT_ACTION_LOAD_COMPLETE, /* it has been */
    TRITONREPOAGENT_ACTION_LOAD_FAIL,     /* it could not be; nothing follows */
    TRITONREPOAGENT_ACTION_UNLOAD,        /* it will be unloaded */
    TRITONREPOAGENT_ACTION_UNLOAD_COMPLETE
} TRITONREPOAGENT_ActionType;

/* ---- A model's files ------------------------------------------------------------------------ */

/* TRITONREPOAGENT_ModelRepositoryLocation - where they are now; borrowed from the model. */
TRITONREPOAGENT_DECLSPEC TRITONSERVER_Error *TRITONREPOAGENT_ModelRepositoryLocation(
    TRITONREPOAGENT_Agent *agent, TRITONREPOAGENT_AgentModel *model,
    TRITONREPOAGENT_ArtifactType *artifact_type, const char **location);

/*
 * TRITONREPOAGENT_ModelRepositoryLocationAcquire - a new, empty folder that the agent may fill.
 * It is removed by ModelRepositoryLocationRelease, or with the model.
 * @artifact_type  FILESYSTEM
 * Errors: UNSUPPORTED  any other type
 */
TRITONREPOAGENT_DECLSPEC TRITONSERVER_Error *TRITONREPOAGENT_ModelRepositoryLocationAcquire(
    TRITONREPOAGENT_Agent *agent, TRITONREPOAGENT_AgentModel *model,
    const TRITONREPOAGENT_ArtifactType artifact_type, const char **location);

/* TRITONREPOAGENT_ModelRepositoryLocationRelease - give such a folder back. */
TRITONREPOAGENT_DECLSPEC TRITONSERVER_Error *TRITONREPOAGENT_ModelRepositoryLocationRelease(
    TRITONREPOAGENT_Agent *agent, TRITONREPOAGENT_AgentModel *model, const char *location);

/*
 * TRITONREPOAGENT_ModelRepositoryUpdate - the model is to be loaded from there.
 * In the action LOAD only.
 */
TRITONREPOAGENT_DECLSPEC TRITONSERVER_Error *TRITONREPOAGENT_ModelRepositoryUpdate(
    TRITONREPOAGENT_Agent *agent, TRITONREPOAGENT_AgentModel *model,
    const TRITONREPOAGENT_ArtifactType artifact_type, const char *location);

/* ---- A model's configuration ---------------------------------------------------------------- */

/* TRITONREPOAGENT_ModelParameterCount - number of parameters for this agent. */
TRITONREPOAGENT_DECLSPEC TRITONSERVER_Error *
TRITONREPOAGENT_ModelParameterCount(TRITONREPOAGENT_Agent *agent, TRITONREPOAGENT_AgentModel *model,
                                    uint32_t *count);

/*
 * TRITONREPOAGENT_ModelParameter - one of them; both texts are borrowed from the model.
 * Errors: INVALID_ARG  no such index
 */
TRITONREPOAGENT_DECLSPEC TRITONSERVER_Error *
TRITONREPOAGENT_ModelParameter(TRITONREPOAGENT_Agent *agent, TRITONREPOAGENT_AgentModel *model,
                               const uint32_t index, const char **parameter_name,
                               const char **parameter_value);

/*
 * TRITONREPOAGENT_ModelConfig - the configuration as the model's folder has it, not completed.
 * @config_version  1
 * @model_config    the caller owns it
 */
TRITONREPOAGENT_DECLSPEC TRITONSERVER_Error *
TRITONREPOAGENT_ModelConfig(TRITONREPOAGENT_Agent *agent, TRITONREPOAGENT_AgentModel *model,
                            const uint32_t config_version, TRITONSERVER_Message **model_config);

/* ---- The agent's own pointers --------------------------------------------------------------- */

/* TRITONREPOAGENT_ModelState - its pointer in the model; NULL at first. */
TRITONREPOAGENT_DECLSPEC TRITONSERVER_Error *
TRITONREPOAGENT_ModelState(TRITONREPOAGENT_AgentModel *model, void **state);

/* TRITONREPOAGENT_ModelSetState - set it. */
TRITONREPOAGENT_DECLSPEC TRITONSERVER_Error *
TRITONREPOAGENT_ModelSetState(TRITONREPOAGENT_AgentModel *model, void *state);

/* TRITONREPOAGENT_State - its pointer in the agent; NULL at first. */
TRITONREPOAGENT_DECLSPEC TRITONSERVER_Error *TRITONREPOAGENT_State(TRITONREPOAGENT_Agent *agent,
                                                                   void **state);

/* TRITONREPOAGENT_SetState - set it. */
TRITONREPOAGENT_DECLSPEC TRITONSERVER_Error *TRITONREPOAGENT_SetState(TRITONREPOAGENT_Agent *agent,
                                                                      void *state);

/* ---- What an agent defines: all but ModelAction are optional -------------------------------- */

/* TRITONREPOAGENT_Initialize - the library has been loaded. */
TRITONREPOAGENT_ISPEC TRITONSERVER_Error *TRITONREPOAGENT_Initialize(TRITONREPOAGENT_Agent *agent);

/* TRITONREPOAGENT_Finalize - it will be unloaded. */
TRITONREPOAGENT_ISPEC TRITONSERVER_Error *TRITONREPOAGENT_Finalize(TRITONREPOAGENT_Agent *agent);

/* TRITONREPOAGENT_ModelInitialize - a model that names the agent begins its way. */
TRITONREPOAGENT_ISPEC TRITONSERVER_Error *
TRITONREPOAGENT_ModelInitialize(TRITONREPOAGENT_Agent *agent, TRITONREPOAGENT_AgentModel *model);

/* TRITONREPOAGENT_ModelFinalize - and has come to its end. */
TRITONREPOAGENT_ISPEC TRITONSERVER_Error *
TRITONREPOAGENT_ModelFinalize(TRITONREPOAGENT_Agent *agent, TRITONREPOAGENT_AgentModel *model);

/* TRITONREPOAGENT_ModelAction - this is happening to the model. An error counts in LOAD only. */
TRITONREPOAGENT_ISPEC TRITONSERVER_Error *
TRITONREPOAGENT_ModelAction(TRITONREPOAGENT_Agent *agent, TRITONREPOAGENT_AgentModel *model,
                            const TRITONREPOAGENT_ActionType action_type);

#ifdef __cplusplus
}
#endif

#endif
