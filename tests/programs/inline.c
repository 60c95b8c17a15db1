/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inline - a program that embeds the server and asks for inline execution, and counts where its
 * callbacks run.
 *
 *     inline REPOSITORY BACKEND_DIRECTORY MODEL REQUESTS yes|no [sequence]
 *
 * It asks the model, whose input INPUT0 is FP32 [1,1], REQUESTS times, one after the other. Each
 * release callback starts one more request, of another object. `sequence`: each request is a
 * sequence of its own. It prints
 *
 *     inside=N nested=N answered=N
 *
 * inside: response callbacks of the first requests that were called inside the call that sent the
 * request. nested: requests sent in callbacks that were answered inside the callback. answered: all
 * answers.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conch/conch.h"
#include "triton/core/tritonserver.h"

static TRITONSERVER_Server *server;
static TRITONSERVER_ResponseAllocator *allocator;
static const char *model;
static bool is_sequence;
static const float value = 1;

static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static unsigned int n_inside, n_nested, n_answered, n_released; /* under mu */

static __thread bool in_call, in_callback;

static void must(TRITONSERVER_Error *error)
{
    if (!error)
        return;
    fprintf(stderr, "inline: %s\n", TRITONSERVER_ErrorMessage(error));
    exit(1);
}

static TRITONSERVER_Error *allocate(TRITONSERVER_ResponseAllocator *a, const char *name,
                                    size_t size, TRITONSERVER_MemoryType wanted, int64_t wanted_id,
                                    void *userp, void **buffer, void **buffer_userp,
                                    TRITONSERVER_MemoryType *type, int64_t *id)
{
    (void)a, (void)name, (void)wanted, (void)wanted_id, (void)userp;
    *buffer = malloc(size ? size : 1);
    *buffer_userp = NULL;
    *type = TRITONSERVER_MEMORY_CPU;
    *id = 0;
    return NULL;
}

static TRITONSERVER_Error *release(TRITONSERVER_ResponseAllocator *a, void *buffer,
                                   void *buffer_userp, size_t size, TRITONSERVER_MemoryType type,
                                   int64_t id)
{
    (void)a, (void)buffer_userp, (void)size, (void)type, (void)id;
    free(buffer);
    return NULL;
}

struct asked {
    bool is_first; /* its release sends another request */
};
static struct asked first = {.is_first = true}, second;

static void on_response(TRITONSERVER_InferenceResponse *response, const uint32_t flags, void *userp)
{
    const struct asked *a = userp;
    if (response) {
        must(TRITONSERVER_InferenceResponseError(response));
        must(TRITONSERVER_InferenceResponseDelete(response));
    }
    pthread_mutex_lock(&mu);
    n_answered += flags & TRITONSERVER_RESPONSE_COMPLETE_FINAL;
    n_inside += a->is_first && in_call;
    n_nested += !a->is_first && in_callback;
    pthread_mutex_unlock(&mu);
}

static void ask(struct asked *a, uint64_t id);

static void on_release(TRITONSERVER_InferenceRequest *request, const uint32_t flags, void *userp)
{
    const struct asked *a = userp;
    (void)flags;
    must(TRITONSERVER_InferenceRequestDelete(request));
    if (a->is_first) {
        static uint64_t next_id = UINT64_C(1) << 32;
        in_callback = true;
        ask(&second, __atomic_fetch_add(&next_id, 1, __ATOMIC_RELAXED));
        in_callback = false;
    }
    pthread_mutex_lock(&mu);
    n_released++;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mu);
}

static void ask(struct asked *a, uint64_t id)
{
    static const int64_t shape[] = {1, 1};
    TRITONSERVER_InferenceRequest *r;
    must(TRITONSERVER_InferenceRequestNew(&r, server, model, -1));
    if (is_sequence) {
        must(TRITONSERVER_InferenceRequestSetCorrelationId(r, id));
        must(TRITONSERVER_InferenceRequestSetFlags(r, TRITONSERVER_REQUEST_FLAG_SEQUENCE_START |
                                                          TRITONSERVER_REQUEST_FLAG_SEQUENCE_END));
    }
    must(TRITONSERVER_InferenceRequestAddInput(r, "INPUT0", TRITONSERVER_TYPE_FP32, shape, 2));
    must(TRITONSERVER_InferenceRequestAppendInputData(r, "INPUT0", &value, sizeof(value),
                                                      TRITONSERVER_MEMORY_CPU, 0));
    must(TRITONSERVER_InferenceRequestSetReleaseCallback(r, on_release, a));
    must(TRITONSERVER_InferenceRequestSetResponseCallback(r, allocator, NULL, on_response, a));
    must(TRITONSERVER_ServerInferAsync(server, r, NULL));
}

static void start(const char *repository, const char *backends, bool inline_execution)
{
    TRITONSERVER_ServerOptions *options;
    must(TRITONSERVER_ServerOptionsNew(&options));
    must(TRITONSERVER_ServerOptionsSetModelRepositoryPath(options, repository));
    must(TRITONSERVER_ServerOptionsSetBackendDirectory(options, backends));
    must(TRITONSERVER_ServerOptionsSetLogInfo(options, false));
    must(conch_server_options_set_inline_execution(options, inline_execution));
    must(TRITONSERVER_ServerNew(&server, options));
    must(TRITONSERVER_ServerOptionsDelete(options));
    must(TRITONSERVER_ResponseAllocatorNew(&allocator, allocate, release, NULL));
}

int main(int argc, char **argv)
{
    if (argc < 6)
        return 2;
    unsigned int n = (unsigned int)strtoul(argv[4], NULL, 10);
    model = argv[3];
    is_sequence = argc > 6;
    start(argv[1], argv[2], strcmp(argv[5], "yes") == 0);
    for (unsigned int i = 0; i < n; i++) {
        in_call = true;
        ask(&first, i + 1);
        in_call = false;
        pthread_mutex_lock(&mu);
        while (n_released < 2 * (i + 1))
            pthread_cond_wait(&changed, &mu);
        pthread_mutex_unlock(&mu);
    }
    printf("inside=%u nested=%u answered=%u\n", n_inside, n_nested, n_answered);
    must(TRITONSERVER_ServerStop(server));
    must(TRITONSERVER_ServerDelete(server));
    must(TRITONSERVER_ResponseAllocatorDelete(allocator));
    return 0;
}
