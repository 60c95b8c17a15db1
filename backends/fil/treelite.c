/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of functions is filled by name. treelite logs by callbacks that each thread has for
 * itself, so a thread that loads a model sets them (treelite_log_here()).
 */
#include "fil/treelite.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "common/framework.h"

static const struct framework treelite = {
    .title = "treelite's library libtreelite.so",
    .variable = "CONCH_TREELITE",
    .beside = (const char *const[]){"/libtreelite.so*", "/treelite/lib/libtreelite.so*",
                                    /* In a clone, from build/<preset>/backends/fil. */
                                    "/../../../../.deps/venv/lib/python3*/site-packages/treelite/"
                                    "lib/libtreelite.so*",
                                    NULL},
    .system = (const char *const[]){"libtreelite.so", NULL},
    .package = "treelite/lib/libtreelite.so*",
    .how_to_get = "get it with `pip install treelite` (in Conch's folder: `make test-frameworks`), "
                  "or name it: --backend-config=fil,library-path=FILE or CONCH_TREELITE=FILE",
    .environment = FRAMEWORK_OPENMP_SLEEPS,
};

/* A function of C++, which treelite has beside its C API. */
#define VERSION_FUNCTION "_Z28TreeliteQueryTreeliteVersionv"

static TRITONSERVER_Error *fill_treelite(struct treelite *t, void *handle)
{
    void *symbol;
    const char *(*version)(void);

    /* Data and function pointers have one representation on every system that has dlsym. */
#define TREELITE_FILL(name, parameters)                                                            \
    symbol = dlsym(handle, "Treelite" #name);                                                      \
    if (!symbol)                                                                                   \
        return backend_error(TRITONSERVER_ERROR_UNSUPPORTED,                                       \
                             "treelite's library %s has no Treelite%s: release 4.4 or a later 4 "  \
                             "is needed",                                                          \
                             t->path ? t->path : "?", #name);                                      \
    memcpy(&t->name, &symbol, sizeof(symbol));
    TREELITE_FUNCTIONS(TREELITE_FILL)
#undef TREELITE_FILL
    symbol = dlsym(handle, VERSION_FUNCTION);
    t->version = "of unknown version";
    if (symbol) {
        memcpy(&version, &symbol, sizeof(version));
        t->version = version();
    }
    return NULL;
}

TRITONSERVER_Error *treelite_open(const char *backend_dir, const char *file,
                                  struct treelite *ret_treelite)
{
    struct treelite t = {0};
    TRITONSERVER_Error *err;
    void *handle = NULL, *symbol;

    TRY(framework_find(&treelite, backend_dir, file, &handle));
    symbol = dlsym(handle, "TreeliteGetLastError");
    if (!symbol)
        return backend_error(TRITONSERVER_ERROR_UNSUPPORTED,
                             "the treelite library has no TreeliteGetLastError: %s", dlerror());
    memcpy(&t.last_error, &symbol, sizeof(symbol));
    t.path = framework_path(symbol);
    err = fill_treelite(&t, handle);
    if (err)
        treelite_done(&t);
    else
        *ret_treelite = t;
    return err;
}

void treelite_done(struct treelite *t)
{
    free(t->path);
    t->path = NULL;
}

/* Copies a text of treelite as one line without its position, "[hh:mm:ss] file:line: ". */
static char *copy_line(const char *text)
{
    const char *colon = *text == '[' ? strstr(text, ": ") : NULL;
    char *copy = strdup(colon ? colon + 2 : text);

    for (char *c = copy; c && *c; c++)
        if (*c == '\n' || *c == '\r')
            *c = ' ';
    return copy;
}

/* The last line that this thread's treelite has logged. */
static _Thread_local char last_line[200];

TRITONSERVER_Error *treelite_error(const struct treelite *t, TRITONSERVER_Error_Code code,
                                   const char *what)
{
    char *text = copy_line(t->last_error());
    TRITONSERVER_Error *err =
        backend_error(code, "%s: treelite: %s%s%s", what, text ? text : "out of memory",
                      *last_line ? "; " : "", last_line);

    free(text);
    return err;
}

static void forward_treelite_warning(const char *text)
{
    char *line = copy_line(text);

    BACKEND_LOG(WARN, "treelite: %s", line ? line : "");
    free(line);
}

static void forward_treelite_line(const char *text)
{
    char *line = copy_line(text);

    BACKEND_LOG(VERBOSE, "treelite: %s", line ? line : "");
    snprintf(last_line, sizeof(last_line), "%s", line ? line : "");
    free(line);
}

void treelite_log_here(const struct treelite *t)
{
    last_line[0] = '\0';
    (void)t->RegisterWarningCallback(forward_treelite_warning);
    (void)t->RegisterLogCallback(forward_treelite_line);
}
