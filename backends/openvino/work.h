/* SPDX-License-Identifier: Apache-2.0 */
/*
 * work - the most work that a run of a model in OpenVINO's own format can take, for any inputs.
 */
#ifndef BACKENDS_OPENVINO_WORK_H
#define BACKENDS_OPENVINO_WORK_H

#include <stdbool.h>
#include <stdint.h>

/*
 * work_is_small - is the work of a run, counted from the shapes in the file in multiplications, at
 * most COST_SMALL (onnxruntime/cost.h)?
 *
 * It can be if every tensor has a shape that is known but for the batch as its first dimension, and
 * if the work of all operators follows from shapes alone: no loops, no branches, no operators of
 * other people, no strings. The answer is no for anything else, and for lack of memory.
 *
 * @text      the graph, with a zero after it
 * @batch     the most rows of a batch; 0: the model has no batches, and all dimensions are known
 * @ret_work  on success
 */
bool work_is_small(const char *text, int64_t batch, uint64_t *ret_work);

#endif
