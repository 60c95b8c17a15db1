/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lists the folders in the roots, or searches them for one name; no model's files are read. Each
 * entry passes three steps: whether it is a model, by which names, and whether another repository
 * has the name.
 *
 * Results are sorted by name, then by repository. The catalog relies on that order.
 */
#include "core/repo/listing.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/status.h"
#include "base/str.h"
#include "base/utf8.h"
#include "core/config/config.h"
#include "core/options/server_options.h"
#include "core/repo/model_mapping.h"
#include "core/repo/roots.h"
#include "core/storage/storage.h"

static void free_listed_model(struct listed_model *pm)
{
    mem_free(pm->name);
    mem_free(pm->failure);
}

/*
 * Folders that other programs use: of version control and editors, of file systems, and of volumes
 * that Kubernetes mounts ("..data"). A model may have such a name if it has a configuration.
 */
static bool is_foreign(const struct storage *s, const char *name)
{
    if (name[0] == '.' && name[1] == '.')
        return true;
    if (name[0] != '.' && strcmp(name, "lost+found") != 0)
        return false;
    struct file_info info = {.kind = FILE_MISSING};
    char *path = mem_printf("%s/config.pbtxt", name);
    status_free(storage_stat(s, path, &info));
    mem_free(path);
    return info.kind == FILE_MISSING;
}

/* A model's file that lies in the repository itself was meant as a model. */
static struct status *note_loose_file(const char *name)
{
    char *advice = config_advise_loose_file(name);
    if (!advice)
        return NULL;
    char *shown = utf8_printable(name);
    struct status *st =
        status_new(STATUS_INVALID_ARG, "'%s' is not in the folder of a model: %s", shown, advice);
    mem_free(shown);
    mem_free(advice);
    return st;
}

bool listing_is_model(const struct storage *s, const struct file_entry *entry,
                      struct status **ret_why_not)
{
    enum file_kind kind;
    struct status *st = storage_kind(s, "", entry, &kind);
    bool may_be_folder = kind == FILE_FOLDER || kind == FILE_LINK;
    *ret_why_not = NULL;
    if (!may_be_folder || is_foreign(s, entry->name)) {
        if (kind == FILE_MISSING) {
            *ret_why_not = st;
            return false;
        }
        status_free(st);
        if (kind == FILE_REGULAR)
            *ret_why_not = note_loose_file(entry->name);
        return false;
    }
    if (!st && !utf8_is_valid(entry->name, strlen(entry->name)))
        st = status_new(STATUS_INVALID_ARG, "the name of the folder is not UTF-8");
    *ret_why_not = st;
    return true;
}

void listing_log_failure(const char *name, const struct status *why)
{
    log_error("Poll failed for model directory '%s': %s", name, status_message(why));
}

/* Adds an entry of a root, which may be a model.
 * @mapping  gives its name; NULL: none */
static void add_root_entry(const struct root *root, const struct file_entry *entry,
                           const struct model_mapping *mapping, bool quiet, struct listing *p)
{
    struct storage *s = root->storage;
    struct status *why_not = NULL;
    if (!listing_is_model(s, entry, &why_not)) {
        if (quiet)
            status_free(why_not);
        else
            log_status(LOG_WARN, "an entry of the model repository is left out", why_not);
        return;
    }
    struct listed_model *pm = &p->models[p->n_models++];
    *pm = (struct listed_model){.storage = s};
    if (mapping)
        pm->name = mem_strdup(mapping->name);
    else
        pm->name = why_not ? utf8_printable(entry->name) : mem_strdup(entry->name);
    pm->folder = mapping ? mapping->folder : pm->name;
    if (!why_not)
        return;
    pm->failure = status_reason(why_not);
    if (!quiet)
        listing_log_failure(pm->name, why_not);
    status_free(why_not);
}

/* Adds the folder by its own name, or by all names that it is mapped to. */
static void add_by_names(const struct root *root, const struct file_entry *entry, bool quiet,
                         struct listing *p)
{
    if (root_keeps_name(root, entry->name))
        add_root_entry(root, entry, NULL, quiet, p);
    for (size_t i = 0; i < root->n_mappings; i++) {
        if (strcmp(root->mappings[i].folder, entry->name) == 0)
            add_root_entry(root, entry, &root->mappings[i], quiet, p);
    }
}

/* Lists the models of one repository: its folders, whatever they contain. */
static struct status *list_root_models(const struct root *root, bool quiet, struct listing *p)
{
    struct file_list list;
    struct status *st = storage_list(root->storage, "", &list);
    if (st)
        return st;

    size_t n = p->n_models + list.count + root->n_mappings + 1;
    struct listed_model *models = mem_try_realloc(p->models, n * sizeof(*models));
    if (!models) {
        file_list_done(&list);
        return status_no_memory();
    }
    p->models = models;
    for (size_t i = 0; i < list.count; i++)
        add_by_names(root, &list.entries[i], quiet, p);
    file_list_done(&list);
    return NULL;
}

static int compare_listed_models(const void *a, const void *b)
{
    const struct listed_model *x = a, *y = b;
    int order = strcmp(x->name, y->name);
    return order ? order : storage_compare(x->storage, y->storage);
}

/* A model that two repositories have is served from neither. */
static void refuse_duplicate_models(struct listing *p, bool quiet)
{
    size_t kept = 0;
    for (size_t i = 0; i < p->n_models; i++) {
        struct listed_model *pm = &p->models[i];
        struct listed_model *first = kept ? &p->models[kept - 1] : NULL;
        if (!first || strcmp(first->name, pm->name) != 0) {
            p->models[kept++] = *pm;
            continue;
        }
        if (!quiet)
            log_error("failed to poll model '%s': not unique across all model repositories: '%s', "
                      "'%s'",
                      pm->name, first->storage->root, pm->storage->root);
        mem_free(first->failure);
        first->duplicate = true;
        first->failure = mem_strdup("model appears in two or more repositories");
        free_listed_model(pm);
    }
    p->n_models = kept;
}

static void put_in_order(struct listing *p, const struct server_options *options, bool quiet)
{
    if (p->n_models)
        qsort(p->models, p->n_models, sizeof(*p->models), compare_listed_models);
    if (!options->model_namespacing)
        refuse_duplicate_models(p, quiet);
}

void listing_of_roots(struct roots *roots, const struct server_options *options, bool quiet,
                      struct listing *ret_listing)
{
    struct listing p = {.roots = roots};
    for (size_t i = 0; i < roots->count; i++) {
        struct status *st = list_root_models(roots->list[i], quiet, &p);
        if (!st)
            continue;
        if (!quiet)
            log_error("failed to poll model repository '%s': %s", roots->list[i]->storage->root,
                      status_message(st));
        char *more =
            mem_printf("%sfailed to poll model repository '%s': %s\n", p.unlisted ? p.unlisted : "",
                       roots->list[i]->storage->root, status_message(st));
        mem_free(p.unlisted);
        p.unlisted = more;
        status_free(st);
        p.n_unlisted++;
    }
    put_in_order(&p, options, quiet);
    *ret_listing = p;
}

/* Adds the folder of a model. If it is a link, its target decides: a folder, or nothing. */
static void add_folder(const struct root *root, const char *folder,
                       const struct model_mapping *mapping, struct listing *p)
{
    struct file_entry entry = {.name = (char *)(uintptr_t)folder, .kind = FILE_LINK};
    add_root_entry(root, &entry, mapping, false, p);
}

/* Adds the mapped folder of the one repository that has it, if any. */
static bool add_mapped(const struct roots *roots, const char *name, struct listing *p)
{
    for (size_t i = 0; i < roots->count; i++) {
        const struct model_mapping *mapping = root_mapping(roots->list[i], name);
        if (!mapping)
            continue;
        add_folder(roots->list[i], mapping->folder, mapping, p);
        if (p->n_models == 0)
            log_error("mapped path '%s/%s' does not exist for model '%s'",
                      roots->list[i]->storage->root, mapping->folder, name);
        return true;
    }
    return false;
}

void listing_of_model(struct roots *roots, const struct server_options *options, const char *name,
                      struct listing *ret_listing)
{
    struct listing p = {
        .roots = roots,
        .models = mem_zalloc((roots->count + 1) * sizeof(*p.models)),
    };
    bool is_mapped = add_mapped(roots, name, &p);
    for (size_t i = 0; i < roots->count && !is_mapped; i++) {
        if (root_keeps_name(roots->list[i], name))
            add_folder(roots->list[i], name, NULL, &p);
    }
    put_in_order(&p, options, false);
    *ret_listing = p;
}

char *listing_advise_name(struct roots *roots, const struct server_options *options,
                          const char *name)
{
    struct listing listing;
    const char *meant = NULL;
    size_t least = SIZE_MAX;
    listing_of_roots(roots, options, true, &listing);
    for (size_t i = 0; i < listing.n_models; i++) {
        if (str_nearer(name, listing.models[i].name, &least))
            meant = listing.models[i].name;
    }
    char *advice = meant ? mem_printf("did you mean '%s'?", meant) : NULL;
    listing_done(&listing);
    return advice;
}

void listing_done(struct listing *listing)
{
    for (size_t i = 0; i < listing->n_models; i++)
        free_listed_model(&listing->models[i]);
    mem_free(listing->models);
    mem_free(listing->unlisted);
    roots_unref(listing->roots);
    *listing = (struct listing){0};
}
