/* SPDX-License-Identifier: Apache-2.0 */
/*
 * meter - a backend with metrics of its own, which fails on request.
 *
 * While one of its models is loaded it has these, with the labels model and say (the model's
 * parameter of that name, any text):
 *
 *     meter_requests   a counter of the requests that it has executed
 *     meter_last       a gauge: the batch size of the last request
 *     meter_sizes      a histogram of batch sizes, buckets 1 and 4
 *
 * The model has one input IN and one output OUT, INT32 [-1], and any batch size; OUT is IN. The
 * request parameter `do` is "error" (the execution fails), "fail" (an error is sent and reported),
 * or missing.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "triton/core/tritonbackend.h"

struct meter {
    TRITONSERVER_MetricFamily *requests_family, *last_family, *sizes_family;
    TRITONSERVER_Metric *requests, *last, *sizes;
};

static void must(TRITONSERVER_Error *err)
{
    if (!err)
        return;
    fprintf(stderr, "meter: %s\n", TRITONSERVER_ErrorMessage(err));
    abort();
}

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* ---- Metrics -------------------------------------------------------------------------------- */

/* Reads the model's parameter `say` from its configuration as JSON. Its only escapes are \" \\
 * \n. */
static void read_say(TRITONBACKEND_Model *model, char *ret_say, size_t room)
{
    static const char before[] = "\"say\":{\"string_value\":\"";
    TRITONSERVER_Message *config;
    const char *json;
    size_t size, n = 0;
    must(TRITONBACKEND_ModelConfig(model, 1, &config));
    must(TRITONSERVER_MessageSerializeToJson(config, &json, &size));
    const char *at = memmem(json, size, before, sizeof(before) - 1), *end = json + size;
    for (at = at ? at + sizeof(before) - 1 : end; at < end && *at != '"' && n + 1 < room; at++) {
        if (*at == '\\')
            at++;
        ret_say[n++] = at[-1] == '\\' && *at == 'n' ? '\n' : *at;
    }
    ret_say[n] = '\0';
    must(TRITONSERVER_MessageDelete(config));
}

TRITONSERVER_Error *TRITONBACKEND_ModelInitialize(TRITONBACKEND_Model *model)
{
    static const double buckets[] = {1, 4};
    struct meter *m = calloc(1, sizeof(*m));
    TRITONSERVER_MetricArgs *args;
    const char *name;
    char say[256];
    must(TRITONBACKEND_ModelName(model, &name));
    read_say(model, say, sizeof(say));
    TRITONSERVER_Parameter *of_say =
        TRITONSERVER_ParameterNew("say", TRITONSERVER_PARAMETER_STRING, say);
    TRITONSERVER_Parameter *of_model =
        TRITONSERVER_ParameterNew("model", TRITONSERVER_PARAMETER_STRING, name);
    const TRITONSERVER_Parameter *labels[] = {of_say, of_model};
    must(TRITONSERVER_MetricFamilyNew(&m->requests_family, TRITONSERVER_METRIC_KIND_COUNTER,
                                      "meter_requests", "requests, \"all\" of them"));
    must(TRITONSERVER_MetricFamilyNew(&m->last_family, TRITONSERVER_METRIC_KIND_GAUGE, "meter_last",
                                      "a batch size"));
    must(TRITONSERVER_MetricFamilyNew(&m->sizes_family, TRITONSERVER_METRIC_KIND_HISTOGRAM,
                                      "meter_sizes", "batch sizes"));
    must(TRITONSERVER_MetricNew(&m->requests, m->requests_family, labels, 2));
    must(TRITONSERVER_MetricNew(&m->last, m->last_family, labels, 2));
    must(TRITONSERVER_MetricArgsNew(&args));
    must(TRITONSERVER_MetricArgsSetHistogram(args, buckets, 2));
    must(TRITONSERVER_MetricNewWithArgs(&m->sizes, m->sizes_family, labels, 2, args));
    must(TRITONSERVER_MetricArgsDelete(args));
    TRITONSERVER_ParameterDelete(of_say);
    TRITONSERVER_ParameterDelete(of_model);
    must(TRITONBACKEND_ModelSetState(model, m));
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelFinalize(TRITONBACKEND_Model *model)
{
    void *state;
    must(TRITONBACKEND_ModelState(model, &state));
    struct meter *m = state;
    must(TRITONSERVER_MetricDelete(m->requests));
    must(TRITONSERVER_MetricDelete(m->last));
    must(TRITONSERVER_MetricDelete(m->sizes));
    must(TRITONSERVER_MetricFamilyDelete(m->requests_family));
    must(TRITONSERVER_MetricFamilyDelete(m->last_family));
    must(TRITONSERVER_MetricFamilyDelete(m->sizes_family));
    free(m);
    return NULL;
}

/* ---- Requests ------------------------------------------------------------------------------- */

/* Returns the value of the parameter `do`, or "". */
static const char *what_to_do(TRITONBACKEND_Request *request)
{
    uint32_t n;
    must(TRITONBACKEND_RequestParameterCount(request, &n));
    for (uint32_t i = 0; i < n; i++) {
        TRITONSERVER_ParameterType type;
        const char *key;
        const void *value;
        must(TRITONBACKEND_RequestParameter(request, i, &key, &type, &value));
        if (strcmp(key, "do") == 0 && type == TRITONSERVER_PARAMETER_STRING)
            return value;
    }
    return "";
}

static int64_t rows_of(TRITONBACKEND_Request *request)
{
    TRITONBACKEND_Input *input;
    const int64_t *shape;
    must(TRITONBACKEND_RequestInput(request, "IN", &input));
    must(TRITONBACKEND_InputProperties(input, NULL, NULL, &shape, NULL, NULL, NULL));
    return shape[0];
}

/* Sends OUT = IN, or an error. */
static void answer(TRITONBACKEND_Request *request, bool fail)
{
    TRITONSERVER_MemoryType memory = TRITONSERVER_MEMORY_CPU;
    TRITONSERVER_Error *error = NULL;
    TRITONBACKEND_Response *response;
    TRITONBACKEND_Output *output;
    TRITONBACKEND_Input *input;
    const int64_t *shape;
    const void *from = NULL;
    int64_t memory_id = 0;
    uint64_t size;
    uint32_t n_dims;
    void *to;

    must(TRITONBACKEND_RequestInput(request, "IN", &input));
    must(TRITONBACKEND_InputProperties(input, NULL, NULL, &shape, &n_dims, NULL, NULL));
    must(TRITONBACKEND_ResponseNew(&response, request));
    if (fail) {
        error = TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INTERNAL, "told to fail");
    } else {
        must(TRITONBACKEND_InputBuffer(input, 0, &from, &size, &memory, &memory_id));
        must(TRITONBACKEND_ResponseOutput(response, &output, "OUT", TRITONSERVER_TYPE_INT32, shape,
                                          n_dims));
        must(TRITONBACKEND_OutputBuffer(output, &to, size, &memory, &memory_id));
        memcpy(to, from, size);
    }
    must(TRITONBACKEND_ResponseSend(response, TRITONSERVER_RESPONSE_COMPLETE_FINAL, error));
    if (error)
        TRITONSERVER_ErrorDelete(error);
}

/* Counts before it answers: a client with an answer finds it on the page. */
static void execute(TRITONBACKEND_ModelInstance *instance, struct meter *m,
                    TRITONBACKEND_Request *request)
{
    bool fail = strcmp(what_to_do(request), "fail") == 0;
    uint64_t from_ns = now_ns();
    must(TRITONSERVER_MetricIncrement(m->requests, 1));
    must(TRITONBACKEND_ModelInstanceReportStatistics(instance, request, !fail, from_ns, from_ns,
                                                     now_ns(), now_ns()));
    if (!fail)
        must(TRITONBACKEND_ModelInstanceReportBatchStatistics(instance, 1, from_ns, from_ns,
                                                              now_ns(), now_ns()));
    must(TRITONSERVER_MetricSet(m->last, (double)rows_of(request)));
    must(TRITONSERVER_MetricObserve(m->sizes, (double)rows_of(request)));
    answer(request, fail);
    must(TRITONBACKEND_RequestRelease(request, TRITONSERVER_REQUEST_RELEASE_ALL));
}

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceExecute(TRITONBACKEND_ModelInstance *instance,
                                                       TRITONBACKEND_Request **requests,
                                                       const uint32_t request_count)
{
    TRITONBACKEND_Model *model;
    void *state;
    must(TRITONBACKEND_ModelInstanceModel(instance, &model));
    must(TRITONBACKEND_ModelState(model, &state));
    for (uint32_t i = 0; i < request_count; i++) {
        if (strcmp(what_to_do(requests[i]), "error") == 0)
            return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INTERNAL, "told to fail");
    }
    for (uint32_t i = 0; i < request_count; i++)
        execute(instance, state, requests[i]);
    return NULL;
}
