/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Printing a configuration, with the special cases of the reference (reference/behaviours §15).
 */
#include "base/pbjson.h"
#include "base/pbtext.h"
#include "core/config/config.h"
#include "core/config/config_priv.h"

/* Messages whose fields are declared in another order than their numbers. In the reference's
 * JSON, members of a oneof that are no messages come last. */
const uint32_t *config_field_order(const ProtobufCMessageDescriptor *type)
{
    static const uint32_t config[] = {1,  2, 17, 25, 3,  4,  5,  6,  20, 21, 12, 11, 13,
                                      15, 7, 8,  9,  10, 14, 16, 18, 19, 23, 24, 26, 0};
    static const uint32_t group[] = {1, 4, 2, 6, 3, 8, 5, 7, 9, 0};
    static const uint32_t output[] = {1, 2, 3, 5, 4, 6, 7, 0};
    static const uint32_t sequence[] = {3, 4, 1, 2, 5, 6, 0};
    static const uint32_t control[] = {1, 2, 3, 5, 4, 0};
    static const uint32_t initial_state[] = {1, 2, 5, 3, 4, 0};

    static const struct {
        const ProtobufCMessageDescriptor *type;
        const uint32_t *ids;
    } orders[] = {
        {&inference__model_config__descriptor, config},
        {&inference__model_instance_group__descriptor, group},
        {&inference__model_output__descriptor, output},
        {&inference__model_sequence_batching__descriptor, sequence},
        {&inference__model_sequence_batching__control__descriptor, control},
        {&inference__model_sequence_batching__initial_state__descriptor, initial_state},
    };

    for (size_t i = 0; i < ARRAY_SIZE(orders); i++) {
        if (orders[i].type == type)
            return orders[i].ids;
    }
    return NULL;
}

/* 64-bit integers that the reference prints as strings, not as numbers. */
static bool is_number(const ProtobufCMessageDescriptor *type, const ProtobufCFieldDescriptor *f)
{
    return type != &inference__model_sequence_batching__initial_state__descriptor &&
           type != &inference__model_optimization_policy__cuda__graph_spec__shape__descriptor &&
           type != &inference__model_instance_group__secondary_device__descriptor;
}

void model_config_print_json(const struct model_config *c, struct buf *out)
{
    static const struct pbjson_style style = {.order = config_field_order, .is_number = is_number};
    pbjson_print(&c->pb->base, &style, out);
}

void model_config_print_text(const struct model_config *c, struct buf *out)
{
    pbtext_print(&c->pb->base, config_field_order, out);
}
