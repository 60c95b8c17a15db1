/* SPDX-License-Identifier: Apache-2.0 */
/*
 * script - a decoupled backend that does with each request what the request says, step by step.
 *
 * The model has an input IN and an output OUT, INT32, one element: OUT is 1000 × IN + the number of
 * the response. The parameter `do` of a request (a string) is its script, one letter a step:
 *
 *     n d   makes a response factory, deletes it
 *     r     sends a response that is made from the request
 *     f l   … that is made from the factory; with the final flag
 *     e E   sends an error that is made from the factory; with the final flag
 *     u     sends a response whose output the model does not have
 *     o     makes a response with its output, and deletes it
 *     . 0   sends the final flag alone by the factory; flags of 0
 *     x     releases the request
 *     t     another thread goes on from here
 *     c     waits until the request is cancelled
 *     h     waits while the file hold exists in the model's folder, and has made hold.reached
 *     s m v z   reports a response of 100 ns to the statistics: a success whose outputs took the
 *               last 70 ns, an empty one, a failure, a cancelled one
 *
 * The backend adds no step: a script that makes a factory deletes it. What the server refuses is
 * printed to stderr. Each request counts as a success, each call of Execute as one execution.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "triton/core/tritonbackend.h"

#define FINAL TRITONSERVER_RESPONSE_COMPLETE_FINAL

enum { MAX_THREADS = 1024, MAX_STEPS = 64 };

struct instance {
    TRITONBACKEND_ModelInstance *handle;
    char hold[4096], reached[4096 + 8];
    pthread_mutex_t mu;
    pthread_t threads[MAX_THREADS]; /* under mu; joined at the end */
    int n_threads;
};

/* One request and what is left of its script. */
struct run {
    struct instance *in;
    TRITONBACKEND_Request *request; /* NULL: released */
    TRITONBACKEND_ResponseFactory *factory;
    int32_t value, n_sent;
    uint32_t n_dims;
    char steps[MAX_STEPS], *next;
};

/* Prints what the server refuses. Returns whether it refused. */
static bool refused(TRITONSERVER_Error *err)
{
    if (!err)
        return false;
    fprintf(stderr, "script: %s\n", TRITONSERVER_ErrorMessage(err));
    TRITONSERVER_ErrorDelete(err);
    return true;
}

static void must(TRITONSERVER_Error *err)
{
    if (refused(err))
        abort();
}

static void pause_1_ms(void)
{
    static const struct timespec pause = {.tv_nsec = 1000000};
    nanosleep(&pause, NULL);
}

/* ---- Steps ----------------------------------------------------------------------------------- */

static TRITONBACKEND_Response *new_response(struct run *r)
{
    TRITONBACKEND_Response *response;
    must(TRITONBACKEND_ResponseNewFromFactory(&response, r->factory));
    return response;
}

/* Returns the server's error, when the model has no such output. */
static TRITONSERVER_Error *add_output(struct run *r, TRITONBACKEND_Response *response,
                                      const char *name)
{
    static const int64_t shape[] = {1, 1};
    TRITONSERVER_MemoryType memory = TRITONSERVER_MEMORY_CPU;
    TRITONBACKEND_Output *output;
    int64_t memory_id = 0;
    int32_t value = 1000 * r->value + r->n_sent++;
    void *to;
    TRITONSERVER_Error *err = TRITONBACKEND_ResponseOutput(
        response, &output, name, TRITONSERVER_TYPE_INT32, shape, r->n_dims);
    if (err)
        return err;
    must(TRITONBACKEND_OutputBuffer(output, &to, sizeof(value), &memory, &memory_id));
    memcpy(to, &value, sizeof(value));
    return NULL;
}

static void send(struct run *r, TRITONBACKEND_Response *response, const char *name, uint32_t flags)
{
    TRITONSERVER_Error *err = add_output(r, response, name);
    refused(TRITONBACKEND_ResponseSend(response, flags, err));
    TRITONSERVER_ErrorDelete(err);
}

static void send_error(struct run *r, uint32_t flags)
{
    TRITONSERVER_Error *err =
        TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_UNSUPPORTED, "as the script says");
    refused(TRITONBACKEND_ResponseSend(new_response(r), flags, err));
    TRITONSERVER_ErrorDelete(err);
}

static void await_cancel(struct run *r)
{
    for (bool cancelled = false; !cancelled; pause_1_ms()) {
        if (r->factory)
            must(TRITONBACKEND_ResponseFactoryIsCancelled(r->factory, &cancelled));
        else
            must(TRITONBACKEND_RequestIsCancelled(r->request, &cancelled));
    }
}

static void wait_at_gate(const struct instance *in)
{
    if (access(in->hold, F_OK) != 0)
        return;
    FILE *f = fopen(in->reached, "we");
    if (f)
        fclose(f);
    while (access(in->hold, F_OK) == 0)
        pause_1_ms();
}

static void report(struct run *r, uint64_t outputs_ns, const TRITONSERVER_Error_Code *code)
{
    TRITONBACKEND_ModelInstanceResponseStatistics *s;
    TRITONSERVER_Error *err = code ? TRITONSERVER_ErrorNew(*code, "for the statistics") : NULL;
    must(TRITONBACKEND_ModelInstanceResponseStatisticsNew(&s));
    must(TRITONBACKEND_ModelInstanceResponseStatisticsSetModelInstance(s, r->in->handle));
    must(TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseFactory(s, r->factory));
    must(TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseStart(s, 100));
    must(TRITONBACKEND_ModelInstanceResponseStatisticsSetComputeOutputStart(s, outputs_ns));
    must(TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseEnd(s, 200));
    must(TRITONBACKEND_ModelInstanceResponseStatisticsSetError(s, err));
    refused(TRITONBACKEND_ModelInstanceReportResponseStatistics(s));
    must(TRITONBACKEND_ModelInstanceResponseStatisticsDelete(s));
    TRITONSERVER_ErrorDelete(err);
}

static void report_step(struct run *r, char step)
{
    static const TRITONSERVER_Error_Code failed = TRITONSERVER_ERROR_INTERNAL,
                                         cancelled = TRITONSERVER_ERROR_CANCELLED;
    report(r, step == 's' || step == 'v' ? 130 : 0,
           step == 'v'   ? &failed
           : step == 'z' ? &cancelled
                         : NULL);
}

static void respond_step(struct run *r, char step)
{
    TRITONBACKEND_Response *response;
    switch (step) {
    case 'r':
        must(TRITONBACKEND_ResponseNew(&response, r->request));
        send(r, response, "OUT", 0);
        break;
    case 'f':
    case 'l':
        send(r, new_response(r), "OUT", step == 'l' ? FINAL : 0);
        break;
    case 'e':
    case 'E':
        send_error(r, step == 'E' ? FINAL : 0);
        break;
    case 'u':
        send(r, new_response(r), "NONE", 0);
        break;
    case 'o':
        response = new_response(r);
        must(add_output(r, response, "OUT"));
        must(TRITONBACKEND_ResponseDelete(response));
        break;
    default:
        refused(TRITONBACKEND_ResponseFactorySendFlags(r->factory, step == '.' ? FINAL : 0));
    }
}

static void *go_on(void *arg);

static void go_on_elsewhere(struct run *r)
{
    struct instance *in = r->in;
    pthread_mutex_lock(&in->mu);
    if (in->n_threads == MAX_THREADS ||
        pthread_create(&in->threads[in->n_threads++], NULL, go_on, r) != 0)
        abort();
    pthread_mutex_unlock(&in->mu);
}

/* Executes steps until there are no more, or another thread has the rest. */
static void *go_on(void *arg)
{
    struct run *r = arg;
    for (char step; (step = *r->next) != '\0';) {
        r->next++;
        if (step == 't') {
            go_on_elsewhere(r);
            return NULL;
        }
        if (step == 'n') {
            must(TRITONBACKEND_ResponseFactoryNew(&r->factory, r->request));
        } else if (step == 'd') {
            must(TRITONBACKEND_ResponseFactoryDelete(r->factory));
            r->factory = NULL;
        } else if (step == 'x') {
            must(TRITONBACKEND_RequestRelease(r->request, TRITONSERVER_REQUEST_RELEASE_ALL));
            r->request = NULL;
        } else if (step == 'c') {
            await_cancel(r);
        } else if (step == 'h') {
            wait_at_gate(r->in);
        } else if (strchr("smvz", step)) {
            report_step(r, step);
        } else {
            respond_step(r, step);
        }
    }
    free(r);
    return NULL;
}

/* ---- The backend's functions ----------------------------------------------------------------- */

static void read_input(struct run *r)
{
    TRITONSERVER_MemoryType memory = TRITONSERVER_MEMORY_CPU;
    TRITONBACKEND_Input *input;
    int64_t memory_id = 0;
    uint64_t size;
    const void *from;
    must(TRITONBACKEND_RequestInput(r->request, "IN", &input));
    must(TRITONBACKEND_InputProperties(input, NULL, NULL, NULL, &r->n_dims, NULL, NULL));
    must(TRITONBACKEND_InputBuffer(input, 0, &from, &size, &memory, &memory_id));
    memcpy(&r->value, from, size < sizeof(r->value) ? size : sizeof(r->value));
}

static void read_script(struct run *r)
{
    uint32_t n;
    must(TRITONBACKEND_RequestParameterCount(r->request, &n));
    for (uint32_t i = 0; i < n; i++) {
        TRITONSERVER_ParameterType type;
        const void *value;
        const char *key;
        must(TRITONBACKEND_RequestParameter(r->request, i, &key, &type, &value));
        if (strcmp(key, "do") == 0 && type == TRITONSERVER_PARAMETER_STRING)
            snprintf(r->steps, sizeof(r->steps), "%s", (const char *)value);
    }
    r->next = r->steps;
}

static struct run *run_new(struct instance *in, TRITONBACKEND_Request *request)
{
    struct run *r = calloc(1, sizeof(*r));
    if (!r)
        abort();
    r->in = in;
    r->request = request;
    read_input(r);
    read_script(r);
    return r;
}

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceInitialize(TRITONBACKEND_ModelInstance *instance)
{
    struct instance *in = calloc(1, sizeof(*in));
    TRITONBACKEND_ArtifactType type;
    TRITONBACKEND_Model *model;
    const char *folder;
    if (!in)
        abort();
    in->handle = instance;
    pthread_mutex_init(&in->mu, NULL);
    must(TRITONBACKEND_ModelInstanceModel(instance, &model));
    must(TRITONBACKEND_ModelRepository(model, &type, &folder));
    snprintf(in->hold, sizeof(in->hold), "%s/hold", folder);
    snprintf(in->reached, sizeof(in->reached), "%s.reached", in->hold);
    return TRITONBACKEND_ModelInstanceSetState(instance, in);
}

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceFinalize(TRITONBACKEND_ModelInstance *instance)
{
    void *state;
    must(TRITONBACKEND_ModelInstanceState(instance, &state));
    struct instance *in = state;
    for (int i = 0; i < in->n_threads; i++)
        pthread_join(in->threads[i], NULL);
    pthread_mutex_destroy(&in->mu);
    free(in);
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceExecute(TRITONBACKEND_ModelInstance *instance,
                                                       TRITONBACKEND_Request **requests,
                                                       const uint32_t request_count)
{
    void *in;
    must(TRITONBACKEND_ModelInstanceState(instance, &in));
    must(TRITONBACKEND_ModelInstanceReportBatchStatistics(instance, request_count, 1, 1, 1, 1));
    for (uint32_t i = 0; i < request_count; i++) {
        must(TRITONBACKEND_ModelInstanceReportStatistics(instance, requests[i], true, 1, 1, 1, 1));
        go_on(run_new(in, requests[i]));
    }
    return NULL;
}
