/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Advice about the files of a model: the place and the name that its file must have. The names of
 * the files that lie there decide; nothing is read. The server and `conch check` give it with an
 * error whose cause is most often a file in the wrong place.
 */
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "core/config/config.h"
#include "core/config/config_priv.h"

/* The suffix with its dot, and without the '/' that ends the name of a folder. */
static const char *find_suffix(const char *name, size_t *ret_length)
{
    const char *dot = strrchr(name, '.');
    *ret_length = dot ? strcspn(dot, "/") : 0;
    return dot && dot != name ? dot : NULL; /* ".onnx" has no suffix: its name begins with a dot */
}

static const struct config_artifact *find_artifact(const char *name)
{
    size_t length;
    const char *suffix = find_suffix(name, &length);
    bool is_folder = suffix && suffix[length] == '/';
    for (const struct config_artifact *a = config_artifacts; suffix && a->file; a++) {
        const char *right = strchr(a->file, '.');
        if (strlen(right) == length && memcmp(right, suffix, length) == 0 &&
            (a->form == EITHER || is_folder == (a->form == FOLDER_ONLY)))
            return a;
    }
    return NULL;
}

/* The version folder that version_files are of; "1" as the one to be made, if there is none. */
static const char *find_first_version(const struct config_facts *facts, int *ret_length,
                                      bool *ret_exists)
{
    *ret_exists = false;
    for (size_t i = 0; i < facts->n_folder_files; i++) {
        const char *name = facts->folder_files[i];
        size_t digits = strspn(name, "0123456789");
        bool is_version = digits && name[digits] == '/' && (name[0] != '0' || digits == 1);
        if (!is_version)
            continue;
        *ret_length = (int)digits;
        *ret_exists = true;
        return name;
    }
    *ret_length = 1;
    return "1";
}

/* The file's name for a message, without the '/' of a folder. */
static char *show_name(const char *name)
{
    char *copy = utf8_printable(name);
    size_t length = strlen(copy);
    if (length && copy[length - 1] == '/')
        copy[length - 1] = '\0';
    return copy;
}

/* A model's file beside the version folders. */
static char *advise_misplaced(const struct config_facts *facts)
{
    int length;
    bool exists;
    const char *version = find_first_version(facts, &length, &exists);
    for (size_t i = 0; i < facts->n_folder_files; i++) {
        const struct config_artifact *a = find_artifact(facts->folder_files[i]);
        if (!a)
            continue;
        char *shown = show_name(facts->folder_files[i]);
        char *advice =
            mem_printf("'%s/%s' must be in a version folder: move it to '%s/%.*s/%s'",
                       facts->model_name, shown, facts->model_name, length, version, a->file);
        mem_free(shown);
        return advice;
    }
    return NULL;
}

/* A model's file in the version folder, under a name of its own. */
static char *advise_misnamed(const struct config_facts *facts, const char *version, int length)
{
    for (size_t i = 0; i < facts->n_version_files; i++) {
        const struct config_artifact *a = find_artifact(facts->version_files[i]);
        if (!a || a->needs_platform)
            continue;
        char *shown = show_name(facts->version_files[i]);
        bool has_right_name = strcmp(shown, a->file) == 0;
        char *advice =
            has_right_name
                ? NULL
                : mem_printf("rename '%s/%.*s/%s' to '%s', or write backend: \"%s\" and "
                             "default_model_filename: \"%s\" in its config.pbtxt",
                             facts->model_name, length, version, shown, a->file, a->backend, shown);
        mem_free(shown);
        return advice;
    }
    return NULL;
}

char *config_advise_wrong_file(const struct config_facts *facts)
{
    int length;
    bool exists;
    const char *version = find_first_version(facts, &length, &exists);
    char *advice = advise_misnamed(facts, version, length);
    return advice ? advice : advise_misplaced(facts);
}

char *model_config_advise_files(const struct config_facts *facts, bool file_is_missing)
{
    int length;
    bool exists;
    const char *version = find_first_version(facts, &length, &exists);
    char *advice = config_advise_wrong_file(facts);
    if (advice)
        return advice;
    if (!exists)
        return mem_printf("there is no version folder: make '%s/1' and put the model's file there",
                          facts->model_name);
    if (file_is_missing && facts->n_version_files == 0)
        return mem_printf("the version folder '%s/%.*s' is empty: put the model's file there",
                          facts->model_name, length, version);
    return NULL;
}

char *config_advise_loose_file(const char *name)
{
    const struct config_artifact *a = find_artifact(name);
    if (!a)
        return NULL;
    char *shown = show_name(name);
    int stem = (int)(strrchr(shown, '.') - shown);
    char *advice = mem_printf("move it to '%.*s/1/%s'", stem, shown, a->file);
    mem_free(shown);
    return advice;
}
