/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The list of repositories (roots), and the names of the models in them.
 *
 * A list never changes: a thread that reads folders has a reference to the list that it began with.
 * Registering a repository makes a new list, which replaces the old one (register.c).
 */
#ifndef CONCH_CORE_REPO_ROOTS_H
#define CONCH_CORE_REPO_ROOTS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/compiler.h"

struct model_mapping;
struct server_options;
struct status;
struct storage;

/* A repository. Constant, and shared by several lists. */
struct root {
    struct storage *storage; /* a reference */
    /* Folders whose models have another name than the folder; no name twice. */
    size_t n_mappings;
    struct model_mapping *mappings; /* texts of its own */

    atomic_int refs;
};

/* Constant. */
struct roots {
    atomic_int refs;
    size_t count;
    struct root *list[]; /* in the order of the options, then of registration */
};

/*
 * roots_open - opens the repositories that the options name; one that is named twice counts once.
 * The caller ends *ret_roots with roots_unref().
 *
 * Errors: those of storage_open(); no repository is open then
 */
NODISCARD struct status *roots_open(const struct server_options *options, struct roots **ret_roots);
struct roots *roots_ref(struct roots *roots);
/* roots_unref - NULL is fine. */
void roots_unref(struct roots *roots);

/* root_new - the reference to storage is taken, mappings are copied. */
struct root *root_new(struct storage *storage, const struct model_mapping *mappings,
                      size_t n_mappings);
void root_unref(struct root *root);

/* roots_find - the repository of that path, slashes at its end ignored; NULL: there is none. */
struct root *roots_find(const struct roots *roots, const char *path);

/* roots_have - is one of the repositories at the same place as storage? NULL: no. */
bool roots_have(const struct roots *roots, const struct storage *storage);

/* roots_with - a new list: those of roots, then `more`, which is taken. */
struct roots *roots_with(const struct roots *roots, struct root *more);
/* roots_without - a new list: those of roots without `gone`. */
struct roots *roots_without(const struct roots *roots, const struct root *gone);

/* root_mapping - the mapping that gives this name to a model, or NULL. */
const struct model_mapping *root_mapping(const struct root *root, const char *name);

/*
 * root_keeps_name - has the model in this folder the folder's name? Not if a mapping gives it
 * another name, or gives its name to another folder's model.
 */
bool root_keeps_name(const struct root *root, const char *folder);

#endif
