/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which ensembles name which models as steps. An ensemble is in these books from the load that
 * reads its configuration until it is unloaded, also while it does not serve: so the load of a
 * missing member brings it up.
 *
 * Names decide, not repositories: under namespacing an ensemble may be found for a member of that
 * name in another repository, and is then examined in vain.
 *
 * Thread: any, under repository.mu.
 */
#ifndef CONCH_CORE_REPO_RELATIONS_H
#define CONCH_CORE_REPO_RELATIONS_H

#include <stddef.h>
#include <stdint.h>

#include "base/map.h"

struct model_config;
struct repo_model;
struct source;

/* What is kept of an ensemble, so that it can follow its members without its folder being read. */
/* A model that steps name. */
struct composition_member {
    char *name;
    char *namespace; /* the repository that has it; "": of the ensemble's, or the only one */
};

struct composition {
    size_t n_members;
    struct composition_member *members; /* each once, in the order of the steps */
    char *config;                       /* its configuration as JSON */
    size_t n_versions;
    int64_t *versions; /* those to be served, ascending */
    struct source *source;
};

/*
 * composition_new - of a prepared configuration; NULL: it is no ensemble, or there is no memory for
 * its text. The caller ends it with composition_free(), unless it gives it to relations_set().
 *
 * @source  gets another reference
 */
struct composition *composition_new(const struct model_config *config, const int64_t *versions,
                                    size_t n_versions, struct source *source);
/* NULL is fine. Thread: control, without locks: the source may be the last reference. */
void composition_free(struct composition *c);

struct relations {
    struct map by_member; /* of struct dependents */
};

void relations_init(struct relations *r);
void relations_done(struct relations *r);

/*
 * relations_set - notes the steps of an ensemble.
 *
 * @before  those that were noted by the last call for it; NULL: none
 * @now     NULL: it is no ensemble any more, or is unloaded
 */
void relations_set(struct relations *r, struct repo_model *ensemble,
                   const struct composition *before, const struct composition *now);

/* relations_dependents - the ensembles that name the model; NULL: none does. Borrowed. */
struct repo_model *const *relations_dependents(const struct relations *r, const char *name,
                                               size_t *ret_n);

#endif
