/* SPDX-License-Identifier: Apache-2.0 */
/*
 * In this order: where the library is searched, the table of functions, which is filled by name,
 * the checks of what our tables and strings.c believe, and errors.
 *
 * OpenVINO keeps the text of the last error for the whole process. So when two threads fail at the
 * same time, both may report the text of one.
 */
#include "openvino/library.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/framework.h"
#include "openvino/strings.h"
#include "openvino/types.h"

static const struct framework openvino = {
    .title = "OpenVINO's library libopenvino_c.so",
    .variable = "CONCH_OPENVINO",
    .beside = (const char *const[]){"/libopenvino_c.so*", "/openvino/libs/libopenvino_c.so*",
                                    /* In a clone, from build/<preset>/backends/openvino. */
                                    "/../../../../.deps/venv/lib/python3*/site-packages/openvino/"
                                    "libs/libopenvino_c.so*",
                                    NULL},
    .system = (const char *const[]){"libopenvino_c.so", NULL},
    .package = "openvino/libs/libopenvino_c.so*",
    .how_to_get =
        "get it with `pip install openvino` (in Conch's folder: `make test-frameworks`), or name "
        "it: --backend-config=openvino,library-path=FILE or CONCH_OPENVINO=FILE",
};

static TRITONSERVER_Error *fill_openvino(struct library *l, void *handle)
{
    void *symbol;

    /* Data and function pointers have one representation on every system that has dlsym. */
#define OV_FILL(result, name, parameters)                                                          \
    symbol = dlsym(handle, "ov_" #name);                                                           \
    if (!symbol)                                                                                   \
        return backend_error(TRITONSERVER_ERROR_UNSUPPORTED,                                       \
                             "OpenVINO's library %s has no ov_" #name                              \
                             ": release %d or a later one is needed",                              \
                             l->path ? l->path : "?", OV_LEAST_YEAR);                              \
    memcpy(&l->api.name, &symbol, sizeof(symbol));
    OV_FUNCTIONS(OV_FILL)
#undef OV_FILL
    return NULL;
}

static TRITONSERVER_Error *read_version(struct library *l)
{
    struct ov_version version = {0};

    TRY_OV(l, "reading its version", get_openvino_version, &version);
    l->version = strdup(version.build ? version.build : "");
    l->api.version_free(&version);
    if (!l->version)
        return backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "out of memory");
    if (strtol(l->version, NULL, 10) < OV_LEAST_YEAR)
        return backend_error(TRITONSERVER_ERROR_UNSUPPORTED,
                             "OpenVINO %s in %s cannot be used: release %d or a later one is "
                             "needed",
                             l->version, l->path ? l->path : "?", OV_LEAST_YEAR);
    return NULL;
}

/* A library that numbers its element types in another way would read memory in a wrong way. */
static TRITONSERVER_Error *check_element_types(const struct library *l)
{
    int64_t dims[] = {1};
    struct ov_shape one = {1, dims};

    for (const struct element_type *t = element_types; t->config; t++) {
        struct ov_tensor *tensor = NULL;
        size_t size = 0;

        TRY_OV(l, "making a tensor", tensor_create, t->ov, one, &tensor);
        if (l->api.tensor_get_byte_size(tensor, &size) != 0)
            size = 0;
        l->api.tensor_free(tensor);
        if (size != (t->size > 0 ? t->size : STRINGS_ELEMENT_SIZE))
            return backend_error(TRITONSERVER_ERROR_UNSUPPORTED,
                                 "OpenVINO %s in %s cannot be used: its element type %d is not %s",
                                 l->version, l->path ? l->path : "?", t->ov, t->config);
    }
    return strings_check(l);
}

TRITONSERVER_Error *library_open(const char *backend_dir, const char *file,
                                 struct library *ret_library)
{
    struct library l = {0};
    TRITONSERVER_Error *err;
    void *handle = NULL, *symbol;

    TRY(framework_find(&openvino, backend_dir, file, &handle));
    symbol = dlsym(handle, "ov_core_create");
    l.path = symbol ? framework_path(symbol) : NULL;
    err = fill_openvino(&l, handle);
    if (!err)
        err = read_version(&l);
    if (!err)
        err = check_element_types(&l);
    if (err)
        library_done(&l);
    else
        *ret_library = l;
    return err;
}

/* OpenVINO unloads a device when no model uses it any more. This one stays: it is 64 MB, which
 * would be loaded again for the next model. */
static void keep_cpu_device(const struct library *l)
{
    const char *slash = l->path ? strrchr(l->path, '/') : NULL;
    char *path = NULL;

    if (!slash || asprintf(&path, "%.*s/libopenvino_intel_cpu_plugin.so", (int)(slash - l->path),
                           l->path) < 0)
        return;
    (void)dlopen(path, RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE);
    free(path);
}

static TRITONSERVER_Error *load_cpu_device(const struct library *l)
{
    struct ov_core *core = NULL;
    char *name = NULL;

    TRY_OV(l, "making a core", core_create, &core);
    if (l->api.core_get_property(core, "CPU", "FULL_DEVICE_NAME", &name) != 0) {
        l->api.core_free(core);
        return library_error(l, "loading the device CPU");
    }
    BACKEND_LOG(VERBOSE, "OpenVINO's device CPU: %s", name ? name : "");
    l->api.free(name);
    keep_cpu_device(l);
    l->api.core_free(core);
    return NULL;
}

/* TBB loads hwloc when it first looks at the processors, and binds it to glibc's free() rather than
 * the process's (RTLD_DEEPBIND). In a server with an allocator of its own, as ours, hwloc then
 * frees memory that glibc has from that allocator, and the process ends. A library that is there
 * already stays bound as it is, so hwloc is loaded first. It lies beside TBB, which is OpenVINO's
 * own or, where PyTorch was loaded before, the system's. */
static void load_hwloc(void)
{
    void *tbb = dlopen("libtbb.so.12", RTLD_NOW | RTLD_NOLOAD), *symbol;
    char *path, *file = NULL;

    if (!tbb)
        return;
    symbol = dlsym(tbb, "TBB_runtime_interface_version");
    path = symbol ? framework_path(symbol) : NULL;
    if (path && asprintf(&file, "%.*s/libhwloc.so.15", (int)(strrchr(path, '/') - path), path) > 0)
        (void)dlopen(file, RTLD_NOW | RTLD_LOCAL); /* it stays */
    free(file);
    free(path);
    dlclose(tbb);
}

/* A sanitizer ends the process at any RTLD_DEEPBIND. The variable is OpenVINO's TBB's, and makes it
 * do without. Processes that the server starts later shall not have it. */
TRITONSERVER_Error *library_start(const struct library *l)
{
    static const char variable[] = "TBB_ENABLE_SANITIZERS";
    bool decided = getenv(variable);
    TRITONSERVER_Error *err;
    stack_t before;

    load_hwloc();
    if (!decided)
        setenv(variable, "1", 1);
    (void)sigaltstack(NULL, &before);
    err = load_cpu_device(l);
    library_give_stack_back(&before);
    if (!decided)
        unsetenv(variable);
    return err;
}

void library_give_stack_back(const stack_t *before)
{
    if (sigaltstack(before, NULL) != 0)
        BACKEND_LOG(WARN, "this thread's stack for signals is OpenVINO's: %s", strerror(errno));
}

void library_done(struct library *l)
{
    free(l->version);
    free(l->path);
    *l = (struct library){0};
}

/* ---- Errors ---------------------------------------------------------------------------------- */

/* Does this line only say where in OpenVINO's source the error was made? */
static bool is_position(const char *line, size_t len)
{
    static const char from[] = "Exception from ";

    return len >= sizeof(from) - 1 && memcmp(line, from, sizeof(from) - 1) == 0;
}

/* Joins the lines that say something. */
static void write_lines(FILE *to, const char *text)
{
    const char *between = "";

    for (const char *end; *text; text = *end ? end + 1 : end) {
        size_t len;

        end = strchrnul(text, '\n');
        len = (size_t)(end - text);
        while (len > 0 && (text[len - 1] == ' ' || text[len - 1] == '\r'))
            len--;
        if (len == 0 || is_position(text, len))
            continue;
        fprintf(to, "%s%.*s", between, (int)len, text);
        between = " ";
    }
}

TRITONSERVER_Error *library_error(const struct library *l, const char *what)
{
    const char *text = l->api.get_last_err_msg();
    TRITONSERVER_Error *err;
    char *line = NULL;
    size_t len;
    FILE *to = open_memstream(&line, &len);

    if (to) {
        write_lines(to, text ? text : "it gives no reason");
        if (fclose(to) != 0) {
            free(line);
            line = NULL;
        }
    }
    err = backend_error(TRITONSERVER_ERROR_INTERNAL, "openvino error in %s : %s", what,
                        line ? line : "out of memory");
    free(line);
    if (text)
        l->api.free(text);
    return err;
}
