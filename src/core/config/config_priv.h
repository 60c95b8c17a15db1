/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the configuration library: one file per step of the life in config.h.
 */
#ifndef CONCH_CORE_CONFIG_CONFIG_PRIV_H
#define CONCH_CORE_CONFIG_CONFIG_PRIV_H

#include "core/config/config.h"

enum { CONFIG_MAX_MEMORY = 64 << 20 };

/*
 * Which field an error is about: `field` of `message`, its element `index` when it is repeated.
 * One that does not stand in the text is placed where its message stands.
 */
struct config_position {
    const void *message;
    const char *field;
    size_t index;
    const char *advice; /* what would have been right, or NULL */
};

static inline struct config_position at_element(const void *message, const char *field,
                                                size_t index)
{
    return (struct config_position){.message = message, .field = field, .index = index};
}

static inline struct config_position at_field(const void *message, const char *field)
{
    return at_element(message, field, 0);
}

static inline struct config_position at_message(const void *message)
{
    return at_element(message, NULL, 0);
}

/* advised - the same position, with a word on what would have been right, or ""; borrowed until it
 * is told.
 */
static inline struct config_position advised(struct config_position position, const char *advice)
{
    position.advice = advice && *advice ? advice : NULL;
    return position;
}

/*
 * config_fail - a broken rule (STATUS_INVALID_ARG); " (file:line:column): advice" is added. With a
 * listener it is told and NULL comes back: rules then go on, so what they look at next must be safe
 * to read.
 */
NODISCARD struct status *config_fail(const struct model_config *c, struct config_position position,
                                     const char *fmt, ...) PRINTF_LIKE(3, 4);

/* config_add_position - the same for a status that is there already; taken. */
NODISCARD struct status *config_add_position(const struct model_config *c,
                                             struct config_position position, struct status *st);

/* What to advise where a batch size is too large. */
struct config_advice {
    char text[160];
};
struct config_advice config_advise_batch(const struct model_config *c);

/* config_is_ensemble - the model is made of steps, each by another model. */
static inline bool config_is_ensemble(const Inference__ModelConfig *pb)
{
    return pb->scheduling_choice_case ==
           INFERENCE__MODEL_CONFIG__SCHEDULING_CHOICE_ENSEMBLE_SCHEDULING;
}

/* config_text - a copy of the string in the configuration's memory; NULL when that ends. */
char *config_text(struct model_config *c, const char *fmt, ...) PRINTF_LIKE(2, 3);

/* complete.c */
NODISCARD struct status *config_fill_backend(struct model_config *c,
                                             const struct config_facts *facts);
NODISCARD struct status *config_normalise(struct model_config *c);

/* validate.c, validate_sequence.c, validate_ensemble.c, validate_io.c, validate_data.c */
NODISCARD struct status *config_validate_backend(const struct model_config *c);
NODISCARD struct status *config_validate_general(const struct model_config *c);
NODISCARD struct status *config_validate_sequence(const struct model_config *c);
NODISCARD struct status *config_validate_ensemble(const struct model_config *c);
NODISCARD struct status *config_validate_groups(const struct model_config *c, bool has_gpus);
NODISCARD struct status *config_validate_io(const struct model_config *c);
NODISCARD struct status *config_validate_data(const struct model_config *c);

/* print.c */
const uint32_t *config_field_order(const ProtobufCMessageDescriptor *type);

#endif
