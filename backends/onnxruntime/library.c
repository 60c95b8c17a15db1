/* SPDX-License-Identifier: Apache-2.0 */
/*
 * In this order: where the library is searched, loading the table of functions, and helpers. The
 * struct is constant once it is open, and all threads use it.
 */
#include "onnxruntime/library.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "common/framework.h"

/* ---- The search ------------------------------------------------------------------------------ */

static const struct framework onnxruntime = {
    .title = "ONNX Runtime's library libonnxruntime.so",
    .variable = "CONCH_ONNXRUNTIME",
    .beside = (const char *const[]){"/libonnxruntime.so*", "/onnxruntime/libonnxruntime.so*",
                                    /* In a clone, from build/<preset>/backends/onnxruntime. */
                                    "/../../../../.deps/onnxruntime/libonnxruntime.so*", NULL},
    .system = (const char *const[]){"libonnxruntime.so.1", "libonnxruntime.so", NULL},
    .package = "onnxruntime/capi/libonnxruntime.so*",
    .how_to_get = "get it with `make deps` in Conch's folder, `pip install onnxruntime` or (Debian "
                  "13) `apt install libonnxruntime1.21`, or name it: "
                  "--backend-config=onnxruntime,library-path=FILE or CONCH_ONNXRUNTIME=FILE",
};

/* ---- The table of functions ------------------------------------------------------------------ */

static void fill_table(struct ort_api *api, const void *const *table, unsigned int minor)
{
    /* Data and function pointers have one representation on every system that has dlsym. */
#define ORT_FILL(place, result, name, parameters)                                                  \
    api->name = (__typeof__(api->name))(uintptr_t)table[place];
    ORT_FUNCTIONS(ORT_FILL)
    /* All versions of the table are the beginning of the library's newest. */
    if (minor >= ORT_LATER_VERSION) {
        ORT_LATER_FUNCTIONS(ORT_FILL)
    }
#undef ORT_FILL
}

static TRITONSERVER_Error *load_table(struct library *l, void *handle)
{
    ort_get_api_base_fn *get_api_base;
    void *symbol = dlsym(handle, "OrtGetApiBase");
    const void *const *table;
    unsigned int major, minor;

    if (!symbol)
        return backend_error(TRITONSERVER_ERROR_UNSUPPORTED,
                             "the ONNX Runtime library has no OrtGetApiBase: %s", dlerror());
    l->path = framework_path(symbol);
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
    fill_table(&l->api, table, minor);
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
    TRY(framework_find(&onnxruntime, backend_dir, file, &handle));
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
