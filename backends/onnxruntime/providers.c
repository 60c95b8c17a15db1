/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Execution accelerators of the configuration become execution providers of ONNX Runtime, if the
 * library that was found has them. Their parameters are handed on under ONNX Runtime's own names;
 * some have another name in configurations, and CUDA has four that are parameters of the model.
 */
#include <stdlib.h>
#include <string.h>

#include "onnxruntime/permit.h"
#include "onnxruntime/session.h"

/* Names and values for a provider. */
struct options {
    const char **names;
    const char **values;
    size_t n;
};

struct provider {
    const char *side; /* the field of the configuration that may name it */
    const char *name; /* its name there */
    const char *offered_as;
    TRITONSERVER_Error *(*add)(const struct model *m, struct ort_options *options,
                               const struct options *given);
};

/* ---- The providers -------------------------------------------------------------------------- */

static TRITONSERVER_Error *add_openvino(const struct model *m, struct ort_options *options,
                                        const struct options *given)
{
    TRY_ORT(&m->rt->lib, SessionOptionsAppendExecutionProvider(options, "OpenVINO", given->names,
                                                               given->values, given->n));
    return NULL;
}

static TRITONSERVER_Error *add_cuda(const struct model *m, struct ort_options *options,
                                    const struct options *given)
{
    const struct library *lib = &m->rt->lib;
    struct ort_cuda *cuda = NULL;
    struct ort_status *status;

    TRY_ORT(lib, CreateCUDAProviderOptions(&cuda));
    status = lib->api.UpdateCUDAProviderOptions(cuda, given->names, given->values, given->n);
    if (!status)
        status = lib->api.SessionOptionsAppendExecutionProvider_CUDA_V2(options, cuda);
    lib->api.ReleaseCUDAProviderOptions(cuda);
    return library_error(lib, status);
}

static TRITONSERVER_Error *add_tensorrt(const struct model *m, struct ort_options *options,
                                        const struct options *given)
{
    const struct library *lib = &m->rt->lib;
    struct ort_tensorrt *tensorrt = NULL;
    struct ort_status *status;

    TRY_ORT(lib, CreateTensorRTProviderOptions(&tensorrt));
    status =
        lib->api.UpdateTensorRTProviderOptions(tensorrt, given->names, given->values, given->n);
    if (!status)
        status = lib->api.SessionOptionsAppendExecutionProvider_TensorRT_V2(options, tensorrt);
    lib->api.ReleaseTensorRTProviderOptions(tensorrt);
    return library_error(lib, status);
}

static const struct provider providers[] = {
    {"cpu_execution_accelerator", "openvino", "OpenVINOExecutionProvider", add_openvino},
    {"gpu_execution_accelerator", "cuda", "CUDAExecutionProvider", add_cuda},
    {"gpu_execution_accelerator", "tensorrt", "TensorrtExecutionProvider", add_tensorrt},
};

/* ---- The providers' options ------------------------------------------------------------------ */

/* Names that configurations have for options of TensorRT. */
static const struct {
    const char *ours, *theirs;
} tensorrt_names[] = {
    {"max_workspace_size_bytes", "trt_max_workspace_size"},
    {"int8_calibration_table_name", "trt_int8_calibration_table_name"},
    {"int8_use_native_calibration_table", "trt_int8_use_native_calibration_table"},
};

static void put_option(struct options *o, const char *name, const char *value)
{
    o->names[o->n] = name;
    o->values[o->n++] = value;
}

static TRITONSERVER_Error *put_tensorrt(struct options *o, const char *name, const char *value)
{
    if (strcmp(name, "precision_mode") == 0) {
        if (strcmp(value, "FP16") == 0)
            put_option(o, "trt_fp16_enable", "1");
        else if (strcmp(value, "INT8") == 0)
            put_option(o, "trt_int8_enable", "1");
        else if (strcmp(value, "FP32") != 0)
            return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                                 "parameter 'precision_mode' of execution accelerator 'tensorrt' "
                                 "must be FP32, FP16 or INT8, got '%s'",
                                 value);
        return NULL;
    }
    for (size_t i = 0; i < sizeof(tensorrt_names) / sizeof(tensorrt_names[0]); i++)
        if (strcmp(tensorrt_names[i].ours, name) == 0)
            name = tensorrt_names[i].theirs;
    put_option(o, name, value);
    return NULL;
}

/* Parameters of the model from when an accelerator 'cuda' had none of its own; they count unless
 * the accelerator sets the same option. Numbers stand for the names. */
static const struct {
    const char *name;
    const char *values[4];
} cuda_parameters[] = {
    {"cudnn_conv_algo_search", {"EXHAUSTIVE", "HEURISTIC", "DEFAULT"}},
    {"arena_extend_strategy", {"kNextPowerOfTwo", "kSameAsRequested"}},
    {"do_copy_in_default_stream", {"0", "1"}},
};
#define N_CUDA_PARAMETERS (sizeof(cuda_parameters) / sizeof(cuda_parameters[0]))

/* Checks them even without such an accelerator. */
static TRITONSERVER_Error *check_cuda_parameters(const struct model *m)
{
    const char *limit = backend_parameter(m->config, "gpu_mem_limit");
    int64_t number;

    for (size_t i = 0; i < N_CUDA_PARAMETERS; i++) {
        int64_t max = 0;

        while (cuda_parameters[i].values[max + 1])
            max++;
        TRY(backend_parameter_int(m->config, cuda_parameters[i].name, 0, max, 0, &number));
    }
    if (limit && (!*limit || limit[strspn(limit, "0123456789")] != '\0'))
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                             "parameter 'gpu_mem_limit' must be a number of bytes, got '%s'",
                             limit);
    return NULL;
}

static void put_cuda_parameters(struct options *o, const struct model *m,
                                const struct doc_value *given)
{
    const char *limit = backend_parameter(m->config, "gpu_mem_limit");

    for (size_t i = 0; i < N_CUDA_PARAMETERS; i++) {
        const char *name = cuda_parameters[i].name;
        int64_t number = -1;

        backend_ignore(backend_parameter_int(m->config, name, 0, 3, -1, &number), name);
        if (number >= 0 && !doc_get(given, name))
            put_option(o, name, cuda_parameters[i].values[number]);
    }
    if (limit && !doc_get(given, "gpu_mem_limit"))
        put_option(o, "gpu_mem_limit", limit);
}

static TRITONSERVER_Error *add_provider(const struct model *m, const struct provider *p,
                                        const struct doc_value *accelerator,
                                        struct ort_options *options)
{
    const struct doc_value *given = doc_get(accelerator, "parameters");
    bool is_tensorrt = strcmp(p->name, "tensorrt") == 0;
    size_t room = doc_count(given) + N_CUDA_PARAMETERS + 1;
    TRITONSERVER_Error *err = NULL;
    struct options o = {.names = calloc(room, sizeof(char *)),
                        .values = calloc(room, sizeof(char *))};

    if (!o.names || !o.values)
        err = backend_error(TRITONSERVER_ERROR_INTERNAL, "out of memory");
    for (const struct doc_value *v = doc_first(given); v && !err; v = v->next) {
        err = permit_check("accelerator parameter", v->key, doc_string(v, ""), m->rt->allows_files);
        if (err)
            break;
        if (is_tensorrt)
            err = put_tensorrt(&o, v->key, doc_string(v, ""));
        else
            put_option(&o, v->key, doc_string(v, ""));
    }
    if (!err && strcmp(p->name, "cuda") == 0)
        put_cuda_parameters(&o, m, given);
    if (!err)
        err = p->add(m, options, &o);
    free(o.names);
    free(o.values);
    return err;
}

/* ---- From the configuration ----------------------------------------------------------------- */

static TRITONSERVER_Error *add_one(const struct model *m, const char *side,
                                   const struct doc_value *accelerator, struct ort_options *options)
{
    const char *name = doc_string(doc_get(accelerator, "name"), "");
    const struct library *lib = &m->rt->lib;

    for (size_t i = 0; i < sizeof(providers) / sizeof(providers[0]); i++) {
        const struct provider *p = &providers[i];

        if (strcmp(p->side, side) != 0 || strcmp(p->name, name) != 0)
            continue;
        if (!library_offers(lib, p->offered_as))
            return backend_error(TRITONSERVER_ERROR_UNSUPPORTED,
                                 "execution accelerator '%s' needs %s, which ONNX Runtime %s in "
                                 "'%s' does not offer; it has %s",
                                 name, p->offered_as, lib->version, lib->path ? lib->path : "?",
                                 lib->providers);
        return add_provider(m, p, accelerator, options);
    }
    return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                         "unknown Execution Accelerator '%s' is requested", name);
}

static const char *const sides[] = {"gpu_execution_accelerator", "cpu_execution_accelerator"};

TRITONSERVER_Error *session_add_providers(const struct model *m, struct ort_options *options)
{
    TRY(check_cuda_parameters(m));
    for (size_t i = 0; i < sizeof(sides) / sizeof(sides[0]); i++)
        for (const struct doc_value *v = backend_first_accelerator(m->config, sides[i]); v;
             v = v->next)
            TRY(add_one(m, sides[i], v, options));
    return NULL;
}

bool session_has_accelerators(const struct model *m)
{
    return backend_first_accelerator(m->config, sides[0]) ||
           backend_first_accelerator(m->config, sides[1]);
}
