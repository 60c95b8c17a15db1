/* SPDX-License-Identifier: Apache-2.0 */
#include "core/repo/poll.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/status.h"
#include "base/utf8.h"
#include "core/repo/storage.h"
#include "core/server_options.h"

struct status *roots_open(const struct server_options *options, struct roots *ret_roots)
{
    struct roots roots = {0};
    roots.storages = mem_zalloc(options->n_repositories * sizeof(struct storage *));
    for (size_t i = 0; i < options->n_repositories; i++) {
        struct status *st =
            storage_open(options->repositories[i], options->follow_symlinks, &roots.storages[i]);
        if (st) {
            roots_close(&roots);
            return st;
        }
        roots.count++;
    }
    *ret_roots = roots;
    return NULL;
}

void roots_close(struct roots *roots)
{
    for (size_t i = 0; i < roots->count; i++)
        storage_close(roots->storages[i]);
    mem_free(roots->storages);
    *roots = (struct roots){0};
}

static void forget(struct polled_model *pm)
{
    mem_free(pm->name);
    mem_free(pm->failure);
}

/*
 * What lies about in many places and is meant for others: the folders of version control and of
 * editors, of file systems, and of volumes that Kubernetes mounts ("..data"). A model may be called
 * so if it has a configuration.
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

bool poll_is_model(const struct storage *s, const struct file_entry *entry,
                   struct status **ret_why_not)
{
    enum file_kind kind;
    struct status *st = storage_kind(s, "", entry, &kind);
    bool may_be_folder = kind == FILE_FOLDER || kind == FILE_LINK;
    *ret_why_not = NULL;
    if (!may_be_folder || is_foreign(s, entry->name)) {
        if (kind == FILE_MISSING)
            *ret_why_not = st;
        else
            status_free(st);
        return false;
    }
    if (!st && !utf8_is_valid(entry->name, strlen(entry->name)))
        st = status_new(STATUS_INVALID_ARG, "the name of the folder is not UTF-8");
    *ret_why_not = st;
    return true;
}

/* An entry of a root, which may be a model. */
static void add_entry(const struct storage *s, size_t root, const struct file_entry *entry,
                      bool quiet, struct poll *p)
{
    struct status *why_not = NULL;
    if (!poll_is_model(s, entry, &why_not)) {
        if (quiet)
            status_free(why_not);
        else
            log_status(LOG_WARN, "an entry of the model repository is left out", why_not);
        return;
    }
    struct polled_model *pm = &p->models[p->n_models++];
    *pm = (struct polled_model){.storage = s, .root = root};
    if (!why_not) {
        pm->name = mem_strdup(entry->name);
        return;
    }
    pm->name = utf8_printable(entry->name);
    pm->failure = status_reason(why_not);
    if (!quiet)
        log_error("Poll failed for model directory '%s': %s", pm->name, status_message(why_not));
    status_free(why_not);
}

/* The models of one repository: its folders, whatever is in them. */
static struct status *list_models(const struct storage *s, size_t root, bool quiet, struct poll *p)
{
    struct file_list list;
    struct status *st = storage_list(s, "", &list);
    if (st)
        return st;

    struct polled_model *models =
        mem_try_realloc(p->models, (p->n_models + list.count + 1) * sizeof(*models));
    if (!models) {
        file_list_done(&list);
        return status_no_memory();
    }
    p->models = models;
    for (size_t i = 0; i < list.count; i++)
        add_entry(s, root, &list.entries[i], quiet, p);
    file_list_done(&list);
    return NULL;
}

static int by_name(const void *a, const void *b)
{
    const struct polled_model *x = a, *y = b;
    int order = strcmp(x->name, y->name);
    return order ? order : (x->root > y->root) - (x->root < y->root);
}

/* A model that two repositories have is served from neither. */
static void refuse_duplicates(struct poll *p, bool quiet)
{
    size_t kept = 0;
    for (size_t i = 0; i < p->n_models; i++) {
        struct polled_model *pm = &p->models[i];
        struct polled_model *first = kept ? &p->models[kept - 1] : NULL;
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
        forget(pm);
    }
    p->n_models = kept;
}

void poll_roots(const struct roots *roots, const struct server_options *options, bool quiet,
                struct poll *ret_poll)
{
    struct poll p = {0};
    for (size_t i = 0; i < roots->count; i++) {
        const struct storage *s = roots->storages[i];
        struct status *st = list_models(s, i, quiet, &p);
        if (!st)
            continue;
        if (!quiet)
            log_error("failed to poll model repository '%s': %s", s->root, status_message(st));
        status_free(st);
        p.n_unlisted++;
    }
    if (p.n_models)
        qsort(p.models, p.n_models, sizeof(*p.models), by_name);
    if (!options->model_namespacing)
        refuse_duplicates(&p, quiet);
    *ret_poll = p;
}

void poll_model(const struct roots *roots, const struct server_options *options, const char *name,
                struct poll *ret_poll)
{
    struct poll p = {.models = mem_zalloc((roots->count + 1) * sizeof(*p.models))};
    /* As a link: what it leads to, a folder or nothing at all, is asked for. */
    struct file_entry entry = {.name = (char *)(uintptr_t)name, .kind = FILE_LINK};
    for (size_t i = 0; i < roots->count; i++)
        add_entry(roots->storages[i], i, &entry, false, &p);
    if (!options->model_namespacing)
        refuse_duplicates(&p, false);
    *ret_poll = p;
}

void poll_done(struct poll *poll)
{
    for (size_t i = 0; i < poll->n_models; i++)
        forget(&poll->models[i]);
    mem_free(poll->models);
    *poll = (struct poll){0};
}
