/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parameters, and the texts of errors where a number is wrong, are those of Triton's TensorFlow
 * backend. No state.
 */
#include "tensorflow/model.h"

#include <string.h>

#define MAX_THREADS 4096

static const char *text_parameter(const struct doc *config, const char *key)
{
    const char *value = backend_parameter(config, key);

    return value && *value ? value : NULL;
}

/* A number that is too small gets Triton's text. */
static TRITONSERVER_Error *read_thread_count(const struct doc *config, const char *model,
                                             const char *key, int64_t min, int64_t otherwise,
                                             int64_t *ret_number)
{
    TRY(backend_parameter_int(config, key, INT32_MIN, INT32_MAX, otherwise, ret_number));
    if (*ret_number >= min && *ret_number <= MAX_THREADS)
        return NULL;
    if (*ret_number > MAX_THREADS)
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                             "parameter '%s' of model '%s' is %lld; at most %d are possible", key,
                             model, (long long)*ret_number, MAX_THREADS);
    return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                         "parameter '%s' must be %s number for TensorFlow model '%s'", key,
                         min > 0 ? "positive" : "non-negative", model);
}

/* TensorFlow has none for CPUs. Those for GPUs are left out on CPUs, as in Triton. */
static TRITONSERVER_Error *refuse_cpu_accelerators(const struct doc *config, const char *model)
{
    const struct doc_value *cpu = backend_first_accelerator(config, "cpu_execution_accelerator");

    return cpu ? backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                               "unable to load model '%s', CPU Execution Accelerator is not "
                               "supported in TensorFlow backend (optimization."
                               "execution_accelerators has '%s')",
                               model, doc_string(doc_get(cpu, "name"), ""))
               : NULL;
}

void tf_warn_of_accelerators(const struct doc *config, const char *model)
{
    const struct doc_value *gpu = backend_first_accelerator(config, "gpu_execution_accelerator");

    for (; gpu; gpu = gpu->next)
        BACKEND_LOG(WARN,
                    "model '%s': GPU Execution Accelerator '%s' will be ignored for model instance "
                    "on CPU",
                    model, doc_string(doc_get(gpu, "name"), ""));
}

TRITONSERVER_Error *tf_read_parameters(const struct doc *config, const char *model,
                                       struct tf_asked *ret_asked)
{
    const struct doc_value *graph = doc_get(doc_get(doc_root(config), "optimization"), "graph");
    struct tf_asked a = {.tag = text_parameter(config, "TF_GRAPH_TAG"),
                         .signature = text_parameter(config, "TF_SIGNATURE_DEF"),
                         .init_ops_file = text_parameter(config, "TF_INIT_OPS_FILE")};

    TRY(refuse_cpu_accelerators(config, model));
    TRY(read_thread_count(config, model, "TF_NUM_INTRA_THREADS", 0, 0, &a.intra_threads));
    TRY(read_thread_count(config, model, "TF_NUM_INTER_THREADS", INT32_MIN, 0, &a.inter_threads));
    a.inter_threads = a.inter_threads < 0 ? -1 : a.inter_threads;
    TRY(backend_parameter_bool(config, "TF_USE_PER_SESSION_THREADS", false, &a.own_threads));
    if (backend_parameter(config, "MAX_SESSION_SHARE_COUNT"))
        TRY(read_thread_count(config, model, "MAX_SESSION_SHARE_COUNT", 1, 1, &a.sharers));
    doc_int(doc_get(graph, "level"), &a.graph_level);
    *ret_asked = a;
    return NULL;
}
