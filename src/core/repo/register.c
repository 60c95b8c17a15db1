/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Repositories that are registered and unregistered while the server runs (reference/behaviours
 * §13.18). They only decide where models can be found: nothing is loaded or unloaded here, and
 * serving models are not affected.
 */
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/status.h"
#include "base/str.h"
#include "base/utf8.h"
#include "core/options/server_options.h"
#include "core/repo/model_mapping.h"
#include "core/repo/repository_priv.h"
#include "core/storage/storage.h"

static struct status *refuse_conflict(enum status_code code, const char *what, const char *name)
{
    return status_new(code, "failed to register '%s', there is a conflicting mapping for '%s'",
                      what, name);
}

/* ---- Registering ---------------------------------------------------------------------------- */

static struct status *check_mapping(const char *path, const struct model_mapping *mapping)
{
    if (!utf8_is_valid(mapping->name, strlen(mapping->name)))
        return status_new(STATUS_INVALID_ARG,
                          "failed to register '%s', the name of the model in folder '%s' is not "
                          "UTF-8",
                          path, mapping->folder);
    if (!mapping->folder[0] || str_escapes_folder(mapping->folder))
        return status_new(STATUS_INVALID_ARG,
                          "failed to register '%s', '%s' is not a folder in the repository, for "
                          "model '%s'",
                          path, mapping->folder, mapping->name);
    return repository_check_name(mapping->name);
}

static struct status *check_mappings(const char *path, const struct model_mapping *mappings,
                                     size_t n)
{
    struct status *st = NULL;
    for (size_t i = 0; i < n && !st; i++) {
        st = check_mapping(path, &mappings[i]);
        for (size_t j = 0; j < i && !st; j++) {
            if (strcmp(mappings[i].name, mappings[j].name) == 0)
                st = refuse_conflict(STATUS_INVALID_ARG, path, mappings[i].name);
        }
    }
    return st;
}

/* The client gets the reference's text; the cause is logged. */
static struct status *open_repository(const struct repository *repo, const char *path,
                                      struct storage **ret_storage)
{
    struct status *st = storage_open(path, repo->options->follow_symlinks, ret_storage);
    if (!st)
        return NULL;
    log_error("failed to register '%s': %s", path, status_message(st));
    status_free(st);
    return status_new(STATUS_INVALID_ARG, "failed to register '%s', repository not found", path);
}

/* All repositories share one list: no two mappings may give the same name, not even under
 * namespacing. */
static struct status *check_others_locked(const struct repository *repo, const char *path,
                                          const struct root *root)
{
    if (roots_find(repo->roots, path))
        return status_new(STATUS_ALREADY_EXISTS,
                          "model repository '%s' has already been registered", path);
    for (size_t i = 0; i < repo->roots->count; i++) {
        for (size_t j = 0; j < root->n_mappings; j++) {
            const char *name = root->mappings[j].name;
            if (root_mapping(repo->roots->list[i], name)) /* the reference names the model here */
                return refuse_conflict(STATUS_ALREADY_EXISTS, name, name);
        }
    }
    return NULL;
}

struct status *repository_register(struct repository *repo, const char *path,
                                   const struct model_mapping *mappings, size_t n_mappings)
{
    struct storage *storage;
    struct status *st = check_mappings(path, mappings, n_mappings);
    if (!st)
        st = open_repository(repo, path, &storage);
    if (st)
        return st;

    struct root *root = root_new(storage, mappings, n_mappings);
    struct roots *before = NULL;
    mutex_lock(&repo->mu);
    st = check_others_locked(repo, path, root);
    if (!st) {
        before = repo->roots;
        repo->roots = roots_with(before, TAKE(root));
    }
    mutex_unlock(&repo->mu);
    roots_unref(before);
    root_unref(root);
    if (!st)
        log_info("Model repository registered: %s", path);
    return st;
}

/* ---- Unregistering -------------------------------------------------------------------------- */

/*
 * Forgets the models of the repository: those that do not serve now, the others when they have been
 * unloaded. So the catalog does not grow without end if each model comes with a repository of its
 * own.
 */
static void forget_models(struct repository *repo, const struct storage *storage)
{
    size_t n = 0;
    mutex_lock(&repo->mu);
    struct repo_model **known = mem_zalloc((repo->n_models + 1) * sizeof(struct repo_model *));
    for (size_t i = 0; i < repo->n_models; i++) {
        if (storage_compare(repo->models[i]->storage, storage) != 0)
            continue;
        repo->models[i]->n_users++;
        known[n++] = repo->models[i];
    }
    mutex_unlock(&repo->mu);
    for (size_t i = 0; i < n; i++) {
        mutex_lock(&repo->mu);
        repository_drop_user_and_unlock(repo, known[i]);
    }
    mem_free(known);
}

struct status *repository_unregister(struct repository *repo, const char *path)
{
    struct roots *before = NULL;
    mutex_lock(&repo->mu);
    const struct root *root = roots_find(repo->roots, path);
    if (root) {
        before = repo->roots;
        repo->roots = roots_without(before, root);
    }
    mutex_unlock(&repo->mu);
    if (!root)
        return status_new(STATUS_INVALID_ARG, "failed to unregister '%s', repository not found",
                          path);
    forget_models(repo, root->storage);
    roots_unref(before);
    log_info("Model repository unregistered: %s", path);
    return NULL;
}
