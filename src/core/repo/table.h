/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table in which requests look models up: what they may know of each model, by name.
 *
 * Which models there are is constant; a look-up takes no lock. What a table says of a model only
 * grows while its models come up (its versions, then each version's model, then that no more
 * follows), so that a model which becomes READY among ten thousand costs nothing but its own
 * entry. Whatever takes something away makes another table and replaces this one (snapshot.h).
 *
 * Threads: any reads, between snapshot_enter() and snapshot_leave(); the entry of one model is
 * written by one thread at a time.
 */
#ifndef CONCH_CORE_REPO_TABLE_H
#define CONCH_CORE_REPO_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"

struct model;
struct table;

/* table_new - entries that nothing is known of; table_set_name() follows for each. */
struct table *table_new(size_t n_models);
/* table_free - gives back its references to models; no reader may have it. */
void table_free(struct table *t);

/*
 * table_set_name - makes entry i answer to a name.
 *
 * @name    borrowed. Models of several repositories may have the same one (namespacing); then it
 *          answers for none of them, unless only one of them has versions
 * @coming  versions of it are to come: until table_set_settled() a request for one that is not
 *          READY is told to come again
 */
void table_set_name(struct table *t, size_t i, const char *name, bool coming);

/* table_set_versions - which versions entry i has, ascending; none is READY. Once. */
void table_set_versions(struct table *t, size_t i, const int64_t *versions, size_t n_versions);

/* table_set_ready - the j-th version serves from now on; the table takes a reference to it. */
void table_set_ready(struct table *t, size_t i, size_t j, struct model *m);

/* table_set_settled - nothing more comes up of entry i. */
void table_set_settled(struct table *t, size_t i);

/*
 * table_find, table_versions - see server_find_model() and server_model_versions(). The model is
 * without a reference of the caller's.
 *
 * @t      NULL: the repositories have not been looked at yet, or all models are unloaded
 * Errors: as those, and STATUS_UNAVAILABLE  Server not ready
 */
NODISCARD struct status *table_find(const struct table *t, const char *name, size_t name_length,
                                    int64_t version, struct model **ret_model);
NODISCARD struct status *table_versions(const struct table *t, const char *name, size_t name_length,
                                        int64_t **ret_versions, size_t *ret_n);

/* table_serving - see server_statistics(): the READY versions that it is asked of. NULL ends the
 * list; each has a reference, and the caller frees it with mem_free(). */
NODISCARD struct status *table_serving(const struct table *t, const char *name, size_t name_length,
                                       int64_t version, struct model ***ret_models);

#endif
