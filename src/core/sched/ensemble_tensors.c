/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which tensors of its model a step reads and writes: found once, when the ensemble is loaded,
 * since an ensemble has the same models as long as it lives. Constant from then on.
 */
#include <string.h>

#include "base/status.h"
#include "core/model/model.h"
#include "core/sched/ensemble_priv.h"

/* Sets ret->output_names if the model has all outputs. False: no memory. */
static bool find_tensors(struct arena *a, const struct ensemble_step *step, const struct model *m,
                         struct ensemble_step_tensors *ret)
{
    const struct tensor_spec **inputs = arena_alloc(a, step->n_inputs * sizeof(*inputs));
    const char **names = arena_alloc(a, step->n_outputs * sizeof(*names));
    bool has_all = true;
    if (!inputs || !names)
        return false;
    for (uint32_t i = 0; i < step->n_inputs; i++)
        inputs[i] = model_find_input(m, step->inputs[i].name);
    for (uint32_t i = 0; i < step->n_outputs; i++) {
        const struct tensor_spec *spec = model_find_output(m, step->outputs[i].name);
        has_all &= spec != NULL;
        names[i] = spec ? spec->name : NULL;
    }
    ret->inputs = inputs;
    ret->output_names = has_all ? names : NULL;
    return true;
}

struct status *ensemble_tensors_new(struct ensemble_plan *p, struct model *const *models,
                                    const struct ensemble_step_tensors **ret_tensors)
{
    struct ensemble_step_tensors *tensors = arena_alloc(&p->arena, p->n_steps * sizeof(*tensors));
    bool fits = tensors != NULL;
    for (uint32_t i = 0; fits && i < p->n_steps; i++)
        fits = find_tensors(&p->arena, &p->steps[i], models[i], &tensors[i]);
    if (!fits)
        return status_no_memory();
    *ret_tensors = tensors;
    return NULL;
}

uint32_t ensemble_find_output(const struct ensemble_step_request *s, const char *name)
{
    const char *const *own = s->tensors->output_names;
    for (uint32_t i = 0; own && i < s->plan->n_outputs; i++) {
        if (own[i] == name)
            return i;
    }
    for (uint32_t i = 0; i < s->plan->n_outputs; i++) {
        if (strcmp(s->plan->outputs[i].name, name) == 0)
            return i;
    }
    return ENSEMBLE_NONE;
}
