/* SPDX-License-Identifier: Apache-2.0 */
/*
 * parameters - what a configuration's `parameters` ask for, under the names that Triton's fil
 * backend has.
 */
#include <stdlib.h>
#include <string.h>

#include "fil/model.h"

static const struct {
    const char *name;
    enum tree_format format;
} model_types[] = {
    {"xgboost", TREE_XGBOOST_LEGACY},         {"xgboost_json", TREE_XGBOOST_JSON},
    {"xgboost_ubj", TREE_XGBOOST_UBJSON},     {"lightgbm", TREE_LIGHTGBM},
    {"treelite_checkpoint", TREE_CHECKPOINT},
};

static TRITONSERVER_Error *read_model_type(const struct doc *config, const char *model,
                                           enum tree_format *ret_format)
{
    const char *type = backend_parameter(config, "model_type");

    *ret_format = TREE_XGBOOST_LEGACY;
    if (!type)
        return NULL;
    for (size_t i = 0; i < sizeof(model_types) / sizeof(model_types[0]); i++) {
        if (strcmp(model_types[i].name, type) == 0) {
            *ret_format = model_types[i].format;
            return NULL;
        }
    }
    return backend_error(TRITONSERVER_ERROR_UNSUPPORTED,
                         "model '%s': %s not recognized as a valid serialization format: "
                         "model_type is xgboost_ubj, xgboost_json, xgboost, lightgbm or "
                         "treelite_checkpoint",
                         model, type);
}

static TRITONSERVER_Error *read_flag_parameter(const struct doc *config, const char *model,
                                               const char *name, bool *ret_flag, bool *ret_known)
{
    const char *text = backend_parameter(config, name);

    if (!text)
        return NULL;
    if (strcmp(text, "true") != 0 && strcmp(text, "false") != 0)
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                             "model '%s': Expected 'true' or 'false' for parameter '%s', got: '%s'",
                             model, name, text);
    *ret_flag = strcmp(text, "true") == 0;
    if (ret_known)
        *ret_known = true;
    return NULL;
}

static TRITONSERVER_Error *read_threshold(const struct doc *config, const char *model,
                                          float *ret_threshold)
{
    const char *text = backend_parameter(config, "threshold");
    char *end = NULL;
    float threshold = 0.5f;

    if (text) {
        threshold = strtof(text, &end);
        if (end == text || *end != '\0' || threshold != threshold)
            return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                                 "model '%s': parameter 'threshold' must be a number, got '%s'",
                                 model, text);
    }
    *ret_threshold = threshold;
    return NULL;
}

/* Triton's backend has these for GPUs, or has had them; no answer depends on them. */
static void log_without_effect(const struct doc *config, const char *model)
{
    static const char *const names[] = {"storage_type",
                                        "blocks_per_sm",
                                        "algo",
                                        "threads_per_tree",
                                        "layout",
                                        "chunk_size",
                                        "transfer_threshold",
                                        "use_experimental_optimizations"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (backend_parameter(config, names[i]))
            BACKEND_LOG(INFO, "model '%s': parameter '%s' has no effect on CPUs", model, names[i]);
}

TRITONSERVER_Error *forest_read_parameters(const struct doc *config, const char *model,
                                           struct forest_asked *ret_asked)
{
    struct forest_asked a = {0};

    TRY(read_model_type(config, model, &a.format));
    /* output_class is the name that is_classifier had before Triton's release 25.09. */
    TRY(read_flag_parameter(config, model, "is_classifier", &a.is_classifier, &a.classifier_known));
    TRY(read_flag_parameter(config, model, "output_class", &a.is_classifier, &a.classifier_known));
    TRY(read_flag_parameter(config, model, "predict_proba", &a.predict_proba, NULL));
    TRY(read_flag_parameter(config, model, "xgboost_allow_unknown_field", &a.allow_unknown, NULL));
    TRY(read_threshold(config, model, &a.threshold));
    TRY(backend_parameter_int(config, "cpu_nthread", -1, 4096, -1, &a.n_threads));
    log_without_effect(config, model);
    *ret_asked = a;
    return NULL;
}
