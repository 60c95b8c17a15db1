/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loading the library starts neither CUDA nor threads, so `conch --version` can tell its version on
 * a machine without a GPU. Of TensorRT's messages errors and warnings are logged; while a step runs
 * whose caller gets an error, errors are kept for that.
 */
#include "tensorrt/library.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/framework.h"

static const struct framework nvinfer = {
    .title = "TensorRT's library libnvinfer.so",
    .variable = "CONCH_TENSORRT",
    .beside = (const char *const[]){"/libnvinfer.so*", "/tensorrt/libnvinfer.so*", NULL},
    .system = (const char *const[]){"libnvinfer.so.11", "libnvinfer.so.10", NULL},
    .package = "tensorrt_libs/libnvinfer.so*",
    .how_to_get = "get TensorRT 10 or 11 (`pip install tensorrt`, or NVIDIA's packages "
                  "libnvinfer11 or libnvinfer10), or name it: "
                  "--backend-config=tensorrt,library-path=FILE or CONCH_TENSORRT=FILE",
};

static const uint8_t slots_10[TRT_N_SLOTS] = {
#define TRT_SLOT_10(name, in10, in11, result, parameters) in10,
    TRT_SLOTS(TRT_SLOT_10)
#undef TRT_SLOT_10
};
static const uint8_t slots_11[TRT_N_SLOTS] = {
#define TRT_SLOT_11(name, in10, in11, result, parameters) in11,
    TRT_SLOTS(TRT_SLOT_11)
#undef TRT_SLOT_11
};

/* ---- Messages -------------------------------------------------------------------------------- */

static _Thread_local bool keeps;
static _Thread_local char kept[1024];

static void receive_message(struct trt_inner *self, int32_t severity, const char *text)
{
    (void)self;
    if (severity <= TRT_ERROR && keeps) {
        /* The first one is the cause; what follows says that its caller failed, too. */
        if (!kept[0])
            snprintf(kept, sizeof(kept), "%s", text);
    } else if (severity <= TRT_ERROR) {
        BACKEND_LOG(ERROR, "TensorRT: %s", text);
    } else if (severity == TRT_WARNING) {
        BACKEND_LOG(WARN, "TensorRT: %s", text);
    } else {
        BACKEND_LOG(VERBOSE, "TensorRT: %s", text);
    }
}

static int32_t tell_logger_language(struct trt_inner *self)
{
    (void)self;
    return 0; /* C++ */
}

static struct trt_interface tell_logger(struct trt_inner *self)
{
    (void)self;
    return (struct trt_interface){"ILogger", 1, 0};
}

static void keep_logger(struct trt_inner *self)
{
    (void)self; /* the object is ours */
}

#define FN(function) ((trt_function *)(function))

/* Two words of C++'s type information stand before a table. */
static trt_function *const logger_10[2 + TRT_LOGGER_SLOTS_10] = {NULL, NULL, FN(receive_message),
                                                                 FN(keep_logger), FN(keep_logger)};
static trt_function *const logger_11[2 + TRT_LOGGER_SLOTS_11] = {NULL,
                                                                 NULL,
                                                                 FN(tell_logger_language),
                                                                 FN(tell_logger),
                                                                 FN(keep_logger),
                                                                 FN(keep_logger),
                                                                 FN(receive_message)};

/* TensorRT remembers the first logger of the process, so there is one, and its code stays. */
static struct trt_inner *start_logger(const uint8_t *slots)
{
    static struct trt_inner logger;
    void *code;
    char *self;

    logger.table = (slots == slots_10 ? logger_10 : logger_11) + 2;
    memcpy(&code, &logger.table[0], sizeof(code));
    self = framework_path(code);
    if (!self || !dlopen(self, RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE))
        BACKEND_LOG(VERBOSE, "the backend tensorrt may be unloaded");
    free(self);
    return &logger;
}

void messages_keep(void)
{
    keeps = true;
    kept[0] = '\0';
}

TRITONSERVER_Error *messages_error(const char *what)
{
    keeps = false;
    return backend_error(TRITONSERVER_ERROR_INTERNAL, "%s%s%s", what, kept[0] ? ": " : "", kept);
}

void messages_forget(void)
{
    keeps = false;
}

/* ---- Life ------------------------------------------------------------------------------------ */

/* Releases since 10 count as 100304; those before as 8601. */
static TRITONSERVER_Error *check_release(struct library *lib, const char *path)
{
    int32_t major = lib->number >= 100000 ? lib->number / 10000 : lib->number / 1000;

    snprintf(lib->version, sizeof(lib->version), "%d.%d.%d", (int)major,
             (int)(lib->number >= 100000 ? lib->number / 100 % 100 : lib->number / 100 % 10),
             (int)(lib->number % 100));
    if (major == 10)
        lib->slots = slots_10;
    else if (major == 11)
        lib->slots = slots_11;
    /* A function that we call came with 10.1. */
    if (!lib->slots || lib->number < 100100)
        return backend_error(TRITONSERVER_ERROR_UNSUPPORTED,
                             "TensorRT %s in %s is of a release that this backend does not know; "
                             "it knows 10 (from 10.1 on) and 11",
                             lib->version, path);
    lib->logger = start_logger(lib->slots);
    return NULL;
}

static TRITONSERVER_Error *find_nvinfer_functions(void *handle, struct library *lib)
{
    void *create = dlsym(handle, "createInferRuntime_INTERNAL");
    void *version = dlsym(handle, "getInferLibVersion");
    trt_version_fn *read;

    if (!create || !version)
        return backend_error(TRITONSERVER_ERROR_UNSUPPORTED,
                             "the library that was found is not TensorRT's: it has no function %s",
                             create ? "getInferLibVersion" : "createInferRuntime_INTERNAL");
    /* Data and function pointers have one representation on every system that has dlsym. */
    memcpy(&lib->create_runtime, &create, sizeof(create));
    memcpy(&read, &version, sizeof(version));
    lib->number = read();
    lib->path = framework_path(version);
    return check_release(lib, lib->path ? lib->path : "?");
}

TRITONSERVER_Error *library_open(const char *backend_dir, const char *file,
                                 struct library *ret_library)
{
    TRITONSERVER_Error *err;
    void *handle;

    TRY(framework_find(&nvinfer, backend_dir, file, &handle));
    err = find_nvinfer_functions(handle, ret_library);
    if (err)
        library_done(ret_library);
    return err;
}

void library_done(struct library *lib)
{
    free(lib->path);
    *lib = (struct library){0};
}

void library_delete(struct trt_object *object)
{
    typedef void delete_fn(struct trt_object *);

    if (object)
        ((delete_fn *)object->table[TRT_DELETE])(object);
}

/* ---- Plugins --------------------------------------------------------------------------------- */

/* TensorRT's own, from the library that lies beside it. */
static void load_their_plugins(const struct library *lib)
{
    const char *name = lib->path ? strrchr(lib->path, '/') : NULL;
    const char *suffix = name ? strstr(name, ".so") : NULL;
    trt_init_plugins_fn *init;
    char *path = NULL;
    void *handle, *symbol;

    if (!suffix ||
        asprintf(&path, "%.*s/libnvinfer_plugin%s", (int)(name - lib->path), lib->path, suffix) < 0)
        return;
    handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    symbol = handle ? dlsym(handle, "initLibNvInferPlugins") : NULL;
    if (symbol) {
        memcpy(&init, &symbol, sizeof(symbol));
        if (!init(lib->logger, ""))
            BACKEND_LOG(ERROR, "TensorRT's plugins in %s cannot be registered", path);
    } else {
        BACKEND_LOG(VERBOSE, "models cannot use TensorRT's own plugins: there is no %s", path);
    }
    free(path);
}

void library_load_plugins(const struct library *lib, const char *files)
{
    char *list = files ? strdup(files) : NULL, *rest = list, *file;

    load_their_plugins(lib);
    while (rest && (file = strsep(&rest, ";"))) {
        if (!*file)
            continue;
        if (!dlopen(file, RTLD_NOW | RTLD_LOCAL))
            BACKEND_LOG(ERROR, "the plugins of --backend-config=tensorrt cannot be loaded: %s",
                        dlerror());
        else
            BACKEND_LOG(INFO, "plugins for TensorRT from %s", file);
    }
    free(list);
}
