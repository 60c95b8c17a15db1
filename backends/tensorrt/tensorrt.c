/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tensorrt - engines of TensorRT, on GPUs.
 *
 *   tensorrt.c  what the server calls      engine.c   a plan file on a GPU, its tensors
 *   library.c   TensorRT's library         model.c    a model: parameters, engines
 *   cuda.c      CUDA's driver, memory      config.c   complete, check
 *                                          execute.c  requests
 *                                          graphs.c   CUDA graphs
 *
 * Parameters are listed in docs/tensorrt.md.
 */
#include <string.h>

#include "common/framework.h"
#include "common/settings.h"
#include "tensorrt/execute.h"

/* Only for `conch --version`; see src/version.h. */
__attribute__((visibility("default"))) char *conch_backend_version(const char *folder,
                                                                   const char *library_path);

char *conch_backend_version(const char *folder, const char *library_path)
{
    struct library found = {0};
    TRITONSERVER_Error *err = library_open(folder, library_path, &found);
    char *text = framework_version_text(err, "TensorRT", found.version, found.path, "");

    library_done(&found);
    return text;
}

/* Set when the server initialises the backend, constant until it finalises it. */
static struct runtime runtime;

static TRITONSERVER_Error *read_policy(const char *text)
{
    if (!text || strcmp(text, "BLOCKING") == 0)
        return NULL;
    if (strcmp(text, "DEVICE_BLOCKING") != 0)
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                             "--backend-config=tensorrt,execution-policy=%s: expected BLOCKING or "
                             "DEVICE_BLOCKING",
                             text);
    runtime.one_at_a_time = true;
    return NULL;
}

static TRITONSERVER_Error *configure_tensorrt(const struct doc *settings, const char *folder)
{
    static const char *const known[] = {"library-path",           "plugins",
                                        "execution-policy",       "version-compatible",
                                        "coalesce-request-input", NULL};
    bool ignored;

    settings_warn_of_unknown(settings, "tensorrt", known);
    TRY(settings_bool(settings, "tensorrt", "version-compatible", false,
                      &runtime.version_compatible));
    /* Adjacent buffers are always used as one. */
    TRY(settings_bool(settings, "tensorrt", "coalesce-request-input", false, &ignored));
    TRY(read_policy(backend_setting(settings, "execution-policy")));
    TRY(library_open(folder, backend_setting(settings, "library-path"), &runtime.lib));
    BACKEND_LOG(INFO, "TensorRT %s from %s", runtime.lib.version,
                runtime.lib.path ? runtime.lib.path : "?");
    library_load_plugins(&runtime.lib, backend_setting(settings, "plugins"));
    return NULL;
}

static TRITONSERVER_Error *initialize_tensorrt(TRITONBACKEND_Backend *backend)
{
    return runtime.one_at_a_time ? TRITONBACKEND_BackendSetExecutionPolicy(
                                       backend, TRITONBACKEND_EXECUTION_DEVICE_BLOCKING)
                                 : NULL;
}

static void finalize_tensorrt(TRITONBACKEND_Backend *backend)
{
    (void)backend;
    library_done(&runtime.lib);
    runtime = (struct runtime){0};
}

static const struct frame frame = {.configure = configure_tensorrt,
                                   .backend = &runtime,
                                   .initialize = initialize_tensorrt,
                                   .finalize = finalize_tensorrt,
                                   .model_open = model_open,
                                   .model_close = model_close,
                                   .instance_open = executor_open,
                                   .instance_close = executor_close,
                                   .execute = executor_run,
                                   .repeat_alone = true,
                                   .parallel_instances = true,
                                   .prefers_gpus = true};
BACKEND_FRAME(frame)
