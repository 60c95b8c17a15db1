/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pytorch - TorchScript models, and packages of AOTInductor, on CPUs.
 *
 *   pytorch.c   what the server calls     model.c    a model: parameters, file
 *   library.c   PyTorch's library         ports.c    its tensors in the configuration
 *   shim/       C functions for it        run.c      requests
 *   aoti.c      those of packages         package.c  the archive; code.c the code in it
 *
 * Parameters are listed in docs/pytorch.md.
 */
#include "common/framework.h"
#include "common/settings.h"
#include "pytorch/run.h"

/* Only for `conch --version`; see src/version.h. */
__attribute__((visibility("default"))) char *conch_backend_version(const char *folder,
                                                                   const char *library_path);

char *conch_backend_version(const char *folder, const char *library_path)
{
    const struct library_settings settings = {.file = library_path};
    struct library found = {0};
    TRITONSERVER_Error *err = library_open(folder, &settings, &found);
    char *text;

    if (!err && !found.shim)
        err = backend_error(TRITONSERVER_ERROR_UNSUPPORTED, "%s", found.why_no_shim);
    text = framework_version_text(err, "PyTorch", err ? "" : found.shim->version, found.path, "");
    library_done(&found);
    return text;
}

/* Set when the server initialises the backend, constant until it finalises it. */
static struct library library;

static TRITONSERVER_Error *configure_torch(const struct doc *settings, const char *folder)
{
    static const char *const known[] = {"library-path", "shim-path", "allow-native-code", NULL};
    struct library_settings given = {.file = backend_setting(settings, "library-path"),
                                     .shim_file = backend_setting(settings, "shim-path")};

    settings_warn_of_unknown(settings, "pytorch", known);
    TRY(settings_bool(settings, "pytorch", "allow-native-code", false, &given.allows_code));
    TRY(library_open(folder, &given, &library));
    if (library.shim)
        BACKEND_LOG(INFO, "PyTorch %s from %s", library.shim->version, library.path);
    else
        BACKEND_LOG(INFO, "PyTorch from %s, without TorchScript", library.path);
    return NULL;
}

static void finalize_torch(TRITONBACKEND_Backend *backend)
{
    (void)backend;
    library_done(&library);
}

static const struct frame frame = {.configure = configure_torch,
                                   .backend = &library,
                                   .finalize = finalize_torch,
                                   .model_open = torch_model_open,
                                   .model_close = torch_model_close,
                                   .instance_open = runner_open,
                                   .instance_close = runner_close,
                                   .execute = runner_run,
                                   .repeat_alone = true,
                                   .parallel_instances = true,
                                   .refuses_gpu = "GPU instances not supported"};
BACKEND_FRAME(frame)
