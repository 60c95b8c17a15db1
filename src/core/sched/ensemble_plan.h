/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The graph of an ensemble, compiled from its configuration when the model is loaded: indices
 * instead of names. Constant once made, so any thread may read it.
 *
 * A tensor of the ensemble has one writer, an input of the ensemble or a step, and any number of
 * readers. Tensors and steps live in waves. The first wave has the inputs of the ensemble and what
 * follows from them. A decoupled step makes a wave for each of its responses; the steps that read
 * its outputs run once in each of them. All tensors that a step reads are of one kind of wave, and
 * so are all outputs of the ensemble: it is undefined which responses of two sources would belong
 * together (reference/behaviours §12.6, §14.15).
 */
#ifndef CONCH_CORE_SCHED_ENSEMBLE_PLAN_H
#define CONCH_CORE_SCHED_ENSEMBLE_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "core/config/config.h"

struct model_config;
struct status;

enum { ENSEMBLE_NONE = UINT32_MAX };

/* A model that steps name. Several steps with the same one share it. */
struct ensemble_model {
    const char *namespace, *name;
    int64_t version; /* -1: the latest */
};

/* An entry of a step's input map or output map. */
struct ensemble_mapping {
    const char *name; /* of the model's tensor */
    uint32_t tensor;
};

struct ensemble_step {
    uint32_t model;               /* in ensemble_plan.models */
    uint32_t n_inputs, n_outputs; /* without the condition */
    const struct ensemble_mapping *inputs, *outputs;
    uint32_t condition; /* a tensor; ENSEMBLE_NONE: the step always runs */
    uint32_t kind;      /* of the waves that it runs in */
    uint32_t slot;      /* its place in such a wave */
    uint32_t makes; /* the kind of wave that has its outputs: its own one, unless it is decoupled */
};

struct ensemble_tensor {
    const char *name;
    uint32_t writer;         /* a step; ENSEMBLE_NONE: an input of the ensemble */
    uint32_t input, output;  /* of the ensemble, by index; ENSEMBLE_NONE: it is none */
    uint32_t kind;           /* of the waves that it is in */
    uint32_t slot;           /* its place in such a wave */
    uint32_t n_readers;      /* entries of input maps */
    const uint32_t *readers; /* steps; one that reads the tensor twice is there twice */
};

struct ensemble_wave_kind {
    uint32_t step; /* whose responses make such waves; ENSEMBLE_NONE: the first wave */
    uint32_t n_tensors, n_steps;
    const uint32_t *tensors, *steps; /* by slot */
    /* By slot: who uses a tensor of a request of all outputs: entries of input maps; the answer. */
    const uint32_t *n_uses;
};

struct ensemble_plan {
    const char *name; /* of the ensemble */
    uint32_t n_models, n_steps, n_tensors, n_kinds, n_inputs, n_outputs;
    const struct ensemble_model *models;
    const struct ensemble_step *steps;
    const struct ensemble_tensor *tensors;
    const struct ensemble_wave_kind *kinds;  /* the first wave's is the first */
    const uint32_t *inputs, *outputs;        /* the ensemble's own ones: tensors */
    const uint32_t *order;                   /* the steps, writers before readers */
    const uint64_t *all_steps, *all_outputs; /* for a request of all outputs, as bits */
    uint32_t answer_kind; /* of the waves that have the outputs; 0 unless it is decoupled */
    uint32_t max_inflight_requests; /* of each step, among all requests; 0: no limit */
    struct arena arena;
};

/* Sets of steps or outputs, by index. */
static inline size_t ensemble_set_words(uint32_t n)
{
    return ((size_t)n + 63) / 64;
}

static inline bool ensemble_set_has(const uint64_t *set, uint32_t i)
{
    return set[i / 64] >> i % 64 & 1;
}

static inline void ensemble_set_add(uint64_t *set, uint32_t i)
{
    set[i / 64] |= (uint64_t)1 << i % 64;
}

/*
 * ensemble_plan_new - compiles the configuration of an ensemble. The caller ends the plan with
 * ensemble_plan_free(), before it frees the configuration, whose strings the plan borrows.
 *
 * @c          prepared without a fault
 * @decoupled  by step: is its model decoupled?
 * Errors:     STATUS_INVALID_ARG  in ensemble E, step of model 'M' receives inputs originated from
 *                                 different decoupled models
 *             STATUS_UNAVAILABLE  no memory
 */
NODISCARD struct status *ensemble_plan_new(const struct model_config *c, const bool *decoupled,
                                           struct ensemble_plan **ret_plan);
/* ensemble_plan_free - NULL is fine. */
void ensemble_plan_free(struct ensemble_plan *p);

/* ensemble_plan_is_decoupled - may a request get any number of responses? */
static inline bool ensemble_plan_is_decoupled(const struct ensemble_plan *p)
{
    return p->answer_kind != 0;
}

/* ensemble_plan_need - adds to `steps`, a set, all steps that this output needs. */
void ensemble_plan_need(const struct ensemble_plan *p, uint32_t output, uint64_t *steps);

/* ensemble_plan_find_output - the index of the ensemble's output of that name; ENSEMBLE_NONE. */
uint32_t ensemble_plan_find_output(const struct ensemble_plan *p, const char *name);

#endif
