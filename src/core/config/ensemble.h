/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Validates an ensemble against the models of its steps (reference/behaviours §13.21, §14.15).
 * model_config_prepare() has already validated the ensemble's own configuration. The caller finds
 * the models, loaded or not, by a function (struct ensemble_lookup).
 */
#ifndef CONCH_CORE_CONFIG_ENSEMBLE_H
#define CONCH_CORE_CONFIG_ENSEMBLE_H

#include <stdbool.h>
#include <stddef.h>

#include "core/config/config.h"

struct arena;

enum ensemble_answer {
    ENSEMBLE_FOUND,
    ENSEMBLE_NO_MODEL,   /* none of that name, or several */
    ENSEMBLE_INVALID,    /* there is one, but it cannot be served: see `why` */
    ENSEMBLE_NO_VERSION, /* there is one, without that version; for -1: without any version */
};

/* A model that a step names. All borrowed until the ensemble's check returns. */
struct ensemble_member {
    const Inference__ModelConfig *pb;
    /* pb has all about the model's tensors. False: the backend may still complete the
     * configuration: inputs or outputs if there are none, a batch size of 0. */
    bool is_complete;
    const char *why;    /* for ENSEMBLE_INVALID, ENSEMBLE_NO_VERSION; or NULL */
    const char *advice; /* for a listener, unless FOUND: what may have been meant; or NULL */
};

struct ensemble_lookup {
    enum ensemble_answer (*find)(void *arg, const Inference__ModelEnsembling__Step *step,
                                 struct ensemble_member *ret_member);
    void *arg;
};

/*
 * ensemble_check - does every model exist, and do the connected tensors agree?
 *
 * @c       prepared; its listener, if any, gets all faults
 * Errors:  STATUS_INVALID_ARG  with the reference's texts, and the position
 */
NODISCARD struct status *ensemble_check(const struct model_config *c,
                                        const struct ensemble_lookup *lookup);

/*
 * ensemble_check_cycle - does the ensemble contain itself, at any depth?
 *
 * Models that are not found are ignored.
 * Errors:  STATUS_INVALID_ARG  circular dependency between ensembles: …
 */
NODISCARD struct status *ensemble_check_cycle(const struct model_config *c,
                                              const struct ensemble_lookup *lookup);

/*
 * ensemble_fail_cycle - the error of ensemble_check_cycle(), for a caller that has found the cycle.
 *
 * @through  the ensemble of the cycle that has c as a step
 * @step     the step of c that leads into the cycle; NULL: not known
 */
NODISCARD struct status *ensemble_fail_cycle(const struct model_config *c, const char *through,
                                             const Inference__ModelEnsembling__Step *step);

/*
 * ensemble_order - the indices of the steps, each after the steps whose outputs it reads.
 *
 * @c      prepared without a fault
 * @arena  holds the result
 * Errors: STATUS_UNAVAILABLE  no memory
 */
NODISCARD struct status *ensemble_order(const struct model_config *c, struct arena *arena,
                                        const size_t **ret_steps);

#endif
