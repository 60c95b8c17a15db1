/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One model in the hands of one agent. Its texts live in an arena until the end, also the locations
 * that the agent has replaced: the agent may still have a pointer to them. The texts of errors are
 * the reference's, since agents are compiled for both servers.
 */
#include "core/agents/agent_model.h"

#include <string.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/status.h"
#include "core/config/config.h"
#include "core/storage/source.h"

enum { MAX_TEXTS_BYTES = 64 << 20, MAX_JSON_BYTES = 1 << 30 /* of a text of CONFIG_MAX_BYTES */ };

/* How far the model is: the last action, or that none has begun. */
enum agent_stage {
    STAGE_NEW,
    STAGE_LOAD,
    STAGE_LOAD_COMPLETE,
    STAGE_LOAD_FAIL,
    STAGE_UNLOAD,
    STAGE_UNLOAD_COMPLETE
};

struct agent_parameter {
    const char *name, *value;
};

struct agent_model {
    struct arena arena;
    struct repo_agent *agent;
    const char *name;
    uint32_t n_parameters;
    struct agent_parameter *parameters;
    const char *json;
    size_t json_bytes;
    bool entered; /* ModelInitialize has been called, if there is one: ModelFinalize is due */
    enum agent_stage stage;

    enum agent_artifact type;
    const char *location;
    bool moved;
    char *acquired_root; /* NULL: it has no folder of its own */
    const char *acquired;

    void *state; /* the agent's own */
};

static const char *const stage_names[] = {
    [STAGE_NEW] = "not set",
    [STAGE_LOAD] = "TRITONREPOAGENT_ACTION_LOAD",
    [STAGE_LOAD_COMPLETE] = "TRITONREPOAGENT_ACTION_LOAD_COMPLETE",
    [STAGE_LOAD_FAIL] = "TRITONREPOAGENT_ACTION_LOAD_FAIL",
    [STAGE_UNLOAD] = "TRITONREPOAGENT_ACTION_UNLOAD",
    [STAGE_UNLOAD_COMPLETE] = "TRITONREPOAGENT_ACTION_UNLOAD_COMPLETE",
};

static const char *copy_agent_text(struct agent_model *m, const char *text)
{
    return arena_strndup(&m->arena, text, strlen(text));
}

/* ---- What the agent asks for ---------------------------------------------------------------- */

const char *agent_model_location(const struct agent_model *m, enum agent_artifact *ret_type)
{
    *ret_type = m->type;
    return m->location;
}

struct status *agent_model_acquire(struct agent_model *m, unsigned int type,
                                   const char **ret_location)
{
    if (type != AGENT_FILESYSTEM)
        return status_new(STATUS_INVALID_ARG, "Unexpected artifact type, expects "
                                              "'TRITONREPOAGENT_ARTIFACT_FILESYSTEM'");
    if (!m->acquired_root) {
        char *root, *folder;
        struct status *st = source_temporary_new(m->name, &root, &folder);
        if (st)
            return st;
        m->acquired = copy_agent_text(m, folder);
        mem_free(folder);
        if (!m->acquired) {
            source_temporary_free(root);
            return status_no_memory();
        }
        m->acquired_root = root;
    }
    *ret_location = m->acquired;
    return NULL;
}

struct status *agent_model_release(struct agent_model *m)
{
    if (!m->acquired_root)
        return status_new(STATUS_UNAVAILABLE, "No mutable location to be deleted");
    source_temporary_free(TAKE(m->acquired_root));
    return NULL;
}

struct status *agent_model_update(struct agent_model *m, unsigned int type, const char *location)
{
    if (m->stage != STAGE_LOAD)
        return status_new(STATUS_INVALID_ARG,
                          "location can only be updated during TRITONREPOAGENT_ACTION_LOAD, "
                          "current action type is %s",
                          stage_names[m->stage]);
    if (type != AGENT_FILESYSTEM && type != AGENT_REMOTE_FILESYSTEM)
        return status_new(STATUS_INVALID_ARG, "unknown artifact type %u", type);
    const char *copy = copy_agent_text(m, location);
    if (!copy)
        return status_no_memory();
    m->location = copy;
    m->type = type == AGENT_FILESYSTEM ? AGENT_FILESYSTEM : AGENT_REMOTE_FILESYSTEM;
    m->moved = true;
    return NULL;
}

uint32_t agent_model_n_parameters(const struct agent_model *m)
{
    return m->n_parameters;
}

bool agent_model_parameter(const struct agent_model *m, uint32_t index, const char **ret_name,
                           const char **ret_value)
{
    if (index >= m->n_parameters)
        return false;
    *ret_name = m->parameters[index].name;
    *ret_value = m->parameters[index].value;
    return true;
}

struct status *agent_model_config(const struct agent_model *m, char **ret_json, size_t *ret_size)
{
    char *json = mem_try_alloc(m->json_bytes + 1);
    if (!json)
        return status_no_memory();
    memcpy(json, m->json, m->json_bytes + 1);
    *ret_json = json;
    *ret_size = m->json_bytes;
    return NULL;
}

void *agent_model_state(const struct agent_model *m)
{
    return m->state;
}

void agent_model_set_state(struct agent_model *m, void *state)
{
    m->state = state;
}

/* ---- Its life -------------------------------------------------------------------------------- */

static bool copy_parameters(struct agent_model *m,
                            const Inference__ModelRepositoryAgents__Agent *use)
{
    m->parameters = arena_alloc(&m->arena, (use->n_parameters + 1) * sizeof(*m->parameters));
    if (!m->parameters)
        return false;
    for (size_t i = 0; i < use->n_parameters; i++) {
        struct agent_parameter *p = &m->parameters[i];
        p->name = copy_agent_text(m, use->parameters[i]->key);
        p->value = copy_agent_text(m, use->parameters[i]->value);
        if (!p->name || !p->value)
            return false;
    }
    m->n_parameters = (uint32_t)use->n_parameters;
    return true;
}

static struct status *print_config(struct agent_model *m, const struct model_config *config)
{
    AUTO(buf) json = BUF_INIT(MAX_JSON_BYTES);
    model_config_print_json(config, &json);
    struct status *st = buf_status(&json);
    if (st)
        return st;
    m->json = arena_strndup(&m->arena, buf_text(&json), json.size);
    m->json_bytes = json.size;
    return m->json ? NULL : status_no_memory();
}

struct status *agent_model_new(struct repo_agent *agent,
                               const Inference__ModelRepositoryAgents__Agent *use,
                               const struct model_config *config, const char *name,
                               enum agent_artifact type, const char *location,
                               struct agent_model **ret_model)
{
    struct agent_model *m = mem_zalloc(sizeof(*m));
    arena_init(&m->arena, NULL, 0, MAX_TEXTS_BYTES, NULL, NULL);
    m->type = type;
    m->name = copy_agent_text(m, name);
    m->location = copy_agent_text(m, location);
    struct status *st = NULL;
    if (!m->name || !m->location || !copy_parameters(m, use))
        st = status_no_memory();
    if (!st)
        st = print_config(m, config);
    if (st) {
        agent_model_free(NULL, m);
        return st;
    }
    m->agent = agent; /* taken */
    *ret_model = m;
    return NULL;
}

struct status *agent_model_begin(struct agent_model *m)
{
    m->entered = true; /* whatever it returns, as in the reference */
    return m->agent->fns.model_initialize ? m->agent->fns.model_initialize(m->agent, m) : NULL;
}

static bool may_follow(enum agent_stage stage, enum agent_action action)
{
    switch (action) {
    case AGENT_LOAD:
        return stage == STAGE_NEW;
    case AGENT_LOAD_COMPLETE:
    case AGENT_LOAD_FAIL:
        return stage == STAGE_LOAD;
    case AGENT_UNLOAD:
        return stage == STAGE_LOAD_COMPLETE;
    case AGENT_UNLOAD_COMPLETE:
        return stage == STAGE_UNLOAD;
    }
    return false;
}

struct status *agent_model_act(struct agent_model *m, enum agent_action action)
{
    static const enum agent_stage stages[] = {
        [AGENT_LOAD] = STAGE_LOAD,
        [AGENT_LOAD_COMPLETE] = STAGE_LOAD_COMPLETE,
        [AGENT_LOAD_FAIL] = STAGE_LOAD_FAIL,
        [AGENT_UNLOAD] = STAGE_UNLOAD,
        [AGENT_UNLOAD_COMPLETE] = STAGE_UNLOAD_COMPLETE,
    };
    if (!may_follow(m->stage, action))
        return NULL;
    m->stage = stages[action]; /* whatever it returns: the agent has seen it */
    return m->agent->fns.model_action(m->agent, m, action);
}

void agent_model_end(struct agent_model *m)
{
    if (m->entered && m->agent->fns.model_finalize)
        log_status(LOG_ERROR, "failed to finalize a model in its repository agent",
                   m->agent->fns.model_finalize(m->agent, m));
    m->entered = false;
    if (m->acquired_root)
        source_temporary_free(TAKE(m->acquired_root));
}

bool agent_model_moved(const struct agent_model *m)
{
    return m->moved;
}

const char *agent_model_agent(const struct agent_model *m)
{
    return m->agent->name;
}

void agent_model_free(struct agent_registry *reg, struct agent_model *m)
{
    if (!m)
        return;
    repo_agent_put(reg, m->agent);
    arena_done(&m->arena);
    mem_free(m);
}
