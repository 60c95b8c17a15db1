/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the files of a load lie: the model's folder in a repository, or a temporary folder with
 * files that came with the request. A loaded version keeps its source, since a backend may read
 * files at any time; the last one that lets go removes what was only copied.
 */
#ifndef CONCH_CORE_REPO_SOURCE_H
#define CONCH_CORE_REPO_SOURCE_H

#include <stdatomic.h>
#include <stddef.h>

#include "base/compiler.h"

struct status;
struct storage;

/* A file of a model that came with a load request. Borrowed. */
struct source_file {
    const char *path; /* below the model's folder; does not lead out of it */
    const void *bytes;
    size_t size_bytes;
};

struct source {
    /* Constant. */
    struct storage *storage; /* a reference */
    char *folder;            /* the model's folder, in the storage */
    char *directory;         /* … and on this machine */
    char *temporary_root;    /* of a storage that is the source's own, or NULL */

    atomic_int refs;
};

/* source_of_folder - a model's folder in a repository. Errors: as storage_fetch() has them. */
NODISCARD struct status *source_of_folder(struct storage *storage, const char *folder,
                                          struct source **ret_source);

/*
 * source_of_files - a temporary folder (below TMPDIR, or /tmp) that has only these files.
 *
 * Errors: what the system says of a path that is twice there, too long, …
 */
NODISCARD struct status *source_of_files(const char *name, const struct source_file *files,
                                         size_t n_files, struct source **ret_source);

/*
 * source_sweep - removes what servers of this user that were killed have left below TMPDIR, never
 * what another process uses; the log says what, and what could not be removed. Thread: control.
 */
void source_sweep(void);

void source_ref(struct source *s);
/* source_unref - NULL is fine. Thread: control. */
void source_unref(struct source *s);

#endif
