/* SPDX-License-Identifier: Apache-2.0 */
/*
 * In this order: the search (search_library() is the list of places), loading the table of
 * functions, and helpers. The library is never unloaded; library_done() says why. The struct is
 * constant once it is open, and all threads use it.
 */
#include "onnxruntime/library.h"

#include <dlfcn.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HOW_TO_GET                                                                                 \
    "get it with `make deps` in Conch's folder, `pip install onnxruntime` or (Debian 13) "         \
    "`apt install libonnxruntime1.21`, or name it: "                                               \
    "--backend-config=onnxruntime,library-path=FILE or CONCH_ONNXRUNTIME=FILE"

/* ---- The search ------------------------------------------------------------------------------ */

/* The files that were tried, for the message; a memory stream. */
struct search {
    char *tried;
    size_t tried_len;
    FILE *tried_to;
};

static void note_attempt(struct search *s, const char *where, const char *why)
{
    fprintf(s->tried_to, "%s%s%s%s", ftell(s->tried_to) > 0 ? ", " : "", where, why ? ": " : "",
            why ? why : "");
}

static void *try_file(struct search *s, const char *file)
{
    void *handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
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
static void *try_pattern(struct search *s, const char *prefix, const char *pattern)
{
    char *full = NULL;
    void *handle = NULL;
    glob_t found;

    if (!prefix || asprintf(&full, "%s%s", prefix, pattern) < 0)
        return NULL;
    if (glob(full, 0, NULL, &found) == 0) {
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

/* Where pip puts the wheel's library, below <prefix>/lib; Debian's own Python has dist-packages. */
#define WHEEL(packages) "/lib/python3*/" packages "/onnxruntime/capi/libonnxruntime.so*"

/* Tries the packages of the Pythons that the user would start: <prefix>/bin is on the PATH. */
static void *try_pythons(struct search *s)
{
    const char *path = getenv("PATH"), *end;
    void *handle = NULL;

    for (; path && *path && !handle; path = *end ? end + 1 : end) {
        char *python = NULL, *prefix = NULL;

        end = strchrnul(path, ':');
        if (asprintf(&python, "%.*s/python3", (int)(end - path), path) < 0)
            return NULL;
        if (access(python, X_OK) == 0 && asprintf(&prefix, "%.*s/..", (int)(end - path), path) > 0)
            handle = try_pattern(s, prefix, WHEEL("site-packages"));
        free(prefix);
        free(python);
    }
    return handle;
}

static void *search_library(struct search *s, const char *backend_dir)
{
    const char *home = getenv("HOME");
    void *handle = try_pattern(s, backend_dir, "/libonnxruntime.so*");
    char *local = NULL;

    if (!handle)
        handle = try_pattern(s, backend_dir, "/onnxruntime/libonnxruntime.so*");
    if (!handle) /* In a clone, from build/<preset>/backends/onnxruntime. */
        handle = try_pattern(s, backend_dir, "/../../../../.deps/onnxruntime/libonnxruntime.so*");
    if (!handle)
        handle = try_file(s, "libonnxruntime.so.1");
    if (!handle)
        handle = try_file(s, "libonnxruntime.so");
    if (!handle)
        handle = try_pythons(s);
    if (!handle && home && asprintf(&local, "%s/.local", home) > 0)
        handle = try_pattern(s, local, WHEEL("site-packages"));
    if (!handle)
        handle = try_pattern(s, "/usr/local", WHEEL("dist-packages"));
    if (!handle)
        handle = try_pattern(s, "/usr", WHEEL("dist-packages"));
    free(local);
    return handle;
}

static TRITONSERVER_Error *find_onnxruntime(const char *backend_dir, const char *library,
                                            void **ret_handle)
{
    struct search s = {0};
    TRITONSERVER_Error *err = NULL;

    if (!library || !*library)
        library = getenv("CONCH_ONNXRUNTIME");
    s.tried_to = open_memstream(&s.tried, &s.tried_len);
    if (!s.tried_to)
        return backend_error(TRITONSERVER_ERROR_INTERNAL, "out of memory");
    /* If the user names a file, that file is loaded or it is an error; no other file is tried. */
    if (library && *library)
        *ret_handle = try_file(&s, library);
    else
        *ret_handle = search_library(&s, backend_dir);
    fclose(s.tried_to);
    if (!*ret_handle)
        err = backend_error(TRITONSERVER_ERROR_NOT_FOUND,
                            "ONNX Runtime's library libonnxruntime.so cannot be loaded; tried %s; "
                            "%s",
                            s.tried, HOW_TO_GET);
    free(s.tried);
    return err;
}

/* ---- The table of functions ------------------------------------------------------------------ */

static void fill_table(struct ort_api *api, const void *const *table)
{
    /* Data and function pointers have one representation on every system that has dlsym. */
#define ORT_FILL(place, result, name, parameters)                                                  \
    api->name = (__typeof__(api->name))(uintptr_t)table[place];
    ORT_FUNCTIONS(ORT_FILL)
#undef ORT_FILL
}

static TRITONSERVER_Error *load_table(struct library *l, void *handle)
{
    ort_get_api_base_fn *get_api_base;
    void *symbol = dlsym(handle, "OrtGetApiBase");
    const void *const *table;
    Dl_info where;
    unsigned int major, minor;

    if (!symbol)
        return backend_error(TRITONSERVER_ERROR_UNSUPPORTED,
                             "the ONNX Runtime library has no OrtGetApiBase: %s", dlerror());
    if (dladdr(symbol, &where) && where.dli_fname)
        l->path = realpath(where.dli_fname, NULL);
    memcpy(&get_api_base, &symbol, sizeof(get_api_base));
    l->version = get_api_base()->GetVersionString();

    /* A library complains on standard error if it is asked for a newer table than it has, so its
     * version is tested first. Tables only grow; an old one has all that we need. */
    if (sscanf(l->version, "%u.%u", &major, &minor) != 2 || major != 1 || minor < ORT_TABLE_VERSION)
        return backend_error(TRITONSERVER_ERROR_UNSUPPORTED,
                             "ONNX Runtime %s in %s cannot be used: version 1.%d or a later 1.x is "
                             "needed",
                             l->version, l->path ? l->path : "?", ORT_TABLE_VERSION);
    table = get_api_base()->GetApi(ORT_TABLE_VERSION);
    if (!table)
        return backend_error(TRITONSERVER_ERROR_UNSUPPORTED,
                             "ONNX Runtime %s in %s does not give out its functions", l->version,
                             l->path ? l->path : "?");
    fill_table(&l->api, table);
    return NULL;
}

/* Reads the names of the providers, as "A, B". */
static TRITONSERVER_Error *read_providers(struct library *l)
{
    TRITONSERVER_Error *err;
    char **names = NULL;
    size_t len;
    int n = 0;
    FILE *to;

    TRY_ORT(l, GetAvailableProviders(&names, &n));
    to = open_memstream(&l->providers, &len);
    for (int i = 0; to && i < n; i++)
        fprintf(to, "%s%s", i > 0 ? ", " : "", names[i]);
    err = library_error(l, l->api.ReleaseAvailableProviders(names, n));
    if (!to || fclose(to) != 0) {
        backend_ignore(err, "releasing the providers");
        return backend_error(TRITONSERVER_ERROR_INTERNAL, "out of memory");
    }
    return err;
}

/* Since 1.29 the published libraries report their use to their vendor, from a thread and with a
 * database below ~/.cache, unless this variable disables that before they start. A server must
 * not report without its user's consent; a user who has set the variable has decided. */
static void keep_quiet(void)
{
    setenv("ORT_DISABLE_TELEMETRY", "1", 0);
}

TRITONSERVER_Error *library_open(const char *backend_dir, const char *file,
                                 struct library *ret_library)
{
    TRITONSERVER_Error *err;
    struct library l = {0};
    void *handle = NULL;

    keep_quiet();
    TRY(find_onnxruntime(backend_dir, file, &handle));
    err = load_table(&l, handle);
    if (!err)
        err = read_providers(&l);
    if (err)
        library_done(&l);
    else
        *ret_library = l;
    return err;
}

void library_done(struct library *l)
{
    /* The library stays loaded: its threads may still return from its code, and its thread-local
     * objects have destructors in it. */
    free(l->path);
    free(l->providers);
}

void library_keep_backend(void)
{
    Dl_info ours;

    if (dladdr((void *)(uintptr_t)library_keep_backend, &ours) && ours.dli_fname)
        (void)dlopen(ours.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE);
}

bool library_offers(const struct library *l, const char *provider)
{
    size_t len = strlen(provider);

    for (const char *at = l->providers; (at = strstr(at, provider)) != NULL; at += len)
        if ((at == l->providers || at[-1] == ' ') && (at[len] == ',' || at[len] == '\0'))
            return true;
    return false;
}

TRITONSERVER_Error *library_error(const struct library *l, struct ort_status *status)
{
    TRITONSERVER_Error *err;
    char *text;

    if (!status)
        return NULL;
    text = strdup(l->api.GetErrorMessage(status));
    if (text)
        for (char *c = text; *c; c++)
            if (*c == '\n' || *c == '\r')
                *c = ' ';
    err = backend_error(TRITONSERVER_ERROR_INTERNAL, "onnx runtime error %d: %s",
                        l->api.GetErrorCode(status), text ? text : "out of memory");
    free(text);
    l->api.ReleaseStatus(status);
    return err;
}
