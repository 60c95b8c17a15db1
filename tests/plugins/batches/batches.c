/* SPDX-License-Identifier: Apache-2.0 */
/*
 * batches - a backend that logs which requests it got together, and ends an execution when the test
 * lets it.
 *
 * Files in the model's folder:
 *
 *     log    gets a line when an execution begins, and one when it has answered:
 *                begin 3 m_0_1 a:1 b:4        the third execution, of instance m_0_1: ids and batch
 *                sizes
 *                end 3
 *     hold   while it exists, an execution answers only when its own gate exists, go.3
 *
 * The model has any inputs, and an output OUT (INT32, one element), the number of the execution. An
 * execution reports its statistics first, so that a client with an answer finds it counted, and
 * answers its requests in the opposite order. The parameter `responses` is the number of responses
 * to a request, after which the final flag is sent alone.
 */
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "triton/core/tritonbackend.h"

enum { MAX_ROWS = 1024 };

struct model {
    char folder[4000];
    bool batching;
    unsigned int responses; /* 0: one, with the final flag */
    atomic_int n;           /* executions so far */
};

static void must(TRITONSERVER_Error *err)
{
    if (!err)
        return;
    fprintf(stderr, "batches: %s\n", TRITONSERVER_ErrorMessage(err));
    abort();
}

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* Returns the number after a key in a document whose form is known; 0 if the key is missing. */
static unsigned int number_after(const char *json, size_t size, const char *key)
{
    const char *at = memmem(json, size, key, strlen(key));
    return at ? (unsigned int)strtoul(at + strlen(key), NULL, 10) : 0;
}

TRITONSERVER_Error *TRITONBACKEND_ModelInitialize(TRITONBACKEND_Model *model)
{
    struct model *m = calloc(1, sizeof(*m));
    TRITONBACKEND_ArtifactType type;
    TRITONSERVER_Message *message;
    const char *json, *folder;
    size_t size;

    must(TRITONBACKEND_ModelRepository(model, &type, &folder));
    snprintf(m->folder, sizeof(m->folder), "%s", folder);
    must(TRITONBACKEND_ModelConfig(model, 1, &message));
    must(TRITONSERVER_MessageSerializeToJson(message, &json, &size));
    m->batching = number_after(json, size, "\"max_batch_size\":") > 0;
    m->responses = number_after(json, size, "\"responses\":{\"string_value\":\"");
    must(TRITONSERVER_MessageDelete(message));
    must(TRITONBACKEND_ModelSetState(model, m));
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelFinalize(TRITONBACKEND_Model *model)
{
    void *state;
    must(TRITONBACKEND_ModelState(model, &state));
    free(state);
    return NULL;
}

/* Writes one line in one call, so that lines of several instances do not mix. */
static void write_log(const struct model *m, const char *line, size_t size)
{
    char path[4096];
    snprintf(path, sizeof(path), "%s/log", m->folder);
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (fd < 0 || write(fd, line, size) != (ssize_t)size)
        abort();
    close(fd);
}

static void wait_for_gate(const struct model *m, int n)
{
    static const struct timespec pause = {.tv_nsec = 1000000};
    char hold[4096], go[4096];
    snprintf(hold, sizeof(hold), "%s/hold", m->folder);
    snprintf(go, sizeof(go), "%s/go.%d", m->folder, n);
    while (access(hold, F_OK) == 0 && access(go, F_OK) != 0)
        nanosleep(&pause, NULL);
}

static int64_t rows_of(const struct model *m, TRITONBACKEND_Request *request)
{
    TRITONBACKEND_Input *input;
    const int64_t *shape;
    if (!m->batching)
        return 1;
    must(TRITONBACKEND_RequestInputByIndex(request, 0, &input));
    must(TRITONBACKEND_InputProperties(input, NULL, NULL, &shape, NULL, NULL, NULL));
    if (shape[0] > MAX_ROWS)
        abort();
    return shape[0];
}

static void begin(const struct model *m, TRITONBACKEND_ModelInstance *instance, int n,
                  TRITONBACKEND_Request **requests, uint32_t request_count)
{
    char *line = NULL;
    const char *name, *id;
    size_t size = 0;
    FILE *to = open_memstream(&line, &size);
    must(TRITONBACKEND_ModelInstanceName(instance, &name));
    fprintf(to, "begin %d %s", n, name);
    for (uint32_t i = 0; i < request_count; i++) {
        must(TRITONBACKEND_RequestId(requests[i], &id));
        fprintf(to, " %s:%lld", id, (long long)rows_of(m, requests[i]));
    }
    fputc('\n', to);
    fclose(to);
    write_log(m, line, size);
    free(line);
}

static void respond(const struct model *m, TRITONBACKEND_Request *request, int n, uint32_t flags)
{
    TRITONSERVER_MemoryType memory = TRITONSERVER_MEMORY_CPU;
    TRITONBACKEND_Response *response;
    TRITONBACKEND_Output *output;
    int64_t memory_id = 0, shape[2] = {rows_of(m, request), 1};
    int32_t *to;
    must(TRITONBACKEND_ResponseNew(&response, request));
    must(TRITONBACKEND_ResponseOutput(response, &output, "OUT", TRITONSERVER_TYPE_INT32,
                                      m->batching ? shape : shape + 1, m->batching ? 2 : 1));
    must(TRITONBACKEND_OutputBuffer(output, (void **)&to, (uint64_t)shape[0] * sizeof(*to), &memory,
                                    &memory_id));
    for (int64_t i = 0; i < shape[0]; i++)
        to[i] = n;
    must(TRITONBACKEND_ResponseSend(response, flags, NULL));
}

static void answer(const struct model *m, TRITONBACKEND_Request *request, int n)
{
    TRITONBACKEND_ResponseFactory *factory;
    if (m->responses == 0) {
        respond(m, request, n, TRITONSERVER_RESPONSE_COMPLETE_FINAL);
        return;
    }
    must(TRITONBACKEND_ResponseFactoryNew(&factory, request));
    for (unsigned int i = 0; i < m->responses; i++)
        respond(m, request, n, 0);
    must(TRITONBACKEND_ResponseFactorySendFlags(factory, TRITONSERVER_RESPONSE_COMPLETE_FINAL));
    must(TRITONBACKEND_ResponseFactoryDelete(factory));
}

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceExecute(TRITONBACKEND_ModelInstance *instance,
                                                       TRITONBACKEND_Request **requests,
                                                       const uint32_t request_count)
{
    TRITONBACKEND_Model *model;
    void *state;
    must(TRITONBACKEND_ModelInstanceModel(instance, &model));
    must(TRITONBACKEND_ModelState(model, &state));
    struct model *m = state;
    uint64_t times[4] = {now_ns()}, rows = 0;
    int n = atomic_fetch_add(&m->n, 1) + 1;

    begin(m, instance, n, requests, request_count);
    times[1] = now_ns();
    wait_for_gate(m, n);
    times[2] = times[3] = now_ns();
    for (uint32_t i = 0; i < request_count; i++) {
        rows += (uint64_t)rows_of(m, requests[i]);
        must(TRITONBACKEND_ModelInstanceReportStatistics(instance, requests[i], true, times[0],
                                                         times[1], times[2], times[3]));
    }
    must(TRITONBACKEND_ModelInstanceReportBatchStatistics(instance, rows, times[0], times[1],
                                                          times[2], times[3]));
    for (uint32_t i = request_count; i-- > 0;)
        answer(m, requests[i], n);
    for (uint32_t i = 0; i < request_count; i++)
        must(TRITONBACKEND_RequestRelease(requests[i], TRITONSERVER_REQUEST_RELEASE_ALL));
    char line[32];
    write_log(m, line, (size_t)snprintf(line, sizeof(line), "end %d\n", n));
    return NULL;
}
