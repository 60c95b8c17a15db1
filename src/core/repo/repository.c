/* SPDX-License-Identifier: Apache-2.0 */
#include "core/repo/repository.h"

#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "core/model_priv.h"
#include "core/repo/storage.h"
#include "core/repo/table.h"

enum { REPOSITORY_LEVEL = 100 };

const char *version_state_name(enum version_state state)
{
    static const char *const names[] = {"UNKNOWN", "LOADING", "READY", "UNLOADING", "UNAVAILABLE"};
    return names[state];
}

void repository_init(struct repository *repo, struct server *server,
                     struct backend_registry *backends, const struct server_options *options)
{
    memset(repo, 0, sizeof(*repo));
    repo->server = server;
    repo->backends = backends;
    repo->options = options;
    mutex_init(&repo->mu, REPOSITORY_LEVEL, "repository.mu");
}

struct status *repository_open(struct repository *repo)
{
    return roots_open(repo->options, &repo->roots);
}

static void forget(struct repo_model *rm)
{
    for (size_t i = 0; i < rm->n_versions; i++)
        mem_free(rm->versions[i].reason);
    mem_free(rm->versions);
    mem_free(rm->failure);
    storage_release(rm->storage, rm->directory);
    if (rm->title != rm->name)
        mem_free(rm->title);
    mem_free(rm->name);
}

void repository_done(struct repository *repo)
{
    table_free(snapshot_replace(&repo->table, NULL));
    for (size_t i = 0; i < repo->n_models; i++)
        forget(&repo->models[i]);
    mem_free(repo->models);
    roots_close(&repo->roots);
    mutex_done(&repo->mu);
}

void repository_set_state(struct repository *repo, struct repo_version *rv,
                          enum version_state state, struct model *m, const char *reason)
{
    mutex_lock(&repo->mu);
    rv->state = state;
    rv->model = m;
    mem_free(rv->reason);
    rv->reason = mem_strdup(reason);
    mutex_unlock(&repo->mu);
}

/* ---- Looking models up ---------------------------------------------------------------------- */

struct status *repository_find(struct repository *repo, const char *name, size_t name_length,
                               int64_t version, struct model **ret_model)
{
    struct model *m = NULL;
    const struct table *t = snapshot_enter(&repo->table);
    struct status *st = table_find(t, name, name_length, version, &m);
    if (!st)
        model_ref(m);
    snapshot_leave();
    if (st)
        return st;
    *ret_model = m;
    return NULL;
}

struct status *repository_versions(struct repository *repo, const char *name, size_t name_length,
                                   int64_t **ret_versions, size_t *ret_n)
{
    const struct table *t = snapshot_enter(&repo->table);
    struct status *st = table_versions(t, name, name_length, ret_versions, ret_n);
    snapshot_leave();
    return st;
}

struct status *repository_serving(struct repository *repo, const char *name, size_t name_length,
                                  int64_t version, struct model ***ret_models)
{
    const struct table *t = snapshot_enter(&repo->table);
    struct status *st = table_serving(t, name, name_length, version, ret_models);
    snapshot_leave();
    return st;
}

/* ---- All of them ---------------------------------------------------------------------------- */

/*
 * Each READY model version, with a reference, so that whoever asks backends need not hold the
 * lock. Ends with NULL; the caller frees.
 */
static struct model **ready_models(struct repository *repo)
{
    mutex_lock(&repo->mu);
    size_t n = 0, capacity = 1;
    for (size_t i = 0; i < repo->n_models; i++)
        capacity += repo->models[i].n_versions;
    struct model **models = mem_zalloc(capacity * sizeof(struct model *));
    for (size_t i = 0; i < repo->n_models; i++) {
        const struct repo_model *rm = &repo->models[i];
        for (size_t j = 0; j < rm->n_versions; j++) {
            if (rm->versions[j].state != VERSION_READY)
                continue;
            model_ref(rm->versions[j].model);
            models[n++] = rm->versions[j].model;
        }
    }
    mutex_unlock(&repo->mu);
    return models;
}

void repository_unref_models(struct model **models)
{
    for (size_t i = 0; models[i]; i++)
        model_unref(models[i]);
    mem_free(models);
}

struct model **repository_unable(struct repository *repo, size_t max)
{
    if (!atomic_load_explicit(&repo->must_ask, memory_order_relaxed))
        return mem_zalloc(sizeof(struct model *));
    struct model **models = ready_models(repo);
    size_t n = 0;
    for (size_t i = 0; models[i]; i++) {
        struct model *m = models[i];
        if (n < max && !model_is_ready_to_run(m))
            models[n++] = m;
        else
            model_unref(m);
    }
    models[n] = NULL;
    return models;
}

bool repository_all_ready(struct repository *repo)
{
    if (atomic_load_explicit(&repo->n_unserved, memory_order_relaxed) > 0)
        return false;
    if (!atomic_load_explicit(&repo->must_ask, memory_order_relaxed))
        return true;
    struct model **unable = repository_unable(repo, 1);
    bool all_ready = !unable[0];
    repository_unref_models(unable);
    return all_ready;
}

void repository_stop_loading(struct repository *repo)
{
    atomic_store(&repo->stopping, true);
    struct model **models = ready_models(repo);
    for (size_t i = 0; models[i]; i++)
        model_hurry(models[i]);
    repository_unref_models(models);
}

void repository_stop(struct repository *repo)
{
    repository_stop_loading(repo);
    struct model **models = ready_models(repo);
    for (size_t i = 0; models[i]; i++)
        model_stop(models[i]);
    repository_unref_models(models);
}

size_t repository_inflight(struct repository *repo, bool log_them)
{
    size_t n = 0;
    struct model **models = ready_models(repo);
    for (size_t i = 0; models[i]; i++) {
        unsigned int inflight = atomic_load(&models[i]->inflight);
        n += inflight > 0;
        if (inflight && log_them)
            log_info("Model '%s' (version %s) has %u in-flight inferences", models[i]->name,
                     models[i]->version_text, inflight);
    }
    repository_unref_models(models);
    return n;
}

void repository_unload_all(struct repository *repo)
{
    table_free(snapshot_replace(&repo->table, NULL));
    for (size_t i = 0; i < repo->n_models; i++) {
        struct repo_model *rm = &repo->models[i];
        for (size_t j = 0; j < rm->n_versions; j++) {
            struct repo_version *rv = &rm->versions[j];
            struct model *m = rv->model;
            if (!m)
                continue;
            repository_set_state(repo, rv, VERSION_UNLOADING, m, "");
            model_unload(m, repo->backends);
            repository_set_state(repo, rv, VERSION_UNAVAILABLE, NULL, "unloaded");
            log_info("successfully unloaded '%s' version %lld", rm->title, (long long)rv->version);
            model_unref(m);
        }
    }
}
