/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which repositories there are, and what the models in them are called.
 *
 * A list of them never changes: who reads folders has a reference to the list that was there when
 * that began. Registering makes another list, which takes its place (register.c).
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

/* A repository. Constant; the lists that have it share it. */
struct root {
    struct storage *storage; /* a reference */
    /* Folders whose models are not called as they are; no name twice. */
    size_t n_mappings;
    struct model_mapping *mappings; /* texts of its own */

    atomic_int refs;
};

/* Constant. */
struct roots {
    atomic_int refs;
    size_t count;
    struct root *list[]; /* in the order in which they came */
};

/*
 * roots_open - the repositories that the options name; one that is there twice counts once.
 *
 * Errors: as storage_open() has them; then none is open
 */
NODISCARD struct status *roots_open(const struct server_options *options, struct roots **ret_roots);
struct roots *roots_ref(struct roots *roots);
/* roots_unref - NULL is fine. */
void roots_unref(struct roots *roots);

/* root_new - storage is taken, mappings are copied. */
struct root *root_new(struct storage *storage, const struct model_mapping *mappings,
                      size_t n_mappings);
void root_unref(struct root *root);

/* roots_find - the repository of that path, slashes at its end aside; NULL: there is none. */
struct root *roots_find(const struct roots *roots, const char *path);

/* roots_have - is that the place of one of them? Not if it is NULL. */
bool roots_have(const struct roots *roots, const struct storage *storage);

/* roots_with - a list with one more at its end, which is taken. */
struct roots *roots_with(const struct roots *roots, struct root *more);
/* roots_without - a list without the one. */
struct roots *roots_without(const struct roots *roots, const struct root *gone);

/* root_mapping - the mapping that gives this name to a model, or NULL. */
const struct model_mapping *root_mapping(const struct root *root, const char *name);

/*
 * root_keeps_name - is the model in this folder called as the folder? Not if it is mapped to
 * another name, or another folder's model has its name by mapping.
 */
bool root_keeps_name(const struct root *root, const char *folder);

#endif
