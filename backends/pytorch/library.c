/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PyTorch's library is loaded first. The shim names it as a library that it needs, by its name
 * without a folder, so the loader takes the one that is there already. A shim for a library of
 * another name would bring a second PyTorch into the process, so it is not loaded; one for another
 * release of the same name is found out by what the library says of itself.
 */
#include "pytorch/library.h"

#include <dlfcn.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/framework.h"
#include "pytorch/aoti.h"

/* CMake knows them if there is a shim (shim/CMakeLists.txt). */
#ifndef TORCH_COMPILED
#define TORCH_COMPILED ""
#define TORCH_SONAME   "libtorch_cpu.so"
#define TORCH_FILE     "libtorch_cpu.so"
#endif

#define SHIM_FILE "libconch_torch.so"

static const struct framework torch = {
    .title = "PyTorch's library libtorch_cpu.so",
    .variable = "CONCH_TORCH",
    .beside = (const char *const[]){"/libtorch_cpu.so*", "/torch/lib/libtorch_cpu.so*", NULL},
    .system = (const char *const[]){TORCH_SONAME, TORCH_FILE, NULL},
    .package = "torch/lib/libtorch_cpu.so",
    .how_to_get = "get PyTorch (Debian 12: `apt-get install libtorch1.13`; Python: `pip install "
                  "torch`), or name it: --backend-config=pytorch,library-path=FILE or "
                  "CONCH_TORCH=FILE",
    .environment = FRAMEWORK_OPENMP_SLEEPS,
};

static TRITONSERVER_Error *report_no_memory(void)
{
    return backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "out of memory");
}

/* ---- The library ----------------------------------------------------------------------------- */

/* The name by which the loader knows a library. */
static const char *read_soname(const struct link_map *map)
{
    const char *strings = NULL;
    size_t offset = 0;

    for (const ElfW(Dyn) *d = map->l_ld; d->d_tag != DT_NULL; d++) {
        if (d->d_tag == DT_STRTAB)
            strings = (const char *)d->d_un.d_ptr;
        else if (d->d_tag == DT_SONAME)
            offset = d->d_un.d_val;
    }
    return strings && offset ? strings + offset : "";
}

/* What is known of the library that is loaded. */
struct loaded {
    char *path;         /* without links; owned */
    const char *soname; /* the library's */
    char *folder;       /* of the path; owned */
};

static TRITONSERVER_Error *describe_loaded(void *handle, struct loaded *ret_loaded)
{
    struct link_map *map;
    struct loaded l = {0};
    char *slash;

    if (dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0)
        return backend_error(TRITONSERVER_ERROR_INTERNAL, "PyTorch's library: %s", dlerror());
    l.path = realpath(map->l_name, NULL);
    l.folder = l.path ? strdup(l.path) : NULL;
    if (!l.folder) {
        free(l.path);
        return report_no_memory();
    }
    slash = strrchr(l.folder, '/');
    *slash = '\0';
    l.soname = read_soname(map);
    *ret_loaded = l;
    return NULL;
}

static void loaded_done(struct loaded *l)
{
    free(l->path);
    free(l->folder);
}

/* The command that compiles a shim: a Python package has its headers beside lib/. */
static TRITONSERVER_Error *advise_build(const struct loaded *l, const char *backend_dir,
                                        const char *why)
{
    size_t n = strlen(l->folder);
    bool package = n > 4 && strcmp(l->folder + n - 4, "/lib") == 0;
    TRITONSERVER_Error *err;
    char *command = NULL;

    if (package ? asprintf(&command, "%s/shim/build '%.*s'", backend_dir, (int)n - 4, l->folder) < 0
                : asprintf(&command, "%s/shim/build /usr '%s/" SHIM_FILE "'", backend_dir,
                           backend_dir) < 0)
        return report_no_memory();
    err = backend_error(
        TRITONSERVER_ERROR_UNSUPPORTED,
        "PyTorch from '%s' needs a part of the backend pytorch that is compiled for it, and %s; run "
        "`%s`, which needs g++%s",
        l->path, why, command, package ? "" : " and PyTorch's headers (Debian 12: libtorch-dev)");
    free(command);
    return err;
}

/* ---- The shim -------------------------------------------------------------------------------- */

static bool runs_what_it_was_made_for(const struct shim *shim)
{
    size_t n = strlen(shim->version);

    /* A release may have a suffix: 2.15.0 and 2.15.0+cpu. */
    return !shim->running || (strncmp(shim->running, shim->version, n) == 0 &&
                              (shim->running[n] < '0' || shim->running[n] > '9'));
}

static TRITONSERVER_Error *load_shim(const struct loaded *l, const char *backend_dir,
                                     const char *file, const struct shim **ret_shim)
{
    void *handle = dlopen(file, RTLD_NOW | RTLD_LOCAL), *symbol;
    const struct shim *shim = NULL;
    TRITONSERVER_Error *err;
    shim_fn *function;
    char *why = NULL;
    int n;

    symbol = handle ? dlsym(handle, SHIM_FUNCTION) : NULL;
    if (symbol) {
        /* Data and function pointers have one representation on every system that has dlsym. */
        memcpy(&function, &symbol, sizeof(symbol));
        shim = function(SHIM_VERSION);
    }
    if (shim && runs_what_it_was_made_for(shim)) {
        *ret_shim = shim;
        return NULL;
    }
    if (!handle)
        n = asprintf(&why, "'%s' cannot be loaded: %s", file, dlerror());
    else if (!shim)
        n = asprintf(&why, "'%s' is of another build of the backend", file);
    else
        n = asprintf(&why, "'%s' is for PyTorch %s, but this is %s", file, shim->version,
                     shim->running);
    err = n < 0 ? report_no_memory() : advise_build(l, backend_dir, why);
    free(why);
    return err;
}

/* Finds the shim in a folder; NULL if it has none. */
static TRITONSERVER_Error *find_in_folder(const char *folder, char **ret_file)
{
    char *file;

    *ret_file = NULL;
    if (asprintf(&file, "%s/" SHIM_FILE, folder) < 0)
        return report_no_memory();
    if (access(file, F_OK) == 0)
        *ret_file = file;
    else
        free(file);
    return NULL;
}

static TRITONSERVER_Error *find_shim(const struct loaded *l, const char *backend_dir,
                                     const char *named, char **ret_file)
{
    TRITONSERVER_Error *err;
    char *why;

    if (named && *named) {
        *ret_file = strdup(named);
        return *ret_file ? NULL : report_no_memory();
    }
    TRY(find_in_folder(l->folder, ret_file));
    if (!*ret_file && strcmp(l->soname, TORCH_SONAME) == 0)
        TRY(find_in_folder(backend_dir, ret_file));
    if (*ret_file)
        return NULL;
    if (asprintf(&why, "there is no '%s/" SHIM_FILE "'", l->folder) < 0)
        return report_no_memory();
    err = advise_build(l, backend_dir, why);
    free(why);
    return err;
}

static TRITONSERVER_Error *open_shim(const struct loaded *l, const char *backend_dir,
                                     const char *named, const struct shim **ret_shim)
{
    TRITONSERVER_Error *err;
    char *file;

    TRY(find_shim(l, backend_dir, named, &file));
    err = load_shim(l, backend_dir, file, ret_shim);
    free(file);
    return err;
}

static TRITONSERVER_Error *open_aoti(void *handle, const char *path, bool allowed,
                                     const struct shim **ret_shim)
{
    if (!allowed)
        return backend_error(TRITONSERVER_ERROR_UNSUPPORTED,
                             "a package is native code, which has all the rights of the server; "
                             "--backend-config=pytorch,allow-native-code=1 permits that");
    return aoti_open(handle, path, ret_shim);
}

/* An error that only models of one kind get; NULL: there is none, or no memory for its text. */
static bool keep_reason(TRITONSERVER_Error *err, char **ret_why)
{
    *ret_why = err ? strdup(TRITONSERVER_ErrorMessage(err)) : NULL;
    TRITONSERVER_ErrorDelete(err);
    return !err || *ret_why;
}

TRITONSERVER_Error *library_open(const char *backend_dir, const struct library_settings *settings,
                                 struct library *ret_library)
{
    struct loaded loaded;
    struct library lib = {0};
    void *handle;
    bool kept;

    TRY(framework_find(&torch, backend_dir, settings->file, &handle));
    TRY(describe_loaded(handle, &loaded));
    kept = keep_reason(open_shim(&loaded, backend_dir, settings->shim_file, &lib.shim),
                       &lib.why_no_shim);
    kept = keep_reason(open_aoti(handle, loaded.path, settings->allows_code, &lib.aoti),
                       &lib.why_no_aoti) &&
           kept;
    lib.path = loaded.path;
    loaded.path = NULL;
    loaded_done(&loaded);
    *ret_library = lib;
    return kept ? NULL : report_no_memory();
}

void library_done(struct library *lib)
{
    free(lib->path);
    free(lib->why_no_shim);
    free(lib->why_no_aoti);
    *lib = (struct library){0};
}

TRITONSERVER_Error *library_error(TRITONSERVER_Error_Code code, const char *what, char *text)
{
    TRITONSERVER_Error *err = backend_error(text ? code : TRITONSERVER_ERROR_UNAVAILABLE, "%s: %s",
                                            what, text ? text : "out of memory");

    free(text);
    return err;
}
