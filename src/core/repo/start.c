/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loading the models at the start. Several threads share the work: each takes the next model, and
 * owns it until it is settled. No other thread changes models meanwhile.
 */
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/status.h"
#include "core/options/server_options.h"
#include "core/repo/repository_priv.h"
#include "core/storage/source.h"
#include "core/storage/storage.h"
#include "core/threads/load_slot.h"

enum { MAX_ERROR_BYTES = 1 << 20 };

struct loader {
    struct repository *repo;
    size_t n_models;
    struct repo_model **models;
};

/* ---- Which models ---------------------------------------------------------------------------- */

static bool is_loading_all_models(const struct server_options *o)
{
    return o->control_mode != CONTROL_EXPLICIT ||
           (o->n_startup_models == 1 && strcmp(o->startup_models[0], "*") == 0);
}

static struct repo_model *describe_listed(const struct repository *repo, struct listed_model *pm)
{
    struct repo_model *rm = repository_model_new(repo, pm->name, pm->storage);
    rm->wanted = true;
    rm->duplicate = pm->duplicate;
    rm->failure = TAKE(pm->failure);
    rm->stage = rm->failure ? REPO_SETTLED : REPO_WAITING;
    return rm;
}

static struct repo_model *describe_missing(const struct repository *repo, const char *name)
{
    repository_log_missing(name);
    struct repo_model *rm = repository_model_new(repo, name, NULL);
    rm->wanted = true;
    rm->missing = true;
    rm->stage = REPO_SETTLED;
    rm->failure = mem_strdup("Not found: model not found in any model repository.");
    return rm;
}

struct startup_list {
    size_t n, n_unlisted;
    struct repo_model **models; /* as the catalog will have them */
};

static void add_listed(struct startup_list *list, const struct repository *repo,
                       struct listing *listing)
{
    list->models =
        mem_realloc(list->models, (list->n + listing->n_models + 1) * sizeof(*list->models));
    for (size_t i = 0; i < listing->n_models; i++)
        list->models[list->n++] = describe_listed(repo, &listing->models[i]);
    list->n_unlisted += listing->n_unlisted;
    listing_done(listing);
}

static void add_named(struct startup_list *list, struct repository *repo, const char *name)
{
    struct listing listing = {0};
    struct status *st = repository_check_name(name);
    if (!st)
        listing_of_model(repository_roots(repo), repo->options, name, &listing);
    status_free(st);
    size_t n_before = list->n;
    add_listed(list, repo, &listing);
    if (list->n == n_before)
        list->models[list->n++] = describe_missing(repo, name);
}

/*
 * Fills the catalog with the models in the repositories, or with the named ones. False: not all of
 * them could be listed.
 */
static bool list_startup_models(struct repository *repo)
{
    const struct server_options *o = repo->options;
    struct startup_list list = {0};
    struct listing listing = {0};
    if (is_loading_all_models(o))
        listing_of_roots(repository_roots(repo), o, false, &listing);
    add_listed(&list, repo, &listing);
    for (size_t i = 0; i < o->n_startup_models && !is_loading_all_models(o);
         i++) /* sorted, as the catalog */
        add_named(&list, repo, o->startup_models[i]);

    mutex_lock(&repo->mu);
    for (size_t i = 0; i < list.n; i++)
        repository_count_locked(repo, list.models[i], !list.models[i]->failure);
    repo->models = list.models;
    repo->n_models = list.n;
    repo->listed = true;
    mutex_unlock(&repo->mu);
    return list.n_unlisted == 0;
}

/* ---- All models ------------------------------------------------------------------------------ */

static void load_one(void *arg, size_t i)
{
    const struct loader *l = arg;
    struct repository *repo = l->repo;
    struct repo_model *rm = l->models[i];
    if (atomic_load_explicit(&repo->stopping, memory_order_relaxed))
        return;
    mutex_lock(&repo->mu);
    rm->stage = REPO_LOADING;
    mutex_unlock(&repo->mu);
    struct source *source = source_of_folder(rm->storage, rm->name);
    status_free(repository_load_model(repo, rm, source, NULL, LOAD_AT_START)); /* the log has it */
    source_unref(source);
}

/* Prepares the loads of models that can be tried; from now on requests to them get Retry-After. */
static struct loader make_loader(struct repository *repo)
{
    struct loader l = {.repo = repo};
    const char **names = mem_alloc((repo->n_models + 1) * sizeof(*names));
    struct table_entry **entries = mem_alloc((repo->n_models + 1) * sizeof(struct table_entry *));
    l.models = mem_alloc((repo->n_models + 1) * sizeof(struct repo_model *));
    for (size_t i = 0; i < repo->n_models; i++) {
        if (repo->models[i]->stage != REPO_WAITING)
            continue;
        names[l.n_models] = repo->models[i]->name;
        l.models[l.n_models++] = repo->models[i];
    }
    table_add(&repo->table, l.n_models, names, entries);
    for (size_t i = 0; i < l.n_models; i++)
        l.models[i]->entry = entries[i];
    mem_free(entries);
    mem_free(names);
    return l;
}

/* With named models each failure is reported, except models that were not even tried
 * (reference/behaviours §13.4). */
static void describe_failed_models(struct repository *repo, struct buf *out)
{
    for (size_t i = 0; i < repo->n_models; i++) {
        const struct repo_model *rm = repo->models[i];
        bool logged = false;
        for (size_t j = 0; j < rm->n_versions; j++) {
            const struct repo_version *rv = &rm->versions[j];
            if (rv->state == VERSION_READY)
                continue;
            if (!logged)
                buf_addf(out, "load failed for model '%s': ", rm->name);
            logged = true;
            buf_addf(out, "version %lld is at %s state: %s;", (long long)rv->version,
                     version_state_name(rv->state), repo_version_reason(rv));
        }
        if (logged)
            buf_adds(out, "\n");
    }
}

/* Is every model as the options want it? That is more than readiness demands. */
static bool all_loaded(struct repository *repo)
{
    bool all = atomic_load(&repo->n_unserved) == 0;
    mutex_lock(&repo->mu);
    for (size_t i = 0; i < repo->n_models; i++)
        all &= !repo->models[i]->failure;
    mutex_unlock(&repo->mu);
    return all;
}

struct status *repository_load_all(struct repository *repo)
{
    if (repo->options->control_mode == CONTROL_EXPLICIT) /* only there files come with requests */
        source_sweep();
    bool all_listed = list_startup_models(repo);
    struct loader l = make_loader(repo);
    load_in_parallel("model-load", repo->options->load_threads, l.n_models, load_one, &l);
    mem_free(l.models);

    if (all_listed && all_loaded(repo))
        return NULL;
    AUTO(buf) failures = BUF_INIT(MAX_ERROR_BYTES);
    if (!is_loading_all_models(repo->options))
        describe_failed_models(repo, &failures);
    return failures.size ? status_new(STATUS_INVALID_ARG, "%s", buf_text(&failures))
                         : status_new(STATUS_INTERNAL, "failed to load all models");
}
