/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loading and unloading by name while the server runs (reference/behaviours §13). Each concerns
 * only its own model.
 */
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/status.h"
#include "core/options/server_options.h"
#include "core/repo/override.h"
#include "core/repo/repository_priv.h"
#include "core/storage/source.h"

struct status *repository_check_name(const char *name)
{
    static const char blanks[] = " \t\r\n\v\f";
    const char *trimmed = name + strspn(name, blanks);
    size_t n = strlen(trimmed);
    while (n > 0 && strchr(blanks, trimmed[n - 1]))
        n--;
    if (n == 0)
        return status_new(STATUS_INVALID_ARG,
                          "Model name cannot be empty. Please enter a valid name to deploy.");
    if ((n <= 2 && strspn(trimmed, ".") == n) || strchr(name, '/'))
        return status_new(
            STATUS_INVALID_ARG,
            "invalid model name '%s', model name must not contain path traversal characters", name);
    return NULL;
}

/* ---- Loading -------------------------------------------------------------------------------- */

/* Logs the cause, which takes st, and returns the client's error. */
static struct status *refuse_load(const char *name, struct status *st)
{
    listing_log_failure(name, st);
    status_free(st);
    return repository_poll_failure(name);
}

/* Loads the model from files of the request; whether a repository has such a model does not
 * matter. */
static struct status *load_files(struct repository *repo, const char *name,
                                 const struct override *o)
{
    struct source *source;
    struct repo_model *rm = repository_lock_model(repo, name, NULL);
    struct status *st = source_of_files(name, o->files, o->n_files, &source);
    if (st) {
        st = refuse_load(rm->title, st);
    } else {
        st = repository_load_model(repo, rm, source, o->config, LOAD_ON_REQUEST);
        source_unref(source);
    }
    repository_unlock_model(repo, rm);
    return st;
}

static struct status *load_folder(struct repository *repo, const struct listed_model *pm,
                                  const char *config)
{
    struct repo_model *rm = repository_lock_model(repo, pm->name, pm->storage);
    repository_move(repo, rm, pm->storage);
    struct source *source = source_of_folder(pm->storage, pm->folder);
    struct status *st = repository_load_model(repo, rm, source, config, LOAD_ON_REQUEST);
    source_unref(source);
    repository_unlock_model(repo, rm);
    return st;
}

/* Loads the model from the repository that has it; under namespacing from each. */
static struct status *load_polled(struct repository *repo, const char *name, const char *config)
{
    struct listing listing;
    struct status *st = NULL;
    listing_of_model(repository_roots(repo), repo->options, name, &listing);
    if (listing.n_models == 0) {
        repository_log_missing(name);
        st = repository_poll_failure(name);
    }
    for (size_t i = 0; i < listing.n_models && !st; i++)
        st = listing.models[i].failure ? repository_poll_failure(name) /* the log has it */
                                       : load_folder(repo, &listing.models[i], config);
    listing_done(&listing);
    return st;
}

struct status *repository_load(struct repository *repo, const char *name,
                               const struct load_parameter *parameters, size_t n_parameters)
{
    struct override o;
    struct status *st = repository_check_name(name);
    if (st)
        return st;
    st = override_read(parameters, n_parameters, &o);
    if (st)
        return refuse_load(name, st);
    st = o.n_files > 0 ? load_files(repo, name, &o) : load_polled(repo, name, o.config);
    override_done(&o);
    return st;
}

/* ---- Unloading ------------------------------------------------------------------------------ */

void repository_unload_model(struct repository *repo, struct repo_model *rm)
{
    struct list retiring = LIST_INIT(retiring);
    mutex_lock(&repo->mu);
    for (size_t i = 0; i < rm->n_versions; i++) {
        struct repo_version *rv = &rm->versions[i];
        if (rv->model) {
            retire_take_locked(repo, rm, rv, &retiring);
            repository_set_state_locked(repo, rv, VERSION_UNLOADING);
        } else if (rv->state != VERSION_UNLOADING) { /* its failure need not be kept */
            repository_set_state_locked(repo, rv, VERSION_UNLOADED);
        }
    }
    rm->wanted = rm->duplicate = rm->missing = rm->empty = false;
    rm->stage = REPO_SETTLED;
    mem_free(TAKE(rm->failure));
    struct table_view *before = repository_publish_locked(repo, rm);
    repository_count_locked(repo, rm, false);
    mutex_unlock(&repo->mu);
    table_view_end(&repo->table, before);
    retire_start(&retiring);
}

void repository_unload(struct repository *repo, const char *name)
{
    struct repo_model **list = repository_named(repo, name);
    for (size_t i = 0; list[i]; i++) {
        repository_lock_named_model(repo, list[i]);
        repository_unload_model(repo, list[i]);
        repository_unlock_model(repo, list[i]);
    }
    mem_free(list);
}
