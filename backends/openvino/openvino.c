/* SPDX-License-Identifier: Apache-2.0 */
/*
 * openvino - models of OpenVINO's own format, and of those that it reads: ONNX, TensorFlow,
 * TensorFlow Lite, PaddlePaddle.
 *
 * Parameters are listed in docs/openvino.md.
 *
 *   openvino.c    what the server calls        fit.c       batch, shapes and types of the model
 *   runtime.c     settings of all models       types.c     element types
 *   library.c     OpenVINO's library
 *   model.c       a model: its file            layout.c    the batch in OpenVINO's own files
 *   compiled.c    compiled, and anew           ir.c        their text
 *   parameters.c  what is asked of it          execute.c   requests
 *   config.c      complete, check              strings.c   tensors of strings
 *   quick.c       small models                 ir_cost.c   the cost of a run, from the file
 *   device.c      the device, its properties   refused.c   shapes that failed once
 *   extension.c   a user's own operators
 */
#include "common/framework.h"
#include "common/settings.h"
#include "openvino/execute.h"

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

static struct runtime runtime;

static TRITONSERVER_Error *configure_openvino(const struct doc *settings, const char *folder)
{
    static const char *const known[] = {"library-path", "allow-extensions", "cache-dir", NULL};

    settings_warn_of_unknown(settings, "openvino", known);
    TRY(runtime_read(settings, "openvino", &runtime));
    return runtime_start(&runtime, folder, backend_setting(settings, "library-path"));
}

static void finalize_openvino(TRITONBACKEND_Backend *backend)
{
    (void)backend;
    runtime_done(&runtime);
}

static const struct frame frame = {
    .configure = configure_openvino,
    .backend = &runtime,
    .finalize = finalize_openvino,
    .model_open = model_open,
    .model_close = model_close,
    .instance_open = executor_open,
    .instance_close = executor_close,
    .execute = executor_run,
    .repeat_alone = true,
    .parallel_instances = true,
    .refuses_gpu = "unable to load model '%s', Triton OpenVINO backend supports only Kind CPU and "
                   "AUTO",
};
BACKEND_FRAME(frame)
