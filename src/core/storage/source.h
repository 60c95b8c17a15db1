/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A source is the folder with the files of a load: the model's folder in a repository, or a
 * temporary folder with the files of a load request. A loaded version keeps its source, since a
 * backend may read files at any time. The last reference removes temporary files.
 */
#ifndef CONCH_CORE_STORAGE_SOURCE_H
#define CONCH_CORE_STORAGE_SOURCE_H

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

/* source_of_folder - a model's folder in a repository; the caller ends it with source_unref().
 * Errors: those of storage_fetch(). */
NODISCARD struct status *source_of_folder(struct storage *storage, const char *folder,
                                          struct source **ret_source);

/*
 * source_of_files - makes a temporary folder (below TMPDIR, or /tmp) with copies of these files;
 * the caller ends it with source_unref().
 *
 * Errors: the system's, such as for a path that is given twice or is too long
 */
NODISCARD struct status *source_of_files(const char *name, const struct source_file *files,
                                         size_t n_files, struct source **ret_source);

/*
 * source_sweep - removes temporary folders that killed servers of this user have left below TMPDIR,
 * never those in use by another process. Logs what it removed, and what it could not remove.
 * Thread: control.
 */
void source_sweep(void);

void source_ref(struct source *s);
/* source_unref - NULL is fine. Thread: control. */
void source_unref(struct source *s);

#endif
