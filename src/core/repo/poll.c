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

/* The models of one repository: its folders, whatever is in them. */
static struct status *list_models(const struct storage *s, size_t root, struct poll *p)
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
    for (size_t i = 0; i < list.count; i++) {
        struct status *why_not = NULL;
        if (!poll_is_model(s, &list.entries[i], &why_not)) {
            log_status(LOG_WARN, "an entry of the model repository is left out", why_not);
            continue;
        }
        struct polled_model *pm = &p->models[p->n_models++];
        *pm = (struct polled_model){.storage = s, .root = root};
        if (!why_not) {
            pm->name = TAKE(list.entries[i].name);
            continue;
        }
        pm->name = utf8_printable(list.entries[i].name);
        pm->failure = status_reason(why_not);
        log_error("Poll failed for model directory '%s': %s", pm->name, status_message(why_not));
        status_free(why_not);
    }
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
static void refuse_duplicates(struct poll *p)
{
    size_t kept = 0;
    for (size_t i = 0; i < p->n_models; i++) {
        struct polled_model *pm = &p->models[i];
        struct polled_model *first = kept ? &p->models[kept - 1] : NULL;
        if (!first || strcmp(first->name, pm->name) != 0) {
            p->models[kept++] = *pm;
            continue;
        }
        log_error("failed to poll model '%s': not unique across all model repositories: '%s', '%s'",
                  pm->name, first->storage->root, pm->storage->root);
        mem_free(first->failure);
        first->duplicate = true;
        first->failure = mem_strdup("model appears in two or more repositories");
        forget(pm);
    }
    p->n_models = kept;
}

void poll_roots(const struct roots *roots, const struct server_options *options,
                struct poll *ret_poll)
{
    struct poll p = {0};
    for (size_t i = 0; i < roots->count; i++) {
        const struct storage *s = roots->storages[i];
        struct status *st = list_models(s, i, &p);
        if (!st)
            continue;
        log_error("failed to poll model repository '%s': %s", s->root, status_message(st));
        status_free(st);
        p.n_unlisted++;
    }
    if (p.n_models)
        qsort(p.models, p.n_models, sizeof(*p.models), by_name);
    if (!options->model_namespacing)
        refuse_duplicates(&p);
    *ret_poll = p;
}

void poll_done(struct poll *poll)
{
    for (size_t i = 0; i < poll->n_models; i++)
        forget(&poll->models[i]);
    mem_free(poll->models);
    *poll = (struct poll){0};
}
