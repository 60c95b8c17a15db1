/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The agents of one load, in the order of the configuration. Each agent gets the location and the
 * configuration that the agent before it has left. A location that is no local folder is not
 * refused here: a later agent may bring the files from there.
 */
#include "core/agents/agent_chain.h"

#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/status.h"
#include "core/agents/agent_model.h"
#include "core/agents/repo_agent.h"
#include "core/config/config.h"

struct agent_chain {
    struct agent_registry *reg;
    char *name; /* the model's */
    size_t n;
    struct agent_model **models;
};

/* What agents_call() is to do, and what it is about. */
struct chain_call {
    struct agent_chain *chain;
    const struct model_config *config; /* of the load */
    const char *location;
    struct status *result;
};

static const Inference__ModelRepositoryAgents *agents_of(const struct model_config *config)
{
    return config->pb->model_repository_agents;
}

bool agent_chain_is_wanted(const struct model_config *config)
{
    return agents_of(config) && agents_of(config)->n_agents > 0;
}

/* ---- Load ------------------------------------------------------------------------------------ */

/* Reads the configuration at the place where an agent has put the files. An agent may leave none,
 * or one that is of no use yet: then it is empty. */
static struct status *read_moved_config(enum agent_artifact type, const char *location,
                                        struct model_config **ret_config)
{
    struct status *st = NULL;
    if (type == AGENT_FILESYSTEM) {
        char *path = mem_printf("%s/config.pbtxt", location);
        st = model_config_read_file(path, ret_config);
        mem_free(path);
        if (!st || status_code(st) == STATUS_UNAVAILABLE)
            return st;
        status_free(st);
    }
    return model_config_parse_text("", 0, "no config.pbtxt", ret_config);
}

/* Makes the model of the next agent in the chain. */
static struct status *add_agent(const struct chain_call *call,
                                const Inference__ModelRepositoryAgents__Agent *use)
{
    struct agent_chain *chain = call->chain;
    struct repo_agent *agent;
    struct status *st = repo_agent_get(chain->reg, use->name, &agent);
    if (st)
        return st;
    enum agent_artifact type = AGENT_FILESYSTEM;
    const char *location = call->location;
    struct model_config *moved = NULL;
    if (chain->n > 0) {
        location = agent_model_location(chain->models[chain->n - 1], &type);
        st = read_moved_config(type, location, &moved);
    }
    if (!st)
        st = agent_model_new(agent, use, moved ? moved : call->config, chain->name, type, location,
                             &chain->models[chain->n]);
    model_config_free(moved);
    if (st)
        repo_agent_put(chain->reg, agent);
    else
        chain->n++;
    return st;
}

static struct status *name_agent(struct status *st, const char *agent)
{
    if (!st)
        return NULL;
    struct status *whole =
        status_new(status_code(st), "%s (repository agent '%s')", status_message(st), agent);
    status_free(st);
    return whole;
}

/* Logs the error of an action that does not refuse anything; the text is the reference's. */
static void act_and_log(struct agent_model *m, enum agent_action action, const char *action_name)
{
    struct status *st = name_agent(agent_model_act(m, action), agent_model_agent(m));
    if (!st)
        return;
    char *reason = status_reason(st);
    log_error("Agent model returns error on %s: %s", action_name, reason);
    mem_free(reason);
    status_free(st);
}

static void act_backwards(struct agent_chain *chain, enum agent_action action,
                          const char *action_name)
{
    for (size_t i = chain->n; i > 0; i--)
        act_and_log(chain->models[i - 1], action, action_name);
}

static void end_last(struct agent_chain *chain)
{
    struct agent_model *m = chain->models[--chain->n];
    act_and_log(m, AGENT_LOAD_FAIL, "TRITONREPOAGENT_ACTION_LOAD_FAIL");
    agent_model_end(m);
    agent_model_free(chain->reg, m);
}

static struct status *load_one_agent(const struct chain_call *call,
                                     const Inference__ModelRepositoryAgents__Agent *use)
{
    struct status *st = add_agent(call, use);
    if (st)
        return st;
    struct agent_model *m = call->chain->models[call->chain->n - 1];
    st = agent_model_begin(m);
    if (!st)
        st = agent_model_act(m, AGENT_LOAD);
    st = name_agent(st, agent_model_agent(m));
    if (st)
        end_last(call->chain); /* before those that have agreed */
    return st;
}

static void run_load(void *arg)
{
    struct chain_call *call = arg;
    const Inference__ModelRepositoryAgents *agents = agents_of(call->config);
    for (size_t i = 0; i < agents->n_agents && !call->result; i++)
        call->result = load_one_agent(call, agents->agents[i]);
}

struct status *agent_chain_load(struct agent_registry *reg, const struct model_config *config,
                                const char *model, const char *location,
                                struct agent_chain **ret_chain)
{
    struct agent_chain *chain = mem_zalloc(sizeof(*chain));
    chain->reg = reg;
    chain->name = mem_strdup(model);
    chain->models = mem_try_zalloc(agents_of(config)->n_agents, sizeof(struct agent_model *));
    if (!chain->models) {
        agent_chain_free(chain);
        return status_no_memory();
    }
    struct chain_call call = {.chain = chain, .config = config, .location = location};
    agents_call(run_load, &call);
    if (call.result) {
        agent_chain_free(chain);
        return call.result;
    }
    *ret_chain = chain;
    return NULL;
}

static const struct agent_model *find_mover(const struct agent_chain *chain)
{
    for (size_t i = chain->n; i > 0; i--) {
        if (agent_model_moved(chain->models[i - 1]))
            return chain->models[i - 1];
    }
    return NULL;
}

struct status *agent_chain_blame(const struct agent_chain *chain, struct status *st)
{
    const struct agent_model *m = find_mover(chain);
    return m ? name_agent(st, agent_model_agent(m)) : st;
}

struct status *agent_chain_location(const struct agent_chain *chain, const char **ret_location)
{
    enum agent_artifact type;
    const struct agent_model *m = find_mover(chain);
    const char *location = m ? agent_model_location(m, &type) : NULL;
    if (m && type != AGENT_FILESYSTEM)
        return agent_chain_blame(
            chain,
            status_new(STATUS_UNSUPPORTED,
                       "location '%s' is in an object store, which is not supported", location));
    *ret_location = location;
    return NULL;
}

/* ---- After the load -------------------------------------------------------------------------- */

static void run_loaded(void *arg)
{
    act_backwards(arg, AGENT_LOAD_COMPLETE, "TRITONREPOAGENT_ACTION_LOAD_COMPLETE");
}

void agent_chain_loaded(struct agent_chain *chain)
{
    if (chain)
        agents_call(run_loaded, chain);
}

static void run_unloading(void *arg)
{
    struct agent_chain *chain = arg;
    for (size_t i = 0; i < chain->n; i++)
        act_and_log(chain->models[i], AGENT_UNLOAD, "TRITONREPOAGENT_ACTION_UNLOAD");
}

void agent_chain_unloading(struct agent_chain *chain)
{
    if (chain)
        agents_call(run_unloading, chain);
}

static void run_end(void *arg)
{
    struct agent_chain *chain = arg;
    act_backwards(chain, AGENT_LOAD_FAIL, "TRITONREPOAGENT_ACTION_LOAD_FAIL");
    run_unloading(chain); /* if nothing has told them: the last step must not come alone */
    act_backwards(chain, AGENT_UNLOAD_COMPLETE, "TRITONREPOAGENT_ACTION_UNLOAD_COMPLETE");
    for (size_t i = 0; i < chain->n; i++)
        agent_model_end(chain->models[i]);
    for (size_t i = 0; i < chain->n; i++)
        agent_model_free(chain->reg, chain->models[i]);
}

void agent_chain_free(struct agent_chain *chain)
{
    if (!chain)
        return;
    if (chain->n > 0)
        agents_call(run_end, chain);
    mem_free(chain->models);
    mem_free(chain->name);
    mem_free(chain);
}
