/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The path is made absolute and freed of "." and ".." as text: no link is followed for it. What it
 * leads to is checked when its repository is opened (core/storage/). No state; any thread.
 */
#include "frontends/sagemaker/archive.h"

#include <string.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/status.h"

enum { MAX_PATH_BYTES = 1 << 20, MAX_CONFIG_BYTES = 1 << 20 };

/* ---- The body -------------------------------------------------------------------------------- */

static struct status *read_load_member(struct json *j, struct arena *arena, const char **ret)
{
    struct json_str value;
    if (!json_read_string(j, &value))
        return j->failure == JSON_OUT_OF_MEMORY
                   ? status_no_memory()
                   : status_new(STATUS_INVALID_ARG, "attempt to access JSON non-string as string");
    char *text = arena_strndup(arena, value.at, value.length);
    if (!text)
        return status_no_memory();
    if (strlen(text) != value.length)
        return status_new(STATUS_INVALID_ARG, "a zero byte in '%s'", text);
    *ret = text;
    return NULL;
}

struct status *load_request_read(const char *body, size_t size, struct arena *arena,
                                 struct load_request *ret)
{
    struct load_request r = {NULL, NULL};
    struct status *st = NULL;
    struct json_str key;
    struct json j;

    json_init(&j, body, size, arena);
    bool is_object = size > 0 && json_enter_object(&j);
    while (is_object && !st && json_next_member(&j, &key)) {
        if (!r.model_name && json_str_is(key, "model_name"))
            st = read_load_member(&j, arena, &r.model_name);
        else if (!r.url && json_str_is(key, "url"))
            st = read_load_member(&j, arena, &r.url);
        else
            json_skip_value(&j);
    }
    if (!st && j.failure == JSON_OUT_OF_MEMORY)
        st = status_no_memory();
    if (st)
        return st;
    *ret = (struct load_request){r.model_name ? r.model_name : "", r.url ? r.url : ""};
    return NULL;
}

/* ---- The path -------------------------------------------------------------------------------- */

/* Appends the parts of a path to an absolute one that ends without a slash; "" is the root. */
static void append_path(struct buf *path, const char *text)
{
    while (*text) {
        size_t n = strcspn(text, "/");
        if (n == 2 && memcmp(text, "..", 2) == 0) {
            while (path->size > 0 && path->data[--path->size] != '/')
                ;
        } else if (n > 0 && !(n == 1 && *text == '.')) {
            buf_addc(path, '/');
            buf_add(path, text, n);
        }
        text += n + (text[n] == '/');
    }
}

static struct status *make_absolute(const char *url, struct buf *path)
{
    char folder[4096];
    if (*url != '/') {
        if (!getcwd(folder, sizeof(folder)))
            return status_new(STATUS_INTERNAL, "the server's working directory has no path");
        append_path(path, folder);
    }
    append_path(path, url);
    buf_addc(path, '\0');
    return buf_status(path);
}

static bool path_begins_with(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

static bool is_of_system(const char *path)
{
    return path_begins_with(path, "/dev/") || path_begins_with(path, "/proc/") ||
           path_begins_with(path, "/sys/");
}

/* Passes over one folder whose name SageMaker may give; false when there is none. */
static bool pass_name(const char **at)
{
    size_t n = strspn(*at, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz._");
    *at += n;
    return n > 0;
}

static bool has_form(const char *root, const char *path)
{
    size_t n = strlen(root);
    const char *at = path + n;
    if (!path_begins_with(path, root) || *at++ != '/' || !pass_name(&at) ||
        !path_begins_with(at, "/model"))
        return false;
    at += strlen("/model");
    if (!*at)
        return true;
    return *at++ == '/' && pass_name(&at) && !*at;
}

/* ---- The folder of the model ----------------------------------------------------------------- */

static bool has_config(const char *folder)
{
    struct file_info info = {.kind = FILE_MISSING};
    char *path = mem_printf("%s/config.pbtxt", folder);
    status_free(file_stat(path, &info));
    mem_free(path);
    return info.kind == FILE_REGULAR;
}

/* Looks for `platform: "ensemble"`, with any blanks after the colon. */
static bool names_ensemble(const char *text, size_t size)
{
    static const char name[] = "platform:", value[] = "\"ensemble\"";
    const char *end = text + size, *at;
    while ((at = memmem(text, (size_t)(end - text), name, sizeof(name) - 1))) {
        text = at + sizeof(name) - 1;
        while (text < end && strchr(" \t\r\n\f\v", *text) && *text)
            text++;
        if ((size_t)(end - text) >= sizeof(value) - 1 &&
            memcmp(text, value, sizeof(value) - 1) == 0)
            return true;
    }
    return false;
}

static bool is_ensemble_folder(const char *folder)
{
    struct buf text;
    buf_init(&text, MAX_CONFIG_BYTES);
    char *path = mem_printf("%s/config.pbtxt", folder);
    struct status *st = file_read(path, &text); /* the load reports a file that cannot be read */
    bool found = !st && text.size > 0 && names_ensemble(text.data, text.size);
    status_free(st);
    buf_done(&text);
    mem_free(path);
    return found;
}

/* The folders that may be the model, by what speaks for each. */
struct candidates {
    size_t n_folders, n_configured, n_ensembles;
    const char *folder, *configured, *ensemble; /* the last of each kind */
};

static void consider_folder(struct candidates *c, const char *path, const char *name)
{
    char *folder = mem_printf("%s/%s", path, name);
    c->n_folders++;
    c->folder = name;
    if (has_config(folder)) {
        c->n_configured++;
        c->configured = name;
        if (is_ensemble_folder(folder)) {
            c->n_ensembles++;
            c->ensemble = name;
        }
    }
    mem_free(folder);
}

static struct status *choose_folder(const char *path, char **ret)
{
    struct candidates c = {0};
    struct file_list list;
    struct status *st = file_list(path, &list);
    if (st) {
        status_free(st); /* the reference's text, which names no cause */
        return status_new(STATUS_INVALID_ARG, "failed to register '%s', repository not found",
                          path);
    }
    for (size_t i = 0; i < list.count; i++) {
        if (list.entries[i].kind == FILE_FOLDER && list.entries[i].name[0] != '.')
            consider_folder(&c, path, list.entries[i].name);
    }
    const char *found = c.n_ensembles == 1                          ? c.ensemble
                        : c.n_ensembles == 0 && c.n_configured == 1 ? c.configured
                        : c.n_folders == 1                          ? c.folder
                                                                    : NULL;
    if (found)
        *ret = mem_strdup(found);
    else if (c.n_folders == 0)
        st = status_new(STATUS_INVALID_ARG, "failed to register '%s', it has no model", path);
    else
        st = status_new(STATUS_INVALID_ARG,
                        "failed to register '%s', it has %zu folders and %zu ensembles: of several "
                        "models one must be the ensemble that is served",
                        path, c.n_folders, c.n_ensembles);
    file_list_done(&list);
    return st;
}

static struct status *find_archived_model(const char *path, struct archive *ret)
{
    if (has_config(path)) {
        const char *slash = strrchr(path, '/');
        ret->repository = mem_strndup(path, (size_t)(slash - path));
        ret->folder = mem_strdup(slash + 1);
        return NULL;
    }
    struct status *st = choose_folder(path, &ret->folder);
    if (!st)
        ret->repository = mem_strdup(path);
    return st;
}

struct status *archive_find(const char *root, const char *url, struct archive *ret)
{
    struct buf path;
    buf_init(&path, MAX_PATH_BYTES);
    struct status *st = make_absolute(url, &path);
    if (!st && is_of_system(path.data))
        st = status_new(STATUS_NOT_FOUND, "no model lies in '%s'", url);
    else if (!st && !has_form(root, path.data))
        st = status_new(STATUS_INVALID_ARG,
                        "Invalid \"url\" '%s': expected a path of the form "
                        "%s/<hash>/model[/<subdir>]",
                        url, root);
    else if (!st)
        st = find_archived_model(path.data, ret);
    buf_done(&path);
    return st;
}

void archive_done(struct archive *a)
{
    mem_free(TAKE(a->repository));
    mem_free(TAKE(a->folder));
}
