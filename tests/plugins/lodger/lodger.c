/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lodger - a backend that leaves in each thread that runs it something that its own code must
 * destroy when the thread ends: a value of a key with a destructor, and what a C++ thread_local
 * variable leaves.
 *
 * The model has one input IN and one output OUT, INT32 [-1]. OUT is the version of the library (the
 * digit in `version` below, which tests change in the file) and the number of requests that the
 * library has executed since it was loaded. The model's parameter `cxx`, if set, adds the
 * thread_local.
 *
 * As a batching library it does the same, and prints its version on standard error.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "triton/core/tritonbackend.h"

/* What compilers make of a thread_local variable with a destructor. */
extern int __cxa_thread_atexit_impl(void (*destroy)(void *), void *object, void *dso);
extern void *__dso_handle;

static const volatile char version[] = "lodger version 1";
static pthread_key_t key;
static atomic_int n_executed, n_ended;
static _Thread_local int is_registered;

static void must(TRITONSERVER_Error *err)
{
    if (!err)
        return;
    fprintf(stderr, "lodger: %s\n", TRITONSERVER_ErrorMessage(err));
    abort();
}

static void end(void *value)
{
    memset(value, 0, 16);
    free(value);
    atomic_fetch_add(&n_ended, 1);
}

static void end_object(void *object)
{
    *(int *)object = 0;
    atomic_fetch_add(&n_ended, 1);
}

static void lodge(void)
{
    if (!pthread_getspecific(key) && pthread_setspecific(key, calloc(1, 16)) != 0)
        abort();
}

static void lodge_object(void)
{
    if (is_registered)
        return;
    is_registered = 1;
    if (__cxa_thread_atexit_impl(end_object, &is_registered, &__dso_handle) != 0)
        abort();
}

TRITONSERVER_Error *TRITONBACKEND_Initialize(TRITONBACKEND_Backend *backend)
{
    (void)backend;
    if (pthread_key_create(&key, end) != 0)
        abort();
    lodge();
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_Finalize(TRITONBACKEND_Backend *backend)
{
    (void)backend;
    lodge();
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelInitialize(TRITONBACKEND_Model *model)
{
    TRITONSERVER_Message *message;
    TRITONSERVER_Error *err = NULL;
    const char *json;
    size_t size;

    lodge();
    must(TRITONBACKEND_ModelConfig(model, 1, &message));
    must(TRITONSERVER_MessageSerializeToJson(message, &json, &size));
    if (strstr(json, "\"cxx\""))
        must(TRITONBACKEND_ModelSetState(model, (void *)&is_registered));
    if (strstr(json, "\"fail\""))
        err = TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INTERNAL, "no room for another lodger");
    must(TRITONSERVER_MessageDelete(message));
    return err;
}

TRITONSERVER_Error *TRITONBACKEND_ModelFinalize(TRITONBACKEND_Model *model)
{
    (void)model;
    lodge();
    return NULL;
}

static void say(TRITONBACKEND_Request *request)
{
    TRITONSERVER_MemoryType memory = TRITONSERVER_MEMORY_CPU;
    TRITONBACKEND_Response *response;
    TRITONBACKEND_Output *output;
    const int64_t shape[] = {2};
    int64_t memory_id = 0;
    void *to;
    int32_t *values;

    must(TRITONBACKEND_ResponseNew(&response, request));
    must(TRITONBACKEND_ResponseOutput(response, &output, "OUT", TRITONSERVER_TYPE_INT32, shape, 1));
    must(TRITONBACKEND_OutputBuffer(output, &to, 2 * sizeof(int32_t), &memory, &memory_id));
    values = to;
    values[0] = version[sizeof(version) - 2] - '0';
    values[1] = atomic_fetch_add(&n_executed, 1) + 1;
    must(TRITONBACKEND_ResponseSend(response, TRITONSERVER_RESPONSE_COMPLETE_FINAL, NULL));
    must(TRITONBACKEND_RequestRelease(request, TRITONSERVER_REQUEST_RELEASE_ALL));
}

/* Any thread may ask whether the instance can serve. */
TRITONSERVER_Error *TRITONBACKEND_ModelInstanceReady(TRITONBACKEND_ModelInstance *instance)
{
    (void)instance;
    lodge();
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceExecute(TRITONBACKEND_ModelInstance *instance,
                                                       TRITONBACKEND_Request **requests,
                                                       const uint32_t request_count)
{
    TRITONBACKEND_Model *model;
    void *with_object;

    must(TRITONBACKEND_ModelInstanceModel(instance, &model));
    must(TRITONBACKEND_ModelState(model, &with_object));
    lodge();
    if (with_object)
        lodge_object();
    for (uint32_t i = 0; i < request_count; i++)
        say(requests[i]);
    return NULL;
}

/* ---- As a batching library ------------------------------------------------------------------- */

TRITONSERVER_Error *TRITONBACKEND_ModelBatcherInitialize(TRITONBACKEND_Batcher **batcher,
                                                         TRITONBACKEND_Model *model)
{
    (void)model;
    *batcher = NULL;
    fprintf(stderr, "lodger: version %c makes batches\n", version[sizeof(version) - 2]);
    if (pthread_key_create(&key, end) != 0)
        abort();
    lodge();
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelBatcherFinalize(TRITONBACKEND_Batcher *batcher)
{
    (void)batcher;
    lodge();
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelBatchInitialize(const TRITONBACKEND_Batcher *batcher,
                                                       void **user)
{
    (void)batcher;
    *user = NULL;
    lodge();
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelBatchIncludeRequest(TRITONBACKEND_Request *request,
                                                           void *user, bool *include)
{
    (void)request;
    (void)user;
    *include = true;
    lodge();
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelBatchFinalize(void *user)
{
    (void)user;
    lodge();
    return NULL;
}
