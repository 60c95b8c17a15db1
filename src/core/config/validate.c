/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The general rules of a configuration, those of the dynamic batcher and of instance groups. The
 * texts are the reference's (reference/behaviours §14.9, §14.10, §14.16), because people search for
 * them.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/status.h"
#include "base/str.h"
#include "core/config/config.h"
#include "core/config/config_priv.h"

/* Frameworks that the platform's name and the backend's name both determine; NULL for all
 * others. */
static const char *const platforms[][2] = {
    {"tensorflow_savedmodel", "tensorflow"},
    {"tensorflow_graphdef", "tensorflow"},
    {"tensorrt_plan", "tensorrt"},
    {"onnxruntime_onnx", "onnxruntime"},
    {"pytorch_libtorch", "pytorch"},
    {"libtorch", "pytorch"},
    {"torch_aoti", "pytorch"},
    {"ensemble", "ensemble"},
};

static const char *framework_of_platform(const char *platform)
{
    for (size_t i = 0; i < ARRAY_SIZE(platforms); i++) {
        if (strcmp(platform, platforms[i][0]) == 0)
            return platforms[i][1];
    }
    return NULL;
}

static const char *framework_of_backend(const char *backend)
{
    static const char *const known[] = {"tensorflow", "tensorrt", "onnxruntime", "pytorch"};
    for (size_t i = 0; i < ARRAY_SIZE(known); i++) {
        if (strcmp(backend, known[i]) == 0)
            return known[i];
    }
    return NULL;
}

NODISCARD static struct status *unknown_platform(const struct model_config *c)
{
    const char *platform = c->pb->platform, *meant = NULL;
    char advice[64];
    size_t least = SIZE_MAX;
    for (size_t i = 0; i < ARRAY_SIZE(platforms); i++) {
        if (str_nearer(platform, platforms[i][0], &least))
            meant = platforms[i][0];
    }
    snprintf(advice, sizeof(advice), "did you mean \"%s\"?", meant ? meant : "");
    return config_fail(c, advised(at_field(c->pb, "platform"), meant ? advice : NULL),
                       "unexpected platform type '%s' for %s", platform, c->pb->name);
}

NODISCARD static struct status *unexpected_pair(const struct model_config *c)
{
    const Inference__ModelConfig *pb = c->pb;
    char advice[200];
    int n = 0;
    for (size_t i = 0; i < ARRAY_SIZE(platforms); i++) {
        if (strcmp(platforms[i][1], pb->backend) == 0)
            n += snprintf(advice + n, sizeof(advice) - (size_t)n, "%s\"%s\"",
                          n ? " or " : "with this backend it is ", platforms[i][0]);
    }
    return config_fail(c, advised(at_field(pb, "platform"), advice),
                       "unexpected 'platform' and 'backend' pair, got:%s, %s", pb->platform,
                       pb->backend);
}

struct status *config_validate_backend(const struct model_config *c)
{
    const Inference__ModelConfig *pb = c->pb;
    if (!*pb->name)
        return config_fail(c, at_message(pb), "model configuration must specify 'name'");
    bool ensemble = strcmp(pb->platform, "ensemble") == 0;
    if (ensemble && *pb->backend)
        return config_fail(c, at_field(pb, "backend"),
                           "Ensemble model '%s' must have platform type 'ensemble' and empty "
                           "backend type",
                           pb->name);
    if (ensemble)
        return NULL; /* config_validate_ensemble() */

    const char *by_platform = framework_of_platform(pb->platform);
    const char *by_backend = framework_of_backend(pb->backend);
    if (!*pb->backend && !by_platform)
        return unknown_platform(c);
    /* An unknown backend may use any platform's name. */
    if (by_backend && (!by_platform || strcmp(by_platform, by_backend) != 0))
        return unexpected_pair(c);
    return NULL;
}

NODISCARD static struct status *validate_policy(const struct model_config *c,
                                                const Inference__ModelQueuePolicy *policy)
{
    if (policy && policy->default_timeout_microseconds != 0 &&
        policy->timeout_action == INFERENCE__MODEL_QUEUE_POLICY__TIMEOUT_ACTION__DELAY)
        return config_fail(c, at_field(policy, "timeout_action"),
                           "Queue policy can not have DELAY as timeout action when "
                           "'preserve_ordering' is true for %s",
                           c->pb->name);
    return NULL;
}

NODISCARD static struct status *validate_preserved_order(const struct model_config *c,
                                                         const Inference__ModelDynamicBatching *b)
{
    if (b->priority_levels > 1)
        return config_fail(
            c, at_field(b, "preserve_ordering"),
            "Only one priority level is allowed when 'preserve_ordering' is true for %s",
            c->pb->name);
    struct status *st = validate_policy(c, b->default_queue_policy);
    for (size_t i = 0; i < b->n_priority_queue_policy && !st; i++)
        st = validate_policy(c, b->priority_queue_policy[i]->value);
    return st;
}

NODISCARD static struct status *validate_preferred(const struct model_config *c,
                                                   const Inference__ModelDynamicBatching *b)
{
    struct status *st = NULL;
    for (size_t i = 0; i < b->n_preferred_batch_size && !st; i++) {
        struct config_position position = at_element(b, "preferred_batch_size", i);
        if (b->preferred_batch_size[i] <= 0)
            st = config_fail(c, position, "dynamic batching preferred size must be positive for %s",
                             c->pb->name);
        else if (b->preferred_batch_size[i] > c->pb->max_batch_size)
            st = config_fail(c, advised(position, config_advise_batch(c).text),
                             "dynamic batching preferred size must be <= max batch size for %s",
                             c->pb->name);
    }
    return st;
}

NODISCARD static struct status *validate_priorities(const struct model_config *c,
                                                    const Inference__ModelDynamicBatching *b)
{
    uint64_t n = b->priority_levels;
    struct status *st = NULL;
    if (n == 0)
        return NULL;
    if (b->default_priority_level == 0 || b->default_priority_level > n)
        st = config_fail(c,
                         advised(at_field(b, "default_priority_level"),
                                 b->default_priority_level ? NULL : "it is missing"),
                         "default priority level must be in range [1, %" PRIu64 "] for %s", n,
                         c->pb->name);
    for (size_t i = 0; i < b->n_priority_queue_policy && !st; i++) {
        uint64_t level = b->priority_queue_policy[i]->key;
        if (level == 0 || level > n)
            st = config_fail(c, at_field(b->priority_queue_policy[i], "key"),
                             "priority queue policy must have priority level in range [1, %" PRIu64
                             "] for %s",
                             n, c->pb->name);
    }
    return st;
}

NODISCARD static struct status *validate_dynamic(const struct model_config *c)
{
    const Inference__ModelDynamicBatching *b = c->pb->dynamic_batching;
    struct status *st = validate_preferred(c, b);
    if (!st)
        st = validate_priorities(c, b);
    return !st && b->preserve_ordering ? validate_preserved_order(c, b) : st;
}

/* A cache is refused together with features that no cache supports. */
NODISCARD static struct status *refuse_cache(const struct model_config *c, const char *in_the_way)
{
    const Inference__ModelResponseCache *cache = c->pb->response_cache;
    if (!cache || !cache->enable)
        return NULL;
    return config_fail(c, at_field(cache, "enable"),
                       "Response Cache does not currently support model %s with %s. Please "
                       "disable the response cache.",
                       c->pb->name, in_the_way);
}

/* The tag x is the label _x; labels that begin with two underscores are Prometheus' own. */
NODISCARD static struct status *validate_tags(const struct model_config *c)
{
    struct status *st = NULL;
    for (size_t i = 0; i < c->pb->n_metric_tags && !st; i++) {
        const char *key = c->pb->metric_tags[i]->key;
        char *label = mem_printf("_%s", key);
        if (!str_is_identifier(label, '_') || *key == '_')
            st = config_fail(c, at_element(c->pb, "metric_tags", i),
                             "metric_tags: '%s' is no name for a label of a metric: letters, "
                             "digits and '_', which it does not begin with",
                             key);
        mem_free(label);
    }
    return st;
}

NODISCARD static struct status *validate_metrics(const struct model_config *c)
{
    const Inference__ModelMetrics *metrics = c->pb->model_metrics;
    struct status *st = NULL;
    for (size_t i = 0; metrics && i < metrics->n_metric_control && !st; i++) {
        const Inference__ModelMetrics__MetricControl *m = metrics->metric_control[i];
        const char *fault = NULL;
        if (!m->metric_identifier)
            fault = "metric control must specify 'metric_identifier'";
        else if (!*m->metric_identifier->family)
            fault = "metric identifier must specify non-empty 'family'";
        else if (m->metric_options_case !=
                 INFERENCE__MODEL_METRICS__METRIC_CONTROL__METRIC_OPTIONS_HISTOGRAM_OPTIONS)
            fault = "metric control must specify 'histogram_options'";
        else if (m->histogram_options->n_buckets == 0)
            fault = "histogram options must specify non-empty 'buckets'";
        if (fault)
            st = config_fail(c, at_message(m), "%s", fault);
    }
    return st;
}

/* Each is one instance at least. */
NODISCARD static struct status *validate_n_groups(const struct model_config *c)
{
    size_t n = c->pb->n_instance_group;
    if (n <= CONFIG_MAX_INSTANCES)
        return NULL;
    return config_fail(c, at_element(c->pb, "instance_group", CONFIG_MAX_INSTANCES),
                       "model '%s' has %zu instance groups, at most %d", c->pb->name, n,
                       CONFIG_MAX_INSTANCES);
}

/* Backends open these files by a path made of the version's folder and the name. */
NODISCARD static struct status *validate_model_files(const struct model_config *c)
{
    const Inference__ModelConfig *pb = c->pb;
    struct status *st = NULL;
    if (str_escapes_folder(pb->default_model_filename))
        st = config_fail(c, at_field(pb, "default_model_filename"),
                         "default_model_filename '%s' of model '%s' is outside the version folder",
                         pb->default_model_filename, pb->name);
    for (size_t i = 0; i < pb->n_cc_model_filenames && !st; i++) {
        const Inference__ModelConfig__CcModelFilenamesEntry *entry = pb->cc_model_filenames[i];
        if (str_escapes_folder(entry->value))
            st = config_fail(c, at_field(entry, "value"),
                             "cc_model_filenames '%s' of model '%s' for compute capability '%s' is "
                             "outside the version folder",
                             entry->value, pb->name, entry->key);
    }
    return st;
}

NODISCARD static struct status *validate_scheduler(const struct model_config *c)
{
    struct status *st;
    switch (c->pb->scheduling_choice_case) {
    case INFERENCE__MODEL_CONFIG__SCHEDULING_CHOICE_DYNAMIC_BATCHING:
        return validate_dynamic(c);
    case INFERENCE__MODEL_CONFIG__SCHEDULING_CHOICE_SEQUENCE_BATCHING:
        st = refuse_cache(c, "sequence batching scheduler");
        return st ? st : config_validate_sequence(c);
    default:
        return NULL;
    }
}

struct status *config_validate_general(const struct model_config *c)
{
    const Inference__ModelConfig *pb = c->pb;
    struct status *st = NULL;
    if (pb->max_batch_size < 0)
        st = config_fail(
            c, advised(at_field(pb, "max_batch_size"), "0 is a model without a batch dimension"),
            "'max_batch_size' must be non-negative value for %s", pb->name);
    if (st)
        return st;
    st = validate_scheduler(c);
    if (!st && config_is_ensemble(pb))
        st = config_validate_ensemble(c);
    else if (!st && strcmp(pb->platform, "ensemble") == 0)
        st = config_fail(
            c, at_field(pb, "platform"),
            "ensemble scheduling must be set for ensemble %s whose platform is ensemble", pb->name);
    if (!st && model_config_decoupled(c))
        st = refuse_cache(c, "'decoupled' transaction policy");
    if (!st)
        st = validate_n_groups(c);
    if (!st)
        st = validate_model_files(c);
    if (!st)
        st = validate_tags(c);
    return st ? st : validate_metrics(c);
}

/* Profiles are numbers of TensorRT, written as text; text behind a number is ignored. */
NODISCARD static struct status *validate_profiles(const struct model_config *c,
                                                  const Inference__ModelInstanceGroup *g)
{
    const char *model = c->pb->name, *platform = c->pb->platform;
    struct status *st = NULL;
    if (g->n_profile && strcmp(platform, "tensorrt_plan") != 0)
        return config_fail(c, at_field(g, "profile"), /* the reference has no blank there, either */
                           "instance group %s of model %s and platform %sspecifies profile field "
                           "which is only supported for TensorRT models",
                           g->name, model, platform);
    for (size_t i = 0; i < g->n_profile && !st; i++) {
        struct config_position position = at_element(g, "profile", i);
        const char *text = g->profile[i];
        char *end;
        long long number = strtoll(text, &end, 10); /* beyond its range it is beyond int's, too */
        if (!*text)
            st = config_fail(c, position, "profile name must not be empty");
        else if (end == text || number > INT32_MAX || number < INT32_MIN)
            st = config_fail(c, advised(position, "a profile is a number, such as \"0\""),
                             "unable to parse '%s': stoi", text);
        else if (number < 0)
            st = config_fail(c, position,
                             "instance group %s of model %s and platform %s specifies invalid "
                             "profile %s. The field should contain the string representation of a "
                             "non-negative integer.",
                             g->name, model, platform, text);
    }
    return st;
}

NODISCARD static struct status *validate_gpus(const struct model_config *c,
                                              const Inference__ModelInstanceGroup *g, int n_gpus)
{
    for (size_t i = 0; i < g->n_gpus; i++) {
        if (g->gpus[i] < 0 || g->gpus[i] >= n_gpus)
            return config_fail(c, at_element(g, "gpus", i),
                               "instance group %s of model %s specifies invalid or unsupported gpu "
                               "id %d. GPUs of this machine: %d",
                               g->name, c->pb->name, g->gpus[i], n_gpus);
    }
    return NULL;
}

struct status *config_validate_groups(const struct model_config *c, int n_gpus)
{
    const Inference__ModelConfig *pb = c->pb;
    struct status *st = NULL;
    for (size_t i = 0; i < pb->n_instance_group && !st; i++) {
        const Inference__ModelInstanceGroup *g = pb->instance_group[i];
        const char *fault = NULL, *field = "gpus";
        switch (g->kind) {
        case INFERENCE__MODEL_INSTANCE_GROUP__KIND__KIND_MODEL:
            if (g->n_gpus)
                fault = "has kind KIND_MODEL but specifies one or more GPUs";
            break;
        case INFERENCE__MODEL_INSTANCE_GROUP__KIND__KIND_CPU:
            if (g->n_gpus)
                fault = "has kind KIND_CPU but specifies one or more GPUs";
            break;
        case INFERENCE__MODEL_INSTANCE_GROUP__KIND__KIND_GPU:
            field = "kind";
            if (n_gpus == 0)
                fault = "has kind KIND_GPU but server does not support GPUs";
            break;
        default:
            field = "kind";
            fault = "has unexpected kind";
        }
        bool no_gpu = g->kind == INFERENCE__MODEL_INSTANCE_GROUP__KIND__KIND_GPU && fault;
        if (fault)
            st = config_fail(c,
                             advised(at_field(g, field),
                                     no_gpu ? "write KIND_CPU, or KIND_AUTO for whichever the "
                                              "machine has"
                                            : NULL),
                             "instance group %s of model %s %s", g->name, pb->name, fault);
        if (!st)
            st = validate_gpus(c, g, n_gpus);
        if (!st)
            st = validate_profiles(c, g);
    }
    return st;
}
