/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rules of the sequence batcher (reference/behaviours §14.11).
 */
#include <string.h>

#include "base/map.h"
#include "base/status.h"
#include "core/config/config.h"
#include "core/config/config_priv.h"

typedef Inference__ModelSequenceBatching__Control__Kind control_kind;

#define KIND(name) INFERENCE__MODEL_SEQUENCE_BATCHING__CONTROL__KIND__CONTROL_SEQUENCE_##name

static const char *kind_name(control_kind kind)
{
    const ProtobufCEnumValue *v = protobuf_c_enum_descriptor_get_value(
        &inference__model_sequence_batching__control__kind__descriptor, (int)kind);
    return v ? v->name : "?";
}

/* START, READY and END: one pair of values, in one type. */
NODISCARD static struct status *
validate_pair(const struct model_config *c,
              const Inference__ModelSequenceBatching__Control *control)
{
    const char *kind = kind_name(control->kind), *model = c->pb->name;
    const struct {
        const char *field;
        size_t n;
    } pairs[] = {{"int32_false_true", control->n_int32_false_true},
                 {"fp32_false_true", control->n_fp32_false_true},
                 {"bool_false_true", control->n_bool_false_true}};
    size_t chosen = ARRAY_SIZE(pairs), n_chosen = 0;

    for (size_t i = 0; i < ARRAY_SIZE(pairs); i++) {
        if (pairs[i].n) {
            chosen = i;
            n_chosen++;
        }
    }
    if (n_chosen == 0)
        return config_fail(
            c, advised(at_field(control, "kind"), "for example int32_false_true: [ 0, 1 ]"),
            "sequence batching must specify either 'int32_false_true', "
            "'fp32_false_true' or 'bool_false_true' for %s for %s",
            kind, model);
    if (n_chosen > 1)
        return config_fail(c, at_field(control, pairs[chosen].field),
                           "sequence batching specifies more than one from 'int32_false_true', "
                           "'fp32_false_true' and 'bool_false_true' for %s for %s",
                           kind, model);
    if (pairs[chosen].n != 2)
        return config_fail(c, at_field(control, pairs[chosen].field),
                           "sequence batching control '%s' must have exactly 2 entries for %s for "
                           "%s",
                           pairs[chosen].field, kind, model);
    return NULL;
}

/* The correlation id: a data type and no values. */
NODISCARD static struct status *
check_typed(const struct model_config *c, const Inference__ModelSequenceBatching__Control *control)
{
    const char *kind = kind_name(control->kind);
    if (control->n_int32_false_true || control->n_fp32_false_true || control->n_bool_false_true)
        return config_fail(c, at_field(control, "kind"),
                           "sequence batching must not specify either 'int32_false_true', "
                           "'fp32_false_true' or 'bool_false_true' for %s for %s",
                           kind, c->pb->name);
    return NULL;
}

/* Each control tensor has a name of its own. */
NODISCARD static struct status *
check_name(const struct model_config *c,
           const Inference__ModelSequenceBatching__ControlInput *input, struct map *seen)
{
    if (!*input->name)
        return config_fail(c, at_message(input),
                           "sequence batching control tensor must have a name for %s", c->pb->name);
    if (map_puts(seen, input->name, input->name))
        return config_fail(c, at_field(input, "name"),
                           "sequence batching control tensor '%s' is specified for multiple "
                           "control kinds for %s",
                           input->name, c->pb->name);
    return NULL;
}

/* Is this input the control of that kind, of which there may be one? */
NODISCARD static struct status *
check_controls(const struct model_config *c,
               const Inference__ModelSequenceBatching__ControlInput *input, control_kind kind,
               const Inference__ModelSequenceBatching__Control **found)
{
    struct status *st = NULL;
    for (size_t k = 0; k < input->n_control && !st; k++) {
        const Inference__ModelSequenceBatching__Control *control = input->control[k];
        if (control->kind != kind)
            continue;
        if (*found)
            return config_fail(c, at_field(control, "kind"),
                               "sequence batching specifies multiple %s tensors for %s",
                               kind_name(kind), c->pb->name);
        *found = control;
        st = kind == KIND(CORRID) ? check_typed(c, control) : validate_pair(c, control);
    }
    return st;
}

/*
 * Finds the control of that kind. For the first kind it also checks the names, because the
 * reference reports the faults in that order.
 */
NODISCARD static struct status *validate_kind(const struct model_config *c, control_kind kind,
                                              const Inference__ModelSequenceBatching__Control **ret)
{
    const Inference__ModelSequenceBatching *batching = c->pb->sequence_batching;
    struct map seen = MAP_INIT;
    struct status *st = NULL;

    *ret = NULL;
    for (size_t i = 0; i < batching->n_control_input && !st; i++) {
        if (kind == KIND(START))
            st = check_name(c, batching->control_input[i], &seen);
        if (!st)
            st = check_controls(c, batching->control_input[i], kind, ret);
    }
    map_done(&seen);
    return st;
}

NODISCARD static struct status *
check_corrid_type(const struct model_config *c,
                  const Inference__ModelSequenceBatching__Control *control)
{
    switch (control->data_type) {
    case INFERENCE__DATA_TYPE__TYPE_UINT64:
    case INFERENCE__DATA_TYPE__TYPE_INT64:
    case INFERENCE__DATA_TYPE__TYPE_UINT32:
    case INFERENCE__DATA_TYPE__TYPE_INT32:
    case INFERENCE__DATA_TYPE__TYPE_STRING:
        return NULL;
    default:
        return config_fail(c, at_field(control, "data_type"),
                           "unexpected data type for control %s for %s. Allowed data types are "
                           "TYPE_UINT64, TYPE_INT64, TYPE_UINT32, TYPE_INT32 and TYPE_STRING",
                           kind_name(control->kind), c->pb->name);
    }
}

NODISCARD static struct status *validate_strategy(const struct model_config *c)
{
    const Inference__ModelConfig *pb = c->pb;
    const Inference__ModelSequenceBatching *s = pb->sequence_batching;

    if (s->strategy_choice_case == INFERENCE__MODEL_SEQUENCE_BATCHING__STRATEGY_CHOICE_OLDEST) {
        for (size_t i = 0; i < s->oldest->n_preferred_batch_size; i++) {
            struct config_position position = at_element(s->oldest, "preferred_batch_size", i);
            int32_t size = s->oldest->preferred_batch_size[i];
            if (size <= 0)
                return config_fail(c, position,
                                   "sequence batching preferred batch size must be positive for %s",
                                   pb->name);
            if (size > pb->max_batch_size)
                return config_fail(c, advised(position, config_advise_batch(c).text),
                                   "sequence batching preferred batch size must be <= max batch "
                                   "size for %s",
                                   pb->name);
        }
    }
    if (s->strategy_choice_case == INFERENCE__MODEL_SEQUENCE_BATCHING__STRATEGY_CHOICE_DIRECT) {
        float utilization = s->direct->minimum_slot_utilization;
        if (!(utilization >= 0 && utilization <= 1))
            return config_fail(c, at_field(s->direct, "minimum_slot_utilization"),
                               "sequence batching minimum slot utilization must be in range (0.0, "
                               "1.0] for %s",
                               pb->name);
    }
    return NULL;
}

struct status *config_validate_sequence(const struct model_config *c)
{
    static const control_kind kinds[] = {KIND(START), KIND(END), KIND(READY), KIND(CORRID)};
    const Inference__ModelSequenceBatching__Control *control = NULL;
    struct status *st = NULL;
    for (size_t i = 0; i < ARRAY_SIZE(kinds) && !st; i++)
        st = validate_kind(c, kinds[i], &control);
    if (st)
        return st;
    st = control ? check_corrid_type(c, control) : NULL; /* the last kind */
    return st ? st : validate_strategy(c);
}
