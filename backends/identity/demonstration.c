/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The texts are those of Triton's identity backend, since its tests look for them. The backend has
 * one family of metrics and each model one metric in it; the instances of a model increment that
 * from their threads.
 */
#include "identity/demonstration.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#include "common/doc.h"

enum { MAX_SHAPE_TEXT = 512 };

struct demonstration {
    TRITONSERVER_MetricFamily *family;
};

/* ---- Backend -------------------------------------------------------------------------------- */

static TRITONSERVER_Error *read_demonstrate_setting(TRITONBACKEND_Backend *backend,
                                                    bool *ret_wanted)
{
    struct doc *settings;
    const char *text;

    TRY(backend_settings(backend, &settings));
    text = backend_setting(settings, "demonstrate");
    *ret_wanted = text && (strcasecmp(text, "true") == 0 || strcmp(text, "1") == 0);
    doc_free(settings);
    return NULL;
}

TRITONSERVER_Error *demonstration_open(TRITONBACKEND_Backend *backend, struct demonstration **ret)
{
    struct demonstration *d;
    TRITONSERVER_Error *err;
    uint32_t major, minor;
    bool wanted;

    *ret = NULL;
    TRY(read_demonstrate_setting(backend, &wanted));
    if (!wanted)
        return NULL;
    TRY(TRITONBACKEND_ApiVersion(&major, &minor));
    BACKEND_LOG(INFO, "TRITONBACKEND_Initialize: identity");
    BACKEND_LOG(INFO, "Triton TRITONBACKEND API version: %" PRIu32 ".%" PRIu32, major, minor);
    BACKEND_LOG(INFO, "'identity' TRITONBACKEND API version: %d.%d",
                TRITONBACKEND_API_VERSION_MAJOR, TRITONBACKEND_API_VERSION_MINOR);
    d = calloc(1, sizeof(*d));
    if (!d)
        return backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "out of memory");
    err = TRITONSERVER_MetricFamilyNew(
        &d->family, TRITONSERVER_METRIC_KIND_COUNTER, "input_byte_size_counter",
        "Cumulative input byte size of all requests received by the model");
    if (err) {
        free(d);
        return err;
    }
    *ret = d;
    return NULL;
}

void demonstration_close(struct demonstration *d)
{
    if (!d)
        return;
    BACKEND_LOG(INFO, "TRITONBACKEND_Finalize: state is 'backend state'");
    backend_ignore(TRITONSERVER_MetricFamilyDelete(d->family), "deleting a family of metrics");
    free(d);
}

/* ---- Models, instances ---------------------------------------------------------------------- */

static TRITONSERVER_Error *make_metric(struct demonstration *d, const char *name, uint64_t version,
                                       TRITONSERVER_Metric **ret_metric)
{
    TRITONSERVER_Parameter *labels[2];
    TRITONSERVER_Error *err;
    char text[24];

    snprintf(text, sizeof(text), "%" PRIu64, version);
    labels[0] = TRITONSERVER_ParameterNew("model", TRITONSERVER_PARAMETER_STRING, name);
    labels[1] = TRITONSERVER_ParameterNew("version", TRITONSERVER_PARAMETER_STRING, text);
    err = TRITONSERVER_MetricNew(ret_metric, d->family,
                                 (const TRITONSERVER_Parameter **)(void *)labels, 2);
    TRITONSERVER_ParameterDelete(labels[0]);
    TRITONSERVER_ParameterDelete(labels[1]);
    return err;
}

TRITONSERVER_Error *demonstration_model_open(struct demonstration *d, const struct frame_model *m,
                                             TRITONSERVER_Metric **ret_metric)
{
    TRITONBACKEND_ArtifactType type;
    const char *folder;
    uint64_t version;

    if (!d)
        return NULL;
    TRY(TRITONBACKEND_ModelVersion(m->handle, &version));
    TRY(TRITONBACKEND_ModelRepository(m->handle, &type, &folder));
    BACKEND_LOG(INFO, "TRITONBACKEND_ModelInitialize: %s (version %" PRIu64 ")", m->name, version);
    BACKEND_LOG(INFO, "Repository location: %s", folder);
    BACKEND_LOG(INFO, "backend state is 'backend state'");
    return make_metric(d, m->name, version, ret_metric);
}

void demonstration_model_close(TRITONSERVER_Metric *metric)
{
    if (!metric)
        return;
    BACKEND_LOG(INFO, "TRITONBACKEND_ModelFinalize: delete model state");
    backend_ignore(TRITONSERVER_MetricDelete(metric), "deleting a metric");
}

TRITONSERVER_Error *demonstration_instance_open(const TRITONSERVER_Metric *metric,
                                                const struct frame_instance *in)
{
    TRITONSERVER_InstanceGroupKind kind;
    int32_t device;

    if (!metric)
        return NULL;
    TRY(TRITONBACKEND_ModelInstanceKind(in->handle, &kind));
    TRY(TRITONBACKEND_ModelInstanceDeviceId(in->handle, &device));
    BACKEND_LOG(INFO, "TRITONBACKEND_ModelInstanceInitialize: %s (%s device %" PRId32 ")", in->name,
                TRITONSERVER_InstanceGroupKindString(kind), device);
    return NULL;
}

void demonstration_instance_close(const TRITONSERVER_Metric *metric)
{
    if (metric)
        BACKEND_LOG(INFO, "TRITONBACKEND_ModelInstanceFinalize: delete instance state");
}

/* ---- Requests ------------------------------------------------------------------------------- */

static void print_dims(const int64_t *shape, uint32_t n_dims, char text[MAX_SHAPE_TEXT])
{
    size_t used = 0;

    text[0] = '\0';
    for (uint32_t i = 0; i < n_dims && used < MAX_SHAPE_TEXT - 24; i++)
        used += (size_t)snprintf(text + used, MAX_SHAPE_TEXT - used, "%s%" PRId64, i ? "," : "",
                                 shape[i]);
}

static TRITONSERVER_Error *log_input(TRITONBACKEND_Request *request, uint32_t i,
                                     uint64_t *ret_bytes)
{
    char text[MAX_SHAPE_TEXT];
    TRITONSERVER_DataType type;
    TRITONBACKEND_Input *input;
    uint32_t n_dims, n_buffers;
    const int64_t *shape;
    const char *name;

    TRY(TRITONBACKEND_RequestInputByIndex(request, i, &input));
    TRY(TRITONBACKEND_InputProperties(input, &name, &type, &shape, &n_dims, ret_bytes, &n_buffers));
    if (!TRITONSERVER_LogIsEnabled(TRITONSERVER_LOG_VERBOSE))
        return NULL;
    print_dims(shape, n_dims, text);
    BACKEND_LOG(VERBOSE,
                "\tinput %s: datatype = %s, shape = [%s], byte_size = %" PRIu64
                ", buffer_count = %" PRIu32,
                name, TRITONSERVER_DataTypeString(type), text, *ret_bytes, n_buffers);
    return NULL;
}

static TRITONSERVER_Error *log_request(TRITONBACKEND_Request *request, uint32_t number,
                                       uint32_t n_inputs)
{
    uint64_t correlation_id = 0;
    uint32_t n_outputs;
    const char *id;

    if (!TRITONSERVER_LogIsEnabled(TRITONSERVER_LOG_VERBOSE))
        return NULL;
    TRY(TRITONBACKEND_RequestId(request, &id));
    TRY(TRITONBACKEND_RequestOutputCount(request, &n_outputs));
    backend_ignore(TRITONBACKEND_RequestCorrelationId(request, &correlation_id), "a text as id");
    BACKEND_LOG(VERBOSE,
                "request %" PRIu32 ": id = \"%s\", correlation_id = %" PRIu64
                ", input_count = %" PRIu32 ", requested_output_count = %" PRIu32,
                number, id, correlation_id, n_inputs, n_outputs);
    return NULL;
}

static TRITONSERVER_Error *set_parameters(TRITONBACKEND_Response *response)
{
    TRY(TRITONBACKEND_ResponseSetStringParameter(response, "param0",
                                                 "an example string parameter"));
    TRY(TRITONBACKEND_ResponseSetIntParameter(response, "param1", 42));
    TRY(TRITONBACKEND_ResponseSetBoolParameter(response, "param2", false));
    return TRITONBACKEND_ResponseSetDoubleParameter(response, "param3", 123.123);
}

TRITONSERVER_Error *demonstration_answer(TRITONSERVER_Metric *metric, const struct batch_part *part,
                                         uint32_t number)
{
    uint64_t bytes, all_bytes = 0;
    uint32_t n_inputs;

    if (!metric)
        return NULL;
    TRY(TRITONBACKEND_RequestInputCount(part->request, &n_inputs));
    TRY(log_request(part->request, number, n_inputs));
    for (uint32_t i = 0; i < n_inputs; i++) {
        TRY(log_input(part->request, i, &bytes));
        all_bytes += bytes;
    }
    TRY(TRITONSERVER_MetricIncrement(metric, (double)all_bytes));
    return set_parameters(part->response);
}
