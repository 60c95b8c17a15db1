/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Merges the configuration that a backend made of its model (reference/behaviours §14.5).
 */
#include "base/pbjson.h"
#include "base/pbmsg.h"
#include "base/status.h"
#include "core/config/config.h"
#include "core/config/honoured.h"

typedef Inference__ModelConfig__SchedulingChoiceCase choice_case;

static const char *choice_name(choice_case choice)
{
    switch (choice) {
    case INFERENCE__MODEL_CONFIG__SCHEDULING_CHOICE_DYNAMIC_BATCHING:
        return "dynamic_batching";
    case INFERENCE__MODEL_CONFIG__SCHEDULING_CHOICE_SEQUENCE_BATCHING:
        return "sequence_batching";
    case INFERENCE__MODEL_CONFIG__SCHEDULING_CHOICE_ENSEMBLE_SCHEDULING:
        return "ensemble_scheduling";
    default:
        return "none";
    }
}

/* The backend's choice counts only if the configuration makes none. */
NODISCARD static struct status *merge_choice(struct model_config *c,
                                             const Inference__ModelConfig *from)
{
    Inference__ModelConfig *pb = c->pb;
    choice_case had = pb->scheduling_choice_case, wants = from->scheduling_choice_case;
    if (had == wants)
        return NULL;
    if (had != INFERENCE__MODEL_CONFIG__SCHEDULING_CHOICE__NOT_SET)
        return status_new(STATUS_INTERNAL,
                          "Cannot update scheduling choice from %d to %d when auto-completing. "
                          "(from %s to %s)",
                          (int)had, (int)wants, choice_name(had), choice_name(wants));
    pb->scheduling_choice_case = wants;
    pb->dynamic_batching = from->dynamic_batching; /* one union: copies any member */
    return NULL;
}

/* The text is not the user's own. */
NODISCARD static struct status *blame_backend(struct status *st)
{
    if (status_code(st) != STATUS_INVALID_ARG)
        return st;
    struct status *whole =
        status_new(STATUS_INVALID_ARG, "%s, in what the backend has set", status_message(st));
    status_free(st);
    return whole;
}

struct status *model_config_merge_from_backend(struct model_config *c, const char *json,
                                               size_t length)
{
    ProtobufCMessage *m = NULL;
    struct status *st =
        pbjson_parse(&inference__model_config__descriptor, json, length, &c->arena, &m);
    if (st)
        return blame_backend(st);

    const Inference__ModelConfig *from = (const Inference__ModelConfig *)m;
    st = merge_choice(c, from);
    if (st)
        return st;
    Inference__ModelConfig *pb = c->pb;
    if (pb->max_batch_size == 0)
        c->batch_written = model_config_is_given(c, pb, "max_batch_size");
    c->batch_from_backend |= pb->max_batch_size == 0 && from->max_batch_size > 0;
    pb->max_batch_size = from->max_batch_size;
    pb->n_input = from->n_input;
    pb->input = from->input;
    pb->n_output = from->n_output;
    pb->output = from->output;
    if (from->model_transaction_policy)
        pb->model_transaction_policy = from->model_transaction_policy;
    c->provided = true;
    c->from_backend = true;
    return NULL;
}
