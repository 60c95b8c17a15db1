/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gate - a backend that waits until a test opens its gates, so that the test need not sleep.
 *
 * The gates are files in the model's folder, which the test makes and removes:
 *
 *     hold.load      loading waits while the file exists
 *     fail.load      loading fails, with the file's first line
 *     hold.execute   an execution waits while the file exists
 *     hold.ready     an instance delays its answer whether it is ready
 *     fail.ready     … and the answer is that it is not
 *     tell.ready     an execution says, before it answers, that the readiness has changed
 *     hold.unload    the end of the model waits while the file exists
 *     bounded        the model says, while it loads, that its executions are bounded, which is a
 *                    lie (conch/backend.h); its responses have the parameter `thread`, the name of
 *                    the thread that executes
 *
 * A waiting function has made a file of the gate's name with the suffix .reached.
 *
 * The model has one input IN and one output OUT, INT32 [-1]; OUT is IN. Statistics count
 * executions; all times in them are 0.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "conch/backend.h"

extern __typeof__(conch_model_declare_bounded) conch_model_declare_bounded __attribute__((weak));
extern __typeof__(conch_model_instance_readiness_changed) conch_model_instance_readiness_changed
    __attribute__((weak));

static void must(TRITONSERVER_Error *err)
{
    if (!err)
        return;
    fprintf(stderr, "gate: %s\n", TRITONSERVER_ErrorMessage(err));
    abort();
}

static const char *gate_path(TRITONBACKEND_Model *model, const char *gate, char path[4096])
{
    TRITONBACKEND_ArtifactType type;
    const char *folder;
    must(TRITONBACKEND_ModelRepository(model, &type, &folder));
    snprintf(path, 4096, "%s/%s", folder, gate);
    return path;
}

static void wait_at(TRITONBACKEND_Model *model, const char *gate)
{
    static const struct timespec pause = {.tv_nsec = 1000000};
    char path[4096], reached[4096 + 8];
    gate_path(model, gate, path);
    if (access(path, F_OK) != 0)
        return;
    snprintf(reached, sizeof(reached), "%s.reached", path);
    FILE *f = fopen(reached, "we");
    if (f)
        fclose(f);
    while (access(path, F_OK) == 0)
        nanosleep(&pause, NULL);
}

/* Returns NULL, or the first line of the gate as an error. */
static TRITONSERVER_Error *fail_at(TRITONBACKEND_Model *model, const char *gate)
{
    char path[4096], line[256] = "";
    FILE *f = fopen(gate_path(model, gate, path), "re");
    if (!f)
        return NULL;
    if (!fgets(line, sizeof(line), f))
        snprintf(line, sizeof(line), "%s", gate);
    fclose(f);
    line[strcspn(line, "\n")] = '\0';
    return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INTERNAL, line);
}

TRITONSERVER_Error *TRITONBACKEND_ModelInitialize(TRITONBACKEND_Model *model)
{
    char path[4096];
    bool bounded = access(gate_path(model, "bounded", path), F_OK) == 0;
    must(TRITONBACKEND_ModelSetState(model, bounded ? model : NULL));
    if (bounded && conch_model_declare_bounded)
        must(conch_model_declare_bounded(model));
    wait_at(model, "hold.load");
    return fail_at(model, "fail.load");
}

TRITONSERVER_Error *TRITONBACKEND_ModelFinalize(TRITONBACKEND_Model *model)
{
    wait_at(model, "hold.unload");
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceReady(TRITONBACKEND_ModelInstance *instance)
{
    TRITONBACKEND_Model *model;
    must(TRITONBACKEND_ModelInstanceModel(instance, &model));
    wait_at(model, "hold.ready");
    return fail_at(model, "fail.ready");
}

static void tell_readiness(TRITONBACKEND_ModelInstance *instance, TRITONBACKEND_Model *model)
{
    char path[4096];
    if (conch_model_instance_readiness_changed &&
        access(gate_path(model, "tell.ready", path), F_OK) == 0)
        must(conch_model_instance_readiness_changed(instance));
}

static void tell_thread(TRITONBACKEND_ModelInstance *instance, TRITONBACKEND_Response *response)
{
    TRITONBACKEND_Model *model;
    void *state;
    char name[32] = "";
    must(TRITONBACKEND_ModelInstanceModel(instance, &model));
    must(TRITONBACKEND_ModelState(model, &state));
    if (!state)
        return;
    pthread_getname_np(pthread_self(), name, sizeof(name));
    must(TRITONBACKEND_ResponseSetStringParameter(response, "thread", name));
}

static void echo(TRITONBACKEND_ModelInstance *instance, TRITONBACKEND_Request *request)
{
    TRITONSERVER_MemoryType memory = TRITONSERVER_MEMORY_CPU;
    TRITONBACKEND_Response *response;
    TRITONBACKEND_Output *output;
    TRITONBACKEND_Input *input;
    const int64_t *shape;
    const void *from = NULL;
    int64_t memory_id = 0;
    uint64_t size = 0;
    uint32_t n_dims, n_buffers;
    void *to;

    must(TRITONBACKEND_RequestInput(request, "IN", &input));
    must(TRITONBACKEND_InputProperties(input, NULL, NULL, &shape, &n_dims, NULL, &n_buffers));
    if (n_buffers > 0)
        must(TRITONBACKEND_InputBuffer(input, 0, &from, &size, &memory, &memory_id));
    must(TRITONBACKEND_ResponseNew(&response, request));
    tell_thread(instance, response);
    must(TRITONBACKEND_ResponseOutput(response, &output, "OUT", TRITONSERVER_TYPE_INT32, shape,
                                      n_dims));
    must(TRITONBACKEND_OutputBuffer(output, &to, size, &memory, &memory_id));
    if (size > 0)
        memcpy(to, from, size);
    must(TRITONBACKEND_ModelInstanceReportStatistics(instance, request, true, 1, 1, 1, 1));
    must(TRITONBACKEND_ResponseSend(response, TRITONSERVER_RESPONSE_COMPLETE_FINAL, NULL));
    must(TRITONBACKEND_RequestRelease(request, TRITONSERVER_REQUEST_RELEASE_ALL));
}

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceExecute(TRITONBACKEND_ModelInstance *instance,
                                                       TRITONBACKEND_Request **requests,
                                                       const uint32_t request_count)
{
    TRITONBACKEND_Model *model;
    must(TRITONBACKEND_ModelInstanceModel(instance, &model));
    wait_at(model, "hold.execute");
    tell_readiness(instance, model);
    must(TRITONBACKEND_ModelInstanceReportBatchStatistics(instance, request_count, 1, 1, 1, 1));
    for (uint32_t i = 0; i < request_count; i++)
        echo(instance, requests[i]);
    return NULL;
}
