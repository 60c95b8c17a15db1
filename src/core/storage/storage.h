/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A `struct storage` is the root of one model repository. All paths are relative to it
 * ("digits/config.pbtxt"; "" is the root itself) and never have a ".." in them. The core reads a
 * repository only through these functions; a backend gets a local folder from storage_fetch().
 *
 * Kinds of storage: folders of this machine (storage_local.c). Object stores fit behind the same
 * functions: they list and read by key, have no links, and fetch copies to a temporary folder.
 *
 * Threads: any, several at a time. A storage is shared: models that were loaded from it refer to it
 * for as long as they serve, whether the repository is still registered or not.
 */
#ifndef CONCH_CORE_STORAGE_STORAGE_H
#define CONCH_CORE_STORAGE_STORAGE_H

#include <stdatomic.h>
#include <stdbool.h>

#include "base/file.h"

struct storage;

struct storage_ops {
    /*
     * stat - as file_stat(): a missing file is no error. Errors are a link that leads to nothing,
     * and one that leads out of the root, unless the storage was opened to follow links. On these
     * errors ret_info->kind is still set, if the kind could be found out.
     */
    NODISCARD struct status *(*stat)(const struct storage *s, const char *path,
                                     struct file_info *ret_info);
    /* list - as file_list(). Links are listed as links: stat follows them. */
    NODISCARD struct status *(*list)(const struct storage *s, const char *path,
                                     struct file_list *ret_list);
    /* read - as file_read(): the buffer's maximum limits the size. */
    NODISCARD struct status *(*read)(const struct storage *s, const char *path,
                                     struct buf *ret_content);
    /* fetch - makes all files below path readable in a local folder, until its release. */
    NODISCARD struct status *(*fetch)(const struct storage *s, const char *path, char **ret_folder);
    /* release - ends a fetch; takes the folder that fetch has returned. */
    void (*release)(const struct storage *s, char *folder);
    void (*close)(struct storage *s);
};

struct storage {
    const struct storage_ops *ops;
    /* The location as the user wrote it, without slashes at its end. Messages name files by
     * "<root>/<path>". */
    char *root;

    atomic_int refs;
};

/*
 * storage_open - opens the root of a repository: a local folder, or the URL of an object store.
 *
 * @follow_links  links may lead out of the root (--repository-follow-symlinks)
 * Errors: STATUS_INTERNAL     no such folder; this program does not have that kind of storage
 *         STATUS_INVALID_ARG  not a folder
 */
NODISCARD struct status *storage_open(const char *location, bool follow_links,
                                      struct storage **ret_storage);
struct storage *storage_ref(struct storage *s);
/* storage_unref - the last reference closes the storage. NULL is fine. */
void storage_unref(struct storage *s);

/* storage_compare - orders storages by their roots; 0: they are the same place. NULL comes last. */
int storage_compare(const struct storage *a, const struct storage *b);

/* storage_path - "<root>/<path>", for messages; the caller frees it. */
char *storage_path(const struct storage *s, const char *path);

static inline NODISCARD struct status *storage_stat(const struct storage *s, const char *path,
                                                    struct file_info *ret_info)
{
    return s->ops->stat(s, path, ret_info);
}

static inline NODISCARD struct status *storage_list(const struct storage *s, const char *path,
                                                    struct file_list *ret_list)
{
    return s->ops->list(s, path, ret_list);
}

static inline NODISCARD struct status *storage_read(const struct storage *s, const char *path,
                                                    struct buf *ret_content)
{
    return s->ops->read(s, path, ret_content);
}

static inline NODISCARD struct status *storage_fetch(const struct storage *s, const char *path,
                                                     char **ret_folder)
{
    return s->ops->fetch(s, path, ret_folder);
}

static inline void storage_release(const struct storage *s, char *folder)
{
    if (folder)
        s->ops->release(s, folder);
}

/*
 * storage_check_fetched - does this file of a fetched folder really lie in the storage? It fails if
 * a link leads out of the storage. Every path outside of `directory` passes.
 *
 * @folder     the folder that was fetched, in the storage
 * @directory  the local folder that fetch has returned
 * @path       of the file, on this machine
 */
NODISCARD struct status *storage_check_fetched(const struct storage *s, const char *folder,
                                               const char *directory, const char *path);

/*
 * storage_stat_named, storage_read_named - stat and read for a file that a configuration names; the
 * core uses no other function for such files. The name is relative to `folder` and must not lead
 * out of it, by ".." or by being absolute. Such a name is refused before the file system is read,
 * so that the error does not tell what lies there. Links are followed as by stat and read.
 *
 * Errors: STATUS_INVALID_ARG  the name leads out of the folder; else those of stat and read
 */
NODISCARD struct status *storage_stat_named(const struct storage *s, const char *folder,
                                            const char *name, struct file_info *ret_info);
NODISCARD struct status *storage_read_named(const struct storage *s, const char *folder,
                                            const char *name, struct buf *ret_content);

/*
 * storage_check_named - does a file or folder that a configuration names lie in the storage, with
 * all files below it? For files that backends open by themselves. A missing file passes: the
 * backend reports it.
 *
 * Errors: STATUS_INVALID_ARG  the name or a link leads out; folders nest more than 32 deep; else
 *                             those of stat and list
 */
NODISCARD struct status *storage_check_named(const struct storage *s, const char *folder,
                                             const char *name);

/*
 * storage_kind - the kind of an entry of a list; of a link the kind of what it leads to, as by
 * stat. On error *ret_kind is FILE_LINK if that kind is not known.
 *
 * @folder  the path that was listed
 */
NODISCARD struct status *storage_kind(const struct storage *s, const char *folder,
                                      const struct file_entry *entry, enum file_kind *ret_kind);

/* storage_local_open - see storage_open(); for a folder of this machine. */
NODISCARD struct status *storage_local_open(const char *location, bool follow_links,
                                            struct storage **ret_storage);

/*
 * storage_local_open_folder - the same for the folder of one model, which may be anywhere on this
 * machine. Links must lead into that folder, or into the repository of which the model is.
 *
 * @origin      that repository; borrowed
 * @ret_folder  the model's folder in the storage; the caller frees it with mem_free()
 * Errors: STATUS_INVALID_ARG  no such folder, or the root of the machine
 */
NODISCARD struct status *storage_local_open_folder(const char *location, bool follow_links,
                                                   const struct storage *origin,
                                                   struct storage **ret_storage, char **ret_folder);

#endif
