/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loading and unloading by name while the server runs (reference/behaviours §13). Each concerns
 * its own model and those that are related to it (group.h).
 */
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/status.h"
#include "core/options/server_options.h"
#include "core/repo/group.h"
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
    struct status *refused = repository_poll_failure(name, status_message(st));
    listing_log_failure(name, st);
    status_free(st);
    return refused;
}

/* Loads the model from files of the request; whether a repository has such a model does not
 * matter. */
static struct status *load_files(struct repository *repo, const char *name,
                                 const struct override *o)
{
    struct source *source;
    struct status *st = source_of_files(name, o->files, o->n_files, &source);
    if (st)
        return refuse_load(name, st);
    struct group *g = group_new(repo, 0);
    group_load(g, name, NULL, source, o->config, LOAD_ON_REQUEST);
    group_run(g);
    return group_end(g);
}

/* Loads the model from the repository that has it; under namespacing from each. */
static struct status *load_polled(struct repository *repo, const char *name, const char *config)
{
    struct listing listing;
    struct status *st = NULL;
    listing_of_model(repository_roots(repo), repo->options, name, &listing);
    if (listing.n_models == 0) {
        char *advice = listing_advise_name(repository_roots(repo), repo->options, name);
        char *why = mem_printf("model not found in any model repository%s%s", advice ? "; " : "",
                               advice ? advice : "");
        repository_log_missing(name);
        st = repository_poll_failure(name, why);
        mem_free(why);
        mem_free(advice);
    }
    struct group *g = group_new(repo, 0);
    for (size_t i = 0; i < listing.n_models && !st; i++) {
        const struct listed_model *pm = &listing.models[i];
        if (pm->failure)
            st = repository_poll_failure(name, pm->failure);
        else
            group_load(g, name, pm->storage, source_of_folder(pm->storage, pm->folder), config,
                       LOAD_ON_REQUEST);
    }
    if (!st)
        group_run(g);
    listing_done(&listing);
    struct status *failed = group_end(g);
    return st ? st : failed;
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

struct table_view *repository_unload_locked(struct repository *repo, struct repo_model *rm,
                                            struct list *retiring, struct composition **ret_gone)
{
    mutex_assert_held(&repo->mu);
    for (size_t i = 0; i < rm->n_versions; i++) {
        struct repo_version *rv = &rm->versions[i];
        if (rv->model) {
            retire_take_locked(repo, rm, rv, retiring);
            repository_set_state_locked(repo, rv, VERSION_UNLOADING);
        } else if (rv->state != VERSION_UNLOADING) { /* its failure need not be kept */
            repository_set_state_locked(repo, rv, VERSION_UNLOADED);
        }
    }
    rm->wanted = rm->duplicate = rm->missing = rm->empty = rm->is_for_others = false;
    rm->stage = REPO_SETTLED;
    mem_free(TAKE(rm->failure));
    mem_free(TAKE(rm->unfit));
    relations_set(&repo->relations, rm, rm->composition, NULL);
    *ret_gone = TAKE(rm->composition);
    repository_count_locked(repo, rm, false);
    return repository_publish_locked(repo, rm);
}

void repository_unload(struct repository *repo, const char *name, bool with_members)
{
    struct group *g = group_new(repo, 0);
    group_unload(g, name);
    if (with_members)
        group_unload_members(g);
    group_run(g);
    status_free(group_end(g)); /* there is none */
}
