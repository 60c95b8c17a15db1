/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table in which requests look models up by name.
 *
 *     head ──► directory: names ──► entry ──► view: versions, and the models that serve them
 *
 * A look-up takes no lock. A writer that changes a model gives its entry a new view and replaces
 * the head (snapshot.h). When no reader uses the old head any more, none has the old view either,
 * and the view is freed. So the load or unload of one model among ten thousand costs only its own
 * view, and all its versions change at once. Only adding or removing a name makes a new directory.
 *
 * Threads: any thread reads. Writers take table.mu; one thread at a time sets the view of an entry.
 */
#ifndef CONCH_CORE_REPO_TABLE_H
#define CONCH_CORE_REPO_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/mutex.h"
#include "core/repo/snapshot.h"

struct model;
struct table_entry;

/* What is known of a model; constant once it is set. */
struct table_view {
    bool known;  /* the list below is complete; false: the folder was not, or could not be, read */
    bool coming; /* versions are being loaded: a request for one that is not READY gets
                    STATUS_UNAVAILABLE, and may come again */
    size_t n_versions;
    struct table_version {
        int64_t version;     /* ascending */
        struct model *model; /* NULL unless READY */
    } versions[];
};

struct table {
    struct snapshot head; /* NULL: before the first table_add(), and after table_close() */

    struct mutex mu; /* level 150 in core/README.md: one writer at a time */
};

void table_init(struct table *t);
void table_done(struct table *t);

/*
 * table_add - adds names, whose versions are `coming`. Under namespacing several entries may have
 * the same name; a look-up of it then succeeds only if exactly one of them has versions. The first
 * call, even with n == 0, makes the table answer look-ups.
 *
 * @names    sorted; copied
 * @ret      an entry for each; borrowed from the table
 */
void table_add(struct table *t, size_t n, const char *const *names, struct table_entry **ret);

/* table_remove - removes a name from the table, and frees its entry. */
void table_remove(struct table *t, struct table_entry *e);

/* table_close - removes and frees all entries: the server has no models any more. */
void table_close(struct table *t);

/* table_view_new - a view with that many versions, for the caller to fill in. */
struct table_view *table_view_new(size_t n_versions);

/*
 * table_set - gives the entry a new view. It does not wait, so the caller may change its own state
 * under the same lock. Returns the old view, which threads may still read; the caller passes it to
 * table_view_end().
 *
 * @view  taken, with a reference to each model in it
 */
NODISCARD struct table_view *table_set(struct table_entry *e, struct table_view *view);

/*
 * table_view_end - waits until no thread reads a view that table_set() has replaced, then frees the
 * view and ends its references to models. NULL is fine.
 */
void table_view_end(struct table *t, struct table_view *view);

/*
 * table_nearest - the name of a model that serves and is named like `name`, which no model has;
 * NULL if there is none. It looks at a bounded number of names. The caller frees it with
 * mem_free().
 */
char *table_nearest(struct table *t, const char *name, size_t name_length);

/*
 * table_find, table_versions - see server_find_model() and server_model_versions(). The caller ends
 * the reference to the model, and frees the versions with mem_free().
 *
 * Errors: as those, and STATUS_UNAVAILABLE  Server not ready: before table_add(), or closed
 */
NODISCARD struct status *table_find(struct table *t, const char *name, size_t name_length,
                                    int64_t version, struct model **ret_model);
NODISCARD struct status *table_versions(struct table *t, const char *name, size_t name_length,
                                        int64_t **ret_versions, size_t *ret_n);

/* table_serving - the READY versions of a model or of all models, as server_statistics() names
 * them. NULL ends the list. The caller ends the reference to each, and frees the list with
 * mem_free(). */
NODISCARD struct status *table_serving(struct table *t, const char *name, size_t name_length,
                                       int64_t version, struct model ***ret_models);

#endif
