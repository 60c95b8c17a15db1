/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where model repositories lie. A `struct storage` is the root of one repository; all paths are
 * relative to it ("digits/config.pbtxt"; "" is the root itself) and never have a ".." in them.
 * Whatever the core reads of a repository, it reads through here; a backend gets a local folder
 * from storage_fetch().
 *
 * Kinds of storage: folders of this machine (storage_local.c). Object stores fit behind the same
 * functions: they list and read by key, have no links, and fetch copies to a temporary folder.
 *
 * Threads: any, several at a time. It is shared: what was found in it is told to lie there for as
 * long as it serves, whether the repository is still registered or not.
 */
#ifndef CONCH_CORE_REPO_STORAGE_H
#define CONCH_CORE_REPO_STORAGE_H

#include <stdatomic.h>
#include <stdbool.h>

#include "base/file.h"

struct storage;

struct storage_ops {
    /*
     * stat - as file_stat(): that nothing is there is an answer. A link that leads nowhere is an
     * error, and so is one that leads out of the root, unless the storage was opened to follow it;
     * ret_info->kind says what is there even so, unless that could not be learnt.
     */
    NODISCARD struct status *(*stat)(const struct storage *s, const char *path,
                                     struct file_info *ret_info);
    /* list - as file_list(). Links are listed as such: stat tells what they lead to. */
    NODISCARD struct status *(*list)(const struct storage *s, const char *path,
                                     struct file_list *ret_list);
    /* read - as file_read(): the buffer's maximum is the limit. */
    NODISCARD struct status *(*read)(const struct storage *s, const char *path,
                                     struct buf *ret_content);
    /* fetch - makes everything below path readable in a local folder, until it is released. */
    NODISCARD struct status *(*fetch)(const struct storage *s, const char *path, char **ret_folder);
    /* release - folder is from fetch, and taken. */
    void (*release)(const struct storage *s, char *folder);
    void (*close)(struct storage *s);
};

struct storage {
    const struct storage_ops *ops;
    /* As the user wrote it, without slashes at its end: messages name what they are about by
     * "<root>/<path>". */
    char *root;

    atomic_int refs;
};

/*
 * storage_open - opens the root of a repository: a local folder, or the URL of an object store.
 *
 * @follow_links  links may lead out of the root (--repository-follow-symlinks)
 * Errors: STATUS_INTERNAL     no such folder; not a kind of storage that this program has
 *         STATUS_INVALID_ARG  not a folder
 */
NODISCARD struct status *storage_open(const char *location, bool follow_links,
                                      struct storage **ret_storage);
struct storage *storage_ref(struct storage *s);
/* storage_unref - NULL is fine. The last one closes it. */
void storage_unref(struct storage *s);

/* storage_compare - the order of roots by name; 0: they are the same place. NULL comes last. */
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
 * storage_check_fetched - of a file by its path on this machine, below a folder that was fetched:
 * is it in the storage in truth? No link leads out of it. Of any other path nothing is said.
 *
 * @folder     what was fetched
 * @directory  … and where it is
 */
NODISCARD struct status *storage_check_fetched(const struct storage *s, const char *folder,
                                               const char *directory, const char *path);

/*
 * storage_stat_named, storage_read_named - of a file that a configuration names: whatever it names
 * is looked at and read through these. The name is relative to a folder and may not lead out of it:
 * neither by "..", nor by being absolute. That is refused before anything is looked at, so that the
 * error does not tell what lies there; links are followed as stat and read follow them.
 *
 * Errors: STATUS_INVALID_ARG  the name leads out; else as stat and read have them
 */
NODISCARD struct status *storage_stat_named(const struct storage *s, const char *folder,
                                            const char *name, struct file_info *ret_info);
NODISCARD struct status *storage_read_named(const struct storage *s, const char *folder,
                                            const char *name, struct buf *ret_content);

/*
 * storage_check_named - is what a configuration names in the storage, and all that is below it if
 * it is a folder? Backends open such files by themselves. That nothing is there is for them to say.
 *
 * Errors: STATUS_INVALID_ARG  the name leads out, or a link does; more than 32 folders, one in the
 *                             other; else as stat and list have them
 */
NODISCARD struct status *storage_check_named(const struct storage *s, const char *folder,
                                             const char *name);

/*
 * storage_kind - what an entry of a list is, a link being what it leads to, as stat has it; on
 * error still FILE_LINK when that is not known.
 *
 * @folder  the path that was listed
 */
NODISCARD struct status *storage_kind(const struct storage *s, const char *folder,
                                      const struct file_entry *entry, enum file_kind *ret_kind);

/* storage_local_open - see storage_open(); for a folder of this machine. */
NODISCARD struct status *storage_local_open(const char *location, bool follow_links,
                                            struct storage **ret_storage);

#endif
