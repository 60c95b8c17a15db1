/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A source is the folder with the files of a load: the model's folder in a repository, a temporary
 * folder with the files of a load request, or the folder where repository agents have put the
 * files. A loaded version keeps its source, since a backend may read files at any time. The last
 * reference ends the agents of the load and removes temporary files.
 */
#ifndef CONCH_CORE_STORAGE_SOURCE_H
#define CONCH_CORE_STORAGE_SOURCE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/compiler.h"

struct agent_chain;
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
    char *temporary_root;    /* of a storage that is the source's own, or NULL */
    struct source *origin;   /* of source_of_agents(): a reference to the source before; or NULL */
    bool is_moved;           /* … and whether the files are elsewhere */
    struct agent_chain *agents; /* of source_keep_agents(), or NULL */
    void (*end_agents)(struct agent_chain *agents);

    char *directory; /* the folder on this machine; set by source_fetch(), constant afterwards */

    atomic_int refs;
};

/* source_of_folder - a model's folder in a repository, which is not read here; the caller ends it
 * with source_unref(). */
struct source *source_of_folder(struct storage *storage, const char *folder);

/*
 * source_of_files - makes a temporary folder (below TMPDIR, or /tmp) with copies of these files;
 * the caller ends it with source_unref().
 *
 * Errors: the system's, such as for a path that is given twice or is too long
 */
NODISCARD struct status *source_of_files(const char *name, const struct source_file *files,
                                         size_t n_files, struct source **ret_source);

/*
 * source_fetch - makes the files readable in s->directory, for backends. Only the first call of a
 * source does something. An object store copies all files, so a caller that can compare first
 * fetches only what it loads.
 *
 * Thread: control, the source's maker, before others see the source.
 * Errors: those of storage_fetch()
 */
NODISCARD struct status *source_fetch(struct source *s);

/*
 * source_of_agents - the files of `origin` after repository agents have had their turn; the caller
 * ends it with source_unref().
 *
 * @origin        a reference is kept: the agents' files may be links into it
 * @location      a local folder anywhere; NULL: the files have stayed where they were
 * @follow_links  links may lead anywhere; else into that folder or the repository of origin
 * Errors: STATUS_INVALID_ARG  no such folder; the URL of an object store; the root of the machine
 */
NODISCARD struct status *source_of_agents(struct source *origin, const char *location,
                                          bool follow_links, struct source **ret_source);

/* source_keep_agents - the agents of the load, taken; the last reference to the source calls
 * end_agents(agents). */
void source_keep_agents(struct source *s, struct agent_chain *agents,
                        void (*end_agents)(struct agent_chain *agents));

/* source_agents - those of source_keep_agents(), or NULL. Borrowed. NULL is fine. */
static inline struct agent_chain *source_agents(const struct source *s)
{
    return s ? s->agents : NULL;
}

/* source_is_same_folder - have both the same folder, before agents have moved files? Their files
 * may differ; nothing is read. */
bool source_is_same_folder(const struct source *a, const struct source *b);

/*
 * source_temporary_new - makes an empty folder of that name in a temporary folder of its own (below
 * TMPDIR, or /tmp), which source_temporary_free() removes with all that is in it.
 *
 * Thread: control.
 * @ret_root    taken by source_temporary_free()
 * @ret_folder  the path of the empty folder; the caller frees it with mem_free()
 * Errors: the system's
 */
NODISCARD struct status *source_temporary_new(const char *name, char **ret_root, char **ret_folder);
void source_temporary_free(char *root);

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
