/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a path on the command line means: a repository, the folder or a file of a model in one, or a
 * folder above repositories.
 */
#ifndef CONCH_LINT_PLACE_H
#define CONCH_LINT_PLACE_H

#include <stdbool.h>
#include <stddef.h>

/* A repository, and what is wanted of it. */
struct lint_place {
    char *root;
    char **models; /* the models that are wanted; NULL: all */
    size_t n_models;
};

struct lint_places {
    struct lint_place *items;
    size_t n;
    char **notes; /* one line for each path that is no repository itself */
    size_t n_notes;
};

/*
 * lint_find_places - adds the repositories that the path means. A path that is none of the above is
 * added as it is, so that opening it gives the error.
 */
void lint_find_places(struct lint_places *p, const char *given);

/* lint_place_wants - whether the findings of the model are wanted. */
bool lint_place_wants(const struct lint_place *p, const char *model);

void lint_places_done(struct lint_places *p);

#endif
