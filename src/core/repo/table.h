/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table in which requests look models up: what they may know of each model, by name.
 *
 *     head ──► directory: names ──► entry ──► view: versions, and the models that serve them
 *
 * A look-up takes no lock. Whoever changes what is known of a model gives its entry another view;
 * then the head is replaced (snapshot.h), and once nobody reads by the old one, nobody has the old
 * view either, which goes. So a model that becomes READY, is reloaded or unloaded among ten
 * thousand costs nothing but its own view, and all its versions change at once. Only a name that
 * comes or goes makes another directory.
 *
 * Threads: any reads; writers take table.mu, and the view of one entry is set by one thread at a
 * time.
 */
#ifndef CONCH_CORE_REPO_TABLE_H
#define CONCH_CORE_REPO_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/mutex.h"
#include "core/snapshot.h"

struct model;
struct table_entry;

/* What is known of a model; constant once it is set. */
struct table_view {
    bool known;  /* the list below is what there is; else nobody has looked, or nobody could */
    bool coming; /* versions of it are on their way: who asks for one that is not READY is told to
                    come again */
    size_t n_versions;
    struct table_version {
        int64_t version;     /* ascending */
        struct model *model; /* NULL unless READY */
    } versions[];
};

struct table {
    struct snapshot head; /* NULL: there are no models yet, or not any more */

    struct mutex mu; /* level 150 in core/README.md: one writer at a time */
};

void table_init(struct table *t);
void table_done(struct table *t);

/*
 * table_add - names that are looked up from now on; versions of them are coming. Several entries
 * may have the same name (namespacing); then it answers for none of them, unless only one of them
 * has versions. From the first call on, even with no name, the table is there.
 *
 * @names    sorted; copied
 * @ret      an entry for each
 */
void table_add(struct table *t, size_t n, const char *const *names, struct table_entry **ret);

/* table_remove - the name is not known any more; the entry goes. */
void table_remove(struct table *t, struct table_entry *e);

/* table_close - there are no models any more. All entries go. */
void table_close(struct table *t);

/* table_view_new - a view with that many versions, for the caller to fill in. */
struct table_view *table_view_new(size_t n_versions);

/*
 * table_set - what is known of the entry's model from now on. It waits for nobody, so that the
 * caller may change its own state under the same lock. Returns the view that was there before,
 * which some still read: for table_view_end().
 *
 * @view  taken, with a reference to each model in it
 */
NODISCARD struct table_view *table_set(struct table_entry *e, struct table_view *view);

/*
 * table_view_end - waits until nobody reads a view that table_set() has replaced; its references to
 * models are given back. NULL is nothing.
 */
void table_view_end(struct table *t, struct table_view *view);

/*
 * table_find, table_versions - see server_find_model() and server_model_versions(). The model has a
 * reference, the caller's.
 *
 * Errors: as those, and STATUS_UNAVAILABLE  Server not ready: the table is not there
 */
NODISCARD struct status *table_find(struct table *t, const char *name, size_t name_length,
                                    int64_t version, struct model **ret_model);
NODISCARD struct status *table_versions(struct table *t, const char *name, size_t name_length,
                                        int64_t **ret_versions, size_t *ret_n);

/* table_serving - see server_statistics(): the READY versions that it is asked of. NULL ends the
 * list; each has a reference, and the caller frees it with mem_free(). */
NODISCARD struct status *table_serving(struct table *t, const char *name, size_t name_length,
                                       int64_t version, struct model ***ret_models);

#endif
