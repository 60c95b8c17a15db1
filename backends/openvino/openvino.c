/* SPDX-License-Identifier: Apache-2.0 */
/*
 * openvino - models of OpenVINO's own format, and of those that it reads: ONNX, TensorFlow,
 * TensorFlow Lite, PaddlePaddle.
 *
 * Parameters are listed in docs/openvino.md.
 *
 *   openvino.c    what the server calls        fit.c       batch, shapes and types of the model
 *   library.c     OpenVINO's library           types.c     element types
 *   model.c       a model: file, compiled      layout.c    the batch in OpenVINO's own files
 *   parameters.c  what is asked of it          execute.c   requests
 *   config.c      complete, check              strings.c   tensors of strings
 *                                              states.c    states of sequences
 */
#include <stdlib.h>
#include <string.h>

#include "common/framework.h"
#include "common/settings.h"
#include "openvino/execute.h"

#define DEFAULT_MAX_BATCH_SIZE 4

/* Only for `conch --version`; see src/version.h. */
__attribute__((visibility("default"))) char *conch_backend_version(const char *folder,
                                                                   const char *library_path);

char *conch_backend_version(const char *folder, const char *library_path)
{
    struct library found = {0};
    TRITONSERVER_Error *err = library_open(folder, library_path, &found);
    char *text = framework_version_text(err, "OpenVINO", found.version, found.path, "");

    library_done(&found);
    return text;
}

/* Set when the server initialises the backend, constant until it finalises it. */
static struct runtime runtime;

static TRITONSERVER_Error *read_openvino_settings(const struct doc *settings, const char *folder)
{
    static const char *const known[] = {"library-path", "allow-extensions", "cache-dir", NULL};
    const char *cache_dir = backend_setting(settings, "cache-dir");

    settings_warn_of_unknown(settings, "openvino", known);
    TRY(settings_int(settings, "openvino", "default-max-batch-size", 0, INT32_MAX,
                     DEFAULT_MAX_BATCH_SIZE, &runtime.default_max_batch_size));
    TRY(settings_bool(settings, "openvino", "allow-extensions", false, &runtime.allow_extensions));
    if (cache_dir && *cache_dir) {
        runtime.cache_dir = strdup(cache_dir);
        if (!runtime.cache_dir)
            return backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "out of memory");
    }
    TRY(library_open(folder, backend_setting(settings, "library-path"), &runtime.lib));
    BACKEND_LOG(INFO, "OpenVINO %s from %s", runtime.lib.version,
                runtime.lib.path ? runtime.lib.path : "?");
    return library_start(&runtime.lib);
}

static void finalize_openvino(TRITONBACKEND_Backend *backend)
{
    (void)backend;
    library_done(&runtime.lib);
    free(runtime.cache_dir);
    runtime = (struct runtime){0};
}

static TRITONSERVER_Error *initialize_openvino(TRITONBACKEND_Backend *backend)
{
    TRITONBACKEND_ArtifactType type;
    TRITONSERVER_Error *err;
    struct doc *settings;
    const char *folder;

    TRY(TRITONBACKEND_BackendArtifacts(backend, &type, &folder));
    TRY(backend_settings(backend, &settings));
    err = read_openvino_settings(settings, folder);
    doc_free(settings);
    if (err)
        finalize_openvino(backend);
    return err;
}

static TRITONSERVER_Error *open_openvino_model(struct frame_model *m)
{
    struct model *opened;

    TRY(model_open(&runtime, m, &opened));
    m->state = opened;
    return NULL;
}

static void close_openvino_model(struct frame_model *m)
{
    model_close(m->state);
}

static TRITONSERVER_Error *open_openvino_instance(struct frame_instance *in)
{
    TRITONSERVER_InstanceGroupKind kind;
    struct executor *x;

    TRY(TRITONBACKEND_ModelInstanceKind(in->handle, &kind));
    if (kind == TRITONSERVER_INSTANCEGROUPKIND_GPU)
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                             "unable to load model '%s', Triton OpenVINO backend supports only "
                             "Kind CPU and AUTO",
                             in->model->name);
    TRY(executor_new(in->model->state, &x));
    in->state = x;
    return NULL;
}

static void close_openvino_instance(struct frame_instance *in)
{
    executor_free(in->state);
}

static TRITONSERVER_Error *execute_openvino(struct frame_instance *in, struct batch *b)
{
    return executor_run(in->state, b);
}

static const struct frame frame = {.initialize = initialize_openvino,
                                   .finalize = finalize_openvino,
                                   .model_open = open_openvino_model,
                                   .model_close = close_openvino_model,
                                   .instance_open = open_openvino_instance,
                                   .instance_close = close_openvino_instance,
                                   .execute = execute_openvino,
                                   .repeat_alone = true,
                                   .parallel_instances = true};
BACKEND_FRAME(frame)
