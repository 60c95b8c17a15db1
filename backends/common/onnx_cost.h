/* SPDX-License-Identifier: Apache-2.0 */
/*
 * onnx_cost - the most work that a run of an ONNX model can take, for any inputs.
 *
 * Threads: no state is kept; any thread.
 */
#ifndef BACKENDS_COMMON_ONNX_COST_H
#define BACKENDS_COMMON_ONNX_COST_H

#include "common/cost.h"

/*
 * onnx_cost_is_small - is the cost of a run, counted from the shapes in the file, at most
 * COST_SMALL?
 *
 * It can be if the file gives all shapes, except for a batch dimension, and if the cost of all
 * operators follows from shapes alone: no loops, no branches, no operators of other domains, no
 * strings. The answer is no for anything else, and for a file that is no ONNX file.
 *
 * @batch     size of the inputs' first dimension where the file does not give it; 0: not used
 * @ret_cost  on success
 */
bool onnx_cost_is_small(const char *file, int64_t batch, uint64_t *ret_cost);

#endif
