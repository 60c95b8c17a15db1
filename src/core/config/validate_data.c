/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rules of tensors that the server itself makes: initial states of sequences and warm-up
 * samples (behaviours §18.5, 27.3), as far as no file is to be looked at.
 */
#include <inttypes.h>
#include <string.h>

#include "base/status.h"
#include "core/config/config.h"
#include "core/config/config_priv.h"

typedef Inference__ModelSequenceBatching__State state_config;
typedef Inference__ModelSequenceBatching__InitialState initial_config;

NODISCARD static struct status *check_dims(const struct model_config *c, const state_config *state,
                                           const initial_config *initial)
{
    const char *name = state->input_name;
    if (initial->n_dims != state->n_dims)
        return config_fail(c, at_field(initial, "dims"),
                           "Number of dimensions in 'initial_state' doesn't match the size of "
                           "'state' dimensions for state input '%s'. %zu != %zu",
                           name, initial->n_dims, state->n_dims);
    for (size_t i = 0; i < initial->n_dims; i++) {
        struct config_place place = at_element(initial, "dims", i);
        if (initial->dims[i] == -1)
            return config_fail(c, place,
                               "'initial_state' field for state input name '%s' contains variable "
                               "dimensions.",
                               name);
        /* A wildcard of the state takes any size. */
        if (state->dims[i] != -1 && state->dims[i] != initial->dims[i])
            return config_fail(c, place,
                               "'initial_state' dim for input name '%s' doesn't match 'state' dim "
                               "description. %" PRId64 " != %" PRId64,
                               name, initial->dims[i], state->dims[i]);
    }
    return NULL;
}

NODISCARD static struct status *check_state(const struct model_config *c, const state_config *state)
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
    struct status *st = check_dims(c, state, initial);
    if (!st && initial->state_data_case ==
                   INFERENCE__MODEL_SEQUENCE_BATCHING__INITIAL_STATE__STATE_DATA__NOT_SET)
        st = config_fail(c, at_message(initial),
                         "initial_state setting expects state'%s' to have state_data set", name);
    return st;
}

NODISCARD static struct status *check_sample(const struct model_config *c,
                                             const Inference__ModelWarmup__InputsEntry *entry)
{
    const Inference__ModelWarmup__Input *input = entry->value;
    for (size_t i = 0; i < input->n_dims; i++) {
        if (input->dims[i] == -1)
            return config_fail(c, at_element(input, "dims", i),
                               "warmup setting expects all variable-size dimensions are specified "
                               "for input '%s'",
                               entry->key);
    }
    if (input->input_data_type_case == INFERENCE__MODEL_WARMUP__INPUT__INPUT_DATA_TYPE__NOT_SET)
        return config_fail(c, at_message(entry),
                           "warmup setting expects input '%s' to have input_data_type set",
                           entry->key);
    return NULL;
}

struct status *config_check_data(const struct model_config *c)
{
    const Inference__ModelConfig *pb = c->pb;
    struct status *st = NULL;
    if (pb->scheduling_choice_case ==
        INFERENCE__MODEL_CONFIG__SCHEDULING_CHOICE_SEQUENCE_BATCHING) {
        for (size_t i = 0; i < pb->sequence_batching->n_state && !st; i++)
            st = check_state(c, pb->sequence_batching->state[i]);
    }
    for (size_t i = 0; i < pb->n_model_warmup && !st; i++) {
        const Inference__ModelWarmup *w = pb->model_warmup[i];
        if (w->batch_size == 0)
            continue; /* the reference passes such a sample over */
        for (size_t k = 0; k < w->n_inputs && !st; k++)
            st = check_sample(c, w->inputs[k]);
    }
    return st;
}
