/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Repository agents are shared libraries that take part in loading and unloading models, with the
 * functions of tritonrepoagent.h. A library is loaded once, and shared by all models that name it.
 * It is unloaded when the last of these models is. struct repo_agent is TRITONREPOAGENT_Agent,
 * struct agent_model is TRITONREPOAGENT_AgentModel.
 */
#ifndef CONCH_CORE_AGENTS_REPO_AGENT_H
#define CONCH_CORE_AGENTS_REPO_AGENT_H

#include <stdbool.h>

#include "base/compiler.h"
#include "base/list.h"
#include "base/mutex.h"

struct agent_model;
struct dl;
struct repo_agent;
struct status;

/* What happens to a model; the values are those of TRITONREPOAGENT_ActionType. */
enum agent_action {
    AGENT_LOAD,
    AGENT_LOAD_COMPLETE,
    AGENT_LOAD_FAIL,
    AGENT_UNLOAD,
    AGENT_UNLOAD_COMPLETE
};

/* What an agent implements; only model_action is mandatory, the others may be NULL. */
struct repo_agent_functions {
    struct status *(*initialize)(struct repo_agent *);
    struct status *(*finalize)(struct repo_agent *);
    struct status *(*model_initialize)(struct repo_agent *, struct agent_model *);
    struct status *(*model_finalize)(struct repo_agent *, struct agent_model *);
    struct status *(*model_action)(struct repo_agent *, struct agent_model *, enum agent_action);
};

struct repo_agent {
    /* Constant once loaded. */
    char *name;
    char *library_path;
    struct repo_agent_functions fns;
    struct dl *library;
    bool entered; /* Initialize has been called, if there is one: Finalize is due */

    /* The agent's own, from any of its threads. */
    void *state;

    /* Under agents.mu. */
    struct list link;
    unsigned int users;
    enum { AGENT_LOADING, AGENT_LOADED } stage;
};

/* All agents of a server. */
struct agent_registry {
    const char *directory; /* of all agents, borrowed; constant */

    struct mutex mu; /* level 205 in core/README.md */
    struct cond changed;
    /* Under mu. */
    struct list agents;
    bool has_swept; /* the folders that agents of killed servers have left are removed */
};

/* agent_registry_init - @directory  borrowed; it outlives the registry. */
void agent_registry_init(struct agent_registry *reg, const char *directory);
/* agent_registry_done - all models must be unloaded. */
void agent_registry_done(struct agent_registry *reg);

/*
 * repo_agent_get - the agent of that name, loaded and initialised:
 * <directory>/<name>/libtritonrepoagent_<name>.so. The caller ends its use with repo_agent_put();
 * the end of the last use finalises and unloads it.
 *
 * Thread: agents_call(). Waits while another thread loads the same library.
 * Errors: STATUS_INVALID_ARG  there is no such library
 *         STATUS_NOT_FOUND    it cannot be loaded, or lacks TRITONREPOAGENT_ModelAction
 *         those of TRITONREPOAGENT_Initialize
 */
NODISCARD struct status *repo_agent_get(struct agent_registry *reg, const char *name,
                                        struct repo_agent **ret_agent);
/* repo_agent_put - Thread: agents_call(). NULL is fine. */
void repo_agent_put(struct agent_registry *reg, struct repo_agent *a);

/*
 * repo_agent_print - calls print(arg, name, path) for each loaded agent, under agents.mu.
 */
void repo_agent_print(struct agent_registry *reg,
                      void (*print)(void *arg, const char *name, const char *path), void *arg);

/*
 * agents_call - calls run(arg), which calls agents, on a thread that ends before the function
 * returns: so thread-local data of a library is freed before the library is unloaded. Without room
 * for a thread run(arg) is called on this thread.
 *
 * Thread: control, without locks.
 */
void agents_call(void (*run)(void *arg), void *arg);

#endif
