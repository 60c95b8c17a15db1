/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The repository agents of one load of a model, in the order of its configuration.
 *
 *     agent_chain_load       LOAD, to each in order; each may move the model's files elsewhere
 *     agent_chain_loaded     LOAD_COMPLETE, last agent first: a version of the load serves
 *     agent_chain_unloading  UNLOAD, first agent first: the versions serve no more
 *     agent_chain_free       UNLOAD_COMPLETE, last agent first: they are unloaded; LOAD_FAIL if
 * none of them has served. Then ModelFinalize, and the folders are removed
 *
 * An agent sees each action once, and in an order that the interface allows, whatever happens.
 *
 * Thread: control, one at a time, without locks; agents are called on a thread of their own
 * (agents_call()). What an agent does with one model does not keep other models waiting.
 */
#ifndef CONCH_CORE_AGENTS_AGENT_CHAIN_H
#define CONCH_CORE_AGENTS_AGENT_CHAIN_H

#include <stdbool.h>

#include "base/compiler.h"

struct agent_chain;
struct agent_registry;
struct model_config;
struct status;

/* agent_chain_is_wanted - does the configuration name an agent? */
bool agent_chain_is_wanted(const struct model_config *config);

/*
 * agent_chain_load - takes the model through the action LOAD of all its agents.
 *
 * @config     as it was read, neither completed nor checked; borrowed
 * @model      its name; for the names of folders
 * @location   the local folder with its files
 * @ret_chain  the caller ends it with agent_chain_free()
 * Errors: those of repo_agent_get(), of ModelInitialize and of LOAD, with the agent's name behind
 *         the agent's text; STATUS_UNAVAILABLE  no memory
 */
NODISCARD struct status *agent_chain_load(struct agent_registry *reg,
                                          const struct model_config *config, const char *model,
                                          const char *location, struct agent_chain **ret_chain);

/*
 * agent_chain_location - where the last agent that has moved the files says that they are now.
 *
 * @ret_location  borrowed; NULL: no agent has moved them
 * Errors: STATUS_UNSUPPORTED  in an object store
 */
NODISCARD struct status *agent_chain_location(const struct agent_chain *chain,
                                              const char **ret_location);

/* agent_chain_blame - adds the name of that agent to the error of using its location, taken. NULL
 * gives NULL. */
NODISCARD struct status *agent_chain_blame(const struct agent_chain *chain, struct status *st);

/* agent_chain_loaded, agent_chain_unloading - NULL is fine, and so is a second call: nothing is
 * done then. The log has the errors of agents, which change nothing. */
void agent_chain_loaded(struct agent_chain *chain);
void agent_chain_unloading(struct agent_chain *chain);

/* agent_chain_free - NULL is fine. */
void agent_chain_free(struct agent_chain *chain);

#endif
