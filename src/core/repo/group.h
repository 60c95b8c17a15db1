/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A change of models that belong together: an ensemble with the models of its steps, or a model
 * with the ensembles that use it. They are locked together, brought up parts first, all by the
 * thread that makes the change, and published in one hold of repository.mu. So an ensemble that
 * serves always has models that fit it, and that are the ones that clients find.
 *
 *     group_new, then group_load() and group_unload() for each wish, then group_run(), group_end()
 *
 * A model without relations is a group of one.
 *
 * Thread: control.
 */
#ifndef CONCH_CORE_REPO_GROUP_H
#define CONCH_CORE_REPO_GROUP_H

#include <stdbool.h>
#include <stddef.h>

#include "core/repo/repository_priv.h"

struct group;
struct load;

/*
 * group_new - a change without wishes; group_end() frees it.
 *
 * @max_threads  look at folders, and bring up models that are no ensembles, on so many threads; 0:
 *               on the caller's alone, which may be one of few that load
 */
struct group *group_new(struct repository *repo, size_t max_threads);

/*
 * group_load - the model is to be loaded. With LOAD_ON_REQUEST the models of an ensemble's steps
 * that a repository has are loaded, too.
 *
 * @storage  the repository that has its folder now; NULL: the files came by request
 * @source   a reference, taken
 * @config   the configuration as JSON, or NULL; borrowed
 */
void group_load(struct group *g, const char *name, struct storage *storage, struct source *source,
                const char *config, enum load_reason reason);

/* group_unload - all models of that name are to be unloaded. group_unload_model - that model; the
 * caller has counted itself in n_users, which becomes the group's. */
void group_unload(struct group *g, const char *name);
void group_unload_model(struct group *g, struct repo_model *rm);

/* group_unload_members - with the ensembles go the models that were loaded for them alone, and that
 * no other ensemble names (reference/behaviours §13.12). */
void group_unload_members(struct group *g);

/*
 * group_run - makes the change; returns when all is published. Waits for other changes of the same
 * models.
 */
void group_run(struct group *g);

/* group_end - frees the group; returns the first error of a group_load(). */
NODISCARD struct status *group_end(struct group *g);

/*
 * group_bring_up_alone - brings up an ensemble at the start, when no other thread changes its
 * members. load_look() has found it to be due.
 */
void group_bring_up_alone(struct repository *repo, struct repo_model *rm, struct load *l);

/* group_is_circular_locked - is the ensemble a member of itself, at any depth? Under
 * repository.mu. */
bool group_is_circular_locked(const struct repository *repo, struct repo_model *ensemble);

#endif
