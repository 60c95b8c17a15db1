/* SPDX-License-Identifier: Apache-2.0 */
/*
 * In this order: where the library is searched, the table of functions, which is filled by name,
 * and errors.
 */
#include "tensorflow/tf_library.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "common/framework.h"

/* The first release whose strings in tensors are those of tf_api.h: 2.4. */
#define LEAST_MAJOR 2
#define LEAST_MINOR 4

/* From build/<preset>/backends/tensorflow. */
#define IN_CLONE                                                                                   \
    "/../../../../.deps/tensorflow/venv/lib/python3*/site-packages/tensorflow/libtensorflow_cc.so*"

static const struct framework tensorflow = {
    .title = "TensorFlow's library libtensorflow_cc.so",
    .variable = "CONCH_TENSORFLOW",
    .beside = (const char *const[]){"/libtensorflow_cc.so*", "/libtensorflow.so*",
                                    "/tensorflow/libtensorflow_cc.so*", IN_CLONE, NULL},
    .system = (const char *const[]){"libtensorflow.so.2", "libtensorflow_cc.so.2", NULL},
    .package = "tensorflow/libtensorflow_cc.so*",
    /* It tells at length about the processor, on the standard error output. */
    .environment = (const char *const[]){"TF_CPP_MIN_LOG_LEVEL", "2", NULL},
    .how_to_get =
        "get it with `pip install tensorflow-cpu` (in Conch's folder: `tools/deps/install "
        "tensorflow`), or name it: --backend-config=tensorflow,library-path=FILE or "
        "CONCH_TENSORFLOW=FILE",
};

static TRITONSERVER_Error *fill_tensorflow(struct tf_library *l, void *handle)
{
    void *symbol;

    /* Data and function pointers have one representation on every system that has dlsym. */
#define TF_FILL(result, name, parameters)                                                          \
    symbol = dlsym(handle, "TF_" #name);                                                           \
    if (!symbol)                                                                                   \
        return backend_error(TRITONSERVER_ERROR_UNSUPPORTED,                                       \
                             "TensorFlow's library %s has no TF_" #name                            \
                             ": release %d.%d or a later one is needed",                           \
                             l->path ? l->path : "?", LEAST_MAJOR, LEAST_MINOR);                   \
    memcpy(&l->api.name, &symbol, sizeof(symbol));
    TF_FUNCTIONS(TF_FILL)
#undef TF_FILL
    return NULL;
}

static TRITONSERVER_Error *check_tensorflow_version(struct tf_library *l)
{
    char *end;
    long major, minor;

    l->version = l->api.Version();
    major = strtol(l->version, &end, 10);
    minor = *end == '.' ? strtol(end + 1, NULL, 10) : 0;
    return major > LEAST_MAJOR || (major == LEAST_MAJOR && minor >= LEAST_MINOR)
               ? NULL
               : backend_error(TRITONSERVER_ERROR_UNSUPPORTED,
                               "TensorFlow %s in %s cannot be used: release %d.%d or a later one "
                               "is needed",
                               l->version, l->path ? l->path : "?", LEAST_MAJOR, LEAST_MINOR);
}

TRITONSERVER_Error *tf_library_open(const char *folder, const char *file,
                                    struct tf_library *ret_library)
{
    struct tf_library l = {0};
    TRITONSERVER_Error *err;
    void *handle = NULL, *symbol;

    TRY(framework_find(&tensorflow, folder, file, &handle));
    symbol = dlsym(handle, "TF_LoadSessionFromSavedModel");
    l.path = symbol ? framework_path(symbol) : NULL;
    err = fill_tensorflow(&l, handle);
    if (!err)
        err = check_tensorflow_version(&l);
    if (err)
        tf_library_done(&l);
    else
        *ret_library = l;
    return err;
}

void tf_library_done(struct tf_library *l)
{
    free(l->path);
    *l = (struct tf_library){0};
}

/* ---- Errors ---------------------------------------------------------------------------------- */

/* Theirs are those of gRPC. */
static TRITONSERVER_Error_Code code_of_status(int code)
{
    switch (code) {
    case 3:  /* invalid argument */
    case 9:  /* failed precondition */
    case 11: /* out of range */
        return TRITONSERVER_ERROR_INVALID_ARG;
    case 5:
        return TRITONSERVER_ERROR_NOT_FOUND;
    case 12:
        return TRITONSERVER_ERROR_UNSUPPORTED;
    case 8:  /* resources are exhausted */
    case 14: /* unavailable */
        return TRITONSERVER_ERROR_UNAVAILABLE;
    default:
        return TRITONSERVER_ERROR_INTERNAL;
    }
}

TRITONSERVER_Error *tf_library_error(const struct tf_library *l, const struct tf_status *status,
                                     const char *what)
{
    char line[1024];
    const char *text;
    size_t n = 0;

    if (l->api.GetCode(status) == 0)
        return NULL;
    text = l->api.Message(status);
    for (; *text && n < sizeof(line) - 1; text++) {
        bool blank = *text == '\n' || *text == '\t' || *text == ' ';

        if (!blank || (n > 0 && line[n - 1] != ' '))
            line[n++] = blank ? ' ' : *text;
    }
    line[n] = '\0';
    return backend_error(code_of_status(l->api.GetCode(status)), "TensorFlow, %s: %s", what, line);
}
