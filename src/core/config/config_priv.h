/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the configuration library: one file per step of the life in config.h.
 */
#ifndef CONCH_CORE_CONFIG_CONFIG_PRIV_H
#define CONCH_CORE_CONFIG_CONFIG_PRIV_H

#include "core/config/config.h"

enum { CONFIG_MAX_MEMORY = 64 << 20 };

/*
 * The field that an error is about: `field` of `message`, its element `index` when it is repeated.
 * A field that the text does not have gets the position of its message.
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

/* advised - the same position with advice: what would have been right, or "". The advice is
 * borrowed until the fault has been reported. */
static inline struct config_position advised(struct config_position position, const char *advice)
{
    position.advice = advice && *advice ? advice : NULL;
    return position;
}

/*
 * config_fail - reports a broken rule (STATUS_INVALID_ARG), and adds " (file:line:column): advice".
 * If there is a listener, it gets the fault and the function returns NULL. Validation then goes on,
 * so what it reads next must be safe to read.
 */
NODISCARD struct status *config_fail(const struct model_config *c, struct config_position position,
                                     const char *fmt, ...) PRINTF_LIKE(3, 4);

/* config_add_position - the same for a status that exists already; taken. */
NODISCARD struct status *config_add_position(const struct model_config *c,
                                             struct config_position position, struct status *st);

/* The advice for a batch size that is too large. */
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

/* config_text - the formatted string in the configuration's arena; NULL: no memory. */
char *config_text(struct model_config *c, const char *fmt, ...) PRINTF_LIKE(2, 3);

/* A kind of model that its platform, its backend or its file identifies. */
struct config_artifact {
    const char *backend;
    const char *platform; /* NULL: the backend has none */
    const char *file;
    enum { EITHER, FILE_ONLY, FOLDER_ONLY } form;
    bool needs_platform;    /* the backend's name alone does not determine the file */
    const char *not_beside; /* another file that is preferred to this one */
};

/* complete.c */
/* In the order of the search; the last one has no file. */
extern const struct config_artifact config_artifacts[];
NODISCARD struct status *config_fill_backend(struct model_config *c,
                                             const struct config_facts *facts);
NODISCARD struct status *config_normalise(struct model_config *c);

/* config_advise_wrong_file - as model_config_advise_files(), of files that are there. */
char *config_advise_wrong_file(const struct config_facts *facts);

/* validate.c, validate_sequence.c, validate_ensemble.c, validate_io.c, validate_data.c */
NODISCARD struct status *config_validate_backend(const struct model_config *c);
NODISCARD struct status *config_validate_general(const struct model_config *c);
NODISCARD struct status *config_validate_sequence(const struct model_config *c);
NODISCARD struct status *config_validate_ensemble(const struct model_config *c);
NODISCARD struct status *config_validate_groups(const struct model_config *c, int n_gpus);
NODISCARD struct status *config_validate_io(const struct model_config *c);
NODISCARD struct status *config_validate_data(const struct model_config *c);

/* print.c */
const uint32_t *config_field_order(const ProtobufCMessageDescriptor *type);

#endif
