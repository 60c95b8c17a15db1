/* SPDX-License-Identifier: Apache-2.0 */
/*
 * runtime - OpenVINO's library and what --backend-config says of it: for all models of a backend
 * that executes them by OpenVINO, which is `openvino` or another one that is compiled with its
 * files.
 *
 * Threads: constant once started, except what watch.h says.
 */
#ifndef BACKENDS_OPENVINO_RUNTIME_H
#define BACKENDS_OPENVINO_RUNTIME_H

#include "common/watch.h"
#include "openvino/library.h"

struct runtime {
    const char *backend; /* its name, for errors */
    struct library lib;
    struct watch *watch; /* of requests that are cancelled while a model runs */
    int64_t default_max_batch_size;
    bool allow_extensions;
    char *cache_dir; /* of compiled models; NULL: none */
};

/*
 * runtime_read - read the settings default-max-batch-size, allow-extensions and cache-dir.
 * @backend  borrowed
 * @rt       zeroes; to be ended by runtime_done(), after an error, too
 * Errors: INVALID_ARG  a value that is none of its kind
 */
TRITONSERVER_Error *runtime_read(const struct doc *settings, const char *backend,
                                 struct runtime *rt);

/*
 * runtime_start - find and start the library, tell so in the log, and start the watch.
 * @folder  of the backend
 * @file    path of the library if the user names one, else NULL
 * Errors: as library_open(), library_start() and watch_new()
 */
TRITONSERVER_Error *runtime_start(struct runtime *rt, const char *folder, const char *file);
void runtime_done(struct runtime *rt);

#endif
