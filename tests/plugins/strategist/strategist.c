/* SPDX-License-Identifier: Apache-2.0 */
/*
 * strategist - a batching library that prints on stderr what it is asked, and answers as the test
 * wants; and a backend that prints which requests it got together. The test names this file in the
 * model's parameter TRITON_BATCH_STRATEGY_PATH, or copies it where such libraries are searched.
 *
 *     strategist: batcher begins · batcher ends
 *     strategist: batch N begins · batch N ends · ID? (of no batch) · N: ID?
 *     strategist: executes ID ID…
 *
 * Parameters of the model, which the batcher reads: `fails` (words: batcher-begin, batcher-end,
 * batch-begin, batch-end: these functions return an error), `silent` (words: batcher, batch-user:
 * their pointer is not written), `all` (the answer about each request that has no `join`).
 *
 * A request's parameter `join` chooses the answer about the request: yes (the default), no, first
 * (yes, if the request is the first of its batch), unsaid (no answer is written); with the prefix
 * fail- also an error. `hold` names a file: while it exists the function waits, after making a file
 * with the suffix .reached. A file hold.execute in the model's folder holds executions in the same
 * way.
 *
 * The model has one input IN and one output OUT, INT32; OUT is IN.
 */
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/backend.h"

struct batcher {
    char fails[128], silent[64], all[16];
    pthread_mutex_t mu;
    unsigned int n_batches; /* under mu */
    bool in_use;            /* under mu: a thread is inside a function */
};

struct batch {
    struct batcher *of;
    unsigned int number, n_asked;
};

static void must(TRITONSERVER_Error *err)
{
    if (!err)
        return;
    fprintf(stderr, "strategist: %s\n", TRITONSERVER_ErrorMessage(err));
    abort();
}

static void tell(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void tell(const char *fmt, ...)
{
    char line[4096];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof(line), fmt, ap);
    va_end(ap);
    fprintf(stderr, "strategist: %s\n", line);
}

static TRITONSERVER_Error *failure(const char *what)
{
    return backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "%s does not want to", what);
}

static void hold(const char *path)
{
    char reached[4096];
    if (access(path, F_OK) != 0)
        return;
    snprintf(reached, sizeof(reached), "%s.reached", path);
    FILE *f = fopen(reached, "we");
    if (f)
        fclose(f);
    while (access(path, F_OK) == 0)
        backend_pause_ms(1);
}

/* ---- The batcher ----------------------------------------------------------------------------- */

static void copy_parameter(const struct doc *config, const char *key, char *to, size_t size)
{
    const char *value = backend_parameter(config, key);
    snprintf(to, size, "%s", value ? value : "");
}

static struct batcher *batcher_new(TRITONBACKEND_Model *model)
{
    struct batcher *b = calloc(1, sizeof(*b));
    struct doc *config;
    must(backend_model_config(model, &config));
    copy_parameter(config, "fails", b->fails, sizeof(b->fails));
    copy_parameter(config, "silent", b->silent, sizeof(b->silent));
    copy_parameter(config, "all", b->all, sizeof(b->all));
    doc_free(config);
    pthread_mutex_init(&b->mu, NULL);
    return b;
}

static void batcher_free(struct batcher *b)
{
    pthread_mutex_destroy(&b->mu);
    free(b);
}

/* A batcher has one thread inside at a time. */
static void enter(struct batcher *b)
{
    pthread_mutex_lock(&b->mu);
    if (b->in_use)
        tell("is asked two things at a time");
    b->in_use = true;
    pthread_mutex_unlock(&b->mu);
}

static void leave(struct batcher *b)
{
    pthread_mutex_lock(&b->mu);
    b->in_use = false;
    pthread_mutex_unlock(&b->mu);
}

TRITONSERVER_Error *TRITONBACKEND_ModelBatcherInitialize(TRITONBACKEND_Batcher **batcher,
                                                         TRITONBACKEND_Model *model)
{
    struct batcher *b = batcher_new(model);
    tell("batcher begins");
    bool fails = strstr(b->fails, "batcher-begin"), silent = strstr(b->silent, "batcher");
    if (fails || silent)
        batcher_free(b);
    else
        *batcher = (TRITONBACKEND_Batcher *)b;
    return fails ? failure("batcher-begin") : NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelBatcherFinalize(TRITONBACKEND_Batcher *batcher)
{
    struct batcher *b = (struct batcher *)batcher;
    tell(b ? "batcher ends" : "no batcher ends");
    bool fails = b && strstr(b->fails, "batcher-end");
    if (b)
        batcher_free(b);
    return fails ? failure("batcher-end") : NULL;
}

/* ---- A batch --------------------------------------------------------------------------------- */

TRITONSERVER_Error *TRITONBACKEND_ModelBatchInitialize(const TRITONBACKEND_Batcher *batcher,
                                                       void **userp)
{
    struct batcher *b = (struct batcher *)(uintptr_t)batcher;
    if (!b) {
        tell("a batch of no batcher begins");
        return NULL;
    }
    enter(b);
    unsigned int number = ++b->n_batches;
    tell("batch %u begins", number);
    bool fails = strstr(b->fails, "batch-begin");
    if (!fails && !strstr(b->silent, "batch-user")) {
        struct batch *batch = malloc(sizeof(*batch));
        *batch = (struct batch){.of = b, .number = number};
        *userp = batch;
    }
    leave(b);
    return fails ? failure("batch-begin") : NULL;
}

/* Returns the value of a request's string parameter; NULL if it has none. */
static const char *parameter(TRITONBACKEND_Request *request, const char *wanted)
{
    uint32_t n;
    must(TRITONBACKEND_RequestParameterCount(request, &n));
    for (uint32_t i = 0; i < n; i++) {
        TRITONSERVER_ParameterType type;
        const void *value;
        const char *key;
        must(TRITONBACKEND_RequestParameter(request, i, &key, &type, &value));
        if (type == TRITONSERVER_PARAMETER_STRING && strcmp(key, wanted) == 0)
            return value;
    }
    return NULL;
}

static TRITONSERVER_Error *judge(TRITONBACKEND_Request *request, const char *all, bool is_first,
                                 bool *should_include)
{
    static const char error[] = "fail-";
    const char *join = parameter(request, "join"), *path = parameter(request, "hold");
    if (path)
        hold(path);
    if (!join)
        join = *all ? all : "yes";
    bool fails = strncmp(join, error, strlen(error)) == 0;
    if (fails)
        join += strlen(error);
    if (strcmp(join, "unsaid") != 0)
        *should_include = strcmp(join, "yes") == 0 || (is_first && strcmp(join, "first") == 0);
    return fails ? failure("include") : NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelBatchIncludeRequest(TRITONBACKEND_Request *request,
                                                           void *userp, bool *should_include)
{
    struct batch *b = userp;
    const char *id;
    must(TRITONBACKEND_RequestId(request, &id));
    if (!b) {
        tell("%s?", id);
        return judge(request, "", false, should_include);
    }
    enter(b->of);
    tell("%u: %s?", b->number, id);
    TRITONSERVER_Error *err = judge(request, b->of->all, b->n_asked++ == 0, should_include);
    leave(b->of);
    return err;
}

TRITONSERVER_Error *TRITONBACKEND_ModelBatchFinalize(void *userp)
{
    struct batch *b = userp;
    if (!b) {
        tell("no batch ends");
        return NULL;
    }
    struct batcher *of = b->of;
    enter(of);
    tell("batch %u ends", b->number);
    bool fails = strstr(of->fails, "batch-end");
    free(b);
    leave(of);
    return fails ? failure("batch-end") : NULL;
}

/* ---- The backend ----------------------------------------------------------------------------- */

TRITONSERVER_Error *TRITONBACKEND_ModelInitialize(TRITONBACKEND_Model *model)
{
    const char *name;
    must(TRITONBACKEND_ModelName(model, &name));
    tell("model %s begins", name);
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelFinalize(TRITONBACKEND_Model *model)
{
    const char *name;
    must(TRITONBACKEND_ModelName(model, &name));
    tell("model %s ends", name);
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceInitialize(TRITONBACKEND_ModelInstance *instance)
{
    const char *name;
    must(TRITONBACKEND_ModelInstanceName(instance, &name));
    tell("instance %s begins", name);
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceFinalize(TRITONBACKEND_ModelInstance *instance)
{
    const char *name;
    must(TRITONBACKEND_ModelInstanceName(instance, &name));
    tell("instance %s ends", name);
    return NULL;
}

static void echo(TRITONBACKEND_Request *request)
{
    TRITONBACKEND_Response *response;
    TRITONBACKEND_Output *output;
    TRITONBACKEND_Input *input;
    const int64_t *shape;
    uint64_t size;
    uint32_t n_dims, n_buffers;
    void *to;

    must(TRITONBACKEND_RequestInput(request, "IN", &input));
    must(TRITONBACKEND_InputProperties(input, NULL, NULL, &shape, &n_dims, &size, &n_buffers));
    must(TRITONBACKEND_ResponseNew(&response, request));
    must(TRITONBACKEND_ResponseOutput(response, &output, "OUT", TRITONSERVER_TYPE_INT32, shape,
                                      n_dims));
    must(backend_output_alloc(output, size, &to));
    must(backend_input_copy(input, n_buffers, to, size));
    must(TRITONBACKEND_ResponseSend(response, TRITONSERVER_RESPONSE_COMPLETE_FINAL, NULL));
    must(TRITONBACKEND_RequestRelease(request, TRITONSERVER_REQUEST_RELEASE_ALL));
}

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceExecute(TRITONBACKEND_ModelInstance *instance,
                                                       TRITONBACKEND_Request **requests,
                                                       const uint32_t request_count)
{
    TRITONBACKEND_ArtifactType type;
    TRITONBACKEND_Model *model;
    char path[4096], ids[2048];
    const char *folder, *id;
    size_t used = 0;

    ids[0] = '\0';
    for (uint32_t i = 0; i < request_count && used < sizeof(ids); i++) {
        must(TRITONBACKEND_RequestId(requests[i], &id));
        used += (size_t)snprintf(ids + used, sizeof(ids) - used, " %s", id);
    }
    tell("executes%s", ids);
    must(TRITONBACKEND_ModelInstanceModel(instance, &model));
    must(TRITONBACKEND_ModelRepository(model, &type, &folder));
    snprintf(path, sizeof(path), "%s/hold.execute", folder);
    hold(path);
    for (uint32_t i = 0; i < request_count; i++)
        echo(requests[i]);
    return NULL;
}
