/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which models the repositories hold: the folders in their roots, by the names that they have or
 * are registered to have (roots.h). What is in a model's folder is scan.h's matter; what becomes of
 * the models is repository.h's.
 */
#ifndef CONCH_CORE_REPO_LISTING_H
#define CONCH_CORE_REPO_LISTING_H

#include <stdbool.h>
#include <stddef.h>

#include "base/compiler.h"

struct file_entry;
struct roots;
struct server_options;
struct status;
struct storage;

struct listed_model {
    char *name;
    const char *folder;      /* borrowed: the name, or what is mapped to it */
    struct storage *storage; /* borrowed from the roots */
    char *failure;           /* why it cannot be served, or NULL */
    bool duplicate;          /* … because several repositories have it */
};

struct listing {
    struct roots *roots; /* a reference */
    size_t n_models;
    struct listed_model *models; /* by name; of the same name by repository */
    size_t n_unlisted;           /* roots that could not be listed */
};

/*
 * listing_of_roots - lists the models of all repositories. Never fails as a whole: a root that
 * cannot be listed is logged and left out, a model that cannot be served says why. A name that
 * several repositories have is listed once, with that as its failure, unless namespacing is on:
 * then it is listed for each of them.
 *
 * Thread: control. Reads folders.
 * @roots  taken; listing_done() gives them back
 * @quiet  nothing is logged: the models are only to be listed
 */
void listing_of_roots(struct roots *roots, const struct server_options *options, bool quiet,
                      struct listing *ret_listing);

/*
 * listing_of_model - the same for the models of that name alone: none, when no repository has it.
 * If a mapping gives the name, that model alone is meant, under namespacing, too.
 */
void listing_of_model(struct roots *roots, const struct server_options *options, const char *name,
                      struct listing *ret_listing);
/* listing_log_failure - why the model of that name could not be read. */
void listing_log_failure(const char *name, const struct status *why);

/* listing_done - one of zeros is fine. */
void listing_done(struct listing *listing);

/*
 * listing_is_model - is this entry of a root a model? Nothing here writes to the log.
 *
 * @ret_why_not  the caller's: for a model why it cannot be served, else why the entry is left out;
 *               NULL when all is fine, or the entry was never meant as a model
 */
bool listing_is_model(const struct storage *s, const struct file_entry *entry,
                      struct status **ret_why_not);

#endif
