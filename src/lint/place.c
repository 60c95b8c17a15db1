/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lint_find_places() asks in this order: is the path a repository, a folder or file of a model, a
 * folder above repositories? Only names and kinds of entries are looked at. A folder is
 *
 * - a model's: it has a config.pbtxt, or a version folder with a file model.*;
 * - a repository: a folder in it is a model's.
 *
 * Thread: the caller's.
 */
#include "lint/place.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/compiler.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/status.h"

enum {
    MAX_DEPTH = 3,        /* how far below a folder a repository is sought */
    MAX_ENTRIES = 1000,   /* of a folder, that are looked at for that */
    MAX_REPOSITORIES = 20 /* that one path may mean */
};

static enum file_kind kind_at(const char *path)
{
    struct file_info info = {.kind = FILE_MISSING};
    status_free(file_stat(path, &info));
    return info.kind;
}

static char *join_path(const char *folder, const char *name)
{
    return strcmp(folder, ".") == 0 ? mem_strdup(name) : mem_printf("%s/%s", folder, name);
}

/* ---- what a folder is ------------------------------------------------------------------------ */

static bool has_config_file(const char *folder)
{
    char *path = join_path(folder, "config.pbtxt");
    bool has = kind_at(path) == FILE_REGULAR;
    mem_free(path);
    return has;
}

static bool is_version_name(const char *name)
{
    return *name >= '1' && *name <= '9' && !name[strspn(name, "0123456789")];
}

static bool has_model_file(const char *folder)
{
    struct file_list list;
    bool has = false;
    struct status *st = file_list(folder, &list);
    if (st) {
        status_free(st);
        return false;
    }
    for (size_t i = 0; i < list.count && !has; i++)
        has = strncmp(list.entries[i].name, "model.", 6) == 0;
    file_list_done(&list);
    return has;
}

typedef bool folder_test(const char *folder, const char *name, int depth);

/* Does a folder in this one pass the test? Hidden ones are not asked. */
static bool any_folder(const char *folder, folder_test *test, int depth)
{
    struct file_list list;
    bool found = false;
    struct status *st = file_list(folder, &list);
    if (st) {
        status_free(st);
        return false;
    }
    for (size_t i = 0; i < list.count && i < MAX_ENTRIES && !found; i++) {
        const struct file_entry *e = &list.entries[i];
        if (*e->name == '.' || (e->kind != FILE_FOLDER && e->kind != FILE_LINK))
            continue;
        char *path = join_path(folder, e->name);
        found = test(path, e->name, depth);
        mem_free(path);
    }
    file_list_done(&list);
    return found;
}

static bool is_version_folder(const char *folder, const char *name, int depth)
{
    (void)depth;
    return is_version_name(name) && has_model_file(folder);
}

static bool is_models_folder(const char *folder, const char *name, int depth)
{
    (void)name;
    return has_config_file(folder) || any_folder(folder, is_version_folder, depth);
}

static bool has_version_name(const char *folder, const char *name, int depth)
{
    (void)folder;
    (void)depth;
    return is_version_name(name);
}

/* More than a config.pbtxt, which may be of a template or a backend. */
static bool is_served_folder(const char *folder, const char *name, int depth)
{
    return is_models_folder(folder, name, depth) && any_folder(folder, has_version_name, depth);
}

static bool is_repository_folder(const char *folder)
{
    return any_folder(folder, is_models_folder, 0);
}

/* ---- the list -------------------------------------------------------------------------------- */

static void add_note(struct lint_places *p, char *note)
{
    p->notes = mem_realloc(p->notes, (p->n_notes + 1) * sizeof(*p->notes));
    p->notes[p->n_notes++] = note;
}

static struct lint_place *add_place(struct lint_places *p, const char *root)
{
    p->items = mem_realloc(p->items, (p->n + 1) * sizeof(*p->items));
    p->items[p->n] = (struct lint_place){.root = mem_strdup(root)};
    return &p->items[p->n++];
}

/* Two models of one repository are wanted of one place. */
static void add_wanted_model(struct lint_places *p, const char *root, const char *model)
{
    struct lint_place *place = NULL;
    for (size_t i = 0; i < p->n && !place; i++) {
        if (strcmp(p->items[i].root, root) == 0)
            place = &p->items[i];
    }
    if (place && !place->models)
        return; /* all are wanted */
    if (!place)
        place = add_place(p, root);
    place->models = mem_realloc(place->models, (place->n_models + 1) * sizeof(*place->models));
    place->models[place->n_models++] = mem_strdup(model);
}

/* ---- a model --------------------------------------------------------------------------------- */

/* The folder above; for "." and the like by "..". The caller frees it. */
static char *folder_above(const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    if (!*name || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return mem_printf("%s/..", path);
    return slash ? mem_strndup(path, slash == path ? 1 : (size_t)(slash - path)) : mem_strdup(".");
}

/* The folder's own name, also for ".". The caller frees it. */
static char *folder_name(const char *path)
{
    char real[PATH_MAX];
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    if ((!*name || strcmp(name, ".") == 0 || strcmp(name, "..") == 0) && realpath(path, real))
        name = strrchr(real, '/') + 1;
    return mem_strdup(name);
}

static void take_model(struct lint_places *p, const char *path, const char *what,
                       const char *folder)
{
    char *root = folder_above(folder), *name = folder_name(folder);
    add_wanted_model(p, root, name);
    add_note(p, mem_printf("'%s' is %s: model '%s' is checked, in its repository '%s'", path, what,
                           name, root));
    mem_free(name);
    mem_free(root);
}

/* A file in the folder of a model, or of a version. */
static bool take_file(struct lint_places *p, const char *path)
{
    char *folder = folder_above(path), *above = folder_above(folder), *name = folder_name(folder);
    const char *slash = strrchr(path, '/');
    bool config = strcmp(slash ? slash + 1 : path, "config.pbtxt") == 0;
    bool version = is_version_name(name) && is_models_folder(above, name, 0);
    if (config)
        take_model(p, path, "the configuration of a model", folder);
    else if (version)
        take_model(p, path, "a file of a model", above);
    mem_free(name);
    mem_free(above);
    mem_free(folder);
    return config || version;
}

static bool take_folder(struct lint_places *p, const char *path)
{
    char *name = folder_name(path), *above = folder_above(path);
    bool taken = true;
    if (is_repository_folder(path))
        add_place(p, path);
    else if (is_models_folder(path, name, 0))
        take_model(p, path, "the folder of a model", path);
    else if (is_version_name(name) && has_config_file(above))
        take_model(p, path, "the folder of a version", above);
    else
        taken = false;
    mem_free(above);
    mem_free(name);
    return taken;
}

/* ---- a folder above -------------------------------------------------------------------------- */

struct search {
    char *found[MAX_REPOSITORIES];
    size_t n;
};

/* Finds repositories below a folder that is none; those inside a repository are models' folders. */
static void search_below(struct search *s, const char *folder, int depth)
{
    struct file_list list;
    struct status *st = file_list(folder, &list);
    if (st) {
        status_free(st);
        return;
    }
    for (size_t i = 0; i < list.count && i < MAX_ENTRIES; i++) {
        const struct file_entry *e = &list.entries[i];
        if (*e->name == '.' || e->kind != FILE_FOLDER || s->n == MAX_REPOSITORIES)
            continue;
        char *path = join_path(folder, e->name);
        if (any_folder(path, is_served_folder, 0)) {
            s->found[s->n++] = path;
            continue;
        }
        if (depth < MAX_DEPTH)
            search_below(s, path, depth + 1);
        mem_free(path);
    }
    file_list_done(&list);
}

static bool take_above(struct lint_places *p, const char *path)
{
    struct search s = {.n = 0};
    AUTO(buf) names = BUF_INIT(MAX_REPOSITORIES * PATH_MAX);
    search_below(&s, path, 1);
    for (size_t i = 0; i < s.n; i++) {
        buf_addf(&names, "%s'%s'", i ? ", " : "", s.found[i]);
        add_place(p, s.found[i]);
        mem_free(s.found[i]);
    }
    if (s.n)
        add_note(p, mem_printf("'%s' is a folder above model repositories; checked: %s", path,
                               buf_text(&names)));
    return s.n > 0;
}

void lint_find_places(struct lint_places *p, const char *given)
{
    size_t length = strlen(given);
    while (length > 1 && given[length - 1] == '/')
        length--;
    char *path = mem_strndup(given, length);
    enum file_kind kind = kind_at(path);
    bool taken = false;
    if (kind == FILE_REGULAR)
        taken = take_file(p, path);
    else if (kind == FILE_FOLDER)
        taken = take_folder(p, path) || take_above(p, path);
    if (!taken)
        add_place(p, path);
    mem_free(path);
}

bool lint_place_wants(const struct lint_place *p, const char *model)
{
    bool wanted = !p->models;
    for (size_t i = 0; i < p->n_models && !wanted; i++)
        wanted = strcmp(p->models[i], model) == 0;
    return wanted;
}

void lint_places_done(struct lint_places *p)
{
    for (size_t i = 0; i < p->n; i++) {
        for (size_t k = 0; k < p->items[i].n_models; k++)
            mem_free(p->items[i].models[k]);
        mem_free(p->items[i].models);
        mem_free(p->items[i].root);
    }
    for (size_t i = 0; i < p->n_notes; i++)
        mem_free(p->notes[i]);
    mem_free(p->items);
    mem_free(p->notes);
    *p = (struct lint_places){0};
}
