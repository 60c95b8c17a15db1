/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tables repeat what the backends read from their configurations: a parameter that a backend
 * learns needs a line here. Constant data; any thread.
 */
#include "lint/backends.h"

#include <string.h>

#include "base/compiler.h"
#include "base/str.h"
#include "core/sched/batch_strategy.h"
#include "core/sched/watch.h"

const struct parameter_traits server_parameters[] = {
    {.name = "CONCH_EXECUTION"},
    {.name = BATCH_STRATEGY_PARAMETER},
    {.name = WATCH_LIMIT_PARAMETER, .is_number = true, .min = 1, .max = 24 * 3600 * 1000},
    {0},
};

static const struct parameter_traits identity[] = {
    {.name = "execute_delay_ms", .is_number = true, .max = 3600 * 1000},
    {.name = "instance_wise_delay_multiplier", .is_number = true, .max = 1000},
    {.name = "creation_delay_sec", .is_number = true, .max = 3600},
    {0},
};

/* Parameters for GPUs are accepted and have no effect on a CPU. */
static const struct parameter_traits onnxruntime[] = {
    {.name = "intra_op_thread_count", .is_number = true, .max = 4096},
    {.name = "inter_op_thread_count", .is_number = true, .max = 4096},
    {.name = "execution_mode", .is_number = true, .max = 1},
    {.name = "enable_mem_arena", .is_number = true, .max = 1},
    {.name = "enable_mem_pattern", .is_number = true, .max = 1},
    {.name = "map_external_data", .is_number = true, .max = 1},
    {.name = "memory.enable_memory_arena_shrinkage"},
    {.name = "enable_global_threadpool", .is_number = true, .max = 1},
    {.name = "session."},
    {.name = "optimization."},
    {.name = "ep."},
    {.name = "mlas."},
    {.name = "run."},
    {.name = "cudnn_conv_algo_search", .is_number = true, .max = 2},
    {.name = "gpu_mem_limit"},
    {.name = "arena_extend_strategy", .is_number = true, .max = 1},
    {.name = "do_copy_in_default_stream", .is_number = true, .max = 1},
    {0},
};
static const char *const onnxruntime_cpu[] = {"openvino", NULL};
static const char *const onnxruntime_gpu[] = {"cuda", "tensorrt", NULL};

static const char *const forest_types[] = {"xgboost_ubj", "xgboost_json",        "xgboost",
                                           "lightgbm",    "treelite_checkpoint", NULL};
static const char *const flag[] = {"true", "false", NULL};

/* The last eight are for GPUs, or were; they have no effect on a CPU. */
static const struct parameter_traits fil[] = {
    {.name = "model_type", .choices = forest_types},
    {.name = "is_classifier", .choices = flag},
    {.name = "output_class", .choices = flag},
    {.name = "predict_proba", .choices = flag},
    {.name = "xgboost_allow_unknown_field", .choices = flag},
    {.name = "threshold"},
    {.name = "cpu_nthread", .is_number = true, .min = -1, .max = 4096},
    {.name = "storage_type"},
    {.name = "blocks_per_sm"},
    {.name = "algo"},
    {.name = "threads_per_tree"},
    {.name = "layout"},
    {.name = "chunk_size"},
    {.name = "transfer_threshold"},
    {.name = "use_experimental_optimizations"},
    {0},
};

/* Their words may be written in any case. */
static const struct parameter_traits openvino[] = {
    {.name = "CPU_EXTENSION_PATH"},
    {.name = "INFERENCE_NUM_THREADS", .is_number = true, .max = 999999999},
    {.name = "COMPILATION_NUM_THREADS", .is_number = true, .max = 999999999},
    {.name = "HINT_BF16"},
    {.name = "INFERENCE_PRECISION_HINT"},
    {.name = "NUM_STREAMS"},
    {.name = "PERFORMANCE_HINT"},
    {.name = "SKIP_OV_DYNAMIC_BATCHSIZE"},
    {.name = "ENABLE_BATCH_PADDING"},
    {.name = "RESHAPE_IO_LAYERS"},
    {.name = "RESHAPE_IO_LAYOUTS"},
    {.name = "TARGET_DEVICE"},
    {0},
};

/* As backend_parameter_bool() reads it. */
static const char *const yes_or_no[] = {"true", "false", "1",  "0",   "on", "off", "True", "False",
                                        "TRUE", "FALSE", "On", "Off", "ON", "OFF", NULL};

static const struct parameter_traits pytorch[] = {
    {.name = "DISABLE_OPTIMIZED_EXECUTION", .choices = yes_or_no},
    {.name = "INFERENCE_MODE", .choices = yes_or_no},
    {.name = "ENABLE_WEIGHT_SHARING", .choices = yes_or_no},
    {.name = "ENABLE_CACHE_CLEANING", .choices = yes_or_no},
    {.name = "DISABLE_CUDNN", .choices = yes_or_no},
    {.name = "ENABLE_JIT_EXECUTOR", .choices = yes_or_no},
    {.name = "ENABLE_JIT_PROFILING", .choices = yes_or_no},
    {.name = "ENABLE_TENSOR_FUSER", .choices = yes_or_no},
    {.name = "INTRA_OP_THREAD_COUNT", .is_number = true, .min = 1, .max = 4096},
    {.name = "INTER_OP_THREAD_COUNT", .is_number = true, .min = 1, .max = 4096},
    {0},
};

/* The last ones are for models that OpenVINO executes. */
static const struct parameter_traits tensorflow[] = {
    {.name = "TF_GRAPH_TAG"},
    {.name = "TF_SIGNATURE_DEF"},
    {.name = "TF_NUM_INTRA_THREADS", .is_number = true, .max = 4096},
    {.name = "TF_NUM_INTER_THREADS", .is_number = true, .min = INT32_MIN, .max = 4096},
    {.name = "TF_USE_PER_SESSION_THREADS", .choices = yes_or_no},
    {.name = "TF_INIT_OPS_FILE"},
    {.name = "MAX_SESSION_SHARE_COUNT", .is_number = true, .min = 1, .max = 4096},
    {.name = "INFERENCE_NUM_THREADS", .is_number = true, .max = 999999999},
    {.name = "COMPILATION_NUM_THREADS", .is_number = true, .max = 999999999},
    {.name = "INFERENCE_PRECISION_HINT"},
    {.name = "HINT_BF16"},
    {.name = "NUM_STREAMS"},
    {.name = "PERFORMANCE_HINT"},
    {.name = "SKIP_OV_DYNAMIC_BATCHSIZE"},
    {.name = "ENABLE_BATCH_PADDING"},
    {.name = "RESHAPE_IO_LAYERS"},
    {.name = "RESHAPE_IO_LAYOUTS"},
    {.name = "TARGET_DEVICE"},
    {.name = "CPU_EXTENSION_PATH"},
    {0},
};

static const char *const tensorflow_cpu[] = {NULL}; /* it has none */
static const char *const tensorflow_gpu[] = {"tensorrt", "gpu_io", "auto_mixed_precision", NULL};

static const char *const context_memory[] = {"STATIC", "ON_PROFILE_CHANGE", NULL};

static const struct parameter_traits tensorrt[] = {
    {.name = "execution_context_allocation_strategy", .choices = context_memory},
    {.name = "enable_multi_device", .choices = yes_or_no},
    {.name = "multi_device_gpus"},
    {.name = "multi_device_per_rank_engines"},
    {0},
};

static const struct parameter_traits python[] = {
    {.name = "EXECUTION_ENV_PATH"},
    {.name = "FORCE_CPU_ONLY_INPUT_TENSORS"},
    {0},
};

static const struct backend_traits backends[] = {
    {.name = "identity", .parameters = identity},
    {.name = "onnxruntime",
     .completes = true,
     .needs_file = true,
     .parameters = onnxruntime,
     .cpu_accelerators = onnxruntime_cpu,
     .gpu_accelerators = onnxruntime_gpu},
    {.name = "fil", .completes = true, .needs_file = true, .parameters = fil},
    {.name = "python",
     .completes = true,
     .completes_more = true,
     .needs_file = true,
     .parameters = python,
     .own_parameters = true},
    {.name = "tensorflow",
     .completes = true,
     .needs_file = true,
     .parameters = tensorflow,
     .cpu_accelerators = tensorflow_cpu,
     .gpu_accelerators = tensorflow_gpu},
    {.name = "tensorrt", .completes = true, .needs_file = true, .parameters = tensorrt},
    {.name = "openvino", .completes = true, .needs_file = true, .parameters = openvino},
    {.name = "pytorch", .needs_file = true, .parameters = pytorch},
};

const struct backend_traits *backend_traits_of(const char *backend)
{
    for (size_t i = 0; i < ARRAY_SIZE(backends); i++) {
        if (strcmp(backends[i].name, backend) == 0)
            return &backends[i];
    }
    return NULL;
}

const char *backend_forest_file(const Inference__ModelConfig *pb)
{
    static const char *const files[] = {"xgboost.ubj", "xgboost.json", "xgboost.model", "model.txt",
                                        "checkpoint.tl"};
    const char *type = "xgboost";
    for (size_t i = 0; i < pb->n_parameters; i++)
        if (strcmp(pb->parameters[i]->key, "model_type") == 0)
            type = pb->parameters[i]->value->string_value;
    for (size_t i = 0; i < ARRAY_SIZE(files); i++)
        if (strcmp(forest_types[i], type) == 0)
            return files[i];
    return "";
}

const char *backend_nearest(const char *name)
{
    const char *best = NULL;
    size_t least = SIZE_MAX;
    for (size_t i = 0; i < ARRAY_SIZE(backends); i++) {
        if (str_nearer(name, backends[i].name, &least))
            best = backends[i].name;
    }
    return best;
}
