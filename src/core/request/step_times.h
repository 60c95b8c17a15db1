/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The statistics of an ensemble's request: what its steps have computed, summed up, and its end.
 * The models of the steps count the steps, too, as requests of their own.
 *
 *     struct step_times times = {0};          one for each request of the ensemble
 *     step->maker.step_times = &times;        for each step, before server_infer()
 *     …                                       all steps are released
 *     request_count_ensemble(r, &times, succeeded);
 *
 * Source: reference/behaviours §16.8, §16.9
 */
#ifndef CONCH_CORE_REQUEST_STEP_TIMES_H
#define CONCH_CORE_REQUEST_STEP_TIMES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/model/statistics.h"

struct request;

/* Steps may be executed at the same time: any thread adds. */
struct step_times {
    atomic_uint_least64_t input_ns, infer_ns, output_ns;
};

/* step_times_add - a step has been executed; its backend reports that before it releases the
 * step. Thread: any. */
static inline void step_times_add(struct step_times *t, const struct compute_ns *ns)
{
    /* Relaxed: the release of the step orders them before the end of the ensemble's request. Short
     * steps often have no time but that of the model: a backend need not tell the parts apart. */
    if (ns->input)
        atomic_fetch_add_explicit(&t->input_ns, ns->input, memory_order_relaxed);
    atomic_fetch_add_explicit(&t->infer_ns, ns->infer, memory_order_relaxed);
    if (ns->output)
        atomic_fetch_add_explicit(&t->output_ns, ns->output, memory_order_relaxed);
}

/*
 * request_count_ensemble - counts an accepted request of an ensemble: a success with the times of
 * its steps, or a failure, which the reference counts twice. The steps of a step that is an
 * ensemble count in the outer one, too.
 *
 * Thread: any that has the request; once, when all steps are released and before the request is.
 */
void request_count_ensemble(const struct request *r, const struct step_times *t, bool succeeded);

#endif
