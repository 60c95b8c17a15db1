/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pytorch - TorchScript models on CPUs.
 *
 *   pytorch.c   what the server calls     model.c   a model: parameters, file
 *   library.c   PyTorch's library         ports.c   its tensors in the configuration
 *   shim/       C functions for it        run.c     requests
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
    struct library found = {0};
    TRITONSERVER_Error *err = library_open(folder, library_path, &found);
    char *text =
        framework_version_text(err, "PyTorch", err ? "" : found.shim->version, found.path, "");

    library_done(&found);
    return text;
}

/* Set when the server initialises the backend, constant until it finalises it. */
static struct library library;

static TRITONSERVER_Error *read_torch_settings(const struct doc *settings, const char *folder)
{
    static const char *const known[] = {"library-path", NULL};

    settings_warn_of_unknown(settings, "pytorch", known);
    TRY(library_open(folder, backend_setting(settings, "library-path"), &library));
    BACKEND_LOG(INFO, "PyTorch %s from %s", library.shim->version,
                library.path ? library.path : "?");
    return NULL;
}

static TRITONSERVER_Error *initialize_torch(TRITONBACKEND_Backend *backend)
{
    TRITONBACKEND_ArtifactType type;
    TRITONSERVER_Error *err;
    struct doc *settings;
    const char *folder;

    TRY(TRITONBACKEND_BackendArtifacts(backend, &type, &folder));
    TRY(backend_settings(backend, &settings));
    err = read_torch_settings(settings, folder);
    doc_free(settings);
    return err;
}

static void finalize_torch(TRITONBACKEND_Backend *backend)
{
    (void)backend;
    library_done(&library);
}

static TRITONSERVER_Error *open_torch(struct frame_model *m)
{
    struct torch_model *t;

    TRY(torch_model_open(&library, m, &t));
    m->state = t;
    return NULL;
}

static void close_torch(struct frame_model *m)
{
    torch_model_close(m->state);
}

static TRITONSERVER_Error *open_torch_instance(struct frame_instance *in)
{
    TRITONSERVER_InstanceGroupKind kind;
    struct runner *r;

    TRY(TRITONBACKEND_ModelInstanceKind(in->handle, &kind));
    if (kind == TRITONSERVER_INSTANCEGROUPKIND_GPU)
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG, "GPU instances not supported");
    TRY(runner_new(in->model->state, &r));
    in->state = r;
    return NULL;
}

static void close_torch_instance(struct frame_instance *in)
{
    runner_free(in->state);
}

static TRITONSERVER_Error *execute_torch(struct frame_instance *in, struct batch *b)
{
    return runner_run(in->state, b);
}

static const struct frame frame = {.initialize = initialize_torch,
                                   .finalize = finalize_torch,
                                   .model_open = open_torch,
                                   .model_close = close_torch,
                                   .instance_open = open_torch_instance,
                                   .instance_close = close_torch_instance,
                                   .execute = execute_torch,
                                   .repeat_alone = true,
                                   .parallel_instances = true};
BACKEND_FRAME(frame)
