/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An ensemble and the models that it is made of: do they fit together (reference/behaviours §13.21,
 * §14.15)? What its own configuration can tell has been checked by prepare. The models are the
 * caller's matter: they are asked for by a function, loaded or not.
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
    ENSEMBLE_INVALID,    /* there is one, which cannot be served: `why` */
    ENSEMBLE_NO_VERSION, /* there is one, without the version; for -1: without any */
};

/* A model that a step names. All borrowed until the ensemble's check returns. */
struct ensemble_member {
    const Inference__ModelConfig *pb;
    /* Everything about its tensors is in pb. False when the backend, which has not been asked, may
     * add what is not there: a side without tensors, a batch size of 0. */
    bool is_complete;
    const char *why;    /* of ENSEMBLE_INVALID, ENSEMBLE_NO_VERSION; or NULL */
    const char *advice; /* of all but FOUND, for a listener: what may have been meant; or NULL */
};

struct ensemble_lookup {
    enum ensemble_answer (*find)(void *arg, const Inference__ModelEnsembling__Step *step,
                                 struct ensemble_member *ret_member);
    void *arg;
};

/*
 * ensemble_check - is every model there, and do the tensors that are connected agree?
 *
 * @c       prepared; a listener of its gets everything
 * Errors:  STATUS_INVALID_ARG  with the reference's texts, and the position
 */
NODISCARD struct status *ensemble_check(const struct model_config *c,
                                        const struct ensemble_lookup *lookup);

/*
 * ensemble_check_cycle - does the ensemble contain itself, at any depth?
 *
 * Members that are not found are passed over.
 * Errors:  STATUS_INVALID_ARG  circular dependency between ensembles: …
 */
NODISCARD struct status *ensemble_check_cycle(const struct model_config *c,
                                              const struct ensemble_lookup *lookup);

/*
 * ensemble_fail_cycle - what ensemble_check_cycle() says, for a caller that has found the cycle.
 *
 * @through  the ensemble in it that has c as its part
 * @step     of c, that leads into the cycle; NULL: not known
 */
NODISCARD struct status *ensemble_fail_cycle(const struct model_config *c, const char *through,
                                             const Inference__ModelEnsembling__Step *step);

/*
 * ensemble_order - the indices of the steps in an order in which data can flow.
 *
 * @c      prepared without a fault
 * @arena  holds the result
 * Errors: STATUS_UNAVAILABLE  no memory
 */
NODISCARD struct status *ensemble_order(const struct model_config *c, struct arena *arena,
                                        const size_t **ret_steps);

#endif
