/* SPDX-License-Identifier: Apache-2.0 */
/*
 * onnxruntime - ONNX models on CPUs, run by ONNX Runtime.
 *
 * Settings and parameters are listed in docs/backends.md.
 *
 *   onnxruntime.c  what the server calls        model.c      a model: file, tensors
 *   library.c      ONNX Runtime's library       session.c    how it is opened and run
 *   runtime.c      environment, threads, log    providers.c  execution accelerators
 *   ort_api.h      its functions                config.c     the configuration: complete, check
 *   types.c        element types                execute.c    requests
 *   strings.c      tensors of strings
 *   permit.c       settings that it may have    external.c   files that a model's data lies in
 *   crew.c         threads for its pools        cost.c       what a run takes at most
 *   room.c         is there address space       weights.c    those files, read into memory
 */
#include <stdlib.h>

#include "common/framework.h"
#include "onnxruntime/execute.h"

/* Only for `conch --version`; see src/version.h. */
__attribute__((visibility("default"))) char *conch_backend_version(const char *folder,
                                                                   const char *library_path);

char *conch_backend_version(const char *folder, const char *library_path)
{
    struct library lib;
    TRITONSERVER_Error *err = library_open(folder, library_path, &lib);
    char *text, *details = NULL;

    if (err)
        return framework_version_text(err, NULL, NULL, NULL, NULL);
    if (asprintf(&details, ", providers: %s", lib.providers) < 0)
        details = NULL;
    text =
        framework_version_text(NULL, "ONNX Runtime", lib.version, lib.path, details ? details : "");
    free(details);
    library_done(&lib);
    return text;
}

TRITONSERVER_Error *TRITONBACKEND_Initialize(TRITONBACKEND_Backend *backend)
{
    TRITONBACKEND_ArtifactType type;
    TRITONSERVER_Error *err;
    struct doc *settings;
    struct runtime *rt;
    const char *folder;

    TRY(backend_check_version());
    TRY(TRITONBACKEND_BackendArtifacts(backend, &type, &folder));
    TRY(backend_settings(backend, &settings));
    err = runtime_open(folder, settings, &rt);
    doc_free(settings);
    if (err)
        return err;
    err = TRITONBACKEND_BackendSetState(backend, rt);
    if (err)
        runtime_close(rt);
    return err;
}

TRITONSERVER_Error *TRITONBACKEND_Finalize(TRITONBACKEND_Backend *backend)
{
    void *rt;

    TRY(TRITONBACKEND_BackendState(backend, &rt));
    runtime_close(rt);
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_GetBackendAttribute(TRITONBACKEND_Backend *backend,
                                                      TRITONBACKEND_BackendAttribute *attributes)
{
    TRY(TRITONBACKEND_BackendAttributeAddPreferredInstanceGroup(
        attributes, TRITONSERVER_INSTANCEGROUPKIND_CPU, 0, NULL, 0));
    return TRITONBACKEND_BackendAttributeSetParallelModelInstanceLoading(attributes, true);
}

TRITONSERVER_Error *TRITONBACKEND_ModelInitialize(TRITONBACKEND_Model *model)
{
    TRITONBACKEND_Backend *backend;
    TRITONSERVER_Error *err;
    struct model *m;
    void *rt;

    TRY(TRITONBACKEND_ModelBackend(model, &backend));
    TRY(TRITONBACKEND_BackendState(backend, &rt));
    TRY(model_load(rt, model, &m));
    err = TRITONBACKEND_ModelSetState(model, m);
    if (err)
        model_free(m);
    return err;
}

TRITONSERVER_Error *TRITONBACKEND_ModelFinalize(TRITONBACKEND_Model *model)
{
    void *m;

    TRY(TRITONBACKEND_ModelState(model, &m));
    model_free(m);
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceInitialize(TRITONBACKEND_ModelInstance *instance)
{
    TRITONBACKEND_Model *model;
    TRITONSERVER_Error *err;
    struct executor *x;
    void *m;

    TRY(backend_refuse_gpu(instance, NULL, "GPU instances not supported"));
    TRY(TRITONBACKEND_ModelInstanceModel(instance, &model));
    TRY(TRITONBACKEND_ModelState(model, &m));
    TRY(executor_new(m, instance, &x));
    err = TRITONBACKEND_ModelInstanceSetState(instance, x);
    if (err)
        executor_free(x);
    return err;
}

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceFinalize(TRITONBACKEND_ModelInstance *instance)
{
    void *x;

    TRY(TRITONBACKEND_ModelInstanceState(instance, &x));
    executor_free(x);
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceExecute(TRITONBACKEND_ModelInstance *instance,
                                                       TRITONBACKEND_Request **requests,
                                                       const uint32_t request_count)
{
    void *x;

    TRY(TRITONBACKEND_ModelInstanceState(instance, &x));
    return executor_run(x, requests, request_count);
}
