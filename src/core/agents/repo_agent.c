/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The registry of the libraries of agents. The first thread that asks for a library loads and
 * initialises it, without a lock (its Initialize may take any time). Other threads that want the
 * same library wait for the result.
 */
#include "core/agents/repo_agent.h"

#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>

#include "base/dl.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/status.h"
#include "base/thread.h"
#include "core/storage/source.h"

enum { AGENTS_LEVEL = 205 };

/* Agents have run on a thread that goes on, and that may have their thread-local data: from then on
 * no library is unloaded. Relaxed: set before the calls whose results are handed on. */
static atomic_bool keeps_libraries;

void agents_call(void (*run)(void *arg), void *arg)
{
    struct status *st = thread_call("repo-agent", run, arg);
    if (!st)
        return;
    log_status(LOG_WARN, "repository agents are called on a thread that goes on", st);
    atomic_store_explicit(&keeps_libraries, true, memory_order_relaxed);
    run(arg);
}

void agent_registry_init(struct agent_registry *reg, const char *directory)
{
    *reg = (struct agent_registry){.directory = directory};
    mutex_init(&reg->mu, AGENTS_LEVEL, "agents.mu");
    cond_init(&reg->changed);
    list_init(&reg->agents);
}

void agent_registry_done(struct agent_registry *reg)
{
    BUG_ON(!list_empty(&reg->agents));
    cond_done(&reg->changed);
    mutex_done(&reg->mu);
}

/* ---- One library ----------------------------------------------------------------------------- */

static struct status *resolve_agent_functions(struct repo_agent *a)
{
    a->fns = (struct repo_agent_functions){0};
    *(void **)&a->fns.initialize = dl_optional_symbol(a->library, "TRITONREPOAGENT_Initialize");
    *(void **)&a->fns.finalize = dl_optional_symbol(a->library, "TRITONREPOAGENT_Finalize");
    *(void **)&a->fns.model_initialize =
        dl_optional_symbol(a->library, "TRITONREPOAGENT_ModelInitialize");
    *(void **)&a->fns.model_finalize =
        dl_optional_symbol(a->library, "TRITONREPOAGENT_ModelFinalize");
    return dl_symbol(a->library, "TRITONREPOAGENT_ModelAction", (void **)&a->fns.model_action);
}

static struct status *open_agent(struct repo_agent *a)
{
    dl_offer_self(); /* agents that do not name the server's library then find its functions */
    struct status *st = dl_open(a->library_path, &a->library);
    if (!st)
        st = resolve_agent_functions(a);
    if (st)
        return st;
    a->entered = true; /* whatever Initialize returns, as with backends */
    return a->fns.initialize ? a->fns.initialize(a) : NULL;
}

/* Without a lock; nothing else calls the agent any more. */
static void close_agent(struct repo_agent *a)
{
    if (a->entered && a->fns.finalize)
        log_status(LOG_ERROR, "failed to finalize repository agent", a->fns.finalize(a));
    if (a->library && atomic_load_explicit(&keeps_libraries, memory_order_relaxed))
        (void)dl_stay(a->library);
    else
        dl_close(a->library);
}

/* ---- All libraries --------------------------------------------------------------------------- */

/* The name of a library is a file's name: it leads nowhere else. The text is the reference's. */
static struct status *find_library(const struct agent_registry *reg, const char *name,
                                   char **ret_path)
{
    struct stat info;
    char *path = mem_printf("%s/%s/libtritonrepoagent_%s.so", reg->directory, name, name);
    bool fits = *name && !strchr(name, '/') && strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
    if (fits && stat(path, &info) == 0 && S_ISREG(info.st_mode)) {
        *ret_path = path;
        return NULL;
    }
    mem_free(path);
    return status_new(STATUS_INVALID_ARG,
                      "unable to find 'libtritonrepoagent_%s.so' for repo agent '%s', searched: %s",
                      name, name, reg->directory);
}

static struct repo_agent *find_agent_locked(struct agent_registry *reg, const char *path)
{
    LIST_FOR_EACH (link, &reg->agents) {
        struct repo_agent *a = LIST_ENTRY(link, struct repo_agent, link);
        if (strcmp(a->library_path, path) == 0)
            return a;
    }
    return NULL;
}

/* Drops one use; the last one ends the agent. It stays in the list meanwhile, as loading, so that
 * no thread loads its library again before. */
static void put_agent_locked(struct agent_registry *reg, struct repo_agent *a)
{
    mutex_assert_held(&reg->mu);
    if (--a->users > 0)
        return;
    a->stage = AGENT_LOADING;
    mutex_unlock(&reg->mu);
    close_agent(a);
    mutex_lock(&reg->mu);
    list_remove(&a->link);
    cond_broadcast(&reg->changed);
    mem_free(a->name);
    mem_free(a->library_path);
    mem_free(a);
}

struct status *repo_agent_get(struct agent_registry *reg, const char *name,
                              struct repo_agent **ret_agent)
{
    char *path = NULL;
    struct status *st = find_library(reg, name, &path);
    if (st)
        return st;
    mutex_lock(&reg->mu);
    struct repo_agent *a;
    while ((a = find_agent_locked(reg, path)) && a->stage == AGENT_LOADING)
        cond_wait(&reg->changed, &reg->mu);
    if (a) {
        a->users++;
        mutex_unlock(&reg->mu);
        mem_free(path);
        *ret_agent = a;
        return NULL;
    }
    bool sweeps = !reg->has_swept;
    reg->has_swept = true;
    a = mem_zalloc(sizeof(*a));
    a->name = mem_strdup(name);
    a->library_path = path;
    a->users = 1;
    list_push(&reg->agents, &a->link);
    mutex_unlock(&reg->mu);

    if (sweeps)
        source_sweep();
    log_verbose(1, "loading repository agent '%s' from %s", name, path);
    st = open_agent(a);

    mutex_lock(&reg->mu);
    if (st) {
        put_agent_locked(reg, a);
    } else {
        a->stage = AGENT_LOADED;
        cond_broadcast(&reg->changed);
    }
    mutex_unlock(&reg->mu);
    if (!st)
        *ret_agent = a;
    return st;
}

void repo_agent_put(struct agent_registry *reg, struct repo_agent *a)
{
    if (!a)
        return;
    mutex_lock(&reg->mu);
    put_agent_locked(reg, a);
    mutex_unlock(&reg->mu);
}

void repo_agent_print(struct agent_registry *reg,
                      void (*print)(void *arg, const char *name, const char *path), void *arg)
{
    mutex_lock(&reg->mu);
    LIST_FOR_EACH (link, &reg->agents) {
        const struct repo_agent *a = LIST_ENTRY(link, struct repo_agent, link);
        if (a->stage == AGENT_LOADED)
            print(arg, a->name, a->library_path);
    }
    mutex_unlock(&reg->mu);
}
