/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model in the hands of one repository agent: where its files are, the parameters that its
 * configuration has for the agent, and how far it is. This is TRITONREPOAGENT_AgentModel. The first
 * functions are those of the C API.
 *
 * Thread: the one on which the agent is called; texts that an agent has got are valid until
 * ModelFinalize has returned.
 */
#ifndef CONCH_CORE_AGENTS_AGENT_MODEL_H
#define CONCH_CORE_AGENTS_AGENT_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/agents/repo_agent.h"
#include "proto/model_config.pb-c.h"

struct model_config;

/* What is at a location; the values are those of TRITONREPOAGENT_ArtifactType. */
enum agent_artifact { AGENT_FILESYSTEM, AGENT_REMOTE_FILESYSTEM };

struct agent_model;

/* agent_model_location - where the model's files are now; borrowed. */
const char *agent_model_location(const struct agent_model *m, enum agent_artifact *ret_type);

/*
 * agent_model_acquire - an empty folder for the agent, always the same one until its release. It is
 * removed by the release, or after ModelFinalize.
 *
 * Errors: STATUS_INVALID_ARG  the type is another one than AGENT_FILESYSTEM
 *         those of source_temporary_new()
 */
NODISCARD struct status *agent_model_acquire(struct agent_model *m, unsigned int type,
                                             const char **ret_location);

/*
 * agent_model_release - removes that folder.
 *
 * Errors: STATUS_UNAVAILABLE  there is none
 */
NODISCARD struct status *agent_model_release(struct agent_model *m);

/*
 * agent_model_update - the model's files are there from now on. The folder is looked at only after
 * the action.
 *
 * Errors: STATUS_INVALID_ARG  no LOAD is under way, or the type does not exist
 *         STATUS_UNAVAILABLE  no memory
 */
NODISCARD struct status *agent_model_update(struct agent_model *m, unsigned int type,
                                            const char *location);

/* agent_model_n_parameters, agent_model_parameter - those for the agent, in the order of the
 * configuration; the texts are borrowed. False: there is no parameter of that index. */
uint32_t agent_model_n_parameters(const struct agent_model *m);
bool agent_model_parameter(const struct agent_model *m, uint32_t index, const char **ret_name,
                           const char **ret_value);

/*
 * agent_model_config - the configuration as JSON, as the folder has it that the agent before this
 * one has left; the caller frees it with mem_free().
 */
NODISCARD struct status *agent_model_config(const struct agent_model *m, char **ret_json,
                                            size_t *ret_size);

/* agent_model_state - the agent's pointer; NULL at first. */
void *agent_model_state(const struct agent_model *m);
void agent_model_set_state(struct agent_model *m, void *state);

/* ---- For agent_chain.c ---------------------------------------------------------------------- */

/*
 * agent_model_new - a model for an agent that has been loaded; nothing of the agent is called.
 *
 * @agent     taken: agent_model_free() ends its use
 * @use       the part of the configuration that names the agent
 * @name      the model's name; copied, as is the location
 * @config    borrowed; not NULL
 * Errors: STATUS_UNAVAILABLE  no memory
 */
NODISCARD struct status *agent_model_new(struct repo_agent *agent,
                                         const Inference__ModelRepositoryAgents__Agent *use,
                                         const struct model_config *config, const char *name,
                                         enum agent_artifact type, const char *location,
                                         struct agent_model **ret_model);

/* agent_model_begin - calls ModelInitialize. Errors: those of the agent. */
NODISCARD struct status *agent_model_begin(struct agent_model *m);

/*
 * agent_model_act - calls ModelAction, if the model may go there from where it is; else nothing is
 * done. Errors: those of the agent.
 */
NODISCARD struct status *agent_model_act(struct agent_model *m, enum agent_action action);

/* agent_model_end - calls ModelFinalize, if the model has begun, and removes its folder. */
void agent_model_end(struct agent_model *m);

/* agent_model_moved - has the agent called agent_model_update()? */
bool agent_model_moved(const struct agent_model *m);

const char *agent_model_agent(const struct agent_model *m);

/* agent_model_free - NULL is fine. */
void agent_model_free(struct agent_registry *reg, struct agent_model *m);

#endif
