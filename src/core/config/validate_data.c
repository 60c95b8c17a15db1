/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rules of data that the server itself reads or makes: labels, initial states of sequences and
 * warm-up samples (reference/behaviours §8.5, §18.5, §27.3), as far as they need no file.
 */
#include <inttypes.h>
#include <string.h>

#include "base/status.h"
#include "base/str.h"
#include "core/config/config.h"
#include "core/config/config_priv.h"

enum { MAX_SAMPLE_REQUESTS = 65536 }; /* in one execution of a warm-up sample */

typedef Inference__ModelSequenceBatching__State state_config;
typedef Inference__ModelSequenceBatching__InitialState initial_config;

NODISCARD static struct status *validate_dims(const struct model_config *c,
                                              const state_config *state,
                                              const initial_config *initial)
{
    const char *name = state->input_name;
    if (initial->n_dims != state->n_dims)
        return config_fail(c, at_field(initial, "dims"),
                           "Number of dimensions in 'initial_state' doesn't match the size of "
                           "'state' dimensions for state input '%s'. %zu != %zu",
                           name, initial->n_dims, state->n_dims);
    for (size_t i = 0; i < initial->n_dims; i++) {
        struct config_position position = at_element(initial, "dims", i);
        if (initial->dims[i] == -1)
            return config_fail(c, position,
                               "'initial_state' field for state input name '%s' contains variable "
                               "dimensions.",
                               name);
        /* A wildcard of the state allows any size. */
        if (state->dims[i] != -1 && state->dims[i] != initial->dims[i])
            return config_fail(c, position,
                               "'initial_state' dim for input name '%s' doesn't match 'state' dim "
                               "description. %" PRId64 " != %" PRId64,
                               name, initial->dims[i], state->dims[i]);
    }
    return NULL;
}

NODISCARD static struct status *
validate_initial_file(const struct model_config *c, const char *name, const initial_config *initial)
{
    struct config_position position = at_field(initial, "data_file");
    if (!*initial->data_file)
        return config_fail(c, position, "initial_state setting expects state '%s' to name a file",
                           name);
    if (str_escapes_folder(initial->data_file))
        return config_fail(c, position,
                           "initial_state setting of state input '%s': file '%s' is outside the "
                           "model's folder initial_state",
                           name, initial->data_file);
    return NULL;
}

NODISCARD static struct status *validate_state(const struct model_config *c,
                                               const state_config *state)
{
    const char *name = state->input_name;
    if (state->n_initial_state > 1)
        return config_fail(c, at_element(state, "initial_state", 1),
                           "initial_state field for state input '%s' must contain exactly one or "
                           "zero element. Found '%zu' elements.",
                           name, state->n_initial_state);
    if (state->n_initial_state == 0)
        return NULL;
    const initial_config *initial = state->initial_state[0];
    if (!*initial->name)
        return config_fail(c, at_message(initial),
                           "Field 'name' must be set when using initial_state for state input "
                           "'%s'.",
                           name);
    if (initial->data_type != state->data_type)
        return config_fail(c, at_field(initial, "data_type"),
                           "The data type used for 'initial_state' field of state '%s' does not "
                           "match the state data type.",
                           name);
    struct status *st = validate_dims(c, state, initial);
    if (!st && initial->state_data_case ==
                   INFERENCE__MODEL_SEQUENCE_BATCHING__INITIAL_STATE__STATE_DATA__NOT_SET)
        st = config_fail(c, at_message(initial),
                         "initial_state setting expects state'%s' to have state_data set", name);
    if (!st && initial->state_data_case ==
                   INFERENCE__MODEL_SEQUENCE_BATCHING__INITIAL_STATE__STATE_DATA_DATA_FILE)
        st = validate_initial_file(c, name, initial);
    return st;
}

NODISCARD static struct status *
validate_sample_file(const struct model_config *c, const Inference__ModelWarmup__InputsEntry *entry)
{
    const char *file = entry->value->input_data_file;
    struct config_position position = at_field(entry->value, "input_data_file");
    if (!*file)
        return config_fail(c, position, "warmup setting expects input '%s' to name a file",
                           entry->key);
    if (str_escapes_folder(file))
        return config_fail(c, position,
                           "warmup setting of input '%s': file '%s' is outside the model's folder "
                           "warmup",
                           entry->key, file);
    return NULL;
}

NODISCARD static struct status *
validate_sample_input(const struct model_config *c,
                      const Inference__ModelWarmup__InputsEntry *entry)
{
    const Inference__ModelWarmup__Input *input = entry->value;
    for (size_t i = 0; i < input->n_dims; i++) {
        struct config_position position = at_element(input, "dims", i);
        if (input->dims[i] == -1)
            return config_fail(c, position,
                               "warmup setting expects all variable-size dimensions are specified "
                               "for input '%s'",
                               entry->key);
        if (input->dims[i] < 0)
            return config_fail(c, position,
                               "warmup setting of input '%s': dimension must be integer >= 0, got "
                               "%" PRId64,
                               entry->key, input->dims[i]);
    }
    switch (input->input_data_type_case) {
    case INFERENCE__MODEL_WARMUP__INPUT__INPUT_DATA_TYPE__NOT_SET:
        return config_fail(c, at_message(entry),
                           "warmup setting expects input '%s' to have input_data_type set",
                           entry->key);
    case INFERENCE__MODEL_WARMUP__INPUT__INPUT_DATA_TYPE_INPUT_DATA_FILE:
        return validate_sample_file(c, entry);
    default:
        return NULL;
    }
}

/* The reference ignores a sample whose batch_size is 0, right or wrong. */
NODISCARD static struct status *validate_sample(const struct model_config *c,
                                                const Inference__ModelWarmup *w)
{
    if (w->batch_size > MAX_SAMPLE_REQUESTS)
        return config_fail(c, at_field(w, "batch_size"),
                           "warmup sample '%s': batch_size must be at most %d, got %" PRIu32,
                           w->name, MAX_SAMPLE_REQUESTS, w->batch_size);
    struct status *st = NULL;
    for (size_t i = 0; i < w->n_inputs && w->batch_size && !st; i++)
        st = validate_sample_input(c, w->inputs[i]);
    return st;
}

NODISCARD static struct status *validate_labels(const struct model_config *c,
                                                const Inference__ModelOutput *output)
{
    if (!str_escapes_folder(output->label_filename))
        return NULL;
    return config_fail(c, at_field(output, "label_filename"),
                       "label file path '%s' for output '%s' in model '%s' is outside model "
                       "directory",
                       output->label_filename, output->name, c->pb->name);
}

struct status *config_validate_data(const struct model_config *c)
{
    const Inference__ModelConfig *pb = c->pb;
    struct status *st = NULL;
    for (size_t i = 0; i < pb->n_output && !st; i++)
        st = validate_labels(c, pb->output[i]);
    if (pb->scheduling_choice_case ==
        INFERENCE__MODEL_CONFIG__SCHEDULING_CHOICE_SEQUENCE_BATCHING) {
        for (size_t i = 0; i < pb->sequence_batching->n_state && !st; i++)
            st = validate_state(c, pb->sequence_batching->state[i]);
    }
    for (size_t i = 0; i < pb->n_model_warmup && !st; i++)
        st = validate_sample(c, pb->model_warmup[i]);
    return st;
}
