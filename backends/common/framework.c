/* SPDX-License-Identifier: Apache-2.0 */
/*
 * search_framework() is the list of places. Each attempt is noted, so that the error can list them.
 */
#include "common/framework.h"

#include <dlfcn.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The files that were tried, for the message; a memory stream. */
struct search {
    char *tried;
    size_t tried_len;
    FILE *tried_to;
    bool no_memory; /* ends the search: another place may have another library */
};

static void note_attempt(struct search *s, const char *where, const char *why)
{
    fprintf(s->tried_to, "%s%s%s%s", ftell(s->tried_to) > 0 ? ", " : "", where, why ? ": " : "",
            why ? why : "");
}

static void *try_file(struct search *s, const char *file)
{
    void *handle = s->no_memory ? NULL : dlopen(file, RTLD_NOW | RTLD_LOCAL);
    const char *why = dlerror();

    if (!handle) {
        /* The name is in the loader's text already, and a missing file needs no further reason. */
        size_t len = strlen(file);

        if (why && strncmp(why, file, len) == 0 && why[len] == ':')
            why += len + 1 + (why[len + 1] == ' ');
        note_attempt(s, file, why && strstr(why, "No such file") ? NULL : why);
    }
    return handle;
}

static int compare_library_versions(const void *a, const void *b)
{
    return -strverscmp(*(char *const *)a, *(char *const *)b);
}

/* Opens the newest file of a pattern that can be loaded. */
static void *try_pattern(struct search *s, const char *prefix, const char *between,
                         const char *pattern)
{
    char *full = NULL;
    void *handle = NULL;
    glob_t found;
    int failed;

    if (!prefix || s->no_memory)
        return NULL;
    if (asprintf(&full, "%s%s%s", prefix, between, pattern) < 0) {
        s->no_memory = true;
        return NULL;
    }
    failed = glob(full, 0, NULL, &found);
    s->no_memory = failed == GLOB_NOSPACE;
    if (!failed) {
        qsort(found.gl_pathv, found.gl_pathc, sizeof(*found.gl_pathv), compare_library_versions);
        for (size_t i = 0; i < found.gl_pathc && !handle; i++)
            handle = try_file(s, found.gl_pathv[i]);
        globfree(&found);
    } else {
        note_attempt(s, full, NULL);
    }
    free(full);
    return handle;
}

/* Where pip puts packages, below a prefix; Debian's own Python has dist-packages. */
#define SITE "/lib/python3*/site-packages/"
#define DIST "/lib/python3*/dist-packages/"

/* Tries the packages of the Pythons that the user would start: <prefix>/bin is on the PATH. */
static void *try_pythons(struct search *s, const char *package)
{
    const char *path = getenv("PATH"), *end;
    void *handle = NULL;

    for (; path && *path && !handle; path = *end ? end + 1 : end) {
        char *python = NULL, *prefix = NULL;

        end = strchrnul(path, ':');
        if (asprintf(&python, "%.*s/python3", (int)(end - path), path) < 0)
            python = NULL;
        else if (asprintf(&prefix, "%.*s/..", (int)(end - path), path) < 0)
            prefix = NULL;
        s->no_memory |= !prefix;
        if (prefix && access(python, X_OK) == 0)
            handle = try_pattern(s, prefix, SITE, package);
        free(prefix);
        free(python);
    }
    return handle;
}

static void *search_packages(struct search *s, const char *package)
{
    const char *home = getenv("HOME");
    void *handle = try_pythons(s, package);

    if (!handle && home)
        handle = try_pattern(s, home, "/.local" SITE, package);
    if (!handle)
        handle = try_pattern(s, "/usr/local", DIST, package);
    if (!handle)
        handle = try_pattern(s, "/usr", DIST, package);
    return handle;
}

static void *search_framework(struct search *s, const struct framework *f, const char *backend_dir)
{
    void *handle = NULL;

    for (const char *const *at = f->beside; *at && !handle; at++)
        handle = try_pattern(s, backend_dir, "", *at);
    for (const char *const *at = f->system; *at && !handle; at++)
        handle = try_file(s, *at);
    return handle ? handle : search_packages(s, f->package);
}

/* Sets the variables that are not set yet; the bits say which these were. */
static uint32_t set_environment(const char *const *variables)
{
    uint32_t set = 0;

    for (size_t i = 0; variables && variables[i]; i += 2) {
        if (!getenv(variables[i]) && setenv(variables[i], variables[i + 1], 1) == 0)
            set |= (uint32_t)1 << i;
    }
    return set;
}

static void unset_environment(const char *const *variables, uint32_t set)
{
    for (size_t i = 0; set; i += 2, set >>= 2) {
        if (set & 1)
            unsetenv(variables[i]);
    }
}

static void *load_framework(struct search *s, const struct framework *f, const char *backend_dir,
                            const char *file)
{
    uint32_t set = set_environment(f->environment);
    /* If the user names a file, that file is loaded or it is an error; no other file is tried. */
    void *handle = file && *file ? try_file(s, file) : search_framework(s, f, backend_dir);

    unset_environment(f->environment, set);
    return handle;
}

TRITONSERVER_Error *framework_find(const struct framework *f, const char *backend_dir,
                                   const char *file, void **ret_handle)
{
    struct search s = {0};
    TRITONSERVER_Error *err = NULL;
    void *handle;

    if (!file || !*file)
        file = getenv(f->variable);
    s.tried_to = open_memstream(&s.tried, &s.tried_len);
    if (!s.tried_to)
        return backend_error(TRITONSERVER_ERROR_INTERNAL, "out of memory");
    handle = load_framework(&s, f, backend_dir, file);
    if (fclose(s.tried_to) != 0)
        s.no_memory = true;
    if (handle)
        *ret_handle = handle;
    else if (s.no_memory)
        err = backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "out of memory");
    else
        err = backend_error(TRITONSERVER_ERROR_NOT_FOUND, "%s cannot be loaded; tried %s; %s",
                            f->title, s.tried, f->how_to_get);
    free(s.tried);
    return err;
}

char *framework_path(void *function)
{
    Dl_info where;

    return dladdr(function, &where) && where.dli_fname ? realpath(where.dli_fname, NULL) : NULL;
}

char *framework_version_text(TRITONSERVER_Error *err, const char *name, const char *version,
                             const char *path, const char *details)
{
    char *text = NULL;

    if (err) {
        text = strdup(TRITONSERVER_ErrorMessage(err));
        TRITONSERVER_ErrorDelete(err);
    } else if (asprintf(&text, "%s %s from %s%s", name, version, path ? path : "?", details) < 0) {
        text = NULL;
    }
    return text;
}
