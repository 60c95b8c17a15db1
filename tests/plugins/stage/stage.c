/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stage - a backend for the steps of ensembles: it adds, tells what it was given, and goes wrong on
 * request.
 *
 * The model has any inputs and outputs, all INT32. Element i of output number k (from 0) is the sum
 * of the elements i of all inputs that the request has, plus `add`, plus 1000 * k. An input of
 * fewer elements repeats its last one. The outputs have the shape of the first input by name; a
 * request without inputs gets one element.
 *
 * Each request adds a line to the file `seen` in the model's folder before it is answered, one JSON
 * object: version, id, correlation (a number or a text), flags, timeout, parameters, outputs (the
 * requested ones), batch (the number of requests in this execution), inside (the requests that the
 * model executes at this moment, this one included), inputs ({name: [shape, elements]}).
 *
 * Parameters of the model:
 *     add         a number; 0
 *     fail        the response is an error when the first element of the first input is this number
 *     code        … whose code is this TRITONSERVER_Error_Code; 1 (INTERNAL)
 *     refuse      Execute returns an error when the first element … is this number
 *     leave_out   the name of an output that is never made
 *     longer      an output has so many elements more than it should, in its last dimension
 *     responses   the model is decoupled: this many responses, the i-th with i more in each element
 *     fail_at     … but the response with this index is an error
 *     sequence_id, sequence_start, sequence_end
 *                 parameters of the response of the same names: number or text; "true" or "false"
 *
 * Statistics: 1, 2 and 3 µs for the input, the inference and the output of each execution.
 *
 * Gates are files in the model's folder, as of the backend gate: hold.load and fail.load of a load,
 * hold.execute of an execution, hold.response of each response but the first. Who waits has added a
 * byte to the file of the gate's name with the suffix .reached.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/backend.h"

enum { MAX_INPUTS = 16, MAX_OUTPUTS = 16, MAX_ELEMENTS = 4096, MAX_DIMS = 8, NONE = INT32_MIN };

struct model {
    struct doc *config;
    const char *outputs[MAX_OUTPUTS];
    size_t n_outputs;
    int64_t add, fail, code, refuse, longer, responses, fail_at;
    const char *leave_out, *sequence_id, *sequence_start, *sequence_end;
    atomic_int n_inside;
};

/* An input as the request has it. */
struct tensor {
    const char *name;
    int64_t shape[MAX_DIMS];
    uint32_t n_dims;
    size_t n;
    int32_t elements[MAX_ELEMENTS];
};

static void must(TRITONSERVER_Error *err)
{
    if (!err)
        return;
    fprintf(stderr, "stage: %s\n", TRITONSERVER_ErrorMessage(err));
    abort();
}

/* ---- Gates ----------------------------------------------------------------------------------- */

static const char *path_of(TRITONBACKEND_Model *model, const char *name, char path[4096])
{
    TRITONBACKEND_ArtifactType type;
    const char *folder;
    must(TRITONBACKEND_ModelRepository(model, &type, &folder));
    snprintf(path, 4096, "%s/%s", folder, name);
    return path;
}

static void wait_at(TRITONBACKEND_Model *model, const char *gate)
{
    char path[4096], reached[4096 + 8];
    path_of(model, gate, path);
    if (access(path, F_OK) != 0)
        return;
    snprintf(reached, sizeof(reached), "%s.reached", path);
    int fd = open(reached, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (fd < 0 || write(fd, "x", 1) != 1)
        abort();
    close(fd);
    while (access(path, F_OK) == 0)
        backend_pause_ms(1);
}

/* ---- Model ----------------------------------------------------------------------------------- */

static TRITONSERVER_Error *read_parameters(struct model *m)
{
    static const int64_t least = INT32_MIN, most = INT32_MAX;
    TRY(backend_parameter_int(m->config, "add", least, most, 0, &m->add));
    TRY(backend_parameter_int(m->config, "fail", least, most, NONE, &m->fail));
    TRY(backend_parameter_int(m->config, "code", 0, 6, TRITONSERVER_ERROR_INTERNAL, &m->code));
    TRY(backend_parameter_int(m->config, "refuse", least, most, NONE, &m->refuse));
    TRY(backend_parameter_int(m->config, "longer", 0, 1000, 0, &m->longer));
    TRY(backend_parameter_int(m->config, "responses", 0, 1 << 20, NONE, &m->responses));
    TRY(backend_parameter_int(m->config, "fail_at", 0, most, NONE, &m->fail_at));
    m->leave_out = backend_parameter(m->config, "leave_out");
    m->sequence_id = backend_parameter(m->config, "sequence_id");
    m->sequence_start = backend_parameter(m->config, "sequence_start");
    m->sequence_end = backend_parameter(m->config, "sequence_end");
    return NULL;
}

static void read_outputs(struct model *m)
{
    const struct doc_value *out = doc_first(doc_get(doc_root(m->config), "output"));
    for (; out && m->n_outputs < MAX_OUTPUTS; out = out->next)
        m->outputs[m->n_outputs++] = doc_string(doc_get(out, "name"), "");
}

TRITONSERVER_Error *TRITONBACKEND_ModelInitialize(TRITONBACKEND_Model *model)
{
    struct model *m = calloc(1, sizeof(*m));
    char path[4096];
    if (!m)
        abort();
    must(TRITONBACKEND_ModelSetState(model, m));
    TRY(backend_model_config(model, &m->config));
    read_outputs(m);
    wait_at(model, "hold.load");
    if (access(path_of(model, "fail.load", path), F_OK) == 0)
        return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INTERNAL, "stage: the test wants no model");
    return read_parameters(m);
}

TRITONSERVER_Error *TRITONBACKEND_ModelFinalize(TRITONBACKEND_Model *model)
{
    void *state;
    must(TRITONBACKEND_ModelState(model, &state));
    struct model *m = state;
    doc_free(m->config);
    free(m);
    return NULL;
}

/* ---- What a request has ---------------------------------------------------------------------- */

static void read_input(TRITONBACKEND_Request *request, uint32_t index, struct tensor *t)
{
    TRITONSERVER_DataType type;
    TRITONBACKEND_Input *input;
    const int64_t *shape;
    uint32_t n_buffers;
    uint64_t size;
    must(TRITONBACKEND_RequestInputByIndex(request, index, &input));
    must(TRITONBACKEND_InputProperties(input, &t->name, &type, &shape, &t->n_dims, &size,
                                       &n_buffers));
    if (type != TRITONSERVER_TYPE_INT32 || size > sizeof(t->elements) || t->n_dims > MAX_DIMS)
        abort();
    memcpy(t->shape, shape, t->n_dims * sizeof(*shape));
    t->n = size / sizeof(t->elements[0]);
    must(backend_input_copy(input, n_buffers, t->elements, size));
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct tensor *)a)->name, ((const struct tensor *)b)->name);
}

static struct tensor *read_inputs(TRITONBACKEND_Request *request, uint32_t *ret_n)
{
    struct tensor *inputs = calloc(MAX_INPUTS, sizeof(*inputs));
    must(TRITONBACKEND_RequestInputCount(request, ret_n));
    if (!inputs || *ret_n > MAX_INPUTS)
        abort();
    for (uint32_t i = 0; i < *ret_n; i++)
        read_input(request, i, &inputs[i]);
    qsort(inputs, *ret_n, sizeof(*inputs), by_name);
    return inputs;
}

static void tell_parameters(FILE *to, TRITONBACKEND_Request *request)
{
    uint32_t n;
    must(TRITONBACKEND_RequestParameterCount(request, &n));
    fprintf(to, "\"parameters\":{");
    for (uint32_t i = 0; i < n; i++) {
        TRITONSERVER_ParameterType type;
        const void *value;
        const char *key;
        must(TRITONBACKEND_RequestParameter(request, i, &key, &type, &value));
        fprintf(to, "%s", i ? "," : "");
        doc_write_string(to, key);
        fputc(':', to);
        if (type == TRITONSERVER_PARAMETER_STRING)
            doc_write_string(to, value);
        else if (type == TRITONSERVER_PARAMETER_INT)
            fprintf(to, "%" PRId64, *(const int64_t *)value);
        else if (type == TRITONSERVER_PARAMETER_BOOL)
            fprintf(to, "%s", *(const bool *)value ? "true" : "false");
        else
            fprintf(to, "%g", *(const double *)value);
    }
    fprintf(to, "},");
}

static void tell_correlation(FILE *to, TRITONBACKEND_Request *request)
{
    const char *text;
    uint64_t number;
    TRITONSERVER_Error *err = TRITONBACKEND_RequestCorrelationId(request, &number);
    fprintf(to, "\"correlation\":");
    if (!err) {
        fprintf(to, "%" PRIu64, number);
    } else {
        TRITONSERVER_ErrorDelete(err);
        must(TRITONBACKEND_RequestCorrelationIdString(request, &text));
        doc_write_string(to, text);
    }
    fputc(',', to);
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static void tell_outputs(FILE *to, TRITONBACKEND_Request *request)
{
    const char *names[MAX_OUTPUTS];
    uint32_t n;
    must(TRITONBACKEND_RequestOutputCount(request, &n));
    if (n > MAX_OUTPUTS)
        abort();
    for (uint32_t i = 0; i < n; i++)
        must(TRITONBACKEND_RequestOutputName(request, i, &names[i]));
    qsort(names, n, sizeof(*names), by_text);
    fprintf(to, "\"outputs\":[");
    for (uint32_t i = 0; i < n; i++) {
        fprintf(to, "%s", i ? "," : "");
        doc_write_string(to, names[i]);
    }
    fprintf(to, "],");
}

static void tell_inputs(FILE *to, const struct tensor *inputs, uint32_t n)
{
    fprintf(to, "\"inputs\":{");
    for (uint32_t i = 0; i < n; i++) {
        const struct tensor *t = &inputs[i];
        fprintf(to, "%s", i ? "," : "");
        doc_write_string(to, t->name);
        fprintf(to, ":[[");
        for (uint32_t d = 0; d < t->n_dims; d++)
            fprintf(to, "%s%" PRId64, d ? "," : "", t->shape[d]);
        fprintf(to, "],[");
        for (size_t e = 0; e < t->n; e++)
            fprintf(to, "%s%" PRId32, e ? "," : "", t->elements[e]);
        fprintf(to, "]]");
    }
    fprintf(to, "}");
}

/* Adds the line to `seen` by one write, since instances run at the same time. */
static void tell(struct model *m, TRITONBACKEND_Model *model, TRITONBACKEND_Request *request,
                 uint32_t batch, const struct tensor *inputs, uint32_t n_inputs)
{
    uint64_t timeout_us, version;
    char path[4096], *text = NULL;
    const char *id;
    uint32_t flags;
    size_t size = 0;
    FILE *to = open_memstream(&text, &size);
    if (!to)
        abort();
    must(TRITONBACKEND_ModelVersion(model, &version));
    must(TRITONBACKEND_RequestId(request, &id));
    must(TRITONBACKEND_RequestFlags(request, &flags));
    must(TRITONBACKEND_InferenceRequestTimeoutMicroseconds(request, &timeout_us));
    fprintf(to, "{\"version\":%" PRIu64 ",\"id\":", version);
    doc_write_string(to, id);
    fprintf(to, ",\"flags\":%u,\"timeout\":%" PRIu64 ",\"batch\":%u,", flags, timeout_us, batch);
    fprintf(to, "\"inside\":%d,", atomic_load(&m->n_inside));
    tell_correlation(to, request);
    tell_parameters(to, request);
    tell_outputs(to, request);
    tell_inputs(to, inputs, n_inputs);
    fprintf(to, "}\n");
    fclose(to);
    int fd = open(path_of(model, "seen", path), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (fd < 0 || write(fd, text, size) != (ssize_t)size)
        abort();
    close(fd);
    free(text);
}

/* ---- Answers --------------------------------------------------------------------------------- */

static int32_t element_of(const struct tensor *t, size_t i)
{
    return t->n == 0 ? 0 : t->elements[i < t->n ? i : t->n - 1];
}

static bool is_requested(TRITONBACKEND_Request *request, const char *output)
{
    const char *name;
    uint32_t n;
    must(TRITONBACKEND_RequestOutputCount(request, &n));
    for (uint32_t i = 0; i < n; i++) {
        must(TRITONBACKEND_RequestOutputName(request, i, &name));
        if (strcmp(name, output) == 0)
            return true;
    }
    return false;
}

static void put_output(const struct model *m, TRITONBACKEND_Response *response, size_t k,
                       int32_t more, const struct tensor *inputs, uint32_t n_inputs)
{
    int64_t shape[MAX_DIMS] = {1};
    uint32_t n_dims = 1;
    TRITONBACKEND_Output *output;
    size_t n = 1;
    void *to;

    if (n_inputs > 0) {
        n_dims = inputs[0].n_dims;
        memcpy(shape, inputs[0].shape, n_dims * sizeof(*shape));
        shape[n_dims - 1] += m->longer;
        for (uint32_t d = 0; d < n_dims; d++)
            n *= (size_t)shape[d];
    }
    must(TRITONBACKEND_ResponseOutput(response, &output, m->outputs[k], TRITONSERVER_TYPE_INT32,
                                      shape, n_dims));
    must(backend_output_alloc(output, n * sizeof(int32_t), &to));
    for (size_t i = 0; i < n; i++) {
        int32_t sum = (int32_t)(m->add + more + 1000 * (int64_t)k);
        for (uint32_t j = 0; j < n_inputs; j++)
            sum += element_of(&inputs[j], i);
        memcpy((char *)to + i * sizeof(sum), &sum, sizeof(sum));
    }
}

static void set_bool(TRITONBACKEND_Response *response, const char *name, const char *text)
{
    if (text)
        must(TRITONBACKEND_ResponseSetBoolParameter(response, name, strcmp(text, "true") == 0));
}

static void put_parameters(const struct model *m, TRITONBACKEND_Response *response)
{
    char *end;
    if (m->sequence_id) {
        long long number = strtoll(m->sequence_id, &end, 10);
        if (*end)
            must(TRITONBACKEND_ResponseSetStringParameter(response, "sequence_id", m->sequence_id));
        else
            must(TRITONBACKEND_ResponseSetIntParameter(response, "sequence_id", number));
    }
    set_bool(response, "sequence_start", m->sequence_start);
    set_bool(response, "sequence_end", m->sequence_end);
}

static TRITONSERVER_Error *failure(const struct model *m, int64_t what)
{
    return backend_error((TRITONSERVER_Error_Code)m->code, "stage: %" PRId64 " is not wanted",
                         what);
}

/* Sends a response of a request, or of its factory. */
static void send(const struct model *m, TRITONBACKEND_Request *request,
                 TRITONBACKEND_Response *response, int32_t more, uint32_t flags,
                 const struct tensor *inputs, uint32_t n_inputs)
{
    TRITONSERVER_Error *err = NULL;
    if (m->fail != NONE && n_inputs > 0 && element_of(&inputs[0], 0) == m->fail)
        err = failure(m, m->fail);
    if (m->fail_at != NONE && more == m->fail_at)
        err = failure(m, m->fail_at);
    for (size_t k = 0; k < m->n_outputs && !err; k++) {
        if (is_requested(request, m->outputs[k]) &&
            (!m->leave_out || strcmp(m->leave_out, m->outputs[k]) != 0))
            put_output(m, response, k, more, inputs, n_inputs);
    }
    if (!err)
        put_parameters(m, response);
    must(TRITONBACKEND_ResponseSend(response, flags, err));
    TRITONSERVER_ErrorDelete(err);
}

static void send_once(const struct model *m, TRITONBACKEND_Request *request,
                      const struct tensor *inputs, uint32_t n_inputs)
{
    TRITONBACKEND_Response *response;
    must(TRITONBACKEND_ResponseNew(&response, request));
    send(m, request, response, 0, TRITONSERVER_RESPONSE_COMPLETE_FINAL, inputs, n_inputs);
}

static void send_many(const struct model *m, TRITONBACKEND_Model *model,
                      TRITONBACKEND_Request *request, const struct tensor *inputs,
                      uint32_t n_inputs)
{
    TRITONBACKEND_ResponseFactory *factory;
    TRITONBACKEND_Response *response;
    must(TRITONBACKEND_ResponseFactoryNew(&factory, request));
    for (int32_t i = 0; i < m->responses; i++) {
        if (i > 0)
            wait_at(model, "hold.response");
        must(TRITONBACKEND_ResponseNewFromFactory(&response, factory));
        send(m, request, response, i, 0, inputs, n_inputs);
    }
    must(TRITONBACKEND_ResponseFactorySendFlags(factory, TRITONSERVER_RESPONSE_COMPLETE_FINAL));
    must(TRITONBACKEND_ResponseFactoryDelete(factory));
}

/* Execute returns an error if this is so, and has done nothing. */
static bool has_refused(const struct model *m, TRITONBACKEND_Request **requests, uint32_t n)
{
    bool refused = false;
    for (uint32_t i = 0; i < n && m->refuse != NONE; i++) {
        uint32_t n_inputs;
        struct tensor *inputs = read_inputs(requests[i], &n_inputs);
        refused |= n_inputs > 0 && element_of(&inputs[0], 0) == m->refuse;
        free(inputs);
    }
    return refused;
}

static void answer(struct model *m, TRITONBACKEND_ModelInstance *instance,
                   TRITONBACKEND_Model *model, TRITONBACKEND_Request *request, uint32_t n)
{
    uint64_t from_ns = backend_now_ns();
    uint32_t n_inputs;
    struct tensor *inputs = read_inputs(request, &n_inputs);
    bool fails = m->fail != NONE && n_inputs > 0 && element_of(&inputs[0], 0) == m->fail;
    tell(m, model, request, n, inputs, n_inputs);
    atomic_fetch_sub(&m->n_inside, 1); /* its answer may begin another */
    /* Reports before it answers: a client with an answer finds it in the statistics. */
    must(TRITONBACKEND_ModelInstanceReportStatistics(
        instance, request, !fails, from_ns, from_ns + 1000, from_ns + 3000, from_ns + 6000));
    if (m->responses == NONE)
        send_once(m, request, inputs, n_inputs);
    else
        send_many(m, model, request, inputs, n_inputs);
    must(TRITONBACKEND_RequestRelease(request, TRITONSERVER_REQUEST_RELEASE_ALL));
    free(inputs);
}

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceExecute(TRITONBACKEND_ModelInstance *instance,
                                                       TRITONBACKEND_Request **requests,
                                                       const uint32_t request_count)
{
    uint64_t from_ns = backend_now_ns();
    TRITONBACKEND_Model *model;
    void *state;
    must(TRITONBACKEND_ModelInstanceModel(instance, &model));
    must(TRITONBACKEND_ModelState(model, &state));
    struct model *m = state;
    atomic_fetch_add(&m->n_inside, (int)request_count);
    wait_at(model, "hold.execute");
    if (has_refused(m, requests, request_count)) {
        atomic_fetch_sub(&m->n_inside, (int)request_count);
        return failure(m, m->refuse);
    }
    must(TRITONBACKEND_ModelInstanceReportBatchStatistics(
        instance, request_count, from_ns, from_ns + 1000, from_ns + 3000, from_ns + 6000));
    for (uint32_t i = 0; i < request_count; i++)
        answer(m, instance, model, requests[i], request_count);
    return NULL;
}
