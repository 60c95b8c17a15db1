/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ir_cost - the most work that a run of a model in OpenVINO's own format can take, for any inputs.
 */
#ifndef BACKENDS_OPENVINO_IR_COST_H
#define BACKENDS_OPENVINO_IR_COST_H

#include "common/cost.h"

/*
 * ir_cost_is_small - is the cost of a run, counted from the shapes in the file, at most COST_SMALL?
 *
 * It can be if every tensor has a shape that is known but for the batch as its first dimension, and
 * if the cost of all operators follows from shapes alone: no loops, no branches, no operators of
 * extensions, no strings. The answer is no for anything else, and for lack of memory.
 *
 * @text      the graph, with a zero after it
 * @batch     the most rows of a batch; 0: the model has no batches, and all dimensions are known
 * @ret_cost  on success
 */
bool ir_cost_is_small(const char *text, int64_t batch, uint64_t *ret_cost);

#endif
