/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each request has a thread, from the execution until its last response. A thread that has ended
 * waits in instance.ended until the next request, or the end of the instance, joins it. The struct
 * of a joined thread, with its job and statistics, serves a later request. instance.mu guards that
 * list and the number of threads that run; no function of the server is called under it. Functions
 * that older servers lack are weak symbols (IF_THERE).
 */
#include "common/series.h"

#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/*
 * An instance and its threads that still answer. The next request or the finalisation joins each
 * thread: if a thread only announced its end, the library could be unloaded during its last steps.
 */
struct instance {
    TRITONBACKEND_ModelInstance *handle;
    pthread_mutex_t mu;
    pthread_cond_t none;
    /* Under mu. */
    size_t n_running;
    struct series *ended;
    struct series *unused; /* of the thread that executes */
};

enum { KEPT_BYTES = 4096 }; /* the largest block that a job keeps for the next request */

/* One request that is being answered. */
struct series {
    struct instance *in;
    TRITONBACKEND_ResponseFactory *factory;
    TRITONBACKEND_ModelInstanceResponseStatistics *statistics; /* NULL: the server has none */
    uint64_t start_ns; /* of the response in progress: the end of the earlier one */
    pthread_t thread;
    struct series *next;              /* in ended or unused */
    _Alignas(max_align_t) char job[]; /* of series_backend.job_bytes */
};

/* Younger than what backend_check_version() asks for. */
#define IF_THERE(function) extern __typeof__(function) function __attribute__((weak))
IF_THERE(TRITONBACKEND_ModelInstanceResponseStatisticsNew);
IF_THERE(TRITONBACKEND_ModelInstanceResponseStatisticsDelete);
IF_THERE(TRITONBACKEND_ModelInstanceResponseStatisticsSetModelInstance);
IF_THERE(TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseFactory);
IF_THERE(TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseStart);
IF_THERE(TRITONBACKEND_ModelInstanceResponseStatisticsSetComputeOutputStart);
IF_THERE(TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseEnd);
IF_THERE(TRITONBACKEND_ModelInstanceResponseStatisticsSetError);
IF_THERE(TRITONBACKEND_ModelInstanceReportResponseStatistics);

/* ---- Statistics of responses ---------------------------------------------------------------- */

static TRITONSERVER_Error *open_statistics(struct series *s)
{
    if (!TRITONBACKEND_ModelInstanceResponseStatisticsNew)
        return NULL;
    if (!s->statistics) {
        TRY(TRITONBACKEND_ModelInstanceResponseStatisticsNew(&s->statistics));
        TRY(TRITONBACKEND_ModelInstanceResponseStatisticsSetModelInstance(s->statistics,
                                                                          s->in->handle));
    }
    return TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseFactory(s->statistics,
                                                                           s->factory);
}

static TRITONSERVER_Error *try_report(struct series *s, uint64_t outputs_ns, uint64_t end_ns,
                                      TRITONSERVER_Error *err)
{
    TRITONBACKEND_ModelInstanceResponseStatistics *r = s->statistics;

    TRY(TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseStart(r, s->start_ns));
    TRY(TRITONBACKEND_ModelInstanceResponseStatisticsSetComputeOutputStart(r, outputs_ns));
    TRY(TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseEnd(r, end_ns));
    TRY(TRITONBACKEND_ModelInstanceResponseStatisticsSetError(r, err));
    return TRITONBACKEND_ModelInstanceReportResponseStatistics(r);
}

/*
 * Reports before the response is sent, so that a client with the response finds it counted.
 * @outputs_ns  when its outputs were begun; 0: it has none
 */
static void report_response(struct series *s, uint64_t outputs_ns, TRITONSERVER_Error *err)
{
    uint64_t end_ns = backend_now_ns();

    if (s->statistics)
        backend_ignore(try_report(s, outputs_ns, end_ns, err), "reporting statistics");
    s->start_ns = end_ns;
}

static void close_statistics(struct series *s)
{
    if (s->statistics)
        backend_ignore(TRITONBACKEND_ModelInstanceResponseStatisticsDelete(s->statistics),
                       "deleting statistics");
}

/* ---- Helpers -------------------------------------------------------------------------------- */

enum { SLICE_MS = 50 }; /* the longest delay after a cancellation */

TRITONSERVER_Error *series_pause(struct series *s, uint32_t ms)
{
    do {
        uint32_t now_ms = ms < SLICE_MS ? ms : SLICE_MS;
        bool cancelled = false;

        TRY(TRITONBACKEND_ResponseFactoryIsCancelled(s->factory, &cancelled));
        if (cancelled)
            return backend_error(TRITONSERVER_ERROR_CANCELLED, "cancelled while it was executed");
        backend_pause_ms(now_ms);
        ms -= now_ms;
    } while (ms > 0);
    return NULL;
}

static TRITONSERVER_Error *add_outputs(TRITONBACKEND_Response *response,
                                       const struct series_value *values, size_t n_values,
                                       uint32_t n_dims)
{
    static const int64_t shape[] = {1, 1};

    for (size_t i = 0; i < n_values; i++) {
        TRITONBACKEND_Output *output;
        void *to;

        if (!values[i].name)
            continue;
        TRY(TRITONBACKEND_ResponseOutput(response, &output, values[i].name, values[i].type, shape,
                                         n_dims));
        TRY(backend_output_alloc(output, sizeof(values[i].bits), &to));
        memcpy(to, &values[i].bits, sizeof(values[i].bits));
    }
    return NULL;
}

TRITONSERVER_Error *series_send(struct series *s, const struct series_value *values,
                                size_t n_values, uint32_t n_dims)
{
    TRITONBACKEND_Response *response;
    uint64_t outputs_ns;

    TRY(TRITONBACKEND_ResponseNewFromFactory(&response, s->factory));
    outputs_ns = backend_now_ns();
    TRITONSERVER_Error *err = add_outputs(response, values, n_values, n_dims);
    if (!err) {
        report_response(s, outputs_ns, NULL);
        return TRITONBACKEND_ResponseSend(response, 0, NULL);
    }
    backend_ignore(TRITONBACKEND_ResponseDelete(response), "deleting a response");
    return err;
}

const char *series_wanted(TRITONBACKEND_Request *request, const char *name)
{
    uint32_t n_outputs = 0;

    backend_ignore(TRITONBACKEND_RequestOutputCount(request, &n_outputs), "counting outputs");
    for (uint32_t i = 0; i < n_outputs; i++) {
        const char *output = "";
        backend_ignore(TRITONBACKEND_RequestOutputName(request, i, &output), "naming an output");
        if (strcmp(output, name) == 0)
            return name;
    }
    return NULL;
}

void series_elements_trim(struct series_elements *e, size_t most_bytes)
{
    if (e->capacity_bytes <= most_bytes)
        return;
    free(e->values);
    *e = (struct series_elements){0};
}

static TRITONSERVER_Error *make_elements_room(struct series_elements *e, uint64_t size)
{
    if (e->values && size <= e->capacity_bytes)
        return NULL;
    series_elements_trim(e, 0);
    e->values = size / 4 <= UINT32_MAX ? malloc(size ? size : 4) : NULL;
    if (!e->values)
        return backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "out of memory");
    e->capacity_bytes = size ? size : 4;
    return NULL;
}

TRITONSERVER_Error *series_input(TRITONBACKEND_Request *request, const char *name,
                                 TRITONSERVER_DataType type, struct series_elements *e,
                                 uint32_t *ret_n_dims)
{
    TRITONSERVER_DataType is;
    TRITONBACKEND_Input *input;
    uint32_t n_buffers;
    uint64_t size;

    TRY(TRITONBACKEND_RequestInput(request, name, &input));
    TRY(TRITONBACKEND_InputProperties(input, NULL, &is, NULL, ret_n_dims, &size, &n_buffers));
    if (is != type)
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG, "input '%s' must be %s, it is %s",
                             name, TRITONSERVER_DataTypeString(type),
                             TRITONSERVER_DataTypeString(is));
    TRY(make_elements_room(e, size));
    e->n = (uint32_t)(size / 4);
    return backend_input_copy(input, n_buffers, e->values, size);
}

/* ---- Threads that answer -------------------------------------------------------------------- */

static void delete_factory(struct series *s)
{
    if (s->factory)
        backend_ignore(TRITONBACKEND_ResponseFactoryDelete(s->factory),
                       "deleting a response factory");
    s->factory = NULL;
}

static void trim_job(struct series *s, size_t most_bytes)
{
    if (series_backend.trim)
        series_backend.trim(s->job, most_bytes);
}

static void end_series(struct series *s, TRITONSERVER_Error *err)
{
    TRITONBACKEND_Response *response = NULL;

    report_response(s, 0, err);
    if (err)
        backend_ignore(TRITONBACKEND_ResponseNewFromFactory(&response, s->factory),
                       "making an error response");
    if (response)
        backend_ignore(
            TRITONBACKEND_ResponseSend(response, TRITONSERVER_RESPONSE_COMPLETE_FINAL, err),
            "sending an error response");
    else
        backend_ignore(TRITONBACKEND_ResponseFactorySendFlags(s->factory,
                                                              TRITONSERVER_RESPONSE_COMPLETE_FINAL),
                       "ending a request");
    TRITONSERVER_ErrorDelete(err);
    delete_factory(s);
}

static void *run_series(void *arg)
{
    struct series *s = arg;
    struct instance *in = s->in;

    s->start_ns = backend_now_ns();
    end_series(s, series_backend.send(s, s->job));
    trim_job(s, KEPT_BYTES);
    pthread_mutex_lock(&in->mu);
    s->next = in->ended;
    in->ended = s;
    if (--in->n_running == 0)
        pthread_cond_broadcast(&in->none);
    pthread_mutex_unlock(&in->mu);
    return NULL;
}

static void join_ended(struct instance *in)
{
    pthread_mutex_lock(&in->mu);
    struct series *s = in->ended, *next;
    in->ended = NULL;
    pthread_mutex_unlock(&in->mu);
    for (; s; s = next) {
        next = s->next;
        pthread_join(s->thread, NULL);
        s->next = in->unused;
        in->unused = s;
    }
}

/* Returns a struct for the next request; NULL: no memory. */
static struct series *take_series(struct instance *in)
{
    join_ended(in);
    struct series *s = in->unused;
    if (s) {
        in->unused = s->next;
        return s;
    }
    s = calloc(1, sizeof(*s) + series_backend.job_bytes);
    if (s)
        s->in = in;
    return s;
}

/* The request has no thread. */
static void put_series_back(struct series *s)
{
    delete_factory(s);
    trim_job(s, KEPT_BYTES);
    s->next = s->in->unused;
    s->in->unused = s;
}

static void free_unused(struct instance *in)
{
    struct series *s;
    while ((s = in->unused)) {
        in->unused = s->next;
        trim_job(s, 0);
        close_statistics(s);
        free(s);
    }
}

static TRITONSERVER_Error *start_series_thread(struct series *s, TRITONBACKEND_Request *request)
{
    struct instance *in = s->in;
    int number;

    TRY(TRITONBACKEND_ResponseFactoryNew(&s->factory, request));
    TRY(open_statistics(s));
    pthread_mutex_lock(&in->mu); /* until s->thread is set, which the joining thread reads */
    number = pthread_create(&s->thread, NULL, run_series, s);
    in->n_running += number == 0;
    pthread_mutex_unlock(&in->mu);
    if (number == 0)
        return NULL;
    return backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "cannot start a thread: %s",
                         strerror(number));
}

/* Waits until the time is over or the request is cancelled. A client chooses the time, and the
 * instance does nothing else meanwhile. */
static void hold_instance(TRITONBACKEND_Request *request, uint32_t ms)
{
    while (ms > 0) {
        uint32_t now_ms = ms < SLICE_MS ? ms : SLICE_MS;
        bool cancelled = false;

        backend_ignore(TRITONBACKEND_RequestIsCancelled(request, &cancelled),
                       "asking whether a request is cancelled");
        if (cancelled)
            return;
        backend_pause_ms(now_ms);
        ms -= now_ms;
    }
}

static TRITONSERVER_Error *begin_request(struct instance *in, TRITONBACKEND_Request *request)
{
    uint32_t hold_ms = 0;
    struct series *s = take_series(in);

    if (!s)
        return backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "out of memory");
    TRITONSERVER_Error *err = series_backend.read(request, s->job, &hold_ms);
    if (!err)
        err = start_series_thread(s, request);
    if (err)
        put_series_back(s);
    else
        hold_instance(request, hold_ms);
    return err;
}

/* ---- The backend's functions ---------------------------------------------------------------- */

TRITONSERVER_Error *TRITONBACKEND_Initialize(TRITONBACKEND_Backend *backend)
{
    (void)backend;
    return backend_check_version();
}

static TRITONSERVER_Error *check_model(TRITONBACKEND_Model *model, const struct doc *config)
{
    const struct doc_value *policy = doc_get(doc_root(config), "model_transaction_policy");
    const struct doc_value *decoupled = doc_get(policy, "decoupled");
    const char *name;

    TRY(TRITONBACKEND_ModelName(model, &name));
    if (decoupled && decoupled->type == DOC_BOOL && decoupled->boolean)
        return NULL;
    return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                         "model '%s': it answers a request any number of times, so its "
                         "configuration needs model_transaction_policy { decoupled: true }",
                         name);
}

TRITONSERVER_Error *TRITONBACKEND_ModelInitialize(TRITONBACKEND_Model *model)
{
    struct doc *config;

    TRY(backend_model_config(model, &config));
    TRITONSERVER_Error *err = check_model(model, config);
    doc_free(config);
    return err;
}

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceInitialize(TRITONBACKEND_ModelInstance *instance)
{
    struct instance *in = calloc(1, sizeof(*in));

    if (!in)
        return backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "out of memory");
    in->handle = instance;
    pthread_mutex_init(&in->mu, NULL);
    pthread_cond_init(&in->none, NULL);
    return TRITONBACKEND_ModelInstanceSetState(instance, in);
}

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceFinalize(TRITONBACKEND_ModelInstance *instance)
{
    struct instance *in;
    void *state;

    TRY(TRITONBACKEND_ModelInstanceState(instance, &state));
    in = state;
    if (!in)
        return NULL;
    pthread_mutex_lock(&in->mu);
    while (in->n_running > 0)
        pthread_cond_wait(&in->none, &in->mu);
    pthread_mutex_unlock(&in->mu);
    join_ended(in);
    free_unused(in);
    pthread_cond_destroy(&in->none);
    pthread_mutex_destroy(&in->mu);
    free(in);
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceExecute(TRITONBACKEND_ModelInstance *instance,
                                                       TRITONBACKEND_Request **requests,
                                                       const uint32_t request_count)
{
    void *in;

    TRY(TRITONBACKEND_ModelInstanceState(instance, &in));
    for (uint32_t i = 0; i < request_count; i++) {
        uint64_t start_ns = backend_now_ns();
        TRITONSERVER_Error *err = begin_request(in, requests[i]);
        uint64_t end_ns = backend_now_ns();

        backend_ignore(TRITONBACKEND_ModelInstanceReportStatistics(
                           instance, requests[i], !err, start_ns, start_ns, end_ns, end_ns),
                       "reporting statistics");
        backend_ignore(TRITONBACKEND_ModelInstanceReportBatchStatistics(instance, 1, start_ns,
                                                                        start_ns, end_ns, end_ns),
                       "reporting statistics");
        if (err)
            backend_send_error(requests[i], NULL, err);
        backend_ignore(TRITONBACKEND_RequestRelease(requests[i], TRITONSERVER_REQUEST_RELEASE_ALL),
                       "releasing a request");
    }
    return NULL;
}
