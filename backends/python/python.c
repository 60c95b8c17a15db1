/* SPDX-License-Identifier: Apache-2.0 */
/*
 * python - the functions that a server calls. A backend that is written in Python has a state of
 * its own, though the library is loaded once.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "python/call.h"
#include "python/families.h"
#include "python/instance.h"

/* How many backends use this library: they share the count of restarts, and the allocator of
 * calls. */
static pthread_mutex_t users_mu = PTHREAD_MUTEX_INITIALIZER;
static unsigned int n_users;

static TRITONSERVER_Error *add_user(void)
{
    TRITONSERVER_Error *err = NULL;

    pthread_mutex_lock(&users_mu);
    if (!n_users)
        err = calls_open();
    if (!err)
        n_users++;
    pthread_mutex_unlock(&users_mu);
    return err;
}

static void remove_user(void)
{
    pthread_mutex_lock(&users_mu);
    if (--n_users == 0) {
        watcher_close();
        families_forget_restarts();
        calls_close();
    }
    pthread_mutex_unlock(&users_mu);
}

/* What the child runs lies beside this library. */
static TRITONSERVER_Error *find_script(char **ret_script)
{
    Dl_info info;

    if (!dladdr((void *)(uintptr_t)find_script, &info) || !info.dli_fname)
        return backend_error(TRITONSERVER_ERROR_INTERNAL, "the backend does not find itself");
    const char *slash = strrchr(info.dli_fname, '/');
    const int len = slash ? (int)(slash - info.dli_fname) : 1;
    if (asprintf(ret_script, "%.*s/start.py", len, slash ? info.dli_fname : ".") < 0)
        return backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "out of memory");
    return NULL;
}

static TRITONSERVER_Error *fill_backend(struct python *py)
{
    struct doc *config;

    TRY(backend_check_version());
    TRY(find_script(&py->script));
    TRY(backend_settings(py->handle, &config));
    TRITONSERVER_Error *err = settings_read(config, &py->settings);
    doc_free(config);
    return err;
}

TRITONSERVER_Error *TRITONBACKEND_Initialize(TRITONBACKEND_Backend *backend)
{
    struct python *py = calloc(1, sizeof *py);

    if (!py)
        return backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "out of memory");
    py->handle = backend;
    TRITONSERVER_Error *err = add_user();
    if (err) {
        free(py);
        return err;
    }
    err = TRITONBACKEND_BackendSetState(backend, py);
    if (err) {
        remove_user();
        free(py);
        return err;
    }
    return fill_backend(py);
}

TRITONSERVER_Error *TRITONBACKEND_Finalize(TRITONBACKEND_Backend *backend)
{
    void *state = NULL;

    TRY(TRITONBACKEND_BackendState(backend, &state));
    struct python *py = state;
    if (!py)
        return NULL;
    settings_done(&py->settings);
    free(py->script);
    free(py);
    remove_user();
    return NULL;
}

TRITONSERVER_Error *
TRITONBACKEND_GetBackendAttribute(TRITONBACKEND_Backend *backend,
                                  TRITONBACKEND_BackendAttribute *backend_attributes)
{
    (void)backend;
    TRY(TRITONBACKEND_BackendAttributeAddPreferredInstanceGroup(
        backend_attributes, TRITONSERVER_INSTANCEGROUPKIND_CPU, 1, NULL, 0));
    return TRITONBACKEND_BackendAttributeSetParallelModelInstanceLoading(backend_attributes, true);
}

TRITONSERVER_Error *TRITONBACKEND_ModelInitialize(TRITONBACKEND_Model *model)
{
    struct model *m;

    TRY(model_open(model, &m));
    TRITONSERVER_Error *err = TRITONBACKEND_ModelSetState(model, m);
    if (err)
        model_close(m);
    return err;
}

TRITONSERVER_Error *TRITONBACKEND_ModelFinalize(TRITONBACKEND_Model *model)
{
    void *state = NULL;

    TRY(TRITONBACKEND_ModelState(model, &state));
    model_close(state);
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceInitialize(TRITONBACKEND_ModelInstance *instance)
{
    struct instance *in;

    TRY(instance_open(instance, &in));
    TRITONSERVER_Error *err = TRITONBACKEND_ModelInstanceSetState(instance, in);
    if (err)
        instance_close(in);
    return err;
}

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceFinalize(TRITONBACKEND_ModelInstance *instance)
{
    void *state = NULL;

    TRY(TRITONBACKEND_ModelInstanceState(instance, &state));
    if (state)
        instance_close(state);
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceExecute(TRITONBACKEND_ModelInstance *instance,
                                                       TRITONBACKEND_Request **requests,
                                                       const uint32_t request_count)
{
    void *state;

    TRY(TRITONBACKEND_ModelInstanceState(instance, &state));
    return execute_batch(state, requests, request_count);
}

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceReady(TRITONBACKEND_ModelInstance *instance)
{
    void *state = NULL;

    TRY(TRITONBACKEND_ModelInstanceState(instance, &state));
    return state ? instance_ready(state) : NULL;
}
