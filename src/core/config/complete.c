/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts that the server completes by itself: the backend and its file (reference/features
 * §8.3), defaults, instance groups. It never changes what the configuration has.
 */
#include <string.h>

#include "base/mem.h"
#include "base/pbmsg.h"
#include "base/status.h"
#include "core/config/config.h"
#include "core/config/config_priv.h"

enum { SEQUENCE_IDLE_US = 1000000 };

/* A longer text in one field counts as out of memory. */
NODISCARD static struct status *set_text(struct model_config *c, char **field, const char *value)
{
    char *copy = config_text(c, "%s", value);
    if (!copy)
        return status_no_memory();
    *field = copy;
    return NULL;
}

const struct config_artifact config_artifacts[] = {
    {"tensorflow", "tensorflow_graphdef", "model.graphdef", FILE_ONLY, true, NULL},
    {"tensorflow", "tensorflow_savedmodel", "model.savedmodel", FOLDER_ONLY, true, NULL},
    {"tensorrt", "tensorrt_plan", "model.plan", FILE_ONLY, false, NULL},
    {"onnxruntime", "onnxruntime_onnx", "model.onnx", EITHER, false, NULL},
    {"openvino", NULL, "model.xml", EITHER, false, NULL},
    {"pytorch", "torch_aoti", "model.pt2", FILE_ONLY, true, "model.pt"},
    {"pytorch", "pytorch_libtorch", "model.pt", FILE_ONLY, false, NULL},
    {"python", NULL, "model.py", EITHER, false, NULL},
    {.file = NULL},
};

static bool has_entry(const struct config_facts *facts, const char *file, bool as_folder)
{
    size_t length = strlen(file);
    for (size_t i = 0; i < facts->n_version_files; i++) {
        const char *entry = facts->version_files[i];
        if (strncmp(entry, file, length) == 0 && strcmp(entry + length, as_folder ? "/" : "") == 0)
            return true;
    }
    return false;
}

static bool has_file(const struct config_facts *facts, const struct config_artifact *a)
{
    if (a->not_beside && has_entry(facts, a->not_beside, false))
        return false;
    return (a->form != FOLDER_ONLY && has_entry(facts, a->file, false)) ||
           (a->form != FILE_ONLY && has_entry(facts, a->file, true));
}

static bool is_platform(const struct config_artifact *a, const char *platform)
{
    if (a->platform && strcmp(platform, a->platform) == 0)
        return true;
    return a->platform && strcmp(a->platform, "pytorch_libtorch") == 0 &&
           strcmp(platform, "libtorch") == 0;
}

/* Is the configured model of this kind, as far as the configuration shows? */
static bool is_model_of_artifact(const struct config_artifact *a, const Inference__ModelConfig *pb,
                                 const struct config_facts *facts)
{
    bool named = strcmp(pb->backend, a->backend) == 0;
    if (*pb->backend && !named)
        return false;
    if (is_platform(a, pb->platform))
        return true;
    if (named && !a->needs_platform)
        return true;
    if (*pb->platform && a->needs_platform)
        return false;
    if (*pb->default_model_filename)
        return strcmp(pb->default_model_filename, a->file) == 0;
    return !*pb->platform && has_file(facts, a);
}

NODISCARD static struct status *fill_from_artifact(struct model_config *c,
                                                   const struct config_artifact *a)
{
    Inference__ModelConfig *pb = c->pb;
    struct status *st = NULL;
    if (!*pb->backend)
        st = set_text(c, &pb->backend, a->backend);
    if (!st && !*pb->platform && a->platform)
        st = set_text(c, &pb->platform, a->platform);
    if (!st && !*pb->default_model_filename)
        st = set_text(c, &pb->default_model_filename, a->file);
    return st;
}

NODISCARD static struct status *refuse_without_backend(const struct model_config *c,
                                                       const struct config_facts *facts)
{
    char *advice = config_advise_wrong_file(facts), *files = NULL;
    if (!advice)
        files = model_config_advise_files(facts, true);
    if (files)
        advice = mem_printf("%s, or give its 'backend'", files);
    struct status *st =
        config_fail(c,
                    config_is_ensemble(c->pb)
                        ? advised(at_field(c->pb, "ensemble_scheduling"),
                                  "an ensemble has platform: \"ensemble\"")
                        : advised(at_message(NULL), advice ? advice : "give its 'backend'"),
                    "Invalid model name: Could not determine backend for model '%s' with no "
                    "backend in model configuration. Expected model name of the form "
                    "'model.<backend_name>'.",
                    facts->model_name);
    mem_free(files);
    mem_free(advice);
    return st;
}

/* Completes a model "x.<backend>" whose configuration names no backend. */
NODISCARD static struct status *fill_custom(struct model_config *c,
                                            const struct config_facts *facts)
{
    Inference__ModelConfig *pb = c->pb;
    if (*pb->backend || *pb->platform || *pb->default_model_filename)
        return NULL;

    const char *dot = strchr(facts->model_name, '.');
    if (!dot)
        return refuse_without_backend(c, facts);
    struct status *st = set_text(c, &pb->backend, dot + 1);
    if (st)
        return st;
    pb->default_model_filename = config_text(c, "model.%s", dot + 1);
    return pb->default_model_filename ? NULL : status_no_memory();
}

/* The platforms of TensorFlow determine the file, whatever the backend. */
NODISCARD static struct status *fill_file(struct model_config *c)
{
    Inference__ModelConfig *pb = c->pb;
    for (const struct config_artifact *a = config_artifacts;
         a->file && !*pb->default_model_filename; a++) {
        if (strcmp(a->backend, "tensorflow") == 0 && strcmp(pb->platform, a->platform) == 0)
            return set_text(c, &pb->default_model_filename, a->file);
    }
    return NULL;
}

struct status *config_fill_backend(struct model_config *c, const struct config_facts *facts)
{
    Inference__ModelConfig *pb = c->pb;
    bool named = *pb->name && !facts->is_renamed;
    struct status *st = named ? NULL : set_text(c, &pb->name, facts->model_name);
    if (!st)
        st = fill_file(c);
    if (st)
        return st;
    for (const struct config_artifact *a = config_artifacts; a->file; a++) {
        if (is_model_of_artifact(a, pb, facts))
            return fill_from_artifact(c, a);
    }
    return fill_custom(c, facts);
}

/* Makes a new message in the configuration; used for the few that completion adds. */
static void *make_message(struct model_config *c, const ProtobufCMessageDescriptor *type)
{
    return pb_new(&c->arena, type);
}

/* The same, as a new last element of a field of it; NULL: no memory. */
static void *append_message(struct model_config *c, const char *field,
                            const ProtobufCMessageDescriptor *type)
{
    ProtobufCMessage *made = make_message(c, type), *pb = &c->pb->base, **slot;
    if (!made)
        return NULL;
    slot = pb_append(&c->arena, pb, pb_field_named(pb->descriptor, field, strlen(field)));
    return slot ? *slot = made : NULL;
}

NODISCARD static struct status *append_int(struct model_config *c, ProtobufCMessage *m,
                                           const char *field, int32_t value)
{
    int32_t *slot = pb_append(&c->arena, m, pb_field_named(m->descriptor, field, strlen(field)));
    if (!slot)
        return status_no_memory();
    *slot = value;
    return NULL;
}

NODISCARD static struct status *pin_memory(struct model_config *c)
{
    Inference__ModelConfig *pb = c->pb;
    if (!pb->optimization) {
        pb->optimization = make_message(c, &inference__model_optimization_policy__descriptor);
        if (!pb->optimization)
            return status_no_memory();
    }
    Inference__ModelOptimizationPolicy__PinnedMemoryBuffer **flags[] = {
        &pb->optimization->input_pinned_memory, &pb->optimization->output_pinned_memory};
    for (size_t i = 0; i < ARRAY_SIZE(flags); i++) {
        if (*flags[i])
            continue;
        *flags[i] = make_message(
            c, &inference__model_optimization_policy__pinned_memory_buffer__descriptor);
        if (!*flags[i])
            return status_no_memory();
        (*flags[i])->enable = true;
    }
    return NULL;
}

NODISCARD static struct status *default_version_policy(struct model_config *c)
{
    Inference__ModelVersionPolicy *policy =
        make_message(c, &inference__model_version_policy__descriptor);
    Inference__ModelVersionPolicy__Latest *latest =
        make_message(c, &inference__model_version_policy__latest__descriptor);
    if (!policy || !latest)
        return status_no_memory();
    latest->num_versions = 1;
    policy->policy_choice_case = INFERENCE__MODEL_VERSION_POLICY__POLICY_CHOICE_LATEST;
    policy->latest = latest;
    c->pb->version_policy = policy;
    return NULL;
}

/* Schedulers prefer the largest batch unless told otherwise. */
NODISCARD static struct status *scheduler_defaults(struct model_config *c)
{
    Inference__ModelConfig *pb = c->pb;
    switch (pb->scheduling_choice_case) {
    case INFERENCE__MODEL_CONFIG__SCHEDULING_CHOICE_DYNAMIC_BATCHING:
        if (!pb->dynamic_batching->n_preferred_batch_size && pb->max_batch_size > 0)
            return append_int(c, &pb->dynamic_batching->base, "preferred_batch_size",
                              pb->max_batch_size);
        break;
    case INFERENCE__MODEL_CONFIG__SCHEDULING_CHOICE_SEQUENCE_BATCHING: {
        Inference__ModelSequenceBatching *s = pb->sequence_batching;
        if (!s->max_sequence_idle_microseconds)
            s->max_sequence_idle_microseconds = SEQUENCE_IDLE_US;
        if (s->strategy_choice_case == INFERENCE__MODEL_SEQUENCE_BATCHING__STRATEGY_CHOICE_OLDEST &&
            !s->oldest->n_preferred_batch_size && pb->max_batch_size > 0)
            return append_int(c, &s->oldest->base, "preferred_batch_size", pb->max_batch_size);
        break;
    }
    default:
        break;
    }
    return NULL;
}

struct status *config_normalise(struct model_config *c)
{
    struct status *st = NULL;
    if (!c->pb->version_policy)
        st = default_version_policy(c);
    if (!st)
        st = scheduler_defaults(c);
    if (!st && !config_is_ensemble(c->pb))
        st = pin_memory(c);
    return st;
}

static bool prefers_gpus(const struct config_facts *facts)
{
    for (size_t i = 0; i < facts->n_preferred_groups; i++) {
        if (facts->preferred_groups[i].kind == INFERENCE__MODEL_INSTANCE_GROUP__KIND__KIND_GPU)
            return true;
    }
    return false;
}

/* The driver starts only for a model that may need it. Beyond the reference, a group without a
 * kind is on GPUs only if the backend prefers them. */
static int count_gpus(const Inference__ModelConfig *pb, const struct config_facts *facts)
{
    bool may_need = prefers_gpus(facts);
    for (size_t i = 0; i < pb->n_instance_group; i++)
        may_need |= pb->instance_group[i]->kind == INFERENCE__MODEL_INSTANCE_GROUP__KIND__KIND_GPU;
    return may_need && facts->count_gpus ? facts->count_gpus() : 0;
}

/* Without a group the model gets one: as the backend prefers it, named after the model. */
NODISCARD static struct status *add_default_group(struct model_config *c,
                                                  const struct config_facts *facts, int n_gpus)
{
    Inference__ModelInstanceGroup *group =
        append_message(c, "instance_group", &inference__model_instance_group__descriptor);
    if (!group)
        return status_no_memory();
    group->name = c->pb->name;
    for (size_t i = 0; i < facts->n_preferred_groups; i++) {
        const struct config_group *preferred = &facts->preferred_groups[i];
        if (preferred->kind == INFERENCE__MODEL_INSTANCE_GROUP__KIND__KIND_GPU && n_gpus == 0)
            continue; /* the next one, or the server's choice, replaces it */
        group->kind = preferred->kind;
        group->count = preferred->count;
        break;
    }
    return NULL;
}

static int default_count(const Inference__ModelConfig *pb,
                         const Inference__ModelInstanceGroup *group,
                         const struct config_facts *facts)
{
    for (size_t i = 0; i < facts->n_preferred_groups; i++) {
        const struct config_group *preferred = &facts->preferred_groups[i];
        if (preferred->kind == group->kind && preferred->count > 0)
            return preferred->count;
    }
    bool two = strcmp(pb->backend, "tensorflow") == 0 || strcmp(pb->backend, "onnxruntime") == 0;
    return two && group->kind == INFERENCE__MODEL_INSTANCE_GROUP__KIND__KIND_CPU ? 2 : 1;
}

NODISCARD static struct status *complete_group(struct model_config *c, size_t i,
                                               const struct config_facts *facts, int n_gpus)
{
    Inference__ModelInstanceGroup *group = c->pb->instance_group[i];
    if (!*group->name) {
        group->name = config_text(c, "%s_%zu", c->pb->name, i);
        if (!group->name)
            return status_no_memory();
    }
    if (group->kind == INFERENCE__MODEL_INSTANCE_GROUP__KIND__KIND_AUTO)
        group->kind = n_gpus > 0 && prefers_gpus(facts)
                          ? INFERENCE__MODEL_INSTANCE_GROUP__KIND__KIND_GPU
                          : INFERENCE__MODEL_INSTANCE_GROUP__KIND__KIND_CPU;
    if (group->count < 1)
        group->count = default_count(c->pb, group, facts);
    if (group->kind != INFERENCE__MODEL_INSTANCE_GROUP__KIND__KIND_GPU || group->n_gpus)
        return NULL;
    struct status *st = NULL;
    for (int gpu = 0; gpu < n_gpus && !st; gpu++)
        st = append_int(c, &group->base, "gpus", gpu);
    return st;
}

struct status *model_config_complete_groups(struct model_config *c,
                                            const struct config_facts *facts)
{
    Inference__ModelConfig *pb = c->pb;
    if (config_is_ensemble(pb))
        return NULL;
    int n_gpus = count_gpus(pb, facts);
    struct status *st = NULL;
    if (pb->n_instance_group == 0)
        st = add_default_group(c, facts, n_gpus);
    for (size_t i = 0; i < pb->n_instance_group && !st; i++)
        st = complete_group(c, i, facts, n_gpus);
    return st ? st : config_validate_groups(c, n_gpus);
}

struct status *model_config_set_python(struct model_config *c, const char *runtime,
                                       const char *environment)
{
    static const char key[] = "EXECUTION_ENV_PATH";
    struct status *st = set_text(c, &c->pb->runtime, runtime);
    if (st || !environment || model_config_parameter(c, key))
        return st;
    Inference__ModelConfig__ParametersEntry *entry =
        append_message(c, "parameters", &inference__model_config__parameters_entry__descriptor);
    if (!entry)
        return status_no_memory();
    entry->value = make_message(c, &inference__model_parameter__descriptor);
    if (!entry->value)
        return status_no_memory();
    st = set_text(c, &entry->key, key);
    return st ? st : set_text(c, &entry->value->string_value, environment);
}
