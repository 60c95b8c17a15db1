/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mode poll: the server serves what the repositories hold (reference/behaviours §13.14). Each round
 * lists them, examines the folders of all models, and does the necessary in one group (group.h):
 *
 *     a folder that is gone, or that two repositories have         its model is unloaded
 *     a folder that is new, or changed since it was loaded         … is loaded, several at a time
 *
 * A load that failed is tried again in each round.
 */
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/search.h"
#include "base/status.h"
#include "core/options/server_options.h"
#include "core/repo/group.h"
#include "core/repo/repository_priv.h"
#include "core/storage/source.h"
#include "core/storage/storage.h"

enum { MAX_REMEMBERED = 1000 };

struct round {
    struct repository *repo;
    struct listing listing;
    struct group *group; /* all that is to be done */
};

/* ---- Folders that are gone ------------------------------------------------------------------- */

static bool is_listed_before(const void *model, const void *name)
{
    return strcmp(((const struct listed_model *)model)->name, name) < 0;
}

static bool is_listed(const struct round *r, const struct repo_model *rm)
{
    bool any_root = !r->repo->options->model_namespacing;
    const struct listed_model *models = r->listing.models;
    size_t n = r->listing.n_models;
    size_t i = lower_bound(models, n, sizeof(*models), is_listed_before, rm->name);
    for (; i < n && strcmp(models[i].name, rm->name) == 0; i++) {
        if (any_root || storage_compare(models[i].storage, rm->storage) == 0)
            return true;
    }
    return false;
}

/* Returns the models without a folder, for repository_lock_named_model(); NULL ends. */
static struct repo_model **find_gone(const struct round *r)
{
    struct repository *repo = r->repo;
    size_t n = 0;
    mutex_lock(&repo->mu);
    struct repo_model **gone = mem_zalloc((repo->n_models + 1) * sizeof(struct repo_model *));
    for (size_t i = 0; i < repo->n_models; i++) {
        if (is_listed(r, repo->models[i]))
            continue;
        repo->models[i]->n_users++;
        gone[n++] = repo->models[i];
    }
    mutex_unlock(&repo->mu);
    return gone;
}

static void unload_gone(const struct round *r)
{
    if (r->listing.n_unlisted > 0) /* the contents of that repository are unknown, not gone */
        return;
    /* Requests to such a model are told that it has no version any more. But names that appear
     * and disappear for ever must not fill the memory, so beyond a number some are forgotten. */
    struct repo_model **gone = find_gone(r);
    for (size_t i = 0; gone[i]; i++) {
        if (i < MAX_REMEMBERED)
            continue;
        repository_move(r->repo, gone[i], NULL); /* the catalog drops it after its end */
    }
    for (size_t i = 0; gone[i]; i++)
        group_unload_model(r->group, gone[i]);
    mem_free(gone);
}

/* ---- Folders that have changed --------------------------------------------------------------- */

/* Several repositories have it now: none is served. */
static void unload_duplicate(struct repository *repo, const struct listed_model *pm)
{
    struct group *g = group_new(repo, 0);
    log_error("failed to poll model '%s': not unique across all model repositories", pm->name);
    group_unload(g, pm->name);
    group_run(g);
    status_free(group_end(g)); /* there is none */
}

/* Notes a folder that must not be served. The versions that serve go on, unless two repositories
 * have the model. */
static void note_unfit(struct repository *repo, const struct listed_model *pm)
{
    struct repo_model *rm = repository_lock_model(repo, pm->name, pm->storage);
    bool is_new = pm->duplicate && !rm->duplicate;
    repository_unlock_model(repo, rm);
    if (is_new)
        unload_duplicate(repo, pm);
    rm = repository_lock_model(repo, pm->name, pm->storage);
    repository_move(repo, rm, pm->storage);
    mutex_lock(&repo->mu);
    repository_is_unfit_locked(repo, rm, pm->failure);
    rm->duplicate = pm->duplicate;
    mutex_unlock(&repo->mu);
    repository_unlock_model(repo, rm);
}

/* What does not fit its members is tried again when these change. */
static bool is_stale(struct repository *repo, const struct listed_model *pm)
{
    struct repo_model *rm = repository_lock_model(repo, pm->name, pm->storage);
    bool serves = rm->unfit != NULL;
    repository_move(repo, rm, pm->storage);
    for (size_t i = 0; i < rm->n_versions; i++)
        serves |= rm->versions[i].model != NULL;
    struct fingerprint now = fingerprint_take(pm->storage, pm->folder);
    bool stale = !serves || rm->lacks_versions || !fingerprint_same(&rm->seen, &now);
    fingerprint_done(&now);
    repository_unlock_model(repo, rm);
    return stale;
}

void repository_poll(struct repository *repo)
{
    struct round r = {.repo = repo, .group = group_new(repo, repo->options->load_threads)};
    listing_of_roots(repository_roots(repo), repo->options, true, &r.listing);
    if (r.listing.n_unlisted > 0)
        log_error("%zu model repositories cannot be listed", r.listing.n_unlisted);
    unload_gone(&r);
    for (size_t i = 0; i < r.listing.n_models && !atomic_load(&repo->stopping); i++) {
        const struct listed_model *pm = &r.listing.models[i];
        if (pm->failure)
            note_unfit(repo, pm);
        else if (is_stale(repo, pm))
            group_load(r.group, pm->name, pm->storage, source_of_folder(pm->storage, pm->folder),
                       NULL, LOAD_ON_POLL);
    }
    if (!atomic_load(&repo->stopping))
        group_run(r.group);
    status_free(group_end(r.group)); /* the log has it */
    listing_done(&r.listing);
}
