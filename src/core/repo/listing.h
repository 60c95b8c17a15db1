/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A listing has the models that the repositories hold: each folder in a root is a model, named as
 * the folder or as registered (roots.h). scan.h reads what is in a model's folder; repository.h
 * loads the models.
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
    const char *folder;      /* borrowed: the name, or the folder that is mapped to the name */
    struct storage *storage; /* borrowed from the roots */
    char *failure;           /* why it cannot be served, or NULL */
    bool duplicate;          /* … because several repositories have it */
};

struct listing {
    struct roots *roots; /* a reference */
    size_t n_models;
    struct listed_model *models; /* by name; of the same name by repository */
    size_t n_unlisted;           /* roots that could not be listed … */
    char *unlisted;              /* … and why, a line for each; NULL: none */
};

/*
 * listing_of_roots - lists the models of all repositories. It never fails as a whole: a root that
 * cannot be listed is logged and left out, and a model that cannot be served has a `failure`. A
 * name that several repositories have is listed once, with that as its failure. Under namespacing
 * it is listed for each repository.
 *
 * Thread: control. Reads folders.
 * @roots  a reference, taken; listing_done() ends it
 * @quiet  log nothing
 */
void listing_of_roots(struct roots *roots, const struct server_options *options, bool quiet,
                      struct listing *ret_listing);

/*
 * listing_of_model - the same for the models of that name alone; empty when no repository has one.
 * If a mapping gives the name, only the mapped model is listed, under namespacing, too.
 */
void listing_of_model(struct roots *roots, const struct server_options *options, const char *name,
                      struct listing *ret_listing);
/*
 * listing_advise_name - the question whether a similar name was meant, for a name that no
 * repository has. To be freed with mem_free(); NULL: there is none.
 *
 * @roots  a reference, taken
 */
char *listing_advise_name(struct roots *roots, const struct server_options *options,
                          const char *name);

/* listing_log_failure - logs why the model of that name could not be read. */
void listing_log_failure(const char *name, const struct status *why);

/* listing_done - frees the content. A listing of zeros is fine. */
void listing_done(struct listing *listing);

/*
 * listing_is_model - is this entry of a root a model? Does not log.
 *
 * @ret_why_not  owned by the caller. Of a model: why it cannot be served. Of another entry: why it
 *               is left out. NULL when there is no fault, or the entry was not meant as a model
 */
bool listing_is_model(const struct storage *s, const struct file_entry *entry,
                      struct status **ret_why_not);

#endif
