/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The first request of a batch is compared with each candidate. Most models need no comparison at
 * all: model.compares_inputs says so.
 */
#include "core/sched/can_batch.h"

#include <string.h>

#include "core/model/model.h"
#include "core/request/request.h"

/* Requests mostly name their inputs in the same order. */
static const struct input *find_counterpart(const struct request *a, const struct request *b,
                                            uint32_t i)
{
    const struct tensor_spec *spec = b->maker.inputs[i]->spec;
    if (a->maker.inputs[i]->spec == spec)
        return a->maker.inputs[i];
    for (uint32_t j = 0; j < a->maker.n_inputs; j++) {
        if (a->maker.inputs[j]->spec == spec)
            return a->maker.inputs[j];
    }
    return NULL;
}

bool requests_can_batch(const struct request *a, const struct request *b)
{
    const struct model *m = a->model;
    if (!m->compares_inputs)
        return true;
    if (a->maker.n_inputs != b->maker.n_inputs)
        return false;
    uint32_t batch_dims = m->batching;
    for (uint32_t i = 0; i < b->maker.n_inputs; i++) {
        const struct input *x = find_counterpart(a, b, i), *y = b->maker.inputs[i];
        if (!x)
            return false;
        size_t bytes = (y->n_dims - batch_dims) * sizeof(*y->shape);
        if (y->spec->same_in_batch &&
            memcmp(x->shape + batch_dims, y->shape + batch_dims, bytes) != 0)
            return false;
    }
    return true;
}
