/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mode poll: the server serves what the repositories hold (reference/behaviours §13.14). Each round
 * lists them, examines the folders of all models, and does the necessary:
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
#include "core/repo/repository_priv.h"
#include "core/storage/source.h"
#include "core/storage/storage.h"
#include "core/threads/load_slot.h"

enum { MAX_REMEMBERED = 1000 };

struct round {
    struct repository *repo;
    struct listing listing;
    size_t n_stale;
    struct listed_model **stale; /* of listing: to be loaded */
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
        repository_lock_named_model(r->repo, gone[i]);
        if (i >= MAX_REMEMBERED)
            repository_move(r->repo, gone[i], NULL); /* the catalog drops it after its end */
        repository_unload_model(r->repo, gone[i]);
        repository_unlock_model(r->repo, gone[i]);
    }
    mem_free(gone);
}

/* ---- Folders that have changed --------------------------------------------------------------- */

/* Notes a folder that must not be served. The versions that serve go on, unless two repositories
 * have the model. */
static void note_unfit(struct repository *repo, const struct listed_model *pm)
{
    struct repo_model *rm = repository_lock_model(repo, pm->name, pm->storage);
    repository_move(repo, rm, pm->storage);
    if (pm->duplicate && !rm->duplicate) {
        log_error("failed to poll model '%s': not unique across all model repositories", pm->name);
        repository_unload_model(repo, rm);
    }
    mutex_lock(&repo->mu);
    repository_is_unfit_locked(repo, rm, pm->failure);
    rm->duplicate = pm->duplicate;
    mutex_unlock(&repo->mu);
    repository_unlock_model(repo, rm);
}

static bool is_stale(struct repository *repo, const struct listed_model *pm)
{
    struct repo_model *rm = repository_lock_model(repo, pm->name, pm->storage);
    bool serves = false;
    repository_move(repo, rm, pm->storage);
    for (size_t i = 0; i < rm->n_versions; i++)
        serves |= rm->versions[i].model != NULL;
    struct fingerprint now = fingerprint_take(pm->storage, pm->folder);
    bool stale = !serves || rm->lacks_versions || !fingerprint_same(&rm->seen, &now);
    fingerprint_done(&now);
    repository_unlock_model(repo, rm);
    return stale;
}

static void load_stale(void *arg, size_t i)
{
    const struct round *r = arg;
    const struct listed_model *pm = r->stale[i];
    if (atomic_load_explicit(&r->repo->stopping, memory_order_relaxed))
        return;
    struct repo_model *rm = repository_lock_model(r->repo, pm->name, pm->storage);
    repository_move(r->repo, rm, pm->storage);
    struct source *source = source_of_folder(pm->storage, pm->folder);
    status_free(
        repository_load_model(r->repo, rm, source, NULL, LOAD_ON_POLL)); /* the log has it */
    source_unref(source);
    repository_unlock_model(r->repo, rm);
}

void repository_poll(struct repository *repo)
{
    struct round r = {.repo = repo};
    listing_of_roots(repository_roots(repo), repo->options, true, &r.listing);
    if (r.listing.n_unlisted > 0)
        log_error("%zu model repositories cannot be listed", r.listing.n_unlisted);
    unload_gone(&r);
    r.stale = mem_zalloc((r.listing.n_models + 1) * sizeof(struct listed_model *));
    for (size_t i = 0; i < r.listing.n_models && !atomic_load(&repo->stopping); i++) {
        struct listed_model *pm = &r.listing.models[i];
        if (pm->failure)
            note_unfit(repo, pm);
        else if (is_stale(repo, pm))
            r.stale[r.n_stale++] = pm;
    }
    load_in_parallel("model-load", repo->options->load_threads, r.n_stale, load_stale, &r);
    mem_free(r.stale);
    listing_done(&r.listing);
}
