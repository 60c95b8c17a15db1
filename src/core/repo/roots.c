/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Roots and lists of them, both counted by reference and constant once other threads can see them.
 * A list with one root more or less is a copy that shares the others.
 */
#include "core/repo/roots.h"

#include <string.h>

#include "base/mem.h"
#include "base/status.h"
#include "core/options/server_options.h"
#include "core/repo/model_mapping.h"
#include "core/storage/storage.h"

/* ---- One root -------------------------------------------------------------------------------- */

struct root *root_new(struct storage *storage, const struct model_mapping *mappings,
                      size_t n_mappings)
{
    struct root *root = mem_zalloc(sizeof(*root));
    atomic_init(&root->refs, 1);
    root->storage = storage;
    root->n_mappings = n_mappings;
    root->mappings = mem_zalloc((n_mappings + 1) * sizeof(*root->mappings));
    for (size_t i = 0; i < n_mappings; i++)
        root->mappings[i] = (struct model_mapping){
            .folder = mem_strdup(mappings[i].folder),
            .name = mem_strdup(mappings[i].name),
        };
    return root;
}

static struct root *root_ref(struct root *root)
{
    atomic_fetch_add_explicit(&root->refs, 1, memory_order_relaxed);
    return root;
}

void root_unref(struct root *root)
{
    if (!root || atomic_fetch_sub_explicit(&root->refs, 1, memory_order_acq_rel) != 1)
        return;
    for (size_t i = 0; i < root->n_mappings; i++) {
        mem_free((char *)(uintptr_t)root->mappings[i].folder);
        mem_free((char *)(uintptr_t)root->mappings[i].name);
    }
    mem_free(root->mappings);
    storage_unref(root->storage);
    mem_free(root);
}

const struct model_mapping *root_mapping(const struct root *root, const char *name)
{
    for (size_t i = 0; i < root->n_mappings; i++) {
        if (strcmp(root->mappings[i].name, name) == 0)
            return &root->mappings[i];
    }
    return NULL;
}

bool root_keeps_name(const struct root *root, const char *folder)
{
    for (size_t i = 0; i < root->n_mappings; i++) {
        if (strcmp(root->mappings[i].folder, folder) == 0 ||
            strcmp(root->mappings[i].name, folder) == 0)
            return false;
    }
    return true;
}

/* ---- Lists of roots -------------------------------------------------------------------------- */

/* Makes an empty list with room for max. */
static struct roots *roots_new(size_t max)
{
    struct roots *roots = mem_zalloc(sizeof(*roots) + max * sizeof(struct root *));
    atomic_init(&roots->refs, 1);
    return roots;
}

struct roots *roots_ref(struct roots *roots)
{
    atomic_fetch_add_explicit(&roots->refs, 1, memory_order_relaxed);
    return roots;
}

void roots_unref(struct roots *roots)
{
    if (!roots || atomic_fetch_sub_explicit(&roots->refs, 1, memory_order_acq_rel) != 1)
        return;
    for (size_t i = 0; i < roots->count; i++)
        root_unref(roots->list[i]);
    mem_free(roots);
}

struct status *roots_open(const struct server_options *options, struct roots **ret_roots)
{
    struct roots *roots = roots_new(options->n_repositories);
    for (size_t i = 0; i < options->n_repositories; i++) {
        struct storage *storage;
        if (roots_find(roots, options->repositories[i]))
            continue;
        struct status *st =
            storage_open(options->repositories[i], options->follow_symlinks, &storage);
        if (st) {
            roots_unref(roots);
            return st;
        }
        roots->list[roots->count++] = root_new(storage, NULL, 0);
    }
    *ret_roots = roots;
    return NULL;
}

struct root *roots_find(const struct roots *roots, const char *path)
{
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/') /* as in storage_open() */
        length--;
    for (size_t i = 0; i < roots->count; i++) {
        const char *root = roots->list[i]->storage->root;
        if (strlen(root) == length && memcmp(root, path, length) == 0)
            return roots->list[i];
    }
    return NULL;
}

bool roots_have(const struct roots *roots, const struct storage *storage)
{
    for (size_t i = 0; i < roots->count && storage; i++) {
        if (storage_compare(roots->list[i]->storage, storage) == 0)
            return true;
    }
    return false;
}

struct roots *roots_without(const struct roots *roots, const struct root *gone)
{
    struct roots *copy = roots_new(roots->count + 1); /* roots_with() needs one more */
    for (size_t i = 0; i < roots->count; i++) {
        if (roots->list[i] != gone)
            copy->list[copy->count++] = root_ref(roots->list[i]);
    }
    return copy;
}

struct roots *roots_with(const struct roots *roots, struct root *more)
{
    struct roots *copy = roots_without(roots, NULL);
    copy->list[copy->count++] = more;
    return copy;
}
