/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The common part of all kinds of storage: opening by location, names in messages, and checks that
 * use the operations of a kind. Each kind is in a file of its own (storage_local.c).
 */
#include "core/storage/storage.h"

#include <string.h>

#include "base/mem.h"
#include "base/status.h"
#include "base/str.h"

enum { MAX_FOLDERS_BELOW = 32 };

/* Object stores, which this program does not support. */
static const char *const object_stores[] = {"gs://", "s3://", "as://"};

struct status *storage_open(const char *location, bool follow_links, struct storage **ret_storage)
{
    for (size_t i = 0; i < ARRAY_SIZE(object_stores); i++) {
        const char *scheme = object_stores[i];
        if (strncmp(location, scheme, strlen(scheme)) == 0)
            return status_new(STATUS_INTERNAL,
                              "%s file-system not supported. Repositories are folders: copy this "
                              "one to a folder, or mount it.",
                              scheme);
    }
    return storage_local_open(location, follow_links, ret_storage);
}

struct storage *storage_ref(struct storage *s)
{
    atomic_fetch_add_explicit(&s->refs, 1, memory_order_relaxed);
    return s;
}

void storage_unref(struct storage *s)
{
    if (s && atomic_fetch_sub_explicit(&s->refs, 1, memory_order_acq_rel) == 1)
        s->ops->close(s);
}

int storage_compare(const struct storage *a, const struct storage *b)
{
    if (a == b || !a || !b)
        return !a - !b;
    return strcmp(a->root, b->root);
}

char *storage_path(const struct storage *s, const char *path)
{
    return path[0] ? mem_printf("%s/%s", s->root, path) : mem_strdup(s->root);
}

struct status *storage_check_fetched(const struct storage *s, const char *folder,
                                     const char *directory, const char *path)
{
    size_t n = strlen(directory);
    if (strncmp(path, directory, n) != 0 || path[n] != '/')
        return NULL;
    struct file_info info;
    char *name = mem_printf("%s%s", folder, path + n);
    struct status *st = storage_stat(s, name, &info);
    mem_free(name);
    return st;
}

static struct status *join_named(const char *folder, const char *name, char **ret_path)
{
    if (str_escapes_folder(name))
        return status_new(STATUS_INVALID_ARG, "file '%s' is outside the folder '%s'", name, folder);
    *ret_path = mem_printf("%s/%s", folder, name);
    return NULL;
}

struct status *storage_stat_named(const struct storage *s, const char *folder, const char *name,
                                  struct file_info *ret_info)
{
    char *path = NULL;
    struct status *st = join_named(folder, name, &path);
    if (st)
        return st;
    st = storage_stat(s, path, ret_info);
    mem_free(path);
    return st;
}

struct status *storage_read_named(const struct storage *s, const char *folder, const char *name,
                                  struct buf *ret_content)
{
    char *path = NULL;
    struct status *st = join_named(folder, name, &path);
    if (st)
        return st;
    st = storage_read(s, path, ret_content);
    mem_free(path);
    return st;
}

/* Checks the contents of a folder, which is `depth` folders deep itself. */
static struct status *check_below(const struct storage *s, const char *folder, int depth)
{
    struct file_list list;
    struct status *st;
    if (depth > MAX_FOLDERS_BELOW)
        return status_new(STATUS_INVALID_ARG, "'%s/%s': more than %d folders, one in the other",
                          s->root, folder, MAX_FOLDERS_BELOW);
    st = storage_list(s, folder, &list);
    if (st)
        return st;
    for (size_t i = 0; i < list.count && !st; i++) {
        enum file_kind kind;
        st = storage_kind(s, folder, &list.entries[i], &kind);
        if (!st && kind == FILE_FOLDER) {
            char *path = mem_printf("%s/%s", folder, list.entries[i].name);
            st = check_below(s, path, depth + 1);
            mem_free(path);
        }
    }
    file_list_done(&list);
    return st;
}

struct status *storage_check_named(const struct storage *s, const char *folder, const char *name)
{
    struct file_info info;
    char *path = NULL;
    struct status *st = join_named(folder, name, &path);
    if (st)
        return st;
    st = storage_stat(s, path, &info);
    if (!st && info.kind == FILE_FOLDER)
        st = check_below(s, path, 1);
    mem_free(path);
    return st;
}

struct status *storage_kind(const struct storage *s, const char *folder,
                            const struct file_entry *entry, enum file_kind *ret_kind)
{
    if (entry->kind != FILE_LINK) {
        *ret_kind = entry->kind;
        return NULL;
    }
    struct file_info info = {.kind = FILE_LINK};
    char *path = mem_printf("%s%s%s", folder, folder[0] ? "/" : "", entry->name);
    struct status *st = storage_stat(s, path, &info);
    mem_free(path);
    *ret_kind = info.kind;
    return st;
}
