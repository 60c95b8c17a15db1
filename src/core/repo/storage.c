/* SPDX-License-Identifier: Apache-2.0 */
#include "core/repo/storage.h"

#include <string.h>

#include "base/mem.h"
#include "base/status.h"

/* Object stores, which this program does not have. */
static const struct {
    const char *scheme, *build_option;
} object_stores[] = {
    {"gs://", "GCS"},
    {"s3://", "S3"},
    {"as://", "AZURE_STORAGE"},
};

struct status *storage_open(const char *location, bool follow_links, struct storage **ret_storage)
{
    for (size_t i = 0; i < ARRAY_SIZE(object_stores); i++) {
        const char *scheme = object_stores[i].scheme;
        if (strncmp(location, scheme, strlen(scheme)) == 0)
            return status_new(STATUS_INTERNAL,
                              "%s file-system not supported. To enable, build with "
                              "-DTRITON_ENABLE_%s=ON.",
                              scheme, object_stores[i].build_option);
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
